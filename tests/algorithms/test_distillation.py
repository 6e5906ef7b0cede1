"""Random network distillation: what was seen has a lower bonus. The contract of learners has PPO with it."""

import dataclasses

import numpy as np
import pytest

from mlgokit.algorithms.config import DistillationConfig, PpoConfig
from mlgokit.algorithms.distillation import distil, start_distillation
from mlgokit.algorithms.learner import Task
from mlgokit.algorithms.registry import make_learner
from mlgokit.errors import UsageError
from mlgokit.policy.normaliser import fit_quantile
from mlgokit.spec import AdviceKind

SETTINGS = DistillationConfig(scale=1.0, learning_rate=1e-2, half_life=200.0)
CONTEXTS = np.repeat(np.arange(8), 8)


def inputs(seed: int, *shape: int) -> np.ndarray:
    """Observations of one kind; another seed has another kind."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape[-1]) * 2 + 0.1 * rng.normal(size=shape)).astype(np.float32)


@pytest.mark.parametrize("shape", [(64, 6), (64, 5, 6)])
def test_what_was_seen_often_has_a_lower_bonus_than_what_was_not(shape: tuple[int, ...]):
    seen, unseen = inputs(1, *shape), inputs(2, *shape)
    state = start_distillation(6, SETTINGS, np.random.default_rng(0))
    for _ in range(5):
        _, state = distil(state, seen, CONTEXTS, steps=40, settings=SETTINGS)
    known, _ = distil(state, seen, CONTEXTS, steps=1, settings=SETTINGS)
    new, _ = distil(state, unseen, CONTEXTS, steps=1, settings=SETTINGS)
    assert known.mean() < new.mean() / 5


def test_a_decision_has_the_bonus_of_the_next_observation_and_the_last_has_none():
    state = start_distillation(6, SETTINGS, np.random.default_rng(0))
    bonus, _ = distil(state, inputs(1, 64, 6), CONTEXTS, steps=1, settings=SETTINGS)
    assert (bonus.reshape(8, 8)[:, -1] == 0).all()
    assert (bonus.reshape(8, 8)[:, :-1] > 0).all()
    alone, _ = distil(state, inputs(1, 64, 6), np.arange(64), steps=1, settings=SETTINGS)
    assert not alone.any()


def test_the_bonus_halves_with_its_half_life():
    first = start_distillation(6, SETTINGS, np.random.default_rng(0))
    later = {**first, "distillation/moments": np.array([0.0, 0.0, 0.0, 200.0])}
    seen = inputs(1, 64, 6)
    bonus, _ = distil(first, seen, CONTEXTS, steps=1, settings=SETTINGS)
    faded, after = distil(later, seen, CONTEXTS, steps=7, settings=SETTINGS)
    np.testing.assert_allclose(faded, bonus / 2)
    assert after["distillation/moments"][[0, 3]].tolist() == [64, 207]


def test_a_network_without_layers_is_refused():
    task = Task(
        problem="inline-size", kind=AdviceKind.BINARY, features=("a",),
        normaliser=fit_quantile(np.arange(3)[:, None], count=2), project=np.zeros(1, np.int64),
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"--setting distillation\.hidden: expected at least one layer"):
        make_learner("ppo", task, PpoConfig(distillation=dataclasses.replace(SETTINGS, hidden=())))
