"""What may be answered, and advisors that stay within it."""

import math

import numpy as np
import pytest

from mlgokit.advisors import (
    Constant,
    Legal,
    Observation,
    RandomLegal,
    advice_defect,
    check_advice,
    legal_columns,
)
from mlgokit.errors import UsageError
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem
from mlgokit.spec import TensorSpec
from mlgokit.traces import Header

HEADER = Header(features=(TensorSpec(name="mask", type="int64_t", shape=(1, 5)),))


def asked(mask: list[int] | None = None) -> Observation:
    values = {"mask": np.array([mask or [0, 1, 0, 1, 1]])}
    return Observation(header=HEADER, values=values, context="f", index=3)


def test_columns_that_are_all_masked_out_leave_the_last():
    assert legal_columns(REGALLOC_EVICTION, asked()) == [1, 3, 4]
    assert legal_columns(REGALLOC_EVICTION, asked([0, 0, 0, 0, 0])) == [4]


def test_an_observation_without_mask_is_refused():
    question = Observation(header=HEADER, values={"a": np.zeros(1)}, context="f", index=0)
    with pytest.raises(UsageError, match=r"regalloc-eviction: expected a feature 'mask' .*, found a; give"):
        legal_columns(REGALLOC_EVICTION, question)


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        (INLINE_SIZE, 2), (INLINE_SIZE, -1), (INLINE_SIZE, math.nan),
        (REGALLOC_EVICTION, 0), (REGALLOC_EVICTION, 5), (REGALLOC_EVICTION, -1), (REGALLOC_EVICTION, 1.5),
        (REGALLOC_EVICTION, math.nan),
        (REGALLOC_PRIORITY, math.nan), (REGALLOC_PRIORITY, -1), (REGALLOC_PRIORITY, -math.inf),
        (REGALLOC_PRIORITY, math.inf), (REGALLOC_PRIORITY, 2.0**32), (REGALLOC_PRIORITY, 2.0**32 - 1),
        (REGALLOC_PRIORITY, 10**400),
    ],
)  # fmt: skip
def test_what_is_not_legal_is_refused_or_repaired(problem: Problem, advice: float):
    with pytest.raises(UsageError, match=f"advice '{problem.decision}': observation 3 of context 'f': expected .*, or"):
        check_advice(problem, asked(), advice)
    legal = Legal(Constant(advice), problem)
    assert advice_defect(problem, asked(), legal.advise(asked())) is None
    assert legal.repairs == 1


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        (INLINE_SIZE, True),
        (REGALLOC_EVICTION, 3),
        (REGALLOC_EVICTION, 4.0),
        (REGALLOC_PRIORITY, 0),
        (REGALLOC_PRIORITY, 2**31 + 1),
    ],
)
def test_what_is_legal_is_left_alone(problem: Problem, advice: float):
    check_advice(problem, asked(), advice)
    legal = Legal(Constant(advice), problem)
    assert legal.advise(asked()) == advice
    assert legal.repairs == 0


@pytest.mark.parametrize(("advice", "repaired"), [(math.nan, 0), (-7, 0), (math.inf, 4294967040), (1e12, 4294967040)])
def test_priorities_are_repaired_to_the_nearest(advice: float, repaired: float):
    assert Legal(Constant(advice), REGALLOC_PRIORITY).advise(asked()) == repaired


@pytest.mark.parametrize("problem", [INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY])
def test_random_answers_are_legal_and_follow_their_generator(problem: Problem):
    first, second = (RandomLegal(problem, np.random.default_rng(3)) for _ in range(2))
    answers = [first.advise(asked()) for _ in range(300)]
    assert answers == [second.advise(asked()) for _ in range(300)]
    assert all(advice_defect(problem, asked(), answer) is None for answer in answers)
    assert len(set(answers)) == {INLINE_SIZE: 2, REGALLOC_EVICTION: 3}.get(problem, len(set(answers)))


@pytest.mark.parametrize(("problem", "advice"), [(INLINE_SIZE, 0), (REGALLOC_EVICTION, 1), (REGALLOC_PRIORITY, 0.0)])
def test_the_first_legal_answer(problem: Problem, advice: float):
    assert Legal(Constant(0), problem).advise(asked()) == advice
