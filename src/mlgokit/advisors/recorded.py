"""From a recorded log to decisions that can be replayed."""

import numpy as np
from numpy.typing import NDArray

from mlgokit.advisors.advisor import Advice
from mlgokit.errors import UsageError
from mlgokit.problems import Problem
from mlgokit.spec import AdviceKind
from mlgokit.traces import Log

_MOST_RANKS = 2**24


def recorded_decisions(log: Log, column: str) -> dict[str, list[Advice]]:
    """The values of ``column`` by context [T of the context], in the order of its observations.

    Raises:
        UsageError: the log has no such column, or one of more than one element.
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
    """The heuristic's decisions by context, as they can be answered: replayed, they reproduce the heuristic's object.

    Priorities become :func:`dense_ranks`; all other decisions are what they are.

    Raises:
        UsageError: the log has no column with the heuristic's decision.
    """
    by_context = recorded_decisions(log, problem.default_decision)
    if problem.advice_kind is not AdviceKind.REAL:
        return by_context
    return {name: dense_ranks(np.array(values)).tolist() for name, values in by_context.items()}


def dense_ranks(priorities: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Priorities [T] of one function as their ranks, equal ones alike, so that 32-bit floats hold them.

    The heuristic's priority is an unsigned integer that uses bits 24 to 31 as flags, and the channel carries 32-bit
    floats, which hold only 24 bits: sent as they are, different priorities would become equal. Nothing but their order
    matters: the allocator's queue holds pairs of priority and inverted register number, and takes the largest
    (``RAGreedy::enqueue`` and ``RAGreedy::dequeue`` in ``llvm/lib/CodeGen/RegAllocGreedy.cpp``); it is empty between
    functions.

    Raises:
        UsageError: there are more different priorities than 32-bit floats have neighbouring whole numbers.

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
