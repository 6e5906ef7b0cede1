"""Supervised fits of networks to decisions, for behavioural cloning, BC-Max and local search."""

# JAX and optax annotate their functions only in part, which strict mode would report at every call.
# pyright: basic

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from mlgokit.algorithms import network
from mlgokit.algorithms.config import ImitationConfig
from mlgokit.algorithms.learner import Experience, Floats, Ints, Proposal, State, Task
from mlgokit.algorithms.rewards import relative_gain
from mlgokit.policy.network import Policy
from mlgokit.spec import AdviceKind

_ROWS = "kept/"
"""Prefix of the rows in a state."""
_VISITED = "visited"
_CHUNK = 100
"""Gradient steps that are compiled into one call."""

Rows = Mapping[str, npt.NDArray[Any]]
"""Decisions by name: ``features`` [N, F] or [N, C, F], ``mask`` [N, C] with columns, ``decisions``, ``weight``,
``score``, ``module``, ``context`` and ``site`` [N]."""


def start(task: Task, settings: ImitationConfig, rng: np.random.Generator) -> State:
    """Make the first state: parameters and optimiser, no decisions, and no module visited."""
    parameters = network.initial(task, settings.hidden, rng, recurrent=settings.recurrent)
    return {
        _VISITED: np.zeros(task.modules, bool),
        **network.pack("parameters", parameters),
        **network.pack("optimiser", network.adam(settings.learning_rate).init(parameters)),
    }


def parameters_of(task: Task, settings: ImitationConfig, state: State) -> network.Parameters:
    """Unpack the parameters in ``state``."""
    rng = np.random.default_rng(0)
    return network.unpack(
        "parameters", state, network.initial(task, settings.hidden, rng, recurrent=settings.recurrent)
    )


def policy_of(task: Task, settings: ImitationConfig, state: State) -> Policy:
    """Make the policy with the parameters in ``state``."""
    return network.to_policy(task, parameters_of(task, settings, state))


def draw_unvisited(state: State, most: int, rng: np.random.Generator) -> Ints:
    """Draw up to ``most`` modules from those that no proposal has named yet."""
    new = np.flatnonzero(~state[_VISITED])
    return np.sort(rng.permutation(new)[:most]).astype(np.int64)


def load_rows(state: State) -> Rows:
    """Return the decisions that ``state`` stores; empty if there are none yet."""
    return {name.removeprefix(_ROWS): value for name, value in state.items() if name.startswith(_ROWS)}


def store_rows(state: State, rows: Rows) -> State:
    """Return ``state`` with its decisions replaced by ``rows``."""
    others = {name: value for name, value in state.items() if not name.startswith(_ROWS)}
    return others | {_ROWS + name: value for name, value in rows.items()}


def experience_rows(experience: Experience) -> Rows:
    """Make rows of all decisions of one compilation, each with the score of its context."""
    count = len(experience.decisions)
    rows: dict[str, npt.NDArray[Any]] = {
        "features": experience.features,
        "decisions": experience.decisions.astype(np.float64),
        "weight": np.ones(count),
        "score": experience.scores[experience.context],
        "module": np.full(count, experience.module, np.int64),
        "context": experience.context_ids[experience.context],
        "site": experience.sites,
    }
    return rows if experience.mask is None else rows | {"mask": experience.mask}


def select_rows(rows: Rows, keep: npt.NDArray[Any]) -> Rows:
    """Select rows by a mask or by positions."""
    return {name: value[keep] for name, value in rows.items()}


