"""The native size of a function, estimated from counts of its IR: the model as data, evaluated in numpy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.errors import UsageError

BASE_COLUMN = "instructions"
BYTES_PER_INSTRUCTION = 4.0
"""What the networks correct; near the median of optimized x86-64 code."""
CLIP = 6.0
"""Bound of a normalised feature."""
MOST_LOG = 4.0
"""A prediction stays within this factor's exponential of the base, so that an odd function gives no absurd size."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeModel:
    """Networks on the logarithms of counts; K members, C columns, L layers.

    Attributes:
        columns: [C] names of the counts, see :class:`mlgokit.compiler.describe.ModuleDescription`.
        mean: [C] of log(1 + count).
        scale: [C] inverse of its standard deviation, 0 for a column that never varied.
        weights: [L] of [K, inputs, outputs].
        biases: [L] of [K, 1, outputs].
    """

    columns: tuple[str, ...]
    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeErrors:
    """How far predictions are from sizes; relative to the size.

    Attributes:
        functions: how many there are.
        median: of the functions' errors.
        p90: nine tenths of them are below.
        of_bytes: sum of the differences over the sum of the sizes.
        of_groups: mean error of the sums of groups, such as projects.
    """

    functions: int
    median: float
    p90: float
    of_bytes: float
    of_groups: float


def select_columns(columns: Sequence[str], values: npt.NDArray[np.int64], wanted: Sequence[str]) -> Floats:
    """[N, C] the wanted columns of [N, D] values, by name.

    Raises:
        UsageError: a column is not there, as with the properties of another LLVM major.
    """
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise UsageError(
            f"size model: expected the columns it was fitted on, found no {', '.join(missing)}; "
            "describe the functions with the LLVM major that the model is for"
        )
    places = {name: index for index, name in enumerate(columns)}
    return values[:, [places[name] for name in wanted]].astype(np.float64)


def base_bytes(columns: Sequence[str], counts: Floats) -> Floats:
    """[N] bytes at the same number for each instruction."""
    return BYTES_PER_INSTRUCTION * np.maximum(counts[:, list(columns).index(BASE_COLUMN)], 1.0)


def normalised(counts: Floats, mean: Floats, scale: Floats) -> Floats:
    """[N, C] what the networks see."""
    return np.clip((np.log1p(counts) - mean) * scale, -CLIP, CLIP)


def gelu(values: Floats) -> Floats:
    """The smooth rectifier in its tanh form, as JAX has it by default."""
    return 0.5 * values * (1 + np.tanh(np.sqrt(2 / np.pi) * (values + 0.044715 * values**3)))


def predict_bytes(model: SizeModel, columns: Sequence[str], values: npt.NDArray[np.int64]) -> Floats:
    """[N] estimated machine code of functions with counts ``values`` [N, D].

    Raises:
        UsageError: a column of the model is not there.
    """
    counts = select_columns(columns, values, model.columns)
    hidden = normalised(counts, model.mean, model.scale)[None]
    for index, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
        hidden = np.matmul(hidden, weight) + bias
        if index + 1 < len(model.weights):
            hidden = gelu(hidden)
    correction = np.clip(hidden[..., 0].mean(axis=0), -MOST_LOG, MOST_LOG)
    return base_bytes(model.columns, counts) * np.exp(correction)


def size_errors(predicted: Floats, sizes: npt.NDArray[np.int64], groups: Sequence[str]) -> SizeErrors:
    """Errors over functions [N] and over the sums of their groups [N].

    Example:
        >>> size_errors(np.array([90.0, 220.0]), np.array([100, 200]), ["p", "p"]).of_bytes
        0.1
    """
    differences = np.abs(predicted - sizes)
    relative = differences / sizes
    names, group = np.unique(np.array(groups), return_inverse=True)
    sums = [np.bincount(group, weights, len(names)) for weights in (predicted, sizes)]
    return SizeErrors(
        functions=len(sizes),
        median=float(np.median(relative)),
        p90=float(np.quantile(relative, 0.9)),
        of_bytes=float(differences.sum() / sizes.sum()),
        of_groups=float(np.abs(sums[0] / sums[1] - 1).mean()),
    )
