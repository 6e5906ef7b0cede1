"""Normalisers: the reference's published numbers for quantiles, and the shape of the signed logarithm."""

import numpy as np
import pytest

from mlgokit.errors import UsageError
from mlgokit.policy.normaliser import Quantile, fit_quantile, fit_signed_log, signed_log


def test_quantile_ranks_are_the_references() -> None:
    boundaries = np.array([[2, 2, 2, 3, 4, 5, 8, 16, 51]], np.float32)
    inputs = Quantile(boundaries=boundaries).apply(np.array([[2], [8], [-1], [99]]))
    ranks = np.array([3 / 9, 7 / 9, 0, 1])
    np.testing.assert_allclose(inputs, np.stack([ranks, ranks**2], axis=1).astype(np.float32))


@pytest.mark.parametrize("count", [20, 999, 1000])
def test_squares_in_single_precision_give_the_network_the_same_inputs(count: int) -> None:
    """TensorFlow squares a float; networks take inputs in multiples of 1 / 8192, in which that makes no difference."""
    boundaries = np.arange(count, dtype=np.float32)[None]
    inputs = Quantile(boundaries=boundaries).apply(np.arange(-1, count)[:, None])
    ranks = np.arange(count + 1, dtype=np.float32) / np.float32(count)
    np.testing.assert_array_equal(inputs[:, 0], ranks)
    np.testing.assert_allclose(inputs[:, 1], ranks * ranks, rtol=2e-7)
    np.testing.assert_array_equal(np.rint(inputs[:, 1] * 8192.0), np.rint(ranks * ranks * 8192.0))


def test_signed_log_is_odd_and_monotone() -> None:
    values = np.arange(-300, 301)
    logs = signed_log(values)
    np.testing.assert_array_equal(logs, -logs[::-1])
    assert (np.diff(logs) > 0).all()


def test_a_constant_feature_says_nothing() -> None:
    normaliser = fit_signed_log(np.array([[7, 1], [7, 9], [7, 4]]))
    inputs = normaliser.apply(np.array([[7, 2], [9999, 2]]))
    assert inputs[:, 0].tolist() == [0, 0]
    assert inputs[0, 1] == inputs[1, 1]


def test_outliers_are_clipped() -> None:
    normaliser = fit_signed_log(np.array([[1], [2], [3]]), clip=2.0)
    assert normaliser.apply(np.array([[2**62], [-(2**62)]])).ravel().tolist() == [2.0, -2.0]


def test_quantiles_ascend() -> None:
    values = np.random.default_rng(1).integers(-50, 50, (400, 3))
    assert (np.diff(fit_quantile(values, count=99).boundaries, axis=1) >= 0).all()


@pytest.mark.parametrize("fit", [fit_signed_log, fit_quantile])
def test_nothing_to_fit_is_a_sentence(fit: object) -> None:
    with pytest.raises(UsageError, match="expected at least one observation to fit, found none"):
        fit(np.zeros((0, 2), np.int64))  # type: ignore[operator]
