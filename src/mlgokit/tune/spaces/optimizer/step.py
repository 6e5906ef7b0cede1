"""One step of the search on one module: passes left out of many functions in one compilation, kept by component.

Leaving a pass out changes a function and all functions that it is inlined into, as flipping a decision does; so this is
a search by composed builds (:mod:`mlgokit.tune.composing`). A component is not kept if one of its functions would
execute too many instructions, by LLVM's estimate. Variants of the module, which have the same functions but other code,
are compiled with the composed build, which is kept if all together became smaller.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import ScoredBuild, append_changes, function_ids, make_scored_build
from mlgokit.algorithms.search import independent_moves
from mlgokit.compiler.compilation import Compilation, PassChanges, no_decisions
from mlgokit.compiler.executed import LEAST_BELIEVED
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.reuse.trials import pass_number
from mlgokit.module import Module
from mlgokit.tables.overrides import EACH_TIME, LeftOut
from mlgokit.traces.function_id import function_id
from mlgokit.tune.composing import Comparison, Ints, compare, compose
from mlgokit.tune.spaces.optimizer.state import PassBuild, PassModule

MOST_MOVES = 256
"""Maximum number of moves in one compilation."""
_LOOP_REDUCE = pass_number("loop-reduce")
_LEAST_SAVED = 0.02
"""Part of a function's bytes that loop strength reduction has to cost to be left out: passes of the code generator,
which are left out later, often save more in its code."""
_EVERY = 1.5
"""Guess of how many times more it saves to leave out every run of a pass than to leave out one run."""
_ROUNDING = 1e-6
"""Relative difference up to which two estimates count as equal."""

CompileWith = Callable[[Module, frozenset[LeftOut]], Compilation]
"""Compiles a module with passes left out."""

EXCLUDED: Mapping[str, str] = {
    "InlinerPass": "whether a call is inlined is a decision of its own",
    "ModuleInlinerWrapperPass": "it holds the inliner and what runs with it",
    "LoopSimplifyPass": "loop passes count on the form that it makes",
    "LCSSAPass": "loop passes count on the form that it makes, and crash or make other programs without it",
    "CorrelatedValuePropagationPass": "it says of every function that it changed it, and gave 0.01 %",
    "LowerConstantIntrinsicsPass": "calls that it proves dead may name functions that are nowhere",
    "LowerExpectIntrinsicPass": "probabilities of branches would be lost, by which all estimates go",
    "PostOrderFunctionAttrsPass": "what it finds is seen by callers in other components",
    "ArgumentPromotionPass": "callers in other components change with a signature",
    "CoroSplitPass": "a coroutine is not whole without it",
    "CoroElidePass": "a coroutine is not whole without it",
    "CoroAnnotationElidePass": "a coroutine is not whole without it",
    "EntryExitInstrumenterPass": "who asked for instrumentation wants it everywhere",
    "InjectTLIMappings": "it says what exists, and changes no code",
    "AlignmentFromAssumptionsPass": "it says what is known, and changes no code",
    "LoopSinkPass": "it goes by profiles",
    "AnnotationRemarksPass": "it only reports",
    "WarnMissedTransformationsPass": "it only reports",
}
"""Optional passes that a search never leaves out, with the reason."""

OPTIONS = ("-enable-pre=0", "-instcombine-code-sinking=0", "-two-entry-phi-node-folding-threshold=0")
"""Options of LLVM, which are set while passes run on one function; `plugin/passes/OptimizerGate.cpp` has the same."""
ONCE = ("minsize", "loop-reduce", *OPTIONS)
"""What is listed among the passes, but not asked for each time: the attribute ``minsize``, without which a function is
compiled as at ``-Os``; loop strength reduction, which runs in the code generator, of functions with loops; and
:data:`OPTIONS`, of functions that the pass changed which reads the option."""

FIRST: Mapping[str, float] = {
    "minsize": 20.0,
    "loop-reduce": 15.0,
    "MemCpyOptPass": 9.1,
    "LICMPass": 6.9,
    "IndVarSimplifyPass": 5.3,
    "InstSimplifyPass": 2.0,
    "GVNPass": 1.6,
    "SLPVectorizerPass": 1.4,
    "SimplifyCFGPass": 0.9,
    "LoopRotatePass": 0.9,
    **dict.fromkeys(OPTIONS, 0.8),
    "SROAPass": 0.65,
    "InstCombinePass": 0.6,
    "TailCallElimPass": 0.6,
    "ReassociatePass": 0.3,
    "JumpThreadingPass": 0.1,
    "EarlyCSEPass": 0.1,
}
"""Mean number of bytes saved by leaving a pass out of a function that it had changed; the first order of the moves."""


_HOT_FIRST = 10.0
"""Bytes by which a move in a function comes before one in a function that executes 1/e as much."""
_COLD = 1e-6
"""Share of what a project executes below which functions are all alike."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassStep:
    """The outcome of one step.

    Attributes:
        base: the build that the step varied; ``None`` for a step that did nothing.
        best: the best compiled build when the step began.
        explored: the build that was compiled; ``None`` if it failed, or a function executes too many instructions.
        variants: builds of the module's variants, if the base was compiled.
        made: the moves that were made.
        confirms: whether the step only compiled the base.
        compilations: number of compilations.
        user_seconds: processor time of the compilations.
        trials: always 0: each variant is a compilation here.
    """

    base: PassBuild | None = None
    best: PassBuild | None = None
    explored: PassBuild | None = None
    variants: Sequence[Compilation] = ()
    made: frozenset[LeftOut] = frozenset()
    confirms: bool = False
    compilations: int = 0
    user_seconds: float = 0.0
    trials: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassOutcome:
    """The state of a module after a step.

    Attributes:
        current: the build to continue from.
        confirmed: the best build that was compiled.
        variants: builds of the module's variants, if ``confirmed`` is new.
        composed_steps: number of steps with gains in ``current`` that are not in ``confirmed``.
        vain: moves of this step, or of earlier ones, that gave no gain.
        again: moves of earlier steps that were reverted, but may be made again.
        saved: bytes that the kept moves saved.
    """

    current: PassBuild
    confirmed: PassBuild
    variants: Sequence[Compilation] = ()
    composed_steps: int = 0
    vain: frozenset[LeftOut] = frozenset()
    again: frozenset[LeftOut] = frozenset()
    saved: float = 0.0


