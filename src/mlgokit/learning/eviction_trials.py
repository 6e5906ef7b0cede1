"""What single evictions do to a function, measured: trials that answer one question otherwise than a policy would.

A compilation under the policy, or LLVM's heuristic, logs every question of the allocator about evictions. Then each
trial allocates one function in a copy of the compiler (``compiler/reuse/trials.py``) with one other answer, so its
change belongs to one decision alone.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.eviction_fit import EVICTION_FEATURES, EvictionLabels
from mlgokit.compiler.arrays import DAMAGE, arrays_in
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.request import HEURISTIC, Compiler
from mlgokit.compiler.reuse.trials import (
    IMAGE_BYTES,
    MEASURES,
    OVERRIDE,
    QUESTION_COLUMNS,
    TRIAL,
    Floats,
    Outcome,
    Overrides,
    Records,
    Series,
    Stage,
    executed_weights,
)
from mlgokit.learning.function_trials import ask_logged, compile_trials
from mlgokit.module import Module
from mlgokit.policy.columns import base_names, column_values
from mlgokit.problems import REGALLOC_EVICTION, column_count
from mlgokit.traces import Log

_TINY = 1e-12
"""A probability at which nothing is flipped, but questions are counted."""
_WEIGHTS = executed_weights(IMAGE_BYTES)
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvictionQuestions:
    """The Q questions about evictions of one compilation; C columns each.

    Attributes:
        given: by name, values [Q, C], or [Q, 1] of what is the same in every column.
        mask: bool [Q, C] which columns may be chosen.
        default: [Q] the heuristic's column.
        decision: [Q] the one that was taken.
        live_range: [Q] which live range asked, as trials name it.
        nth: [Q] how often that one had asked before.
        functions: rows by key of the function.
    """

    given: Mapping[str, npt.NDArray[np.float64]]
    mask: npt.NDArray[np.bool_]
    default: Ints
    decision: Ints
    live_range: Ints
    nth: Ints
    functions: Mapping[int, Ints]

    def rows(self, questions: Ints, columns: Ints) -> Floats:
        """[N, F] what a policy sees of ``columns`` [N] of ``questions`` [N]."""
        used, place = np.unique(questions, return_inverse=True)
        given = {name: values[used] for name, values in self.given.items()}
        values = column_values(EVICTION_FEATURES, given, self.mask[used], self.default[used])
        return values[place, columns]

    def alternatives(self, key: int) -> tuple[Ints, Ints]:
        """Questions [N] of a function, and a column [N] for each that might be chosen in place of the one that was."""
        mine = self.functions[key]
        # What the heuristic takes may be masked out: then nothing can be measured against it.
        mine = mine[self.mask[mine, self.default[mine]]]
        others = self.mask[mine].copy()
        others[np.arange(len(mine)), self.decision[mine]] = False
        place, column = np.nonzero(others)
        return mine[place], column


def ask_evictions(
    compiler: Compiler, module: Module, policy: str = HEURISTIC
) -> tuple[Compilation, EvictionQuestions | None]:
    """Compile a module under a policy; the compilation, and the questions about evictions if there were any."""
    done, log = ask_logged(compiler, module, REGALLOC_EVICTION, Stage.REGISTERS, policy=policy)
    if log is None:
        return done, None
    keys = {one.name: one.key for one in done.tried if one.stage is Stage.REGISTERS}
    return done, _questions(log, keys)


def _questions(log: Log, keys: Mapping[str, int]) -> EvictionQuestions:
    count = log.observation_count
    shape = (count, column_count(REGALLOC_EVICTION, log.header.features))

    def single(name: str) -> Ints:
        return log.columns[name].reshape(count).astype(np.int64)

    rows: dict[int, list[int]] = {}
    for span in log.contexts:
        if span.name in keys:
            rows.setdefault(keys[span.name], []).extend(range(span.start, span.stop))
    live_range, nth = map(single, QUESTION_COLUMNS)
    return EvictionQuestions(
        given={name: log.columns[name].reshape(count, -1).astype(np.float64) for name in base_names(EVICTION_FEATURES)},
        mask=log.columns["mask"].reshape(shape) != 0,
        default=single(REGALLOC_EVICTION.default_decision),
        decision=single(REGALLOC_EVICTION.decision),
        live_range=live_range,
        nth=nth,
        functions={key: np.array(places, np.int64) for key, places in rows.items() if places},
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvictionTrials:
    """What trials of one module found; C of them succeeded, of whose answers N departed from the heuristic's.

    Attributes:
        values: float32 [N, F] features of :data:`~mlgokit.algorithms.eviction_fit.EVICTION_FEATURES`.
        sign: float32 [N] 1 for the answer of a trial, -1 for the policy's own in whose place it stood.
        component: int64 [N] which trial.
        before: float64 [C, 9] what the function measures by the policy alone.
        after: float64 [C, 9] and with the other answer.
        trials: how many were made.
        user_seconds: processor time.
        reason: why there are none; empty if the module compiled.
    """

    values: npt.NDArray[np.float32]
    sign: npt.NDArray[np.float32]
    component: Ints
    before: Floats
    after: Floats
    trials: int = 0
    user_seconds: float = 0.0
    reason: str = ""

    def to_bytes(self) -> bytes:
        """The file that keeps them."""
        out = io.BytesIO()
        numbers = {name: getattr(self, name) for name in _KEPT}
        np.savez_compressed(out, **numbers, reason=np.array(self.reason))
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "EvictionTrials | None":
        """What a file keeps; nothing if it is damaged."""
        try:
            found = arrays_in(data, {*_KEPT, "reason"})
            return cls(
                values=found["values"].astype(np.float32).reshape(-1, len(EVICTION_FEATURES)),
                sign=found["sign"].astype(np.float32),
                component=found["component"].astype(np.int64),
                before=found["before"].astype(np.float64).reshape(-1, len(MEASURES)),
                after=found["after"].astype(np.float64).reshape(-1, len(MEASURES)),
                trials=int(found["trials"]),
                user_seconds=float(found["user_seconds"]),
                reason=str(found["reason"]),
            )
        except DAMAGE:
            return None

    def labels(self, project: str) -> EvictionLabels:
        """The same as labels of a project."""
        return EvictionLabels(
            values=self.values,
            sign=self.sign,
            component=self.component,
            before=self.before,
            after=self.after,
            project=np.zeros(len(self.before), np.int64),
            projects=(project,),
        )


_KEPT = ("values", "sign", "component", "before", "after", "trials", "user_seconds")


def no_trials(reason: str = "", *, trials: int = 0, user_seconds: float = 0.0) -> EvictionTrials:
    """Nothing was found."""
    return EvictionTrials(
        values=np.zeros((0, len(EVICTION_FEATURES)), np.float32),
        sign=np.zeros(0, np.float32),
        component=np.zeros(0, np.int64),
        before=np.zeros((0, len(MEASURES))),
        after=np.zeros((0, len(MEASURES))),
        trials=trials,
        user_seconds=user_seconds,
        reason=reason,
    )


def try_evictions(
    compiler: Compiler,
    module: Module,
    questions: EvictionQuestions,
    drawn: Sequence[tuple[int, Ints, Ints]],
    *,
    policy: str = HEURISTIC,
) -> EvictionTrials:
    """Answer single questions otherwise, each in a trial of its own; a trial that fails is left out.

    Args:
        compiler: compiles.
        module: whose functions they are.
        questions: what :func:`ask_evictions` found under the same policy.
        drawn: keys of functions, with questions [N] of each and the columns [N] to choose instead.
        policy: decides all other questions.
    """
    series = [
        one
        for key, asked, columns in drawn
        for one in _series(questions, key, asked, columns, by_rule=policy != HEURISTIC)
    ]
    if not series:
        return no_trials()
    done = _compiled(compiler, module, series, policy)
    if not done.ok:
        return no_trials(done.reason or done.status.value, user_seconds=done.user_seconds)
    outcomes: dict[int, list[Outcome]] = {}
    for one in done.tried:
        outcomes.setdefault(one.key, []).extend(one.outcomes)
    chosen: list[tuple[int, int]] = []
    before: list[Floats] = []
    after: list[Floats] = []
    for key, asked, columns in drawn:
        mine = [one.measured for one in outcomes.get(key, ())]
        if not mine or mine[0] is None:
            continue
        for question, column, measured in zip(asked.tolist(), columns.tolist(), mine[1:], strict=False):
            if measured is not None:
                chosen.append((question, column))
                before.append(mine[0])
                after.append(measured)
    count = sum(map(len, outcomes.values()))
    if not chosen:
        return no_trials(trials=count, user_seconds=done.user_seconds)
    asked, columns = np.array(chosen, np.int64).T
    default, decision = questions.default[asked], questions.decision[asked]
    number = np.arange(len(asked))
    # What the heuristic would have taken has no effect, by definition.
    there, away = columns != default, decision != default
    order = np.argsort(np.concatenate([number[there], number[away]]), kind="stable")
    values = np.concatenate([questions.rows(asked[there], columns[there]), questions.rows(asked[away], decision[away])])
    sign = np.concatenate([np.ones(int(there.sum()), np.float32), -np.ones(int(away.sum()), np.float32)])
    return EvictionTrials(
        values=values[order].astype(np.float32),
        sign=sign[order],
        component=np.concatenate([number[there], number[away]])[order],
        before=np.stack(before),
        after=np.stack(after),
        trials=count,
        user_seconds=done.user_seconds,
    )


def try_policy(compiler: Compiler, module: Module, keys: Sequence[int], policy: str) -> tuple[Floats, Floats]:
    """What functions measure as LLVM allocates them, and by a policy: [N, 9] each, of those that succeeded."""
    trials = _still(2)
    trials["by_rule"][1] = 1
    series = [Series(key=key, base=Overrides(), score=-np.inf, trials=trials) for key in keys]
    done = _compiled(compiler, module, series, policy) if series else None
    tried = () if done is None or not done.ok else done.tried
    # Functions without trials are listed too.
    pairs = [[outcome.measured for outcome in one.outcomes] for one in tried if len(one.outcomes) == 2]
    both = [(before, after) for before, after in pairs if before is not None and after is not None]
    before, after = np.array(both).reshape(-1, 2, len(MEASURES)).swapaxes(0, 1)
    return before, after


def _series(questions: EvictionQuestions, key: int, asked: Ints, columns: Ints, *, by_rule: bool) -> list[Series]:
    """The function by the policy alone, then with each of the other answers."""
    bases = [Overrides()]
    for question, column in zip(asked.tolist(), columns.tolist(), strict=True):
        other = np.zeros(1, OVERRIDE)
        other["range"], other["nth"] = questions.live_range[question], questions.nth[question]
        other["choice"] = column
        bases.append(Overrides(evictions=other))
    trials = _still(1)
    trials["by_rule"] = by_rule
    return [Series(key=key, base=base, score=-np.inf, trials=trials) for base in bases]


def _still(count: int) -> Records:
    """[count] trials that draw nothing."""
    trials = np.zeros(count, TRIAL)
    trials["eviction_flips"] = _TINY
    return trials


def _compiled(compiler: Compiler, module: Module, series: Sequence[Series], policy: str) -> Compilation:
    return compile_trials(
        compiler, module, REGALLOC_EVICTION, series, stage=Stage.REGISTERS, weights=_WEIGHTS, policy=policy
    )
