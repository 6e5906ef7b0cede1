"""One step of the search on one module: many independent flips in one compilation, kept by component.

A step compiles once, and the next one goes on from the composed build (:mod:`mlgokit.tune.composing`); so each
exploration also shows whether that was right, where its own flips do not reach.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import ScoredBuild, function_ids, make_scored_build
from mlgokit.algorithms.effects import measured_effects
from mlgokit.algorithms.search import independent_moves, moves_of
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.live import dead_functions
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.decisions import make_entry, table_bytes
from mlgokit.tune.composing import Comparison, compare, compose
from mlgokit.tune.spaces.inlining.state import COMPOSED, Keys, ModuleState, StepResult

Floats = npt.NDArray[np.float64]
Rank = Callable[[Compilation], Floats]
"""A function that returns, for each decision [T] of a build, the bytes that flipping it is expected to save."""
Propose = Callable[[ScoredBuild], list[tuple[int, ...]]]
"""A function that returns the moves that may be made from a build, each as the positions of the decisions to flip."""


def compile_decided(
    compiler: Compiler,
    module: Module,
    decisions: Mapping[int, bool] | None = None,
    names: Keys | None = None,
    *,
    keep_object: Path | None = None,
) -> Compilation:
    """Compile a module under the plugin, by ``decisions`` at their call sites, and elsewhere as LLVM does.

    The decision table is for the module with these ``names``; for any module without names.
    """
    table = b""
    if decisions is not None:
        keys, inlined = np.array(list(decisions), np.uint64), np.array(list(decisions.values()), bool)
        table = table_bytes([make_entry(() if names is None else names, keys, inlined)])
    return compiler.compile(module, request_of(table, keep_object=keep_object))


def request_of(table: bytes = b"", *, policy: str = HEURISTIC, keep_object: Path | None = None) -> CompileRequest:
    """The request for a compilation of the search, which decides by a table, and elsewhere by ``policy``."""
    use = PluginUse(policies={INLINE_SIZE.name: policy}, logs=(INLINE_SIZE.name,), decisions=table, log_default=False)
    return CompileRequest(use=use, keep_object=keep_object, reuse=True)


def indifferent(build: Compilation) -> Floats:
    """The rank that expects no gain from any flip."""
    return np.zeros(len(build.decisions))


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePriority:
    """The order in which a step tries moves, and their number.

    Attributes:
        rank: bytes that each flip is expected to save.
        noise: scale of the random part of the order, in bytes.
        most: maximum number of moves in one compilation.
        tries: number of times that a move is tried before it is left alone.
    """

    rank: Rank
    noise: float
    most: int
    tries: int


def step(
    compiler: Compiler,
    state: ModuleState,
    account: ProjectAccount,
    *,
    priority: MovePriority,
    rng: np.random.Generator,
    propose: Propose = moves_of,
) -> StepResult:
    """Flip many independent decisions of a module in one compilation, and keep those that paid.

    If that is due, or no move is left, compile the composed build instead.

    Args:
        compiler: compiler of the module.
        state: the module; not changed here.
        account: the project's account, read under its lock, since other modules change during the compilation.
        priority: order and number of the moves.
        rng: source of the random part of the order.
        propose: function that returns the possible moves.
    """
    if state.climb.is_due:
        return confirm_composed(compiler, state, account)
    flips = choose(state, account, priority=priority, rng=rng, propose=propose)
    return explore(compiler, state, account, flips) if flips else confirm_composed(compiler, state, account)


def choose(
    state: ModuleState,
    account: ProjectAccount,
    *,
    priority: MovePriority,
    rng: np.random.Generator,
    propose: Propose = moves_of,
) -> dict[int, int]:
    """Choose the next moves, of which no two can change the same function; none if no move is left.

    Moves that steps under way have claimed are not chosen. Returns the key of the move that flips a call site, by key
    of the call site; one move may flip several.
    """
    build, name = state.current, state.module.name
    with account.lock:
        base, _ = scored(build, account, name)
    moves = propose(base)
    # What the link discards may change as it likes.
    dead = function_ids(dead_functions(build.measured))
    callers = ~np.isin(build.decisions.caller, dead)
    moves = [move for move in moves if callers[list(move)].any()]
    keys = build.decisions.sites.tolist()
    names = [move_key([keys[position] for position in move]) for move in moves]
    expected = priority.rank(build)
    worth = np.array([float(expected[list(move)].sum()) for move in moves])
    worth += priority.noise * rng.gumbel(size=len(moves))
    ranked: list[int] = np.argsort(-worth).tolist()
    wanted = [
        index
        for index in ranked
        if state.tried[names[index]] < priority.tries and names[index] not in state.climb.claimed
    ]
    made = independent_moves(base, moves, wanted, most=priority.most)
    return {keys[position]: names[index] for index in made for position in moves[index]}


def explore(compiler: Compiler, state: ModuleState, account: ProjectAccount, flips: Mapping[int, int]) -> StepResult:
    """Make the moves that :func:`choose` chose in one compilation, and keep those that paid."""
    build, name, made = state.current, state.module.name, frozenset(flips.values())
    decisions = build.decisions.by_site
    flipped = decisions | {key: not decisions[key] for key in flips}
    explored = compile_decided(compiler, state.module, flipped, state.names)
    vain = StepResult(
        composed=state.composed,
        composed_steps=state.climb.composed_steps,
        failed=made,
        compilations=1,
        user_seconds=explored.user_seconds,
        flips=len(flips),
        base=build,
        made=made,
    )
    if not explored.ok:
        return vain
    with account.lock:
        base, _ = scored(build, account, name)
        after, _ = scored(explored, account, name, np.array(list(flips), np.uint64))
    compared = compare(base, after, ties_consequences=True)
    if not len(compared.kept):
        return vain
    vain = dataclasses.replace(vain, effects=measured_effects(explored, compared.credit, project=name))
    if not compared.any_kept and state.composed is None:
        return vain
    kept = frozenset(explored.decisions.sites[compared.credit.flips[compared.kept]].tolist())
    tried = dataclasses.replace(
        vain,
        failed=frozenset(move for key, move in flips.items() if key not in kept),
        kept=len(kept),
        saved=compared.gain,
    )
    # Functions that no reverted flip reaches were compiled as they are.
    composed = None if compared.all_kept else compose(build, explored, compared.as_before())
    return _choose_next(tried, state, account, explored, composed)


def confirm_composed(compiler: Compiler, state: ModuleState, account: ProjectAccount) -> StepResult:
    """Compile the composed build, and continue from it, or from its parts that are smaller than in the best build.

    Without such parts, the search continues from the best build that was compiled.
    """
    if state.composed is None:
        return StepResult()
    real = compile_decided(compiler, state.module, state.composed.decisions.by_site, state.names)
    done = StepResult(compilations=1, user_seconds=real.user_seconds, base=state.composed, confirms=True)
    if not real.ok:
        return _choose_next(done, state, account, None, None)
    with account.lock:
        composed, all_smaller = smaller_parts(state.build, real, account, state.module.name)
    return _choose_next(done, state, account, real, None if all_smaller else composed)


def _choose_next(
    done: StepResult,
    state: ModuleState,
    account: ProjectAccount,
    real: Compilation | None,
    composed: Compilation | None,
) -> StepResult:
    """Choose the build to continue from: the composed one, or else the compiled one, if it is smaller than the best."""
    name = state.module.name
    with account.lock:
        best, known = scored(state.build, account, name)
        total = known if real is None else scored(real, account, name)[1]
        promises = composed is not None and scored(composed, account, name)[1] < min(known, total)
    smaller = total < known
    done = dataclasses.replace(
        done,
        # A compiled build with flips that do not pay would shift the bytes of other modules in the account.
        build=real if smaller and (done.confirms or not promises) else None,
        composed=composed if promises else None,
        composed_steps=(0 if done.confirms else state.climb.composed_steps) + (done.confirms or bool(done.kept))
        if promises
        else 0,
    )
    if smaller or promises:
        return done
    # The flips since the best build do not save what they seemed to.
    wanted = composed or real or state.composed
    lost = (
        frozenset[int]()
        if wanted is None
        else moves_between(best, state.build.decisions.sites, wanted.decisions.by_site)
    )
    return dataclasses.replace(done, failed=done.failed | lost, kept=0, saved=0.0)


def moves_between(base: ScoredBuild, site: Keys, decisions: Mapping[int, bool]) -> frozenset[int]:
    """Keys of the moves that lead from a build with calls at ``site`` [T] to other decisions.

    Example:
        >>> ids = np.array([1, 2])
        >>> none = np.zeros(2, bool)
        >>> base = ScoredBuild(caller=ids, callee=ids, inlined=none, flipped=none, functions=ids, scores=np.zeros(2))
        >>> moves_between(base, np.array([20, 22], np.uint64), {22: True, 24: False})
        frozenset({22})
    """
    known = site.tolist()
    differing = {
        key for key, taken in zip(known, base.inlined.tolist(), strict=True) if decisions.get(key, taken) != taken
    }
    keys = ([known[position] for position in move] for move in moves_of(base))
    return frozenset(move_key(move) for move in keys if differing.issuperset(move))


def move_key(sites: list[int]) -> int:
    """A number for the decisions of a move, the same in every build that asks for them."""
    key = len(sites) - 1
    for site in sites:
        key ^= site
    return key


def catch_up(step: StepResult, state: ModuleState, account: ProjectAccount) -> StepResult:
    """Merge the outcome of a step with those of steps that ended since it began; the caller holds the account's lock.

    Its components that are smaller than in the current build are kept. If the step compiled the build that the others
    varied, their components are merged into it likewise. If both changed a function, the better change stays.
    """
    name, current, steps_now = state.module.name, state.current, state.climb.composed_steps
    found = step.composed or step.build
    best = min(scored(one, account, name)[1] for one in (state.build, step.build) if one is not None)
    if found is None:
        # A composed build that does not save what was expected is dropped with the steps on top of it.
        kept = None if step.confirms else state.composed
        return dataclasses.replace(step, composed=kept, composed_steps=0 if kept is None else steps_now)
    if step.confirms:
        joined = smaller_parts(found, current, account, name, newer=False)[0] or step.composed
        steps = max(1, steps_now - COMPOSED + 1)
    else:
        joined = smaller_parts(current, found, account, name)[0]
        steps = steps_now + (joined is not None)
    before = scored(current, account, name)[1]
    now = before if joined is None else scored(joined, account, name)[1]
    if not step.confirms and now >= before:
        joined, now, steps = state.composed, before, steps_now
        step = dataclasses.replace(step, kept=0, saved=0.0)
    if joined is None or now >= best:
        return dataclasses.replace(step, composed=None, composed_steps=0)
    return dataclasses.replace(step, composed=joined, composed_steps=steps)


def scored(
    build: Compilation, account: ProjectAccount, name: str, flipped: Keys | None = None
) -> tuple[ScoredBuild, float]:
    """A build for credit assignment, and its module's bytes in the account; the caller holds the account's lock."""
    functions, scores, rest = account.functions(name, build.measured)
    which = np.zeros(len(build.decisions), bool) if flipped is None else np.isin(build.decisions.sites, flipped)
    return make_scored_build(build, functions, scores, flipped=which), float(scores.sum()) + rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The merged decisions of two builds of a module.

    Attributes:
        decisions: decisions of both by key of the call site; where they differ, the ones that pay.
        differing: number of call sites of both builds with different decisions.
        taken: number of these call sites whose decision is taken from the other build.
    """

    decisions: dict[int, bool]
    differing: int
    taken: int

    @property
    def is_new(self) -> bool:
        """Whether the merged decisions are those of neither build."""
        return 0 < self.taken < self.differing


