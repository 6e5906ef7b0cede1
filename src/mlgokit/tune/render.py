"""The results of tunings and checks for a terminal."""

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from mlgokit.builds.images import LINKED
from mlgokit.builds.recorded import TunedBuild
from mlgokit.compiler.objects.link import LinkStatus
from mlgokit.terminal import counted, numbers, plain_table, say, say_reasons, words
from mlgokit.tune.check import CheckResult
from mlgokit.tune.replay import ReplayResult
from mlgokit.tune.result import SearchedFunctions, SpillCosts, Tuned, TunedModule

MOST_ROWS = 25
_BY_COSTS = "Modules, by what spills, reloads and copies cost"


def print_tuned(tuned: Tuned, out: Console) -> None:
    """Print the modules that changed most, the totals, and what to do with the plugin."""
    changed = [one for one in tuned.modules if not one.plain]
    changed.sort(key=lambda one: one.tuned_bytes - one.plain_bytes if one.costs is None else one.costs.change)
    _print_modules(changed, tuned.costs, out)
    plain, hidden = len(tuned.modules) - len(changed), len(changed) - min(len(changed), MOST_ROWS)
    say(
        out,
        f"{len(tuned.modules)} modules: {len(changed)} {'smaller' if tuned.costs is None else 'better'}"
        f"{f' ({hidden} not shown)' if hidden else ''}, "
        f"{plain} left as they are, byte for byte; {len(tuned.failures)} do not compile",
    )
    for one in tuned.modules:
        if one.note:
            say(out, f"{'left as it is: ' if one.costs is None else ''}{one.name}: {one.note}")
    _say_left_out(tuned.failures, tuned.left_out, "left out, and as LLVM has it", out)
    for note in tuned.notes:
        say(out, note)
    if tuned.baseline:
        say(out, f"baseline: {tuned.baseline}")
    trials = ""
    if tuned.allocated is not None and tuned.costs is not None:
        _say_costs(tuned, tuned.allocated, tuned.costs, out)
        trials = f" with {tuned.allocated.trials:,} trials"
    else:
        _say_bytes(tuned, out)
    say(
        out,
        f"{tuned.compilations:,} compilations{trials}, {tuned.user_seconds / 60:.1f} minutes of processor time"
        f"{f'; {tuned.ended}' if tuned.ended else ''}",
    )
    if tuned.built is not None:
        _print_programs(tuned.built, out)
    if tuned.report:
        say(out, f"report: {tuned.report}")
    for name, (plain, small) in tuned.cargo_programs.items():
        say(out, f"the program {name}, as rustc links it: {_change(plain, small)}")
    say(out, _how_to_use(tuned))
    if tuned.replay is not None:
        say(out, "without the plugin, by LLVM's inline replay:")
        print_replay(tuned.replay, out)


def _how_to_use(tuned: Tuned) -> str:
    if tuned.cargo_programs:
        return f"build with: {tuned.flag}"
    if tuned.modules and all(one.plain for one in tuned.modules):
        return "nothing was found that pays: the build is the same without the plugin, so leave it out"
    return f"add to the build: {tuned.flag if tuned.built is None else tuned.built.line}"


def _print_programs(built: TunedBuild, out: Console) -> None:
    """What the user's own build gives with the plugin."""
    titles = ("plain", "tuned", "change", "", ".text", ".rodata", ".eh_frame", "data")
    table = plain_table(
        "Programs of the build, by llvm-size's text; sections: change in bytes", [*words("program"), *numbers(*titles)]
    )
    for one in sorted(built.programs, key=lambda one: one.tuned.image - one.plain.image):
        if one.plain.status == one.tuned.status == LINKED:
            parts = ("text", "rodata", "eh_frame", "data")
            changes = [f"{getattr(one.tuned, part) - getattr(one.plain, part):+,d}" for part in parts]
            change, percent = one.tuned.image - one.plain.image, _percent(one.plain.image, one.tuned.image)
            table.add_row(
                Text(one.program), f"{one.plain.image:,d}", f"{one.tuned.image:,d}", f"{change:+,d}", percent, *changes
            )
        else:
            say(out, f"{one.program}: cannot be compared: {one.plain.reason or one.tuned.reason}")
    out.print(table)
    for sentence in (built.tests, *built.notes):
        if sentence:
            say(out, sentence)


