"""IR2Native: supervised regression of the native size of functions from counts of their IR.

Fitted on IR after the last pass it predicts code generation; on IR before any pass it also has to predict the passes,
and its errors are much larger.
"""

# JAX and optax annotate their functions only in part, which strict mode would report at every call.
# pyright: basic

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from mlgokit.algorithms.config import SizeModelConfig
from mlgokit.errors import UsageError

BASE_COLUMN = "instructions"
BYTES_PER_INSTRUCTION = 4.0
"""The base that the networks correct; near the median of optimized x86-64 code."""
CLIP = 6.0
"""Bound of a normalised feature."""
MOST_LOG = 4.0
"""Bound of the logarithm of the predicted size over the base, so that no outlier gets an absurd size."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeModel:
    """Networks on the logarithms of counts; K members, C columns, L layers.

    Attributes:
        columns: [C] names of the counts, see :class:`mlgokit.compiler.describe.ModuleDescription`.
        mean: [C] mean of log(1 + count) over the functions of the fit.
        scale: [C] inverse of the standard deviation of log(1 + count), 0 for a column that never varied.
        weights: [L] weights of each layer, [K, inputs, outputs].
        biases: [L] biases of each layer, [K, 1, outputs].
    """

    columns: tuple[str, ...]
    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeErrors:
    """Relative errors of predicted sizes.

    Attributes:
        functions: number of functions.
        median: median of the functions' errors.
        p90: 90th percentile of the functions' errors.
        of_bytes: sum of the absolute differences over the sum of the sizes.
        of_groups: mean error of the total sizes of groups, such as projects.
    """

    functions: int
    median: float
    p90: float
    of_bytes: float
    of_groups: float


def select_columns(columns: Sequence[str], values: npt.NDArray[np.int64], wanted: Sequence[str]) -> Floats:
    """Select columns [N, C] of ``values`` [N, D] by name.

    Raises:
        UsageError: a wanted column is missing, as when another LLVM major described the functions.
    """
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise UsageError(
            f"size model: expected the features that the model was fitted on, found no {', '.join(missing)}; "
            "describe the functions with the LLVM major that the model is for"
        )
    position = {name: index for index, name in enumerate(columns)}
    return values[:, [position[name] for name in wanted]].astype(np.float64)


def base_bytes(columns: Sequence[str], counts: Floats) -> Floats:
    """Estimate the bytes [N] of functions by a fixed size of each instruction."""
    return BYTES_PER_INSTRUCTION * np.maximum(counts[:, list(columns).index(BASE_COLUMN)], 1.0)


def normalise(counts: Floats, mean: Floats, scale: Floats) -> Floats:
    """Normalise counts [N, C] to inputs of the networks: clipped standard scores of their logarithms."""
    return np.clip((np.log1p(counts) - mean) * scale, -CLIP, CLIP)


def gelu(values: Floats) -> Floats:
    """Compute GELU in its tanh approximation, JAX's default."""
    return 0.5 * values * (1 + np.tanh(np.sqrt(2 / np.pi) * (values + 0.044715 * values**3)))


def predict_bytes(model: SizeModel, columns: Sequence[str], values: npt.NDArray[np.int64]) -> Floats:
    """Predict the bytes of machine code [N] of functions with counts ``values`` [N, D].

    Raises:
        UsageError: ``columns`` lacks a column of the model.
    """
    counts = select_columns(columns, values, model.columns)
    hidden = normalise(counts, model.mean, model.scale)[None]
    for index, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
        hidden = np.matmul(hidden, weight) + bias
        if index + 1 < len(model.weights):
            hidden = gelu(hidden)
    correction = np.clip(hidden[..., 0].mean(axis=0), -MOST_LOG, MOST_LOG)
    return base_bytes(model.columns, counts) * np.exp(correction)


def size_errors(predicted: Floats, sizes: npt.NDArray[np.int64], groups: Sequence[str]) -> SizeErrors:
    """Compute the errors of predicted bytes [N] against ``sizes`` [N], by function and by the totals of ``groups`` [N].

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


def fit_size_model(
    columns: Sequence[str],
    values: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    config: SizeModelConfig,
    *,
    rng: np.random.Generator,
) -> SizeModel:
    """Fit a size model to functions with counts ``values`` [N, C] and ``sizes`` [N] in bytes, all of them positive.

    The networks learn the logarithm of the size over the base (bytes for each instruction) under a Huber loss.

    Raises:
        UsageError: there is no function.
    """
    if not len(sizes):
        raise UsageError("size model: expected at least one function, found none; give a corpus with code in it")
    counts = select_columns(columns, values, columns)
    logs = np.log1p(counts)
    spread = logs.std(axis=0)
    mean, scale = logs.mean(axis=0), np.where(spread > 0, 1 / np.where(spread > 0, spread, 1), 0.0)
    inputs = normalise(counts, mean, scale).astype(np.float32)
    target = np.log(sizes / base_bytes(columns, counts)).astype(np.float32)
    widths = [inputs.shape[1], *config.hidden, 1]
    weights: Any = [
        {
            "weight": jnp.asarray(
                rng.normal(size=(config.members, fan_in, fan_out)) * np.sqrt(2 / fan_in), jnp.float32
            ),
            "bias": jnp.zeros((config.members, 1, fan_out)),
        }
        for fan_in, fan_out in itertools.pairwise(widths)
    ]
    batch = min(config.batch, len(sizes))
    steps = config.epochs * (len(sizes) // batch)
    schedule = optax.cosine_decay_schedule(config.learning_rate, steps)
    optimiser = optax.adamw(schedule, weight_decay=config.weight_decay)
    state = optimiser.init(weights)

    def loss(weights: Any, inputs: Any, target: Any) -> jax.Array:
        return optax.huber_loss(_predict(weights, inputs), target, delta=config.huber).mean()

    @jax.jit
    def step(weights: Any, state: Any, inputs: Any, target: Any) -> tuple[Any, Any]:
        updates, state = optimiser.update(jax.grad(loss)(weights, inputs, target), state, weights)
        return optax.apply_updates(weights, updates), state

    for _ in range(config.epochs):
        order = rng.permutation(len(sizes))
        for begin in range(0, len(order) - batch + 1, batch):
            rows = order[begin : begin + batch]
            weights, state = step(weights, state, inputs[rows], target[rows])
    return SizeModel(
        columns=tuple(columns),
        mean=mean,
        scale=scale,
        weights=tuple(np.asarray(layer["weight"], np.float64) for layer in weights),
        biases=tuple(np.asarray(layer["bias"], np.float64) for layer in weights),
    )


def _predict(weights: Any, inputs: Any) -> jax.Array:
    """Predict the logarithm of size over base [K, N] by each member, for inputs [N, C]."""
    hidden = jnp.broadcast_to(inputs, (weights[0]["weight"].shape[0], *inputs.shape))
    for index, layer in enumerate(weights):
        hidden = jnp.einsum("kni,kio->kno", hidden, layer["weight"]) + layer["bias"]
        if index + 1 < len(weights):
            hidden = jax.nn.gelu(hidden)
    return hidden[..., 0]
