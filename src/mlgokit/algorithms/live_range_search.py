"""Linear policies about live ranges, and their scores: spills, executed instructions, or bytes of code.

A weighted sum of a live range's features is its priority, or scales its spill weight. Only the order of priorities
matters, so the scale of their weights is free; a sum that scales spill weights is taken as it is. CMA-ES (``cma.py``)
searches the weights.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.learner import Floats
from mlgokit.compiler.reuse.trials import IMAGE_BYTES, MEASURES, SPILL_COST
from mlgokit.policy.network import Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.problems import REGALLOC_PRIORITY, Problem

AllocationScore = Literal["spill-cost", "executed", "bytes"]

_LEAST_COST = 0.3
"""Added to a function's cost, so that a relative change is defined where there is no spill, reload or copy."""
_OTHER_INSTRUCTION = 0.2
"""Weight of an instruction that is no spill, reload or copy: what LLVM's own score gives a rematerialized one
(``llvm/lib/CodeGen/RegAllocScore.cpp``). LLVM's remarks leave those out, and saves of callee-saved registers."""
_MOST_EXECUTED = 0.03
"""Bound of a function's relative change of executed instructions."""
_EXECUTED = MEASURES.index("executed")
_COST_WEIGHTS = SPILL_COST - np.isin(MEASURES, ("spills", "reloads", "copies")) * _OTHER_INSTRUCTION
_COST_WEIGHTS[_EXECUTED] = _OTHER_INSTRUCTION
"""[9] weights of the measures in a change of spill cost that counts all other instructions too."""
_TO_MEMORY = ("spills", "reloads", "folded_spills", "folded_reloads")
_EXECUTED_WEIGHTS = np.isin(MEASURES, ("executed", *_TO_MEMORY)).astype(np.float64)
"""[9] weights of the measures in executed instructions, with the allocator's loads and stores counted twice."""
_BYTE_WEIGHTS = np.where(np.arange(len(MEASURES)) > _EXECUTED, IMAGE_BYTES, 0.0)
"""[9] weights of the measures in bytes of code and tables."""


def changes(before: Floats, after: Floats, score: AllocationScore) -> Floats:
    """Compute by how much the scores [N] of N functions increased, which is how much worse they became.

    Args:
        before: [N, 9] the :data:`~mlgokit.compiler.reuse.trials.MEASURES` of the functions before.
        after: [N, 9] their measures after.
        score: percent of the cost of spills, reloads, copies and added instructions, clipped to 100; thousandths of the
            instructions that one call executes by LLVM's estimate, with spills and reloads counted twice, clipped to 30
            so that no single function dominates; or bytes of code and tables.

    Example:
        >>> before, after = np.zeros((1, 9)), np.zeros((1, 9))
        >>> before[0, 1], after[0, 1] = 10.0, 9.0
        >>> changes(before, after, "spill-cost").round(2).tolist()
        [-9.9]
    """
    if score == "spill-cost":
        then, more = before @ SPILL_COST, (after - before) @ _COST_WEIGHTS
        return 100 * np.clip(np.log((np.maximum(then + more, 0) + _LEAST_COST) / (then + _LEAST_COST)), -1, 1)
    if score == "executed":
        then, now = before @ _EXECUTED_WEIGHTS, after @ _EXECUTED_WEIGHTS
        return 1000 * np.clip((now - then) / np.maximum(then, 1e-9), -_MOST_EXECUTED, _MOST_EXECUTED)
    return (after - before) @ _BYTE_WEIGHTS