def _print_modules(changed: list[TunedModule], costs: SpillCosts | None, out: Console) -> None:
    titles = ("plain", "tuned", "change", "decisions", "passes", "allocated")
    if costs is not None:
        titles = ("changed", "plain", "tuned", "sum", "mean", "text")
    table = plain_table(
        "Modules, by bytes saved" if costs is None else _BY_COSTS, [*words("module"), *numbers(*titles)]
    )
    for one in changed[:MOST_ROWS]:
        change = f"{one.tuned_bytes - one.plain_bytes:+,.0f}"
        if one.costs is None:
            passes = str(one.optimizer_passes + one.passes)
            sizes = (f"{one.plain_bytes:,.0f}", f"{one.tuned_bytes:,.0f}", change)
            table.add_row(Text(one.name), *sizes, str(one.decisions), passes, str(one.allocated))
        else:
            cells = (*_cost_cells(one.costs), f"{100 * one.costs.change:+.1f} %", change)
            table.add_row(Text(one.name), f"{one.allocated} of {one.costs.functions}", *cells)
    out.print(table)


def _say_bytes(tuned: Tuned, out: Console) -> None:
    say(out, f"objects, each COMDAT once: {_change(tuned.plain_bytes, tuned.tuned_bytes)}")
    for which, passes in (("the optimizer", tuned.optimizer_passes), ("the code generator", tuned.passes)):
        if passes is not None and passes.functions:
            say(
                out,
                f"of that by passes of {which} left out: {_change(passes.before_bytes, passes.after_bytes)}, "
                f"in {passes.changed:,} of {passes.functions:,} functions",
            )
        elif passes is not None:
            say(out, f"passes of {which}: none could be tried in the time that was left; --continue goes on")
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


def _say_costs(tuned: Tuned, allocated: SearchedFunctions, costs: SpillCosts, out: Console) -> None:
    say(
        out,
        f"{allocated.functions:,} functions with costs, {allocated.changed:,} allocated otherwise, "
        "none costs more than before",
    )
    say(
        out,
        f"geometric mean of their costs: {100 * costs.change:+.2f} %; sum, each relative to its entry: "
        f"{costs.plain:,.1f} -> {costs.tuned:,.1f} ({_percent(costs.plain, costs.tuned)})",
    )
    say(out, f"code, which is not the objective: {_change(tuned.plain_bytes, tuned.tuned_bytes)}")


def print_check(found: CheckResult, out: Console) -> None:
    """Print the modules of today's code that the plugin changes, those that gain most first, and what to do."""
    (_print_checked_bytes if found.costs is None else _print_checked_costs)(found, out)
    _say_left_out(found.failures, found.left_out, "left out", out)
    for note in found.notes:
        say(out, note)
    for one in found.modules:
        if one.worse:
            say(out, f"costs more than plain in {one.name}: {', '.join(one.worse)}")
    if found.costs is not None:
        say(out, f"geometric mean of the functions' costs: {100 * found.costs.change:+.2f} %")
    else:
        say(out, f"objects, each COMDAT once: {_change(found.plain_bytes, found.tuned_bytes)}")
    if found.plain_link is not None and found.tuned_link is not None:
        say(out, f"linked, unused sections dropped: {_change(found.plain_link.image, found.tuned_link.image)}")
    say(out, verdict(found))


def _print_checked_bytes(found: CheckResult, out: Console) -> None:
    titles = numbers("asked", "kept", "allocated", "plain", "tuned", "change")
    table = plain_table("Modules", [*words("module", "in the plugin"), *titles])
    order = sorted(found.modules, key=lambda one: (one.plain_bytes - one.tuned_bytes, one.name))
    decided = [one for one in order if one.state != "left plain" or one.asked]
    for one in decided[:MOST_ROWS]:
        change = one.tuned_bytes - one.plain_bytes
        table.add_row(
            Text(one.name), one.state, str(one.asked), str(one.kept), str(one.allocated),
            f"{one.plain_bytes:,.0f}", f"{one.tuned_bytes:,.0f}", f"{change:+,.0f}" + (" larger" if change > 0 else ""),
        )  # fmt: skip
    out.print(table)
    states = [one.state for one in found.modules]
    hidden = len(decided) - min(len(decided), MOST_ROWS)
    say(
        out,
        f"{len(states)} modules: {states.count('tuned')} tuned, {states.count('left plain')} left plain, "
        f"{states.count('new')} new{f' ({hidden} not shown)' if hidden else ''}; {len(found.gone)} of the plugin's are "
        f"gone; {len(found.failures)} do not compile",
    )
    for title, names in (("gone", found.gone), ("larger than plain", found.larger)):
        if names:
            say(out, f"{title}: {', '.join(names)}")


def _print_checked_costs(found: CheckResult, out: Console) -> None:
    table = plain_table(_BY_COSTS, [*words("module"), *numbers("allocated", "plain", "tuned", "sum", "text")])
    changed = [(costs, one) for one in found.modules if (costs := one.costs) and (one.allocated or _differs(costs))]
    changed.sort(key=lambda pair: (pair[0].tuned - pair[0].plain, pair[1].name))
    for costs, one in changed[:MOST_ROWS]:
        change = f"{one.tuned_bytes - one.plain_bytes:+,.0f}"
        table.add_row(Text(one.name), str(one.allocated), *_cost_cells(costs), change)
    out.print(table)
    hidden = len(changed) - min(len(changed), MOST_ROWS)
    say(
        out,
        f"{len(found.modules)} modules: {len(changed)} allocated otherwise"
        f"{f' ({hidden} not shown)' if hidden else ''}; {len(found.failures)} do not compile",
    )


