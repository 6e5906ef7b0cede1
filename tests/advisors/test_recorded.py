"""Recorded decisions, by context, and the mapping of priorities to what a channel can carry."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlgokit.advisors import Constant, Observation, ReplayContexts, default_decisions, dense_ranks, recorded_decisions
from mlgokit.errors import UsageError
from mlgokit.problems import REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header, Log

HEADER = Header(features=(TensorSpec(name="priority_default", type="int64_t", shape=(1,)),))
LOG = Log(
    header=HEADER,
    contexts=(
        ContextSpan(name="f", start=0, stop=2),
        ContextSpan(name="empty", start=2, stop=2),
        ContextSpan(name="g", start=2, stop=3),
        ContextSpan(name="f", start=3, stop=5),
    ),
    columns={"priority_default": np.array([[2**31 + 1], [2**31], [9], [2**31 + 1], [4]])},
)


def ask(context: str, index: int) -> Observation:
    return Observation(header=HEADER, values={}, context=context, index=index)


def test_decisions_are_kept_by_context():
    expected = {"f": [2**31 + 1, 2**31, 2**31 + 1, 4], "empty": [], "g": [9]}
    assert recorded_decisions(LOG, "priority_default") == expected


def test_the_heuristics_priorities_become_ranks_of_their_function():
    assert default_decisions(LOG, REGALLOC_PRIORITY) == {"f": [2, 1, 2, 0], "empty": [], "g": [0]}


def test_a_log_without_the_heuristics_decision_is_refused():
    with pytest.raises(UsageError, match="expected a column 'index_to_evict_default' of one element, found priority_d"):
        default_decisions(LOG, REGALLOC_EVICTION)


def test_replay_does_not_depend_on_the_order_of_contexts():
    replay = ReplayContexts(recorded_decisions(LOG, "priority_default"))
    assert [replay.advise(ask(*key)) for key in (("g", 0), ("f", 3), ("f", 0))] == [9, 4, 2**31 + 1]


def test_replay_refuses_or_passes_on_what_was_not_recorded():
    with pytest.raises(
        UsageError,
        match=r"observation 1 of context 'g': expected at most 1 questions, .* found one more",
    ):
        ReplayContexts({"g": [9]}).advise(ask("g", 1))
    with pytest.raises(UsageError, match="observation 0 of context 'h': expected at most 0 questions"):
        ReplayContexts({"g": [9]}).advise(ask("h", 0))
    assert ReplayContexts({"g": [9]}, Constant(5)).advise(ask("g", 1)) == 5


@given(st.lists(st.integers(0, 2**32 - 1), max_size=30))
def test_ranks_keep_order_and_equality_as_floats(priorities: list[int]):
    ranks = dense_ranks(np.array(priorities, np.int64)).astype(np.float32)
    for one, rank in zip(priorities, ranks, strict=True):
        for other, other_rank in zip(priorities, ranks, strict=True):
            assert (one < other) == (rank < other_rank)
