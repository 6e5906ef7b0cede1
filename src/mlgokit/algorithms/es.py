"""Evolution strategies: perturb the weights, compile, and move to where the scores are lower.

Antithetic pairs (Salimans et al., 2017) or forward differences with an optimiser of optax or a trust region, or CMA-ES
(``cma.py``). All propose whole policies that do not explore decision by decision, so they need nothing of a compilation
but its score.
"""

# optax annotates its functions only in part, which strict mode would report at every call.
# pyright: basic

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import optax

from mlgokit.algorithms import cma, network
from mlgokit.algorithms.config import EsConfig
from mlgokit.algorithms.gradients import centred_ranks, mean_gradient, normalise_scores, ridge_gradient, top_directions
from mlgokit.algorithms.learner import Experience, Floats, Learner, Proposal, State, Task
from mlgokit.algorithms.perturbations import draw_directions
from mlgokit.algorithms.proposals import draw_modules, propose_following
from mlgokit.algorithms.rewards import relative_gain, relative_reward
from mlgokit.algorithms.trust_region import start_region, step_region
from mlgokit.errors import UsageError
from mlgokit.policy.network import Policy


def make(task: Task, settings: EsConfig) -> Learner:
    """Make the learner for ``task``.

    Raises:
        UsageError: settings contradict each other.
    """
    _check(settings)
    shapes = network.initial(task, settings.hidden, np.random.default_rng(0))
    strategy = _cma(settings) if settings.strategy == "cma" else _gradient_ascent(settings)
    start_centre, sample, update = strategy

    def start(rng: np.random.Generator) -> State:
        return start_centre(_flatten(network.initial(task, settings.hidden, rng)))

    def policy(weights: Floats) -> Policy:
        return network.to_policy(task, _unflatten(weights, shapes))

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        weights = sample(state, rng)
        modules = draw_modules(task.modules, min(settings.modules, task.modules), rng)
        return tuple(propose_following(policy(row), modules) for row in weights)

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        del rng
        tested = np.stack([_weights_of(proposal.actor) for proposal in proposals])
        rewards = fitness(len(proposals), experiences)
        known = np.isfinite(rewards)
        metrics = {"gain": relative_gain(experiences), "failed": float(np.count_nonzero(~known))}
        if not known.any():
            return state, metrics
        return update(state, tested, rewards), metrics | {"reward": float(rewards[known].mean())}

    return Learner(start=start, ask=ask, tell=tell, best=lambda state: policy(state["centre"]))


def fitness(count: int, experiences: Sequence[Experience]) -> Floats:
    """Compute the mean reward of each of ``count`` proposals against the heuristic; NaN where nothing compiled.

    Only modules that compiled under every proposal with a result count: a hard module on which one network failed would
    otherwise be to that network's credit.
    """
    table: dict[int, dict[int, float]] = {}
    for one in experiences:
        score, default = np.array([one.scores.sum()]), np.array([one.default_scores.sum()])
        table.setdefault(one.proposal, {})[one.module] = float(relative_reward(score, default)[0])
    shared = set.intersection(*(set(found) for found in table.values())) if table else set()
    rewards = np.full(count, np.nan)
    for proposal, found in table.items():
        rewards[proposal] = np.mean([found[module] for module in sorted(shared)]) if shared else np.nan
    return rewards


_GRADIENT_ONLY = ("directions", "scaled", "top", "step", "momentum", "ridge", "trust")
"""Settings that have no meaning for CMA-ES."""


def _check(settings: EsConfig) -> None:
    """Raise a UsageError for settings that contradict each other."""
    if settings.top > settings.perturbations:
        raise UsageError(
            f"--setting top: expected at most {settings.perturbations}, the number of perturbations, found "
            f"{settings.top}; correct it"
        )
    if settings.momentum == 1:
        raise UsageError("--setting momentum: expected less than 1, found 1; correct it")
    if settings.strategy == "cma":
        plain = EsConfig()
        if changed := [name for name in _GRADIENT_ONLY if getattr(settings, name) != getattr(plain, name)]:
            raise UsageError(
                f"--setting {changed[0]}: expected it with strategy=antithetic or forward, found it with strategy=cma; "
                "leave it out"
            )
    if settings.step == "trust-region" and settings.ridge:
        raise UsageError("--setting ridge: expected 0 with step=trust-region, whose model has its own gradient")