def choose(unit: PassModule, account: ProjectAccount, rng: np.random.Generator) -> frozenset[LeftOut]:
    """Choose the next moves, of which no two can change the same function; the caller holds the lock.

    They are passes that are left out of functions, or that run again if they were left out.
    """
    moves, worth = moves_of(unit)
    worth += rng.gumbel(size=len(moves))
    if unit.shares:
        worth += _HOT_FIRST * np.log([max(unit.shares.get(key, 0.0), _COLD) for key, _, _ in moves])
    build = unit.current.done
    base = _with_moves(unit, account, moves, build)
    single = [(len(build.decisions) + index,) for index in range(len(moves))]
    order = np.argsort(-worth).tolist()
    chosen = independent_moves(base, single, order, most=MOST_MOVES)
    return frozenset(moves[index] for index in chosen)


def explore(compile_with: CompileWith, unit: PassModule, base: PassBuild, moves: frozenset[LeftOut]) -> PassStep:
    """Make the chosen moves in one compilation."""
    left_out = base.left_out ^ moves
    done = compile_unit(compile_with, unit, left_out)
    return PassStep(
        base=base,
        explored=PassBuild(done=done, left_out=left_out) if done.ok else None,
        made=moves,
        compilations=1,
        user_seconds=done.user_seconds,
    )


def confirm(
    compile_with: CompileWith, unit: PassModule, composed: PassBuild | None, best: PassBuild, *, slowdown: float
) -> PassStep:
    """Compile the composed build, and the variants of the module with it; do nothing without a composed build.

    Args:
        compile_with: compiles a module with passes left out.
        unit: the module.
        composed: the composed build; ``None`` for none.
        best: the best build that was compiled.
        slowdown: share by which a function may execute more instructions than with all passes.
    """
    if composed is None:
        return PassStep()
    real = compile_unit(compile_with, unit, composed.left_out)
    variants = compile_variants(compile_with, unit, composed.left_out) if real.ok else ()
    is_bad = not real.ok or any(
        is_refused(its, one.executed, unit, slowdown) for one, its in zip(unit.variants, variants, strict=True)
    )
    return PassStep(
        base=composed,
        best=best,
        explored=None if is_bad else PassBuild(done=real, left_out=composed.left_out),
        variants=variants,
        confirms=True,
        compilations=1 + len(variants),
        user_seconds=real.user_seconds + sum(one.user_seconds for one in variants),
    )


