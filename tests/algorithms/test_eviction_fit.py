"""A fit to trials of single evictions: which answers are foretold to pay."""

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest

from mlgokit.algorithms.config import EffectConfig, EvictionTrialsConfig
from mlgokit.algorithms.eviction_fit import (
    EVICTION_FEATURES,
    EvictionLabels,
    fit_evictions,
    join_labels,
)
from mlgokit.compiler.reuse.trials import MEASURES
from mlgokit.errors import UsageError
from mlgokit.policy.network import OutputKind

URGENT = EVICTION_FEATURES.index("nr_urgent")
SETTINGS = EvictionTrialsConfig(
    fit=EffectConfig(
        members=4, hidden=(8,), epochs=30, batch_flips=64, learning_rate=0.02, dropout=0.0, gate_feature=""
    )
)


def measured(count: int, **values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    found = np.zeros((count, len(MEASURES)))
    for name, value in values.items():
        found[:, MEASURES.index(name)] = value
    return found


def drawn_labels(project: str, seed: int, *, against_policy: bool = False) -> EvictionLabels:
    """Columns with something urgent cost a tenth more, the others a tenth less."""
    rng = np.random.default_rng(seed)
    count = 300
    values = np.zeros((count, len(EVICTION_FEATURES)), np.float32)
    values[:, URGENT] = rng.integers(0, 2, count) * 5
    effect = np.where(values[:, URGENT] > 0, 11.0, -11.0)
    before = measured(count, reloads=10.0, executed=100.0)
    sign = np.ones(count, np.float32)
    if against_policy:
        sign, effect = -sign, -effect
    return EvictionLabels(
        values=values,
        sign=sign,
        component=np.arange(count),
        before=before,
        after=measured(count, reloads=10.0 * np.exp(effect / 100), executed=100.0 + 10.0 * np.expm1(effect / 100)),
        project=np.zeros(count, np.int64),
        projects=(project,),
    )


@pytest.mark.parametrize("against_policy", [False, True])
def test_a_policy_prefers_columns_that_paid(against_policy: bool):
    labels = join_labels([drawn_labels(f"p{number}", number, against_policy=against_policy) for number in range(3)])
    assert labels.projects == ("p0", "p1", "p2")
    assert labels.component.tolist() == list(range(900))

    fit = fit_evictions(labels, SETTINGS, seed=1)

    assert fit.correlation > 0.9
    assert (fit.policy.output, fit.policy.mask) == (OutputKind.COLUMN_EFFECT, "mask")
    values = np.zeros((1, 3, len(EVICTION_FEATURES)))
    values[0, 1, URGENT] = 5
    logits = fit.policy.column_logits(values, np.array([2]))[0]
    assert logits[0] > 0.5
    assert logits[1:].tolist() == [-2.0, 0.0]
    left_out = np.flatnonzero(~fit.fitted_on[:, 0])
    without = fit.without(0)
    assert without is not None
    assert without.members == len(left_out) > 0
    assert fit_evictions(labels, SETTINGS, seed=1).policy.layers[0].weight.tobytes() == (
        fit.policy.layers[0].weight.tobytes()
    )


def test_nothing_tried_is_nothing_to_fit():
    labels = drawn_labels("p", 1)
    none = dataclasses.replace(
        labels, values=labels.values[:0], sign=labels.sign[:0], component=labels.component[:0],
        before=labels.before[:0], after=labels.after[:0], project=labels.project[:0],
    )  # fmt: skip
    with pytest.raises(UsageError, match="expected at least one trial that succeeded, found none"):
        fit_evictions(none, SETTINGS, seed=1)
