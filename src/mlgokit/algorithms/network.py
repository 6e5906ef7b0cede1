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
import optax

from mlgokit.algorithms.learner import State, Task
from mlgokit.errors import UsageError
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.spec import AdviceKind

_OUTPUTS = {
    AdviceKind.BINARY: OutputKind.LOGITS,
    AdviceKind.MASKED_CHOICE: OutputKind.COLUMN_LOGIT,
}

Parameters = list[dict[str, Any]]
"""``weight`` [K, I, O] and ``bias`` [K, O] of each dense layer; K members. Of an LSTM, which is before the last layer,
``gates`` [K, I + H, 4 H] in place of ``weight``, as in :class:`~mlgokit.policy.network.Policy`."""


def initial(task: Task, hidden: Sequence[int], rng: np.random.Generator, *, recurrent: int = 0) -> Parameters:
    """Initialise the parameters: He-normal hidden layers, and a small last layer for a nearly indifferent policy.

    If the task starts from a policy, the parameters are that policy's.

    Args:
        task: task of the learner.
        hidden: widths of the hidden layers.
        rng: generator of the weights.
        recurrent: units of an LSTM between the hidden layers and the last one; 0 for none.

    Raises:
        UsageError: an LSTM is asked for, and the policy to start from has none.
    """
    if task.start is not None:
        if recurrent and not task.start.recurrent:
            raise UsageError(
                "--start: expected a recurrent policy, as the settings ask for an LSTM, found dense layers alone; "
                "leave out --start or the setting recurrent"
            )
        layers = [{"weight": layer.weight.copy(), "bias": layer.bias.copy()} for layer in task.start.layers]
        if task.start.recurrent:
            layers[-2]["gates"] = layers[-2].pop("weight")
        return layers
    sizes = [task.normaliser.width, *hidden, *filter(None, [recurrent]), 2 if task.kind is AdviceKind.BINARY else 1]
    layers: Parameters = []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        if recurrent and index == len(hidden):
            layers.append(_initial_lstm(inputs, outputs, rng))
            continue
        scale = 0.01 if index + 2 == len(sizes) else np.sqrt(2 / inputs)
        drawn = rng.normal(size=(1, inputs, outputs)) * scale
        layers.append({"weight": drawn.astype(np.float32), "bias": np.zeros((1, outputs), np.float32)})
    return layers


def _initial_lstm(inputs: int, units: int, rng: np.random.Generator) -> dict[str, Any]:
    """Initialise an LSTM; its cells are kept at first, as is usual, since what is forgotten at once has no gradient."""
    shape = (1, inputs + units, 4 * units)
    bias = np.zeros((1, 4 * units), np.float32)
    bias[:, units : 2 * units] = 1
    return {"gates": (rng.normal(size=shape) / np.sqrt(shape[1])).astype(np.float32), "bias": bias}