def additive_scores(before: Floats, after: Floats, score: AllocationScore) -> tuple[Floats, Floats]:
    """Compute scores [N] of N functions before and after, which may be summed over functions.

    Scores that are relative (spill cost, executed instructions) are 100 and 1000 before.

    Args:
        before: [N, 9] the :data:`~mlgokit.compiler.reuse.trials.MEASURES` of the functions before.
        after: [N, 9] their measures after; NaN where the allocation failed, which has a penalty.
        score: the score and its unit, as in :func:`changes`.
    """
    works: npt.NDArray[np.bool_] = np.all(np.isfinite(after), axis=1)
    worse = changes(before, np.where(works[:, None], after, before), score)
    then = (
        before @ _BYTE_WEIGHTS if score == "bytes" else np.full(len(before), 100.0 if score == "spill-cost" else 1000.0)
    )
    return then, np.where(works, then + worse, _FAILURE_FACTOR * then)


_MOST_UNITS = 15.5
"""Bound of a policy's output for any live range, so that none is clipped (docs/formats.md, "The arithmetic")."""
_FAILURE_FACTOR = 2.0
"""A policy that fails on a function gets this multiple of the function's score before."""


GATES: dict[AllocationScore, Gate] = {
    "bytes": Gate(feature="is_minsize", margins=(math.inf, 0.0)),
    "executed": Gate(feature="is_minsize", margins=(0.0, math.inf)),
    "spill-cost": Gate(feature="is_minsize", margins=(0.0, math.inf)),
}
"""Gates of policies by score: policies for bytes act only in functions with ``minsize``, the others in all others."""


def linear_policy(
    problem: Problem, features: Sequence[str], normaliser: SignedLog, weights: Floats, *, gate: Gate | None = None
) -> Policy:
    """Make the policy with weights [F], one for each feature; the gate's feature is added without a weight.

    Example:
        >>> ones = np.ones(2, np.float32)
        >>> normaliser, weights = SignedLog(mean=0 * ones, scale=ones, clip=4.0), np.array([3.0, -1.0])
        >>> policy = linear_policy(REGALLOC_PRIORITY, ["a", "b"], normaliser, weights)
        >>> policy.units(np.array([[1.0, 0.0], [0.0, 1.0]])).round(3).tolist()
        [2.015, -0.672]
    """
    if problem is REGALLOC_PRIORITY:
        weights = weights * _MOST_UNITS / (normaliser.clip * max(float(np.abs(weights).sum()), 1e-9))
    scaled = weights.astype(np.float32)
    if gate is not None:
        features, scaled = (*features, gate.feature), np.append(scaled, np.float32(0))
        mean, scale = (np.append(part, np.float32(0)) for part in (normaliser.mean, normaliser.scale))
        normaliser = SignedLog(mean=mean, scale=scale, clip=normaliser.clip)
    return Policy(
        problem=problem.name,
        features=tuple(features),
        normaliser=normaliser,
        layers=(Layer(scaled.reshape(1, -1, 1), np.zeros((1, 1), np.float32)),),
        output=OutputKind.for_numbers(problem.name),
        gate=gate,
    )


def single_weights(count: int) -> Floats:
    """Make the weights [2 F, F] of policies by one of F features alone, in either direction."""
    return np.concatenate([np.eye(count), -np.eye(count)])


def rewards(measured: Floats, project: npt.NDArray[np.int64], score: AllocationScore) -> Floats:
    """Compute rewards [P]: percent of improvement, projects weighted by the root of their number of functions.

    Args:
        measured: [N, 1 + P, 9] of :data:`~mlgokit.compiler.reuse.trials.MEASURES`: N functions as LLVM allocates them,
            and under P policies; NaN where a policy failed.
        project: [N] number of each function's project.
        score: score that the policies are to improve.
    """
    before = measured[:, 0]
    then = additive_scores(before, before, score)[0]
    found: list[Floats] = []
    shares: list[float] = []
    columns = [additive_scores(before, measured[:, place], score)[1] for place in range(1, measured.shape[1])]
    now = np.stack(columns, axis=1)
    for number in np.unique(project):
        mine = project == number
        found.append(1 - now[mine].sum(axis=0) / max(float(then[mine].sum()), 1e-9))
        shares.append(float(np.sqrt(mine.sum())))
    return 100 * np.average(np.stack(found), axis=0, weights=shares)
