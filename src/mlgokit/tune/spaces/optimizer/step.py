"""One step of the search on one module: passes left out of many functions in one compilation, kept by component.

Leaving a pass out changes a function and all those that it is inlined into, as flipping a decision does. So moves that
cannot change the same function are made together, and what of them paid is told by component
(:mod:`mlgokit.algorithms.credit`). A function that would execute more instructions than it may, by LLVM's estimate,
speaks against its component. The build with the kept moves alone is composed of what is known, and compiled now and
then; only builds that were compiled are in the account.
"""

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Credit, ScoredBuild, attribute, function_ids, scored_build
from mlgokit.algorithms.search import functions_as_before, independent_moves, judge
from mlgokit.compiler.compilation import Compilation, no_decisions
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.objects.function_id import function_id
from mlgokit.compiler.pass_changes import PassChanges
from mlgokit.compiler.reuse.trials import pass_number
from mlgokit.tune.spaces.inlining.compose import compose
from mlgokit.tune.spaces.optimizer.candidates import EXCLUDED, FIRST, MINSIZE
from mlgokit.tune.spaces.optimizer.state import EACH_TIME, LeftOut, PassModule

COMPOSED = 6
"""Builds that are composed one from the other before the last one is compiled."""
_EVERY = 1.5
"""Leaving a pass out each time saves so many times what leaving it out once does, as a guess."""
_ROUNDING = 1e-6
"""Part by which an estimate may be larger and is the same."""

CompileWith = Callable[[PassModule, frozenset[LeftOut]], Compilation]
"""Compiles a module with passes left out; the build has the decisions of the inliner."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassStep:
    """What one step did.

    Attributes:
        build: what to go on from, with ``left_out`` and ``composed_steps``; ``None`` where that stays.
        left_out: what does not run in it.
        composed_steps: how many steps with gains it is ahead of the last build that was compiled; 0 if it was.
        made: the moves that were made.
        vain: those of them that gave nothing.
        saved: bytes that the others did.
        compilations: how many were made.
        user_seconds: their processor time.
        trials: none; each variant is a compilation here.
    """

    build: Compilation | None = None
    left_out: frozenset[LeftOut] = frozenset()
    composed_steps: int = 0
    made: frozenset[LeftOut] = frozenset()
    vain: frozenset[LeftOut] = frozenset()
    saved: float = 0.0
    compilations: int = 0
    user_seconds: float = 0.0
    trials: int = 0


def step(
    compile_with: CompileWith,
    unit: PassModule,
    account: ProjectAccount,
    *,
    lock: threading.Lock,
    slowdown: float,
    rng: np.random.Generator,
    most: int = 256,
) -> PassStep:
    """Leave passes out of many functions of a module, or let them run again, and keep what paid.

    Or, if that is due or nothing is left to try, compile what was composed.

    Args:
        compile_with: compiles.
        unit: the module; not changed here.
        account: the project's, read under ``lock``.
        lock: of the account.
        slowdown: part by which a function may execute more instructions than with all passes.
        rng: of the random part of the order.
        most: moves made at once.
    """
    if unit.composed_steps >= COMPOSED:
        return confirm(compile_with, unit, account, lock=lock)
    moves, worth = moves_of(unit)
    worth += rng.gumbel(size=len(moves))
    with lock:
        base = with_moves(unit, account, moves, unit.build)
    single = [(len(unit.build.decisions) + index,) for index in range(len(moves))]
    made = independent_moves(base, single, np.argsort(-worth).tolist(), most=most)
    if not made:
        return confirm(compile_with, unit, account, lock=lock) if unit.composed_steps else PassStep()
    chosen = [moves[index] for index in made]
    explored = compile_with(unit, unit.left_out ^ frozenset(chosen))
    vain = PassStep(made=frozenset(chosen), vain=frozenset(chosen), compilations=1, user_seconds=explored.user_seconds)
    if not explored.ok:
        return vain
    with lock:
        base = with_moves(unit, account, chosen, unit.build)
        after = with_moves(unit, account, chosen, explored, made=True)
    credit = attribute(base, after)
    slow = slower(credit, explored, unit.executed, slowdown)
    credit = dataclasses.replace(credit, change=np.where(slow, np.inf, credit.change))
    verdict = judge(credit)
    if not verdict.kept.any():
        return vain
    first = len(unit.build.decisions)
    positions: list[int] = credit.flips[verdict.kept].tolist()
    kept = frozenset(chosen[position - first] for position in positions)
    build = _composed(unit, explored, credit, verdict.kept)
    done = dataclasses.replace(
        vain,
        build=build,
        left_out=unit.left_out ^ kept,
        composed_steps=unit.composed_steps + 1,
        vain=vain.made - kept,
        saved=verdict.gain,
    )
    return _settled(done, unit, account, lock=lock) if verdict.kept.all() else done


def confirm(compile_with: CompileWith, unit: PassModule, account: ProjectAccount, *, lock: threading.Lock) -> PassStep:
    """Compile what was composed, and go on from that; or from the last build that was, if it is no smaller."""
    real = compile_with(unit, unit.left_out)
    done = PassStep(compilations=1, user_seconds=real.user_seconds, build=real, left_out=unit.left_out)
    if not real.ok:
        return _back(done, unit)
    return _settled(done, unit, account, lock=lock)


def _settled(done: PassStep, unit: PassModule, account: ProjectAccount, *, lock: threading.Lock) -> PassStep:
    """The step, whose build was compiled: it stays if it is smaller than the best one that was."""
    name = unit.module.name
    build, (confirmed, _) = done.build, unit.confirmed
    with lock:
        before = account.module_bytes(name, confirmed.measured)
        after = before if build is None else account.module_bytes(name, build.measured)
    return dataclasses.replace(done, composed_steps=0) if after < before else _back(done, unit)


def _back(done: PassStep, unit: PassModule) -> PassStep:
    """The step, if its build gave nothing after all: nor did the moves that led to it."""
    confirmed, left_out = unit.confirmed
    lost = (unit.left_out ^ left_out) | (done.left_out ^ left_out)
    return dataclasses.replace(
        done, build=confirmed, left_out=left_out, composed_steps=0, vain=done.vain | lost, saved=0.0
    )


def moves_of(unit: PassModule) -> tuple[list[LeftOut], npt.NDArray[np.float64]]:
    """The moves that were not made in vain, and what is expected of each.

    A pass that changed a function is left out where it did, or each time; what is left out runs again.
    """
    changes = unit.build.changes
    found: dict[LeftOut, float] = {}
    for key, passes in () if changes is None else changes.changed.items():
        if key not in unit.allowed:
            continue
        for name, nth in passes:
            if name in EXCLUDED:
                continue
            number, worth = pass_number(name), FIRST.get(name, 0.0)
            found.setdefault((key, number, nth), worth)
            if name != MINSIZE:
                found.setdefault((key, number, EACH_TIME), _EVERY * worth)
    # What paid when it was left out rarely pays when it runs again.
    for move in sorted(unit.left_out):
        found[move] = min(FIRST.values(), default=0.0) - 1.0
    moves = [move for move in found if move not in unit.tried]
    return moves, np.array([found[move] for move in moves])


def with_moves(
    unit: PassModule,
    account: ProjectAccount,
    moves: Sequence[LeftOut],
    build: Compilation,
    *,
    made: bool = False,
) -> ScoredBuild:
    """A build ready for credit, each move being a decision of its function about itself; behind the inliner's."""
    functions, scores, _ = account.functions(unit.module.name, build.measured)
    inliner = scored_build(build, functions, scores)
    of = {key: function_id(name) for name, key in unit.keys.items()}
    ids = np.array([of[key] for key, _, _ in moves], np.int64)
    none = np.zeros(len(ids), bool)
    return ScoredBuild(
        caller=np.concatenate([inliner.caller, ids]),
        callee=np.concatenate([inliner.callee, ids]),
        inlined=np.concatenate([inliner.inlined, none]),
        flipped=np.concatenate([np.zeros(len(inliner.caller), bool), none | made]),
        functions=inliner.functions,
        scores=inliner.scores,
    )


