"""Learning of pass selection: trials of single functions, one fit to their measurements, and validation.

A module is compiled once to log the decisions about passes, once for trials of codegen passes on a sample of its
functions, and a few times without optimizer passes (``pass_trials.py``).
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.config import PassTrialsConfig
from mlgokit.algorithms.learner import State
from mlgokit.algorithms.pass_fit import PassLabels, fit_passes
from mlgokit.compiler.arrays import MOST_BYTES
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.reuse.trials import CODE_BYTES, IMAGE_BYTES, executed_weights
from mlgokit.errors import CorpusError, UsageError
from mlgokit.files import atomic_write, read_bounded
from mlgokit.learning.baselines import compile_defaults
from mlgokit.learning.from_trials import Choice, Fitted, TrialProblem, digest_name, module_generator
from mlgokit.learning.pass_trials import FunctionQuestions, ModuleTrials, log_passes, try_optimizer, try_passes
from mlgokit.learning.run_folder import Counters
from mlgokit.learning.settings import Learning
from mlgokit.learning.training import Training
from mlgokit.learning.validation import VALIDATION_MODULES, Validation, validate_policies
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.store import policy_bytes, read_policy_bytes
from mlgokit.problems import DECIDED_PASSES, PASS_SELECTION, Problem

_DEPENDENT_FEATURES = ("occurrence", "passes_left_out")
"""Features that depend on earlier decisions in the same function."""
_POLICY, _FITTED_ON = "policy", "fitted_on"
_CODEGEN, _OPTIMIZER = "trials", "trials/optimizer"
"""Folders of the trials in that of a run."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassLearning:
    """A training of pass selection, whose trials have all been run.

    Attributes:
        training: configuration of the training.
        modules: modules with trials.
        trials: trials of each of these modules.
        left_out: reason for each module that was left out.
        counters: counters that include the cost of the trials.
        turns: number of turns; all trials are fitted in one.
    """

    training: Training
    modules: tuple[Module, ...]
    trials: tuple[ModuleTrials, ...]
    left_out: tuple[str, ...]
    counters: Counters
    turns: int = 1

    @property
    def projects(self) -> tuple[str, ...]:
        """The projects of the modules, sorted."""
        return tuple(sorted({module.project for module in self.modules}))

    def start(self) -> tuple[State, Counters]:
        """Return an empty state, and the counters of the trials."""
        return {}, self.counters

    def fit(self, state: State, turn: int) -> Fitted:
        """Fit the policy to all trials: an ensemble that predicts a function's change in bytes without a pass.

        The features ``pass:<name>``, which say what pass is asked about, are not listed here: :func:`fit_passes` adds
        those of the passes that the policy decides.

        Raises:
            UsageError: no trial succeeded, or skipping saves bytes for no pass.
        """
        del state, turn
        labels = _concatenate_labels(self.modules, self.trials, self.projects)
        excluded = (*self.training.config.excluded, *_DEPENDENT_FEATURES)
        features = tuple(
            name for name in PASS_SELECTION.feature_names if not name.startswith("pass:") and name not in excluded
        )
        self.training.report(0, 1, f"fit to {len(labels.change)} trials")
        fit = fit_passes(labels, self.training.settings, features=features, seed=self.training.config.seed)
        numbers = {
            "trials": float(sum(trials.trials for trials in self.trials)),
            "labels": float(len(labels.change)),
            "correlation": fit.correlation,
            **{f"saved_bytes/{one.name}": one.saved_bytes for one in fit.evidence},
            **{f"possible_bytes/{one.name}": one.possible_bytes for one in fit.evidence},
            **{f"decides/{one.name}": float(one.chosen) for one in fit.evidence},
        }
        policy = np.frombuffer(policy_bytes(fit.policy), np.uint8)
        return Fitted(state={_POLICY: policy, _FITTED_ON: fit.fitted_on}, numbers=numbers)

    def choose(self, state: State) -> Choice:
        """Return the policy that was fitted."""
        return Choice(policy=read_policy_bytes(state[_POLICY].tobytes(), "of the checkpoint"))

    def judge(self, state: State, policy: Policy) -> tuple[Validation, int]:
        """Validate on some of the modules, each under the members that were not fitted on its project."""
        fitted_on: npt.NDArray[np.bool_] = state[_FITTED_ON]
        config = self.training.config
        rng = np.random.default_rng([config.seed, 0, len(self.modules)])
        drawn: list[int] = np.sort(rng.permutation(len(self.modules))[:VALIDATION_MODULES]).tolist()
        baselines = compile_defaults(
            self.training.compiler,
            [self.modules[index] for index in drawn],
            PASS_SELECTION,
            objective=config.objective,
            with_rows=False,
            report=self.training.report,
        )
        policies: list[tuple[Policy, Sequence[int]]] = []
        for number, project in enumerate(self.projects):
            indices = [index for index, module in enumerate(baselines.modules) if module.project == project]
            members = policy.select_members(~fitted_on[:, number]) if indices else None
            if members is not None:
                policies.append((members, indices))
        validation = validate_policies(baselines, policies, report=self.training.report)
        return validation, 2 * len(validation.modules)

    def training_modules(self, state: State, turn: int) -> int:
        """Count the modules with trials."""
        del state, turn
        return len(self.modules)


