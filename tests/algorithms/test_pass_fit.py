"""What a policy of passes learns from labels whose truth is known."""

import dataclasses
import math

import numpy as np
import pytest

from mlgokit.algorithms.config import EffectConfig, PassTrialsConfig
from mlgokit.algorithms.pass_fit import PassLabels, fit_passes
from mlgokit.errors import UsageError
from mlgokit.problems import DECIDED_PASSES, PASS_SELECTION

NAMES = PASS_SELECTION.feature_names
HOISTS, ORDERS = (DECIDED_PASSES.index(name) for name in ("early-machinelicm", "block-placement"))
FEATURES = ("instructions", "loops", "is_minsize")
SETTINGS = PassTrialsConfig(
    margin=0.5,
    slowdown_price=0.1,
    fit=EffectConfig(
        members=4, hidden=(16,), epochs=60, dropout=0.0, huber_bytes=16.0, unit_bytes=8.0, doubt=0.5, gate_feature=""
    ),
)


def labels(count: int = 800, *, saved: float = 12.0) -> PassLabels:
    """Leaving out hoisting saves bytes in functions with loops and costs in others; another order of blocks costs."""
    rng = np.random.default_rng(0)
    values = np.zeros((count, len(NAMES)), np.int64)
    values[:, NAMES.index("is_minsize")] = 1
    values[:, NAMES.index("instructions")] = rng.integers(5, 200, count)
    values[:, NAMES.index("loops")] = rng.integers(0, 3, count)
    asking = rng.choice([HOISTS, ORDERS], count)
    values[np.arange(count), len(NAMES) - len(DECIDED_PASSES) + asking] = 1
    has_loop = values[:, NAMES.index("loops")] > 0
    change = np.where(asking == HOISTS, np.where(has_loop, -saved, 3.0), 5.0) + rng.normal(size=count)
    return PassLabels(
        values=values,
        change=change,
        slowdown=np.zeros(count),
        size=np.full(count, 100.0),
        project=rng.integers(0, 4, count),
        projects=("a", "b", "c", "d"),
    )


def test_what_pays_elsewhere_is_left_out_where_it_pays():
    found = fit_passes(labels(), SETTINGS, features=FEATURES, seed=1)

    chosen = {one.name: one.chosen for one in found.evidence}
    assert chosen["early-machinelicm"]
    assert not chosen["block-placement"]
    assert [name for name in found.policy.features if name.startswith("pass:")] == ["pass:early-machinelicm"]
    assert found.policy.gate is not None
    assert found.policy.gate.margins == (math.inf, 0.5)
    # instructions, loops, is_minsize, the pass: with loops, without, and not compiled for least size
    asked = np.array([[50, 2, 1, 1], [50, 0, 1, 1], [50, 2, 0, 1]])
    assert (found.policy.preferences(asked, np.zeros(3, bool)) > 0).tolist() == [True, False, False]


def test_what_makes_code_slower_has_its_price():
    slow = dataclasses.replace(labels(), slowdown=np.full(800, 1.0))

    with pytest.raises(UsageError, match="found none that does in 800 trials; train on more projects"):
        fit_passes(
            slow,
            dataclasses.replace(SETTINGS, slowdown_price=0.5),
            features=FEATURES,
            seed=1,
        )


def test_what_makes_code_a_little_slower_has_none():
    slow = dataclasses.replace(labels(), slowdown=np.full(800, 0.3))
    settings = dataclasses.replace(SETTINGS, slowdown_price=1.0, slowdown_free=0.3)

    found = fit_passes(slow, settings, features=FEATURES, seed=1)

    assert next(one for one in found.evidence if one.name == "early-machinelicm").chosen
    with pytest.raises(UsageError, match="found none that does"):
        fit_passes(
            slow,
            dataclasses.replace(settings, slowdown_free=0.0),
            features=FEATURES,
            seed=1,
        )


def test_a_pass_that_is_kept_is_not_learned():
    settings = dataclasses.replace(SETTINGS, kept=("early-machinelicm",))

    with pytest.raises(UsageError, match="found none that does in"):
        fit_passes(labels(), settings, features=FEATURES, seed=1)


def test_members_that_know_a_project_do_not_judge_it():
    found = fit_passes(labels(), SETTINGS, features=FEATURES, seed=1)

    for project in range(4):
        others = found.policy.select_members(~found.fitted_on[:, project])
        assert others is not None
        assert others.members == int((~found.fitted_on[:, project]).sum()) < found.policy.members


def test_without_labels_nothing_is_learned():
    with pytest.raises(UsageError, match="expected at least one trial of a pass that succeeded, found none"):
        fit_passes(labels().select(np.zeros(800, bool)), SETTINGS, features=("loops", "is_minsize"), seed=1)
