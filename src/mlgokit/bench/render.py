"""A comparison of running programs for people: the same tables on the page and in the terminal."""

from mlgokit.bench.counts import EVENTS
from mlgokit.bench.record import Bench, Measured, SideResult, WorkloadResult
from mlgokit.pages.model import Table, percent, relative_change
from mlgokit.terminal import counted

MOST_ROWS = 60
"""Benchmarks and tests that a table shows; the largest changes come first."""
_NONE = "-"
_VERDICTS = {"less": "less", "more": "more", "same": "the same", "undecided": "undecided"}


def tables_of(bench: Bench) -> tuple[Table, ...]:
    """All tables that have rows."""
    tables = (_executed(bench), _timed(bench), _built(bench), _results(bench), _changes(bench))
    return tuple(table for table in tables if table.rows)


def sentences_of(bench: Bench) -> tuple[str, ...]:
    """What the tables do not say: who counted, what failed, what was not timed."""
    counted, totals = counting_of(bench)
    lines = [*counted]
    for one in bench.workloads:
        lines += [f"{one.name}: {failure.step}, {failure.side}: {failure.reason}" for failure in one.failures]
        if one.untimed:
            lines.append(f"{one.name}: not timed: {one.untimed}")
    return (*lines, *totals)


def counting_of(bench: Bench) -> tuple[list[str], list[str]]:
    """Who counted, and how many workloads did as they should; a sentence each."""
    lines: list[str] = []
    counted = [one for one in bench.workloads if one.before.whole is not None]
    if counted:
        where = "in the files that were built" if counted[0].before.own else "in the whole process"
        why = f"; {bench.uncounted}" if bench.uncounted else ""
        lines.append(f"Counted {where} by {bench.counter}{why}. Instructions are not time.")
    elif bench.uncounted and not bench.counter:
        lines.append(f"Not counted: {bench.uncounted}.")
    totals: list[str] = []
    sound = sum(not one.failures for one in bench.workloads)
    asked = [one for one in bench.workloads if one.same_output is not None]
    if asked:
        totals.append(f"{sum(one.same_output is True for one in asked)} of {len(asked)} put out the same both ways.")
    totals.append(f"{sound} of {len(bench.workloads)} without a failure.")
    return lines, totals


def _executed(bench: Bench) -> Table:
    rows: list[tuple[str, ...]] = []
    for one in bench.workloads:
        before, after = one.before.counts, one.after.counts
        if before.instructions is not None:
            changes = (_change(getattr(before, event), getattr(after, event)) for event in EVENTS)
            rows.append((_named(one), f"{before.instructions:,}", *changes))
    columns = ("workload", "instructions before", *EVENTS)
    return Table(title="What programs execute", columns=columns, rows=tuple(rows))


def _timed(bench: Bench) -> Table:
    rows = tuple(
        (
            one.name,
            f"{1000 * found.before:.1f} ms",
            _change(found.before, found.after),
            _interval(found),
            _verdict(found),
        )
        for one in bench.workloads
        if (found := one.time) is not None
    )
    columns = ("workload", "before", "change", "interval", "verdict")
    return Table(title="Processor time of a run", columns=columns, rows=rows)


def _named(one: WorkloadResult) -> str:
    return f"{one.name} ({one.kind})" if one.kind else one.name


def _verdict(found: Measured) -> str:
    return f"{_VERDICTS[found.verdict]} ({counted(found.runs, 'pair')})"


def _interval(found: Measured) -> str:
    return _NONE if found.low is None or found.high is None else f"{percent(found.low)} to {percent(found.high)}"


def _change(before: float | None, after: float | None) -> str:
    """A change; that nothing changed at all is said otherwise than that nearly nothing did."""
    if before is None or after is None:
        return _NONE
    return "0" if before == after else percent(relative_change(before, after))


def _built(bench: Bench) -> Table:
    columns = ("workload", "image", "change", "seconds", "change", "MiB", "change")
    rows = tuple(
        (one.name, *_built_cells(one.before, one.after)) for one in bench.workloads if one.before.cost or one.after.cost
    )
    return Table(
        title="Bytes of the program, processor time and memory of the compiler: before, and the change",
        columns=columns,
        rows=rows,
    )


def _built_cells(before: SideResult, after: SideResult) -> tuple[str, ...]:
    image = (_NONE if before.image is None else f"{before.image:,}", _change(before.image, after.image))
    if before.cost is None or after.cost is None:
        return (*image, *(_NONE,) * 4)
    return (
        *image,
        f"{before.cost.seconds:.2f}",
        _change(before.cost.seconds, after.cost.seconds),
        f"{before.cost.peak_bytes / 2**20:.0f}",
        _change(before.cost.peak_bytes, after.cost.peak_bytes),
    )


def _results(bench: Bench) -> Table:
    found = [(one.name, measured) for one in bench.workloads for measured in one.results]
    found.sort(key=lambda pair: -abs(relative_change(pair[1].before, pair[1].after) if pair[1].before else 0.0))
    rows = tuple(
        (
            f"{name}: {measured.name}" if len(bench.workloads) > 1 else measured.name,
            measured.measure,
            f"{measured.before:.6g} {measured.unit}".strip(),
            _change(measured.before, measured.after),
            _interval(measured),
            _verdict(measured),
        )
        for name, measured in found[:MOST_ROWS]
    )
    left = f" (the {MOST_ROWS} largest changes of {len(found)})" if len(found) > MOST_ROWS else ""
    return Table(
        title=f"Results of benchmarks and tests{left}",
        columns=("benchmark", "measure", "before", "change", "interval", "verdict"),
        rows=rows,
    )


def _changes(bench: Bench) -> Table:
    rows = tuple(
        (
            change.measure,
            percent(change.mean) if change.mean else "0",
            _NONE if change.low is None or change.high is None else f"{percent(change.low)} to {percent(change.high)}",
            str(change.workloads),
        )
        for change in bench.changes
    )
    return Table(
        title="Over the workloads (geometric means, 95 % intervals over workloads)",
        columns=("measure", "change", "interval", "workloads"),
        rows=rows,
    )
