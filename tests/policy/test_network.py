"""The network: what it gives for values and weights that overflow, and for columns."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mlgokit.errors import UsageError
from mlgokit.policy.network import LOGIT_BOUND, Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog


def make(
    output: OutputKind, *, features: int = 3, weight: float = 1.0, members: int = 2, caution: float = 0.0
) -> Policy:
    rng = np.random.default_rng(4)
    return Policy(
        problem="p",
        features=tuple("abcdef"[:features]),
        normaliser=SignedLog(mean=np.zeros(features, np.float32), scale=np.ones(features, np.float32), clip=4.0),
        layers=(
            Layer(
                (rng.normal(size=(members, features, 5)) * weight).astype(np.float32), np.ones((members, 5), np.float32)
            ),
            Layer(
                (rng.normal(size=(members, 5, output.width)) * weight).astype(np.float32),
                np.zeros((members, output.width), np.float32),
            ),
        ),
        output=output,
        caution=caution if output is OutputKind.COLUMN_LOGIT else 0.0,
        doubt=caution if output is OutputKind.EFFECT_BYTES else 0.0,
        mask="a",
    )


def test_every_column_goes_through_the_same_network() -> None:
    policy = make(OutputKind.COLUMN_LOGIT)
    values = np.random.default_rng(1).normal(size=(7, 5, 3)) * 100
    logits = policy.column_logits(values)
    assert logits.shape == (7, 5)
    np.testing.assert_array_equal(logits[:, ::-1], policy.column_logits(values[:, ::-1]))
    np.testing.assert_array_equal(logits[:, :1], policy.column_logits(values[:, :1]))
    assert len(set(logits.ravel().tolist())) == logits.size


def test_caution_makes_every_column_worse() -> None:
    values = np.random.default_rng(1).normal(size=(7, 5, 3))
    bold, careful = (make(OutputKind.COLUMN_LOGIT, caution=caution).column_logits(values) for caution in (0.0, 2.0))
    assert (careful < bold).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, 3e38, -0.0])
def test_extreme_values_give_no_nan(value: float) -> None:
    values = np.full((1, 4, 3), value)
    for weight in (1.0, 1e30):
        assert np.isfinite(make(OutputKind.COLUMN_LOGIT, weight=weight, caution=1.0).column_logits(values)).all()
        assert not np.isnan(make(OutputKind.PRIORITY, weight=weight).units(values[0])).any()
        for output in (OutputKind.EFFECT_BYTES, OutputKind.LOGITS):
            assert not np.isnan(make(output, weight=weight, caution=1.0).preferences(values[0])).any()


def test_the_heuristic_decides_what_is_not_beyond_the_margin() -> None:
    values = np.random.default_rng(1).normal(size=(400, 3)) * 9
    values[::2, 1] = 0
    open_everywhere = make(OutputKind.EFFECT_BYTES)
    policy = replace(open_everywhere, gate=Gate(feature="b", margins=(np.inf, 2.0)))
    own = open_everywhere.preferences(values)
    believed = (values[:, 1] != 0) & (np.abs(own) > 2)
    assert 0 < np.count_nonzero(believed) < np.count_nonzero(values[:, 1])
    for heuristic in (np.zeros(400, bool), np.ones(400, bool)):
        found = policy.preferences(values, heuristic)
        np.testing.assert_array_equal(found[believed], own[believed])
        np.testing.assert_array_equal(found[~believed], np.where(heuristic, 2.0, -2.0)[~believed])
        np.testing.assert_array_equal(open_everywhere.preferences(values, heuristic), own)
    np.testing.assert_array_equal(policy.preferences(values), own)


def test_a_gated_answer_that_is_nan_is_left_to_the_heuristic() -> None:
    policy = replace(
        make(OutputKind.EFFECT_BYTES, weight=1e38, caution=1.0), gate=Gate(feature="a", margins=(0.0, 0.0))
    )
    values = np.full((2, 3), 1e38)
    assert np.isnan(policy.answers(values)).any() or np.isinf(policy.answers(values)).any()
    assert policy.preferences(values, np.array([True, False])).tolist() == [2.0, -2.0]


def test_llvm_decides_where_the_members_disagree() -> None:
    """An effect that is believed, one that is in doubt, one that is in doubt towards inlining, and none at all."""
    members = np.array([[-9.0, 4.0, -9.0, 0.0], [-7.0, 0.0, 1.0, 0.0]], np.float32)
    layer = Layer(members[:, :, None], np.zeros((2, 1), np.float32))
    sure = Policy(
        problem="p",
        features=("a", "b", "c", "d"),
        normaliser=SignedLog(mean=np.zeros(4, np.float32), scale=np.ones(4, np.float32), clip=4.0),
        layers=(layer,),
        output=OutputKind.EFFECT_BYTES,
    )
    values = np.diag([math.e - 1] * 4)
    np.testing.assert_allclose(sure.preferences(values), [8, -2, 4, 0], rtol=1e-6)
    for heuristic in (False, True):
        left = 2.0 if heuristic else -2.0
        asked = np.full(4, heuristic)
        doubting = replace(sure, doubt=1.5)
        np.testing.assert_allclose(doubting.preferences(values, asked), [8, left, left, left], rtol=1e-6)
        np.testing.assert_allclose(doubting.preferences(values), [8, -2, 4, 0], rtol=1e-6)
        # A margin and doubt add up: |-8| is beyond 6 and beyond 1.5 deviations of 1, and not beyond both.
        gated = replace(doubting, gate=Gate(feature="a", margins=(0.0, 6.6)))
        np.testing.assert_allclose(gated.preferences(values, asked), [left] * 4)
        open_gate = replace(gated, gate=Gate(feature="a", margins=(0.0, 6.4)))
        np.testing.assert_allclose(open_gate.preferences(values, asked), [8, left, left, left], rtol=1e-6)
    assert doubting.asks_heuristic
    assert not sure.asks_heuristic


def test_a_network_that_overflows_downwards_is_bounded() -> None:
    policy = make(OutputKind.COLUMN_LOGIT, members=1)
    first, last = policy.layers
    sunk = replace(policy, layers=(Layer(np.abs(first.weight), first.bias), Layer(last.weight * 0 - 3e38, last.bias)))
    assert sunk.column_logits(np.full((1, 1, 3), 50.0)).tolist() == [[-LOGIT_BOUND]]


def test_floats_and_integers_of_one_value_are_one() -> None:
    policy = make(OutputKind.PRIORITY)
    whole = np.random.default_rng(1).integers(-(2**20), 2**20, (50, 3))
    np.testing.assert_array_equal(policy.units(whole), policy.units(whole.astype(np.float32)))


def test_a_policy_is_evaluated_as_what_it_is() -> None:
    values = np.zeros((1, 3))
    with pytest.raises(UsageError, match=r"expected an output of kind binary, found real \(output priority\)"):
        make(OutputKind.PRIORITY).preferences(values)
    with pytest.raises(UsageError, match="expected an output of kind masked-choice, found binary"):
        make(OutputKind.LOGITS).column_logits(values)
    with pytest.raises(UsageError, match="expected an output of kind real, found masked-choice"):
        make(OutputKind.COLUMN_LOGIT).units(values)
