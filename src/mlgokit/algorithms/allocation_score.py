"""What an allocation of registers is judged by: its spills, the instructions executed, or the bytes of code."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.reuse.trials import IMAGE_BYTES, MEASURES, SPILL_COST

Floats = npt.NDArray[np.float64]
AllocationScore = Literal["spill-cost", "executed", "bytes"]

_LEAST_COST = 0.3
_REST = 0.2
"""Weight of an instruction that is no spill, reload or copy: what LLVM's own score gives one that is made again instead
of being reloaded (``llvm/lib/CodeGen/RegAllocScore.cpp``). LLVM's record leaves those out, and what saves registers."""
_MOST_EXECUTED = 0.03
_EXECUTED = MEASURES.index("executed")
_WITH_THE_REST = SPILL_COST - np.isin(MEASURES, ("spills", "reloads", "copies")) * _REST
_WITH_THE_REST[_EXECUTED] = _REST
_TO_MEMORY = ("spills", "reloads", "folded_spills", "folded_reloads")
_WITH_MEMORY = np.isin(MEASURES, ("executed", *_TO_MEMORY)).astype(np.float64)
"""Instructions, and once more those that go to memory for the allocator: programs pay loads and stores, too."""
_OF_BYTES = np.where(np.arange(len(MEASURES)) > _EXECUTED, IMAGE_BYTES, 0.0)


def changes(before: Floats, after: Floats, score: AllocationScore) -> Floats:
    """[N] by how much functions got worse.

    Args:
        before: [N, 9] of :data:`~mlgokit.compiler.reuse.trials.MEASURES`.
        after: [N, 9] the same.
        score: percent of what spills, reloads and copies cost and other instructions add, at most 100; parts in a
            thousand of the instructions that one call executes by LLVM's estimate, spills and reloads twice, at most
            30, as single functions would decide alone otherwise; or bytes of code and tables.

    Example:
        >>> before, after = np.zeros((1, 9)), np.zeros((1, 9))
        >>> before[0, 1], after[0, 1] = 10.0, 9.0
        >>> changes(before, after, "spill-cost").round(2).tolist()
        [-9.9]
    """
    if score == "spill-cost":
        then, more = before @ SPILL_COST, (after - before) @ _WITH_THE_REST
        return 100 * np.clip(np.log((np.maximum(then + more, 0) + _LEAST_COST) / (then + _LEAST_COST)), -1, 1)
    if score == "executed":
        then, now = before @ _WITH_MEMORY, after @ _WITH_MEMORY
        return 1000 * np.clip((now - then) / np.maximum(then, 1e-9), -_MOST_EXECUTED, _MOST_EXECUTED)
    return (after - before) @ _OF_BYTES


def in_score(before: Floats, after: Floats, score: AllocationScore) -> tuple[Floats, Floats]:
    """[N] scores of functions before and after, which may be added up: those in parts begin with 100 or 1000 each.

    Args:
        before: [N, 9] of :data:`~mlgokit.compiler.reuse.trials.MEASURES`.
        after: [N, 9] the same.
        score: as in :func:`changes`.
    """
    worse = changes(before, after, score)
    then = before @ _OF_BYTES if score == "bytes" else np.full(len(before), 100.0 if score == "spill-cost" else 1000.0)
    return then, then + worse
