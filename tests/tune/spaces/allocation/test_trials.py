import dataclasses
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from mlgokit.compiler.reuse.trials import CODE_BYTES, IMAGE_BYTES, OVERRIDE, Outcome, Overrides
from mlgokit.errors import InputError
from mlgokit.module import Module
from mlgokit.tune.spaces.allocation.trials import TrialConfig
from mlgokit.tune.spaces.functions.rounds import MOST_TRIALS, plan_round, record_outcomes
from mlgokit.tune.spaces.functions.state import FunctionState, ModuleFunctions, load_functions, save_functions

SOME = np.array([(1, 0, 4), (2, 3, 0), (7, 0, 1)], OVERRIDE)


IN_BYTES = TrialConfig(weights=IMAGE_BYTES)


def function(key: int = 1, *, spills: bool = True) -> FunctionState:
    return FunctionState(key=key, name=f"f{key}", plain=100.0, score=100.0, spills=spills)


def outcome(score: float, overrides: int = 1) -> Outcome:
    made = Overrides(evictions=SOME[:overrides])
    return Outcome(seconds=0.02, score=score, evictions=40, priorities=90, overrides=made)


def module(*functions: FunctionState, seconds: float = 9.0) -> ModuleFunctions:
    return ModuleFunctions(module=cast("Module", None), keys={}, functions=list(functions), compile_seconds=seconds)


def test_the_best_outcome_is_kept_and_of_equal_ones_that_with_fewer_overrides():
    one = function()
    assert record_outcomes(
        one, [outcome(math.inf), outcome(120.0), outcome(50.0, 3), outcome(60.0)], TrialConfig()
    ) == pytest.approx(math.log(100.01 / 50.01))
    assert (one.score, one.trials, one.gained, one.evictions, one.priorities) == (50.0, 4, 3, 40, 90)
    assert record_outcomes(one, [outcome(50.0, 2), outcome(50.0, 3)], TrialConfig()) == 0
    assert (len(one.overrides), one.gained, one.trials) == (2, 3, 6)


def test_a_function_without_gains_is_left_alone_the_later_the_more_questions_it_has():
    one, other = function(), function()
    other.evictions = 100
    for searched in (one, other):
        assert not searched.exhausted
        searched.trials, searched.priorities = 60, 1
    assert one.exhausted
    assert not other.exhausted
    other.gained, other.trials = 5000, 5000 + 60
    assert not other.exhausted
    other.score = 0.0
    assert other.exhausted


def test_bytes_are_measured_by_the_first_trial_and_gains_are_bytes():
    one = FunctionState(key=1, name="f", plain=math.inf, score=math.inf)
    assert not one.exhausted
    assert record_outcomes(one, [outcome(80.0, 0), outcome(90.0), outcome(70.0)], IN_BYTES) == 10.0
    assert (one.plain, one.score, one.trials) == (80.0, 70.0, 3)
    assert record_outcomes(one, [outcome(75.0)], IN_BYTES) == 0.0
    other = FunctionState(key=1, name="f", plain=math.inf, score=math.inf)
    assert record_outcomes(other, [outcome(math.inf, 0), outcome(60.0)], IN_BYTES) == 0.0
    assert other.exhausted
    # The trial of an earlier plugin's overrides comes first.
    third = FunctionState(key=1, name="f", plain=math.inf, score=math.inf)
    assert record_outcomes(third, [outcome(math.inf, 0), outcome(80.0, 0), outcome(70.0)], IN_BYTES) == 10.0
    assert TrialConfig().in_bytes is False
    for weights in (CODE_BYTES, IMAGE_BYTES):
        assert TrialConfig(weights=weights).in_bytes


def test_bytes_are_not_bought_with_spills_in_deep_loops():
    one = FunctionState(key=1, name="f", plain=math.inf, score=math.inf)
    deep = dataclasses.replace(outcome(60.0), cost=1e-9 * 200_000)
    near = dataclasses.replace(outcome(90.0), cost=1e-9 * 1500)
    plain = dataclasses.replace(outcome(100.0, 0), cost=1e-9 * 500)
    record_outcomes(one, [plain, deep, near], IN_BYTES)
    # A thousand more: one byte.
    assert (one.plain, one.score) == (100.0, pytest.approx(91.0))


