"""Functions on which policies about live ranges are tried, and what such a policy sees.

Each module is compiled once to hear what the allocator asks. A few policies by one feature alone find the functions
whose score depends on what live ranges get; the others teach nothing, until a search comes to policies that change
them, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mlgokit.algorithms.allocation_score import AllocationScore, in_score
from mlgokit.algorithms.config import RangeTrialsConfig
from mlgokit.algorithms.learner import Floats
from mlgokit.algorithms.live_range_search import GATES, linear_policy, single_weights
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler
from mlgokit.errors import CorpusError, UsageError
from mlgokit.learning.function_judges import ModuleFunctions
from mlgokit.learning.live_range_trials import RangeQuestions, ask_ranges, try_ranges
from mlgokit.learning.settings import Learning
from mlgokit.learning.trials import module_draws
from mlgokit.module import Module
from mlgokit.policy.network import Gate, Policy
from mlgokit.policy.normaliser import SignedLog, fit_signed_log
from mlgokit.problems import REGALLOC_PRIORITY, Problem
from mlgokit.progress import Report

_PROBES = ("li_size", "weight")
"""Policies by one of these, either way, tell whether a function depends on them at all."""
_NORMALISER_ROWS = 400
"""Questions of a module that the normaliser is fitted to."""
_EQUAL = 1e-9
_LLVMS = REGALLOC_PRIORITY.feature_names
"""What LLVM's own advisor knows of a live range."""