def open_passes(training: Training, checkpoint: State | None) -> PassLearning:
    """Log the decisions about passes, and run all trials that an interrupted run has not run.

    Raises:
        CorpusError: no module has trials.
    """
    del checkpoint
    begin = time.monotonic()
    settings: PassTrialsConfig = training.settings
    asked = parallel(
        lambda module: log_passes(training.compiler, module),
        training.modules,
        workers=training.compiler,
        report=training.report,
        label="log decisions about passes",
    )
    plan = _draw_functions(
        training.modules, [functions for _, functions in asked], settings.functions, training.config.seed
    )
    trials = _try_functions(training, plan)
    left_out = [done.reason or done.status.value for done, _ in asked if not done.ok]
    left_out += [one.reason for one in trials if one.reason]
    useful = [(module, one) for (module, _), one in zip(plan, trials, strict=True) if len(one.change)]
    if not useful:
        raise CorpusError(
            "training: expected at least one module that compiles and has functions compiled for size, found none; "
            "check the corpus with `mlgokit corpus info` and the compiler with `mlgokit doctor`"
        )
    return PassLearning(
        training=training,
        modules=tuple(module for module, _ in useful),
        trials=tuple(one for _, one in useful),
        left_out=tuple(left_out),
        counters=Counters(
            compilations=len(training.modules) + sum(one.compilations for one in trials),
            failed=len(left_out),
            user_seconds=sum(done.user_seconds for done, _ in asked) + sum(one.user_seconds for one in trials),
            seconds=time.monotonic() - begin,
        ),
    )


def _draw_functions(
    modules: Sequence[Module], asked: Sequence[Sequence[FunctionQuestions]], most: int, seed: int
) -> list[tuple[Module, list[FunctionQuestions]]]:
    """Draw up to ``most`` functions of each module, or all for 0, leaving out those that an earlier module also has."""
    known: set[int] = set()
    plan: list[tuple[Module, list[FunctionQuestions]]] = []
    for module, functions in zip(modules, asked, strict=True):
        fresh = [function for function in functions if function.key not in known and len(function.passes)]
        known |= {function.key for function in fresh}
        drawn = np.sort(module_generator(module, seed).permutation(len(fresh))[: most or len(fresh)])
        if len(drawn):
            plan.append((module, [fresh[index] for index in drawn.tolist()]))
    return plan


def _try_functions(
    training: Training, plan: Sequence[tuple[Module, Sequence[FunctionQuestions]]]
) -> list[ModuleTrials]:
    """Run the trials of codegen passes and of optimizer passes on the functions of each module."""
    compiler, folder, config = training.compiler, training.folder, training.config
    settings: PassTrialsConfig = training.settings
    weights = executed_weights(CODE_BYTES if config.objective is Objective.LINK_AWARE_TEXT else IMAGE_BYTES)

    def try_module(part: tuple[Module, Sequence[FunctionQuestions]]) -> ModuleTrials:
        """Run the trials of a module's functions, or load those that an earlier run stored."""
        module, functions = part
        codegen = load_or_try(
            folder / _CODEGEN, module, lambda: try_passes(compiler, module, functions, weights=weights)
        )
        optimizer = load_or_try(
            folder / _OPTIMIZER,
            module,
            lambda: try_optimizer(
                compiler, module, functions, objective=config.objective, rounds=settings.rounds, seed=config.seed
            ),
        )
        return codegen.join(optimizer)

    return parallel(try_module, plan, workers=compiler, report=training.report, label="try functions without a pass")


def load_or_try(folder: Path, module: Module, make: Callable[[], ModuleTrials]) -> ModuleTrials:
    """Load a module's trials from ``folder``; if there are none, make them, and store those that came to their end.

    Raises:
        StorageError: the disk is full or not writable.
    """
    path = folder / f"{digest_name(module).hex()[:24]}.npz"
    trials = None
    with contextlib.suppress(OSError):
        trials = ModuleTrials.from_bytes(read_bounded(path, MOST_BYTES))
    if trials is None:
        trials = make()
        if not trials.was_ended:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, trials.to_bytes())
    return trials


def _concatenate_labels(
    modules: Sequence[Module], trials: Sequence[ModuleTrials], projects: Sequence[str]
) -> PassLabels:
    """Concatenate the trials of all modules to one set of labels."""
    numbers = {name: number for number, name in enumerate(projects)}
    columns = {
        name: np.concatenate([getattr(one, name) for one in trials])
        for name in ("values", "change", "slowdown", "size")
    }
    project = [
        np.full(len(one.change), numbers[module.project], np.int64) for module, one in zip(modules, trials, strict=True)
    ]
    return PassLabels(**columns, project=np.concatenate(project), projects=tuple(projects))


def _check(problem: Problem, config: Learning, settings: PassTrialsConfig) -> None:
    """Check the choice of features, and the names of the passes that are never left out."""
    if config.features == "llvm":
        raise UsageError(
            f"--features: expected all for {problem.name}, for which LLVM has no features of its own, found llvm; "
            "leave it out"
        )
    unknown = sorted(set(settings.kept) - set(DECIDED_PASSES))
    if unknown:
        raise UsageError(
            f"--setting kept: expected passes among {', '.join(DECIDED_PASSES)}, found {', '.join(unknown)}; correct it"
        )


PASSES = TrialProblem(
    algorithm="effect-regression",
    open_trials=open_passes,
    size_setting="functions",
    accepted_options=("excluded", "features", "objective"),
    check_settings=_check,
)
"""The label source of pass selection."""
