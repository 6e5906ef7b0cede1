"""Learning of priorities and spill weights of live ranges by CMA-ES over whole policies.

Each generation allocates the registers of a sample of the functions (``live_range_trials.py``) under all its policies,
and CMA-ES moves towards lower scores. Every few generations the mean of the search distribution is tried on all
functions, and those that it changes join the sample: such a function may need no spill under LLVM's heuristic or an
early policy, but may need one under a later policy. At the end, functions of other projects validate the policy.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.config import RangeTrialsConfig
from mlgokit.algorithms.learner import Floats, State
from mlgokit.algorithms.live_range_search import rewards, single_weights
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.reuse.trials import MEASURES
from mlgokit.errors import CorpusError, UsageError
from mlgokit.learning.from_trials import Choice, Cost, Fitted, TrialProblem
from mlgokit.learning.live_range_trials import (
    FunctionId,
    RangeFunctions,
    changed_functions,
    find_functions,
    try_ranges,
)
from mlgokit.learning.run_folder import Counters
from mlgokit.learning.settings import Learning
from mlgokit.learning.training import Training
from mlgokit.learning.validation import ModuleFunctions, Validation, validate_functions
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.store import MOST_COST
from mlgokit.problems import REGALLOC_WEIGHT, Problem

_DEPENDENT = "depending"
"""Name of the state array [D, 2] of the first training functions: position of the module, and key of the function."""
_JOINED = "joined"
"""Name of the state array [J, 2] of the training functions that were added later: position of the module, and key."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeLearning:
    """A search for a policy for live ranges.

    Attributes:
        training: configuration of the training.
        functions: functions that policies are tried on.
    """

    training: Training
    functions: RangeFunctions

    @property
    def settings(self) -> RangeTrialsConfig:
        """The settings of the search."""
        return self.training.settings

    @property
    def turns(self) -> int:
        """The number of generations."""
        return self.settings.generations

    @property
    def modules(self) -> Sequence[Module]:
        """The modules that compile."""
        return self.functions.modules

    @property
    def left_out(self) -> Sequence[str]:
        """The reason for each module that was left out."""
        return self.functions.left_out

    def start(self) -> tuple[State, Counters]:
        """Start the search at the best policy that uses a single feature."""
        from mlgokit.algorithms import cma

        rng = np.random.default_rng([self.training.config.seed, 0])
        single = self.settings.opening * single_weights(len(self.functions.features))
        parts = self.functions.draw(self.functions.dependent, self.settings.functions, rng)
        gained, _, _ = self._try_weights(parts, single, rng, "try policies of one feature")
        best = single[int(np.nanargmax(gained))]
        state = cma.start(best, spread=self.settings.spread, population=self.settings.population)
        counters = Counters(
            evaluations=self.functions.compilations,
            user_seconds=self.functions.user_seconds,
            failed=len(self.functions.left_out),
        )
        return {**state, _JOINED: _to_rows(()), _DEPENDENT: _to_rows(self.functions.dependent)}, counters

    def fit(self, state: State, turn: int) -> Fitted:
        """Try one generation and update the search; from time to time, add functions that its mean changes."""
        from mlgokit.algorithms import cma

        rng = np.random.default_rng([self.training.config.seed, turn])
        label = f"generation {turn} of {self.turns}"
        parts = self._sample_functions(state, turn)
        tested = cma.ask(state, rng)
        gained, failed, user_seconds = self._try_weights(parts, tested, rng, label)
        kept = {name: state[name] for name in (_DEPENDENT, _JOINED)}
        state = {**cma.tell(state, tested, gained), **kept}
        compilations = len(parts)
        if self.settings.renewed > 0 and turn % self.settings.renewed == 0 and turn < self.turns:
            changed, more_seconds = changed_functions(
                self.training,
                self.functions.training,
                [self.functions.policy(state["centre"])],
                label=f"{label}, find more functions",
            )
            joined = _from_rows(state, _JOINED) | (changed - self.functions.dependent)
            state = {**state, _JOINED: _to_rows(joined)}
            compilations += len(self.functions.training)
            user_seconds += more_seconds
        numbers = {
            "weight_norm": float(np.linalg.norm(state["centre"])),
            "failed_trials": float(failed),
            "functions": float(sum(len(keys) for _, keys in parts)),
            "joined": float(len(state[_JOINED])),
        }
        cost = Cost(compilations=compilations, user_seconds=user_seconds)
        return Fitted(state=state, numbers=numbers, rewards=gained, cost=cost)

    def choose(self, state: State) -> Choice:
        """Return the mean of the search distribution, with the best first-time cost of callee-saved registers."""
        policy = self.functions.policy(state["centre"])
        costs = (0, *self.settings.csr_first_time_costs)
        if len(costs) == 1:
            return Choice(policy=policy)
        policies = [dataclasses.replace(policy, csr_first_time_cost=cost) for cost in costs]
        rng = np.random.default_rng([self.training.config.seed, 0, 2])
        parts = self.functions.draw_modules(self.settings.cost_modules, rng)
        gained, _, user_seconds = self._try_policies(parts, policies, "try costs of callee-saved registers")
        policy = policies[int(np.argmax(gained))]
        return Choice(
            policy=policy,
            numbers={"csr_first_time_cost": float(policy.csr_first_time_cost)},
            cost=Cost(compilations=len(policies) * len(parts), user_seconds=user_seconds),
        )

    def judge(self, state: State, policy: Policy) -> tuple[Validation, int]:
        """Validate on functions of the validation projects."""
        del state

        def measure(module: Module, keys: Sequence[int]) -> tuple[Floats, Floats]:
            """Measure functions under LLVM's heuristic and under the policy; NaN where the policy failed."""
            trials = try_ranges(self.training.compiler, module, self.training.problem, keys, [policy])
            before, after = np.array(list(trials.measured.values())).reshape(-1, 2, len(MEASURES)).swapaxes(0, 1)
            return before, after

        validation = validate_functions(
            self.functions.validation,
            measure,
            self.settings.score,
            workers=self.training.compiler,
            report=self.training.report,
        )
        return validation, len(validation.modules)

    def training_modules(self, state: State, turn: int) -> int:
        """Count the modules from which the functions of a turn are drawn."""
        return len(self._sample_functions(state, turn))

    def _sample_functions(self, state: State, turn: int) -> tuple[ModuleFunctions, ...]:
        """Draw the training functions of a turn (one generation of the search), by module.

        Turns draw the same functions until the next search for functions to add, every ``renewed`` turns; then all are
        drawn anew.
        """
        functions = self.functions.dependent | _from_rows(state, _JOINED)
        renewals = (turn - 1) // self.settings.renewed if self.settings.renewed > 0 else 0
        rng = np.random.default_rng([self.training.config.seed, renewals, 1])
        return self.functions.draw(functions, self.settings.functions, rng)

    def _try_weights(
        self, parts: Sequence[ModuleFunctions], weights: Floats, rng: np.random.Generator, label: str
    ) -> tuple[Floats, int, float]:
        """Try P policies with ``weights`` [P, F] on a random share of the functions, as :meth:`_try_policies` does."""
        drawn = [
            (module, tuple(np.array(keys, np.uint64)[rng.random(len(keys)) < self.settings.share].tolist()))
            for module, keys in parts
        ]
        policies = [self.functions.policy(row) for row in weights]
        return self._try_policies([part for part in drawn if part[1]], policies, label)

    def _try_policies(
        self, parts: Sequence[ModuleFunctions], policies: Sequence[Policy], label: str
    ) -> tuple[Floats, int, float]:
        """Try P policies; return their rewards [P], the number of failed trials, and the processor time."""
        done = parallel(
            lambda part: try_ranges(self.training.compiler, part[0], self.training.problem, part[1], policies),
            parts,
            workers=self.training.compiler,
            report=self.training.report,
            label=label,
        )
        names = sorted({module.project for module, _ in parts})
        rows = [
            (row, names.index(module.project))
            for (module, _), trials in zip(parts, done, strict=True)
            for row in trials.measured.values()
        ]
        if not rows:
            raise CorpusError(
                "training: expected at least one function whose registers can be allocated by a policy, found none; "
                "check the compiler with `mlgokit doctor`"
            )
        measured = np.stack([row for row, _ in rows])
        gained = rewards(measured, np.array([number for _, number in rows], np.int64), self.settings.score)
        failed = int(np.isnan(measured).any(axis=2).sum())
        return gained, failed, sum(trials.user_seconds for trials in done)


