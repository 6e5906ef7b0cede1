"""The first layer in integers: it is near the floats that it was made of, and no sum can overflow."""

import math

import numpy as np
import pytest

from mlgokit.policy.network import LARGEST_INPUT, LARGEST_SUM, LARGEST_WEIGHT, scale_layer
from mlgokit.policy.normaliser import LARGEST, SignedLog, fit_quantile


@pytest.mark.parametrize("spread", [1e-30, 1e-3, 1.0, 1e6, 1e37])
@pytest.mark.parametrize("bound", [1e-12, 0.7, 1.0, 4.0, 1e9, 1e300])
def test_no_weight_and_no_sum_is_too_large_whatever_the_inputs_are(spread: float, bound: float) -> None:
    rng = np.random.default_rng(5)
    weight = np.clip(rng.normal(size=(3, 40, 7)) * spread, -3e38, 3e38)
    bias = np.clip(rng.normal(size=(3, 7)) * spread * rng.choice([0, 1, 1e6], (3, 7)), -3e38, 3e38)
    layer = scale_layer(weight.astype(np.float32), bias.astype(np.float32), bound)
    assert np.abs(layer.weight).max() <= LARGEST_WEIGHT
    assert (np.abs(layer.weight).sum(axis=1) * LARGEST_INPUT + np.abs(layer.bias)).max() <= LARGEST_SUM
    assert LARGEST_INPUT / 2 < layer.bound * layer.input_scale <= LARGEST_INPUT or bound == 1e-12
    assert all(math.frexp(unit)[0] == 0.5 for unit in layer.unit.tolist())


def test_outputs_are_those_of_floats_but_for_a_thousandth() -> None:
    rng = np.random.default_rng(6)
    weight, bias = rng.normal(size=(6, 77, 48)) * 0.1, rng.normal(size=(6, 48)) * 0.1
    inputs = np.clip(rng.normal(size=(200, 77)), -4, 4).astype(np.float32)
    found = scale_layer(weight, bias, 4.0).apply(inputs)
    exact = inputs.astype(np.float64) @ weight + bias[:, None, :]
    assert 0 < np.abs(found - exact).max() < 1e-3 * exact.std() * 6


def test_the_bound_of_a_normaliser_is_its_clip_or_what_the_largest_float_becomes() -> None:
    mean, scale = np.array([0, -1], np.float32), np.array([1, 2], np.float32)
    assert SignedLog(mean=mean, scale=scale, clip=4.0).bound == 4
    wide = SignedLog(mean=mean, scale=scale, clip=1e9)
    assert wide.bound == 180
    assert np.abs(wide.apply(np.array([[LARGEST, LARGEST], [-np.inf, np.inf]]))).max() <= 180
    assert fit_quantile(np.arange(9)[:, None], count=3).bound == 1


def test_what_is_beyond_the_bound_counts_as_the_bound() -> None:
    layer = scale_layer(np.array([[[0.5]]]), np.array([[0.25]]), 4.0)
    assert layer.apply(np.array([[4.0], [9.0], [-np.inf]], np.float32)).ravel().tolist() == [2.25, 2.25, -1.75]


def test_a_bias_that_is_much_larger_than_the_weights_counts() -> None:
    layer = scale_layer(np.array([[[1e-6]]]), np.array([[3e5]]), 4.0)
    np.testing.assert_allclose(layer.apply(np.array([[1.0]], np.float32)), [[[3e5]]], rtol=1e-7)


def test_weights_of_nothing_give_the_bias() -> None:
    assert scale_layer(np.zeros((1, 2, 1)), np.full((1, 1), 1.5), 4.0).apply(np.ones((1, 2), np.float32)) == [[[1.5]]]
    assert scale_layer(np.zeros((1, 2, 1)), np.zeros((1, 1)), 4.0).apply(np.ones((1, 2), np.float32)) == [[[0.0]]]
