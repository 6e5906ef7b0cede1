"""The first layer of a policy's networks, in integers: the arithmetic of the plugin's ``FirstLayer.cpp`` to the bit.

Integers have the same sum in any order. So the plugin adds only what changed since the decision before, and numpy takes
a matrix product: of doubles, which hold every sum exactly. docs/formats.md, "The arithmetic", has the rules.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST_INPUT = 1 << 13
LARGEST_WEIGHT = np.iinfo(np.int16).max
LARGEST_SUM = np.iinfo(np.int32).max
_LARGEST_EXPONENT = 40
_LARGEST = float(np.finfo(np.float32).max)

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstLayer:
    """One dense layer of each of K networks, scaled to whole numbers.

    Attributes:
        bound: no input is beyond it.
        input_scale: the power of two by which inputs are multiplied.
        weight: [K, I, O] whole numbers.
        bias: [K, O] whole numbers.
        unit: [K] what 1 in a member's sums stands for.
    """

    bound: float
    input_scale: float
    weight: Doubles
    bias: Doubles
    unit: Doubles

    def apply(self, inputs: Floats) -> Floats:
        """Outputs [K, N, O] for ``inputs`` [N, I]."""
        whole = np.rint(np.clip(inputs.astype(np.float64), -self.bound, self.bound) * self.input_scale)
        found = np.empty((len(self.weight), len(inputs), self.bias.shape[1]), np.float32)
        with np.errstate(over="ignore"):
            for member, (weight, bias, unit) in enumerate(zip(self.weight, self.bias, self.unit, strict=True)):
                found[member] = (whole @ weight + bias) * unit
        return found


def scale_layer(weight: npt.NDArray[Any], bias: npt.NDArray[Any], bound: float) -> FirstLayer:
    """The layer ``weight`` [K, I, O], ``bias`` [K, O] for inputs that are not beyond ``bound``.

    Each member has the largest power of two with which no weight takes more than 16 bits, and no sum more than 32,
    whatever the inputs are.

    Example:
        >>> layer = scale_layer(np.array([[[0.5], [-0.25]]]), np.array([[1.0]]), 4.0)
        >>> layer.input_scale, layer.weight.ravel().tolist(), layer.apply(np.array([[2.0, 4.0]], np.float32)).tolist()
        (2048.0, [16384.0, -8192.0], [[[1.0]]])
    """
    bound = min(bound, _LARGEST)
    mantissa, exponent = math.frexp(bound)
    input_exponent = min(13 - exponent + (mantissa == 0.5), _LARGEST_EXPONENT)
    # Files have finite numbers only; a learner whose numbers overflow may ask for others.
    weights, biases = (
        np.nan_to_num(values.astype(np.float64), posinf=_LARGEST, neginf=-_LARGEST) for values in (weight, bias)
    )
    scaled = [_scale_member(*member, input_exponent) for member in zip(weights, biases, strict=True)]
    return FirstLayer(
        bound=bound,
        input_scale=math.ldexp(1.0, input_exponent),
        weight=np.stack([weight for weight, _, _ in scaled]),
        bias=np.stack([bias for _, bias, _ in scaled]),
        unit=np.array([math.ldexp(1.0, -exponent - input_exponent) for _, _, exponent in scaled]),
    )


def _scale_member(weight: Doubles, bias: Doubles, input_exponent: int) -> tuple[Doubles, Doubles, int]:
    """``weight`` [I, O] and ``bias`` [O] as whole numbers, and the power of two by which weights were multiplied."""
    largest = (math.frexp(float(np.abs(values).max(initial=0.0)))[1] for values in (weight, bias))
    exponent = min(15 - next(largest), 31 - input_exponent - next(largest))
    while True:
        weights = np.rint(np.ldexp(weight, exponent))
        biases = np.rint(np.ldexp(bias, exponent + input_exponent))
        sums = np.abs(weights).sum(axis=0) * LARGEST_INPUT + np.abs(biases)
        if np.abs(weights).max(initial=0.0) <= LARGEST_WEIGHT and sums.max() <= LARGEST_SUM:
            return weights, biases, exponent
        exponent -= 1
