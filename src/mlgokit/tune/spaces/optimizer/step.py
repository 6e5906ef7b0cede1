"""One step of the search on one module: passes left out of many functions in one compilation, kept by component.

Leaving a pass out changes a function and all those that it is inlined into, as flipping a decision does. So moves that
cannot change the same function are made together, and what of them paid is told by component
(:mod:`mlgokit.algorithms.credit`). A function that would execute more instructions than it may, by LLVM's estimate,
speaks against its component. The build with the kept moves alone is composed of what is known, and compiled now and
then; only builds that were compiled are in the account. Variants of the module, which have its functions in other
code, are compiled with such a build, which stays if all together became smaller. Of steps that were under way
together, the later one's components are taken that reach no function which the earlier one changed.
"""

import copy
import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Credit, ScoredBuild, attribute, function_ids, scored_build, with_changes
from mlgokit.algorithms.search import functions_as_before, independent_moves, judge
from mlgokit.compiler.compilation import Compilation, PassChanges, no_decisions
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.reuse.trials import pass_number
from mlgokit.module import Module
from mlgokit.tables.overrides import EACH_TIME, LeftOut
from mlgokit.traces.log import function_id
from mlgokit.tune.spaces.inlining.compose import compose
from mlgokit.tune.spaces.optimizer.candidates import EXCLUDED, FIRST, MINSIZE
from mlgokit.tune.spaces.optimizer.state import Ints, PassModule

COMPOSED = 6
"""Builds that are composed one from the other before the last one is compiled."""
_EVERY = 1.5
"""Leaving a pass out each time saves so many times what leaving it out once does, as a guess."""
_ROUNDING = 1e-6
"""Part by which an estimate may be larger and is the same."""

CompileWith = Callable[[Module, frozenset[LeftOut]], Compilation]
"""Compiles a module with passes left out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explored:
    """A build with N moves, and what paid in it.

    Attributes:
        build: that was compiled.
        moves: all that were made, in the order of the credit's positions.
        first: the position of the first of them.
        credit: by component.
        kept: [N] whether the flip's component paid.
        since: how many gains of others there were when the step began.
    """

    build: Compilation
    moves: tuple[LeftOut, ...]
    first: int
    credit: Credit
    kept: npt.NDArray[np.bool_]
    since: int

    def moves_kept(self, kept: npt.NDArray[np.bool_]) -> frozenset[LeftOut]:
        """The moves of some flips."""
        positions: list[int] = self.credit.flips[kept].tolist()
        return frozenset(self.moves[position - self.first] for position in positions)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassStep:
    """What one step did.

    Attributes:
        explored: what it compiled, if some of that paid; :func:`entered` makes ``build`` of it.
        build: what to go on from, with ``left_out`` and ``composed_steps``; ``None`` where that stays.
        variants: builds of the module's variants, if the build was compiled.
        left_out: what does not run in it.
        composed_steps: how many steps with gains it is ahead of the last build that was compiled; 0 if it was.
        made: the moves that were made.
        vain: those of them, or of earlier steps, that gave nothing.
        again: moves of earlier steps that did not stay, but may be made again.
        saved: bytes that the others did.
        compilations: how many were made.
        user_seconds: their processor time.
        trials: none; each variant is a compilation here.
    """

    explored: Explored | None = None
    build: Compilation | None = None
    variants: Sequence[Compilation] = ()
    left_out: frozenset[LeftOut] = frozenset()
    composed_steps: int = 0
    made: frozenset[LeftOut] = frozenset()
    vain: frozenset[LeftOut] = frozenset()
    again: frozenset[LeftOut] = frozenset()
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
        unit: the module; what is tried is claimed there, under ``lock``.
        account: the project's, read under ``lock``.
        lock: of the account and the modules.
        slowdown: part by which a function may execute more instructions than with all passes.
        rng: of the random part of the order.
        most: moves made at once.
    """
    with lock:
        chosen = [] if unit.composed_steps >= COMPOSED else _chosen(unit, account, rng, most=most)
        unit.claimed.update(chosen)
        # Others are entered while this one is compiled.
        unit = copy.copy(unit)
        since = len(unit.gains)
    if not chosen:
        alone = unit.running <= 1
        if not (alone and unit.composed_steps):
            return PassStep()
        return confirm(compile_with, unit, account, lock=lock, slowdown=slowdown)
    explored = compile_unit(compile_with, unit, unit.left_out ^ frozenset(chosen))
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
    found = Explored(
        build=explored,
        moves=tuple(chosen),
        first=len(unit.build.decisions),
        credit=credit,
        kept=verdict.kept,
        since=since,
    )
    return dataclasses.replace(vain, explored=found, vain=vain.made - found.moves_kept(found.kept))


def _chosen(unit: PassModule, account: ProjectAccount, rng: np.random.Generator, *, most: int) -> list[LeftOut]:
    """The moves to make at once, which nobody else makes."""
    moves, worth = moves_of(unit)
    worth += rng.gumbel(size=len(moves))
    base = with_moves(unit, account, moves, unit.build)
    single = [(len(unit.build.decisions) + index,) for index in range(len(moves))]
    return [moves[index] for index in independent_moves(base, single, np.argsort(-worth).tolist(), most=most)]


