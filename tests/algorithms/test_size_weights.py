"""Training data counts by the regret of its size: the reference's numbers, and what BC-Max makes of them."""

import dataclasses

import numpy as np
import pytest

from mlgokit.algorithms.bc_max import bucket_weights, start_weighting, update_weighting
from mlgokit.algorithms.config import BcMaxConfig, ImitationConfig
from mlgokit.algorithms.learner import Experience, Task
from mlgokit.algorithms.registry import make_learner
from mlgokit.errors import UsageError
from mlgokit.policy.normaliser import fit_quantile
from mlgokit.spec import AdviceKind

BOUNDS = (10.0, 20.0, 30.0)
VALUES = np.arange(8).reshape(4, 2)
TASK = Task(
    problem="inline-size",
    kind=AdviceKind.BINARY,
    features=("cost", "threshold"),
    normaliser=fit_quantile(VALUES, count=4),
    project=np.zeros(4, np.int64),
)
SETTINGS = BcMaxConfig(partitions=BOUNDS, modules=4, imitation=ImitationConfig(hidden=(4,), steps=1, batch=4))


def test_one_step_gives_the_numbers_of_the_reference_and_the_next_an_average_of_all():
    state = update_weighting(start_weighting(BOUNDS), np.array([5.0, 10.0]), np.array([-3.0, 7.0]), BOUNDS)
    np.testing.assert_allclose(
        state["probabilities"], [0.27346137, 0.17961589, 0.27346137, 0.27346137], rtol=0, atol=1e-8
    )
    np.testing.assert_allclose(
        bucket_weights(state, np.array([10.0, 19.0, 20.0]), BOUNDS), [1, 1, 0.17961589 / 0.27346137], atol=1e-7
    )
    again = update_weighting(state, np.array([10.0]), np.array([1.0]), BOUNDS)
    odds = np.exp([1, -1, 1, 1])
    np.testing.assert_allclose(again["probabilities"], (2 * state["probabilities"] + odds / odds.sum()) / 3)


@pytest.mark.parametrize("regrets", [np.zeros(0), np.array([0.0, -5.0])])
def test_without_regret_all_stays(regrets: np.ndarray):
    state = start_weighting(BOUNDS)
    assert update_weighting(state, np.full(len(regrets), 5.0), regrets, BOUNDS) is state


def test_bounds_that_do_not_ascend_are_refused():
    with pytest.raises(UsageError, match=r"--setting partitions: expected ascending numbers, .* found \(3, 1\)"):
        make_learner("bc-max", TASK, dataclasses.replace(SETTINGS, partitions=(3, 1)))


def experience(module: int, score: float) -> Experience:
    zeros = np.zeros(1, np.int64)
    return Experience(
        proposal=0,
        compilation=module,
        module=module,
        features=VALUES[module : module + 1],
        decisions=zeros,
        log_probability=np.zeros(1),
        defaults=zeros,
        sites=zeros,
        context=zeros,
        context_ids=zeros,
        scores=np.array([score]),
        default_scores=np.array([score]),
    )


def told(settings: BcMaxConfig, policy_scores: list[float]) -> np.ndarray:
    """Weights of the decisions of four contexts, of 5, 15, 25 and 35 bytes, after the policy did so on them."""
    rng = np.random.default_rng(1)
    learner = make_learner("bc-max", TASK, settings)
    state = learner.start(rng)
    rules = learner.ask(state, rng)
    plain = [experience(module, score) for module, score in enumerate((5.0, 15.0, 25.0, 35.0))]
    state, _ = learner.tell(state, rules, plain, rng)
    (exploring,) = learner.ask(state, rng)
    compiled = [experience(module, score) for module, score in enumerate(policy_scores)]
    state, _ = learner.tell(state, [exploring], compiled, rng)
    order = np.argsort(state["kept/module"])
    return np.asarray(state["kept/weight"])[order]


def test_bc_max_counts_a_size_by_more_where_its_policy_regrets():
    scores = [5.0, 19.0, 25.0, 35.0]
    alike = told(dataclasses.replace(SETTINGS, partitions=()), scores)
    apart = told(SETTINGS, scores)
    share = 0.17961589 / 0.27346137
    np.testing.assert_allclose(apart / alike, [share, 1, share, share], rtol=1e-6)
