"""Step functions of one feature: what a normaliser, a vocabulary or an embedding makes of its raw values.

A step function is its knots, ascending floats, and its values: the first below all knots, then one from each knot on.
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
"""Where the plugin puts an infinite value."""
_ROUNDS = 33
"""Halvings that tell any two floats apart."""
_EXACT = 1 << 24
"""Up to here a float holds every whole number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """A function of a feature's raw value that changes at some values only.

    Attributes:
        knots: float32 [m], ascending, no two equal.
        values: [m + 1] or [m + 1, k].
        row: the boundaries of the vocabulary that it was made of, if it was; knots stand there more than once.
    """

    knots: Floats
    values: Array
    row: Floats = field(default_factory=lambda: np.empty(0, np.float32))

    def at(self, raw: Array) -> Array:
        """The values for ``raw`` values."""
        return self.values[np.searchsorted(self.knots, np.asarray(raw, np.float32), side="right")]


def representatives(knots: Floats, *, whole_numbers: bool = False) -> Floats:
    """[m + 1] a raw value of each step: one below all knots, then the knots."""
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


def whole_inputs(normaliser: Normaliser, layer: FirstLayer, index: int, *, whole_numbers: bool) -> Steps:
    """What the first layer takes of the feature in a row of the normaliser: whole numbers, as doubles [m + 1, k].

    Args:
        normaliser: of the policy.
        layer: the policy's first layer in integers.
        index: the row.
        whole_numbers: whether the feature's raw values are whole numbers.
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
    if isinstance(normaliser, SignedLog):
        row = slice(index, index + 1)
        return SignedLog(mean=normaliser.mean[row], scale=normaliser.scale[row], clip=normaliser.clip)
    boundaries = normaliser.boundaries[index : index + 1]
    count = boundaries.shape[1] if normaliser.lengths is None else normaliser.lengths[index]
    return Quantile(boundaries=boundaries[:, :count], nan=normaliser.nan)


def _log_knots(normaliser: SignedLog, whole: Callable[[Array], Doubles]) -> Floats:
    """The least float of each whole number that the function becomes; it is monotone."""

    def exact(places: Array) -> Doubles:
        return sign * whole(normaliser.apply(_float_at(places)[:, None]))[:, 0]

    mean, scale = normaliser.mean.astype(np.float64), normaliser.scale.astype(np.float64)
    sign = -1.0 if scale[0] < 0 else 1.0
    ends = _place_of(np.array([-LARGEST, LARGEST], np.float32))
    first, last = (float(end) for end in exact(ends))
    levels: Doubles = np.arange(first + 1, last + 1, dtype=np.float64)
    low, high = np.full(len(levels), ends[0]), np.full(len(levels), ends[1])
    for _ in range(_ROUNDS):
        middle = (low + high) // 2
        raw = _float_at(middle).astype(np.float64)
        # numpy's own logarithm is quick; where it is another than the C library's, it is put right below.
        logs = np.copysign(np.log1p(np.abs(raw)), raw)
        inputs = np.clip((logs - mean) * scale, -normaliser.clip, normaliser.clip).astype(np.float32)
        reached = sign * whole(inputs) >= levels
        high, low = np.where(reached, middle, high), np.where(reached, low, middle)
    for _ in range(2):
        high = np.where(exact(high) < levels, high + 1, high)
        high = np.where(exact(high - 1) >= levels, high - 1, high)
    return merge_knots([_float_at(high)])


def _place_of(floats: Floats) -> npt.NDArray[np.int64]:
    """Whole numbers in the floats' order, neighbours for neighbours."""
    bits = floats.view(np.int32).astype(np.int64)
    return np.where(bits >= 0, bits, -(bits & 0x7FFFFFFF))


def _float_at(places: npt.NDArray[np.int64]) -> Floats:
    bits = np.where(places >= 0, places, -places | 0x80000000)
    return bits.astype(np.uint32).view(np.float32)
