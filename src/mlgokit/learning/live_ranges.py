"""Learning what the allocator is told of live ranges: generations of policies, each on the same functions, and judges.

Priorities or spill weights: each generation allocates a part of the functions that teach (``live_range_functions.py``)
by all its policies, and CMA-ES moves to where scores are lower. After some generations the search's centre is tried on
all functions, and those that it changes teach, too: a function that needs no spill as LLVM allocates it may get one by
no policy but such a one. What is found before the first generation is kept, and each generation when it ends, so a run
that was interrupted goes on. At last functions of projects kept apart judge the policy.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.config import RangeTrialsConfig
from mlgokit.algorithms.learner import Floats, State
from mlgokit.algorithms.live_range_search import FAILED, rewards, single_weights
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.trials import MEASURES
from mlgokit.errors import CorpusError, UsageError
from mlgokit.learning.checkpoint import Counters, load_checkpoint, rows_up_to, save_checkpoint
from mlgokit.learning.function_judges import ModuleFunctions, judge_functions
from mlgokit.learning.live_range_functions import PlacedFunction, RangeBench, changed_functions, gather_functions
from mlgokit.learning.live_range_trials import try_ranges
from mlgokit.learning.loop import Learned
from mlgokit.learning.metrics import Row, write_metrics
from mlgokit.learning.settings import Learning, check_ready
from mlgokit.learning.trials import refuse_loss, trial_row, trial_settings
from mlgokit.learning.validation import Validation
from mlgokit.locks import locked
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.store import MOST_COST
from mlgokit.policy.targets import for_modules
from mlgokit.problems import REGALLOC_WEIGHT, Problem
from mlgokit.progress import Report, say_nothing

ALGORITHM = "es"
_DEPENDING = "depending"
"""In the state [D, 2] of functions that teach from the beginning: places and keys."""
_JOINED = "joined"
"""In the state [J, 2] of those that began to teach later, alike."""


def learn_live_ranges(
    compiler: Compiler,
    modules: Sequence[Module],
    algorithm: str,
    config: Learning,
    *,
    problem: Problem,
    folder: Path,
    report: Report = say_nothing,
    deadline: float = np.inf,
) -> Learned:
    """Learn a policy of priorities or of spill weights; generations that are in ``folder`` are not made again.

    Args:
        compiler: compiles.
        modules: what to learn from, made at the level that the policy is for.
        algorithm: evolution strategies, the only ones that learn this from trials.
        config: how, with the preset ``trials``; turns and the policy to start from do not apply.
        problem: whose decisions are learned.
        folder: where generations and metrics go.
        report: progress.
        deadline: monotonic seconds after which no generation but the first begins.

    Raises:
        BusyError: another process works in the folder.
        CorpusError: there is nothing to learn from.
        InputError: what is in the folder is damaged.
        ToolError: the packages for learning are not installed.
        UsageError: the settings contradict themselves, or no departure from the heuristic pays; the policy is kept
            under a name of its own then.
    """
    settings: RangeTrialsConfig = trial_settings(
        problem,
        algorithm,
        config,
        fewer="functions",
        learns=ALGORITHM,
        uses=("excluded", "features"),
        at_least_one=("generations", "population", "functions"),
    )
    _check_costs(problem, settings)
    check_ready(modules)
    with locked(folder):
        kept = load_checkpoint(folder, algorithm)
        known = _functions_of(kept[0], _DEPENDING) if kept and _DEPENDING in kept[0] else None
        bench = gather_functions(compiler, modules, problem, settings, config, known=known, report=report)
        run = _Run(compiler=compiler, settings=settings, seed=config.seed, report=report, bench=bench)
        state, counters = kept or (
            run.opening(),
            Counters(evaluations=bench.compilations, user_seconds=bench.user_seconds, failed=len(bench.left_out)),
        )
        if known is None:
            state = {**state, _DEPENDING: _rows_of(bench.depending)}
            save_checkpoint(folder, algorithm, state, counters)
        rows = rows_up_to(counters.turn, folder)
        while counters.turn < settings.generations and (not counters.turn or time.monotonic() < deadline):
            state, counters, row = run.generation(state, counters)
            rows.append(row)
            write_metrics(folder, rows)
            save_checkpoint(folder, algorithm, state, counters)
        policy, compilations, user_seconds = run.costed(bench.policy(state["centre"]))
        judged = run.judge(policy)
        refuse_loss(problem, for_modules(policy, modules), judged, folder)
        counters = dataclasses.replace(
            counters,
            compilations=counters.compilations + compilations,
            user_seconds=counters.user_seconds + user_seconds,
            evaluations=counters.evaluations + len(judged.modules),
            best_turn=counters.turn,
            best_gain=judged.gain,
        )
        rows[-1] = {**rows[-1], "validation_gain": float(judged.gain)}
        if settings.csr_first_time_costs:
            rows[-1] = {**rows[-1], "learner/csr_first_time_cost": float(policy.csr_first_time_cost)}
        write_metrics(folder, rows)
    return Learned(
        policy=policy,
        counters=counters,
        rows=tuple(rows),
        taught=len(run.taught(state, counters.turn)),
        judged=len(judged.modules),
        left_out=dict(Counter(bench.left_out)),
        judged_modules=judged.modules,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Run:
    """What all generations share.

    Attributes:
        compiler: compiles.
        settings: of the search.
        seed: of all draws.
        report: progress.
        bench: functions that teach and judge.
    """

    compiler: Compiler
    settings: RangeTrialsConfig
    seed: int
    report: Report
    bench: RangeBench

    def opening(self) -> State:
        """The search around the best policy by one feature alone."""
        from mlgokit.algorithms import cma

        rng = np.random.default_rng([self.seed, 0])
        single = self.settings.opening * single_weights(len(self.bench.features))
        taught = self.bench.drawn(self.bench.depending, self.settings.functions, rng)
        gained, _, _ = self._rewards(taught, single, rng, "policies by one feature")
        best = single[int(np.nanargmax(gained))]
        state = cma.start(best, spread=self.settings.spread, population=self.settings.population)
        return {**state, _JOINED: _rows_of(())}

    def taught(self, state: State, turn: int) -> tuple[ModuleFunctions, ...]:
        """The functions that teach in a turn, with their modules; another draw after others have joined."""
        depending = self.bench.depending | _functions_of(state, _JOINED)
        renewals = (turn - 1) // self.settings.renewed if self.settings.renewed > 0 else 0
        return self.bench.drawn(depending, self.settings.functions, np.random.default_rng([self.seed, renewals, 1]))

    def generation(self, state: State, counters: Counters) -> tuple[State, Counters, Row]:
        """One generation of the search, and the functions that join after it."""
        from mlgokit.algorithms import cma

        begin = time.monotonic()
        turn = counters.turn + 1
        rng = np.random.default_rng([self.seed, turn])
        label = f"generation {turn} of {self.settings.generations}"
        taught = self.taught(state, turn)
        tested = cma.ask(state, rng)
        gained, failed, user_seconds = self._rewards(taught, tested, rng, label)
        functions = {name: state[name] for name in (_DEPENDING, _JOINED)}
        state = {**cma.tell(state, tested, gained), **functions}
        compilations = len(taught)
        if self.settings.renewed > 0 and turn % self.settings.renewed == 0 and turn < self.settings.generations:
            joined, more_seconds = changed_functions(
                self.compiler,
                self.bench.problem,
                self.bench.teaching,
                [self.bench.policy(state["centre"])],
                self.settings.score,
                report=self.report,
                label=f"{label}, which functions join",
            )
            known = _functions_of(state, _JOINED) | (joined - self.bench.depending)
            state = {**state, _JOINED: _rows_of(known)}
            compilations += len(self.bench.teaching)
            user_seconds += more_seconds
        counters = dataclasses.replace(
            counters,
            turn=turn,
            compilations=counters.compilations + compilations,
            user_seconds=counters.user_seconds + user_seconds,
            seconds=counters.seconds + time.monotonic() - begin,
        )
        numbers = {
            "weight_norm": float(np.linalg.norm(state["centre"])),
            "failed_trials": float(failed),
            "functions": float(sum(len(keys) for _, keys in taught)),
            "joined": float(len(state[_JOINED])),
        }
        return state, counters, trial_row(counters, numbers, gained)

    def costed(self, policy: Policy) -> tuple[Policy, int, float]:
        """The policy with the best cost of callee-saved registers; compilations and processor time to find it."""
        costs = (0, *self.settings.csr_first_time_costs)
        if len(costs) == 1:
            return policy, 0, 0.0
        policies = [dataclasses.replace(policy, csr_first_time_cost=cost) for cost in costs]
        parts = self.bench.drawn_modules(self.settings.cost_modules, np.random.default_rng([self.seed, 0, 2]))
        gained, _, user_seconds = self._tried(parts, policies, "what callee-saved registers cost")
        return policies[int(np.argmax(gained))], len(policies) * len(parts), user_seconds

    def judge(self, policy: Policy) -> Validation:
        """How a policy does on the functions of projects that were kept apart."""

        def measure(module: Module, keys: Sequence[int]) -> tuple[Floats, Floats]:
            found = np.array(
                list(try_ranges(self.compiler, module, self.bench.problem, keys, [policy]).measured.values())
            )
            before, after = found.reshape(-1, 2, len(MEASURES)).swapaxes(0, 1)
            return before, np.where(np.isfinite(after), after, FAILED * before)

        return judge_functions(
            self.bench.judges, measure, self.settings.score, workers=self.compiler, report=self.report
        )

    def _rewards(
        self, taught: Sequence[ModuleFunctions], weights: Floats, rng: np.random.Generator, label: str
    ) -> tuple[Floats, int, float]:
        """[P] of policies with ``weights`` [P, F], by a part of the functions that teach; failures; processor time."""
        drawn = [
            (module, tuple(np.array(keys, np.uint64)[rng.random(len(keys)) < self.settings.share].tolist()))
            for module, keys in taught
        ]
        return self._tried([part for part in drawn if part[1]], [self.bench.policy(row) for row in weights], label)

    def _tried(
        self, parts: Sequence[ModuleFunctions], policies: Sequence[Policy], label: str
    ) -> tuple[Floats, int, float]:
        """The same of policies on all of those functions."""
        done = parallel(
            lambda part: try_ranges(self.compiler, part[0], self.bench.problem, part[1], policies),
            parts,
            workers=self.compiler,
            report=self.report,
            label=label,
        )
        names = sorted({module.project for module, _ in parts})
        found = [
            (row, names.index(module.project))
            for (module, _), trials in zip(parts, done, strict=True)
            for row in trials.measured.values()
        ]
        if not found:
            raise CorpusError(
                "training: expected at least one function whose registers can be allocated by a policy, found none; "
                "check the compiler with `mlgokit doctor`"
            )
        project = np.array([number for _, number in found], np.int64)
        measured = np.stack([row for row, _ in found])
        gained = rewards(measured, project, self.settings.score)
        failed = int(np.isnan(measured).any(axis=2).sum())
        return gained, failed, sum(trials.user_seconds for trials in done)


def _check_costs(problem: Problem, settings: RangeTrialsConfig) -> None:
    costs = settings.csr_first_time_costs
    if costs and problem is not REGALLOC_WEIGHT:
        raise UsageError(
            f"--setting csr_first_time_costs: expected none for {problem.name}, found {costs}; only a policy of "
            f"{REGALLOC_WEIGHT.name} says what callee-saved registers cost"
        )
    if any(not 1 <= cost <= MOST_COST for cost in costs):
        raise UsageError(
            f"--setting csr_first_time_costs: expected whole numbers from 1 to {MOST_COST}, found {costs}; "
            "2**14 is one execution of a function's entry"
        )


def _functions_of(state: State, name: str) -> frozenset[PlacedFunction]:
    rows: list[list[int]] = state[name].tolist()
    return frozenset((place, key) for place, key in rows)


def _rows_of(functions: Iterable[PlacedFunction]) -> npt.NDArray[Any]:
    return np.array(sorted(functions), np.uint64).reshape(-1, 2)
