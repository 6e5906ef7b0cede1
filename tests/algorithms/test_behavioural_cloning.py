"""Cloning learns: a threshold rule is imitated almost everywhere, on values it has not seen."""

import numpy as np
import pytest

from mlgokit.algorithms.behavioural_cloning import fit_clone
from mlgokit.algorithms.config import CloningConfig
from mlgokit.errors import UsageError


def test_it_imitates_a_rule() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-200, 200, (4000, 3))
    decisions = values[:, 0] + values[:, 1] // 2 < 10
    config = CloningConfig(epochs=30, batch=128, excluded=("node_count",))
    policy = fit_clone(("cost", "threshold", "node_count"), values, decisions, config, problem="inline-size", rng=rng)
    assert policy.features == ("cost", "threshold")
    fresh = rng.integers(-200, 200, (2000, 3))
    agreement = np.mean((policy.preferences(fresh[:, :2]) > 0) == (fresh[:, 0] + fresh[:, 1] // 2 < 10))
    assert agreement > 0.95


def test_no_decisions_is_a_sentence() -> None:
    with pytest.raises(UsageError, match="expected at least one decision, found none; collect a trace"):
        fit_clone(
            (),
            np.zeros((0, 0), np.int64),
            np.zeros(0, bool),
            CloningConfig(),
            problem="p",
            rng=np.random.default_rng(0),
        )