def _gradient_ascent(settings: EsConfig) -> Any:
    """Make the functions start, sample and update of strategies that estimate a gradient."""
    optimiser = make_optimiser(settings)

    def start(weights: Floats) -> State:
        scale = {"scale": np.abs(weights) + _LEAST_SCALE} if settings.scaled else {}
        if settings.step == "trust-region":
            return {**start_region(weights, settings.trust), **scale}
        return {"centre": weights, **network.pack("optimiser", optimiser.init(weights)), **scale}

    def sample(state: State, rng: np.random.Generator) -> Floats:
        centre = state["centre"]
        drawn = draw_directions(settings.perturbations, len(centre), settings.directions, rng)
        noise = drawn * settings.spread * state.get("scale", 1.0)
        return centre + (np.concatenate([noise, -noise]) if settings.strategy == "antithetic" else noise)

    def update(state: State, tested: Floats, rewards: Floats) -> State:
        directions = _tested_directions(settings, state["centre"], tested, rewards)
        if directions is None:
            return state
        if settings.step == "trust-region":
            return {**state, **_step_in_region(settings, state, directions)}
        gradient = estimate_gradient(settings, *directions)
        optimiser_state = network.unpack("optimiser", state, optimiser.init(state["centre"]))
        updates, optimiser_state = optimiser.update(-gradient, optimiser_state)
        centre = state["centre"] + np.asarray(updates, np.float64)
        return {**state, "centre": centre, **network.pack("optimiser", optimiser_state)}

    return start, sample, update


_LEAST_SCALE = 0.01
"""What is added to the absolute value of each weight that scales its perturbation."""


def make_optimiser(settings: EsConfig) -> optax.GradientTransformation:
    """Make what turns a gradient into a step."""
    if settings.step == "momentum":
        # The gradient is in multiples of the spread; Adam does not care.
        rate = settings.learning_rate / settings.spread
        return optax.chain(optax.ema(settings.momentum, debias=False), optax.scale(-rate))
    return optax.adam(settings.learning_rate)


def _tested_directions(
    settings: EsConfig, centre: Floats, tested: Floats, rewards: Floats
) -> tuple[Floats, Floats] | None:
    """Return displacements [N, W] of what was tested, in multiples of the spread, and rewards [K, N] along them.

    With pairs K is 2, for both signs, and only pairs of which both compiled count; ``None`` if nothing compiled.
    """
    if settings.strategy == "antithetic":
        first, second = np.split(tested, 2)
        noise, table = (first - second) / (2 * settings.spread), np.stack(np.split(rewards, 2))
    else:
        noise, table = (tested - centre) / settings.spread, rewards[None]
    known = np.isfinite(table).all(axis=0)
    return (noise[known], table[:, known]) if known.any() else None


def _step_in_region(settings: EsConfig, state: State, directions: tuple[Floats, Floats]) -> State:
    noise, table = directions
    chosen = top_directions(table, settings.top)
    rows, rewards = noise[chosen] * settings.spread, table[:, chosen]
    signed = np.concatenate([rows, -rows]) if len(rewards) == 2 else rows
    return step_region(state, signed, rewards.ravel(), spread=settings.spread, settings=settings.trust)


def estimate_gradient(settings: EsConfig, noise: Floats, rewards: Floats) -> Floats:
    """Estimate the gradient [W] per ``settings.spread`` from ``rewards`` [K, N] along ``noise`` [N, W].

    Args:
        settings: ranks or normalised scores, how many directions, regression or mean.
        noise: displacements in multiples of the spread.
        rewards: of the displaced weights; with K = 2 those of the opposite displacement are second.
    """
    values = rewards.ravel()
    values = centred_ranks(values) if settings.ranks else normalise_scores(values, float(values.mean()))[0]
    table = values.reshape(rewards.shape)
    chosen = top_directions(table, settings.top)
    # Normalised values and centred ranks have the mean 0, which is what a single one is compared with.
    slopes = (table[0, chosen] - table[1, chosen]) / 2 if len(table) == 2 else table[0, chosen]
    if settings.ridge:
        return ridge_gradient(noise[chosen] * settings.spread, slopes, settings.ridge) * settings.spread
    return mean_gradient(noise[chosen], slopes)


def _cma(settings: EsConfig) -> Any:
    """Make the functions start, sample and update of CMA-ES."""
    population = 2 * settings.perturbations

    def start(weights: Floats) -> State:
        return cma.start(weights, spread=settings.spread, population=population)

    return start, cma.ask, cma.tell


def _flatten(parameters: network.Parameters) -> Floats:
    """Concatenate all weights and biases to one vector."""
    return np.concatenate([layer[name].ravel() for layer in parameters for name in ("weight", "bias")]).astype(float)


def _unflatten(weights: npt.NDArray[Any], like: network.Parameters) -> network.Parameters:
    """Split a vector into weights and biases of the shapes of ``like``."""
    parameters: network.Parameters = []
    begin = 0
    for layer in like:
        parts: dict[str, Any] = {}
        for name in ("weight", "bias"):
            end = begin + layer[name].size
            parts[name] = weights[begin:end].reshape(layer[name].shape)
            begin = end
        parameters.append(parts)
    return parameters


def _weights_of(actor: Policy | str) -> Floats:
    """The weights of a tested policy, which are in single precision."""
    if isinstance(actor, str):
        raise TypeError(f"evolution strategies: expected an explored policy, found the rule {actor!r}")
    return _flatten([{"weight": layer.weight, "bias": layer.bias} for layer in actor.layers])
