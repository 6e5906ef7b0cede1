"""Moves of several decisions at once, by which a search leaves local optima of single flips.

Two callees may have to be decided together, all calls inside one function, or a callee with its own calls. There are
too many of these to try all, so they are sampled.
"""

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import ScoredBuild

Moves = list[tuple[int, ...]]
_Key = TypeVar("_Key", bound=Hashable)
_PAIRS = 32
"""Maximum pairs drawn for each caller."""
_BRANCHES = 3
"""Maximum decisions by which a neighbourhood grows at one decision, so that it is no star around one function."""


def _positions_by(keys: Iterable[tuple[int, _Key]]) -> dict[_Key, list[int]]:
    """Group positions by key, in order."""
    found: dict[_Key, list[int]] = {}
    for position, key in keys:
        found.setdefault(key, []).append(position)
    return found


def like_decisions(compiled: ScoredBuild, *, by_caller: bool = False) -> Moves:
    """Group equal decisions about one callee, or in one caller; groups of one decision are included.

    Example:
        >>> ids, none = np.array([1, 2]), np.zeros(2, bool)
        >>> run = ScoredBuild(caller=ids, callee=np.array([3, 3]), inlined=none, flipped=none, functions=ids,
        ...                scores=np.zeros(2))
        >>> like_decisions(run), like_decisions(run, by_caller=True)
        ([(0, 1)], [(0,), (1,)])
    """
    of = compiled.caller if by_caller else compiled.callee
    groups = _positions_by(enumerate(zip(of.tolist(), compiled.inlined.tolist(), strict=True)))
    return [tuple(group) for group in groups.values()]


def moves_towards(compiled: ScoredBuild, wanted: npt.NDArray[np.bool_], *, by_caller: bool) -> Moves:
    """List one move for each caller, or callee: the flips after which all its calls are decided as in ``wanted`` [T].

    Example:
        >>> ids, none = np.array([1, 2]), np.zeros(2, bool)
        >>> run = ScoredBuild(caller=ids, callee=np.array([3, 3]), inlined=none, flipped=none, functions=ids,
        ...                scores=np.zeros(2))
        >>> moves_towards(run, ~none, by_caller=False), moves_towards(run, np.array([True, False]), by_caller=True)
        ([(0, 1)], [(0,)])
    """
    of = compiled.caller if by_caller else compiled.callee
    departing = np.flatnonzero(wanted != compiled.inlined)
    groups = _positions_by(zip(departing.tolist(), of[departing].tolist(), strict=True))
    return [tuple(group) for group in groups.values()]


def related_pairs(compiled: ScoredBuild, rng: np.random.Generator) -> Moves:
    """Pair groups of equal decisions about two callees with a common caller; sampled where a caller has many."""
    groups = like_decisions(compiled)
    inside: dict[int, set[int]] = {}
    for index, group in enumerate(groups):
        for position in group:
            inside.setdefault(int(compiled.caller[position]), set()).add(index)
    chosen: set[tuple[int, int]] = set()
    for found in inside.values():
        members = sorted(found)
        if len(members) * (len(members) - 1) // 2 <= _PAIRS:
            pairs = set(itertools.combinations(members, 2))
        else:
            drawn: list[list[int]] = rng.integers(len(members), size=(_PAIRS, 2)).tolist()
            pairs = {(members[min(pair)], members[max(pair)]) for pair in drawn if pair[0] != pair[1]}
        chosen |= pairs
    return [groups[first] + groups[second] for first, second in sorted(chosen)]


def chains(compiled: ScoredBuild, rng: np.random.Generator) -> Moves:
    """Join equal decisions about a callee with decisions in its body: those to inline, the others, or a random half."""
    callers: list[int] = compiled.caller.tolist()
    inside = _positions_by(enumerate(callers))
    moves: Moves = []
    for group in like_decisions(compiled):
        own = [each for each in inside.get(int(compiled.callee[group[0]]), []) if each not in group]
        parts = [[each for each in own if compiled.inlined[each] == kind] for kind in (True, False)]
        parts.append([each for each in own if rng.random() < 0.5])
        moves.extend(group + tuple(part) for part in parts if part)
    return moves


def draw_halves(groups: Sequence[tuple[int, ...]], rng: np.random.Generator) -> Moves:
    """Draw a random half of each group; halves with fewer than two members are left out."""
    halves = [tuple(each for each in group if rng.random() < 0.5) for group in groups]
    return [half for half in halves if len(half) > 1]


def neighbourhood(compiled: ScoredBuild, size: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Grow a connected set of at most ``size`` decisions in the call graph from a random one.

    Example:
        >>> ids, none = np.array([1, 2, 7]), np.zeros(3, bool)
        >>> run = ScoredBuild(caller=ids, callee=np.array([2, 3, 8]), inlined=none, flipped=none, functions=ids,
        ...                scores=np.zeros(3))
        >>> sorted(neighbourhood(run, 3, np.random.default_rng(1)))
        [0, 1]
    """
    callers, callees = compiled.caller.tolist(), compiled.callee.tolist()
    at: dict[int, list[int]] = {}
    for position, ends in enumerate(zip(callers, callees, strict=True)):
        for end in ends:
            at.setdefault(end, []).append(position)
    start = int(rng.integers(len(callers)))
    found, front = [start], [start]
    seen = {start}
    while front and len(found) < size:
        position = front.pop(int(rng.integers(len(front))))
        near = [each for end in (callers[position], callees[position]) for each in at[end]]
        fresh = sorted(set(near) - seen)
        chosen = rng.permutation(fresh).tolist()[: min(_BRANCHES, size - len(found))]
        seen.update(chosen)
        found.extend(chosen)
        front.extend(chosen)
    return tuple(found)
