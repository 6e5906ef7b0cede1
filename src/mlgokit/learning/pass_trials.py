"""Trials that skip a pass: what a function's size would be without each optional pass that runs on it.

A codegen pass is skipped in a forked copy of the compiler (``compiler/reuse/trials.py``), which generates the code of
one function. The change in bytes is exact and belongs to one decision.

An optimizer pass also changes all functions into which the function is inlined, so a copy for one function does not
suffice. Instead, the module is compiled a few times, each time without passes in functions that cannot influence the
same function. The change of each function is attributed to a component (:mod:`mlgokit.algorithms.credit`), and the
components in which a single pass of a single function was skipped become labels.
"""

import dataclasses
import io
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Credit, ScoredBuild, append_changes, attribute, make_scored_build
from mlgokit.algorithms.search import independent_moves
from mlgokit.compiler.arrays import DAMAGE, read_arrays
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.objects.object_file import TEXT
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import (
    MEASURES,
    MOST_TOGGLES,
    OVERRIDE,
    TRIAL,
    Floats,
    Overrides,
    Series,
    Stage,
    TrialResults,
    pass_number,
)
from mlgokit.learning.from_trials import compile_logged, compile_trials, module_generator
from mlgokit.module import Module
from mlgokit.problems import DECIDED_PASSES, GENERATOR_PASSES, INLINE_SIZE, PASS_SELECTION
from mlgokit.tables.overrides import EACH_TIME, OPTIMIZER_PASSES, LeftOut, group_by_function, override_bytes
from mlgokit.traces import Log
from mlgokit.traces.function_id import function_id

_LEAST_EXECUTED = 1e-9
"""Bound of the executed instructions by which a slowdown is divided."""
_IN_ALL_TRIALS = ("no-pushed-constants",)
"""What pays in nearly all functions, so that the effects of other decisions are measured together with it."""
_AT_ONCE = 256
"""Maximum number of passes that are skipped in one compilation."""
_OPTIMIZER_DRAWS = 1
"""Part of the seed of the order in which optimizer passes are skipped."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionQuestions:
    """The Q decisions about passes that are to run on one function.

    Attributes:
        key: trial key of the function.
        name: name of the function.
        values: [Q, F] features of each decision.
        passes: [Q] the pass, as a position in :data:`DECIDED_PASSES`.
        occurrences: [Q] how many times the pass has run on the function before.
    """

    key: int
    name: str
    values: Ints
    passes: Ints
    occurrences: Ints


def log_passes(compiler: Compiler, module: Module) -> tuple[Compilation, list[FunctionQuestions]]:
    """Compile a module with LLVM's own decisions; return the compilation, and the decisions about its functions."""
    done, log = compile_logged(compiler, module, PASS_SELECTION, Stage.PASSES)
    if log is None:
        return done, []
    keys = {function.name: function.key for function in done.tried if function.stage is Stage.PASSES}
    return done, _questions(log, keys)


