"""Decisions about functions as a space: tried function by function, scored by costs of spills, or by bytes."""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import Overrides, Series, TrialRequest, TrialResults
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.overrides import OverrideSummary, write_overrides
from mlgokit.tune.search import progress_path
from mlgokit.tune.space import IsOver, PendingWork, Score, recent_rate
from mlgokit.tune.spaces.functions.compare import (
    dearer_functions,
    folded_in,
    keys_of,
    larger_functions,
    objection_in_bytes,
    slower_functions,
)
from mlgokit.tune.spaces.functions.rounds import (
    LEAST_TRIAL_SECONDS,
    ROUND_SECONDS,
    ROUND_SHARE,
    TrialPlan,
    plan_round,
    record_outcomes,
)
from mlgokit.tune.spaces.functions.state import FunctionState, ModuleFunctions, save_functions
from mlgokit.tune.verify import VerifiedBuild

_MOST_PATIENCE = 8
"""Factor on the trials without a gain that a function gets while the others of its project are exhausted, too."""
_LEAST = 0.5
"""Minimum gain of a function in bytes; the costs in a score, which break ties between equal sizes, are smaller."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """Trials of the functions of one module, in one compilation.

    Attributes:
        tried: results of the trials, by function.
        user_seconds: processor time of the compilation and the trials.
        compilations: number of compilations.
        asked: keys of the functions that were to be tried.
    """

    tried: Sequence[TrialResults]
    user_seconds: float
    asked: frozenset[int] = frozenset()
    compilations: int = 1

    @property
    def trials(self) -> int:
        """Number of times that the code of a function was generated, or its registers allocated."""
        return sum(len(one.outcomes) for one in self.tried)


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionSpace:
    """The functions of one project with the decisions that are tried in each, and their table as a candidate.

    Attributes:
        folder: folder for the progress.
        compiler: compiler of the modules.
        config: the kind of trials.
        beneath: the tables that modules are compiled with beside the overrides that are tried.
        units: modules that compile, with their functions.
        failures: reasons by name for modules that do not compile.
        list_all: whether the table also lists functions without overrides, so that a policy does not decide them.
        objective: decides which bytes count, if scores are bytes.
        measured_by: digest by module of all that the scores of its functions depend on, except for their code.
        twins: keys of functions in groups that the linker folds into one; a group shares its overrides, so that it
            still folds.
        withheld: keys of functions that LLVM decides, because runs of the program spoke against what was found.
    """

    folder: Path
    compiler: Compiler
    config: TrialPlan
    beneath: PluginUse = field(default_factory=PluginUse)
    units: list[ModuleFunctions] = field(default_factory=list[ModuleFunctions])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    list_all: bool = False
    objective: Objective = Objective.LINK_AWARE
    measured_by: dict[str, str] = field(default_factory=dict[str, str])
    twins: Sequence[frozenset[int]] = ()
    withheld: set[int] = field(default_factory=set[int])
    _round_seconds: float = ROUND_SECONDS
    _patience: int = 1

    @property
    def functions(self) -> list[FunctionState]:
        """The functions of all modules; one that several modules have counts once."""
        return [one for unit in self.units for one in unit.functions]

    @property
    def tried_functions(self) -> set[int]:
        """Keys of the functions that trials were made in."""
        return {one.key for one in self.functions if one.trials}

    @property
    def score(self) -> Score:
        """The sum of the best scores; and the geometric mean of their changes, or in bytes the change of the sum."""
        sums = [unit.sums for unit in self.units]
        before, after, count = (sum(getattr(one, name) for one in sums) for name in ("before", "after", "count"))
        if self.config.in_bytes:
            return Score(value=after, change=after / before - 1 if before else 0.0)
        return Score(value=after, change=math.expm1(sum(one.log_change for one in sums) / count) if count else 0.0)

    @property
    def pending(self) -> Sequence[PendingWork[ModuleFunctions, Round]]:
        """No work: every outcome was measured."""
        return ()

    def compile(
        self, module: Module, series: Sequence[Series] = (), *, seconds: float = 1.0, costs: bool = False
    ) -> Compilation:
        """Compile a module with the trials in ``series``, each of at most ``seconds``."""
        inlining = {INLINE_SIZE.name: HEURISTIC} if self.beneath.decisions else {}
        trials = TrialRequest(
            series=tuple(series),
            stages=self.config.stage,
            seconds=seconds,
            weights=self.config.weights,
            penalty=self.config.penalty,
        )
        use = dataclasses.replace(self.beneath, policies={**self.config.policies, **inlining}, trials=trials)
        extra = 10 * self._round_seconds + 0.1 * sum(len(one.trials) for one in series)
        return self.compiler.compile(module, CompileRequest(use=use, regalloc=costs, extra_seconds=extra))

    def prepare(self, spent: float, seconds: float, _rng: np.random.Generator) -> float:
        """Set the length of a round: each compiles its module once, so rounds may be longer in a long session.

        If all functions are exhausted before the time is over, each gets twice as many trials without a gain as before.
        """
        self._round_seconds = min(max(ROUND_SECONDS, ROUND_SHARE * seconds), max(1.0, seconds - spent))
        while spent < seconds and self._patience < _MOST_PATIENCE and all(unit.exhausted for unit in self.units):
            self._patience *= 2
            for function in self.functions:
                function.patience = self._patience
        return 0.0

    def urgency(self, unit: ModuleFunctions, running: int) -> tuple[float, ...] | None:
        """Modules that gained most per second lately come first; several workers try functions of one, each its own."""
        return None if unit.exhausted or (running and not unit.has_unclaimed) else (-unit.rate,)

    def step_seconds(self, unit: ModuleFunctions) -> float:
        """Processor time of a compilation of the module, and of the trials of a round, which take as long at least."""
        return 2 * unit.compile_seconds

    def propose(self, unit: ModuleFunctions, rng: np.random.Generator, _is_over: IsOver) -> Callable[[], Round]:
        """Return the work of a round of trials, for functions of a module that no other round has claimed."""
        asked = plan_round(
            self.config,
            unit,
            rng.spawn(1)[0],
            most_seconds=self._round_seconds,
            shares=max(1, self.compiler.workers // len(self.units)),
        )
        unit.claimed |= {series.key for series in asked}
        return functools.partial(self._try_functions, unit, asked)

    def _try_functions(self, unit: ModuleFunctions, asked: Sequence[Series]) -> Round:
        """Run a round of trials in one compilation."""
        by_key = {function.key: function for function in unit.functions}
        longest = max((by_key[series.key].seconds for series in asked), default=0.0)
        done = self.compile(unit.module, asked, seconds=LEAST_TRIAL_SECONDS + 20 * longest)
        tried = [one for one in done.tried if done.ok and one.outcomes and one.key in by_key]
        keys = frozenset(series.key for series in asked)
        return Round(tried=tried, user_seconds=done.user_seconds, asked=keys)

    def accept(self, unit: ModuleFunctions, step: Round) -> None:
        """Keep the best outcome of each function."""
        unit.claimed -= step.asked
        by_key = {function.key: function for function in unit.functions}
        unit.failures = 0 if step.tried else unit.failures + 1
        gain = sum(record_outcomes(by_key[one.key], one.outcomes, self.config) for one in step.tried)
        unit.rate = recent_rate(unit.rate, gain, step.user_seconds)
        unit.add_up()
        name = unit.module.name
        save_functions(progress_path(self.folder, name), unit.functions, measured_by=self.measured_by.get(name, ""))

    def close(self) -> None:
        """End resident compilers."""
        self.compiler.close()

    def chosen(self) -> dict[int, Overrides]:
        """Overrides of the functions that are better with them than as LLVM makes them, by key."""
        least = _LEAST if self.config.in_bytes else 0.0
        better = {
            one.key: one.overrides
            for one in self.functions
            if one.worth * one.score < one.worth * one.plain - least and one.overrides
        }
        if not self.config.in_bytes:
            return better
        # There was no time to try these overrides of an earlier plugin; the verification checks them.
        better |= {one.key: one.start for one in self.functions if one.start and not one.trials}
        saved = {one.key: one.worth * (one.plain - one.score) for one in self.functions if math.isfinite(one.plain)}
        for keys in self.twins:
            if alike := sorted(keys & better.keys()):
                best = max(alike, key=lambda key: saved.get(key, 0.0))
                better |= dict.fromkeys(keys, better[best])
        return {key: overrides for key, overrides in better.items() if key not in self.withheld}

    def decided_functions(self) -> set[str]:
        """Names of the functions that the table has entries of."""
        keys = self.entries()
        return {name for unit in self.units for name, key in unit.keys.items() if key in keys}

    def take_back(self, functions: Collection[int]) -> bool:
        """Leave functions, by their ids, to LLVM; return whether that decides otherwise."""
        keys = keys_of((unit.keys for unit in self.units), functions)
        changes = not keys.isdisjoint(self.chosen())
        self.withheld |= keys
        return changes

    @property
    def kind(self) -> str:
        """Kind of the table: allocations, or passes."""
        return self.config.kind.table

    def entries(self) -> Collection[int]:
        """Keys of the functions that are better with overrides than as LLVM makes them."""
        return self.chosen().keys()

    def write(self, path: Path, kept: Collection[Hashable]) -> None:
        """Write the table with the overrides of the ``kept`` functions."""
        every = {key: Overrides() for unit in self.units for key in unit.keys.values()} if self.list_all else {}
        chosen = {key: overrides for key, overrides in self.chosen().items() if key in kept}
        measured = [one for one in self.functions if math.isfinite(one.plain)]
        summary = OverrideSummary(
            llvm=self.compiler.toolchain.major,
            functions=len(measured),
            plain_score=sum(one.plain for one in measured),
            tuned_score=sum(one.score if one.key in kept else one.plain for one in measured),
        )
        write_overrides(self.config.kind, path, every | chosen, summary)

    def refuted(
        self, before: VerifiedBuild, after: VerifiedBuild, kept: Collection[Hashable]
    ) -> dict[str, tuple[Collection[Hashable], str]]:
        """Functions that are larger or cost more with the table, or all of a module if it cannot be told which."""
        text_only = self.objective is Objective.LINK_AWARE_TEXT
        wrong: dict[str, tuple[Collection[Hashable], str]] = {}
        for unit in self.units:
            name, mine = unit.module.name, {key for key in unit.keys.values() if key in kept}
            first, second = before.compilations[name], after.compilations[name]
            if not first.ok:
                continue
            if not second.ok:
                wrong[name] = mine, f"it does not compile with the result: {second.reason}"
            elif mine and self.objective is Objective.EXECUTED:
                wrong[name] = slower_functions(unit.keys, mine, first.measured, second.measured), ""
            elif mine and self.config.in_bytes:
                folded = folded_in(unit.module, before)
                larger = larger_functions(
                    unit.keys, mine, first.measured, second.measured, text_only=text_only, folded=folded
                )
                wrong[name] = larger, ""
            elif mine:
                wrong[name] = dearer_functions(unit.keys, mine, first, second)
        return {name: refusal for name, refusal in wrong.items() if refusal[0]}

    def entries_of(self, modules: Collection[str]) -> Collection[int]:
        """Table keys of all functions of these modules."""
        changed = [unit for unit in self.units if not set(unit.names).isdisjoint(modules)]
        return {key for unit in changed for key in unit.keys.values()}

    def objection(self, before: VerifiedBuild, after: VerifiedBuild) -> str:
        """Why the whole project is not smaller, if scores are bytes; costs are compared by function alone."""
        return objection_in_bytes(before, after, self.objective) if self.config.in_bytes else ""
