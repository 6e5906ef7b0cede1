"""How many pairs it takes to tell two builds apart."""

import itertools

import numpy as np
import pytest

from mlgokit.evaluation.pairs import LOOKS, measure_in_pairs


def noisy(effect: float, noise: float):
    rng = np.random.default_rng(1)
    return lambda build: float((1.0 + effect * build) * np.exp(noise * rng.standard_normal()))


def never() -> bool:
    return False


def test_a_clear_difference_is_decided_at_the_first_look():
    found = measure_in_pairs(noisy(0.2, 0.01), is_over=never, error=0.05, ratios=True)
    assert len(found.before) == len(found.after) == LOOKS[0]
    assert 0.15 < found.low < 0.2 < found.high < 0.25


def test_no_difference_is_decided_when_the_interval_is_near_zero():
    found = measure_in_pairs(noisy(0.0, 0.002), is_over=never, error=0.05, ratios=True, near=0.02)
    assert len(found.before) < LOOKS[-1]
    assert -0.02 < found.low < 0 < found.high < 0.02


def test_noise_is_not_decided_and_ends():
    found = measure_in_pairs(noisy(0.0, 0.3), is_over=never, error=0.05, ratios=True, near=0.01)
    assert len(found.before) == LOOKS[-1]
    assert found.low < 0 < found.high


def test_the_order_within_pairs_alternates():
    asked: list[int] = []
    measure_in_pairs(lambda build: asked.append(build) or 1.0 + 0.1 * len(asked), is_over=never, error=0.05)
    assert asked[:8] == [0, 1, 1, 0, 0, 1, 1, 0]


def test_a_measurement_that_fails_ends_it_with_its_reason():
    numbers = itertools.chain([1.0, 2.0, 3.0], itertools.repeat("broken"))
    found = measure_in_pairs(lambda _: next(numbers), is_over=never, error=0.05)
    assert (found.before, found.after, found.reason) == ((1.0,), (2.0,), "broken")


def test_the_bound_of_time_is_kept():
    asked = itertools.count()
    found = measure_in_pairs(lambda _: 1.0, is_over=lambda: next(asked) >= 1, error=0.05)
    assert len(found.before) == 2
    assert found.low == pytest.approx(-np.inf)


def test_when_the_time_is_over_the_interval_may_be_looked_at_once_more():
    def after(pairs: int, *, last_look: bool) -> tuple[int, float]:
        asked = itertools.count()
        found = measure_in_pairs(
            noisy(0.0, 0.3), is_over=lambda: next(asked) >= pairs - 1, error=0.05, ratios=True, last_look=last_look
        )
        return len(found.before), found.low

    assert after(1, last_look=True) == (1, -np.inf)
    assert after(3, last_look=False) == (3, -np.inf)
    pairs, low = after(3, last_look=True)
    assert pairs == 3
    assert -1 < low < 0