def verdict(found: CheckResult) -> str:
    """One sentence: what is kept, and whether tuning again is worth it."""
    promised = "" if found.promised_change is None else f", {100 * found.promised_change:+.1f} % when it was tuned"
    start = f"mlgokit tune {'' if found.costs is None else '--objective spill-cost '}--start {found.plugin}"
    if found.larger:
        grew, them = counted(len(found.larger), "module"), "it" if len(found.larger) == 1 else "them"
        advice = f"{grew} grew: `{start} --budget 0s` puts {them} back, a larger budget finds more"
    elif found.tune_again:
        advice = f"tuning again is worth it: `{start}`"
    else:
        advice = "tuning again can wait"
    allocations = f"{found.allocations_kept:,} of {found.allocations:,} allocated functions"
    share, change = f"{100 * found.share:.0f} %", f"changes by {100 * found.change:+.1f} %{promised}"
    if found.costs is not None:
        return f"{allocations} ({share}) are as they were, the sum of costs {change}: {advice}"
    parts = [allocations] if found.allocations else []
    parts += [f"{found.passes_kept:,} of {found.passes:,} functions with passes left out"] if found.passes else []
    also = "".join(f" and {part}" for part in parts)
    return f"{found.kept:,} of {found.decisions:,} decisions ({share}){also} still apply, the build {change}: {advice}"


def _say_left_out(failures: Mapping[str, str], left_out: Mapping[str, str], title: str, out: Console) -> None:
    say_reasons(out, "does not compile", failures)
    say_reasons(out, title, left_out)


def _differs(costs: SpillCosts) -> bool:
    return costs.tuned != costs.plain


def _cost_cells(costs: SpillCosts) -> tuple[str, str, str]:
    return f"{costs.plain:,.1f}", f"{costs.tuned:,.1f}", _percent(costs.plain, costs.tuned)


def _change(before: float, after: float) -> str:
    return f"{before:,.0f} -> {after:,.0f} bytes ({_percent(before, after)})"


def _percent(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.2f} %" if before else "+0.00 %"


def print_replay(found: ReplayResult, out: Console) -> None:
    """Print the modules whose decisions are replayed, what is left of the plugin's saving, and what to do."""
    titles = numbers("decisions", "plain", "replayed", "change", "by the plugin")
    table = plain_table("Modules, by bytes saved", [*words("module", "in the list"), *titles])
    shown = [one for one in found.modules if one.state != "nothing to replay"]
    shown.sort(key=lambda one: (one.replayed_bytes - one.plain_bytes, one.name))
    for one in shown[:MOST_ROWS]:
        table.add_row(
            Text(one.name), one.state, str(one.decisions), f"{one.plain_bytes:,.0f}", f"{one.replayed_bytes:,.0f}",
            f"{one.replayed_bytes - one.plain_bytes:+,.0f}", f"{one.tuned_bytes - one.plugin_plain_bytes:+,.0f}",
        )  # fmt: skip
    out.print(table)
    states = [one.state for one in found.modules]
    hidden = len(shown) - min(len(shown), MOST_ROWS)
    say(
        out,
        f"{len(states)} modules: {states.count('replayed')} replayed, {states.count('left out')} left out, as they "
        f"would be larger than plain{f' ({hidden} not shown)' if hidden else ''}; {len(found.failures)} do not compile",
    )
    _say_left_out(found.failures, found.left_out, "left out", out)
    for note in found.notes:
        say(out, note)
    say(out, f"with the plugin, by {found.plugin_compiler}: {_change(found.plugin_plain_bytes, found.tuned_bytes)}")
    say(out, f"with the list, by {found.compiler}: {_change(found.plain_bytes, found.replayed_bytes)}")
    say(
        out,
        f"of the plugin's saving, {100 * found.share:.0f} % is left; {found.decisions:,} decisions, and "
        f"{found.disputed:,} call sites about which there are several",
    )
    if found.larger:
        say(out, f"larger than plain by line tables alone, with this compiler: {', '.join(found.larger)}")
    if found.flag:
        is_option = found.flag.startswith("--config=")
        say(out, f"{'add to the build' if is_option else 'build with'}: {found.flag}")
        if not is_option:
            return
        say(out, "strip -g, or -Wl,--strip-debug in the link, takes its line tables out again")
    else:
        say(out, "nothing was written: with a list, the whole would be no smaller than plain")
