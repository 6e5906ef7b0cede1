"""Deep Q-learning of single decisions with epsilon-greedy exploration and a replay buffer.

With credit by component, the difference between the Q-value of a flipped decision and that of the base's decision is
fitted to what the component saved. That target stays valid when the policy, and so the base, changes. With credit by
module or context the Q-value of the decision is fitted to the reward, as google/ml-compiler-opt's DQN does.
"""

# JAX and optax annotate their functions only in part, which strict mode would report at every call.
# pyright: basic

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from mlgokit.algorithms import network
from mlgokit.algorithms.config import Credit, DqnConfig
from mlgokit.algorithms.learner import Experience, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import propose_exploring
from mlgokit.algorithms.rewards import decision_rewards, initial_averages, relative_gain
from mlgokit.policy.network import Policy
from mlgokit.spec import AdviceKind

_MEMORY = "memory/"


def make(task: Task, settings: DqnConfig) -> Learner:
    """Make the DQN learner: it explores epsilon-greedily around its policy, and fits Q-values to a replay buffer."""
    optimiser = network.adam(settings.learning_rate)

    def initial(rng: np.random.Generator) -> network.Parameters:
        return network.initial(task, settings.hidden, rng, recurrent=settings.recurrent)

    def start(rng: np.random.Generator) -> State:
        parameters = initial(rng)
        return {
            **network.pack("parameters", parameters),
            **network.pack("optimiser", optimiser.init(parameters)),
            **initial_averages(),
        }

    def current(state: State) -> network.Parameters:
        return network.unpack("parameters", state, initial(np.random.default_rng(0)))

    def best(state: State) -> Policy:
        return network.to_policy(task, current(state))

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        return propose_exploring(
            best(state),
            modules=task.modules,
            count=settings.modules,
            temperature=0.0,
            flip_probability=settings.epsilon,
            base=settings.credit is Credit.COMPONENT,
            rng=rng,
        )

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        drawn = [one for one in experiences if np.any(proposals[one.proposal].flip_probability > 0)]
        rewards, averages = decision_rewards(drawn, settings.credit, state, settings.decay)
        parameters = current(state)
        episodes = network.recurrent_units(parameters) > 0
        memory = extend_buffer(state, drawn, rewards, settings, episodes=episodes)
        state = {**state, **{name: averages[name] for name in initial_averages()}}
        state |= {_MEMORY + name: value for name, value in memory.items()}
        metrics = {"gain": relative_gain(experiences)}
        if not memory or not np.sum(memory.get("weight", np.ones(len(memory["reward"])))):
            return state, metrics
        data = _inputs(task, memory)
        if episodes:
            data = network.cut_windows(data, np.cumsum(memory["begins"]), settings.sequence)
        fitted, optimiser_state, losses = _fit(
            parameters,
            network.unpack("optimiser", state, optimiser.init(parameters)),
            network.pad_rows(data),
            rng.integers(0, len(data["reward"]), (settings.steps, settings.batch), dtype=np.int32),
            kind=task.kind,
            settings=settings,
        )
        state |= {**network.pack("parameters", fitted), **network.pack("optimiser", optimiser_state)}
        return state, metrics | {"loss": float(np.mean(losses)), "remembered": float(len(memory["reward"]))}

    return Learner(start=start, ask=ask, tell=tell, best=best)


def extend_buffer(
    state: State,
    experiences: Sequence[Experience],
    rewards: Sequence[npt.NDArray[np.float64]],
    settings: DqnConfig,
    *,
    episodes: bool = False,
) -> dict[str, npt.NDArray[Any]]:
    """Append decisions with a reward to the replay buffer, and keep the latest ``settings.remembered`` of them.

    ``other`` is the decision that the reward compares with, or -1. With ``episodes``, those of a recurrent network, the
    decisions between them are kept, too, with the ``weight`` 0, and ``begins`` is 1 where a compilation begins.
    """
    parts = [{name.removeprefix(_MEMORY): value for name, value in state.items() if name.startswith(_MEMORY)}]
    for experience, reward in zip(experiences, rewards, strict=True):
        keep = np.ones(len(reward), bool)
        other = np.full(len(reward), -1, np.int64)
        if settings.credit is Credit.COMPONENT:
            if experience.component is None or experience.base_decisions is None:
                continue
            keep = experience.component >= 0
            other = experience.base_decisions
        marks: dict[str, npt.NDArray[Any]] = {}
        if episodes:
            marks = {"weight": keep.astype(np.float32), "begins": (np.arange(len(keep)) == 0).astype(np.int64)}
            keep = np.ones(len(reward), bool)
        row: dict[str, npt.NDArray[Any]] = {
            **marks,
            "features": experience.features[keep],
            "decisions": experience.decisions[keep].astype(np.int64),
            "other": other[keep].astype(np.int64),
            "reward": reward[keep],
        }
        parts.append(row)
    parts = [part for part in parts if part]
    names = parts[0] if parts else ()
    return {name: np.concatenate([part[name] for part in parts])[-settings.remembered :] for name in names}


def _inputs(task: Task, memory: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Make the arrays of a fit from the replay buffer: normalised inputs, and rewards over their root mean square."""
    weight = memory.get("weight")
    scale = max(float(np.sqrt(np.average(np.square(memory["reward"]), weights=weight))), 1e-9)
    return {
        **({} if weight is None else {"weight": weight}),
        "inputs": task.inputs(memory["features"]),
        "decisions": memory["decisions"].astype(np.int32),
        "other": memory["other"].astype(np.int32),
        "reward": (memory["reward"] / scale).astype(np.float32),
    }


def values(kind: AdviceKind, parameters: network.Parameters, inputs: Any) -> Any:
    """Compute the Q-values [B, A] of B inputs, averaged over the ensemble; A is 2, or the number of columns.

    Of windows [B, S, W], which a recurrent network takes, the values are [B, S, A].
    """
    if kind is AdviceKind.MASKED_CHOICE:
        return network.answers(parameters, inputs).mean(axis=0)
    return network.outputs(parameters, inputs).mean(axis=0)


@partial(jax.jit, static_argnames=("kind", "settings"))
def _fit(parameters: Any, optimiser_state: Any, data: Any, order: Any, *, kind: AdviceKind, settings: DqnConfig) -> Any:
    """Perform one gradient step for each row of ``order`` [steps, B], which has positions in the replay buffer."""
    optimiser = network.adam(settings.learning_rate)

    def step(carry: Any, rows: Any) -> Any:
        parameters, optimiser_state = carry
        batch = {name: value[rows] for name, value in data.items()}

        def loss(parameters: network.Parameters) -> Any:
            q_values = values(kind, parameters, batch["inputs"])
            taken = jnp.take_along_axis(q_values, batch["decisions"][..., None], axis=-1)[..., 0]
            other = jnp.take_along_axis(q_values, jnp.maximum(batch["other"], 0)[..., None], axis=-1)[..., 0]
            difference = jnp.where(batch["other"] >= 0, taken - other, taken)
            losses, weight = optax.huber_loss(difference, batch["reward"]), batch.get("weight")
            return losses.mean() if weight is None else (losses * weight).sum() / jnp.maximum(weight.sum(), 1)

        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, optimiser_state = optimiser.update(gradient, optimiser_state, parameters)
        return (cast("network.Parameters", optax.apply_updates(parameters, updates)), optimiser_state), value

    (parameters, optimiser_state), losses = jax.lax.scan(step, (parameters, optimiser_state), order)
    return parameters, optimiser_state, losses
