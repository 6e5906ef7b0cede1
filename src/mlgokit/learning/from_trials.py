"""Labels from trials: forked copies of the compiler compile single functions with other decisions and measure them.

A problem that is learned this way provides a :class:`TrialProblem` (which options apply) and :class:`Trials` (collect,
try, fit, validate); the common part is here.
"""

import dataclasses
import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mlgokit.algorithms.learner import Floats, State
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import Series, Stage, TrialRequest
from mlgokit.errors import UsageError
from mlgokit.learning.run_folder import Counters, Row, make_row
from mlgokit.learning.settings import Learning, refuse_options, settings_of
from mlgokit.learning.training import Learned, Training
from mlgokit.learning.validation import Validation
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.store import save_policy
from mlgokit.policy.targets import restrict_to_targets
from mlgokit.problems import Problem
from mlgokit.traces import Log

REFUSED_NAME = "refused.policy"
"""File of a policy that was refused because it does not help on projects outside its training set."""
TRIAL_SECONDS = 10.0
"""Limit on the processor time of one trial."""
_OPTIONS = {field.name for field in dataclasses.fields(Learning)} - {"preset", "setting", "seed"}
_COMPLETED = ("reward", "reward_least", "reward_most", "validation_gain")
"""Columns of the last row that are set by the validation if trials of single decisions gave no reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of compilations.

    Attributes:
        compilations: number of compilations.
        user_seconds: processor time of the compilations.
    """

    compilations: int = 0
    user_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """The result of one turn of learning from trials.

    Attributes:
        state: state of the learner after the turn.
        numbers: metrics of the learner, by name.
        rewards: [P] reward of each policy in percent, if the turn tried P policies; ``None`` if it tried single
            decisions.
        cost: cost of the trials.
    """

    state: State
    numbers: Mapping[str, float]
    rewards: Floats | None = None
    cost: Cost = Cost()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The policy that a run ends with.

    Attributes:
        policy: the policy.
        numbers: metrics of the choice, by name.
        cost: cost of the compilations that it took.
    """

    policy: Policy
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    cost: Cost = Cost()


class Trials(Protocol):
    """How one problem is learned from trials. An implementation is opened with the functions to try on."""

    @property
    def turns(self) -> int:
        """The number of turns."""
        ...

    @property
    def modules(self) -> Sequence[Module]:
        """The modules that compile, or have trials."""
        ...

    @property
    def left_out(self) -> Sequence[str]:
        """The reason for each module that was left out."""
        ...

    def start(self) -> tuple[State, Counters]:
        """Make the initial state, and counters that include the cost of finding the functions."""
        ...

    def fit(self, state: State, turn: int) -> Fitted:
        """Perform one turn: run trials, and fit the policy to their measurements."""
        ...

    def choose(self, state: State) -> Choice:
        """Make the final policy."""
        ...

    def judge(self, state: State, policy: Policy) -> tuple[Validation, int]:
        """Validate the policy on modules or functions outside its training set; also return the compilations used."""
        ...

    def training_modules(self, state: State, turn: int) -> int:
        """Count the modules whose functions the policy is fitted on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProblem:
    """The label source of a problem that is learned from trials of single functions.

    Attributes:
        algorithm: name of the only algorithm that can be used.
        open_trials: function that compiles what every turn needs; takes the state of an interrupted run, if there is
            one.
        size_setting: name of the setting that limits the number of trials, for error messages.
        accepted_options: names of the options of the loop that apply beside preset, settings and seed.
        check_settings: function that raises a :class:`~mlgokit.errors.UsageError` for settings that contradict the
            problem or other options.
        must_pay: whether a policy that is no better than LLVM's heuristic in validation is refused.
    """

    algorithm: str
    open_trials: Callable[[Training, State | None], Trials]
    size_setting: str
    accepted_options: Collection[str]
    check_settings: Callable[[Problem, Learning, Any], None]
    must_pay: bool = False

    def check(self, problem: Problem, algorithm: str, config: Learning) -> Any:
        """Check the options of a training, and return the settings of its algorithm.

        Raises:
            UsageError: another algorithm is chosen, an option does not apply, or a setting is out of range.
        """
        if algorithm != self.algorithm:
            raise UsageError(
                f"algorithm {algorithm}: expected {self.algorithm} for {problem.name}, which learns from trials of "
                "single functions; leave --algorithm out"
            )
        where = f"for {problem.name}, whose trials are bounded by --setting {self.size_setting}=N"
        refuse_options(config, sorted(_OPTIONS - set(self.accepted_options)), where=where)
        settings = settings_of(algorithm, config.preset, config.setting, problem=problem.name)
        self.check_settings(problem, config, settings)
        return settings

    def open(self, training: Training, checkpoint: State | None) -> "TrialRun":
        """Find the functions for the trials, and make the run.

        Raises:
            CorpusError: the corpus has no function to learn from.
        """
        return TrialRun(training=training, trials=self.open_trials(training, checkpoint), must_pay=self.must_pay)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialRun:
    """A training from trials.

    Attributes:
        training: configuration of the training.
        trials: trials of the problem.
        must_pay: whether a policy that is no better than LLVM's heuristic in validation is refused.
    """

    training: Training
    trials: Trials
    must_pay: bool

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules that compile, or have trials."""
        return tuple(module.name for module in self.trials.modules)

    def start(self) -> tuple[State, Counters]:
        """Make the state before the first turn."""
        return self.trials.start()

    def step(self, state: State, counters: Counters) -> tuple[State, Counters, Row]:
        """Perform one turn: run trials, and fit the policy."""
        begin = time.monotonic()
        turn = counters.turn + 1
        fitted = self.trials.fit(state, turn)
        counters = dataclasses.replace(
            _add_cost(counters, fitted.cost), turn=turn, seconds=counters.seconds + time.monotonic() - begin
        )
        rewards = np.array([math.nan]) if fitted.rewards is None else fitted.rewards
        return fitted.state, counters, make_row(counters, rewards, fitted.numbers, failed=counters.failed)

    def is_over(self, counters: Counters) -> bool:
        """Whether the budget of turns or time is spent."""
        late = counters.turn > 0 and time.monotonic() >= self.training.deadline
        return counters.turn >= self.trials.turns or late

    def finish(self, state: State, counters: Counters, rows: Sequence[Row]) -> Learned:
        """Validate the policy, and complete the last row.

        Raises:
            UsageError: the policy does not help on validation projects; it is kept as ``refused.policy``.
        """
        training = self.training
        choice = self.trials.choose(state)
        validation, evaluations = self.trials.judge(state, choice.policy)
        if self.must_pay and validation.modules and validation.gain <= 0:
            refused = training.folder / REFUSED_NAME
            save_policy(restrict_to_targets(choice.policy, training.modules), refused)
            raise UsageError(
                f"{training.problem.name}: expected a policy that improves on LLVM in validation projects, found "
                f"{-100 * validation.gain:+.2f} % on {len(validation.modules)} modules; leave the decision to LLVM, or "
                f"train on more projects. The refused policy is in {refused}"
            )
        counters = dataclasses.replace(
            _add_cost(counters, choice.cost),
            evaluations=counters.evaluations + evaluations,
            best_turn=counters.turn,
            best_gain=validation.gain,
        )
        return Learned(
            policy=choice.policy,
            counters=counters,
            rows=(*rows[:-1], _complete_row(rows[-1], validation, choice.numbers)),
            taught=self.trials.training_modules(state, counters.turn),
            judged=len(validation.modules),
            left_out=dict(Counter(self.trials.left_out)),
            judged_modules=validation.modules,
        )


def _add_cost(counters: Counters, cost: Cost) -> Counters:
    return dataclasses.replace(
        counters,
        compilations=counters.compilations + cost.compilations,
        user_seconds=counters.user_seconds + cost.user_seconds,
    )


def _complete_row(row: Row, validation: Validation, numbers: Mapping[str, float]) -> Row:
    """Add ``numbers`` and the validation gain to a row; the gain also stands for rewards that the row lacks."""
    gains = {name: validation.gain for name in _COMPLETED if math.isnan(row[name])}
    return {**row, **gains, **{f"learner/{name}": value for name, value in numbers.items()}}


def module_generator(module: Module, *numbers: int) -> np.random.Generator:
    """Make a random generator for one module that does not depend on the other modules of the corpus."""
    return np.random.default_rng([*numbers, int.from_bytes(digest_name(module)[:8], "little")])


def digest_name(module: Module) -> bytes:
    """Digest a module's name."""
    return hashlib.sha256(module.name.encode("utf-8", "surrogateescape")).digest()


