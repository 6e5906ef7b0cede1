"""Effect regression learns: on a world with known effects it finds nearly the best decisions, and not the noise."""

import numpy as np
import pytest

from mlgokit.algorithms.config import EffectConfig
from mlgokit.algorithms.effect_fit import fit_effects
from mlgokit.algorithms.effects import MeasuredEffects, join_effects
from mlgokit.errors import UsageError

NAMES = ("cost", "uses", "noise")


def true_effect(values: np.ndarray) -> np.ndarray:
    """Bytes: inlining costs the callee's size, and wins its body back when it has one use."""
    return np.where(values[:, 1] == 1, -20.0 - 0.1 * values[:, 0], 0.8 * values[:, 0] - 12)


def world(rng: np.random.Generator, *, components: int, project: str) -> MeasuredEffects:
    flips = rng.integers(1, 4, components)
    component = np.repeat(np.arange(components), flips)
    count = len(component)
    values = np.stack([rng.integers(0, 80, count), rng.integers(1, 5, count), rng.integers(-9, 9, count)], axis=1)
    sign = rng.choice([-1.0, 1.0], count).astype(np.float32)
    change = np.bincount(component, sign * true_effect(values), minlength=components) + rng.normal(size=components)
    return MeasuredEffects(
        names=NAMES,
        values=values,
        sign=sign,
        component=component,
        change=change.astype(np.float32),
        project=np.zeros(components, np.int64),
        projects=(project,),
    )


def test_it_learns_the_known_optimum_on_an_unseen_project() -> None:
    rng = np.random.default_rng(3)
    effects = join_effects([world(rng, components=500, project=name) for name in "abcd"])
    config = EffectConfig(members=3, epochs=40, batch_flips=256, dropout=0.0)
    policy, report = fit_effects(effects, config, problem="inline-size", rng=np.random.default_rng(4))
    unseen = world(np.random.default_rng(5), components=400, project="e").values
    effect = true_effect(unseen)
    chosen = effect[policy.preferences(unseen) > 0].sum()
    best = effect[effect < 0].sum()
    assert chosen < 0.97 * best, f"expected nearly {best:.0f} bytes, the policy wins {chosen:.0f}"
    assert report.correlation > 0.97


def test_the_same_seed_gives_the_same_policy() -> None:
    effects = join_effects([world(np.random.default_rng(1), components=60, project=name) for name in "ab"])
    config = EffectConfig(members=2, epochs=3, batch_flips=64)
    first, second = (
        fit_effects(effects, config, problem="inline-size", rng=np.random.default_rng(7))[0] for _ in range(2)
    )
    for one, other in zip(first.layers, second.layers, strict=True):
        np.testing.assert_array_equal(one.weight, other.weight)


def test_one_project_alone_can_be_fitted() -> None:
    effects = world(np.random.default_rng(1), components=60, project="only")
    policy, _ = fit_effects(
        effects, EffectConfig(members=2, epochs=2), problem="inline-size", rng=np.random.default_rng(7)
    )
    assert policy.members == 2


def test_nothing_to_learn_from_is_a_sentence() -> None:
    with pytest.raises(
        UsageError, match="expected at least one flipped decision whose bytes were measured, found none"
    ):
        join_effects([])
