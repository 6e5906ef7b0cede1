"""Exploration: the random numbers are those of the plugin, the probabilities are right."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlgokit.errors import UsageError
from mlgokit.policy.exploration import (
    LARGEST_PRIORITY,
    Exploration,
    choose_column,
    context_seed,
    decide_binary,
    draw_priority,
    exploration_draws,
    factor_of,
    priority_of,
)


def test_the_stream_is_splitmix64() -> None:
    # First outputs of SplitMix64 for seed 1234567, as published with the algorithm, as 53-bit fractions.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    drawn = [number for index in range(2) for number in exploration_draws(1234567, index)]
    assert drawn == [(number >> 11) * 2.0**-53 for number in published]


@pytest.mark.parametrize("preference", [-3.0, -0.2, 0.4, 2.0])
def test_decisions_come_as_often_as_their_probability_says(preference: float) -> None:
    exploration = Exploration(temperature=0.7, flip_probability=0.1)
    draws = [exploration_draws(5, index) for index in range(4000)]
    decisions = [decide_binary(preference, exploration, *drawn) for drawn in draws]
    chance = np.mean([decision for decision, _ in decisions])
    told = {decision: math.exp(logarithm) for decision, logarithm in decisions}
    assert told[True] == pytest.approx(chance, abs=0.03)
    assert sum(told.values()) == pytest.approx(1)


def test_greedy_follows_the_preference() -> None:
    assert decide_binary(1.0, Exploration(), 0.5, 0.5) == (True, 0.0)
    assert decide_binary(-1.0, Exploration(), 0.5, 0.5) == (False, 0.0)
    assert decide_binary(0.0, Exploration(), 0.5, 0.5)[0] is False


def test_observations_draw_the_numbers_of_one_stream() -> None:
    seed, step = 2**64 - 3, 0x9E3779B97F4A7C15
    later = [exploration_draws((seed + 2 * step * index) % 2**64, 0) for index in range(20)]
    assert [exploration_draws(seed, index) for index in range(20)] == later


def test_functions_and_problems_explore_independently() -> None:
    seeds = {
        context_seed(seed, problem, context)
        for seed in (0, 1)
        for problem in ("regalloc-eviction", "regalloc-priority")
        for context in ("f", "g", "")
    }
    assert len(seeds) == 2 * (2 * 2 + 1)
    assert context_seed(5, "inline-size", "") == 5


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("flip_probability", [0.0, 0.3])
def test_columns_come_as_often_as_their_probability_says(temperature: float, flip_probability: float) -> None:
    exploration = Exploration(temperature=temperature, flip_probability=flip_probability)
    logits, mask = [3.0, 1.0, 99.0, 2.5, -1.0], [1, 1, 0, 1, 1]
    found = [choose_column(logits, mask, exploration, *exploration_draws(3, index)) for index in range(6000)]
    columns = np.array([column for column, _ in found])
    told = {column: math.exp(logarithm) for column, logarithm in found}
    assert 2 not in told
    assert sum(told.values()) == pytest.approx(1)
    for column, chance in told.items():
        assert np.mean(columns == column) == pytest.approx(chance, abs=0.03)


@given(
    logits=st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=9),
    allowed=st.integers(0, 511),
    temperature=st.sampled_from([0.0, 1e-300, 0.5, 1e300]),
    flip_probability=st.sampled_from([0.0, 1e-300, 0.5, 1.0]),
    choice=st.floats(0, 1, exclude_max=True),
    flip=st.floats(0, 1, exclude_max=True),
)
def test_a_masked_column_is_never_chosen(
    logits: list[float], allowed: int, temperature: float, flip_probability: float, choice: float, flip: float
) -> None:
    mask = [allowed >> place & 1 for place in range(len(logits))]
    exploration = Exploration(temperature=temperature, flip_probability=flip_probability)
    column, logarithm = choose_column(logits, mask, exploration, choice, flip)
    assert column == len(mask) - 1 if not any(mask) else mask[column] == 1
    assert logarithm <= 1e-12


def test_the_first_of_equal_columns_is_the_greedy_one() -> None:
    assert choose_column([1.0, 7.0, 7.0], [1, 1, 1], Exploration(), 0.99, 0.0)[0] == 1


@given(unit=st.floats(allow_nan=True, allow_infinity=True), other=st.floats(allow_nan=False))
def test_priorities_are_whole_bounded_and_in_order(unit: float, other: float) -> None:
    priority = priority_of(unit)
    assert 0 <= priority <= LARGEST_PRIORITY < 2**31
    assert priority == int(priority) == float(np.float32(priority))
    if unit <= other:
        assert priority <= priority_of(other)


def test_priorities_are_drawn_around_the_unit_number() -> None:
    exploration = Exploration(temperature=0.5)
    found = [draw_priority(3.0, exploration, *exploration_draws(8, index)) for index in range(5000)]
    units = np.array([priority for priority, _ in found]) / 2**26 - 16
    assert (units.mean(), units.std()) == (pytest.approx(3, abs=0.03), pytest.approx(0.5, abs=0.03))
    expected = -0.5 * ((units - 3) / 0.5) ** 2 - math.log(0.5 * math.sqrt(2 * math.pi))
    np.testing.assert_allclose([logarithm for _, logarithm in found], expected, atol=1e-4)


@given(unit=st.floats(allow_nan=True, allow_infinity=True))
def test_factors_are_bounded_and_floats(unit: float) -> None:
    assert abs(factor_of(unit)) <= 8
    assert factor_of(unit) == float(np.float32(factor_of(unit)))


def test_a_priority_is_not_turned_round() -> None:
    with pytest.raises(UsageError, match=r"expected a flip probability of 0, found 0\.1; a number has no opposite"):
        draw_priority(0.0, Exploration(flip_probability=0.1), 0.5, 0.5)
