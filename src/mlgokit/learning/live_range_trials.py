"""Trials of policies for priorities and spill weights: which functions they allocate, and what is measured.

Each module is compiled once to log the decisions about its live ranges. A few policies that use a single feature show
which functions' scores depend on the policy. The other functions give no labels, until the search reaches policies that
change them as well.

A trial allocates the registers of one function in a forked copy of the compiler (``compiler/reuse/trials.py``), with
one policy for all its live ranges. All policies of a generation therefore share one compilation of the module up to the
allocator. The first-time cost of callee-saved registers is an option of the whole compilation, so policies that differ
in it need compilations of their own.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlgokit.algorithms.config import RangeTrialsConfig
from mlgokit.algorithms.learner import Floats
from mlgokit.algorithms.live_range_search import GATES, AllocationScore, additive_scores, linear_policy, single_weights
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.trials import (
    FIRST_POLICY,
    IMAGE_BYTES,
    MEASURES,
    TRIAL,
    Overrides,
    Series,
    Stage,
    executed_weights,
)
from mlgokit.errors import CorpusError, UsageError
from mlgokit.learning.from_trials import compile_logged, compile_trials, module_generator
from mlgokit.learning.settings import Learning
from mlgokit.learning.training import Training
from mlgokit.learning.validation import ModuleFunctions
from mlgokit.module import Module
from mlgokit.policy.network import Gate, Policy
from mlgokit.policy.normaliser import SignedLog, fit_signed_log
from mlgokit.policy.store import policy_bytes
from mlgokit.problems import REGALLOC_PRIORITY, Problem

_PROBES = ("li_size", "weight")
"""A function is a training function if a policy of one of these features alone, with either sign, changes its score."""
_NORMALISER_ROWS = 400
"""Number of decisions of a module that the normaliser is fitted to."""
_LEAST_CHANGE = 1e-9
_LLVM_FEATURES = REGALLOC_PRIORITY.feature_names
"""The features of a live range that LLVM's own advisor has."""