def merge(best: Compilation, other: Compilation, account: ProjectAccount, name: str) -> Merged:
    """Merge into the best build of a module the components that are smaller in another build.

    Call sites that only one of the builds has are consequences of other decisions, and keep their own. The caller holds
    the lock of the account.
    """
    known, decided = best.decisions.by_site, other.decisions
    differing, compared = _compare_builds(best, other, account, name)
    places = compared.credit.flips[compared.kept]
    taken = dict(zip(decided.sites[places].tolist(), decided.inlined[places].tolist(), strict=True))
    return Merged(decisions=decided.by_site | known | taken, differing=len(differing), taken=len(taken))


def smaller_parts(
    best: Compilation, other: Compilation, account: ProjectAccount, name: str, *, newer: bool = True
) -> tuple[Compilation | None, bool]:
    """Compose the smaller components of two builds of a module; the caller holds the account's lock.

    Args:
        best: the build that other components are taken from.
        other: the build whose components are taken where they are smaller.
        account: the project's account.
        name: name of the module.
        newer: whether functions that no differing decision reaches are taken from ``other``, which was compiled later;
            otherwise from ``best``.

    Returns:
        The composed build, ``None`` if no component of ``other`` is smaller; and whether all of them are.
    """
    _, compared = _compare_builds(best, other, account, name)
    composed = compose(best, other, compared.as_before(by_default=not newer)) if compared.any_kept else None
    return composed, compared.all_kept


def _compare_builds(
    best: Compilation, other: Compilation, account: ProjectAccount, name: str
) -> tuple[list[int], Comparison]:
    """The keys of call sites that two builds decide differently, and a comparison of the builds by these decisions."""
    known = best.decisions.by_site
    differing = [key for key, inlined in other.decisions.by_site.items() if known.get(key, inlined) != inlined]
    base, _ = scored(best, account, name)
    after, _ = scored(other, account, name, np.array(differing, np.uint64))
    return differing, compare(base, after, ties_consequences=True)
