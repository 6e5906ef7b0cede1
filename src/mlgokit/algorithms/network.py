"""Networks of the learners: small ensembles of dense layers in JAX, and the distributions of decisions."""

# JAX and optax annotate their functions only in part, which strict mode would report at every call.
# pyright: basic

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.learner import State, Task
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.spec import AdviceKind

_OUTPUTS = {
    AdviceKind.BINARY: OutputKind.LOGITS,
    AdviceKind.MASKED_CHOICE: OutputKind.COLUMN_LOGIT,
}

Parameters = list[dict[str, Any]]
"""``weight`` [K, I, O] and ``bias`` [K, O] of each dense layer; K members."""


def initial(task: Task, hidden: Sequence[int], rng: np.random.Generator) -> Parameters:
    """Initialise the parameters: He-normal hidden layers, and a small last layer for a nearly indifferent policy.

    If the task starts from a policy, the parameters are that policy's.
    """
    if task.start is not None:
        return [{"weight": layer.weight.copy(), "bias": layer.bias.copy()} for layer in task.start.layers]
    sizes = [task.normaliser.width, *hidden, 2 if task.kind is AdviceKind.BINARY else 1]
    layers: Parameters = []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        scale = 0.01 if index == len(hidden) else np.sqrt(2 / inputs)
        drawn = rng.normal(size=(1, inputs, outputs)) * scale
        layers.append({"weight": drawn.astype(np.float32), "bias": np.zeros((1, outputs), np.float32)})
    return layers


def to_policy(task: Task, parameters: Parameters) -> Policy:
    """Make the policy with these parameters."""
    return Policy(
        problem=task.problem,
        features=task.features,
        normaliser=task.normaliser,
        layers=tuple(
            Layer(np.asarray(layer["weight"], np.float32), np.asarray(layer["bias"], np.float32))
            for layer in parameters
        ),
        output=_OUTPUTS.get(task.kind) or OutputKind.for_numbers(task.problem),
        mask=task.mask,
    )


def outputs(parameters: Parameters, hidden: Any, keys: Any = None, dropout: float = 0.0) -> Any:
    """Compute the last layer [K, B, O] for inputs [1, B, W], with dropout if there are ``keys``."""
    for index, layer in enumerate(parameters):
        hidden = jnp.matmul(hidden, layer["weight"]) + layer["bias"][:, None, :]
        if index + 1 < len(parameters):
            hidden = jax.nn.relu(hidden)
            if keys is not None:
                keep = jax.random.bernoulli(jax.random.fold_in(keys, index), 1 - dropout, hidden.shape)
                hidden = jnp.where(keep, hidden / (1 - dropout), 0)
    return hidden


def columns_of(inputs: Any) -> Any:
    """Transpose inputs [..., W] to [W, B], for :func:`column_answers`.

    Large batches are a third faster so. The barrier keeps XLA from undoing the transposition in each matrix product.
    """
    return jax.lax.optimization_barrier(inputs.reshape(-1, inputs.shape[-1]).T)


def column_answers(parameters: Parameters, columns: Any) -> Any:
    """Compute each member's preference [K, B] for transposed inputs [W, B]; as ``answers`` but for rounding."""
    hidden = columns[None]
    for index, layer in enumerate(parameters):
        hidden = jnp.matmul(jnp.swapaxes(layer["weight"], 1, 2), hidden) + layer["bias"][:, :, None]
        if index + 1 < len(parameters):
            hidden = jax.nn.relu(hidden)
    return hidden[:, 1] - hidden[:, 0] if hidden.shape[1] == 2 else hidden[:, 0]


def answers(parameters: Parameters, inputs: Any, keys: Any = None, dropout: float = 0.0) -> Any:
    """Compute each member's preference [K, ...] for inputs [..., W]."""
    last = outputs(parameters, inputs.reshape(1, -1, inputs.shape[-1]), keys, dropout)
    answer = last[:, :, 1] - last[:, :, 0] if last.shape[2] == 2 else last[:, :, 0]
    return answer.reshape(-1, *inputs.shape[:-1])


def log_probability(kind: AdviceKind, answer: Any, decisions: Any, mask: Any, spread: float) -> Any:
    """Compute the log-probability of ``decisions`` [...] under preferences ``answer``.

    Preferences have one more axis for the columns of a masked choice. A real answer is Gaussian with standard deviation
    ``spread``.
    """
    if kind is AdviceKind.BINARY:
        return jax.nn.log_sigmoid(jnp.where(decisions > 0, answer, -answer))
    if kind is AdviceKind.MASKED_CHOICE:
        logs = jax.nn.log_softmax(jnp.where(mask, answer, -1e30), axis=-1)
        places = jnp.broadcast_to(decisions.astype(jnp.int32), logs.shape[:-1])[..., None]
        return jnp.take_along_axis(logs, places, axis=-1)[..., 0]
    return -0.5 * ((decisions - answer) / spread) ** 2 - jnp.log(spread * jnp.sqrt(2 * jnp.pi))


def entropy(kind: AdviceKind, answer: Any, mask: Any, spread: float) -> Any:
    """Compute the entropy of the distributions with preferences ``answer``."""
    if kind is AdviceKind.BINARY:
        chance = jax.nn.sigmoid(answer)
        return jax.nn.softplus(answer) - chance * answer
    if kind is AdviceKind.MASKED_CHOICE:
        logs = jax.nn.log_softmax(jnp.where(mask, answer, -1e30), axis=-1)
        return -jnp.sum(jnp.where(mask, jnp.exp(logs) * logs, 0), axis=-1)
    return jnp.full(answer.shape, 0.5 * jnp.log(2 * jnp.pi * jnp.e * spread**2))


def divergence(kind: AdviceKind, before: Any, after: Any, mask: Any, spread: float) -> Any:
    """Compute the KL divergence of distributions with preferences ``before`` from those with ``after``."""
    if kind is AdviceKind.BINARY:
        chance = jax.nn.sigmoid(before)
        return chance * (before - after) + jax.nn.softplus(after) - jax.nn.softplus(before)
    if kind is AdviceKind.MASKED_CHOICE:
        old = jax.nn.log_softmax(jnp.where(mask, before, -1e30), axis=-1)
        new = jax.nn.log_softmax(jnp.where(mask, after, -1e30), axis=-1)
        return jnp.sum(jnp.where(mask, jnp.exp(old) * (old - new), 0), axis=-1)
    return 0.5 * ((before - after) / spread) ** 2


def pack(name: str, tree: Any) -> dict[str, npt.NDArray[Any]]:
    """Pack the leaves of ``tree`` into entries of a state."""
    return {f"{name}/{index}": np.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(tree))}


def unpack(name: str, state: State, like: Any) -> Any:
    """Unpack a tree that :func:`pack` stored, into the structure of ``like``."""
    leaves = jax.tree.leaves(like)
    return jax.tree.unflatten(jax.tree.structure(like), [state[f"{name}/{index}"] for index in range(len(leaves))])


def pad_rows(arrays: Mapping[str, npt.NDArray[Any]], *, least: int = 256) -> dict[str, npt.NDArray[Any]]:
    """Pad the rows of all arrays with zeros to a power of two, so that JAX compiles for few shapes."""
    rows = max(least, *(len(array) for array in arrays.values()))
    size = 1 << (rows - 1).bit_length()
    return {
        name: np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])
        for name, array in arrays.items()
    }
