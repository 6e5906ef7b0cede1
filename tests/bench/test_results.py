"""Result files of lit and of Google Benchmark."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.calls import ended

from mlgokit.bench.results import compare_results, read_results, results_of
from mlgokit.errors import InputError


def lit(**tests: Any) -> bytes:
    entries = [
        {"name": f"test-suite :: {name}.test", "elapsed": 1.0, "output": "", **entry} for name, entry in tests.items()
    ]
    return json.dumps({"__version__": [0, 8, 0], "elapsed": 2.0, "tests": entries}).encode()


def passed(**metrics: Any) -> dict[str, Any]:
    return {"code": "PASS", "metrics": {"hash": "ab12", **metrics}}


def benchmarks(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"context": {"date": "2026-11-22"}, "benchmarks": list(entries)}).encode()


def iteration(name: str, time: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "run_name": name, "run_type": "iteration", "family_index": 3, "repetitions": 4, "threads": 1,
        "repetition_index": 0, "iterations": 100, "real_time": time, "cpu_time": time, "time_unit": "us", **more,
    }  # fmt: skip


def test_lits_metrics_are_compared_by_test():
    before = results_of(lit(bzip2=passed(exec_time=2.0, size=100), lua=passed(exec_time=1.0)), where="a")
    after = results_of(lit(bzip2=passed(exec_time=1.5, size=90), lua=passed(exec_time=1.0)), where="b")
    measured, failures = compare_results([before], [after])
    assert failures == ()
    found = {(one.name, one.measure): (one.before, one.after, one.unit, one.runs) for one in measured}
    assert found == {
        ("test-suite :: bzip2.test", "exec_time"): (2.0, 1.5, "s", 1),
        ("test-suite :: bzip2.test", "size"): (100.0, 90.0, "", 1),
        ("test-suite :: lua.test", "exec_time"): (1.0, 1.0, "s", 1),
    }
    assert {one.verdict for one in measured} == {"undecided"}


def test_tests_that_fail_or_are_missing_are_said_and_not_compared():
    before = results_of(lit(a=passed(exec_time=1), b=passed(exec_time=1), c={"code": "UNSUPPORTED"}), where="a")
    after = results_of(lit(a={"code": "FAIL"}), where="b")
    measured, failures = compare_results([before], [after])
    assert measured == ()
    assert [(one.side, one.step, one.reason) for one in failures] == [
        ("after", "results", "test-suite :: a.test: FAIL"),
        ("after", "results", "test-suite :: b.test: only the other build has it"),
    ]


def test_repetitions_of_google_benchmark_give_an_interval():
    before = benchmarks(
        *(iteration("BM_x/8", time) for time in (10.0, 10.1, 9.9, 10.0)),
        iteration("BM_x/8_mean", 10.0, run_type="aggregate"),
    )
    after = benchmarks(*(iteration("BM_x/8", time, INSTRUCTIONS=500.0) for time in (8.0, 8.1, 7.9, 8.0)))
    measured, failures = compare_results([results_of(before, where="a")], [results_of(after, where="b")])
    assert failures == ()
    assert [(one.name, one.measure, one.unit, one.runs, one.verdict) for one in measured] == [
        ("BM_x/8", "real_time", "ns", 4, "less"),
        ("BM_x/8", "cpu_time", "ns", 4, "less"),
    ]
    assert measured[0].before == pytest.approx(10_000.0)
    assert measured[0].low is not None
    assert measured[0].low < -0.2 < (measured[0].high or 0.0) < -0.19


def test_a_benchmark_with_an_error_is_a_failure():
    bad = {"name": "BM_x", "error_occurred": True, "error_message": "no file"}
    found = results_of(benchmarks(bad), where="a")
    assert found.failed == {"BM_x": "no file"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"{", "expected results in JSON"),
        (b"[]", "expected the JSON of lit .* found neither"),
        (b'{"a": 1}', "found a; give a file"),
        (b'{"benchmarks": [{"x": 1}]}', "entry 1: expected the name of a test or benchmark, found None"),
        (b'{"tests": ["x"]}', "entry 1: expected the name of a test or benchmark"),
        (b'{"benchmarks": [{"name": "a", "time_unit": "years"}]}', "a: expected a time_unit of ns.*found 'years'"),
        (b'{"tests":' + b"[" * 100000, "expected results in JSON"),
    ],
)
def test_what_is_no_result_is_one_sentence(data: bytes, sentence: str):
    with pytest.raises(InputError, match=sentence):
        results_of(data, where="file")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path):
    with pytest.raises(InputError, match="found: No such file or directory; check the path"):
        read_results(tmp_path / "none.json")


def test_metrics_that_are_no_finite_numbers_are_left_out():
    found = results_of(lit(a=passed(exec_time="fast", size=float("nan"), link_time=True)), where="a")
    assert found.numbers == {}


def test_the_record_has_the_command_as_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(lit(one=passed(size=1)))
    words = ["bench", "--results", f"{tmp_path}/a.json", "--against-results", f"{tmp_path}/b.json", "--workers", "1"]
    monkeypatch.setattr(sys, "argv", ["mlgokit", *words, "--folder", str(tmp_path / "bench")])
    assert ended(*sys.argv[1:]) == 0
    assert json.loads((tmp_path / "bench/bench.json").read_bytes())["command"] == shlex.join(sys.argv)
