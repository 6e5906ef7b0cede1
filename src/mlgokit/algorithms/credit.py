"""Credit assignment: attribute changes of size to connected components of flips, rather than one change to a module.

Two compilations of one module are compared: under the policy, and under the policy with some decisions flipped. A flip
at a call site changes the body of the caller, of every function into which that caller is inlined, and whether callees
survive. A function whose size changed connects the flips that can explain it; each connected component of flips gets
the sum of its functions' changes. So one compilation yields as many labels as there are components, and flips in
different components add no noise to each other. ``docs/scores.md`` says why this is sound and what it misses.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.compilation import Compilation
from mlgokit.traces.function_id import function_id

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredBuild:
    """Decisions and scores of one compilation; T decisions, F functions.

    Attributes:
        caller: [T] id of the function with the call site.
        callee: [T] id of the function that is called.
        inlined: [T] whether the decision was to inline.
        flipped: [T] whether the decision departs from the policy's preference.
        functions: [F] ids of the functions in the object.
        scores: [F] their scores in bytes.
    """

    caller: Ints
    callee: Ints
    inlined: npt.NDArray[np.bool_]
    flipped: npt.NDArray[np.bool_]
    functions: Ints
    scores: Floats


@functools.lru_cache(maxsize=4096)
def function_ids(names: tuple[str, ...]) -> Ints:
    """Compute the identifiers [F] under which the plugin logs functions."""
    return np.array([function_id(name) for name in names], np.int64)


def make_scored_build(
    done: Compilation, names: tuple[str, ...], scores: Floats, *, flipped: npt.NDArray[np.bool_] | None = None
) -> ScoredBuild:
    """Combine the decisions of a compilation with scores of its functions.

    Args:
        done: the compilation, with its T decisions.
        names: [F] names of the functions in the object.
        scores: [F] scores of these functions in bytes.
        flipped: [T] whether a decision may explain changes; by default those that the compilation flipped.
    """
    decisions = done.decisions
    return ScoredBuild(
        caller=decisions.caller,
        callee=decisions.callee,
        inlined=decisions.inlined,
        flipped=decisions.flipped if flipped is None else flipped,
        functions=function_ids(names),
        scores=scores,
    )


def append_changes(build: ScoredBuild, functions: Ints, *, made: bool) -> ScoredBuild:
    """Let credit assignment explain a build by changes of single functions, such as omitted passes, instead of flips.

    Each change is appended to the T inlining decisions as a decision of its function about itself.

    Args:
        build: the build to which the N changes are appended.
        functions: [N] ids of the changed functions.
        made: whether the changes were made in this build; they are then its only flips, and otherwise it has none.

    Example:
        >>> ids, none = np.array([1, 2]), np.zeros(2, bool)
        >>> run = ScoredBuild(caller=ids, callee=ids + 2, inlined=none, flipped=~none, functions=ids, scores=np.ones(2))
        >>> append_changes(run, np.array([2]), made=True).flipped.tolist()
        [False, False, True]
    """
    none = np.zeros(len(functions), bool)
    return dataclasses.replace(
        build,
        caller=np.concatenate([build.caller, functions]),
        callee=np.concatenate([build.callee, functions]),
        inlined=np.concatenate([build.inlined, none]),
        flipped=np.concatenate([np.zeros(len(build.caller), bool), none | made]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """Changes of score by component; N flips, C components, R pairs of a function and a component.

    Attributes:
        flips: [N] positions of the flipped decisions in the explored compilation.
        component: [N] the component of each flip.
        change: [C] bytes, explored minus base.
        unattributed: sum of the absolute changes of functions that no flip explains, in bytes.
        reached: [R] ids of functions that a flip may have changed, whether their scores changed or not; one whose score
            did not change may be reached by several components.
        reached_by: [R] the component of the flip that may have changed the function.
    """

    flips: Ints
    component: Ints
    change: Floats
    unattributed: float
    reached: Ints
    reached_by: Ints


def attribute(base: ScoredBuild, explored: ScoredBuild, *, ties_consequences: bool = False) -> Credit:
    """Attribute the difference between two compilations of one module to the flips of the second.

    Args:
        base: the compilation without the flips.
        explored: the compilation with the flips.
        ties_consequences: whether LLVM inlining a call as a consequence of a flip connects that flip to those that may
            have changed the caller, as when the callee dies with its last call: components are then larger, and
            complete.

    Example:
        A flip in function 1 made it 10 bytes larger, another one in function 2 made that 4 bytes smaller.

        >>> ids = np.array([1, 2])
        >>> both = dict(caller=ids, callee=np.array([3, 3]), functions=ids)
        >>> nothing = np.array([False, False])
        >>> before = ScoredBuild(**both, inlined=nothing, flipped=nothing, scores=np.array([50.0, 60.0]))
        >>> after = ScoredBuild(**both, inlined=~nothing, flipped=~nothing, scores=np.array([60.0, 56.0]))
        >>> attribute(before, after).change.tolist()
        [10.0, -4.0]
    """
    flips = np.flatnonzero(explored.flipped)
    change = _changes(base, explored)
    inliners = _edges((base, explored), only_inlined=True)
    above: dict[int, frozenset[int]] = {}
    reach: dict[int, list[int]] = {}
    for position, index in enumerate(flips.tolist()):
        caller, callee = int(explored.caller[index]), int(explored.callee[index])
        if caller not in above:
            above[caller] = closure(caller, inliners)
        for function in above[caller] | {callee}:
            reach.setdefault(function, []).append(position)
    # A callee may live or die because its last caller now holds, or no longer holds, the call.
    callers = _edges((base, explored), only_inlined=False)
    for function in change.keys() - reach.keys():
        near = callers.get(function, set())
        tied = [position for position, index in enumerate(flips.tolist()) if near & above[int(explored.caller[index])]]
        if tied:
            reach[function] = tied
    if ties_consequences:
        _tie_consequences(base, explored, change, reach, inliners)
    explained = {function: reach[function] for function in change if function in reach}

    parent = list(range(len(flips)))
    for positions in explained.values():
        root = _find(parent, positions[0])
        for position in positions[1:]:
            parent[_find(parent, position)] = root
    roots = np.array([_find(parent, position) for position in range(len(flips))], np.int64)
    _, component = np.unique(roots, return_inverse=True)
    sums = np.zeros(int(component.max()) + 1 if len(flips) else 0)
    for function, positions in explained.items():
        sums[component[positions[0]]] += change[function]
    missed = sum(abs(change[function]) for function in change.keys() - explained.keys())
    pairs = sorted({(function, int(component[position])) for function in reach for position in reach[function]})
    reached, reached_by = np.array(pairs, np.int64).reshape(-1, 2).T
    return Credit(
        flips=flips,
        component=component.astype(np.int64),
        change=sums,
        unattributed=float(missed),
        reached=reached,
        reached_by=reached_by,
    )


def _tie_consequences(
    base: ScoredBuild,
    explored: ScoredBuild,
    change: Mapping[int, float],
    reach: dict[int, list[int]],
    inliners: dict[int, set[int]],
) -> None:
    """Connect flips that changed a callee to callers that newly inlined it without a flip."""
    unasked = explored.inlined & ~explored.flipped
    before, after = (
        Counter(zip(run.caller[which].tolist(), run.callee[which].tolist(), strict=True))
        for run, which in ((base, base.inlined), (explored, unasked))
    )
    for caller, callee in sorted(after - before):
        if callee not in change or callee not in reach:
            continue
        causes = reach[callee]
        for function in closure(caller, inliners):
            reach[function] = sorted({*reach.get(function, ()), *causes})


def _changes(base: ScoredBuild, explored: ScoredBuild) -> dict[int, float]:
    """Compute the change of score of each function whose score differs, explored minus base."""
    ids, inverse = np.unique(np.concatenate([explored.functions, base.functions]), return_inverse=True)
    total = np.bincount(inverse, np.concatenate([explored.scores, -base.scores]), minlength=len(ids))
    moved = np.flatnonzero(np.abs(total) > 1e-6)
    return dict(zip(ids[moved].tolist(), total[moved].tolist(), strict=True))


def _edges(runs: Iterable[ScoredBuild], *, only_inlined: bool) -> dict[int, set[int]]:
    """Map each callee to the callers that asked about it, or with ``only_inlined`` to those that inlined it."""
    edges: dict[int, set[int]] = {}
    for run in runs:
        keep = run.inlined if only_inlined else slice(None)
        for caller, callee in zip(run.caller[keep].tolist(), run.callee[keep].tolist(), strict=True):
            edges.setdefault(callee, set()).add(caller)
    return edges


def closure(start: int, inliners: dict[int, set[int]]) -> frozenset[int]:
    """Collect ``start`` and all functions that it was inlined into, directly or transitively."""
    seen = {start}
    todo = [start]
    while todo:
        for caller in inliners.get(todo.pop(), ()):
            if caller not in seen:
                seen.add(caller)
                todo.append(caller)
    return frozenset(seen)


def _find(parent: list[int], position: int) -> int:
    """Find the root of a position in a union-find forest, and shorten the path to it."""
    while parent[position] != position:
        parent[position] = parent[parent[position]]
        position = parent[position]
    return position
