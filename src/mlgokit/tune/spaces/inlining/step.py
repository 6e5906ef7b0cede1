"""One step of the search on one module: many independent flips in one compilation, kept by component.

A step compiles once. The build with the kept flips alone is composed of what is known, and the next step goes
on from there; so each exploration also shows whether that was right, where its own flips do not reach. Now and then,
and before the search ends, the composed build is compiled. Only builds that were compiled are in the account.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import ScoredBuild, attribute
from mlgokit.algorithms.effects import measured_effects
from mlgokit.algorithms.search import functions_as_before, independent_moves, judge, moves_of
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.decisions import entry_of, table_bytes
from mlgokit.tune.spaces.inlining.compose import compose
from mlgokit.tune.spaces.inlining.merge import scored, smaller_parts
from mlgokit.tune.spaces.inlining.state import Keys, ModuleState, StepResult

Floats = npt.NDArray[np.float64]
Rank = Callable[[Compilation], Floats]
"""For each decision [T] the bytes that flipping it is expected to save."""
Propose = Callable[[ScoredBuild], list[tuple[int, ...]]]
"""The moves that may be made from a build, each as positions of the decisions that it flips."""

COMPOSED = 8
"""Builds that are composed one from the other before the last one is compiled."""


def compile_decided(
    compiler: Compiler,
    module: Module,
    decisions: Mapping[int, bool] | None = None,
    names: Keys | None = None,
    *,
    policy: str = HEURISTIC,
    keep_object: Path | None = None,
) -> Compilation:
    """Compile a module under the plugin: by ``decisions`` where they know the call site, else by ``policy``."""
    table = b"" if decisions is None else table_of(decisions, names)
    return compiler.compile(module, request_of(table, policy=policy, keep_object=keep_object))


def table_of(decisions: Mapping[int, bool], names: Keys | None = None) -> bytes:
    """The decision table of one module, which has these ``names``; every module if it has none."""
    keys, inlined = np.array(list(decisions), np.uint64), np.array(list(decisions.values()), bool)
    return table_bytes([entry_of(() if names is None else names, keys, inlined)])


def request_of(table: bytes = b"", *, policy: str = HEURISTIC, keep_object: Path | None = None) -> CompileRequest:
    """What the search asks of a compilation: to decide by a table where it knows the call site, else by ``policy``."""
    use = PluginUse(policies={INLINE_SIZE.name: policy}, logs=(INLINE_SIZE.name,), decisions=table, log_default=False)
    return CompileRequest(use=use, keep_object=keep_object, reuse=True)


def indifferent(build: Compilation) -> Floats:
    """The rank that expects nothing of any decision."""
    return np.zeros(len(build.decisions))


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePriority:
    """What a step tries first, and how much of it.

    Attributes:
        rank: what is expected of each decision.
        noise: scale of the random part of the order, in bytes.
        most: moves made at once.
        tries: how often a move may fail before it is left alone.
    """

    rank: Rank
    noise: float
    most: int
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exploration:
    """What one compilation is to try.

    Attributes:
        base: the build that it departs from.
        flips: by key of the call site, the key of the move that flips it.
    """

    base: Compilation
    flips: Mapping[int, int]

    @property
    def moves(self) -> frozenset[int]:
        """Keys of the moves."""
        return frozenset(self.flips.values())


def step(
    compiler: Compiler,
    state: ModuleState,
    account: ProjectAccount,
    *,
    lock: threading.Lock,
    priority: MovePriority,
    rng: np.random.Generator,
    propose: Propose = moves_of,
) -> StepResult:
    """Flip many independent decisions of a module in one compilation, and keep those that paid.

    Or, if that is due or nothing is left to try, compile what was composed.

    Args:
        compiler: compiles.
        state: the module; not changed here.
        account: the project's, read under ``lock``, for other modules change while this one is compiled.
        lock: of the account.
        priority: what to try first.
        rng: of the random part of the priority.
        propose: the moves that there are.
    """
    if is_due(state):
        return confirm_composed(compiler, state, account, lock=lock)
    chosen = choose(state, account, lock=lock, priority=priority, rng=rng, propose=propose)
    if not chosen.flips:
        return confirm_composed(compiler, state, account, lock=lock)
    return explore(compiler, state, account, chosen, lock=lock)


def is_due(state: ModuleState) -> bool:
    """Whether so many builds were composed that the last one is to be compiled."""
    return state.composed is not None and state.composed_steps >= COMPOSED


def choose(
    state: ModuleState,
    account: ProjectAccount,
    *,
    lock: threading.Lock,
    priority: MovePriority,
    rng: np.random.Generator,
    propose: Propose = moves_of,
) -> Exploration:
    """The moves that are made next, of which no two can change the same function; none if nothing is left to try.

    Moves that other steps make meanwhile are left to these.
    """
    build, name = state.composed or state.build, state.module.name
    with lock:
        base, _ = scored(build, account, name)
    moves = propose(base)
    keys = build.decisions.sites.tolist()
    names = [move_key([keys[position] for position in move]) for move in moves]
    expected = priority.rank(build)
    worth = np.array([float(expected[list(move)].sum()) for move in moves])
    worth += priority.noise * rng.gumbel(size=len(moves))
    ranked: list[int] = np.argsort(-worth).tolist()
    wanted = [
        index for index in ranked if state.tried[names[index]] < priority.tries and names[index] not in state.claimed
    ]
    made = independent_moves(base, moves, wanted, most=priority.most)
    return Exploration(base=build, flips={keys[position]: names[index] for index in made for position in moves[index]})


def explore(
    compiler: Compiler, state: ModuleState, account: ProjectAccount, chosen: Exploration, *, lock: threading.Lock
) -> StepResult:
    """Make the chosen moves in one compilation, and keep those that paid."""
    build, name, every = chosen.base, state.module.name, chosen.flips
    decisions = build.decisions.by_site
    flipped = decisions | {key: not decisions[key] for key in every}
    explored = compile_decided(compiler, state.module, flipped, state.names)
    vain = StepResult(
        composed=state.composed,
        composed_steps=state.composed_steps,
        failed=chosen.moves,
        compilations=1,
        user_seconds=explored.user_seconds,
        flips=len(every),
        base=build,
        made=chosen.moves,
    )
    if not explored.ok:
        return vain
    with lock:
        base, _ = scored(build, account, name)
        after, _ = scored(explored, account, name, np.array(list(every), np.uint64))
    credit = attribute(base, after, ties_consequences=True)
    if not len(credit.flips):
        return vain
    verdict = judge(credit)
    vain = dataclasses.replace(vain, effects=measured_effects(explored, credit, project=name))
    if not verdict.kept.any() and state.composed is None:
        return vain
    kept = frozenset(explored.decisions.sites[credit.flips[verdict.kept]].tolist())
    tried = dataclasses.replace(
        vain,
        failed=frozenset(move for key, move in every.items() if key not in kept),
        kept=len(kept),
        saved=verdict.gain,
    )
    # What no flip that is taken back has touched, was compiled as it is.
    composed = None if verdict.kept.all() else compose(build, explored, functions_as_before(credit, verdict.kept))
    return _settled(tried, state, account, explored, composed, lock=lock)


def confirm_composed(
    compiler: Compiler, state: ModuleState, account: ProjectAccount, *, lock: threading.Lock
) -> StepResult:
    """Compile what was composed, and go on from that; or from those parts of it that are smaller than the best build.

    If there are none, from the best build that was compiled.
    """
    if state.composed is None:
        return StepResult()
    real = compile_decided(compiler, state.module, state.composed.decisions.by_site, state.names)
    done = StepResult(compilations=1, user_seconds=real.user_seconds, base=state.composed, confirms=True)
    if not real.ok:
        return _settled(done, state, account, None, None, lock=lock)
    with lock:
        parts = smaller_parts(state.build, real, account, state.module.name)
    return _settled(done, state, account, real, None if parts.all_smaller else parts.build, lock=lock)


def _settled(
    done: StepResult,
    state: ModuleState,
    account: ProjectAccount,
    real: Compilation | None,
    composed: Compilation | None,
    *,
    lock: threading.Lock,
) -> StepResult:
    """The step with what to go on from: the composed build, else the real one, if it is smaller than the best one."""
    name = state.module.name
    with lock:
        best, known = scored(state.build, account, name)
        total = known if real is None else scored(real, account, name)[1]
        promises = composed is not None and scored(composed, account, name)[1] < min(known, total)
    smaller = total < known
    done = dataclasses.replace(
        done,
        # Flips that are taken back would shift what other modules answer for.
        build=real if smaller and (done.confirms or not promises) else None,
        composed=composed if promises else None,
        composed_steps=(0 if done.confirms else state.composed_steps) + (done.confirms or bool(done.kept))
        if promises
        else 0,
    )
    if smaller or promises:
        return done
    # What the flips since the best build seemed to save is not there.
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
