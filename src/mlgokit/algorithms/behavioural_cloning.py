"""Behavioural cloning: a network that imitates decisions from their features, on the reference's quantile inputs."""

# JAX and optax annotate their functions only in part, which strict mode would report at every call.
# pyright: basic

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from mlgokit.algorithms.config import CloningConfig
from mlgokit.dataset.normaliser import fit_quantile
from mlgokit.errors import UsageError
from mlgokit.policy.network import Layer, OutputKind, Policy


def fit_clone(
    names: tuple[str, ...],
    values: npt.NDArray[np.int64],
    decisions: npt.NDArray[np.bool_],
    config: CloningConfig,
    *,
    problem: str,
    rng: np.random.Generator,
) -> Policy:
    """Fit a policy to ``decisions`` [T] taken at ``values`` [T, F] by minimising the cross entropy.

    Raises:
        UsageError: there is no decision to imitate.
    """
    if not len(decisions):
        raise UsageError(
            "behavioural cloning: expected at least one decision, found none; collect a trace with `mlgokit trace`"
        )
    kept = [index for index, name in enumerate(names) if name not in config.excluded]
    values = values[:, kept]
    normaliser = fit_quantile(values, count=config.quantiles)
    labels = decisions.astype(np.int32)
    sizes = [normaliser.width, *config.hidden, 2]
    weights: Any = [
        {
            "weight": jnp.asarray(rng.normal(size=(inputs, outputs)) * np.sqrt(2 / inputs), jnp.float32),
            "bias": jnp.zeros(outputs),
        }
        for inputs, outputs in itertools.pairwise(sizes)
    ]
    optimiser = optax.adam(config.learning_rate, eps=3.125e-4)
    state = optimiser.init(weights)

    def loss(weights: Any, inputs: Any, labels: Any) -> jax.Array:
        hidden = inputs
        for index, layer in enumerate(weights):
            hidden = hidden @ layer["weight"] + layer["bias"]
            if index + 1 < len(weights):
                hidden = jax.nn.relu(hidden)
        return optax.softmax_cross_entropy_with_integer_labels(hidden, labels).mean()

    @jax.jit
    def step(weights: Any, state: Any, inputs: Any, labels: Any) -> tuple[Any, Any]:
        updates, state = optimiser.update(jax.grad(loss)(weights, inputs, labels), state, weights)
        return optax.apply_updates(weights, updates), state

    batch = min(config.batch, len(labels))
    for _ in range(config.epochs):
        order = rng.permutation(len(labels))
        for begin in range(0, len(order) - batch + 1, batch):
            rows = order[begin : begin + batch]
            weights, state = step(weights, state, normaliser.apply(values[rows]), labels[rows])
    return Policy(
        problem=problem,
        features=tuple(names[index] for index in kept),
        normaliser=normaliser,
        layers=tuple(Layer(np.asarray(layer["weight"])[None], np.asarray(layer["bias"])[None]) for layer in weights),
        output=OutputKind.LOGITS,
    )
