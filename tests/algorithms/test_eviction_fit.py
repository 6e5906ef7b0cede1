"""A fit to trials of single evictions: which answers are foretold to pay, and what a change counts."""

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest

from mlgokit.algorithms.config import EffectConfig, EvictionTrialsConfig
from mlgokit.algorithms.eviction_fit import (
    EVICTION_FEATURES,
    EvictionLabels,
    changes,
    fit_evictions,
    in_score,
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


def test_what_is_made_again_counts_though_the_record_leaves_it_out():
    before = measured(1, reloads=10.0, executed=100.0)
    # A reload less, and nothing more: 4 of 40. A reload less, and one instruction more in its place: 3.8.
    less = changes(before, measured(1, reloads=9.0, executed=99.0), "spill-cost")
    again = changes(before, measured(1, reloads=9.0, executed=100.0), "spill-cost")
    assert less[0] == pytest.approx(100 * np.log(36.3 / 40.3))
    assert again[0] == pytest.approx(100 * np.log(36.5 / 40.3))


def test_scores_in_parts_are_bounded_and_bytes_are_bytes():
    before = measured(2, executed=100.0, code=50.0, unwind=2.0)
    after = measured(2, executed=[100.5, 300.0], code=[45.0, 60.0], unwind=2.0)
    assert changes(before, after, "executed").round(6).tolist() == [5.0, 10.0]
    assert changes(before, after, "bytes").round(6).tolist() == [-5.0, 10.0]
    then, now = in_score(before, after, "bytes")
    assert (then.tolist(), now.tolist()) == ([55.0, 55.0], [50.0, 65.0])
    then, now = in_score(before, after, "executed")
    assert (then.tolist(), now.round(6).tolist()) == ([1000.0, 1000.0], [1005.0, 1010.0])
