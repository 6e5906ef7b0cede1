"""What a check of a tuned plugin gave, as a page: what still applies, programs, modules, and whether to tune again."""

import shlex
from collections.abc import Iterable, Sequence
from typing import get_args

from mlgokit.pages.model import (
    Page,
    Table,
    before_after_cells,
    before_after_columns,
    change_columns,
    count_columns,
    difference_columns,
    drop_empty,
    number_columns,
    percent,
    relative_change,
    text_columns,
)
from mlgokit.terminal import counted
from mlgokit.tune.check import CheckedModule, CheckResult, State
from mlgokit.tune.page import (
    BY_BYTES,
    BY_COSTS,
    MOST_ROWS,
    TEXT_BYTES,
    format_bytes,
    left_out_table,
)


def check_page(check: CheckResult) -> Page:
    """The page of a check: what a tuned plugin saves in today's code, the modules that gain most first."""
    table = _byte_check_table(check) if check.costs is None else _cost_check_table(check.modules)
    return Page(
        title=f"{check.plugin} on today's code",
        good=not check.tune_again and not check.violations,
        headline=verdict(check),
        sentences=(*_check_sentences(check, len(table.rows)), *(f"Over the limit: {one}." for one in check.violations)),
        parts=drop_empty([_checked_programs(check), table, left_out_table(check.failures, check.left_out)]),
    )


def _checked_programs(check: CheckResult) -> Table | None:
    if check.built is None:
        return None
    return Table(
        title="Programs",
        columns=(
            *text_columns("program"),
            *before_after_columns("plain", "tuned"),
        ),
        rows=tuple((one.program, *before_after_cells(one.plain.image, one.tuned.image)) for one in check.programs),
        note=f"{TEXT_BYTES}, of today's code.",
    )


def verdict(check: CheckResult) -> str:
    """One sentence on a check: how much of the plugin still applies, and whether to tune again."""
    promised = "" if check.promised_change is None else f", {100 * check.promised_change:+.1f} % when it was tuned"
    objective = "" if check.costs is None else "--objective spill-cost "
    start = f"mlgokit tune {objective}--start {shlex.quote(check.plugin)}"
    if check.violations:
        advice = f"{counted(len(check.violations), 'program')} over the limit"
    elif check.larger:
        grew = counted(len(check.larger), "program" if check.programs else "module")
        them = "it" if len(check.larger) == 1 else "them"
        advice = f"{grew} grew: `{start} --budget 0s` reverts {them}, a larger budget finds more"
    elif check.tune_again:
        advice = f"tuning again is worth it: `{start}`"
    else:
        advice = "tuning again can wait"
    allocations = f"{check.allocations_kept:,} of {check.allocations:,} allocated functions"
    share, change = f"{100 * check.share:.0f} %", f"changes by {100 * check.change:+.1f} %{promised}"
    if check.costs is not None:
        return f"{allocations} ({share}) are as they were, the sum of costs {change}: {advice}"
    parts = [f"{check.kept:,} of {check.decisions:,} decisions ({share})"] if check.decisions else []
    parts += [allocations] if check.allocations else []
    parts += [f"{check.passes_kept:,} of {check.passes:,} functions with passes left out"] if check.passes else []
    kept = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
    applies = f"{kept} still apply" if kept else "its policies alone decide"
    return f"{applies}, the build {change}: {advice}"


def _check_sentences(check: CheckResult, changed: int) -> Iterable[str]:
    if check.costs is None:
        states = [one.state for one in check.modules]
        listed = ", ".join(f"{states.count(state)} {state}" for state in get_args(State))
        yield (
            f"{len(states)} modules: {listed}; {len(check.gone)} of the plugin's are gone; {len(check.failures)} do "
            "not compile."
        )
    else:
        yield f"{len(check.modules)} modules: {changed} allocated otherwise; {len(check.failures)} do not compile."
    for title, names in (("Gone", check.gone), ("Larger than plain", check.larger)):
        if names:
            yield f"{title}: {', '.join(names)}."
    yield from check.notes
    if check.built is not None:
        yield from filter(None, (check.built.tests, *check.built.notes))
    for one in check.modules:
        if one.worse:
            yield f"Costs more than plain in {one.name}: {', '.join(one.worse)}."
    if check.costs is not None:
        yield f"Geometric mean of the functions' costs: {percent(check.costs.change)}."
    else:
        yield f"Objects, each COMDAT once: {format_bytes(check.plain_bytes, check.tuned_bytes)}."
    if check.plain_link is not None and check.tuned_link is not None:
        yield f"Linked, unused sections dropped: {format_bytes(check.plain_link.image, check.tuned_link.image)}."


def _byte_check_table(check: CheckResult) -> Table:
    order = sorted(check.modules, key=lambda one: (one.tuned_bytes - one.plain_bytes, one.name))
    return Table(
        title=BY_BYTES,
        columns=(
            *text_columns("module", "in the plugin"),
            *count_columns("decisions asked", "still apply", "allocated", "plain bytes", "tuned bytes"),
            *difference_columns("difference"),
        ),
        rows=tuple(
            (
                one.name,
                one.state,
                one.asked,
                one.kept,
                one.allocated,
                one.plain_bytes,
                one.tuned_bytes,
                one.tuned_bytes - one.plain_bytes,
            )
            for one in order
            if one.state != "left plain" or one.asked
        ),
        note="Bytes of each module of today's code; a COMDAT function counts in the first module that has it. "
        "Decisions asked: inlining decisions that the compiler asked the plugin for; still apply: those that it has. "
        "Allocated: functions whose registers the plugin allocates.",
        terminal_rows=MOST_ROWS,
    )


def _cost_check_table(modules: Sequence[CheckedModule]) -> Table:
    costly = [(one.costs, one) for one in modules if one.costs is not None]
    changed = [(costs, one) for costs, one in costly if one.allocated or costs.tuned != costs.plain]
    changed.sort(key=lambda pair: (pair[0].tuned - pair[0].plain, pair[1].name))
    return Table(
        title=BY_COSTS,
        columns=(
            *text_columns("module"),
            *count_columns("allocated"),
            *number_columns("plain", "tuned"),
            *change_columns("sum"),
            *difference_columns("code"),
        ),
        rows=tuple(
            (
                one.name,
                one.allocated,
                f"{costs.plain:,.1f}",
                f"{costs.tuned:,.1f}",
                relative_change(costs.plain, costs.tuned),
                one.tuned_bytes - one.plain_bytes,
            )
            for costs, one in changed
        ),
        terminal_rows=MOST_ROWS,
    )
