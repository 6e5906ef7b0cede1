"""Inlining decisions as a space: modules, the exact account of their best builds, and what is tried with them next."""

import copy
import functools
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.algorithms.config import EffectConfig
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.lto import is_back_end
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.objects.measure import Objective, project_image_estimate
from mlgokit.compiler.request import Compiler
from mlgokit.policy.network import Policy
from mlgokit.policy.store import save_policy
from mlgokit.tables.decisions import TuningSummary, entry_of, write_table
from mlgokit.tune.search import progress_path
from mlgokit.tune.space import IsOver, recent_rate, was_last_pass
from mlgokit.tune.spaces.inlining.catch_up import catch_up
from mlgokit.tune.spaces.inlining.merge import scored
from mlgokit.tune.spaces.inlining.order import LEAST_MODULES, fit_order, rank_by
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
    MovePriority,
    Rank,
    choose,
    compile_decided,
    confirm_composed,
    explore,
    indifferent,
    is_due,
    moves_between,
)
from mlgokit.tune.verify import VerifiedBuild, grew

POLICY_NAME, EFFECTS_NAME = "tuned.policy", "effects"
EARLY_REFITS = (0.02, 0.05, 0.15)
"""More moments of the budget where there are so few modules: there a step says much, and they are many to a module."""
_NOTHING = 0.1
"""Bytes per second that are as good as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """Settings of the search."""

    objective: Objective = Objective.LINK_AWARE
    """Measure of size; each COMDAT signature counts once in the whole project."""
    existence: float = 0.0
    """Credit for no longer defining a COMDAT signature that k modules define, as a share of 1/k of its bytes."""
    most: int = 1024
    """Largest number of decisions flipped in one compilation, in independent parts of the call graph."""
    tries: int = 1
    """Number of trials of a decision before it is left alone, until something near it changes."""
    noise: float = 8.0
    """Random part of the order in which decisions are tried, in bytes."""
    restarts: int = 200
    """Number of restarts of a module in a row without gain, once no single flip gains, before it is left alone."""
    refits: tuple[float, ...] = (0.08, 0.25, 0.5)
    """Shares of the budget after which a policy is fitted to what was measured so far, to say what to try first."""
    fit: EffectConfig = field(default_factory=lambda: EffectConfig(members=3, epochs=12))
    """Settings of the regression that is fitted."""
    seed: int = 1
    """Random seed of the search."""


@dataclass(slots=True, kw_only=True, eq=False)
class InliningSpace:
    """The inlining decisions of one project.

    Attributes:
        folder: where progress is kept.
        compiler: compiles.
        config: settings.
        modules: those that compile, by name, in link order.
        failures: those that do not, with the reason.
        account: of the best builds.
        plain_bytes: the exact account of the plain builds.
        arms: what the kinds of restart gave lately.
        effects: what was measured.
        policy: says what to try first.
        judged: the modules that a judge accepted, if there is one.
        lock: of the account, which steps read while others are entered.
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
    judged: frozenset[str] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    label: str = "search"
    table: str = "decisions"
    _rank: Rank = indifferent
    _refits: tuple[float, ...] = ()

    @property
    def units(self) -> Sequence[ModuleState]:
        """The modules."""
        return list(self.modules.values())

    @property
    def standing(self) -> tuple[float, float]:
        """The exact account, and its change against the plain build."""
        return self.account.image, self.account.image / self.plain_bytes - 1 if self.plain_bytes else 0.0

    @property
    def owed(self) -> float:
        """Processor time of the compilations that composed builds wait for."""
        return sum(one.composed.user_seconds for one in self.modules.values() if one.composed is not None)

    def begin(self, seconds: float) -> None:
        """Order decisions by the policy, and fit others to what is measured at some moments of the budget."""
        early = EARLY_REFITS if self.config.refits and len(self.modules) < LEAST_MODULES else ()
        self._refits = tuple(share * seconds for share in sorted((*self.config.refits, *early)))
        self._rank = rank_by(self.policy)

    def learn(self, spent: float, rng: np.random.Generator) -> float:
        """Fit a policy to what was measured so far, if that is due, the framework is there and it is enough."""
        if not self._refits or spent < self._refits[0]:
            return 0.0
        self._refits = tuple(moment for moment in self._refits if moment > spent)
        begin = time.process_time()
        modules = [unit.module for unit in self.modules.values()]
        fitted = fit_order(self.effects, self.config.fit, modules, rng=rng)
        if fitted is None:
            return 0.0
        self.policy = fitted
        seconds = time.process_time() - begin
        save_policy(self.policy, self.folder / POLICY_NAME)
        self._rank = rank_by(self.policy)
        return seconds

    def urgency(self, unit: ModuleState) -> tuple[float, ...] | None:
        """Modules that saved most per second lately come first.

        Of those that saved nothing the ones with moves that were never tried come first, then those in a later pass,
        for both give more than restarts; else they share the time.
        """
        may_restart = unit.vain + unit.refused < self.config.restarts
        if not len(unit.build.decisions) or (unit.exhausted and not may_restart):
            return None
        rate = -unit.rate if unit.rate > _NOTHING else 0.0
        return rate, 2 if unit.exhausted else min(unit.passes, 1), unit.idle_seconds

    def admits(self, unit: ModuleState, running: int) -> bool:
        """Steps of one module go side by side, but for one that ends a pass over its moves."""
        return not (running and unit.alone)

    def propose(self, unit: ModuleState, rng: np.random.Generator, is_over: IsOver) -> Callable[[], StepResult]:
        """One step; or, where no single move pays any more, a restart of a drawn kind.

        The module may change while it runs, so it gets a view of what is known now.
        """
        config, view, child = self.config, copy.copy(unit), rng.spawn(1)[0]
        priority = MovePriority(rank=self._rank, noise=config.noise, most=config.most, tries=config.tries)
        if not unit.exhausted:
            unit.pass_from = unit.pass_from or unit.build
            if is_due(unit) and not unit.confirming:
                unit.confirming = True
                return functools.partial(confirm_composed, self.compiler, view, self.account, lock=self.lock)
            chosen = choose(unit, self.account, lock=self.lock, priority=priority, rng=child)
            if chosen.flips:
                unit.claimed |= chosen.moves
                return functools.partial(explore, self.compiler, view, self.account, chosen, lock=self.lock)
            if not unit.claimed and not unit.confirming:
                unit.alone = True
                return functools.partial(confirm_composed, self.compiler, view, self.account, lock=self.lock)
            # The pass ends with what others have under way.
        return functools.partial(
            restart,
            self.compiler,
            view,
            self.account,
            kind=choose_restart(self.arms, rng),
            lock=self.lock,
            priority=priority,
            rng=child,
            is_over=is_over,
        )

    def unsettled(self) -> Sequence[tuple[ModuleState, Callable[[], StepResult]]]:
        """Composed builds, which are to be compiled."""
        waiting = [one for one in self.modules.values() if one.composed is not None]
        return [
            (one, functools.partial(confirm_composed, self.compiler, one, self.account, lock=self.lock))
            for one in waiting
        ]

    def accept(self, unit: ModuleState, step: StepResult) -> None:
        """Enter the outcome of a step, or of a restart of some kind."""
        step = self._ended(unit, step)
        if not step.compilations and step.kind is None:
            self._end_pass(unit)
            return
        if step.effects is not None:
            self.effects.append(step.effects)
        tried = unit.tried if step.kind is None else unit.drawn
        tried.update(step.failed)
        adopted = step.build is not None and self.adopt_if_better(unit, step.build)
        unit.composed, unit.composed_steps = step.composed, step.composed_steps
        if step.kind is not None:
            arm = self.arms.setdefault(step.kind, ArmStatistics())
            arm.enter(step.saved, step.user_seconds or arm.mean_seconds)
            # Where all moves that were drawn had been made, they may be made again, and nothing was in vain.
            unit.vain += step.compilations > 0
            if not step.compilations:
                unit.drawn.clear()
        unit.idle_seconds += step.user_seconds
        if adopted:
            unit.vain, unit.idle_seconds = 0, 0.0
        # What a restart composed is compiled by a step, when no move is left.
        if adopted or step.composed is not None:
            unit.exhausted = False
        if step.flips:
            unit.rate = recent_rate(unit.rate, step.saved, step.user_seconds)
        self.save(unit)
        if step.effects is not None:
            append_effects(self.folder / EFFECTS_NAME, step.effects)

    def _ended(self, unit: ModuleState, step: StepResult) -> StepResult:
        """A step that is no longer under way, beside what others found meanwhile."""
        unit.claimed -= step.made
        nothing_tried = not step.compilations and step.kind is None
        if step.confirms or nothing_tried:
            unit.confirming = unit.alone = False
        if step.base is None or step.base is (unit.composed or unit.build):
            return step
        with self.lock:
            return catch_up(step, unit, self.account)

    def _end_pass(self, unit: ModuleState) -> None:
        """Begin another pass over all moves of a module if the last one was worth it."""
        first = unit.pass_from or unit.build
        before, now = self.bytes_of(unit, first), self.bytes_of(unit, unit.build)
        unit.exhausted = was_last_pass(before, now)
        if not unit.exhausted:
            unit.pass_from = unit.build
            unit.passes += 1
            unit.tried.clear()

    def bytes_of(self, unit: ModuleState, build: Compilation) -> float:
        """What a module answers for in the account, if this is its build."""
        with self.lock:
            return self.account.module_bytes(unit.module.name, build.measured)

    def adopt_if_better(self, unit: ModuleState, build: Compilation) -> bool:
        """Make ``build`` the module's best one if the project gets smaller."""
        with self.lock:
            name = unit.module.name
            known = self.account.module_bytes(name, unit.build.measured)
            if self.account.module_bytes(name, build.measured) >= known:
                return False
            unit.build, unit.composed = build, None
            self.account.put(name, build.measured)
            return True

    def save(self, unit: ModuleState) -> None:
        """Keep what is known of a module."""
        composed = {} if unit.composed is None else unit.composed.decisions.by_site
        progress = Progress(decisions=unit.build.decisions.by_site, tried=unit.tried, composed=composed)
        save_progress(progress_path(self.folder, unit.module.name), progress)

    def rest(self) -> None:
        """End the compilers that stay."""
        self.compiler.close()

    def entries(self) -> Collection[str]:
        """Modules that are not to stay as the plain build has them."""
        if self.judged is not None:
            return self.judged
        return {name for name, one in self.modules.items() if self.best(one) is not None}

    def write_table(self, path: Path, kept: Collection[Hashable]) -> None:
        """Write the decisions of all modules; where they are not kept, the module is left to LLVM."""
        entries = [
            entry_of(
                one.names,
                one.build.decisions.sites,
                one.build.decisions.inlined,
                plain=name not in kept,
                # A back end of ThinLTO is found by its functions; a compile step that inlines nothing looks for none.
                at_link=one.module.language == "rust" or (one.module.defers and not is_back_end(one.module)),
                # What is left to LLVM, is in the compile steps too.
                defers=one.module.defers and name in kept,
            )
            for name, one in self.modules.items()
        ]
        expected = {name: one.build.measured if name in kept else one.plain for name, one in self.modules.items()}
        objective = self.config.objective
        summary = TuningSummary(
            llvm=self.compiler.toolchain.major,
            objective=objective.value,
            plain_bytes=self.plain_bytes,
            tuned_bytes=project_image_estimate(expected.values(), objective=objective),
            modules=tuple(expected),
        )
        write_table(path, entries, summary)

    def refused(
        self, before: VerifiedBuild, after: VerifiedBuild, kept: Collection[Hashable]
    ) -> dict[str, tuple[Collection[Hashable], str]]:
        """Modules whose object is not what was expected of the artifact, and what is wrong with it."""
        wrong: dict[str, str] = {}
        for name, one in self.modules.items():
            found = after.compilations[name]
            if not found.ok:
                wrong[name] = "it does not compile with the result"
            elif name not in kept:
                if after.objects[name].read_bytes() != before.objects[name].read_bytes():
                    wrong[name] = "it is to stay plain, and differs"
            elif found.measured.totals != one.build.measured.totals and self.saved(one, found) <= 0:
                wrong[name] = "its object is not the one that the search found, and no smaller than the plain one"
        return {name: ((name,), reason) for name, reason in wrong.items()}

    def objection(self, before: VerifiedBuild, after: VerifiedBuild) -> str:
        """By the judge's measure, or else by the link and the account."""
        judged = after.judged
        if judged is None:
            larger = grew(before.link, after.link) or after.total_bytes(self.config.objective) > self.plain_bytes
        else:
            larger = not judged.is_no_worse
        if larger and judged is not None and judged.reason:
            return f"the whole could not be measured with it: {judged.reason}"
        return "the whole was not smaller with it" if larger else ""

    def best(self, unit: ModuleState) -> Compilation | None:
        """The best build of a module; ``None`` if the plain one is no larger, or nothing was decided."""
        return unit.build if len(unit.build.decisions) and self.saved(unit, unit.build) > 0 else None

    def saved(self, unit: ModuleState, build: Compilation | None) -> float:
        """Bytes that a build saves against the plain one, which ``None`` is, by the account."""
        with self.lock:
            name, account = unit.module.name, self.account
            found = unit.plain if build is None else build.measured
            return account.module_bytes(name, unit.plain) - account.module_bytes(name, found)

    def is_same(self, first: Compilation, second: Compilation) -> bool:
        """Whether two builds of a module have the same decisions."""
        return first.decisions.by_site == second.decisions.by_site

    def compile_again(self, unit: ModuleState, build: Compilation, path: Path) -> Compilation:
        """Compile a module by the decisions of a build, and keep the object."""
        return compile_decided(self.compiler, unit.module, build.decisions.by_site, unit.names, keep_object=path)

    def save_build(self, build: Compilation, path: Path) -> None:
        """Keep the decisions of a build."""
        save_progress(path, Progress(decisions=build.decisions.by_site, tried={}))

    def load_build(self, unit: ModuleState, path: Path, keep_object: Path) -> Compilation | None:
        """Compile a module by decisions that were kept; ``None`` if there are none."""
        kept = load_progress(path)
        if kept is None:
            return None
        return compile_decided(self.compiler, unit.module, kept.decisions, unit.names, keep_object=keep_object)

    def take_back(self, unit: ModuleState, accepted: Compilation | None, refused: Compilation) -> float:
        """Go on from what was accepted, else from LLVM's decisions; gives processor seconds."""
        target = accepted or compile_decided(self.compiler, unit.module)
        seconds = target.user_seconds if accepted is None else 0.0
        if target.ok:
            unit.build, unit.composed, unit.exhausted = target, None, False
            unit.refused += 1
            with self.lock:
                self.account.put(unit.module.name, target.measured)
                base, _ = scored(target, self.account, unit.module.name)
            for move in moves_between(base, target.decisions.sites, refused.decisions.by_site):
                unit.tried[move] = self.config.tries
            self.save(unit)
        return seconds

    def conclude(self, accepted: Mapping[str, Compilation]) -> None:
        """Take what a judge accepted for the result, and all other modules as plain; what is on disk stays."""
        self.judged = frozenset(accepted)
        for name, one in self.modules.items():
            one.build = accepted.get(name, one.build)
            self.account.put(name, one.build.measured if name in accepted else one.plain)
