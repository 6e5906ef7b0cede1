"""Cloning learns: a threshold rule is imitated almost everywhere, on values it has not seen."""

import numpy as np

from mlgokit.algorithms.config import BcConfig
from mlgokit.algorithms.learner import Experience, Task
from mlgokit.algorithms.registry import make_learner
from mlgokit.policy.normaliser import fit_quantile
from mlgokit.spec import AdviceKind


def test_one_turn_learns_to_imitate_a_threshold() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-200, 200, (40_000, 2))
    task = Task(
        problem="inline-size",
        kind=AdviceKind.BINARY,
        features=("cost", "threshold"),
        normaliser=fit_quantile(values),
        project=np.zeros(1, np.int64),
    )
    learner = make_learner("behavioural-cloning", task, BcConfig())
    state = learner.start(rng)
    proposals = learner.ask(state, rng)
    state, metrics = learner.tell(state, proposals, [decided(values)], rng)

    assert [(one.actor, one.modules.tolist()) for one in proposals] == [(":default", [0])]
    fresh = rng.integers(-200, 200, (2000, 2))
    agreement = np.mean((learner.best(state).preferences(fresh) > 0) == rule(fresh))
    assert agreement > 0.95
    assert abs(metrics["agreement"] - agreement) < 0.05


def rule(values: np.ndarray) -> np.ndarray:
    return values[:, 0] + values[:, 1] // 2 < 10


def decided(values: np.ndarray) -> Experience:
    count = len(values)
    decisions, zeros = rule(values).astype(np.int64), np.zeros(count, np.int64)
    return Experience(
        proposal=0,
        compilation=0,
        module=0,
        features=values,
        decisions=decisions,
        log_probability=np.zeros(count),
        defaults=decisions,
        sites=np.arange(count),
        context=zeros,
        context_ids=zeros[:1],
        scores=np.ones(1),
        default_scores=np.ones(1),
    )
