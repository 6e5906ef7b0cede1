"""Normalisers: raw feature values -> network inputs (float32), the same to the last bit as in the plugin.

Values are integers or floats; both are taken as doubles (:func:`to_finite_doubles`).
``SignedLog`` is ours: sign(v) * log(1 + |v|), standardised and clipped. ``Quantile`` is google/ml-compiler-opt's
(``feature_ops``): the rank of the value among quantile boundaries, and its square.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.errors import UsageError

Values = npt.NDArray[np.integer[Any] | np.floating[Any]]
Inputs = npt.NDArray[np.float32]
LARGEST = float(np.finfo(np.float32).max)
BELOW_LARGEST = float(np.nextafter(np.float32(LARGEST), np.float32(0)))
"""The float below :data:`LARGEST`: the largest value that is below boundaries which only infinity reaches."""
LARGEST_LOG = 89.0
"""Bound of the absolute value of :func:`signed_log` for any float."""


def to_finite_doubles(values: Values, *, nan: float = 0.0) -> npt.NDArray[np.float64]:
    """Convert values to doubles that every normaliser can take.

    -0 becomes 0, infinities become the largest finite floats, and NaN becomes ``nan``.

    Example:
        >>> to_finite_doubles(np.array([np.nan, -0.0, np.inf, -np.inf, 7], np.float32)).tolist()
        [0.0, 0.0, 3.4028234663852886e+38, -3.4028234663852886e+38, 7.0]
    """
    wide = values.astype(np.float64)
    if np.issubdtype(values.dtype, np.integer):
        return wide
    return np.where(np.isnan(wide), nan, np.clip(wide, -LARGEST, LARGEST)) + 0.0


def signed_log(values: Values) -> npt.NDArray[np.float64]:
    """Compute sign(v) * log(1 + |v|) by the C library's ``log1p``, as the plugin does.

    numpy's own vectorised ``log1p`` differs from the C library's in the last bit on some machines.

    Example:
        >>> signed_log(np.array([0, -1, 7])).tolist()
        [0.0, -0.6931471805599453, 2.0794415416798357]
    """
    unique, inverse = np.unique(to_finite_doubles(values), return_inverse=True)
    table = np.array([math.copysign(math.log1p(abs(value)), value) for value in unique.tolist()])
    return (table[inverse] if unique.size else np.zeros(0)).reshape(values.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedLog:
    """The normaliser (signed_log(v) - mean) * scale, clipped to [-clip, clip].

    Attributes:
        mean: float32 [F] mean of each feature on the signed-log scale.
        scale: float32 [F] inverse of each feature's standard deviation on that scale.
        clip: bound of the inputs, at least as large as any value that training saw often.
    """

    mean: Inputs
    scale: Inputs
    clip: float

    @property
    def width(self) -> int:
        """Number of network inputs."""
        return len(self.mean)

    @property
    def bound(self) -> float:
        """Bound of the absolute value of all inputs: the clip, or what the largest float becomes if that is less."""
        farthest = (LARGEST_LOG + np.abs(self.mean.astype(np.float64))) * np.abs(self.scale.astype(np.float64))
        return min(self.clip, float(farthest.max()))

    def apply(self, values: Values) -> Inputs:
        """Normalise raw ``values`` [T, F] to inputs [T, F]."""
        scaled = (signed_log(values) - self.mean.astype(np.float64)) * self.scale.astype(np.float64)
        return np.clip(scaled, -self.clip, self.clip).astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """The normaliser [x, x * x] with x = (number of boundaries <= v) / (number of boundaries), feature by feature.

    Attributes:
        boundaries: float32 [F, Q] boundaries of each feature, every row ascending.
        lengths: [F] number of boundaries of each feature; a shorter row is padded with its last boundary. ``None`` if
            all rows have Q boundaries.
        nan: the value that NaN is replaced by. TFLite models take NaN for more than all boundaries, which is
            :data:`BELOW_LARGEST`.
    """

    boundaries: Inputs
    lengths: tuple[int, ...] | None = None
    nan: float = 0.0

    @property
    def width(self) -> int:
        """Number of network inputs."""
        return 2 * len(self.boundaries)

    @property
    def bound(self) -> float:
        """Bound of the absolute value of all inputs."""
        return 1.0

    def apply(self, values: Values) -> Inputs:
        """Normalise raw ``values`` [T, F] to inputs [T, 2 F]."""
        features, most = self.boundaries.shape
        lengths = (most,) * features if self.lengths is None else self.lengths
        # A row has few ranks, so the input of each rank is computed once, in double precision as in the plugin.
        inputs: dict[int, Inputs] = {}
        for count in set(lengths):
            ranks = np.arange(count + 1, dtype=np.float64) / count
            inputs[count] = np.stack([ranks, ranks * ranks], axis=-1).astype(np.float32)
        floats = to_finite_doubles(values, nan=self.nan).astype(np.float32)
        normalised = np.empty((*values.shape, 2), np.float32)
        for column, (row, count) in enumerate(zip(self.boundaries, lengths, strict=True)):
            normalised[:, column] = inputs[count][np.searchsorted(row[:count], floats[:, column], side="right")]
        return normalised.reshape(len(values), -1)


def quantile_rows(rows: Sequence[npt.NDArray[np.floating[Any]]], *, nan: float = 0.0) -> Quantile:
    """Make the quantile normaliser of these boundaries [Q] of each feature, infinities as the largest finite floats.

    Rows may differ in length, as those that google/ml-compiler-opt ships do: a shorter row is padded with its last
    boundary, and its length is kept, so that the padding does not count.

    Example:
        >>> made = quantile_rows([np.array([1.0, 2.0]), np.array([3.0])])
        >>> made.boundaries.tolist(), made.lengths
        ([[1.0, 2.0], [3.0, 3.0]], (2, 1))
    """
    lengths = tuple(len(row) for row in rows)
    longest = max(lengths, default=0)
    padded = [np.pad(np.clip(row, -LARGEST, LARGEST), (0, longest - len(row)), mode="edge") for row in rows]
    boundaries = np.stack(padded).astype(np.float32)
    return Quantile(boundaries=boundaries, lengths=lengths if len(set(lengths)) > 1 else None, nan=nan)


Normaliser = SignedLog | Quantile


def typical_values(normaliser: Normaliser) -> npt.NDArray[np.float64]:
    """Compute a typical raw value of each feature, [F].

    That is the value at the mean on the signed-log scale, or the median boundary.

    Example:
        >>> typical_values(fit_signed_log(np.array([[0, 5], [3, 5]]))).round(3).tolist()
        [1.0, 5.0]
    """
    if isinstance(normaliser, SignedLog):
        mean = normaliser.mean.astype(np.float64)
        with np.errstate(over="ignore"):
            return to_finite_doubles(np.copysign(np.expm1(np.abs(mean)), mean))
    features, most = normaliser.boundaries.shape
    lengths = np.array((most,) * features if normaliser.lengths is None else normaliser.lengths)
    return normaliser.boundaries[np.arange(features), lengths // 2].astype(np.float64)


def fit_signed_log(values: Values, *, clip: float = 4.0) -> SignedLog:
    """Fit a normaliser to raw ``values`` [T, F], by mean and spread on the signed-log scale.

    A constant feature becomes 0.

    Raises:
        UsageError: there are no values to fit.

    Example:
        >>> fit_signed_log(np.array([[1, 5], [3, 5]])).scale.tolist()
        [2.885390043258667, 0.0]
    """
    if not len(values):
        raise UsageError("normaliser: expected at least one observation to fit, found none; collect a trace first")
    logs = signed_log(values)
    deviation = logs.std(axis=0)
    scale = np.where(deviation > 1e-9, 1 / np.maximum(deviation, 1e-9), 0.0)
    return SignedLog(mean=logs.mean(axis=0).astype(np.float32), scale=scale.astype(np.float32), clip=clip)


def fit_quantile(values: Values, *, count: int = 1000) -> Quantile:
    """Fit a normaliser to raw ``values`` [T, F], by ``count`` equally spaced quantiles of each feature.

    Raises:
        UsageError: there are no values to fit.

    Example:
        >>> fit_quantile(np.array([[2], [2], [8]]), count=3).boundaries.tolist()
        [[2.0, 2.0, 8.0]]
    """
    if not len(values):
        raise UsageError("normaliser: expected at least one observation to fit, found none; collect a trace first")
    quantiles = np.quantile(to_finite_doubles(values), np.linspace(0, 1, count), axis=0)
    return Quantile(boundaries=np.ascontiguousarray(quantiles.T.astype(np.float32)))
