"""Step functions of one feature, which exported models have in the place of normalisers."""

import numpy as np

from mlgokit.policy.network import scale_layer
from mlgokit.policy.normaliser import LARGEST, Quantile, to_finite_doubles
from mlgokit.policy.tflite.rows import expand
from mlgokit.policy.tflite.steps import Steps, integer_inputs


def test_a_boundary_at_the_least_float_is_one_as_any_other():
    normaliser = Quantile(boundaries=np.array([[-LARGEST, -1.0, 2.0, LARGEST]], np.float32))
    layer = scale_layer(np.ones((1, normaliser.width, 1), np.float32), np.zeros((1, 1), np.float32), normaliser.bound)
    raw = np.array([-np.inf, -LARGEST, -2.0, -1.0, 0.0, 2.0, LARGEST, np.inf])

    steps = integer_inputs(normaliser, layer, 0, whole_numbers=False)

    expected = np.rint(normaliser.apply(raw[:, None]).astype(np.float64) * layer.input_scale)
    np.testing.assert_array_equal(steps.at(raw), expected)


def test_infinity_is_above_all_boundaries_and_no_more():
    row = np.arange(1, 21, dtype=np.float32)
    ranks = np.arange(21, dtype=np.float32) / np.float32(20)
    raw = np.array([-np.inf, 0, 1, 7.5, 20, 1e30, np.inf])

    found = expand([Steps(knots=row, values=ranks * ranks, row=row)], whole_numbers=False)

    total = np.repeat(found.constant, len(raw))
    for term in found.terms:
        own = found.rows[term.row]
        share = np.searchsorted(own, to_finite_doubles(raw).astype(np.float32), side="right") / len(own)
        total += term.factor[0] * share**term.power
    np.testing.assert_allclose(total, [0, 0, 0.0025, 0.1225, 1, 1, 1], rtol=0, atol=1e-4)
