"""The benchmark of programs: what it makes of the results of its arms."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlgokit.bench.counts import Counts
from mlgokit.bench.record import BuildCost, Failure, Measured, SideResult, WorkloadResult

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name, as running its file does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def result(name: str, change: int, **more: Any) -> WorkloadResult:
    def side(instructions: int) -> SideResult:
        counts = Counts(instructions=instructions, loads=10, stores=5, branches=2)
        cost = BuildCost(seconds=2.0, peak_bytes=1 << 20, compilations=3)
        return SideResult(image=1000, own=counts, whole=counts, cost=cost)

    return WorkloadResult(name=name, kind="x", same_output=True, before=side(1000), after=side(1000 + change), **more)


def test_plain_builds_that_differ_by_one_instruction_miss_the_bar(benchmark: Callable[[str], ModuleType]):
    summarise = benchmark("bench").summarise
    same, other = [result("a", 0), result("b", 0)], [result("a", 0), result("b", 1)]
    assert summarise(same, same, same, tune_seconds=60).passed is True
    assert summarise(other, same, same, tune_seconds=60).passed is False


def test_a_workload_that_failed_is_named(benchmark: Callable[[str], ModuleType]):
    failed = WorkloadResult(name="c", kind="x", failures=(Failure(side="after", step="build", reason="bad"),))
    time = Measured(measure="time", unit="s", before=1.0, after=1.1, low=0.05, high=0.15, runs=8, verdict="more")
    judged = [result("a", -100, time=time), failed]
    found = benchmark("bench").summarise([result("a", 0)], judged, [result("a", 0)], tune_seconds=60)
    assert found.answer.endswith("Without a result: c.")
    assert found.passed is True
    rows = {row[0]: row for row in found.tables[0].rows}
    assert rows["a"][3:8] == ("-10.00 %", "0", "0", "0", "0")
    assert rows["a"][-2:] == ("+10.00 %", "more (+5.00 % to +15.00 %, 8 pairs)")
    assert rows["c"][-1] == "after, build"