def recurrent_units(parameters: Parameters) -> int:
    """Return the number of units of the LSTM; 0 without one."""
    return next((layer["gates"].shape[2] // 4 for layer in parameters if "gates" in layer), 0)


def to_policy(task: Task, parameters: Parameters) -> Policy:
    """Make the policy with these parameters."""
    return Policy(
        problem=task.problem,
        features=task.features,
        normaliser=task.normaliser,
        layers=tuple(
            Layer(
                np.asarray(layer.get("weight", layer.get("gates")), np.float32), np.asarray(layer["bias"], np.float32)
            )
            for layer in parameters
        ),
        recurrent=recurrent_units(parameters),
        output=_OUTPUTS.get(task.kind) or OutputKind.for_numbers(task.problem),
        mask=task.mask,
    )


def outputs(parameters: Parameters, inputs: Any, keys: Any = None, dropout: float = 0.0) -> Any:
    """Compute the last layer [K, ..., O] for inputs [..., W], with dropout of dense layers if there are ``keys``.

    To an LSTM the inputs are windows [B, S, W] of S decisions, before each of which it knows nothing.
    """
    hidden = inputs.reshape(1, -1, inputs.shape[-1])
    for index, layer in enumerate(parameters):
        if "gates" in layer:
            hidden = _recall(layer, hidden, inputs.shape[-2])
            continue
        hidden = jnp.matmul(hidden, layer["weight"]) + layer["bias"][:, None, :]
        if index + 1 < len(parameters):
            hidden = jax.nn.relu(hidden)
            if keys is not None:
                keep = jax.random.bernoulli(jax.random.fold_in(keys, index), 1 - dropout, hidden.shape)
                hidden = jnp.where(keep, hidden / (1 - dropout), 0)
    return hidden.reshape(len(hidden), *inputs.shape[:-1], -1)


def _recall(layer: dict[str, Any], hidden: Any, length: int) -> Any:
    """Compute the outputs [K, B, H] of an LSTM for inputs [K, B, I], windows of ``length`` rows."""
    gates, units = layer["gates"], layer["gates"].shape[2] // 4
    given = jnp.matmul(hidden, gates[:, :-units]) + layer["bias"][:, None, :]
    given = given.reshape(len(gates), -1, length, 4 * units)

    def step(state: Any, row: Any) -> Any:
        output, cell = state
        enter, keep, new, leave = jnp.split(row + jnp.matmul(output, gates[:, -units:]), 4, axis=-1)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        output = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        return (output, cell), output

    nothing = jnp.zeros((*given.shape[:2], units), given.dtype)
    _, found = jax.lax.scan(step, (nothing, nothing), jnp.moveaxis(given, 2, 0))
    return jnp.moveaxis(found, 0, 2).reshape(*hidden.shape[:2], units)


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
    """Compute each member's preference [K, ...] for inputs [..., W]; to an LSTM, of windows [B, S, W]."""
    last = outputs(parameters, inputs, keys, dropout)
    return last[..., 1] - last[..., 0] if last.shape[-1] == 2 else last[..., 0]


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


def adam(learning_rate: float) -> optax.GradientTransformation:
    """Make the optimiser of google/ml-compiler-opt's agents: Adam, with their epsilon."""
    return optax.adam(learning_rate, eps=3.125e-4)


def pack(name: str, tree: Any) -> dict[str, npt.NDArray[Any]]:
    """Pack the leaves of ``tree`` into entries of a state."""
    return {f"{name}/{index}": np.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(tree))}


def unpack(name: str, state: State, like: Any) -> Any:
    """Unpack a tree that :func:`pack` stored, into the structure of ``like``."""
    leaves = jax.tree.leaves(like)
    return jax.tree.unflatten(jax.tree.structure(like), [state[f"{name}/{index}"] for index in range(len(leaves))])


def cut_windows(
    arrays: Mapping[str, npt.NDArray[Any]], episode: npt.NDArray[np.int64], length: int
) -> dict[str, npt.NDArray[Any]]:
    """Cut rows [N, ...] into windows [W, S, ...] of ``length`` S decisions, each of one episode alone.

    The last window of an episode is padded with zeros, also in ``weight``.

    Args:
        arrays: the rows, by name.
        episode: [N] number of the episode of each row, which is another one from row to row where one begins.
        length: decisions in a window.

    Example:
        >>> cut_windows({"a": np.array([1, 2, 3, 4])}, np.array([7, 7, 7, 9]), 2)["a"].tolist()
        [[1, 2], [3, 0], [4, 0]]
    """
    begins = np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))
    sizes = np.diff(np.append(begins, len(episode)))
    windows = -(-sizes // length)
    place = np.arange(len(episode)) - np.repeat(begins, sizes)
    window = np.repeat(np.cumsum(windows) - windows, sizes) + place // length
    cut: dict[str, npt.NDArray[Any]] = {}
    for name, values in arrays.items():
        cut[name] = np.zeros((windows.sum(), length, *values.shape[1:]), values.dtype)
        cut[name][window, place % length] = values
    return cut


def pad_rows(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Pad the rows of all arrays with zeros to a power of two, at least 256, so that JAX compiles for few shapes."""
    rows = max(256, *(len(array) for array in arrays.values()))
    size = 1 << (rows - 1).bit_length()
    return {
        name: np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])
        for name, array in arrays.items()
    }
