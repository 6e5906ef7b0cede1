"""The benchmark of faults on a cluster: what it breaks and when, and that its verdict misses nothing."""

import dataclasses
import importlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlgokit.errors import UsageError

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
COUNTS = {
    "compilers killed": 60,
    "compilers seen": 3000,
    "compilers stopped": 30,
    "disks filled": 1,
    "schedulers killed": 2,
    "trainings ended by a full disk": 1,
    "workers killed": 90,
}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name, as running its file does."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def ended(faults: ModuleType, **changes: Any) -> Any:
    turn = {"turn": 1, "compilations": 300, "reward": 0.1, "validation_gain": math.nan}
    usual = faults.Ended(
        code=0,
        minutes=31.0,
        policy="ab" * 32,
        counters={"turn": 1, "compilations": 300, "failed": 0},
        turns=(turn,),
        records=frozenset({"a.npz", "b.npz"}),
    )
    return dataclasses.replace(usual, **changes)


def missed(
    faults: ModuleType,
    counts: Mapping[str, int] = COUNTS,
    *,
    alone: dict[str, Any] | None = None,
    differing: int = 0,
    **there: Any,
) -> list[str]:
    return faults.missed(
        faults.ClusterFaults(), ended(faults, **(alone or {})), ended(faults, **there), counts, differing
    )


def test_nothing_is_missed_where_all_was_broken_and_all_is_the_same(benchmark: Callable[[str], ModuleType]):
    faults = benchmark("cluster_faults")
    assert missed(faults) == []
    felt_by_workers = COUNTS | {"trainings ended by a full disk": 0, "workers' lines about a full disk": 3}
    assert missed(faults, felt_by_workers) == []
    result = faults.summarise(faults.ClusterFaults(), ended(faults), ended(faults), COUNTS, 0)
    assert result.passed
    assert result.answer.endswith("nothing was missed")


@pytest.mark.parametrize(
    ("there", "sentence"),
    [
        ({"code": 1}, "the training on the cluster ended with 1"),
        ({"policy": "cd" * 32}, "the policies differ"),
        ({"policy": ""}, "the policies differ"),
        ({"counters": {"turn": 1, "compilations": 299, "failed": 0}}, "the counters differ"),
        ({"turns": ()}, "0 of 1 turns differ, and 0 were made"),
        (
            {"turns": ({"turn": 1, "compilations": 300, "reward": 0.2, "validation_gain": math.nan},)},
            "1 of 1 turns differ, and 1 were made",
        ),
        ({"records": frozenset({"a.npz"})}, "1 compilations were lost, 0 are too many"),
        ({"records": frozenset({"a.npz", "b.npz", "c.npz"})}, "0 compilations were lost, 1 are too many"),
        ({"minutes": 29.9}, "the training on the cluster ended after 29.9 of 30 minutes"),
    ],
)
def test_another_outcome_is_missed(benchmark: Callable[[str], ModuleType], there: dict[str, Any], sentence: str):
    assert missed(benchmark("cluster_faults"), **there) == [sentence]


def test_a_training_with_threads_that_failed_is_missed(benchmark: Callable[[str], ModuleType]):
    assert "the training with threads ended with 4" in missed(benchmark("cluster_faults"), alone={"code": 4})


def test_nothing_is_the_same_as_nothing_and_does_not_pass(benchmark: Callable[[str], ModuleType]):
    nothing: dict[str, Any] = {"code": 1, "policy": "", "counters": {}, "turns": (), "records": frozenset()}
    found = missed(benchmark("cluster_faults"), alone=nothing, **nothing)
    assert "the policies differ" in found
    assert "0 of 0 turns differ, and 0 were made" in found
    assert "0 compilations were lost, 0 are too many" in found


def test_a_compilation_with_another_outcome_is_missed(benchmark: Callable[[str], ModuleType]):
    assert missed(benchmark("cluster_faults"), differing=1) == ["1 compilations have another outcome"]


@pytest.mark.parametrize(
    ("name", "count", "sentence"),
    [
        ("workers killed", 71, "71 workers were killed, of at least 72"),
        ("schedulers killed", 1, "1 of 2 schedulers were killed"),
        ("disks filled", 0, "the disk was not filled"),
        ("trainings ended by a full disk", 0, "nobody noticed a full disk"),
        ("compilers killed", 29, "29 compilers were killed, of at least 30.0"),
        ("compilers stopped", 14, "14 compilers were stopped, of at least 15.0"),
        ("compilers seen", 0, "no compiler was seen"),
    ],
)
def test_what_was_not_broken_is_missed(benchmark: Callable[[str], ModuleType], name: str, count: int, sentence: str):
    faults = benchmark("cluster_faults")
    counts = COUNTS | {name: count}
    assert missed(faults, counts) == [sentence]
    result = faults.summarise(faults.ClusterFaults(), ended(faults), ended(faults), counts, 0)
    assert result.passed is False
    assert result.answer.endswith(f"missed: {sentence}")


def test_machines_go_on_breaking_while_the_disk_is_full(benchmark: Callable[[str], ModuleType]):
    faults, site = benchmark("cluster_faults"), benchmark("cluster_site")
    planned = site.plan(faults.breakage_of(faults.ClusterFaults(seed=3)))
    assert planned == sorted(planned)
    assert [what for _, what in planned].count("worker") == 90
    assert [second for second, what in planned if what == "scheduler away"] == [600.0, 1200.0]
    times = {what: second for second, what in planned}
    assert 600 <= times["disk full"] <= 1200
    assert sum(times["disk full"] < second < times["disk free"] for second, _ in planned) >= 2


def test_the_disk_is_filled_at_another_time_with_another_seed(benchmark: Callable[[str], ModuleType]):
    faults, site = benchmark("cluster_faults"), benchmark("cluster_site")
    times = {
        second
        for seed in range(4)
        for second, what in site.plan(faults.breakage_of(faults.ClusterFaults(seed=seed)))
        if what == "disk full"
    }
    assert len(times) == 4


def test_a_run_that_was_stopped_is_finished_with_what_it_had_broken(
    benchmark: Callable[[str], ModuleType], tmp_path: Path
):
    faults = benchmark("cluster_faults")
    config = faults.ClusterFaults(folder=tmp_path, finish=True)
    both = [faults.Training(config=config, name=name) for name in ("threads", "cluster")]
    with pytest.raises(UsageError, match="expected what an earlier run has broken, found none; run without --finish"):
        faults.read_broken(config, *both)
    (tmp_path / "broken.json").write_text(json.dumps({"counts": COUNTS, "seconds": {"threads": 9.0, "cluster": 8.0}}))
    assert faults.read_broken(config, *both) == COUNTS
    assert [one.seconds for one in both] == [9.0, 8.0]
    assert [one.turn for one in both] == [0, 0]
