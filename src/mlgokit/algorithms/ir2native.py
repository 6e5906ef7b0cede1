"""IR2Native: learns the native size of functions from counts of their IR, by supervised regression.

Fitted on IR after the last pass it stands in for code generation; on IR before any pass it also has to guess what the
passes will do, and is much worse at it.
"""

# JAX and optax annotate their functions only in part, which strict mode would report at every call.
# pyright: basic

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from mlgokit.algorithms.config import SizeModelConfig
from mlgokit.algorithms.size_model import SizeModel, base_bytes, normalised, select_columns
from mlgokit.errors import UsageError


def fit_size_model(
    columns: Sequence[str],
    values: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    config: SizeModelConfig,
    *,
    rng: np.random.Generator,
) -> SizeModel:
    """Fit to functions with counts ``values`` [N, C] and ``sizes`` [N] in bytes, all of them positive.

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
    inputs = normalised(counts, mean, scale).astype(np.float32)
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
    """[K, N] each member's logarithm."""
    hidden = jnp.broadcast_to(inputs, (weights[0]["weight"].shape[0], *inputs.shape))
    for index, layer in enumerate(weights):
        hidden = jnp.einsum("kni,kio->kno", hidden, layer["weight"]) + layer["bias"]
        if index + 1 < len(weights):
            hidden = jax.nn.gelu(hidden)
    return hidden[..., 0]
