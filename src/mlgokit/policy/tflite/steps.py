"""Step functions of one feature, as normalisers, vocabularies and embeddings compute them from raw values.

A step function has knots, which are ascending floats, and values: the first is that below all knots, and one more holds
from each knot on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mlgokit.policy.network import FirstLayer
from mlgokit.policy.normaliser import LARGEST, Normaliser, Quantile, SignedLog
from mlgokit.policy.tflite.graph import Array

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
INFINITY = np.array([LARGEST], np.float32)
"""The float that the plugin replaces infinity by, as an array of one knot."""
_ROUNDS = 33
"""Steps of a binary search that tell any two 32-bit floats apart."""
_EXACT = 1 << 24
"""Bound below which a 32-bit float holds every whole number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """A step function of a feature's raw value.

    Attributes:
        knots: float32 [m] raw values at which the function changes, strictly ascending.
        values: [m + 1] value on each step, or [m + 1, k] values of k functions with the same knots.
        row: boundaries of the vocabulary that the function was made from, which may repeat; empty if there is none.
    """

    knots: Floats
    values: Array
    row: Floats = field(default_factory=lambda: np.empty(0, np.float32))

    def at(self, raw: Array) -> Array:
        """Evaluate the function at ``raw`` values."""
        return self.values[np.searchsorted(self.knots, np.asarray(raw, np.float32), side="right")]


def representatives(knots: Floats, *, whole_numbers: bool = False) -> Floats:
    """Choose a raw value on each step, [m + 1]: one below all knots, then the knots."""
    if not len(knots):
        return np.zeros(1, np.float32)
    with np.errstate(over="ignore"):  # below the least float is infinity
        below = np.nextafter(knots[:1], np.float32(-np.inf))
    return np.concatenate([np.minimum(below, knots[:1] - 1) if whole_numbers else below, knots])


def merge_knots(knots: Sequence[Floats]) -> Floats:
    """Merge the knots of several step functions, without duplicates."""
    return np.unique(np.concatenate([*knots, np.empty(0, np.float32)])).astype(np.float32)


def drop_equal_steps(steps: Steps) -> Steps:
    """Drop knots at which the function does not change."""
    values = steps.values.reshape(len(steps.values), -1)
    changes = (values[1:] != values[:-1]).any(axis=1)
    kept = np.concatenate([[True], changes])
    return Steps(knots=steps.knots[changes], values=steps.values[kept], row=steps.row)


def integer_inputs(normaliser: Normaliser, layer: FirstLayer, index: int, *, whole_numbers: bool) -> Steps:
    """Compute the integer inputs of the first layer as a step function of one feature's raw value.

    Args:
        normaliser: normaliser of the policy.
        layer: first layer of the policy in integers.
        index: position of the feature in the normaliser.
        whole_numbers: whether the feature's raw values are whole numbers.

    Returns:
        The step function, with values [m + 1, k] that are whole numbers as doubles; k inputs for each feature.
    """
    row = _one_row(normaliser, index)

    def whole(inputs: Array) -> Doubles:
        return np.rint(np.clip(inputs.astype(np.float64), -layer.bound, layer.bound) * layer.input_scale)

    if isinstance(row, Quantile):
        knots = merge_knots([row.boundaries.ravel()])
    else:
        knots = _log_knots(row, whole)
        if whole_numbers:
            knots = np.unique(np.where(np.abs(knots) < _EXACT, np.ceil(knots), knots)).astype(np.float32)
    raw = representatives(knots, whole_numbers=whole_numbers)
    return drop_equal_steps(Steps(knots=knots, values=whole(row.apply(raw[:, None]))))


def _one_row(normaliser: Normaliser, index: int) -> Normaliser:
    """Make the normaliser of one feature alone."""
    if isinstance(normaliser, SignedLog):
        row = slice(index, index + 1)
        return SignedLog(mean=normaliser.mean[row], scale=normaliser.scale[row], clip=normaliser.clip)
    boundaries = normaliser.boundaries[index : index + 1]
    count = boundaries.shape[1] if normaliser.lengths is None else normaliser.lengths[index]
    return Quantile(boundaries=boundaries[:, :count], nan=normaliser.nan)


def _log_knots(normaliser: SignedLog, whole: Callable[[Array], Doubles]) -> Floats:
    """Find by binary search the least float at which the integer input of a signed log reaches each of its values."""

    def exact(places: Array) -> Doubles:
        return sign * whole(normaliser.apply(_float_at(places)[:, None]))[:, 0]

    mean, scale = normaliser.mean.astype(np.float64), normaliser.scale.astype(np.float64)
    sign = -1.0 if scale[0] < 0 else 1.0
    ends = _ordinal_of(np.array([-LARGEST, LARGEST], np.float32))
    first, last = (float(end) for end in exact(ends))
    levels: Doubles = np.arange(first + 1, last + 1, dtype=np.float64)
    low, high = np.full(len(levels), ends[0]), np.full(len(levels), ends[1])
    for _ in range(_ROUNDS):
        middle = (low + high) // 2
        raw = _float_at(middle).astype(np.float64)
        # numpy's own logarithm is quick; where it differs from the C library's, the loop below corrects the knot.
        logs = np.copysign(np.log1p(np.abs(raw)), raw)
        inputs = np.clip((logs - mean) * scale, -normaliser.clip, normaliser.clip).astype(np.float32)
        reached = sign * whole(inputs) >= levels
        high, low = np.where(reached, middle, high), np.where(reached, low, middle)
    for _ in range(2):
        high = np.where(exact(high) < levels, high + 1, high)
        high = np.where(exact(high - 1) >= levels, high - 1, high)
    return merge_knots([_float_at(high)])


def _ordinal_of(floats: Floats) -> npt.NDArray[np.int64]:
    """Number the 32-bit floats in their order, so that neighbouring floats have neighbouring numbers."""
    bits = floats.view(np.int32).astype(np.int64)
    return np.where(bits >= 0, bits, -(bits & 0x7FFFFFFF))


def _float_at(places: npt.NDArray[np.int64]) -> Floats:
    """Invert :func:`_ordinal_of`."""
    bits = np.where(places >= 0, places, -places | 0x80000000)
    return bits.astype(np.uint32).view(np.float32)
