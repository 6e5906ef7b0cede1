"""What leaving a pass of the optimizer out of a function does, measured: passes left out of many functions at once.

What the optimizer makes of a function goes on to all those that it is inlined into, so there are no copies of the
compiler for one function. In place of that a module is compiled some times, each time with a pass left out of
functions that can change no function together, and the change of each function is told by component
(:mod:`mlgokit.algorithms.credit`). Components with one function that lost one pass are labels.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from mlgokit.algorithms.credit import Credit, ScoredBuild, attribute, scored_build, with_changes
from mlgokit.algorithms.search import independent_moves
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import TEXT, Objective
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import Floats, pass_number
from mlgokit.learning.pass_trials import FunctionQuestions, Ints, ModuleTrials
from mlgokit.learning.trials import module_draws
from mlgokit.module import Module
from mlgokit.problems import DECIDED_PASSES, GENERATOR_PASSES, INLINE_SIZE, PASS_SELECTION
from mlgokit.tables.overrides import EACH_TIME, OPTIMIZER_PASSES, LeftOut, by_function, override_bytes
from mlgokit.traces.log import function_id

_AT_ONCE = 256
_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Move:
    """A pass that is left out of a function, each time that it asks.

    Attributes:
        function: that loses it.
        row: of the function's questions, that of the pass.
        key: of the function in tables.
        number: of the pass in tables.
    """

    function: FunctionQuestions
    row: int
    key: int
    number: int


def try_optimizer(
    compiler: Compiler,
    module: Module,
    functions: Sequence[FunctionQuestions],
    *,
    objective: Objective,
    rounds: int,
    seed: int,
) -> ModuleTrials:
    """Leave passes of the optimizer out of functions, where they changed something; LLVM inlines.

    Args:
        compiler: compiles.
        module: whose functions they are.
        functions: that may lose passes.
        objective: which bytes of functions count.
        rounds: compilations, at most.
        seed: of what is left out when.
    """
    base = _compiled(compiler, module, ())
    compiled = [base]
    if not base.ok or base.changes is None:
        return _trials([], compiled, reason="" if base.ok else base.reason or base.status.value)
    moves = _moves(functions, base)
    order = module_draws(module, seed, _SEED).permutation(len(moves)).tolist()
    sizes = dict(zip(base.measured.function_names, _bytes(base, objective).tolist(), strict=True))

    def with_moves(build: Compilation, moves: Sequence[_Move], *, made: bool) -> ScoredBuild:
        ids = np.array([function_id(move.function.name) for move in moves], np.int64)
        scored = scored_build(build, build.measured.function_names, _bytes(build, objective))
        return with_changes(scored, ids, made=made)

    found: list[tuple[Ints, float, float, float]] = []
    single = [(len(base.decisions) + index,) for index in range(len(moves))]
    standing = with_moves(base, moves, made=False)
    for _ in range(rounds):
        if not order:
            break
        chosen = independent_moves(standing, single, order, most=_AT_ONCE)
        gone = set(chosen)
        order = [index for index in order if index not in gone]
        made = [moves[index] for index in chosen]
        done = _compiled(compiler, module, [(move.key, move.number, EACH_TIME) for move in made])
        compiled.append(done)
        if not done.ok or done.changes is None:
            continue
        credit = attribute(with_moves(base, made, made=False), with_moves(done, made, made=True))
        executed = base.changes.executed, done.changes.executed
        for move, change in _alone(credit, made, first=len(done.decisions)):
            name = move.function.name
            before, after = (one.get(name, 0.0) for one in executed)
            slowdown = after / before - 1 if before and after else 0.0
            found.append((move.function.values[move.row], change, slowdown, sizes.get(name, 0.0)))
    return _trials(found, compiled)


def _compiled(compiler: Compiler, module: Module, left_out: Collection[LeftOut]) -> Compilation:
    use = PluginUse(
        policies={INLINE_SIZE.name: HEURISTIC},
        logs=(INLINE_SIZE.name,),
        log_default=False,
        optimizer_passes=override_bytes(OPTIMIZER_PASSES, by_function(left_out)) if left_out else b"",
        list_changes=True,
    )
    return compiler.compile(module, CompileRequest(use=use, keep="none"))


def _moves(functions: Sequence[FunctionQuestions], base: Compilation) -> list[_Move]:
    """What may be left out: passes that changed a function, of which there is one with its body."""
    assert base.changes is not None  # noqa: S101
    keys, changed = base.changes.keys, base.changes.changed
    bodies = Counter(keys.values())
    found: list[_Move] = []
    for one in functions:
        key = keys.get(one.name)
        if key is None or bodies[key] > 1:
            continue
        acted = {name for name, _ in changed.get(key, ())}
        places: list[int] = one.passes.tolist()
        for row, place in enumerate(places):
            name = DECIDED_PASSES[place]
            if place >= len(GENERATOR_PASSES) and name in acted:
                found.append(_Move(function=one, row=row, key=key, number=pass_number(name)))
    return found


def _bytes(build: Compilation, objective: Objective) -> Floats:
    """[F] of each function its code, and if they count its tables and unwind tables."""
    columns = build.measured.function_bytes.astype(np.float64)
    return columns[:, TEXT - 1] if objective is Objective.LINK_AWARE_TEXT else columns.sum(axis=1)


def _alone(credit: Credit, moves: Sequence[_Move], *, first: int) -> list[tuple[_Move, float]]:
    """The moves that share their component with no other, and its change in bytes."""
    sizes = np.bincount(credit.component, minlength=len(credit.change))
    return [
        (moves[position - first], float(credit.change[component]))
        for position, component in zip(credit.flips.tolist(), credit.component.tolist(), strict=True)
        if sizes[component] == 1
    ]


def _trials(
    found: Sequence[tuple[Ints, float, float, float]], compiled: Sequence[Compilation], reason: str = ""
) -> ModuleTrials:
    columns = np.array([one[1:] for one in found], np.float64).reshape(-1, 3).T
    return ModuleTrials(
        values=np.array([one[0] for one in found], np.int64).reshape(len(found), len(PASS_SELECTION.features)),
        change=columns[0],
        slowdown=columns[1],
        size=columns[2],
        trials=len(found),
        compilations=len(compiled),
        user_seconds=sum(one.user_seconds for one in compiled),
        reason=reason,
    )