def stack_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate the parts that are not empty."""
    parts = [part for part in parts if part and len(part["decisions"])]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def replace_contexts(rows: Rows, by: Rows) -> Rows:
    """Replace in ``rows`` all decisions of the contexts that ``by`` has, by the decisions in ``by``."""
    if not rows or not by:
        return by or rows
    new = set(zip(by["module"].tolist(), by["context"].tolist(), strict=True))
    old = zip(rows["module"].tolist(), rows["context"].tolist(), strict=True)
    return stack_rows([select_rows(rows, np.array([key not in new for key in old], bool)), by])


def store_and_fit(
    task: Task,
    settings: ImitationConfig,
    state: State,
    proposals: Sequence[Proposal],
    experiences: Sequence[Experience],
    *,
    rows: Rows,
    rng: np.random.Generator,
) -> tuple[State, dict[str, float]]:
    """Mark the proposed modules as visited, store ``rows`` and fit the network to them: the end of a ``tell``."""
    visited = state[_VISITED].copy()
    for proposal in proposals:
        visited[proposal.modules] = True
    state, metrics = fit(task, settings, store_rows({**state, _VISITED: visited}, rows), rng=rng)
    return state, metrics | {"gain": relative_gain(experiences)}


def fit(
    task: Task, settings: ImitationConfig, state: State, *, rng: np.random.Generator
) -> tuple[State, dict[str, float]]:
    """Fit the network in ``state`` further to the decisions in ``state``, by the gradient steps of one iteration."""
    rows = load_rows(state)
    if not rows or not rows["weight"].sum() > 0:
        return state, {}
    data: dict[str, npt.NDArray[Any]] = {
        "inputs": task.inputs(rows["features"]),
        "decisions": rows["decisions"].astype(np.float32),
        "weight": (rows["weight"] / rows["weight"].mean()).astype(np.float32),
    }
    if "mask" in rows:
        data["mask"] = rows["mask"]
    parameters = parameters_of(task, settings, state)
    if network.recurrent_units(parameters):
        data = network.cut_windows(data, _episodes(rows), settings.sequence)
    optimiser_state = network.unpack("optimiser", state, network.adam(settings.learning_rate).init(parameters))
    steps = max(settings.steps, settings.epochs * (len(data["decisions"]) // settings.batch))
    parameters, optimiser_state, losses = train(
        parameters, optimiser_state, data, steps, kind=task.kind, settings=settings, rng=rng
    )
    fitted = {**state, **network.pack("parameters", parameters), **network.pack("optimiser", optimiser_state)}
    return fitted, {"loss": float(losses.mean()), "decisions": float(len(rows["features"]))}


def _episodes(rows: Rows) -> Ints:
    """Number the episodes of rows, each of which is one context of one compilation, in its order."""
    module, context = rows["module"], rows["context"]
    begins = (module[1:] != module[:-1]) | (context[1:] != context[:-1])
    return np.cumsum(np.append(True, begins))


def preferences(policy: Policy, rows: Rows) -> Floats:
    """Compute a policy's preferences [N] for rows [N, F], which a recurrent one takes episode by episode."""
    if not policy.recurrent:
        return policy.preferences(rows["features"])
    episode = _episodes(rows)
    parts = np.split(rows["features"], np.flatnonzero(np.diff(episode)) + 1)
    return np.concatenate([policy.preferences(part) for part in parts])


def train(
    parameters: network.Parameters,
    optimiser_state: Any,
    data: Mapping[str, npt.NDArray[Any]],
    steps: int,
    *,
    kind: AdviceKind,
    settings: ImitationConfig,
    rng: np.random.Generator,
) -> tuple[network.Parameters, Any, npt.NDArray[np.float32]]:
    """Perform gradient steps on ``data``: ``inputs`` [N, ...], ``decisions`` and ``weight`` [N], perhaps ``mask``.

    For a recurrent network N windows, with one more axis for the decisions in each.

    Returns:
        Parameters, the optimiser's state, and the loss of each step.
    """
    rows = len(data["decisions"])
    batch = min(settings.batch, 1 << (rows.bit_length() - 1))
    passes = -(-steps * batch // rows)
    order = np.concatenate([rng.permutation(rows) for _ in range(passes)])[: steps * batch]
    order = order.reshape(steps, batch).astype(np.int32)
    arrays = jax.device_put(network.pad_rows(data))
    losses: list[Any] = []
    for begin in range(0, steps, _CHUNK):
        key = jax.random.key(int(rng.integers(2**31)))
        part = order[begin : begin + _CHUNK]
        parameters, optimiser_state, loss = _chunk(
            parameters, optimiser_state, arrays, part, key, kind=kind, settings=settings
        )
        losses.append(loss)
    return parameters, optimiser_state, np.concatenate(losses)


@partial(jax.jit, static_argnames=("kind", "settings"))
def _chunk(
    parameters: Any, optimiser_state: Any, data: Any, order: Any, key: Any, *, kind: AdviceKind, settings: Any
) -> Any:
    """Perform one gradient step for each row of ``order`` [steps, B], which has positions in ``data``."""
    optimiser = network.adam(settings.learning_rate)

    def step(carry: Any, batch: Any) -> Any:
        parameters, optimiser_state = carry
        rows, number = batch
        weight = data["weight"][rows]
        inputs, decisions = data["inputs"][rows], data["decisions"][rows]
        mask = data["mask"][rows] if "mask" in data else None
        keys = jax.random.fold_in(key, number) if settings.dropout else None

        def loss(parameters: network.Parameters) -> Any:
            answer = network.answers(parameters, inputs, keys, settings.dropout)
            logs = network.log_probability(kind, answer, decisions, mask, 1.0)
            return -(logs * weight).mean(axis=tuple(range(1, logs.ndim))).sum()

        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, optimiser_state = optimiser.update(gradient, optimiser_state, parameters)
        return (cast("network.Parameters", optax.apply_updates(parameters, updates)), optimiser_state), value

    (parameters, optimiser_state), losses = jax.lax.scan(
        step, (parameters, optimiser_state), (order, jnp.arange(len(order)))
    )
    return parameters, optimiser_state, losses