def compile_logged(
    compiler: Compiler, module: Module, problem: Problem, stage: Stage
) -> tuple[Compilation, Log | None]:
    """Compile a module with LLVM's own decisions; return the compilation and the log of the problem, if any.

    Args:
        compiler: compiler to use.
        module: module to compile.
        problem: problem whose questions are logged.
        stage: stage of the compilation at which the functions for trials are listed.
    """
    use = PluginUse(policies={problem.name: HEURISTIC}, logs=(problem.name,), trials=TrialRequest(stages=stage))
    done = compiler.compile(module, CompileRequest(use=use, keep="log"))
    log = done.logs.get(problem.name) if done.ok else None
    return done, None if log is None or not log.observation_count else log


def compile_trials(
    compiler: Compiler,
    module: Module,
    problem: Problem,
    series: Sequence[Series],
    *,
    stage: Stage,
    weights: Floats,
    policies: Sequence[bytes] = (),
) -> Compilation:
    """Compile a module once, and make all trials of its functions in forked copies of the compiler.

    LLVM's heuristic takes the decisions that a trial does not set.

    Args:
        compiler: compiler to use.
        module: module of the functions.
        problem: problem that is decided.
        series: the trials, a series for each function.
        stage: stage of the compilation at which the compiler is forked.
        weights: [9] weights of the :data:`~mlgokit.compiler.reuse.trials.MEASURES` in the score of a trial.
        policies: contents of the policy files that trials refer to by number.
    """
    trials = TrialRequest(
        series=tuple(series), stages=stage, seconds=TRIAL_SECONDS, weights=weights, policies=tuple(policies)
    )
    use = PluginUse(policies={problem.name: HEURISTIC}, trials=trials)
    extra_seconds = 60 + 0.2 * sum(len(one.trials) for one in series)
    return compiler.compile(module, CompileRequest(use=use, extra_seconds=extra_seconds))
