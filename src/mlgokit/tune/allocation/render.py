"""The results of searches over register allocations, and of checks of them, for a terminal."""

from rich.console import Console
from rich.text import Text

from mlgokit.terminal import numbers, plain_table, say, say_reasons, words
from mlgokit.tune.allocation.check import AllocationCheckResult
from mlgokit.tune.allocation.proof import Allocated, AllocatedModule
from mlgokit.tune.render import MOST_ROWS


def print_allocated(found: Allocated, out: Console) -> None:
    """Print the modules that changed most, the totals, and what to do with the plugin."""
    table = plain_table(
        "Modules, by what spills, reloads and copies cost",
        [*words("module"), *numbers("changed", "plain", "tuned", "sum", "mean", "text")],
    )
    changed = sorted((one for one in found.modules if one.changed), key=lambda one: one.change)
    for one in changed[:MOST_ROWS]:
        table.add_row(
            Text(one.name), f"{one.changed} of {one.functions}", f"{one.plain_score:,.1f}", f"{one.tuned_score:,.1f}",
            _percent(one.plain_score, one.tuned_score), f"{100 * one.change:+.1f} %", _text(one),
        )  # fmt: skip
    out.print(table)
    hidden = len(changed) - min(len(changed), MOST_ROWS)
    say(
        out,
        f"{len(found.modules)} modules: {len(changed)} better{f' ({hidden} not shown)' if hidden else ''}, "
        f"{len(found.modules) - len(changed)} left as they are, byte for byte; {len(found.failures)} do not compile",
    )
    for one in found.modules:
        if one.note:
            say(out, f"{one.name}: {one.note}")
    say_reasons(out, "does not compile", found.failures)
    say_reasons(out, "left out, and as LLVM has it", found.left_out)
    say(
        out,
        f"{found.functions:,} functions with costs, {found.changed:,} allocated otherwise, none costs more than before",
    )
    say(
        out,
        f"geometric mean of their costs: {100 * found.change:+.2f} %; sum, each relative to its entry: "
        f"{found.plain_score:,.1f} -> {found.tuned_score:,.1f} ({_percent(found.plain_score, found.tuned_score)})",
    )
    say(
        out,
        f"code, which is not the objective: {found.plain_text:,} -> {found.tuned_text:,} bytes "
        f"({_percent(found.plain_text, found.tuned_text)})",
    )
    say(
        out,
        f"{found.compilations:,} compilations with {found.trials:,} trials, "
        f"{found.user_seconds / 60:.1f} minutes of processor time",
    )
    say(out, f"add to the build: {found.flag}")


def print_allocation_check(kept: AllocationCheckResult, out: Console) -> None:
    """Print the modules of today's code that the plugin changes, those that gain most first, and what to do."""
    table = plain_table(
        "Modules, by what spills, reloads and copies cost",
        [*words("module"), *numbers("allocated", "plain", "tuned", "sum", "text")],
    )
    order = sorted(kept.modules, key=lambda one: (one.tuned_score - one.plain_score, one.name))
    changed = [one for one in order if one.allocated or one.tuned_score != one.plain_score]
    for one in changed[:MOST_ROWS]:
        table.add_row(
            Text(one.name), str(one.allocated), f"{one.plain_score:,.1f}", f"{one.tuned_score:,.1f}",
            _percent(one.plain_score, one.tuned_score), f"{one.tuned_text - one.plain_text:+,}",
        )  # fmt: skip
    out.print(table)
    hidden = len(changed) - min(len(changed), MOST_ROWS)
    say(
        out,
        f"{len(kept.modules)} modules: {len(changed)} allocated otherwise{f' ({hidden} not shown)' if hidden else ''}; "
        f"{len(kept.failures)} do not compile",
    )
    say_reasons(out, "does not compile", kept.failures)
    say_reasons(out, "left out", kept.left_out)
    for one in kept.modules:
        if one.worse:
            say(out, f"costs more than plain in {one.name}: {', '.join(one.worse)}")
    say(out, f"geometric mean of the functions' costs: {100 * kept.mean_change:+.2f} %")
    say(out, allocations_verdict(kept))


def allocations_verdict(kept: AllocationCheckResult) -> str:
    """One sentence: what is kept, and whether tuning again is worth it."""
    again = f"`mlgokit tune --objective spill-cost --start {kept.plugin}`"
    promised = "" if kept.promised_change is None else f", {100 * kept.promised_change:+.1f} % when it was tuned"
    advice = f"tuning again is worth it: {again}" if kept.tune_again else "tuning again can wait"
    return (
        f"{kept.allocations_kept:,} of {kept.allocations:,} allocated functions ({100 * kept.share:.0f} %) are as they "
        f"were, the sum of costs changes by {100 * kept.change:+.1f} %{promised}: {advice}"
    )


def _percent(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.2f} %" if before else "+0.00 %"


def _text(one: AllocatedModule) -> str:
    return f"{one.tuned_text - one.plain_text:+,}"