def _questions(log: Log, keys: dict[str, int]) -> list[FunctionQuestions]:
    """Group the logged decisions by function."""
    columns = log.columns
    names = PASS_SELECTION.feature_names
    values = np.stack([columns[name].reshape(-1).astype(np.int64) for name in names], axis=1)
    passes = values[:, -len(DECIDED_PASSES) :].argmax(axis=1)
    occurrences = values[:, names.index("occurrence")]
    rows: dict[str, list[int]] = {}
    for span in log.contexts:
        rows.setdefault(span.name, []).extend(range(span.start, span.stop))
    return [
        FunctionQuestions(
            key=keys[name], name=name, values=values[mine], passes=passes[mine], occurrences=occurrences[mine]
        )
        for name, mine in rows.items()
        if name in keys
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModuleTrials:
    """The N trials of one module's functions that succeeded.

    Attributes:
        values: int64 [N, F] features of each decision that was tried.
        change: float64 [N] change of the function in bytes: without the pass minus with it.
        slowdown: float64 [N] added share of executed instructions, by LLVM's estimate.
        size: float64 [N] bytes of the function with all passes.
        trials: number of trials, failed ones included.
        compilations: number of compilations for the trials.
        user_seconds: processor time of these compilations.
        reason: why the module did not compile; empty if it did.
        was_ended: whether a kill or a limit ended a compilation, so that another run may find more.
    """

    values: Ints
    change: Floats
    slowdown: Floats
    size: Floats
    trials: int
    compilations: int
    user_seconds: float
    reason: str = ""
    was_ended: bool = False

    def to_bytes(self) -> bytes:
        """Encode the trials as a .npz file."""
        out = io.BytesIO()
        numbers = {name: getattr(self, name) for name in _STORED}
        np.savez(out, **numbers, reason=np.array(self.reason))
        return out.getvalue()

    def join(self, other: "ModuleTrials") -> "ModuleTrials":
        """Join trials of codegen passes and of optimizer passes of one module."""
        return ModuleTrials(
            **{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _COLUMNS},
            trials=self.trials + other.trials,
            compilations=self.compilations + other.compilations,
            user_seconds=self.user_seconds + other.user_seconds,
            reason=self.reason or other.reason,
            was_ended=self.was_ended or other.was_ended,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "ModuleTrials | None":
        """Decode the file that :meth:`to_bytes` encoded; ``None`` if it is damaged."""
        try:
            arrays = read_arrays(data, {*_STORED, "reason"})
            return cls(
                values=arrays["values"].astype(np.int64).reshape(-1, len(PASS_SELECTION.features)),
                change=arrays["change"].astype(np.float64),
                slowdown=arrays["slowdown"].astype(np.float64),
                size=arrays["size"].astype(np.float64),
                trials=int(arrays["trials"]),
                compilations=int(arrays["compilations"]),
                user_seconds=float(arrays["user_seconds"]),
                reason=str(arrays["reason"]),
            )
        except DAMAGE:
            return None


_COLUMNS = ("values", "change", "slowdown", "size")
_STORED = (*_COLUMNS, "trials", "compilations", "user_seconds")


def try_passes(
    compiler: Compiler, module: Module, functions: Sequence[FunctionQuestions], *, weights: Floats
) -> ModuleTrials:
    """Skip each codegen pass of each function, one at a time.

    Args:
        compiler: compiler to use.
        module: module of the functions.
        functions: functions whose passes are tried, as :func:`log_passes` returned them.
        weights: [9] weights of a trial's measures, in bytes; the weight of executed instructions must not be 0.
    """
    functions = [_select_codegen(function) for function in functions]
    series = [_series(function) for function in functions if len(function.passes)]
    done = compile_trials(compiler, module, PASS_SELECTION, series, stage=Stage.PASSES, weights=weights)
    by_key = {function.key: function for function in functions}
    measured = [
        _compare_trials(by_key[tried.key], tried, weights)
        for tried in done.tried
        if done.ok and tried.key in by_key and tried.outcomes
    ]
    values = [rows for rows, _ in measured] or [np.zeros((0, len(PASS_SELECTION.features)), np.int64)]
    columns = np.concatenate([part for _, part in measured] or [np.zeros((3, 0))], axis=1)
    return ModuleTrials(
        values=np.concatenate(values),
        change=columns[0],
        slowdown=columns[1],
        size=columns[2],
        trials=sum(len(tried.outcomes) for tried in done.tried),
        compilations=1,
        user_seconds=done.user_seconds,
        reason="" if done.ok else done.reason or done.status.value,
        was_ended=done.was_ended,
    )


def _select_codegen(function: FunctionQuestions) -> FunctionQuestions:
    """Select the decisions about codegen passes."""
    mine = function.passes < len(GENERATOR_PASSES)
    return dataclasses.replace(
        function,
        values=function.values[mine],
        passes=function.passes[mine],
        occurrences=function.occurrences[mine],
    )


def _compare_trials(function: FunctionQuestions, tried: TrialResults, weights: Floats) -> tuple[Ints, Floats]:
    """Compare the trials of a function, each without one pass, with the first trial, which has all passes.

    Returns the features [Q, F] of the trials that succeeded, and [3, Q] their changes in bytes, slowdowns, and the
    bytes with all passes. What is in all trials is left out of its own: its effect is that with the sign changed.
    """
    scores = np.array([outcome.score for outcome in tried.outcomes])
    executed = np.array([outcome.cost for outcome in tried.outcomes]) / weights[MEASURES.index("executed")]
    good = np.isfinite(scores[1:]) & np.isfinite(scores[0])
    slowdown = executed[1:] / max(executed[0], _LEAST_EXECUTED) - 1
    sign = np.where(np.isin(function.passes, [DECIDED_PASSES.index(name) for name in _IN_ALL_TRIALS]), -1.0, 1.0)
    columns = np.stack([sign * (scores[1:] - scores[0]), sign * slowdown, np.full(len(good), scores[0])])
    return function.values[good], columns[:, good]


def _series(function: FunctionQuestions) -> Series:
    """Make a series of trials of one function: the first with all passes, then one trial for each pass, without it."""
    count = len(function.passes)
    toggled = np.zeros((count + 1, MOST_TOGGLES), OVERRIDE)
    positions: list[int] = function.passes.tolist()
    occurrences: list[int] = function.occurrences.tolist()
    for row, (position, nth) in enumerate(zip(positions, occurrences, strict=True)):
        toggled[row + 1, 0] = (pass_number(DECIDED_PASSES[position]), nth, 0)
    trials = np.zeros(count + 1, TRIAL)
    trials["toggles"][1:] = 1
    base = np.zeros(len(_IN_ALL_TRIALS), OVERRIDE)
    base["range"] = [pass_number(name) for name in _IN_ALL_TRIALS]
    return Series(key=function.key, base=Overrides(passes=base), score=-np.inf, trials=trials, toggled=toggled)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Move:
    """One pass that is skipped in one function, at every run.

    Attributes:
        function: the function.
        row: index of the pass among the function's decisions.
        key: the function's key in tables.
        number: the pass's number in tables.
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
    """Skip optimizer passes in functions that they changed; LLVM's heuristic decides about inlining.

    Args:
        compiler: compiler to use.
        module: module of the functions.
        functions: functions whose passes are tried, as :func:`log_passes` returned them.
        objective: which bytes of functions count.
        rounds: maximum number of compilations.
        seed: random seed of the order in which passes are skipped.
    """
    base = _compile_without(compiler, module, ())
    compiled = [base]
    if not base.ok or base.changes is None:
        return _trials([], compiled, reason="" if base.ok else base.reason or base.status.value)
    moves = _moves(functions, base)
    order = module_generator(module, seed, _OPTIMIZER_DRAWS).permutation(len(moves)).tolist()
    sizes = dict(zip(base.measured.function_names, _bytes(base, objective).tolist(), strict=True))

    def score_with_moves(build: Compilation, moves: Sequence[_Move], *, made: bool) -> ScoredBuild:
        """Score the functions of a build, with moves as further decisions, which the build has made or not."""
        ids = np.array([function_id(move.function.name) for move in moves], np.int64)
        scored = make_scored_build(build, build.measured.function_names, _bytes(build, objective))
        return append_changes(scored, ids, made=made)

    labels: list[tuple[Ints, float, float, float]] = []
    single = [(len(base.decisions) + index,) for index in range(len(moves))]
    before_moves = score_with_moves(base, moves, made=False)
    for _ in range(rounds):
        if not order:
            break
        chosen = independent_moves(before_moves, single, order, most=_AT_ONCE)
        tried = set(chosen)
        order = [index for index in order if index not in tried]
        made = [moves[index] for index in chosen]
        done = _compile_without(compiler, module, [(move.key, move.number, EACH_TIME) for move in made])
        compiled.append(done)
        if not done.ok or done.changes is None:
            continue
        credit = attribute(score_with_moves(base, made, made=False), score_with_moves(done, made, made=True))
        executed = base.changes.executed, done.changes.executed
        for move, change in _isolated_moves(credit, made, first=len(done.decisions)):
            name = move.function.name
            before, after = (counts.get(name, 0.0) for counts in executed)
            slowdown = after / before - 1 if before and after else 0.0
            labels.append((move.function.values[move.row], change, slowdown, sizes.get(name, 0.0)))
    return _trials(labels, compiled)


def _compile_without(compiler: Compiler, module: Module, left_out: Collection[LeftOut]) -> Compilation:
    """Compile a module without some optimizer passes in some functions, listing what passes change."""
    use = PluginUse(
        policies={INLINE_SIZE.name: HEURISTIC},
        logs=(INLINE_SIZE.name,),
        log_default=False,
        optimizer_passes=override_bytes(OPTIMIZER_PASSES, group_by_function(left_out)) if left_out else b"",
        list_changes=True,
    )
    return compiler.compile(module, CompileRequest(use=use, keep="none"))


def _moves(functions: Sequence[FunctionQuestions], base: Compilation) -> list[_Move]:
    """List the passes to skip: those that changed a function whose body is unique in the module."""
    assert base.changes is not None  # noqa: S101
    keys, changed = base.changes.keys, base.changes.changed
    bodies = Counter(keys.values())
    moves: list[_Move] = []
    for function in functions:
        key = keys.get(function.name)
        if key is None or bodies[key] > 1:
            continue
        effective = {name for name, _ in changed.get(key, ())}
        positions: list[int] = function.passes.tolist()
        for row, position in enumerate(positions):
            name = DECIDED_PASSES[position]
            if position >= len(GENERATOR_PASSES) and name in effective:
                moves.append(_Move(function=function, row=row, key=key, number=pass_number(name)))
    return moves


def _bytes(build: Compilation, objective: Objective) -> Floats:
    """Sum the bytes of each function, [F]: code, and if the objective counts them, read-only data and unwind tables."""
    columns = build.measured.function_bytes.astype(np.float64)
    # The first column is the code, TEXT being the first kind of section.
    return columns[:, TEXT - 1] if objective is Objective.LINK_AWARE_TEXT else columns.sum(axis=1)


def _isolated_moves(credit: Credit, moves: Sequence[_Move], *, first: int) -> list[tuple[_Move, float]]:
    """Select the moves that share no component (changed functions that several moves can explain) with another move.

    Args:
        credit: changes of a build that made exactly these moves, by component.
        moves: moves of the build.
        first: position of the first move among the decisions of the build, which the other moves follow.

    Returns:
        Each selected move, with the bytes that it added; negative if it saved some.
    """
    sizes = np.bincount(credit.component, minlength=len(credit.change))
    return [
        (moves[position - first], float(credit.change[component]))
        for position, component in zip(credit.flips.tolist(), credit.component.tolist(), strict=True)
        if sizes[component] == 1
    ]


def _trials(
    labels: Sequence[tuple[Ints, float, float, float]], compiled: Sequence[Compilation], reason: str = ""
) -> ModuleTrials:
    """Make the trials of a module from labels (features, change in bytes, slowdown, size) and their compilations."""
    columns = np.array([label[1:] for label in labels], np.float64).reshape(-1, 3).T
    return ModuleTrials(
        values=np.array([label[0] for label in labels], np.int64).reshape(len(labels), len(PASS_SELECTION.features)),
        change=columns[0],
        slowdown=columns[1],
        size=columns[2],
        trials=len(labels),
        compilations=len(compiled),
        user_seconds=sum(done.user_seconds for done in compiled),
        reason=reason,
        was_ended=any(done.was_ended for done in compiled),
    )
