"""Inlining decisions as a space: modules, the exact account of their best builds, and their next steps."""

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.algorithms.config import EffectConfig
from mlgokit.algorithms.credit import function_ids
from mlgokit.algorithms.effects import MeasuredEffects, join_effects
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import Compiler
from mlgokit.module import Module
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.store import save_policy
from mlgokit.policy.targets import restrict_to_targets
from mlgokit.problems import INLINE_SIZE
from mlgokit.tune.search import progress_path
from mlgokit.tune.space import IsOver, PendingWork, Score, expected_rate, recent_rate
from mlgokit.tune.spaces.inlining.restart import ArmStatistics, choose_restart, restart
from mlgokit.tune.spaces.inlining.state import (
    ModuleState,
    Progress,
    RestartKind,
    StepResult,
    append_effects,
    load_progress,
    save_progress,
)
from mlgokit.tune.spaces.inlining.step import (
    Floats,
    MovePriority,
    Rank,
    catch_up,
    choose,
    compile_decided,
    confirm_composed,
    explore,
    indifferent,
    moves_between,
    scored,
)

POLICY_NAME, EFFECTS_NAME = "tuned.policy", "effects"
EARLY_REFITS = (0.02, 0.05, 0.15)
"""Further shares of the budget after which a policy is fitted, with fewer than :data:`LEAST_MODULES` modules."""
LEAST_COMPONENTS = 500
"""Minimum number of labels to fit a policy."""
LEAST_MODULES = 4
"""Minimum number of modules to validate a policy on modules that it was not fitted on; with fewer, groups of steps
take the place of modules."""
_GROUPS = 8
"""Number of such groups of steps."""
_HOT_FIRST = 20.0
"""Bytes by which a decision in a function is tried before one in a function that executes 1/e as much."""
_MOST_RANKED = 256
"""Number of builds whose ranks are cached."""
_NOTHING = 0.1
"""Bytes per second below which a module counts as gaining nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """Settings of the search."""

    existence: float = 0.0
    """Credit for no longer defining a COMDAT signature that k modules define, as a share of 1/k of its bytes."""
    most: int = 1024
    """Largest number of decisions flipped in one compilation, in independent parts of the call graph."""
    tries: int = 1
    """Number of times that a decision is flipped without gain before it is left alone, until a decision near it
    changes."""
    noise: float = 8.0
    """Scale in bytes of the random (Gumbel) part of the order in which decisions are tried."""
    restarts: int = 200
    """Number of restarts of a module in a row without gain, once no single flip gains, before it is left alone."""
    refits: tuple[float, ...] = (0.08, 0.25, 0.5)
    """Shares of the budget after which a policy is fitted to the effects measured so far; it orders what is tried
    next."""
    fit: EffectConfig = field(default_factory=lambda: EffectConfig(members=3, epochs=12))
    """Settings of the regression that is fitted."""
    seed: int = 1
    """Random seed of the search."""


@dataclass(slots=True, kw_only=True, eq=False)
class InliningSpace:
    """The inlining decisions of one project.

    Attributes:
        folder: folder for the progress.
        compiler: compiler of the modules.
        config: settings.
        modules: modules that compile, by name, in link order.
        failures: reasons by name for modules that do not compile.
        account: the project's account of the best builds.
        plain_bytes: bytes of the plain builds in the account.
        arms: recent gains by kind of restart.
        effects: measured effects of flips, by step.
        policy: policy that orders the moves; ``None`` before one was fitted.
        accepted: names of the modules that a judge accepted; ``None`` without a judge.
        changed: names of the modules that changed since an earlier session.
    """

    folder: Path
    compiler: Compiler
    config: SearchConfig
    modules: dict[str, ModuleState]
    failures: dict[str, str]
    account: ProjectAccount
    plain_bytes: float
    arms: dict[RestartKind, ArmStatistics] = field(default_factory=dict[RestartKind, ArmStatistics])
    effects: list[MeasuredEffects] = field(default_factory=list[MeasuredEffects])
    policy: Policy | None = None
    accepted: frozenset[str] | None = None
    changed: frozenset[str] = frozenset()
    _rank: Rank = indifferent
    _ranked_by: Policy | None = None
    _fits: int = 0

    @property
    def objective(self) -> Objective:
        """The size, or with ``EXECUTED`` the cost, that the search minimises.

        Each COMDAT signature counts once in the whole project.
        """
        return self.account.objective

    @property
    def units(self) -> Sequence[ModuleState]:
        """The modules, in link order."""
        return list(self.modules.values())

    @property
    def score(self) -> Score:
        """The exact account, and its change against the plain build."""
        image = self.account.image
        return Score(value=image, change=image / self.plain_bytes - 1 if self.plain_bytes else 0.0)

    @property
    def pending(self) -> Sequence[PendingWork[ModuleState, StepResult]]:
        """Work that compiles the composed builds."""
        composed = [(one, one.composed) for one in self.modules.values()]
        return [
            PendingWork(unit=one, run=self._confirmation(one), seconds=build.user_seconds)
            for one, build in composed
            if build is not None
        ]

    def expect_executed(self) -> None:
        """Begin with the modules that execute most, if that is what counts."""
        for unit in self.units if self.objective is Objective.EXECUTED else ():
            unit.climb.rate = expected_rate(self.bytes_of(unit, unit.build), self.step_seconds(unit))

    def prepare(self, spent: float, seconds: float, rng: np.random.Generator) -> float:
        """Fit a policy to the effects so far, if that is due, the framework is installed and labels are enough."""
        if self.policy is None and self.objective is Objective.EXECUTED:
            self._rank = hot_first
        elif self._ranked_by is not self.policy:
            self._rank, self._ranked_by = rank_by(self.policy), self.policy
        early = EARLY_REFITS if self.config.refits and len(self.modules) < LEAST_MODULES else ()
        due = sum(share * seconds <= spent for share in (*self.config.refits, *early))
        is_due, self._fits = due > self._fits, due
        if not is_due:
            return 0.0
        begin = time.process_time()
        modules = [unit.module for unit in self.modules.values()]
        fitted = fit_order(self.effects, self.config.fit, modules, rng=rng)
        if fitted is None:
            return 0.0
        self.policy = self._ranked_by = fitted
        fit_seconds = time.process_time() - begin
        save_policy(fitted, self.folder / POLICY_NAME)
        self._rank = rank_by(fitted)
        return fit_seconds

    def urgency(self, unit: ModuleState, running: int) -> tuple[float, ...] | None:
        """The rank of a module: those that saved most per second lately come first.

        Steps of one module run side by side, except for one that ends a pass. Of modules that saved nothing lately,
        those with moves that were never tried come first, then those in a later pass, since both save more than
        restarts; otherwise they share the time.
        """
        climb, may_restart = unit.climb, unit.vain_restarts + unit.reverted < self.config.restarts
        if not len(unit.build.decisions) or (climb.exhausted and not may_restart) or (running and climb.ends_pass):
            return None
        rate = -climb.rate if climb.rate > _NOTHING else 0.0
        return rate, 2 if climb.exhausted else min(climb.passes, 1), unit.idle_seconds

    def step_seconds(self, unit: ModuleState) -> float:
        """Processor time of the module's best build."""
        return unit.build.user_seconds

    def propose(self, unit: ModuleState, rng: np.random.Generator, is_over: IsOver) -> Callable[[], StepResult]:
        """Return the work of a step; or, if no single move pays any more, of a restart of a drawn kind."""
        config, snapshot, child = self.config, unit.snapshot(), rng.spawn(1)[0]
        priority = MovePriority(rank=self._rank, noise=config.noise, most=config.most, tries=config.tries)

        def choose_flips() -> tuple[frozenset[int], Callable[[], StepResult]]:
            flips = choose(unit, self.account, priority=priority, rng=child)
            work = functools.partial(explore, self.compiler, snapshot, self.account, flips)
            return frozenset(flips.values()), work

        if not unit.climb.exhausted:
            unit.climb.pass_from = unit.climb.pass_from or unit.build
            work = unit.climb.next_step(choose_flips, self._confirmation(snapshot))
            if work is not None:
                return work
        return functools.partial(
            restart,
            self.compiler,
            snapshot,
            self.account,
            kind=choose_restart(self.arms, rng),
            priority=priority,
            rng=child,
            is_over=is_over,
        )

    def _confirmation(self, unit: ModuleState) -> Callable[[], StepResult]:
        """The work that compiles a module's composed build."""
        return functools.partial(confirm_composed, self.compiler, unit, self.account)

    def accept(self, unit: ModuleState, step: StepResult) -> None:
        """Adopt the outcome of a step or a restart, and save the module's progress."""
        step = self._release_and_merge(unit, step)
        if not step.compilations and step.kind is None:
            self._end_pass(unit)
            return
        if step.effects is not None:
            self.effects.append(step.effects)
        tried = unit.tried if step.kind is None else unit.drawn
        tried.update(step.failed)
        adopted = step.build is not None and self.adopt_if_better(unit, step.build)
        unit.composed, unit.climb.composed_steps = step.composed, step.composed_steps
        if step.kind is not None:
            arm = self.arms.setdefault(step.kind, ArmStatistics())
            arm.enter(step.saved, step.user_seconds or arm.mean_seconds)
            # If all drawn moves had been made before, they may be made again, and nothing was in vain.
            unit.vain_restarts += step.compilations > 0
            if not step.compilations:
                unit.drawn.clear()
        unit.idle_seconds += step.user_seconds
        if adopted:
            unit.vain_restarts, unit.idle_seconds = 0, 0.0
        # A build that a restart composed is compiled by a step, when no move is left.
        if adopted or step.composed is not None:
            unit.climb.exhausted = False
        if step.flips:
            unit.climb.rate = recent_rate(unit.climb.rate, step.saved, step.user_seconds)
        self.save(unit)
        if step.effects is not None:
            append_effects(self.folder / EFFECTS_NAME, step.effects)

    def _release_and_merge(self, unit: ModuleState, step: StepResult) -> StepResult:
        """Release the moves of a step that ended, and merge its outcome with those of steps that ended meanwhile."""
        nothing_tried = not step.compilations and step.kind is None
        unit.climb.release(step.made, is_confirmation=step.confirms or nothing_tried)
        if step.base is None or step.base is unit.current:
            return step
        with self.account.lock:
            return catch_up(step, unit, self.account)

    def _end_pass(self, unit: ModuleState) -> None:
        """Begin another pass over all moves of a module if the last one was worth it."""
        before = self.bytes_of(unit, unit.climb.pass_from or unit.build)
        if unit.climb.end_pass(unit.build, before=before, now=self.bytes_of(unit, unit.build)):
            unit.tried.clear()

    def bytes_of(self, unit: ModuleState, build: Compilation) -> float:
        """Bytes of a module in the account, with this build."""
        with self.account.lock:
            return self.account.module_bytes(unit.module.name, build.measured)

    def adopt_if_better(self, unit: ModuleState, build: Compilation) -> bool:
        """Make ``build`` the module's best one if the project gets smaller."""
        with self.account.lock:
            name = unit.module.name
            known = self.account.module_bytes(name, unit.build.measured)
            if self.account.module_bytes(name, build.measured) >= known:
                return False
            unit.build, unit.composed = build, None
            self.account.put(name, build.measured)
            return True

    def save(self, unit: ModuleState) -> None:
        """Save the progress of a module."""
        composed = {} if unit.composed is None else unit.composed.decisions.by_site
        progress = Progress(decisions=unit.build.decisions.by_site, tried=unit.tried, composed=composed)
        save_progress(progress_path(self.folder, unit.module.name), progress)

    def close(self) -> None:
        """End resident compilers."""
        self.compiler.close()

    def best_build(self, unit: ModuleState) -> Compilation | None:
        """The best build of a module; ``None`` if the plain one is no larger, or nothing was decided."""
        return unit.build if len(unit.build.decisions) and self.saved_bytes(unit, unit.build) > 0 else None

    def saved_bytes(self, unit: ModuleState, build: Compilation | None) -> float:
        """Bytes that a build saves by the account, which sums sizes of objects; 0 for ``None``, the plain build."""
        with self.account.lock:
            name, account = unit.module.name, self.account
            sizes = unit.plain if build is None else build.measured
            return account.module_bytes(name, unit.plain) - account.module_bytes(name, sizes)

    def compile_again(self, unit: ModuleState, build: Compilation, path: Path) -> Compilation:
        """Compile a module by the decisions of a build, and keep the object."""
        return compile_decided(self.compiler, unit.module, build.decisions.by_site, unit.names, keep_object=path)

    def save_build(self, build: Compilation, path: Path) -> None:
        """Write the decisions of a build to a file."""
        save_progress(path, Progress(decisions=build.decisions.by_site, tried={}))

    def load_build(self, unit: ModuleState, path: Path, keep_object: Path) -> Compilation | None:
        """Compile a module by the decisions in a file; ``None`` if there is no file."""
        kept = load_progress(path)
        if kept is None:
            return None
        return compile_decided(self.compiler, unit.module, kept.decisions, unit.names, keep_object=keep_object)

    def revert(self, unit: ModuleState, accepted: Compilation | None, rejected: Compilation) -> float:
        """Continue from the accepted build, or from LLVM's decisions; return processor seconds."""
        target = accepted or compile_decided(self.compiler, unit.module)
        seconds = target.user_seconds if accepted is None else 0.0
        if target.ok:
            unit.build, unit.composed, unit.climb.exhausted = target, None, False
            unit.reverted += 1
            with self.account.lock:
                self.account.put(unit.module.name, target.measured)
                base, _ = scored(target, self.account, unit.module.name)
            for move in moves_between(base, target.decisions.sites, rejected.decisions.by_site):
                unit.tried[move] = self.config.tries
            self.save(unit)
        return seconds

    def take_back(self, functions: Collection[int]) -> bool:
        """Leave inlining into functions, by their ids, to LLVM; return whether that decides otherwise."""
        changed, ids = False, np.array(sorted(functions), np.int64)
        for unit in self.units:
            build = self.best_build(unit)
            if build is None or not (mine := np.isin(build.decisions.caller, ids)).any():
                continue
            made = build.decisions
            kept = dict(zip(made.sites[~mine].tolist(), made.inlined[~mine].tolist(), strict=True))
            without = compile_decided(self.compiler, unit.module, kept, unit.names)
            if without.ok and without.decisions.by_site != build.decisions.by_site:
                self.revert(unit, without, build)
                changed = True
        return changed

    def inlined_with(self, functions: Collection[int]) -> set[int]:
        """Functions by their ids, with all that is inlined into them or that they are inlined into."""
        pairs = {
            pair
            for unit in self.units
            for made in (unit.build.decisions,)
            for pair in zip(made.caller[made.inlined].tolist(), made.callee[made.inlined].tolist(), strict=True)
        }
        found = set(functions)
        for sources, targets in ((0, 1), (1, 0)):
            reached = set(functions)
            while more := {pair[targets] for pair in pairs if pair[sources] in reached} - reached:
                reached |= more
            found |= reached
        return found

    def adopt_accepted(self, accepted: Mapping[str, Compilation]) -> None:
        """Use the builds that a judge accepted for the result, all other modules plain; the folder is not changed."""
        self.accepted = frozenset(accepted)
        for name, one in self.modules.items():
            one.build = accepted.get(name, one.build)
            self.account.put(name, one.build.measured if name in accepted else one.plain)


