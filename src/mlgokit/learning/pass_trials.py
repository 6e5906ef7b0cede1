"""What leaving a pass of the code generator out does to a function, measured: a trial for each that asks about it.

Each trial makes the code of one function in a copy of the compiler (``compiler/reuse/trials.py``), so its change of
bytes is exact, and belongs to one decision alone.
"""

import dataclasses
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.arrays import DAMAGE, arrays_in
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.trials import (
    MEASURES,
    MOST_TOGGLES,
    OVERRIDE,
    TRIAL,
    Floats,
    Overrides,
    Series,
    Stage,
    Tried,
    pass_number,
)
from mlgokit.learning.function_trials import ask_logged, compile_trials
from mlgokit.module import Module
from mlgokit.problems import DECIDED_PASSES, GENERATOR_PASSES, PASS_SELECTION
from mlgokit.traces import Log

_LEAST_EXECUTED = 1e-9
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionQuestions:
    """What passes asked about one function.

    Attributes:
        key: of the function.
        name: of the function.
        values: [Q, F] features.
        passes: [Q] places in :data:`DECIDED_PASSES`.
        occurrences: [Q] how often each asked before.
    """

    key: int
    name: str
    values: Ints
    passes: Ints
    occurrences: Ints


def ask(compiler: Compiler, module: Module) -> tuple[Compilation, list[FunctionQuestions]]:
    """Compile a module as LLVM does; the compilation, and what passes asked about its functions."""
    done, log = ask_logged(compiler, module, PASS_SELECTION, Stage.PASSES)
    if log is None:
        return done, []
    keys = {one.name: one.key for one in done.tried if one.stage is Stage.PASSES}
    return done, _questions(log, keys)


def _questions(log: Log, keys: dict[str, int]) -> list[FunctionQuestions]:
    columns = log.columns
    names = PASS_SELECTION.feature_names
    values = np.stack([columns[name].reshape(-1).astype(np.int64) for name in names], axis=1)
    places = values[:, -len(DECIDED_PASSES) :].argmax(axis=1)
    occurrences = values[:, names.index("occurrence")]
    rows: dict[str, list[int]] = {}
    for span in log.contexts:
        rows.setdefault(span.name, []).extend(range(span.start, span.stop))
    return [
        FunctionQuestions(
            key=keys[name], name=name, values=values[mine], passes=places[mine], occurrences=occurrences[mine]
        )
        for name, mine in rows.items()
        if name in keys
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModuleTrials:
    """What trials of the functions of one module found; N of them succeeded.

    Attributes:
        values: int64 [N, F] features.
        change: float64 [N] bytes of the function, without the pass minus with it.
        slowdown: float64 [N] by which part more is executed, by LLVM's estimate.
        size: float64 [N] bytes of the function with all passes.
        trials: how many were made.
        compilations: in which they were.
        user_seconds: processor time.
        reason: why there are none; empty if the module compiled.
    """

    values: Ints
    change: Floats
    slowdown: Floats
    size: Floats
    trials: int
    compilations: int
    user_seconds: float
    reason: str = ""

    def to_bytes(self) -> bytes:
        """The file that keeps them."""
        out = io.BytesIO()
        numbers = {name: getattr(self, name) for name in _KEPT}
        np.savez(out, **numbers, reason=np.array(self.reason))
        return out.getvalue()

    def beside(self, other: "ModuleTrials") -> "ModuleTrials":
        """All of two kinds of trials."""
        return ModuleTrials(
            **{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _COLUMNS},
            trials=self.trials + other.trials,
            compilations=self.compilations + other.compilations,
            user_seconds=self.user_seconds + other.user_seconds,
            reason=self.reason or other.reason,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "ModuleTrials | None":
        """What a file keeps; nothing if it is damaged."""
        try:
            found = arrays_in(data, {*_KEPT, "reason"})
            return cls(
                values=found["values"].astype(np.int64).reshape(-1, len(PASS_SELECTION.features)),
                change=found["change"].astype(np.float64),
                slowdown=found["slowdown"].astype(np.float64),
                size=found["size"].astype(np.float64),
                trials=int(found["trials"]),
                compilations=int(found["compilations"]),
                user_seconds=float(found["user_seconds"]),
                reason=str(found["reason"]),
            )
        except DAMAGE:
            return None


_COLUMNS = ("values", "change", "slowdown", "size")
_KEPT = (*_COLUMNS, "trials", "compilations", "user_seconds")


def try_passes(
    compiler: Compiler, module: Module, functions: Sequence[FunctionQuestions], *, weights: Floats
) -> ModuleTrials:
    """Leave out each pass of the code generator that asks about one of the functions, by itself, where that works.

    Args:
        compiler: compiles.
        module: whose functions they are.
        functions: some of those that :func:`ask` found.
        weights: [9] of what a trial measures, in bytes; what is executed must have one.
    """
    functions = [_of_generator(one) for one in functions]
    series = [_series(one) for one in functions if len(one.passes)]
    done = compile_trials(compiler, module, PASS_SELECTION, series, stage=Stage.PASSES, weights=weights)
    asked = {one.key: one for one in functions}
    found = [
        _measured(asked[one.key], one, weights) for one in done.tried if done.ok and one.key in asked and one.outcomes
    ]
    values = [one[0] for one in found] or [np.zeros((0, len(PASS_SELECTION.features)), np.int64)]
    columns = np.concatenate([one[1] for one in found] or [np.zeros((3, 0))], axis=1)
    return ModuleTrials(
        values=np.concatenate(values),
        change=columns[0],
        slowdown=columns[1],
        size=columns[2],
        trials=sum(len(one.outcomes) for one in done.tried),
        compilations=1,
        user_seconds=done.user_seconds,
        reason="" if done.ok else done.reason or done.status.value,
    )


def _of_generator(function: FunctionQuestions) -> FunctionQuestions:
    """What passes of the code generator asked about a function."""
    mine = function.passes < len(GENERATOR_PASSES)
    return dataclasses.replace(
        function,
        values=function.values[mine],
        passes=function.passes[mine],
        occurrences=function.occurrences[mine],
    )


def _measured(function: FunctionQuestions, tried: Tried, weights: Floats) -> tuple[Ints, Floats]:
    """Features [Q, F]; and [3, Q] changes, slowdowns and sizes of the trials that succeeded."""
    scores = np.array([outcome.score for outcome in tried.outcomes])
    executed = np.array([outcome.cost for outcome in tried.outcomes]) / weights[MEASURES.index("executed")]
    good = np.isfinite(scores[1:]) & np.isfinite(scores[0])
    slowdown = executed[1:] / max(executed[0], _LEAST_EXECUTED) - 1
    columns = np.stack([scores[1:] - scores[0], slowdown, np.full(len(good), scores[0])])
    return function.values[good], columns[:, good]


def _series(function: FunctionQuestions) -> Series:
    """All passes run, then each is left out by itself; no trial departs from another."""
    count = len(function.passes)
    toggled = np.zeros((count + 1, MOST_TOGGLES), OVERRIDE)
    places: list[int] = function.passes.tolist()
    occurrences: list[int] = function.occurrences.tolist()
    for row, (place, nth) in enumerate(zip(places, occurrences, strict=True)):
        toggled[row + 1, 0] = (pass_number(DECIDED_PASSES[place]), nth, 0)
    trials = np.zeros(count + 1, TRIAL)
    trials["toggles"][1:] = 1
    return Series(key=function.key, base=Overrides(), score=-np.inf, trials=trials, toggled=toggled)
