import itertools

import numpy as np
import pytest

from mlgokit.errors import UsageError
from mlgokit.statistics import (
    LOOKS,
    bootstrap_interval,
    correlation,
    geometric_mean_change,
    mean_interval,
    measure_in_pairs,
)


def test_a_change_does_not_depend_on_the_size_of_a_project():
    assert geometric_mean_change([1000, 10], [900, 9]) == pytest.approx(-0.1)
    assert geometric_mean_change([8, 1], [1, 1]) == pytest.approx(8**-0.5 - 1)


def test_clusters_add_the_modules_of_a_project_up():
    change = geometric_mean_change([10, 90, 50], [20, 70, 50], clusters=["p", "p", "q"])
    assert change == pytest.approx(0.9**0.5 - 1)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ([1, 2], [1], r"expected two lists of the same length, found shapes \(2,\) and \(1,\)"),
        ([], [], "expected two lists of the same length"),
        ([1, 5], [1, 0], "expected positive numbers, found 5.0 before and 0.0 after at position 1"),
        ([float("nan")], [1], "expected positive numbers, found nan before"),
    ],
)
def test_unusable_sizes_are_refused(before: list[float], after: list[float], message: str):
    with pytest.raises(UsageError, match=message):
        geometric_mean_change(before, after)


def test_an_interval_is_reproducible_and_holds_the_change():
    before, after = np.full(20, 1000.0), 1000 * np.exp(np.random.default_rng(4).normal(-0.03, 0.02, 20))
    first = bootstrap_interval(before, after, rng=np.random.default_rng(1))
    assert first == bootstrap_interval(before, after, rng=np.random.default_rng(1))
    assert first[0] < geometric_mean_change(before, after) < first[1]
    # Plus and minus 2.09 standard errors, the Student interval of 19 degrees of freedom, is what it should be near.
    error = np.log(after / before).std(ddof=1) / 20**0.5
    assert first[1] - first[0] == pytest.approx(2 * 2.09 * error, rel=0.25)


def test_a_higher_level_is_wider():
    before, after = [100.0] * 8, [90.0, 95, 97, 99, 100, 101, 98, 96]
    narrow = bootstrap_interval(before, after, rng=np.random.default_rng(1), level=0.5)
    wide = bootstrap_interval(before, after, rng=np.random.default_rng(1), level=0.99)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_the_same_ratio_everywhere_leaves_no_doubt():
    assert bootstrap_interval([100, 200], [90, 180], rng=np.random.default_rng(0)) == pytest.approx((-0.1, -0.1))


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(60):
        after = np.exp(rng.normal(-0.02, 0.03, 15))
        low, high = bootstrap_interval(np.ones(15), after, rng=rng, level=0.8)
        hits += low <= np.expm1(-0.02) <= high
    assert 38 <= hits <= 57


def test_two_levels_see_modules_and_projects():
    rng = np.random.default_rng(6)
    clusters = np.repeat(["a", "b", "c", "d", "e"], 12).tolist()
    before = rng.uniform(500, 5000, 60)
    same = before * 0.97
    low, high = bootstrap_interval(before, same, rng=rng, clusters=clusters)
    assert (low, high) == pytest.approx((-0.03, -0.03))
    noisy = before * np.exp(rng.normal(-0.03, 0.1, 60))
    low, high = bootstrap_interval(before, noisy, rng=rng, clusters=clusters)
    assert low < geometric_mean_change(before, noisy, clusters=clusters) < high
    # With one module in each project, only the projects are left to draw.
    after = np.exp(rng.normal(-0.02, 0.03, 40))
    single = bootstrap_interval(np.ones(40), after, rng=rng, clusters=list(range(40)))
    assert single == pytest.approx(bootstrap_interval(np.ones(40), after, rng=rng), abs=0.003)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"before": [1], "after": [2]}, "expected at least two projects, found 1; report the change without"),
        ({"before": [1, 1], "after": [2, 3], "clusters": ["a", "a"]}, "expected at least two projects, found 1"),
        ({"before": [1, 1], "after": [2, 3], "clusters": ["a"]}, "expected the project of each of 2 modules, found 1"),
        ({"before": [1, 1], "after": [2, 3], "level": 95}, "expected a level between 0 and 1, found 95"),
    ],
)
def test_impossible_intervals_are_refused(arguments: dict[str, object], message: str):
    with pytest.raises(UsageError, match=message):
        bootstrap_interval(**arguments, rng=np.random.default_rng(0))  # pyright: ignore[reportArgumentType]


def test_an_interval_of_differences_covers_their_mean_as_often_as_it_says():
    rng = np.random.default_rng(5)
    bounds = np.array([mean_interval(rng.normal(3, 2, size=6), level=0.9) for _ in range(1000)])
    assert 0.87 < ((bounds[:, 0] < 3) & (bounds[:, 1] > 3)).mean() < 0.93
    assert mean_interval([0.1] * 7) == (0.1, 0.1)


@pytest.mark.parametrize("differences", [[], [1.0], [1.0, float("nan")]])
def test_too_few_differences_have_no_interval(differences: list[float]):
    with pytest.raises(UsageError, match="mean interval: expected at least two numbers"):
        mean_interval(differences)


def test_rank_and_line_differ_on_a_curve():
    found = correlation([1, 2, 3, 4], [1, 10, 100, 1000])
    assert found.spearman == pytest.approx(1)
    assert 0.7 < found.pearson < 0.9
    assert correlation([1, 2, 3], [3, 2, 1]).pearson == pytest.approx(-1)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [1, 2], "the same length, at least 3, found shapes"),
        ([1, 2, 3], [1, 2], "the same length, at least 3"),
        ([1, 2, 3], [5, 5, 5], "values that vary, found a constant"),
    ],
)
def test_impossible_correlations_are_refused(x: list[float], y: list[float], message: str):
    with pytest.raises(UsageError, match=message):
        correlation(x, y)


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