def outcome_of(step: PassStep, unit: PassModule, account: ProjectAccount, *, slowdown: float) -> PassOutcome:
    """Merge the outcome of a step into the state of its module; the caller holds the lock."""
    if step.confirms:
        return _confirm_outcome(step, unit, account, slowdown=slowdown)
    current, explored = unit.current, step.explored
    vain = PassOutcome(
        current=current, confirmed=unit.confirmed, composed_steps=unit.climb.composed_steps, vain=step.made
    )
    if explored is None:
        return vain
    compared, moves = _compare_builds(unit, account, current, explored, slowdown)
    if not compared.any_kept:
        return vain
    kept = _kept_moves(compared, moves)
    left_out = current.left_out ^ kept
    is_compiled = left_out == explored.left_out
    done = explored.done if is_compiled else _compose_build(unit, current.done, explored.done, compared.as_before())
    joined = dataclasses.replace(
        vain,
        current=PassBuild(done=done, left_out=left_out),
        composed_steps=unit.climb.composed_steps + 1,
        vain=step.made - kept,
        saved=compared.gain,
    )
    if not is_compiled or unit.variants:
        return joined
    before, after = (bytes_of(unit, account, one, ()) for one in (unit.confirmed.done, done))
    if after >= before:
        return _revert_to_confirmed(joined, unit)
    return dataclasses.replace(joined, confirmed=joined.current, composed_steps=0)


def _confirm_outcome(step: PassStep, unit: PassModule, account: ProjectAccount, *, slowdown: float) -> PassOutcome:
    """The outcome of a step that compiled the composed build: it is adopted if it is smaller, with moves made since."""
    real, current = step.explored, unit.current
    before = bytes_of(unit, account, unit.confirmed.done, [one.build for one in unit.variants])
    if real is None or bytes_of(unit, account, real.done, step.variants) >= before:
        unchanged = PassOutcome(current=current, confirmed=unit.confirmed, composed_steps=unit.climb.composed_steps)
        # Where another step found a better build meanwhile, that is what the current one is composed of.
        return _revert_to_confirmed(unchanged, unit) if unit.confirmed is step.best else unchanged
    confirmed = PassOutcome(current=real, confirmed=real, variants=step.variants)
    if step.base is current:
        return confirmed
    compared, moves = _compare_builds(unit, account, real, current, slowdown)
    if not compared.any_kept:
        return confirmed
    done = _compose_build(unit, real.done, current.done, compared.as_before(by_default=True))
    return dataclasses.replace(
        confirmed,
        current=PassBuild(done=done, left_out=real.left_out ^ _kept_moves(compared, moves)),
        composed_steps=max(1, unit.climb.composed_steps - unit.climb.most_composed + 1),
    )