def slower(
    credit: Credit, explored: Compilation, before: Mapping[str, float], slowdown: float
) -> npt.NDArray[np.bool_]:
    """[C] whether a component reaches a function that executes more than it may, or of which that is not known."""
    found = np.zeros(len(credit.change), bool)
    found[credit.reached_by[np.isin(credit.reached, function_ids(slow_functions(explored, before, slowdown)))]] = True
    return found


def slow_functions(build: Compilation, before: Mapping[str, float], slowdown: float) -> tuple[str, ...]:
    """Functions of a build that execute more than they may, or of which that is not known."""
    if math.isinf(slowdown):
        return ()
    executed: Mapping[str, float] = {} if build.changes is None else build.changes.executed
    bound = (1 + slowdown) * (1 + _ROUNDING)
    over = [name for name, value in executed.items() if value > bound * before.get(name, 0.0)]
    return (*over, *(name for name in build.measured.function_names if name not in executed))


def _composed(unit: PassModule, explored: Compilation, credit: Credit, kept: npt.NDArray[np.bool_]) -> Compilation:
    """The build with the kept moves alone."""
    if kept.all():
        return explored
    as_before = functions_as_before(credit, kept)
    old, new = unit.build.changes, explored.changes
    bare = no_decisions()
    build = compose(
        dataclasses.replace(unit.build, decisions=bare), dataclasses.replace(explored, decisions=bare), as_before
    )
    build = dataclasses.replace(build, decisions=unit.build.decisions)
    if old is None or new is None:
        return build
    ids = set(as_before.tolist())
    names = {key for name, key in unit.keys.items() if function_id(name) in ids}
    stay = {name for name in old.executed if function_id(name) in ids}
    return dataclasses.replace(
        build,
        changes=PassChanges(
            keys=new.keys,
            changed={key: (old if key in names else new).changed.get(key, ()) for key in new.changed},
            executed={name: value for name, value in new.executed.items() if name not in stay}
            | {name: old.executed[name] for name in stay},
        ),
    )