FunctionId = tuple[int, int]
"""The position of a function's module among the training modules, and the function's key."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeQuestions:
    """The decisions about live ranges in one compilation.

    Attributes:
        features: names of the F features of a live range.
        rows: [Q, F] features of a sample of the decisions.
        keys: trial keys of the functions with more than one decision.
    """

    features: tuple[str, ...]
    rows: Floats
    keys: tuple[int, ...]


def log_live_ranges(
    compiler: Compiler, module: Module, problem: Problem, *, rows: int, seed: int
) -> tuple[Compilation, RangeQuestions | None]:
    """Compile a module with LLVM's own decisions; return the compilation, and a sample of the decisions if it has any.

    Args:
        compiler: compiler to use.
        module: module to compile.
        problem: problem whose decisions are logged.
        rows: maximum size of the sample of decisions.
        seed: random seed of the sample.
    """
    done, log = compile_logged(compiler, module, problem, Stage.REGISTERS)
    if log is None:
        return done, None
    decided = (problem.default_decision, problem.decision, "log_probability")
    features = tuple(name for name in log.columns if name not in decided)
    drawn = np.sort(module_generator(module, seed, rows).permutation(log.observation_count)[:rows])
    asked = {span.name: span.stop - span.start for span in log.contexts}
    return done, RangeQuestions(
        features=features,
        rows=np.stack([log.columns[name].reshape(-1)[drawn].astype(np.float64) for name in features], axis=1),
        keys=tuple(one.key for one in done.tried if one.stage is Stage.REGISTERS and asked.get(one.name, 0) > 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeTrials:
    """The trials of one module under P policies.

    Attributes:
        measured: for each function, by trial key, its :data:`~mlgokit.compiler.reuse.trials.MEASURES` [1 + P, 9]: under
            LLVM's heuristic, then under each policy; NaN where a trial failed.
        user_seconds: processor time of the compilations.
    """

    measured: Mapping[int, Floats]
    user_seconds: float


def try_ranges(
    compiler: Compiler, module: Module, problem: Problem, keys: Sequence[int], policies: Sequence[Policy]
) -> RangeTrials:
    """Allocate registers under each policy; functions whose trial under LLVM's heuristic fails are left out.

    Args:
        compiler: compiler to use.
        module: module of the functions.
        problem: problem that the policies are for.
        keys: trial keys of the functions.
        policies: P policies.
    """
    by_cost: dict[int, list[int]] = {0: []}
    for index, policy in enumerate(policies):
        by_cost.setdefault(policy.csr_first_time_cost, []).append(index)
    parts = [
        _try_at_csr_cost(compiler, _set_csr_cost(module, cost), problem, keys, [policies[index] for index in indices])
        for cost, indices in by_cost.items()
    ]
    measured: dict[int, Floats] = {}
    for key in parts[0].measured:
        rows = measured[key] = np.full((1 + len(policies), len(MEASURES)), np.nan)
        for part, indices in zip(parts, by_cost.values(), strict=True):
            if key in part.measured:
                rows[[1 + index for index in indices]] = part.measured[key][1:]
        rows[0] = parts[0].measured[key][0]
    return RangeTrials(measured=measured, user_seconds=sum(part.user_seconds for part in parts))


def _set_csr_cost(module: Module, cost: int) -> Module:
    """Set LLVM's option for the first-time cost of callee-saved registers; 0 leaves LLVM's default."""
    option = ("-mllvm", f"-regalloc-csr-first-time-cost={cost}") if cost else ()
    return dataclasses.replace(module, command_line=(*module.command_line, *option))


def _try_at_csr_cost(
    compiler: Compiler, module: Module, problem: Problem, keys: Sequence[int], policies: Sequence[Policy]
) -> RangeTrials:
    """Allocate registers under LLVM's heuristic and each policy, all with the first-time cost that ``module`` sets."""
    trials = np.zeros(1 + len(policies), TRIAL)
    trials["by_rule"][1:] = FIRST_POLICY + np.arange(len(policies))
    series = tuple(Series(key=key, base=Overrides(), score=-np.inf, trials=trials) for key in keys)
    done = compile_trials(
        compiler,
        module,
        problem,
        series,
        stage=Stage.REGISTERS,
        weights=executed_weights(IMAGE_BYTES),
        policies=[policy_bytes(policy) for policy in policies],
    )
    failed = np.full(len(MEASURES), np.nan)
    measured: dict[int, Floats] = {}
    for function in done.tried if done.ok else ():
        if len(function.outcomes) == len(trials) and function.outcomes[0].measured is not None:
            measured[function.key] = np.stack(
                [failed if outcome.measured is None else outcome.measured for outcome in function.outcomes]
            )
    return RangeTrials(measured=measured, user_seconds=done.user_seconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeFunctions:
    """The functions on which policies are tried, and the inputs of the policies.

    Attributes:
        problem: the problem that a policy decides.
        features: input features of a policy, without that of its gate.
        normaliser: normaliser of these features.
        gate: decides when a policy leaves the decision to LLVM; ``None`` if the compiler does not send its feature.
        training: the training modules with their functions.
        dependent: those of these functions whose score a policy of a single feature changes; they give labels from the
            first generation on.
        validation: modules of the validation projects, with their functions.
        modules: all modules that compile.
        left_out: the reason for each module that was left out.
        compilations: number of compilations by which the functions were found.
        user_seconds: processor time of these compilations.
    """

    problem: Problem
    features: tuple[str, ...]
    normaliser: SignedLog
    gate: Gate | None
    training: tuple[ModuleFunctions, ...]
    dependent: frozenset[FunctionId]
    validation: tuple[ModuleFunctions, ...]
    modules: tuple[Module, ...]
    left_out: tuple[str, ...]
    compilations: int
    user_seconds: float

    def policy(self, weights: Floats) -> Policy:
        """Make the linear policy with one weight for each feature, [F]."""
        return linear_policy(self.problem, self.features, self.normaliser, weights, gate=self.gate)

    def draw(self, functions: Iterable[FunctionId], most: int, rng: np.random.Generator) -> tuple[ModuleFunctions, ...]:
        """Draw at most ``most`` of the functions, or all for 0, evenly over projects; return them by module."""
        by_project: dict[str, list[FunctionId]] = {}
        for index, key in sorted(functions):
            by_project.setdefault(self.training[index][0].project, []).append((index, key))
        sizes = [len(mine) for mine in by_project.values()]
        counts = _share_evenly(sizes, most or sum(sizes))
        keys: dict[int, list[int]] = {}
        for mine, count in zip(by_project.values(), counts, strict=True):
            drawn: list[int] = np.sort(rng.permutation(len(mine))[:count]).tolist()
            for number in drawn:
                index, key = mine[number]
                keys.setdefault(index, []).append(key)
        return tuple((self.training[index][0], tuple(mine)) for index, mine in sorted(keys.items()))

    def draw_modules(self, most: int, rng: np.random.Generator) -> tuple[ModuleFunctions, ...]:
        """Draw at most ``most`` training modules, evenly over projects; 0 means all."""
        by_project: dict[str, list[int]] = {}
        for index, (module, _) in enumerate(self.training):
            by_project.setdefault(module.project, []).append(index)
        counts = _share_evenly([len(mine) for mine in by_project.values()], most or len(self.training))
        drawn = [rng.permutation(mine)[:count] for mine, count in zip(by_project.values(), counts, strict=True)]
        indices: list[int] = np.sort(np.concatenate(drawn)).tolist()
        return tuple(self.training[index] for index in indices)


def find_functions(training: Training, dependent: frozenset[FunctionId] | None) -> RangeFunctions:
    """Find the functions for training and for validation.

    Args:
        training: the configuration of the training.
        dependent: the functions whose score depends on the policy, if an interrupted run has already found them.

    Raises:
        CorpusError: there is no function to learn from.
        UsageError: no feature is left.
    """
    config, problem = training.config, training.problem
    settings: RangeTrialsConfig = training.settings
    asked = parallel(
        lambda module: log_live_ranges(training.compiler, module, problem, rows=_NORMALISER_ROWS, seed=config.seed),
        training.modules,
        workers=training.compiler,
        report=training.report,
        label="collect the allocator's questions",
    )
    left_out = tuple(done.reason or done.status.value for done, _ in asked if not done.ok)
    plan = _draw_functions(
        training.modules, [questions for _, questions in asked], settings.module_functions, config.seed
    )
    if not plan:
        raise CorpusError(
            "training: expected at least one module that compiles and has live ranges to decide about, found none; "
            "check the corpus with `mlgokit corpus info` and the compiler with `mlgokit doctor`"
        )
    features, gate = _features(plan[0][1].features, config, GATES[settings.score])
    columns = [plan[0][1].features.index(name) for name in features]
    rng = np.random.default_rng([config.seed, len(plan)])
    normaliser = fit_signed_log(np.concatenate([questions.rows[:, columns] for _, questions, _ in plan]))
    apart = _draw_validation_projects([module.project for module, _, _ in plan], config)
    kept_apart = [(module, keys) for module, _, keys in plan if module.project in apart]
    validating: list[int] = np.sort(rng.permutation(len(kept_apart))[: settings.judges]).tolist()
    modules = tuple((module, keys) for module, _, keys in plan if module.project not in apart)
    user_seconds = 0.0
    if dependent is None:
        single = settings.opening * single_weights(len(features))
        probes = [row for row in single if features[int(np.abs(row).argmax())] in _PROBES]
        dependent, user_seconds = changed_functions(
            training,
            modules,
            [linear_policy(problem, features, normaliser, row, gate=gate) for row in probes],
            label="find functions that depend on policies",
        )
    if not dependent:
        raise CorpusError(
            "training: expected functions whose score a policy about live ranges changes, found none; add projects to "
            "the corpus, compiled at -Oz for the score bytes, or at another level for the other scores"
        )
    return RangeFunctions(
        problem=problem,
        features=features,
        normaliser=normaliser,
        gate=gate,
        training=modules,
        dependent=dependent,
        validation=tuple(kept_apart[index] for index in validating),
        modules=tuple(module for module, (done, _) in zip(training.modules, asked, strict=True) if done.ok),
        left_out=left_out,
        compilations=len(training.modules) + len(modules),
        user_seconds=sum(done.user_seconds for done, _ in asked) + user_seconds,
    )


def _features(sent: Sequence[str], config: Learning, gate: Gate) -> tuple[tuple[str, ...], Gate | None]:
    """Select the input features of a policy, and its gate if the gate's feature is sent and allowed."""
    allowed = _LLVM_FEATURES if config.features == "llvm" else sent
    kept = gate if gate.feature in allowed else None
    features = tuple(
        name
        for name in sent
        if name in allowed and name not in config.excluded and (kept is None or name != kept.feature)
    )
    if not features:
        raise UsageError("training: expected features to learn from, found none left after --excluded; exclude fewer")
    return features, kept


def changed_functions(
    training: Training, modules: Sequence[ModuleFunctions], policies: Sequence[Policy], *, label: str
) -> tuple[frozenset[FunctionId], float]:
    """Find the functions whose score is changed by one of the policies; also return the processor time."""
    score: AllocationScore = training.settings.score
    trials = parallel(
        lambda part: try_ranges(training.compiler, part[0], training.problem, part[1], policies),
        modules,
        workers=training.compiler,
        report=training.report,
        label=label,
    )
    changed: set[FunctionId] = set()
    for index, one in enumerate(trials):
        for key, measured in one.measured.items():
            default = np.repeat(measured[:1], len(measured) - 1, axis=0)
            before, after = additive_scores(default, np.where(np.isfinite(measured[1:]), measured[1:], default), score)
            if np.any(np.abs(after - before) > _LEAST_CHANGE):
                changed.add((index, key))
    return frozenset(changed), sum(one.user_seconds for one in trials)


def _draw_functions(
    modules: Sequence[Module], asked: Sequence[RangeQuestions | None], most: int, seed: int
) -> list[tuple[Module, RangeQuestions, tuple[int, ...]]]:
    """Draw up to ``most`` functions of each module, or all for 0, leaving out those that an earlier module also has."""
    known: set[int] = set()
    plan: list[tuple[Module, RangeQuestions, tuple[int, ...]]] = []
    for module, questions in zip(modules, asked, strict=True):
        if questions is None:
            continue
        fresh = np.array([key for key in questions.keys if key not in known], np.uint64)
        known |= set(fresh.tolist())
        keys: list[int] = module_generator(module, seed).permutation(fresh)[: most or len(fresh)].tolist()
        if keys:
            plan.append((module, questions, tuple(keys)))
    return plan


def _draw_validation_projects(projects: Sequence[str], config: Learning) -> frozenset[str]:
    """Draw the projects for validation, but leave at least one for training."""
    names = sorted(set(projects))
    wanted = min(len(names) - 1, round((config.validation_share or 0) * len(names)))
    drawn: list[int] = np.random.default_rng([config.seed, len(names)]).permutation(len(names))[:wanted].tolist()
    return frozenset(names[index] for index in drawn)


def _share_evenly(counts: Sequence[int], most: int) -> list[int]:
    """Distribute a total of at most ``most`` evenly over groups of ``counts`` members; return the share of each group.

    Example:
        >>> _share_evenly([3, 100, 50], 43)
        [3, 20, 20]
    """
    taken = [0] * len(counts)
    left = most
    for rank, index in enumerate(sorted(range(len(counts)), key=lambda index: counts[index])):
        taken[index] = min(counts[index], left // (len(counts) - rank))
        left -= taken[index]
    return taken
