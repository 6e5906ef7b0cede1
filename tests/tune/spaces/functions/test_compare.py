import math
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.trials import IMAGE_BYTES, OVERRIDE, RUN_COST, Outcome, Overrides
from mlgokit.module import Module
from mlgokit.testing import toy_sizes, toy_source
from mlgokit.traces.function_id import function_id
from mlgokit.tune.spaces.allocation.trials import TrialConfig
from mlgokit.tune.spaces.functions.compare import larger_functions
from mlgokit.tune.spaces.functions.rounds import record_outcomes
from mlgokit.tune.spaces.functions.space import FunctionSpace
from mlgokit.tune.spaces.functions.state import FunctionState, ModuleFunctions

KEYS = {"f": 1, "g": 2, "h": 3}


@pytest.mark.parametrize(
    ("outlined", "after", "back"),
    [
        ({}, {"f": 90, "g": 100, "h": 100}, set()),
        ({}, {"f": 90, "g": 104, "h": 100}, {2}),
        # Nobody touched it: the allocation of another function has changed what is around it.
        ({}, {"f": 90, "g": 100, "h": 104}, {1, 2}),
        ({"OUTLINED_FUNCTION_0": 8}, {"f": 90, "g": 100, "h": 104}, set()),
        ({"OUTLINED_FUNCTION_0": 8}, {"f": 90, "g": 104, "h": 100}, set()),
        ({"OUTLINED_FUNCTION_0": 8}, {"f": 98, "g": 104, "h": 100}, {2}),
        ({"OUTLINED_FUNCTION_0": 8}, {"f": 99, "g": 99, "h": 104}, {1, 2}),
    ],
)
def test_what_does_not_pay_is_put_back(outlined: dict[str, int], after: dict[str, int], back: set[int]):
    first, second = (toy_sizes(text | outlined) for text in ({"f": 100, "g": 100, "h": 100}, after))
    assert larger_functions(KEYS, {1, 2}, first, second, text_only=False) == back


# Where f and g are folded into one, each counts half as long as they are alike, and g is as f in what it calls.
@pytest.mark.parametrize(
    ("after", "back"),
    [
        ({"f": 45, "g": 45, "h": 100}, set[int]()),
        ({"f": 90, "g": 100, "h": 100}, {1}),
        ({"f": 40, "g": 60, "h": 99}, set[int]()),
        ({"f": 50, "g": 50, "h": 104}, {1}),
    ],
)
def test_functions_that_are_folded_count_together(after: dict[str, int], back: set[int]):
    first, second = (toy_sizes(text) for text in ({"f": 50, "g": 50, "h": 100}, after))
    folded = {"f": 0, "g": 0, "h": 2}
    assert larger_functions(KEYS, {1}, first, second, text_only=False, folded=folded) == back


def test_where_nothing_was_alike_all_are_put_back():
    first, second = (toy_sizes(text) for text in ({"f": 50, "g": 50, "h": 100}, {"f": 40, "g": 50, "h": 104}))
    assert larger_functions(KEYS, {1}, first, second, text_only=False, folded={"f": 0, "g": 1, "h": 2}) == {1}


def test_what_is_decided_for_one_function_holds_for_all_that_are_folded_with_it(tmp_path: Path):
    overrides = {key: Overrides(evictions=np.array([(key, 0, 4)], OVERRIDE)) for key in (1, 2, 5)}
    functions = [
        FunctionState(key=1, name="a", plain=100.0, score=97.0, overrides=overrides[1]),
        FunctionState(key=2, name="b", plain=100.0, score=95.0, overrides=overrides[2]),
        FunctionState(key=3, name="c", plain=100.0, score=100.0),
        FunctionState(key=4, name="d", plain=100.0, score=100.0),
        FunctionState(key=5, name="e", plain=math.inf, score=math.inf, start=overrides[5]),
    ]
    unit = ModuleFunctions(module=cast("Module", None), keys={}, functions=functions, compile_seconds=1.0)
    space = FunctionSpace(folder=tmp_path, compiler=cast("Compiler", None), config=TrialConfig(weights=IMAGE_BYTES))
    space.units.append(unit)
    assert space.chosen() == overrides
    space.twins = [frozenset({1, 2, 3}), frozenset({5, 6}), frozenset({4, 7})]
    assert space.chosen() == {1: overrides[2], 2: overrides[2], 3: overrides[2], 5: overrides[5], 6: overrides[5]}


def executing(plain: float, score: float, *, worth: float, name: str = "f", key: int = 7) -> FunctionState:
    overrides = Overrides(passes=np.zeros(1, OVERRIDE))
    return FunctionState(key=key, name=name, plain=plain, score=score, overrides=overrides, worth=worth, trials=9)


def test_executed_instructions_are_worth_the_entries_of_their_function(tmp_path: Path):
    # An instruction in a hundred of a function that is called often, and one of another that is called once.
    often, once = executing(30.0, 29.7, worth=100.0), executing(30.0, 29.7, worth=1e-4, name="g", key=8)
    unit = ModuleFunctions(module=toy_source("m"), keys={"f": 7, "g": 8}, functions=[often, once], compile_seconds=1.0)
    config = TrialConfig(weights=RUN_COST)
    space = FunctionSpace(folder=tmp_path, compiler=cast("Compiler", None), config=config, units=[unit])

    assert space.chosen().keys() == {7}
    assert unit.sums.before - unit.sums.after == pytest.approx(30.0, rel=1e-3)
    assert space.take_back({function_id("f")})
    assert not space.take_back({function_id("f")})
    assert not space.chosen()


@pytest.mark.parametrize(("score", "best"), [(20.0, 20.0), (15.0, 30.0)])
def test_code_that_seems_to_execute_almost_nothing_has_lost_its_probabilities(score: float, best: float):
    function = executing(30.0, 30.0, worth=2.0)
    outcome = Outcome(
        score=score, seconds=0.1, evictions=0, priorities=0, overrides=Overrides(passes=np.ones(1, OVERRIDE))
    )

    gain = record_outcomes(function, [outcome], TrialConfig(weights=RUN_COST))

    assert (function.score, gain) == (best, 2.0 * (30.0 - best))


def test_functions_are_tried_longer_while_time_is_left_and_all_are_exhausted(tmp_path: Path):
    one, other = executing(30.0, 29.0, worth=1.0), executing(30.0, 29.0, worth=1.0, name="g", key=8)
    without_passes = executing(30.0, 30.0, worth=1.0, name="h", key=9)
    for function in (one, other):
        function.passes, function.trials = 10, 1000
    unit = ModuleFunctions(module=toy_source("m"), keys={}, functions=[one, other, without_passes], compile_seconds=1.0)
    config = TrialConfig(weights=RUN_COST)
    space = FunctionSpace(folder=tmp_path, compiler=cast("Compiler", None), config=config, units=[unit])
    rng = np.random.default_rng(1)

    other.trials = 100
    one.gained = 990
    space.prepare(0.0, 60.0, rng)
    assert (one.patience, one.exhausted, other.exhausted) == (1, False, True)
    one.gained = 900
    space.prepare(60.0, 60.0, rng)
    assert (one.patience, unit.exhausted) == (1, True)
    space.prepare(30.0, 60.0, rng)
    assert (one.patience, one.exhausted, other.exhausted, without_passes.exhausted) == (2, False, False, True)
    one.gained = other.gained = 0
    one.trials = other.trials = 1000
    space.prepare(30.0, 60.0, rng)
    assert (one.patience, unit.exhausted) == (8, True)