def _revert_to_confirmed(joined: PassOutcome, unit: PassModule) -> PassOutcome:
    """Revert to the best build that was compiled. Of the moves since, those of half of the functions count as in vain.

    The others may be made again, since moves may only conflict with each other.
    """
    left_out = unit.confirmed.left_out
    lost = (unit.current.left_out ^ left_out) | (joined.current.left_out ^ left_out)
    functions = sorted({key for key, _, _ in lost})
    blamed = set(functions[: (len(functions) + 1) // 2])
    again = frozenset(move for move in lost if move[0] not in blamed)
    return PassOutcome(current=unit.confirmed, confirmed=unit.confirmed, vain=joined.vain | lost - again, again=again)


def _compare_builds(
    unit: PassModule, account: ProjectAccount, base: PassBuild, explored: PassBuild, slowdown: float
) -> tuple[Comparison, list[LeftOut]]:
    """Compare two builds by the moves in which they differ; return these moves too."""
    moves = sorted(base.left_out ^ explored.left_out)
    slow = slow_functions(explored.done, unit.executed, slowdown)
    if account.objective is Objective.EXECUTED:
        slow = (*slow, *_doubtful_functions(explored.done, unit.executed))
    compared = compare(
        _with_moves(unit, account, moves, base.done, left_out=base.left_out),
        _with_moves(unit, account, moves, explored.done, left_out=explored.left_out, made=True),
        forbidden=function_ids(slow),
    )
    return compared, moves


def _kept_moves(compared: Comparison, moves: Sequence[LeftOut]) -> frozenset[LeftOut]:
    # The flips are the moves, which stand behind the decisions of the inliner.
    return frozenset(move for move, kept in zip(moves, compared.kept.tolist(), strict=True) if kept)


def bytes_of(unit: PassModule, account: ProjectAccount, build: Compilation, variants: Sequence[Compilation]) -> float:
    """Bytes of the module, its copies and its variants in the account, with these builds."""
    return sum(account.module_bytes(name, one.measured) for names, one in unit.parts(build, variants) for name in names)


def is_refused(build: Compilation, before: Mapping[str, float], unit: PassModule, slowdown: float) -> bool:
    """Whether a build of the module or of a variant failed, or has a function that executes too many instructions.

    Args:
        build: the build to check.
        before: instructions that a call of a function executes with all passes, by function.
        unit: the module.
        slowdown: share by which a function may execute more instructions.
    """
    return not build.ok or not set(unit.keys).isdisjoint(slow_functions(build, before, slowdown))


def compile_unit(compile_with: CompileWith, unit: PassModule, left_out: frozenset[LeftOut]) -> Compilation:
    """Compile the module with passes left out; its inlining decisions are those of the current build."""
    return dataclasses.replace(compile_with(unit.module, left_out), decisions=unit.current.done.decisions)


def compile_variants(compile_with: CompileWith, unit: PassModule, left_out: frozenset[LeftOut]) -> list[Compilation]:
    """Compile the variants of a module with passes left out."""
    return [compile_with(one.module, left_out) for one in unit.variants]


def moves_of(unit: PassModule) -> tuple[list[LeftOut], npt.NDArray[np.float64]]:
    """The moves that were not made in vain and that no step has claimed, and the bytes that each is expected to save.

    A move leaves out one run, or every run, of a pass that changed a function; or lets a pass run again.
    """
    changes = unit.current.done.changes
    expected: dict[LeftOut, float] = {}
    for key, passes in () if changes is None else changes.changed.items():
        if key not in unit.allowed:
            continue
        for name, nth in passes:
            if name in EXCLUDED:
                continue
            number, worth = pass_number(name), FIRST.get(name, 0.0)
            expected.setdefault((key, number, nth), worth)
            if name not in ONCE:
                expected.setdefault((key, number, EACH_TIME), _EVERY * worth)
    # A pass that paid when it was left out rarely pays when it runs again.
    for move in sorted(unit.current.left_out):
        expected[move] = min(FIRST.values(), default=0.0) - 1.0
    moves = [move for move in expected if move not in unit.tried and move not in unit.climb.claimed]
    return moves, np.array([expected[move] for move in moves])


def _with_moves(
    unit: PassModule,
    account: ProjectAccount,
    moves: Sequence[LeftOut],
    build: Compilation,
    *,
    left_out: Collection[LeftOut] = (),
    made: bool = False,
) -> ScoredBuild:
    """A build for credit assignment; after the inliner's decisions, each move is one of its function about itself."""
    functions, scores, _ = account.functions(unit.module.name, build.measured)
    if changed := {key for key, number, _ in left_out if number == _LOOP_REDUCE}:
        scores = scores * [1 + _LEAST_SAVED * (unit.keys.get(name) in changed) for name in functions]
    of = {key: function_id(name) for name, key in unit.keys.items()}
    ids = np.array([of[key] for key, _, _ in moves], np.int64)
    return append_changes(make_scored_build(build, functions, scores), ids, made=made)


def slow_functions(build: Compilation, before: Mapping[str, float], slowdown: float) -> tuple[str, ...]:
    """Names of a build's functions that execute too many instructions, or for which there is no estimate."""
    if math.isinf(slowdown):
        return ()
    executed: Mapping[str, float] = {} if build.changes is None else build.changes.executed
    bound = (1 + slowdown) * (1 + _ROUNDING)
    over = [name for name, value in executed.items() if value > bound * before.get(name, 0.0)]
    return (*over, *(name for name in build.measured.function_names if name not in executed))


def _doubtful_functions(build: Compilation, before: Mapping[str, float]) -> list[str]:
    """Functions that seem to execute so much less that their code has rather lost the probabilities of the profile."""
    executed: Mapping[str, float] = {} if build.changes is None else build.changes.executed
    return [name for name, value in executed.items() if value < LEAST_BELIEVED * before.get(name, 0.0)]


def _compose_build(unit: PassModule, base: Compilation, explored: Compilation, as_before: Ints) -> Compilation:
    """Compose a build from the functions of the explored one, and those ``as_before`` of the base."""
    old, new = base.changes, explored.changes
    bare = no_decisions()
    build = compose(dataclasses.replace(base, decisions=bare), dataclasses.replace(explored, decisions=bare), as_before)
    build = dataclasses.replace(build, decisions=base.decisions)
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
