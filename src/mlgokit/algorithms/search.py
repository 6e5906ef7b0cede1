"""Local search over the decisions of one module: many independent flips in one compilation, kept by component.

Two flips are independent if they cannot change the same function. So one compilation tries flips in many parts of the
call graph, and :func:`mlgokit.algorithms.credit.attribute` tells their gains apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Credit, Ints, ScoredBuild, closure
from mlgokit.algorithms.learner import ForcedDecisions
from mlgokit.algorithms.moves import like_decisions

LARGEST_MOVE = 12
"""Decisions about one callee that are flipped together; more of them rarely all pay."""


def moves_of(compiled: ScoredBuild) -> list[tuple[int, ...]]:
    """List the moves of a search: every single decision, and all equal decisions about one callee together.

    A local function dies only when all its calls are inlined, so that no single flip shows what that is worth.

    Example:
        >>> ids = np.array([1, 2])
        >>> none = np.zeros(2, bool)
        >>> moves_of(ScoredBuild(caller=ids, callee=np.array([3, 3]), inlined=none, flipped=none, functions=ids,
        ...                   scores=np.zeros(2)))
        [(0,), (1,), (0, 1)]
    """
    single = [(position,) for position in range(len(compiled.callee))]
    return single + [group for group in like_decisions(compiled) if 1 < len(group) <= LARGEST_MOVE]


def independent_moves(
    compiled: ScoredBuild, moves: Sequence[tuple[int, ...]], order: Iterable[int], *, most: int
) -> list[int]:
    """Choose moves for one compilation, no two of which can change the same function.

    Args:
        compiled: the compilation to start from; T decisions.
        moves: for each move the positions of the decisions that it flips.
        order: indices of moves, the most promising first; moves that it lacks are not made.
        most: maximum number of moves.

    Example:
        >>> ids = np.array([1, 1, 2])
        >>> none = np.zeros(3, bool)
        >>> run = ScoredBuild(caller=ids, callee=np.array([3, 4, 5]), inlined=none, flipped=none, functions=ids,
        ...                scores=np.zeros(3))
        >>> independent_moves(run, [(0,), (1,), (2,)], [0, 1, 2], most=9)
        [0, 2]
    """
    callers, callees = compiled.caller.tolist(), compiled.callee.tolist()
    inliners: dict[int, set[int]] = {}
    for position in np.flatnonzero(compiled.inlined).tolist():
        inliners.setdefault(callees[position], set()).add(callers[position])
    reach: dict[int, frozenset[int]] = {}
    taken: set[int] = set()
    chosen: list[int] = []
    for index in order:
        if len(chosen) >= most:
            break
        touched: set[int] = set()
        for position in moves[index]:
            caller = callers[position]
            if caller not in reach:
                reach[caller] = closure(caller, inliners)
            touched |= reach[caller] | {callees[position]}
        if taken.isdisjoint(touched):
            taken |= touched
            chosen.append(index)
    return chosen


def independent_flips(base: ScoredBuild, sites: npt.NDArray[np.int64], *, most: int, seed: int) -> ForcedDecisions:
    """Flip decisions of ``base`` by moves of which no two can change the same function; returns all decisions.

    Args:
        base: a compilation; T decisions.
        sites: [T] its call sites.
        most: maximum number of moves, each of one decision or of all equal decisions about one callee.
        seed: seed of the order in which moves are considered.

    Example:
        >>> ids = np.array([1, 1, 2])
        >>> none = np.zeros(3, bool)
        >>> run = ScoredBuild(caller=ids, callee=np.array([3, 4, 5]), inlined=none, flipped=none, functions=ids,
        ...                scores=np.zeros(3))
        >>> independent_flips(run, np.array([10, 12, 14]), most=9, seed=1).decisions.tolist()
        [1, 0, 1]
    """
    moves = moves_of(base)
    order = np.random.default_rng(seed).permutation(len(moves))
    decisions = base.inlined.astype(np.int64)
    for index in independent_moves(base, moves, order.tolist(), most=most):
        places = list(moves[index])
        decisions[places] = 1 - decisions[places]
    return ForcedDecisions(sites=sites, decisions=decisions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which of the N flips of one compilation to keep.

    Attributes:
        kept: [N] whether the flip is kept because its component became smaller.
        gain: sum of bytes that the kept components save, if components are independent.
    """

    kept: npt.NDArray[np.bool_]
    gain: float


def judge(credit: Credit) -> Verdict:
    """Keep the flips of every component that became smaller by at least half a byte: scores have shares of bytes."""
    better = credit.change <= -0.5
    return Verdict(kept=better[credit.component], gain=-float(credit.change[better].sum()))


def functions_as_before(credit: Credit, kept: npt.NDArray[np.bool_]) -> Ints:
    """Find the functions to take from the base, so that only the kept flips are made; returns their ids.

    These are the functions that a component which is not kept reaches. If a kept one reaches such a function too, its
    score is the same in both compilations (:class:`~mlgokit.algorithms.credit.Credit`). All other functions are as in
    the explored compilation.

    Args:
        credit: credit assignment of the explored compilation; N flips.
        kept: [N] whether each flip is kept, the same for all flips of a component.

    Example:
        Of two flips, in the functions 1 and 2, which both call function 3, the first is kept.

        >>> credit = Credit(flips=np.array([0, 1]), component=np.array([0, 1]), change=np.array([-4.0, 9.0]),
        ...                 unattributed=0.0, reached=np.array([1, 2, 3, 3]), reached_by=np.array([0, 1, 0, 1]))
        >>> functions_as_before(credit, np.array([True, False])).tolist()
        [2, 3]
    """
    return np.unique(credit.reached[np.isin(credit.reached_by, credit.component[~kept])])
