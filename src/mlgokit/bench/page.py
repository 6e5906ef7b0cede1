"""A comparison of running programs as a page."""

from collections.abc import Iterable

from mlgokit.bench.record import Bench, WorkloadResult
from mlgokit.bench.render import counting_of, tables_of
from mlgokit.evaluation.page import side_facts
from mlgokit.pages.model import Bar, Bars, Page, Part, Table, percent, relative_change

_HEADLINES = 3
"""Measures in the headline; the table has all."""


def bench_page(bench: Bench) -> Page:
    """The page of a comparison; its answer says what ran with the same output: whether to ship is for people to say."""
    counted, totals = counting_of(bench)
    parts: list[Part | None] = [_by_workload(bench), *tables_of(bench), _untimed(bench), _failures(bench)]
    sound = sum(not one.failures and one.same_output is not False for one in bench.workloads)
    return Page(
        title=f"{bench.after.label} against {bench.before.label}",
        answer=f"{sound} of {len(bench.workloads)} workloads as they should be",
        good=bench.is_whole,
        headline=_headline(bench),
        sentences=(*counted, *totals, "A change is after / before less 1, so negative is less."),
        parts=tuple(part for part in parts if part is not None and not (isinstance(part, Table) and not part.rows)),
        command=bench.command,
        facts=tuple(_facts(bench)),
    )


def _headline(bench: Bench) -> str:
    told: list[str] = []
    for change in bench.changes[:_HEADLINES]:
        interval = (
            "a single workload, so without an interval"
            if change.low is None or change.high is None
            else f"95 % interval {percent(change.low)} to {percent(change.high)} over {change.workloads} workloads"
        )
        told.append(f"{change.measure} {percent(change.mean) if change.mean else '0'} ({interval})")
    return f"{'; '.join(told)}." if told else "Nothing could be compared."


def _by_workload(bench: Bench) -> Bars | None:
    """Instructions, which are always there if anything was counted."""
    changes = [(one.name, change) for one in bench.workloads if (change := _executed(one)) is not None]
    if not changes:
        return None
    changes.sort(key=lambda pair: pair[1])
    bars = (
        Bar(name=name, start=0, end=100 * change, text=percent(change) if change else "0") for name, change in changes
    )
    return Bars(
        title="Instructions by workload",
        columns=("workload", "change"),
        bars=tuple(bars),
        note="Executed instructions, after against before: to the left is less, and hatched is more.",
    )


def _executed(one: WorkloadResult) -> float | None:
    before, after = one.before.counts.instructions, one.after.counts.instructions
    return relative_change(before, after) if before and after is not None else None


def _untimed(bench: Bench) -> Table:
    rows = tuple((one.name, one.untimed) for one in bench.workloads if one.untimed)
    return Table(title="Not timed", columns=("workload", "reason"), rows=rows, words=2)


def _failures(bench: Bench) -> Table:
    rows = [
        (one.name, failure.step, failure.side, failure.reason) for one in bench.workloads for failure in one.failures
    ]
    rows += [(one.name, "output", "both", "not the same") for one in bench.workloads if _differs_unsaid(one)]
    return Table(
        title="Failures", columns=("workload", "step", "side", "reason"), rows=tuple(rows), words=4,
        note="Their numbers are missing in the tables above.",
    )  # fmt: skip


def _differs_unsaid(one: WorkloadResult) -> bool:
    return one.same_output is False and all(failure.step != "output" for failure in one.failures)


def _facts(bench: Bench) -> Iterable[tuple[str, str]]:
    yield "mlgokit", bench.mlgokit_version or "unknown"
    yield from bench.toolchain.items()
    yield "seed of the intervals", str(bench.seed)
    yield "counter", bench.counter or "none"
    yield from side_facts("before", bench.before)
    yield from side_facts("after", bench.after)
