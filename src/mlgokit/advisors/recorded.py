"""Extracts decisions from a training log, for replay."""

import numpy as np
from numpy.typing import NDArray

from mlgokit.advisors.advisor import Advice
from mlgokit.errors import UsageError
from mlgokit.problems import Problem
from mlgokit.spec import AdviceKind
from mlgokit.traces import Log

_MOST_RANKS = 2**24


def recorded_decisions(log: Log, column: str) -> dict[str, list[Advice]]:
    """Collect the values of a log's column by context, in the order of the context's observations.

    Raises:
        UsageError: the log lacks the column, or it has more than one element per observation.
    """
    values = log.columns.get(column)
    if values is None or values.size != log.observation_count:
        raise UsageError(
            f"recorded decisions: expected a column {column!r} of one element, "
            f"found {', '.join(log.columns) or 'none'}; name the column of the decision, or collect a log that has it"
        )
    flat = values.reshape(-1)
    by_context: dict[str, list[Advice]] = {}
    for span in log.contexts:
        by_context.setdefault(span.name, []).extend(flat[span.start : span.stop].tolist())
    return by_context


def default_decisions(log: Log, problem: Problem) -> dict[str, list[Advice]]:
    """Collect the heuristic's decisions by context, so that their replay reproduces the heuristic's object.

    Priorities become :func:`dense_ranks`; all other decisions are taken unchanged.

    Raises:
        UsageError: the log has no column with the heuristic's decision.
    """
    by_context = recorded_decisions(log, problem.default_decision)
    if problem.advice_kind is not AdviceKind.REAL:
        return by_context
    return {name: dense_ranks(np.array(values)).tolist() for name, values in by_context.items()}


def dense_ranks(priorities: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace the priorities [T] of one function by their ranks, with equal ranks for equal priorities.

    The heuristic's priority is an unsigned integer that uses bits 24 to 31 as flags, and the channel carries 32-bit
    floats, which hold only 24 bits: sent unchanged, different priorities would become equal. Ranks have the same order,
    and only the order matters: the allocator's queue holds pairs of priority and inverted register number, and takes
    the largest
    (``RAGreedy::enqueue`` and ``RAGreedy::dequeue`` in ``llvm/lib/CodeGen/RegAllocGreedy.cpp``); it is empty between
    functions.

    Raises:
        UsageError: there are more than 2**24 different priorities, which are the whole numbers that 32-bit floats hold.

    Example:
        >>> dense_ranks(np.array([2**31 + 1, 7, 2**31, 7])).tolist()
        [2.0, 0.0, 1.0, 0.0]
    """
    different, ranks = np.unique(priorities, return_inverse=True)
    if len(different) > _MOST_RANKS:
        raise UsageError(
            f"dense ranks: expected at most {_MOST_RANKS} different priorities in a function, found {len(different)}; "
            "leave this function out"
        )
    return ranks.reshape(-1).astype(np.float64)
