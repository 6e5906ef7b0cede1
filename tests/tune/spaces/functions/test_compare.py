import math
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.trials import IMAGE_BYTES, OVERRIDE, Overrides
from mlgokit.module import Module
from mlgokit.testing import toy_sizes
from mlgokit.tune.spaces.allocation.trials import TrialConfig
from mlgokit.tune.spaces.functions.compare import larger_functions
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
