"""Makes the page of a comparison of running programs."""

from collections.abc import Iterable, Sequence

from mlgokit.bench.counts import EVENTS
from mlgokit.bench.record import Bench, Measured, SideResult, WorkloadResult
from mlgokit.evaluation.page import side_facts
from mlgokit.pages.model import (
    Bar,
    Bars,
    Cell,
    Column,
    Page,
    Part,
    Row,
    Table,
    change_columns,
    count_columns,
    drop_empty,
    number_columns,
    percent,
    relative_change,
    text_columns,
)
from mlgokit.terminal import counted

MOST_ROWS = 60
"""Maximum benchmarks and tests in a table; those with the largest changes are shown."""
_HEADLINES = 3
"""Number of measures in the headline; the table has all."""
_VERDICTS = {"less": "less", "more": "more", "same": "the same", "undecided": "undecided"}


def bench_page(bench: Bench) -> Page:
    """Make the page of a comparison. Its answer says how many workloads ran with equal output, not whether to ship."""
    parts: list[Part | None] = [
        _instruction_bars(bench),
        _execution_table(bench),
        _time_table(bench),
        _build_table(bench),
        _result_table(bench),
        _change_table(bench),
        _untimed_table(bench),
        _failure_table(bench),
    ]
    sound = sum(not one.failures and one.same_output is not False for one in bench.workloads)
    return Page(
        title=f"{bench.after.label} against {bench.before.label}",
        answer=f"{sound} of {len(bench.workloads)} workloads without a failure",
        good=bench.is_whole,
        headline=_headline(bench),
        sentences=(*_sentences(bench), "A change is after / before - 1; negative is less."),
        parts=drop_empty(parts),
        command=bench.command,
        facts=tuple(_facts(bench)),
    )


def _headline(bench: Bench) -> str:
    """Say the mean changes of the first measures, with their intervals."""
    parts: list[str] = []
    for change in bench.changes[:_HEADLINES]:
        interval = (
            "a single workload, so without an interval"
            if change.low is None or change.high is None
            else f"95 % interval {percent(change.low)} to {percent(change.high)} over {change.workloads} workloads"
        )
        parts.append(f"{change.measure} {percent(change.mean) if change.mean else '0'} ({interval})")
    return f"{'; '.join(parts)}." if parts else "Nothing could be compared."


def _sentences(bench: Bench) -> Iterable[str]:
    """Say what was counted, and how many workloads have equal output and no failure."""
    counted_ones = [one for one in bench.workloads if one.before.whole is not None]
    if counted_ones:
        where = "in the files that were built" if counted_ones[0].before.own else "in the whole process"
        why = f"; {bench.uncounted}" if bench.uncounted else ""
        yield f"Counted {where} by {bench.counter}{why}. Instructions are not time."
    elif bench.uncounted and not bench.counter:
        yield f"Not counted: {bench.uncounted}."
    compared = [one for one in bench.workloads if one.same_output is not None]
    if compared:
        same = sum(one.same_output is True for one in compared)
        yield f"{same} of {len(compared)} print the same in both builds."
    yield f"{sum(not one.failures for one in bench.workloads)} of {len(bench.workloads)} without a failure."


def _instruction_bars(bench: Bench) -> Bars | None:
    """Draw the change of executed instructions of each workload; ``None`` if nothing was counted."""
    changes = [
        (one.name, relative_change(before, after))
        for one in bench.workloads
        if (before := one.before.counts.instructions) and (after := one.after.counts.instructions) is not None
    ]
    if not changes:
        return None
    changes.sort(key=lambda pair: pair[1])
    return Bars(
        title="Instructions by workload",
        columns=("workload", "change"),
        bars=tuple(
            Bar(name=name, start=0, end=100 * change, text=percent(change) if change else "0")
            for name, change in changes
        ),
        note="Change of executed instructions: bars to the left are fewer; hatched bars are more.",
    )


def _execution_table(bench: Bench) -> Table:
    rows: list[Row] = []
    for one in bench.workloads:
        before, after = one.before.counts, one.after.counts
        if before.instructions is not None:
            changes = (_change(getattr(before, event), getattr(after, event)) for event in EVENTS)
            rows.append((f"{one.name} ({one.kind})" if one.kind else one.name, before.instructions, *changes))
    return Table(
        title="What programs execute",
        columns=(*text_columns("workload"), *count_columns("instructions before"), *change_columns(*EVENTS)),
        rows=tuple(rows),
    )


def _time_table(bench: Bench) -> Table:
    rows = tuple(
        (one.name, f"{1000 * one.time.before:.1f} ms", *_measured_cells(one.time))
        for one in bench.workloads
        if one.time is not None
    )
    return Table(
        title="Processor time of a run",
        columns=(*text_columns("workload"), *number_columns("before"), *_measured_columns()),
        rows=rows,
    )


