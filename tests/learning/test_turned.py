"""Which decisions of single sites are given, and which of them count as turned round."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from mlgokit.algorithms.credit import Compiled
from mlgokit.algorithms.exploring import followed
from mlgokit.algorithms.learner import Forced
from mlgokit.errors import UsageError
from mlgokit.learning.turned import check_turned, independent_turns
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, Problem

PLAIN = followed(":default", np.array([0]))
FORCED = (Forced(sites=np.array([8]), decisions=np.array([1])),)


def test_a_real_compilation_has_a_move_in_each_part_that_cannot_meet():
    # 1 is inlined into 2, which 3 calls; 7 stands apart; 5 calls 6 twice.
    caller = np.array([2, 3, 7, 5, 5])
    callee = np.array([1, 2, 4, 6, 6])
    inlined = np.array([True, False, False, False, False])
    run = Compiled(
        caller=caller, callee=callee, inlined=inlined, flipped=~inlined, functions=caller, scores=np.zeros(5)
    )
    seen: set[tuple[int, ...]] = set()
    for seed in range(20):
        given = independent_turns(run, np.arange(0, 10, 2), most=9, seed=seed)
        turned = np.flatnonzero(given.decisions != inlined)
        seen.add(tuple(turned.tolist()))
        # 2 is the caller of the first call and the callee of the second.
        assert not {0, 1} <= set(turned.tolist())
        assert 2 in turned
    # All calls of one callee are a move too.
    assert any({3, 4} <= set(turned) for turned in seen)
    assert any(len({3, 4} & set(turned)) == 1 for turned in seen)
    assert len(independent_turns(run, np.arange(0, 10, 2), most=0, seed=1).decisions) == 5


@pytest.mark.parametrize(
    ("change", "problem", "found"),
    [
        ({"forced": FORCED}, REGALLOC_EVICTION, "found them for regalloc-eviction with flip probabilities up to 0;"),
        ({"forced": FORCED, "flip_probability": np.array([0.25])}, INLINE_SIZE, "flip probabilities up to 0.25;"),
        ({"independent": 3}, INLINE_SIZE, "found a proposal without a base or with decisions of its own"),
        ({"independent": 3, "forced": FORCED, "base": 1}, INLINE_SIZE, "or with decisions of its own"),
    ],
)
def test_what_the_compiler_cannot_be_told_is_refused(change: dict[str, Any], problem: Problem, found: str):
    with pytest.raises(UsageError, match=found):
        check_turned(problem, dataclasses.replace(PLAIN, **change))


def test_ordinary_proposals_are_carried_out_for_every_problem():
    for problem in (INLINE_SIZE, REGALLOC_EVICTION):
        check_turned(problem, PLAIN)
    check_turned(INLINE_SIZE, dataclasses.replace(PLAIN, independent=3, base=1))