PlacedFunction = tuple[int, int]
"""Place of its module among those that may teach, and its key."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeBench:
    """The functions on which policies are tried, and what a policy sees.

    Attributes:
        problem: what a policy decides.
        features: that a policy sees, beside its gate's.
        normaliser: of them.
        gate: where a policy leaves the decision to LLVM; none if the compiler does not tell what it goes by.
        teaching: modules, with the functions that may teach.
        depending: those of them that policies by one feature change, which teach from the beginning.
        judges: modules of projects kept apart, with their functions.
        left_out: why modules gave nothing.
        compilations: that were made to find them.
        user_seconds: processor time of these.
    """

    problem: Problem
    features: tuple[str, ...]
    normaliser: SignedLog
    gate: Gate | None
    teaching: tuple[ModuleFunctions, ...]
    depending: frozenset[PlacedFunction]
    judges: tuple[ModuleFunctions, ...]
    left_out: tuple[str, ...]
    compilations: int
    user_seconds: float

    def policy(self, weights: Floats) -> Policy:
        """The policy with one weight [F] for each feature."""
        return linear_policy(self.problem, self.features, self.normaliser, weights, gate=self.gate)

    def drawn(
        self, depending: Iterable[PlacedFunction], most: int, rng: np.random.Generator
    ) -> tuple[ModuleFunctions, ...]:
        """At most so many of the functions, evenly over projects, with their modules."""
        found: dict[str, list[PlacedFunction]] = {}
        for place, key in sorted(depending):
            found.setdefault(self.teaching[place][0].project, []).append((place, key))
        each = _evenly([len(mine) for mine in found.values()], most)
        keys: dict[int, list[int]] = {}
        for mine, count in zip(found.values(), each, strict=True):
            chosen: list[int] = np.sort(rng.permutation(len(mine))[:count]).tolist()
            for number in chosen:
                place, key = mine[number]
                keys.setdefault(place, []).append(key)
        return tuple((self.teaching[place][0], tuple(mine)) for place, mine in sorted(keys.items()))

    def drawn_modules(self, most: int, rng: np.random.Generator) -> tuple[ModuleFunctions, ...]:
        """At most so many of the modules that may teach, evenly over projects; all for 0."""
        found: dict[str, list[int]] = {}
        for place, (module, _) in enumerate(self.teaching):
            found.setdefault(module.project, []).append(place)
        each = _evenly([len(mine) for mine in found.values()], most or len(self.teaching))
        drawn = [rng.permutation(mine)[:count] for mine, count in zip(found.values(), each, strict=True)]
        places: list[int] = np.sort(np.concatenate(drawn)).tolist()
        return tuple(self.teaching[place] for place in places)


def gather_functions(
    compiler: Compiler,
    modules: Sequence[Module],
    problem: Problem,
    settings: RangeTrialsConfig,
    config: Learning,
    *,
    known: frozenset[PlacedFunction] | None = None,
    report: Report,
) -> RangeBench:
    """Find the functions that teach and those that judge.

    Args:
        compiler: compiles.
        modules: that may teach or judge.
        problem: what a policy decides.
        settings: how policies are tried.
        config: which projects judge, and what a policy may see.
        known: those that policies by one feature change, if an earlier call with the same modules and settings has
            found them.
        report: progress.

    Raises:
        CorpusError: there are none that teach.
        UsageError: no feature is left.
    """
    asked = parallel(
        lambda module: ask_ranges(compiler, module, problem, rows=_NORMALISER_ROWS, seed=config.seed),
        modules,
        workers=compiler,
        report=report,
        label="what the allocator asks",
    )
    left_out = tuple(done.reason or done.status.value for done, _ in asked if not done.ok)
    plan = _drawn(modules, [questions for _, questions in asked], settings.module_functions, config.seed)
    if not plan:
        raise CorpusError(
            "training: expected at least one module that compiles and has live ranges to decide about, found none; "
            "check the corpus with `mlgokit corpus info` and the compiler with `mlgokit doctor`"
        )
    allowed = _LLVMS if config.features == "llvm" else plan[0][1].features
    gate = GATES[settings.score] if GATES[settings.score].feature in allowed else None
    features = tuple(
        name
        for name in plan[0][1].features
        if name in allowed and name not in config.excluded and (gate is None or name != gate.feature)
    )
    if not features:
        raise UsageError("training: expected features to learn from, found none left after --excluded; exclude fewer")
    places = [plan[0][1].features.index(name) for name in features]
    rng = np.random.default_rng([config.seed, len(plan)])
    rows = np.concatenate([one.rows[:, places] for _, one, _ in plan])
    normaliser = fit_signed_log(rows)
    apart = _kept_apart([module.project for module, _, _ in plan], config)
    judging = [(module, keys) for module, _, keys in plan if module.project in apart]
    chosen: list[int] = np.sort(rng.permutation(len(judging))[: settings.judges]).tolist()
    teaching = [(module, keys) for module, _, keys in plan if module.project not in apart]
    single = settings.opening * single_weights(len(features))
    probes = [row for row in single if features[int(np.abs(row).argmax())] in _PROBES]
    policies = [linear_policy(problem, features, normaliser, row, gate=gate) for row in probes]
    if known is None:
        depending, user_seconds = changed_functions(
            compiler, problem, teaching, policies, settings.score, report=report, label="which functions depend on them"
        )
    else:
        depending, user_seconds = known, 0.0
    if not depending:
        raise CorpusError(
            "training: expected functions that what live ranges get makes better or worse, found none; add projects "
            "to the corpus, at Oz for the score bytes, at another level for the others"
        )
    return RangeBench(
        problem=problem,
        features=features,
        normaliser=normaliser,
        gate=gate,
        teaching=tuple(teaching),
        depending=depending,
        judges=tuple(judging[place] for place in chosen),
        left_out=left_out,
        compilations=len(modules) + len(teaching),
        user_seconds=sum(done.user_seconds for done, _ in asked) + user_seconds,
    )


def changed_functions(
    compiler: Compiler,
    problem: Problem,
    teaching: Sequence[ModuleFunctions],
    policies: Sequence[Policy],
    score: AllocationScore,
    *,
    report: Report,
    label: str,
) -> tuple[frozenset[PlacedFunction], float]:
    """Those functions whose score is another one under at least one of the policies, and the processor time it took."""
    tried = parallel(
        lambda part: try_ranges(compiler, part[0], problem, part[1], policies),
        teaching,
        workers=compiler,
        report=report,
        label=label,
    )
    found: set[PlacedFunction] = set()
    for place, trials in enumerate(tried):
        for key, measured in trials.measured.items():
            before = np.repeat(measured[:1], len(measured) - 1, axis=0)
            then, now = in_score(before, np.where(np.isfinite(measured[1:]), measured[1:], before), score)
            if np.any(np.abs(now - then) > _EQUAL):
                found.add((place, key))
    return frozenset(found), sum(trials.user_seconds for trials in tried)


def _drawn(
    modules: Sequence[Module], asked: Sequence[RangeQuestions | None], most: int, seed: int
) -> list[tuple[Module, RangeQuestions, tuple[int, ...]]]:
    """Functions that no module before has, at most so many of each."""
    known: set[int] = set()
    plan: list[tuple[Module, RangeQuestions, tuple[int, ...]]] = []
    for module, questions in zip(modules, asked, strict=True):
        if questions is None:
            continue
        fresh = np.array([key for key in questions.keys if key not in known], np.uint64)
        known |= set(fresh.tolist())
        keys: list[int] = module_draws(module, seed).permutation(fresh)[: most or len(fresh)].tolist()
        if keys:
            plan.append((module, questions, tuple(keys)))
    return plan


def _kept_apart(projects: Sequence[str], config: Learning) -> frozenset[str]:
    """Projects that judge."""
    names = sorted(set(projects))
    wanted = min(len(names) - 1, round((config.validation_share or 0) * len(names)))
    drawn: list[int] = np.random.default_rng([config.seed, len(names)]).permutation(len(names))[:wanted].tolist()
    return frozenset(names[place] for place in drawn)


def _evenly(counts: Sequence[int], most: int) -> list[int]:
    """How many to take of each, no more than ``most`` in all; those that have few give all.

    Example:
        >>> _evenly([3, 100, 50], 43)
        [3, 20, 20]
    """
    taken = [0] * len(counts)
    left = most
    for rank, place in enumerate(sorted(range(len(counts)), key=lambda place: counts[place])):
        taken[place] = min(counts[place], left // (len(counts) - rank))
        left -= taken[place]
    return taken