def _build_table(bench: Bench) -> Table:
    rows = tuple(
        (one.name, *_build_cells(one.before, one.after)) for one in bench.workloads if one.before.cost or one.after.cost
    )
    (change,) = change_columns("change")
    image, seconds, memory = count_columns("image", "seconds", "MiB")
    return Table(
        title="Bytes of the program, processor time and memory of the compiler: before, and the change",
        columns=(*text_columns("workload"), image, change, seconds, change, memory, change),
        rows=rows,
    )


def _build_cells(before: SideResult, after: SideResult) -> Sequence[Cell]:
    """Make the cells of image, compile time and memory, each before and its change."""
    image = (before.image, _change(before.image, after.image))
    if before.cost is None or after.cost is None:
        return (*image, *(None,) * 4)
    return (
        *image,
        f"{before.cost.seconds:.2f}",
        _change(before.cost.seconds, after.cost.seconds),
        before.cost.peak_bytes / 2**20,
        _change(before.cost.peak_bytes, after.cost.peak_bytes),
    )


def _result_table(bench: Bench) -> Table:
    results = [(one.name, measured) for one in bench.workloads for measured in one.results]
    results.sort(key=lambda pair: -abs(relative_change(pair[1].before, pair[1].after) if pair[1].before else 0.0))
    rows = tuple(
        (
            f"{name}: {measured.name}" if len(bench.workloads) > 1 else measured.name,
            measured.measure,
            f"{measured.before:.6g} {measured.unit}".strip(),
            *_measured_cells(measured),
        )
        for name, measured in results[:MOST_ROWS]
    )
    left = f" (the {MOST_ROWS} largest changes of {len(results)})" if len(results) > MOST_ROWS else ""
    return Table(
        title=f"Results of benchmarks and tests{left}",
        columns=(*text_columns("benchmark"), *number_columns("measure", "before"), *_measured_columns()),
        rows=rows,
    )


def _change_table(bench: Bench) -> Table:
    return Table(
        title="Over the workloads (geometric means, 95 % intervals over workloads)",
        columns=(
            *text_columns("measure"),
            *change_columns("change"),
            *number_columns("interval"),
            *count_columns("workloads"),
        ),
        rows=tuple(
            (change.measure, change.mean or "0", _interval(change.low, change.high), change.workloads)
            for change in bench.changes
        ),
    )


def _measured_columns() -> tuple[Column, ...]:
    return (*change_columns("change"), *number_columns("interval", "verdict"))


def _measured_cells(measured: Measured) -> tuple[Cell, ...]:
    """Make the cells of a measured number: change, interval and verdict."""
    verdict = f"{_VERDICTS[measured.verdict]} ({counted(measured.runs, 'pair')})"
    return _change(measured.before, measured.after), _interval(measured.low, measured.high), verdict


def _interval(low: float | None, high: float | None) -> Cell:
    return None if low is None or high is None else f"{percent(low)} to {percent(high)}"


def _change(before: float | None, after: float | None) -> Cell:
    """Make the cell of a relative change; "0" if the numbers are equal, which a tiny change is not."""
    if before is None or after is None:
        return None
    return "0" if before == after else relative_change(before, after)


def _untimed_table(bench: Bench) -> Table:
    rows = tuple((one.name, one.untimed) for one in bench.workloads if one.untimed)
    return Table(
        title="Not timed", columns=text_columns("workload", "reason"), rows=rows
    )  # fmt: skip


def _failure_table(bench: Bench) -> Table:
    rows = [
        (one.name, failure.step, failure.side, failure.reason) for one in bench.workloads for failure in one.failures
    ]
    rows += [(one.name, "output", "both", "not the same") for one in bench.workloads if _has_unlisted_difference(one)]
    return Table(
        title="Failures",
        columns=text_columns("workload", "step", "side", "reason"),
        rows=tuple(rows),
        note="Their numbers are missing in the tables above.",
    )


def _has_unlisted_difference(one: WorkloadResult) -> bool:
    """Whether the outputs of the two builds differ, and no failure of the workload says so."""
    return one.same_output is False and all(failure.step != "output" for failure in one.failures)


def _facts(bench: Bench) -> Iterable[tuple[str, str]]:
    yield "mlgokit", bench.mlgokit_version or "unknown"
    yield from bench.toolchain.items()
    yield "seed of the intervals", str(bench.seed)
    yield "counter", bench.counter or "none"
    yield from side_facts("before", bench.before)
    yield from side_facts("after", bench.after)