def test_where_time_is_short_those_that_saved_most_bytes_in_a_second_come_first():
    in_bytes = TrialConfig(weights=IMAGE_BYTES)
    functions = [FunctionState(key=key, name="f", plain=math.inf, score=math.inf) for key in (1, 2, 3)]
    both = module(*functions, seconds=1.0)
    rng = np.random.default_rng(1)
    assert [series.key for series in plan_round(in_bytes, both, rng)] == [1, 2, 3]
    for function, score in zip(functions, (99.0, 80.0, 99.5), strict=True):
        record_outcomes(function, [outcome(100.0, 0), outcome(score)], IN_BYTES)
        function.seconds = 0.2
    assert [series.key for series in plan_round(in_bytes, both, rng)] == [2, 1]
    # The second saves nothing any more, and the first has its turn.
    for _ in range(5):
        record_outcomes(functions[1], [outcome(80.0, 0)] * 9, IN_BYTES)
    functions[1].seconds = 0.2
    assert next(series.key for series in plan_round(in_bytes, both, rng)) == 1


def test_in_a_module_of_thousands_the_largest_functions_are_looked_at_first():
    in_bytes = TrialConfig(weights=IMAGE_BYTES)
    functions = [
        FunctionState(key=key, name=f"f{key}", plain=math.inf, score=math.inf, code_bytes=10.0 * key)
        for key in range(1, 2001)
    ]
    many = module(*functions, seconds=1.0)
    rng = np.random.default_rng(1)
    first = plan_round(in_bytes, many, rng)
    assert [series.key for series in first] == list(range(2000, 1800, -1))
    assert {len(series.trials) for series in first} == {2}
    for one in functions[1800:]:
        record_outcomes(one, [outcome(100.0, 0), outcome(99.9)], IN_BYTES)
    record_outcomes(functions[-1], [outcome(20.0)], IN_BYTES)
    second = [series.key for series in plan_round(in_bytes, many, rng)]
    assert second[0] == 2000, "it saved most in a second"
    assert second[1:3] == [1800, 1799], "the others are expected to save more than what gave nothing"


def test_rounds_at_once_have_functions_of_their_own():
    functions = [function(key) for key in range(1, 6)]
    both = module(*functions)
    rng = np.random.default_rng(1)
    first = {series.key for series in plan_round(TrialConfig(), both, rng, shares=2)}
    assert first == {1, 2, 3}
    both.claimed |= first
    assert both.has_unclaimed
    second = {series.key for series in plan_round(TrialConfig(), both, rng, shares=2)}
    both.claimed |= second
    third = {series.key for series in plan_round(TrialConfig(), both, rng, shares=2)}
    assert second | third == {4, 5}
    both.claimed |= third
    assert not both.has_unclaimed
    assert not plan_round(TrialConfig(), both, rng, shares=2)


def test_a_function_that_asks_nothing_is_left_alone():
    one = function()
    record_outcomes(
        one, [Outcome(seconds=0.02, score=100.0, evictions=0, priorities=0, overrides=Overrides())], TrialConfig()
    )
    assert one.exhausted


def test_functions_with_spills_come_first():
    first, second, third = function(1), function(2, spills=False), function(3)
    both = module(first, second, third)
    rng = np.random.default_rng(1)
    assert [series.key for series in plan_round(TrialConfig(), both, rng)] == [1, 3]
    first.trials = third.trials = 5000
    assert [series.key for series in plan_round(TrialConfig(), both, rng)] == [2]
    assert module(second).rate == 0
    assert both.rate == math.inf


def test_the_first_round_counts_questions_and_tries_the_earlier_plugin_and_the_policy():
    one = function()
    one.start = Overrides(evictions=SOME)
    start, first = plan_round(TrialConfig(policies={"regalloc-eviction": "p"}), module(one), np.random.default_rng(1))
    assert (len(start.trials), start.score, len(start.base)) == (1, math.inf, 3)
    assert first.trials["by_rule"].tolist() == [0, 1] * 4
    assert first.trials["eviction_flips"][0] == pytest.approx(0, abs=1e-9)
    assert first.trials["eviction_flips"][0] > 0
    assert first.trials["eviction_flips"][1] == 0
    record_outcomes(one, [outcome(90.0)] * 8, TrialConfig())
    (later,) = plan_round(TrialConfig(), module(one), np.random.default_rng(1))
    assert (len(later.trials), later.score, len(later.base)) == (24, 90.0, 1)
    assert not later.trials["by_rule"].any()


