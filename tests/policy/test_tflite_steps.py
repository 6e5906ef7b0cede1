"""Step functions of one feature, which exported models have in the place of normalisers."""

import numpy as np

from mlgokit.policy.first_layer import scale_layer
from mlgokit.policy.normaliser import LARGEST, Quantile
from mlgokit.policy.tflite.steps import whole_inputs


def test_a_boundary_at_the_least_float_is_one_as_any_other():
    normaliser = Quantile(boundaries=np.array([[-LARGEST, -1.0, 2.0, LARGEST]], np.float32))
    layer = scale_layer(np.ones((1, normaliser.width, 1), np.float32), np.zeros((1, 1), np.float32), normaliser.bound)
    raw = np.array([-np.inf, -LARGEST, -2.0, -1.0, 0.0, 2.0, LARGEST, np.inf])

    steps = whole_inputs(normaliser, layer, 0, whole_numbers=False)

    expected = np.rint(normaliser.apply(raw[:, None]).astype(np.float64) * layer.input_scale)
    np.testing.assert_array_equal(steps.at(raw), expected)