def rank_by(policy: Policy | None) -> Rank:
    """Return a function that ranks decisions by the bytes that the policy, if any, expects their flips to save."""
    if policy is None:
        return indifferent
    known: dict[int, tuple[Compilation, Floats]] = {}
    scale = policy.bytes_per_unit if policy.output is OutputKind.EFFECT_BYTES else 1.0

    def rank(build: Compilation) -> Floats:
        # The build is kept beside the answer, so that no other one can have its id.
        if id(build) in known:
            return known[id(build)][1]
        decisions = build.decisions
        if not len(decisions) or not set(policy.features) <= set(decisions.names):
            return np.zeros(len(decisions))
        columns = [decisions.names.index(name) for name in policy.features]
        towards = scale * policy.preferences(decisions.values[:, columns])
        expected: Floats = np.where(decisions.inlined, -towards, towards)
        if len(known) >= _MOST_RANKED:
            known.clear()
        known[id(build)] = build, expected
        return expected

    return rank


def hot_first(build: Compilation) -> Floats:
    """Rank decisions by what the functions with the call sites execute by the profile, those of the hottest first."""
    cost = build.measured.run_cost
    if cost is None or not len(build.decisions):
        return np.zeros(len(build.decisions))
    by_id = dict(zip(function_ids(build.measured.function_names).tolist(), cost.tolist(), strict=True))
    return _HOT_FIRST * np.log(np.array([max(1.0, by_id.get(one, 0.0)) for one in build.decisions.caller.tolist()]))


def fit_order(
    effects: Sequence[MeasuredEffects], config: EffectConfig, modules: Sequence[Module], *, rng: np.random.Generator
) -> Policy | None:
    """Fit a policy to measured effects; ``None`` if there are too few, or the framework is not installed.

    Args:
        effects: measured effects of flips, by step.
        config: settings of the regression.
        modules: modules of the project, for whose target the policy decides.
        rng: source of random draws.
    """
    if len(modules) < LEAST_MODULES:
        effects = [
            dataclasses.replace(part, projects=(f"steps {index % _GROUPS}",)) for index, part in enumerate(effects)
        ]
    groups = {part.projects for part in effects}
    if sum(len(part.change) for part in effects) < LEAST_COMPONENTS or len(groups) < LEAST_MODULES:
        return None
    try:
        from mlgokit.algorithms.effect_fit import fit_effects
    except ImportError:
        return None
    fitted, _ = fit_effects(join_effects(effects), config, problem=INLINE_SIZE.name, rng=rng)
    return restrict_to_targets(fitted, modules)
