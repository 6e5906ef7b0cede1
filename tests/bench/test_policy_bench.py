"""The benchmark of policies on programs: its table of what `mlgokit bench` measured."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from mlgokit.bench.counts import Counts
from mlgokit.bench.record import BuildCost, SideResult, WorkloadResult

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name, as running its file does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def side(instructions: int) -> SideResult:
    counts = Counts(instructions=instructions, loads=10, stores=5, branches=2)
    cost = BuildCost(seconds=2.0, peak_bytes=1 << 20, compilations=3)
    return SideResult(image=1000, own=counts, whole=counts, cost=cost)


def test_a_row_has_the_changes_of_a_program_and_says_where_there_is_none(benchmark: Callable[[str], ModuleType]):
    module = benchmark("policy_bench")
    row = module.cells(WorkloadResult(name="a", kind="x", same_output=True, before=side(1000), after=side(900)))

    assert dict(zip(module.COLUMNS, row, strict=True)) == {
        "workload": "a", "kind": "x", "instructions before": 1000, "instructions": "-10.00 %", "loads": "0",
        "stores": "0", "branches": "0", "image": "0", "compile time": "0",
    }  # fmt: skip
