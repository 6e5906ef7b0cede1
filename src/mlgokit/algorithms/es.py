"""Evolution strategies: perturb the weights, compile, and move to where the scores are lower.

Antithetic pairs (Salimans et al., 2017) with Adam from optax, or CMA-ES (``cma.py``). Both propose whole policies that
do not explore decision by decision, so they need nothing of a compilation but its score.
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
from mlgokit.algorithms.learner import Experience, Floats, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import draw_modules, propose_following
from mlgokit.algorithms.rewards import relative_gain, relative_reward
from mlgokit.errors import UsageError
from mlgokit.policy.network import Policy


def make(task: Task, settings: EsConfig) -> Learner:
    """Make the learner for ``task``.

    Raises:
        UsageError: the ridge penalty is negative, or does not apply to the strategy.
    """
    if not settings.ridge >= 0 or (settings.ridge and settings.strategy != "antithetic"):
        raise UsageError(
            f"--setting ridge: expected 0 or more, and 0 with strategy=cma, found {settings.ridge:g}; correct it"
        )
    shapes = network.initial(task, settings.hidden, np.random.default_rng(0))
    strategy = _cma(settings) if settings.strategy == "cma" else _antithetic(settings)
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


def centred_ranks(rewards: Floats) -> Floats:
    """Centred ranks of ``rewards``, from -0.5 to 0.5.

    Example:
        >>> centred_ranks(np.array([3.0, 100.0, -5.0])).tolist()
        [0.0, 0.5, -0.5]
    """
    if len(rewards) < 2:
        return np.zeros(len(rewards))
    return rewards.argsort(kind="stable").argsort(kind="stable") / (len(rewards) - 1) - 0.5


def ridge_gradient(noise: Floats, slopes: Floats, penalty: float) -> Floats:
    """Estimate the gradient [W] from ``slopes`` [N] along ``noise`` [N, W] by ridge regression, or as a mean.

    Example:
        >>> noise, wanted = np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]]), np.array([3.0, -2.0])
        >>> ridge_gradient(noise, noise @ wanted, 1e-9).round(6).tolist()
        [3.0, -2.0]
        >>> ridge_gradient(np.eye(2), np.array([3.0, -2.0]), 1.0).tolist()
        [1.5, -1.0]
        >>> ridge_gradient(np.eye(2), np.array([3.0, -2.0]), 0.0).tolist()
        [1.5, -1.0]
    """
    if not penalty:
        return (slopes[:, None] * noise).mean(axis=0)
    # There are fewer pairs than weights, so the dual system is the smaller one.
    return noise.T @ np.linalg.solve(noise @ noise.T + penalty * np.eye(len(noise)), slopes)


def _antithetic(settings: EsConfig) -> Any:
    """Make the functions start, sample and update of antithetic evolution strategies."""
    optimiser = optax.adam(settings.learning_rate)

    def start(weights: Floats) -> State:
        return {"centre": weights, **network.pack("optimiser", optimiser.init(weights))}

    def sample(state: State, rng: np.random.Generator) -> Floats:
        noise = rng.normal(size=(settings.perturbations, len(state["centre"]))) * settings.spread
        return state["centre"] + np.concatenate([noise, -noise])

    def update(state: State, tested: Floats, rewards: Floats) -> State:
        first, second = np.split(rewards, 2)
        paired = np.isfinite(first) & np.isfinite(second)
        if not paired.any():
            return state
        both = np.concatenate([first[paired], second[paired]])
        value = centred_ranks(both) if settings.ranks else (both - both.mean()) / max(float(both.std()), 1e-8)
        above, below = np.split(value, 2)
        noise = (np.split(tested, 2)[0][paired] - np.split(tested, 2)[1][paired]) / (2 * settings.spread)
        gradient = ridge_gradient(noise, (above - below) / 2, settings.ridge)
        optimiser_state = network.unpack("optimiser", state, optimiser.init(state["centre"]))
        updates, optimiser_state = optimiser.update(-gradient, optimiser_state)
        centre = state["centre"] + np.asarray(updates, np.float64)
        return {"centre": centre, **network.pack("optimiser", optimiser_state)}

    return start, sample, update


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
