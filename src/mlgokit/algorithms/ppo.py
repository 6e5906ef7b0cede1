"""PPO (Schulman et al., 2017) on single decisions: clipped, with an adaptive KL penalty, and without a value network.

Each decision is a contextual bandit: its reward is immediate, which is google/ml-compiler-opt's discount of 0.
``PPO_REFERENCE`` is that project's learner to the formula (``tf_agents``' ``PPOAgent`` with its settings). The default
rewards each flipped decision with what its component saved, whose variance is far lower.
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
from mlgokit.algorithms.config import Credit, PpoConfig
from mlgokit.algorithms.distillation import distil, start_distillation
from mlgokit.algorithms.learner import Experience, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import propose_exploring, stack_decisions
from mlgokit.algorithms.rewards import decision_rewards, initial_averages, relative_gain
from mlgokit.errors import UsageError
from mlgokit.spec import AdviceKind

_VARIANCE_EPSILON = 1e-8


def make(task: Task, settings: PpoConfig) -> Learner:
    """Make the PPO learner: it draws decisions from its policy, and shifts the policy to those with positive reward."""
    optimiser = network.adam(settings.learning_rate)
    temperature = settings.spread if task.kind is AdviceKind.REAL else 1.0
    distillation = settings.distillation
    if not distillation.hidden:
        raise UsageError("--setting distillation.hidden: expected at least one layer, found none; give its width")

    def start(rng: np.random.Generator) -> State:
        parameters = network.initial(task, settings.hidden, rng)
        return {
            **network.pack("parameters", parameters),
            **network.pack("optimiser", optimiser.init(parameters)),
            "beta": np.array(settings.kl_beta, np.float32),
            **initial_averages(),
            **(start_distillation(task.normaliser.width, distillation, rng) if distillation.scale else {}),
        }

    def current(state: State) -> network.Parameters:
        return network.unpack("parameters", state, network.initial(task, settings.hidden, np.random.default_rng(0)))

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        policy = network.to_policy(task, current(state))
        return propose_exploring(
            policy,
            modules=task.modules,
            count=settings.modules,
            temperature=temperature,
            base=settings.credit is Credit.COMPONENT,
            rng=rng,
        )

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        drawn = [experience for experience in experiences if proposals[experience.proposal].temperature > 0]
        rewards, averages = decision_rewards(drawn, settings.credit, state, settings.decay)
        metrics = {"gain": relative_gain(experiences), "reward": _mean(rewards)}
        frames = [_frames(one, reward, settings) for one, reward in zip(drawn, rewards, strict=True)]
        frames = [frame for frame in frames if len(frame["reward"])]
        rows = sum(len(frame["reward"]) for frame in frames)
        if rows < settings.sequence:
            return {**state, **averages}, metrics
        data = {name: np.concatenate([frame[name] for frame in frames]) for name in ("reward", "weight")}
        used = [one for one in drawn if _is_used(one, settings)]
        data |= stack_decisions(task, used)
        if distillation.scale:
            contexts = np.concatenate([one.context for one in used]) + _spans(used)
            bonus, distilled = distil(state, data["inputs"], contexts, steps=settings.steps, settings=distillation)
            data["reward"] = (data["reward"] + bonus).astype(np.float32)
            state = {**state, **distilled}
            metrics["bonus"] = float(bonus.mean())
        parameters = current(state)
        ready = jax.device_put(network.pad_rows(data))
        ready["before"] = _preferences(parameters, ready["inputs"])
        order = window_order(rows, settings, rng)
        fitted, optimiser_state, beta, measured = train(
            parameters,
            network.unpack("optimiser", state, optimiser.init(parameters)),
            state["beta"],
            ready,
            order,
            kind=task.kind,
            settings=settings,
        )
        metrics |= {name: float(np.mean(value)) for name, value in measured.items()} | {"beta": float(beta)}
        return {
            **{name: value for name, value in state.items() if name.startswith("distillation/")},
            **network.pack("parameters", fitted),
            **network.pack("optimiser", optimiser_state),
            "beta": np.asarray(beta),
            **{name: averages[name] for name in initial_averages()},
        }, metrics

    return Learner(start=start, ask=ask, tell=tell, best=lambda state: network.to_policy(task, current(state)))


def _spans(experiences: Sequence[Experience]) -> npt.NDArray[np.int64]:
    """A number for each decision that tells compilations apart, beyond the numbers of their contexts."""
    sizes = [len(one.context_ids) for one in experiences]
    return np.repeat(np.cumsum([0, *sizes[:-1]]), [len(one.decisions) for one in experiences])


def _mean(rewards: Sequence[npt.NDArray[np.float64]]) -> float:
    """Compute the mean reward of all decisions; 0 without decisions."""
    return float(np.concatenate(rewards).mean()) if rewards and sum(map(len, rewards)) else 0.0


def _is_used(experience: Experience, settings: PpoConfig) -> bool:
    """Whether a compilation has enough decisions to be trained on."""
    return len(experience.decisions) > (2 if settings.reference_frames else 0)


def _frames(
    experience: Experience, reward: npt.NDArray[np.float64], settings: PpoConfig
) -> dict[str, npt.NDArray[np.float32]]:
    """Make the rewards and the weights in the loss [N] of a compilation's decisions; empty if it is not used."""
    if not _is_used(experience, settings):
        reward = reward[:0]
    weight = np.ones(len(reward), np.float32)
    if settings.reference_frames and len(weight):
        last = np.append(experience.context[1:] != experience.context[:-1], True)
        weight[last] = 0
    return {"reward": reward.astype(np.float32), "weight": weight}


