"""Which decisions of single sites a learner may give to the compiler, and in which order these are compiled."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from mlgokit.algorithms.learner import ForcedDecisions
from mlgokit.algorithms.proposals import propose_following
from mlgokit.errors import UsageError
from mlgokit.learning.decision_batch import batch_of_log
from mlgokit.learning.experiences import MODULES_FOR_ROWS, check_proposal, group_into_rows
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY, REGALLOC_WEIGHT, Problem
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header, Log

PLAIN = propose_following(":default", np.array([0]))
FORCED = (ForcedDecisions(sites=np.array([8]), decisions=np.array([1])),)


@pytest.mark.parametrize(
    ("change", "problem", "found"),
    [
        ({"forced": FORCED}, REGALLOC_EVICTION, "for inline-size only, found one for regalloc-eviction; propose"),
        ({"forced": FORCED, "flip_probability": np.array([0.25])}, INLINE_SIZE, "flip probabilities up to 0.25"),
        ({"independent": 3}, INLINE_SIZE, "found no base; set the base"),
        ({"independent": 3, "forced": FORCED, "base": 1}, INLINE_SIZE, "found forced decisions; set the base"),
    ],
)
def test_what_the_compiler_cannot_be_told_is_refused(change: dict[str, Any], problem: Problem, found: str):
    with pytest.raises(UsageError, match=found):
        check_proposal(problem, dataclasses.replace(PLAIN, **change))


def test_ordinary_proposals_are_carried_out_for_every_problem():
    for problem in (INLINE_SIZE, REGALLOC_EVICTION):
        check_proposal(problem, PLAIN)
    check_proposal(INLINE_SIZE, dataclasses.replace(PLAIN, independent=3, base=1))
    # Flips are for modules that no decision table can address.
    check_proposal(INLINE_SIZE, dataclasses.replace(PLAIN, independent=3, base=1, flip_probability=np.array([0.25])))


@pytest.mark.parametrize("workers", [1, 2])
def test_all_of_a_module_are_made_in_a_row_where_there_are_many_modules(workers: int):
    count = 2 * MODULES_FOR_ROWS
    modules, waits = [*range(count)] * 3, [True] * count + [False] * count + [True] * count
    (rows,) = group_into_rows(modules, waits, workers=workers)
    assert rows == [[count + module, module, 2 * count + module] for module in range(count)]


def test_each_is_a_row_of_its_own_where_there_are_many_workers():
    count = 2 * MODULES_FOR_ROWS
    first, rest = group_into_rows([*range(count)] * 2, [True] * count + [False] * count, workers=3)
    assert first == [[count + module] for module in range(count)]
    assert rest == [[module] for module in range(count)]


@pytest.mark.parametrize(
    ("problem", "logged", "unit", "heuristic", "follows"),
    [(REGALLOC_WEIGHT, -0.5, -0.5, 0.0, 0.0), (REGALLOC_PRIORITY, 2.0**30, 0.0, 2.0**31, 0.0)],
)
def test_numbers_of_a_log_are_in_the_unit_of_a_policys_output(
    problem: Problem, logged: float, unit: float, heuristic: float, follows: float
):
    columns = {"weight": 1.0, problem.decision: logged, problem.default_decision: heuristic, "log_probability": 0.0}
    log = Log(
        header=Header(features=tuple(TensorSpec(name=name, type="float", shape=(1,)) for name in columns)),
        contexts=(ContextSpan(name="f", start=0, stop=1),),
        columns={name: np.full((1, 1), value, np.float32) for name, value in columns.items()},
    )
    batch = batch_of_log(problem, log, ("weight",), heuristic=False)
    assert (batch.decisions.tolist(), batch.defaults.tolist()) == ([unit], [follows])