def open_ranges(training: Training, checkpoint: State | None) -> RangeLearning:
    """Find the functions to try on, or read them from the state of an interrupted run.

    Raises:
        CorpusError: there is no function to learn from.
        UsageError: no feature is left.
    """
    known = _from_rows(checkpoint, _DEPENDENT) if checkpoint and _DEPENDENT in checkpoint else None
    return RangeLearning(training=training, functions=find_functions(training, known))


def _check(problem: Problem, config: Learning, settings: RangeTrialsConfig) -> None:
    """Check the costs of callee-saved registers in the settings."""
    del config
    costs = settings.csr_first_time_costs
    if costs and problem is not REGALLOC_WEIGHT:
        raise UsageError(
            f"--setting csr_first_time_costs: expected no costs for {problem.name}, as only a policy of "
            f"{REGALLOC_WEIGHT.name} sets the cost of callee-saved registers, found {costs}; leave the setting out"
        )
    if any(cost > MOST_COST for cost in costs):
        raise UsageError(
            f"--setting csr_first_time_costs: expected whole numbers up to {MOST_COST}, found {costs}; "
            "2**14 is one execution of a function's entry"
        )


def _from_rows(state: State, name: str) -> frozenset[FunctionId]:
    """Read functions from a state array [N, 2] of their modules' indices and their keys."""
    rows: list[list[int]] = state[name].tolist()
    return frozenset((index, key) for index, key in rows)


def _to_rows(functions: Iterable[FunctionId]) -> npt.NDArray[Any]:
    """Store functions as a state array [N, 2] of their modules' indices and their keys."""
    return np.array(sorted(functions), np.uint64).reshape(-1, 2)


LIVE_RANGES = TrialProblem(
    algorithm="es",
    open_trials=open_ranges,
    size_setting="generations",
    accepted_options=("excluded", "features", "validation_share"),
    check_settings=_check,
    must_pay=True,
)
"""The label source of priorities and spill weights."""