def entered(step: PassStep, unit: PassModule, account: ProjectAccount) -> PassStep:
    """The step with what of it the module goes on from, beside what others found since it began.

    Where both changed the same function, what is there stays. A build that was compiled as it is counts as such, unless
    others depart from another one. The caller holds the lock.
    """
    found = step.explored
    if found is None:
        return step
    credit, others = found.credit, unit.gains[found.since :]
    touched = np.concatenate(others) if others else np.zeros(0, np.int64)
    meeting = credit.reached_by[np.isin(credit.reached, touched)]
    kept = found.kept & ~np.isin(credit.component, meeting)
    if not kept.any():
        return step
    is_compiled = bool(kept.all()) and not others
    as_before = np.union1d(functions_as_before(credit, kept), touched)
    paid = np.unique(credit.component[kept])
    done = dataclasses.replace(
        step,
        build=found.build if is_compiled else _composed(unit, found.build, as_before),
        left_out=unit.left_out ^ found.moves_kept(kept),
        composed_steps=unit.composed_steps + 1,
        saved=-float(credit.change[paid].sum()),
    )
    unit.gains.append(np.unique(credit.reached[np.isin(credit.reached_by, paid)]))
    return _settled(done, unit, account) if is_compiled and not unit.running and not unit.variants else done


def confirm(
    compile_with: CompileWith,
    unit: PassModule,
    account: ProjectAccount,
    *,
    lock: threading.Lock,
    slowdown: float,
) -> PassStep:
    """Compile what was composed, and go on from that; or from the last build that was, if it is no smaller.

    Args:
        compile_with: compiles.
        unit: the module.
        account: the project's, read under ``lock``.
        lock: of the account and the modules.
        slowdown: part by which a function may execute more instructions than with all passes.
    """
    real = compile_unit(compile_with, unit, unit.left_out)
    variants = compile_variants(compile_with, unit, unit.left_out) if real.ok else ()
    done = PassStep(
        compilations=1 + len(variants),
        user_seconds=real.user_seconds + sum(one.user_seconds for one in variants),
        build=real,
        variants=variants,
        left_out=unit.left_out,
    )
    if not real.ok or any(
        is_refused(its, one.executed, unit, slowdown) for one, its in zip(unit.variants, variants, strict=True)
    ):
        return _back(done, unit)
    with lock:
        return _settled(done, unit, account)


def _settled(done: PassStep, unit: PassModule, account: ProjectAccount) -> PassStep:
    """The step, whose build was compiled: it stays if it is smaller, with variants, than the best one that was."""
    if done.build is None:
        return _back(done, unit)
    before = bytes_of(unit, account, unit.confirmed[0], [one.build for one in unit.variants])
    after = bytes_of(unit, account, done.build, done.variants)
    return dataclasses.replace(done, composed_steps=0) if after < before else _back(done, unit)


def bytes_of(unit: PassModule, account: ProjectAccount, build: Compilation, variants: Sequence[Compilation]) -> float:
    """What the module, its copies and its variants answer for in the account, in these builds."""
    return sum(account.module_bytes(name, one.measured) for names, one in unit.parts(build, variants) for name in names)


def is_refused(build: Compilation, before: Mapping[str, float], unit: PassModule, slowdown: float) -> bool:
    """Whether a build of the module or of a variant failed, or has a function that executes more than it may.

    Args:
        build: in question.
        before: by function, what it executes when all passes run.
        unit: the module.
        slowdown: part by which a function may execute more.
    """
    return not build.ok or not set(unit.keys).isdisjoint(slow_functions(build, before, slowdown))


def compile_unit(compile_with: CompileWith, unit: PassModule, left_out: frozenset[LeftOut]) -> Compilation:
    """The module with passes left out; the inliner decides as it did."""
    return dataclasses.replace(compile_with(unit.module, left_out), decisions=unit.build.decisions)


def compile_variants(compile_with: CompileWith, unit: PassModule, left_out: frozenset[LeftOut]) -> list[Compilation]:
    """Its variants with the same passes left out."""
    return [compile_with(one.module, left_out) for one in unit.variants]


def _back(done: PassStep, unit: PassModule) -> PassStep:
    """The step, if its build gave nothing after all. Of the moves that led to it, half are in vain, by function.

    The others may be made again. Moves may only be at odds with each other, as where they come from steps that were
    under way together.
    """
    confirmed, left_out = unit.confirmed
    lost = (unit.left_out ^ left_out) | (done.left_out ^ left_out)
    functions = sorted({key for key, _, _ in lost})
    blamed = set(functions[: (len(functions) + 1) // 2])
    again = frozenset(move for move in lost if move[0] not in blamed)
    return dataclasses.replace(
        done,
        build=confirmed,
        variants=(),
        left_out=left_out,
        composed_steps=0,
        vain=done.vain | lost - again,
        again=again,
        saved=0.0,
    )


def moves_of(unit: PassModule) -> tuple[list[LeftOut], npt.NDArray[np.float64]]:
    """The moves that were not made in vain and are not made now, and what is expected of each.

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
    moves = [move for move in found if move not in unit.tried and move not in unit.claimed]
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
    of = {key: function_id(name) for name, key in unit.keys.items()}
    ids = np.array([of[key] for key, _, _ in moves], np.int64)
    return with_changes(scored_build(build, functions, scores), ids, made=made)


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


def _composed(unit: PassModule, explored: Compilation, as_before: Ints) -> Compilation:
    """The build whose functions are those of the explored one, but for some that stay as they are."""
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