def test_only_the_wanted_problem_is_searched_and_time_is_bounded():
    one = function()
    record_outcomes(one, [outcome(90.0)] * 8, TrialConfig())
    rng = np.random.default_rng(1)
    (series,) = plan_round(TrialConfig(priority=False), module(one), rng)
    assert not series.trials["priority_flips"].any()
    assert series.trials["eviction_flips"].all()
    (series,) = plan_round(TrialConfig(eviction=False), module(one), rng)
    assert not series.trials["eviction_flips"].any()
    one.seconds = 1.0
    (series,) = plan_round(TrialConfig(), module(one), rng)
    assert len(series.trials) == 9
    one.seconds, one.trials, one.gained = 0.001, 900, 900
    (series,) = plan_round(TrialConfig(), module(one), rng)
    assert len(series.trials) == MOST_TRIALS
    one.seconds = 1.0
    (series,) = plan_round(TrialConfig(), module(one, seconds=0.1), rng)
    assert len(series.trials) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("counts", np.zeros((2, 8), np.int64)),
        ("counts", np.zeros((1, 6), np.int64)),
        ("counts", np.array([[1, 1, 0, 1, 1, 5, 4, 0]])),
        ("counts", np.array([[1, 1, 0, -1, 1, 1, 2, 0]])),
        # Three records, when their number has gone round once.
        ("counts", np.array([[1, 1, 0, 1, 1, 2**63 - 1, 2**63 - 1, 5]])),
        ("score", np.zeros((1, 3))),
        ("records", np.zeros(4, np.uint64)),
        ("records", np.zeros(6, np.float64)),
        ("key", np.zeros(2, np.uint64)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, name: str, value: Any):
    path, one = tmp_path / "m.npz", function(1)
    one.overrides = Overrides(evictions=SOME[:1], priorities=SOME[1:])
    save_functions(path, [one])
    with np.load(path) as found:
        arrays: dict[str, Any] = dict(found) | {name: value}
    np.savez(path, **arrays)
    with pytest.raises(
        InputError, match=r"m\.npz: expected what the search knows of a module's functions, found a dam"
    ):
        load_functions(path)


def test_what_an_earlier_version_wrote_is_nothing_known(tmp_path: Path):
    save_functions(tmp_path / "m.npz", [function(1)])
    with np.load(tmp_path / "m.npz") as found:
        arrays: dict[str, Any] = dict(found)
    np.savez(tmp_path / "m.npz", numbers=np.zeros((1, 6), np.int64), **arrays)
    assert load_functions(tmp_path / "m.npz") == {}


def test_functions_are_saved_and_a_damaged_file_is_refused(tmp_path: Path):
    first, second = function(1), function(2**64 - 1)
    record_outcomes(first, [outcome(50.0, 3)], TrialConfig())
    second.overrides, second.trials = Overrides(evictions=SOME[:1], priorities=SOME[1:]), 1
    save_functions(tmp_path / "m", [first, second])
    found = load_functions(tmp_path / "m")
    assert (found[1].score, found[1].plain, found[1].trials, found[1].gained) == (50.0, 100.0, 1, 1)
    assert found[1].overrides.evictions.tolist() == SOME.tolist()
    assert found[2**64 - 1].overrides.evictions.tolist() == SOME[:1].tolist()
    assert found[2**64 - 1].overrides.priorities.tolist() == SOME[1:].tolist()
    (tmp_path / "m").write_bytes((tmp_path / "m").read_bytes()[:-30])
    with pytest.raises(InputError, match=r"m: expected what the search knows of a module's functions, found a damaged"):
        load_functions(tmp_path / "m")
    save_functions(tmp_path / "m", [])
    assert load_functions(tmp_path / "m") == {}


def test_scores_that_another_compiler_measured_are_only_decisions_to_try(tmp_path: Path):
    one = function(1)
    record_outcomes(one, [outcome(50.0, 3)], TrialConfig())
    save_functions(tmp_path / "m", [one], measured_by="clang and options of yesterday")

    again = function(1)
    again.recall(load_functions(tmp_path / "m", measured_by="clang and options of yesterday").get(1))
    assert (again.score, again.trials, again.start) == (50.0, 1, None)

    changed = function(1)
    changed.recall(load_functions(tmp_path / "m", measured_by="those of today").get(1))
    assert (changed.score, changed.plain, changed.trials) == (100.0, 100.0, 0)
    assert changed.start is not None
    assert changed.start.evictions.tolist() == SOME.tolist()


def test_what_is_still_to_be_tried_stays_so_in_the_next_session(tmp_path: Path):
    """The compiler changed, and the session ended before the function had its turn."""
    one, other = FunctionState(key=1, name="f", plain=math.inf, score=math.inf), function(2)
    one.start = Overrides(evictions=SOME)
    record_outcomes(other, [outcome(50.0)], TrialConfig())
    save_functions(tmp_path / "m", [one, other], measured_by="those of today")
    found = load_functions(tmp_path / "m", measured_by="those of today")
    again = FunctionState(key=1, name="f", plain=math.inf, score=math.inf)
    again.recall(found.get(1))
    assert again.start is not None
    assert again.start.evictions.tolist() == SOME.tolist()
    assert (again.trials, len(again.overrides)) == (0, 0)
    assert (found[2].score, found[2].trials) == (50.0, 1)
