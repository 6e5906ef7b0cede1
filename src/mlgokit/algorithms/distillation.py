"""Random network distillation (Burda et al., 2018): a bonus for observations that are unlike those seen before.

A predictor learns what a fixed random network makes of observations. Where it is wrong, little like that was seen yet,
and its error is the bonus.
"""

# JAX and optax annotate their functions only in part, which strict mode would report at every call.
# pyright: basic

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from mlgokit.algorithms import network
from mlgokit.algorithms.config import DistillationConfig
from mlgokit.algorithms.learner import State

_VARIANCE_EPSILON = 1e-3


def start_distillation(width: int, settings: DistillationConfig, rng: np.random.Generator) -> State:
    """Make the state before the first observation: both networks for inputs [..., width], and an empty variance."""
    target, predictor = (_initial(width, settings, rng) for _ in range(2))
    return {
        **network.pack("distillation/target", target),
        **network.pack("distillation/predictor", predictor),
        **network.pack("distillation/optimiser", _optimiser(settings).init(predictor)),
        # Number, mean and sum of squared distances from it of all bonuses so far, and gradient steps.
        "distillation/moments": np.zeros(4),
    }


def distil(
    state: State,
    inputs: npt.NDArray[Any],
    contexts: npt.NDArray[np.int64],
    *,
    steps: int,
    settings: DistillationConfig,
) -> tuple[npt.NDArray[np.float64], State]:
    """Return the bonus of each decision, and the state after learning from the observations.

    The bonus of a decision is that of the observation after it in its context; the last one has none. It is divided by
    the standard deviation of all bonuses, and halves with every ``settings.half_life`` steps.

    Args:
        state: from :func:`start_distillation` or an earlier call.
        inputs: [N, W] or [N, C, W] normalised observations, in the order of their decisions.
        contexts: int64 [N] context of each; those of one context are neighbours.
        steps: gradient steps to take on every ``settings.stride``-th observation.
        settings: the networks, and how fast the bonus fades.
    """
    like = _initial(inputs.shape[-1], settings, np.random.default_rng(0))
    target = network.unpack("distillation/target", state, like)
    predictor = network.unpack("distillation/predictor", state, like)
    optimiser_state = network.unpack("distillation/optimiser", state, _optimiser(settings).init(like))
    wanted = _encode(target, jnp.asarray(inputs))
    errors = np.asarray(jnp.square(wanted - _encode(predictor, jnp.asarray(inputs))).sum(axis=-1), np.float64)
    moments = state["distillation/moments"]
    spread = np.sqrt(moments[2] / moments[0] + _VARIANCE_EPSILON) if moments[0] else 1.0
    following = np.append(errors[1:], 0.0)
    following[np.append(contexts[1:] != contexts[:-1], True)] = 0
    bonus = settings.scale * 0.5 ** (moments[3] / settings.half_life) * following / spread
    predictor, optimiser_state = _learn(
        predictor,
        optimiser_state,
        network.pad_rows({"inputs": inputs[:: settings.stride], "wanted": np.asarray(wanted)[:: settings.stride]}),
        len(inputs[:: settings.stride]),
        steps=steps,
        settings=settings,
    )
    return bonus, {
        **network.pack("distillation/target", target),
        **network.pack("distillation/predictor", predictor),
        **network.pack("distillation/optimiser", optimiser_state),
        "distillation/moments": np.append(add_moments(moments[:3], errors), moments[3] + steps),
    }


def add_moments(moments: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Add ``values`` [N] to their number, mean and sum of squared distances from the mean.

    Example:
        >>> add_moments(add_moments(np.zeros(3), np.array([1.0, 2.0])), np.array([6.0])).tolist()
        [3.0, 3.0, 14.0]
    """
    count, mean, squares = moments
    number = len(values)
    if not number:
        return moments
    both = count + number
    apart = values.mean() - mean
    squares = squares + np.square(values - values.mean()).sum() + apart**2 * count * number / both
    return np.array([both, mean + apart * number / both, squares])


def _optimiser(settings: DistillationConfig) -> optax.GradientTransformation:
    return optax.adam(settings.learning_rate)


def _initial(width: int, settings: DistillationConfig, rng: np.random.Generator) -> network.Parameters:
    sizes = [width, *settings.hidden]
    return [_layer(inputs, outputs, rng) for inputs, outputs in itertools.pairwise(sizes)]


def _layer(inputs: int, outputs: int, rng: np.random.Generator) -> dict[str, Any]:
    drawn = rng.normal(size=(inputs, outputs)) * np.sqrt(2 / inputs)
    return {"weight": drawn.astype(np.float32), "bias": np.zeros(outputs, np.float32)}


def _encode(layers: Sequence[dict[str, Any]], inputs: Any) -> Any:
    """What a network makes of observations; of columns, the largest value of each output."""
    hidden = inputs
    for layer in layers:
        hidden = jax.nn.relu(jnp.matmul(hidden, layer["weight"]) + layer["bias"])
    return hidden.max(axis=-2) if inputs.ndim == 3 else hidden


@partial(jax.jit, static_argnames=("steps", "settings"))
def _learn(
    predictor: network.Parameters,
    optimiser_state: Any,
    data: dict[str, Any],
    rows: Any,
    *,
    steps: int,
    settings: DistillationConfig,
) -> Any:
    """Take gradient steps on all rows; those from ``rows`` on are padding."""
    optimiser = _optimiser(settings)
    weight = jnp.arange(len(data["wanted"])) < rows

    def loss(layers: network.Parameters) -> Any:
        errors = jnp.square(data["wanted"] - _encode(layers, data["inputs"])).sum(axis=-1)
        return (errors * weight).sum() / jnp.maximum(rows, 1)

    def step(carry: Any, _: Any) -> Any:
        layers, state = carry
        updates, state = optimiser.update(jax.grad(loss)(layers), state, layers)
        return (optax.apply_updates(layers, updates), state), None

    (predictor, optimiser_state), _ = jax.lax.scan(step, (predictor, optimiser_state), None, length=steps)
    return predictor, optimiser_state
