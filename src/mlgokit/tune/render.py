"""The results of tunings and checks for a terminal."""

from rich.console import Console
from rich.text import Text

from mlgokit.compiler.objects.link import LinkStatus
from mlgokit.terminal import numbers, plain_table, say, say_reasons, words
from mlgokit.tune.check import CheckResult
from mlgokit.tune.result import Tuned

MOST_ROWS = 25


def print_tuned(tuned: Tuned, out: Console) -> None:
    """Print the modules that changed most, the totals, and what to do with the plugin."""
    table = plain_table(
        "Modules, by bytes saved", [*words("module"), *numbers("plain", "tuned", "change", "decisions", "allocated")]
    )
    changed = sorted((one for one in tuned.modules if not one.plain), key=lambda one: one.tuned_bytes - one.plain_bytes)
    for one in changed[:MOST_ROWS]:
        change = one.tuned_bytes - one.plain_bytes
        sizes = (f"{one.plain_bytes:,.0f}", f"{one.tuned_bytes:,.0f}", f"{change:+,.0f}")
        table.add_row(Text(one.name), *sizes, str(one.decisions), str(one.allocated))
    out.print(table)
    plain = sum(one.plain for one in tuned.modules)
    hidden = len(changed) - min(len(changed), MOST_ROWS)
    say(
        out,
        f"{len(tuned.modules)} modules: {len(changed)} smaller{f' ({hidden} not shown)' if hidden else ''}, "
        f"{plain} left as they are, byte for byte; {len(tuned.failures)} do not compile",
    )
    for one in tuned.modules:
        if one.note:
            say(out, f"left as it is: {one.name}: {one.note}")
    say_reasons(out, "does not compile", tuned.failures)
    say_reasons(out, "left out, and as LLVM has it", tuned.left_out)
    say(out, f"objects, each COMDAT once: {_change(tuned.plain_bytes, tuned.tuned_bytes)}")
    if (allocated := tuned.allocated) is not None:
        say(
            out,
            f"of that by register allocation: {_change(allocated.before_bytes, allocated.after_bytes)}, "
            f"{allocated.changed:,} of {allocated.functions:,} functions allocated otherwise",
        )
    before, after = tuned.plain_link, tuned.tuned_link
    if before is not None and after is not None and before.status is after.status is LinkStatus.LINKED:
        say(out, f"linked, unused sections dropped: {_change(before.image, after.image)}")
        say(out, f"of that the code: {_change(before.text, after.text)}")
    if (judged := tuned.judged) is not None and judged.before is not None and judged.after is not None:
        change = f" ({100 * (judged.after / judged.before - 1):+.2f} %)" if judged.before > 0 else ""
        spread = (
            f", {judged.low:+,.6g} to {judged.high:+,.6g} in {judged.pairs} pairs" if judged.low < judged.high else ""
        )
        say(out, f"by the objective: {judged.before:,.12g} -> {judged.after:,.12g}{change}{spread}")
        say(out, f"found by the search, but not by the objective, and taken back: {tuned.taken_back}")
    say(
        out,
        f"{tuned.compilations:,} compilations, {tuned.user_seconds / 60:.1f} minutes of processor time"
        f"{f'; {tuned.ended}' if tuned.ended else ''}",
    )
    say(out, f"add to the build: {tuned.flag}")


def print_check(kept: CheckResult, out: Console) -> None:
    """Print the modules of today's code, largest first among those that the plugin changes, and what to do."""
    titles = numbers("asked", "kept", "allocated", "plain", "tuned", "change")
    table = plain_table("Modules", [*words("module", "in the plugin"), *titles])
    order = sorted(kept.modules, key=lambda one: (one.plain_bytes - one.tuned_bytes, one.name))
    decided = [one for one in order if one.state != "left plain" or one.asked]
    for one in decided[:MOST_ROWS]:
        change = one.tuned_bytes - one.plain_bytes
        table.add_row(
            Text(one.name), one.state, str(one.asked), str(one.kept), str(one.allocated),
            f"{one.plain_bytes:,.0f}", f"{one.tuned_bytes:,.0f}", f"{change:+,.0f}" + (" larger" if change > 0 else ""),
        )  # fmt: skip
    out.print(table)
    states = [one.state for one in kept.modules]
    hidden = len(decided) - min(len(decided), MOST_ROWS)
    say(
        out,
        f"{len(states)} modules: {states.count('tuned')} tuned, {states.count('left plain')} left plain, "
        f"{states.count('new')} new{f' ({hidden} not shown)' if hidden else ''}; {len(kept.gone)} of the plugin's are "
        f"gone; {len(kept.failures)} do not compile",
    )
    for title, names in (("gone", kept.gone), ("larger than plain", kept.larger)):
        if names:
            say(out, f"{title}: {', '.join(names)}")
    say_reasons(out, "does not compile", kept.failures)
    say_reasons(out, "left out", kept.left_out)
    say(out, f"objects, each COMDAT once: {_change(kept.plain_bytes, kept.tuned_bytes)}")
    if kept.plain_link is not None and kept.tuned_link is not None:
        say(out, f"linked, unused sections dropped: {_change(kept.plain_link.image, kept.tuned_link.image)}")
    say(out, verdict(kept))


def verdict(kept: CheckResult) -> str:
    """One sentence: what is kept, and whether tuning again is worth it."""
    promised = "" if kept.promised_change is None else f", {100 * kept.promised_change:+.1f} % when it was tuned"
    start = f"mlgokit tune --start {kept.plugin}"
    if kept.larger:
        grew, them = ("1 module", "it") if len(kept.larger) == 1 else (f"{len(kept.larger)} modules", "them")
        advice = f"{grew} grew: `{start} --budget 0s` puts {them} back, a larger budget finds more"
    elif kept.tune_again:
        advice = f"tuning again is worth it: `{start}`"
    else:
        advice = "tuning again can wait"
    allocations = (
        f" and {kept.allocations_kept:,} of {kept.allocations:,} allocated functions" if kept.allocations else ""
    )
    return (
        f"{kept.kept:,} of {kept.decisions:,} decisions ({100 * kept.share:.0f} %){allocations} still apply, "
        f"the build changes by {100 * kept.change:+.1f} %{promised}: {advice}"
    )


def _change(before: float, after: float) -> str:
    return f"{before:,.0f} -> {after:,.0f} bytes ({100 * (after / before - 1):+.2f} %)"