def window_order(rows: int, settings: PpoConfig, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Draw the windows of ``settings.sequence`` decisions for each gradient step, [steps, batch].

    Every window of ``rows`` decisions is drawn once in an epoch, shuffled anew; the last incomplete one is left out.
    """
    windows = rows // settings.sequence
    wanted = settings.steps * settings.batch
    passes = [rng.permutation(windows) for _ in range(-(-wanted // windows))]
    return np.concatenate(passes)[:wanted].reshape(settings.steps, settings.batch).astype(np.int32)


@jax.jit
def _preferences(parameters: network.Parameters, inputs: Any) -> jax.Array:
    """Compute the mean preference of the ensemble for each input."""
    return network.answers(parameters, inputs).mean(axis=0)


def advantages(reward: Any, settings: PpoConfig) -> Any:
    """Compute advantages from the rewards [B, S] of B windows of S decisions.

    The reference subtracts the mean over all frames, the last of each window counting as 0. With component credit the
    base is the baseline, so that nothing is subtracted, and rewards are only scaled.
    """
    if settings.reference_frames:
        reward = reward.at[:, -1].set(0)
        return (reward - reward.mean()) / jnp.sqrt(reward.var() + _VARIANCE_EPSILON)
    if settings.credit is Credit.COMPONENT:
        return reward / jnp.sqrt(jnp.square(reward).mean() + _VARIANCE_EPSILON)
    return (reward - reward.mean()) / jnp.sqrt(reward.var() + _VARIANCE_EPSILON)


def loss_terms(after: Any, batch: dict[str, Any], beta: Any, kind: AdviceKind, settings: PpoConfig) -> dict[str, Any]:
    """Compute the terms of the loss that depend on preferences ``after`` [B, S] or [B, S, C]; means over all frames.

    ``batch`` has ``advantage``, ``weight``, ``decisions``, ``log_probability`` [B, S], ``before`` like ``after``, and
    ``mask`` with columns.
    """
    mask, weight, spread = batch.get("mask"), batch["weight"], settings.spread
    chosen = network.log_probability(kind, after, batch["decisions"], mask, spread)
    ratio = jnp.exp(chosen - batch["log_probability"])
    clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    earned = jnp.minimum(ratio * batch["advantage"], clipped * batch["advantage"])
    apart = (network.divergence(kind, batch["before"], after, mask, spread) * weight).mean()
    over = jnp.maximum(apart - settings.kl_cutoff_factor * settings.kl_target, 0)
    return {
        "policy_loss": -(earned * weight).mean(),
        "entropy_loss": -settings.entropy * (network.entropy(kind, after, mask, spread) * weight).mean(),
        "kl_loss": beta * apart + settings.kl_cutoff_weight * over**2,
    }


def adapt_beta(beta: Any, divergence: Any, settings: PpoConfig) -> Any:
    """Adapt the coefficient of the KL penalty for the next step: larger above the target divergence, smaller below."""
    low, high = 1 - settings.kl_tolerance, 1 + settings.kl_tolerance
    factor = jnp.where(
        divergence < settings.kl_target * low, 1 / 1.5, jnp.where(divergence > settings.kl_target * high, 1.5, 1.0)
    )
    return jnp.clip(beta * factor, 1e-15, 1e17)


@partial(jax.jit, static_argnames=("kind", "settings"))
def train(
    parameters: network.Parameters,
    optimiser_state: Any,
    beta: Any,
    data: dict[str, Any],
    order: Any,
    *,
    kind: AdviceKind,
    settings: PpoConfig,
) -> tuple[network.Parameters, Any, Any, dict[str, Any]]:
    """Perform one gradient step for each row of ``order`` [steps, B].

    A row has positions of windows of ``settings.sequence`` decisions in the arrays [N, ...] of ``data``.

    Returns:
        Parameters, the optimiser's state, beta, and the terms of the loss [steps].
    """
    optimiser = network.adam(settings.learning_rate)
    length = settings.sequence
    whole = len(data["weight"]) // length * length
    windows = {name: value[:whole].reshape(-1, length, *value.shape[1:]) for name, value in data.items()}
    place = jnp.arange(length)
    valid = (place + 1 < length) if settings.reference_frames else place >= 0

    def step(carry: Any, chosen: Any) -> Any:
        parameters, optimiser_state, beta = carry
        batch = {name: value[chosen] for name, value in windows.items()}
        batch["weight"] *= valid
        batch["advantage"] = advantages(batch["reward"], settings)
        columns, shape = network.columns_of(batch["inputs"]), batch["before"].shape

        def answer(parameters: network.Parameters) -> Any:
            return network.column_answers(parameters, columns).mean(axis=0).reshape(shape)

        def loss(parameters: network.Parameters) -> Any:
            terms = loss_terms(answer(parameters), batch, beta, kind, settings)
            penalty = sum(jnp.square(layer["weight"]).sum() for layer in parameters) * settings.weight_penalty
            return sum(terms.values()) + penalty, terms

        gradient, terms = jax.grad(loss, has_aux=True)(parameters)
        updates, optimiser_state = optimiser.update(gradient, optimiser_state, parameters)
        parameters = cast("network.Parameters", optax.apply_updates(parameters, updates))
        divergence = network.divergence(
            kind, batch["before"], answer(parameters), batch.get("mask"), settings.spread
        ).mean()
        return (parameters, optimiser_state, adapt_beta(beta, divergence, settings)), terms | {"kl": divergence}

    (parameters, optimiser_state, beta), measured = jax.lax.scan(step, (parameters, optimiser_state, beta), order)
    return parameters, optimiser_state, beta, measured
