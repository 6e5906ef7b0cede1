"""Passes of the optimizer as a space: modules, the passes that are left out of them, and their next steps."""

import functools
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE, PASS_SELECTION
from mlgokit.tables.overrides import (
    OPTIMIZER_PASSES,
    LeftOut,
    OverrideSummary,
    group_by_function,
    override_bytes,
    write_overrides,
)
from mlgokit.tune.search import progress_path
from mlgokit.tune.space import IsOver, PendingWork, Score, recent_rate
from mlgokit.tune.spaces.functions.compare import keys_of, objection_in_bytes
from mlgokit.tune.spaces.optimizer.state import PassModule, save_left_out
from mlgokit.tune.spaces.optimizer.step import PassStep, choose, confirm, explore, outcome_of
from mlgokit.tune.verify import VerifiedBuild


@dataclass(slots=True, kw_only=True, eq=False)
class OptimizerSpace:
    """The passes of the optimizer that do not run on functions of one project, and their table as a candidate.

    Attributes:
        folder: folder for the progress.
        compiler: compiler of the modules.
        decisions: content of the decision table that modules are inlined by.
        units: modules that compile.
        failures: reasons by name for modules that do not compile.
        account: the project's account of the best builds; its lock is that of the modules too, which steps read while
            others are accepted.
        before_bytes: bytes of the account before the search.
        slowdown: share by which a function may execute more instructions than with all passes, by LLVM's estimate.
        shared: number of functions that several modules have, other than copies and variants, and that are not
            searched, since a change would affect all of these modules.
        withheld: keys of functions whose passes run again, because runs of the program spoke against what was found.
    """

    folder: Path
    compiler: Compiler
    decisions: bytes
    units: list[PassModule]
    failures: dict[str, str]
    account: ProjectAccount
    before_bytes: float
    slowdown: float
    shared: int = 0
    withheld: set[int] = field(default_factory=set[int])

    @property
    def objective(self) -> Objective:
        """The objective, which decides which bytes count."""
        return self.account.objective

    @property
    def score(self) -> Score:
        """Bytes of the exact account, and their relative change against the account before the search."""
        image = self.account.image
        return Score(value=image, change=image / self.before_bytes - 1 if self.before_bytes else 0.0)

    @property
    def pending(self) -> Sequence[PendingWork[PassModule, PassStep]]:
        """Work that compiles the composed builds."""
        return [
            PendingWork(unit=one, run=self._confirmation(one), seconds=self.step_seconds(one))
            for one in self.units
            if one.climb.composed_steps
        ]

    @property
    def tried_functions(self) -> set[int]:
        """Keys of the functions that moves were made in."""
        return {key for unit in self.units for key in unit.moves}

    def compile(
        self, module: Module, left_out: frozenset[LeftOut], *, log: bool = False, policy: Path | None = None
    ) -> Compilation:
        """Compile a module with passes left out, also by a policy if given; list the changes of the others."""
        use = PluginUse(
            policies={INLINE_SIZE.name: HEURISTIC} | ({} if policy is None else {PASS_SELECTION.name: str(policy)}),
            logs=(INLINE_SIZE.name,) if log else (),
            log_default=False,
            decisions=self.decisions,
            optimizer_passes=override_bytes(OPTIMIZER_PASSES, group_by_function(left_out)) if left_out else b"",
            list_changes=True,
        )
        return self.compiler.compile(module, CompileRequest(use=use, keep="none", reuse=True))

    def prepare(self, _spent: float, _seconds: float, _rng: np.random.Generator) -> float:
        """Do nothing: steps need no preparation."""
        return 0.0

    def urgency(self, unit: PassModule, running: int) -> tuple[float, ...] | None:
        """The rank of a module: those that gained most per second lately come first; steps of one run side by side."""
        if unit.climb.exhausted or (running and (unit.waits or unit.climb.ends_pass)):
            return None
        return (-unit.climb.rate,)

    def step_seconds(self, unit: PassModule) -> float:
        """Processor time of the module's best build, and of those of its variants."""
        return unit.current.done.user_seconds + sum(variant.build.user_seconds for variant in unit.variants)

    def propose(self, unit: PassModule, rng: np.random.Generator, _is_over: IsOver) -> Callable[[], PassStep]:
        """Return the work of a step; it does nothing if other steps have claimed all moves that are left."""
        child, base = rng.spawn(1)[0], unit.current

        def choose_passes() -> tuple[frozenset[LeftOut], Callable[[], PassStep]]:
            moves = choose(unit, self.account, child)
            return moves, functools.partial(explore, self.compile, unit, base, moves)

        with self.account.lock:
            return unit.climb.next_step(choose_passes, self._confirmation(unit)) or PassStep

    def _confirmation(self, unit: PassModule) -> Callable[[], PassStep]:
        """The work that compiles a module's composed build."""
        composed = unit.current if unit.climb.composed_steps else None
        return functools.partial(confirm, self.compile, unit, composed, unit.confirmed, slowdown=self.slowdown)

    def accept(self, unit: PassModule, step: PassStep) -> None:
        """Adopt the outcome of a step; a step without compilations may end the pass over the moves."""
        with self.account.lock:
            ends_pass = not step.compilations and unit.climb.ends_pass
            unit.climb.release(step.made, is_confirmation=step.confirms or ends_pass)
            unit.waits = not step.compilations and not ends_pass
            if step.compilations:
                self._adopt(unit, step)
            elif ends_pass:
                self._end_pass(unit)

    def _adopt(self, unit: PassModule, step: PassStep) -> None:
        """Update a module by a step that compiled it; save its best build if that is new."""
        outcome = outcome_of(step, unit, self.account, slowdown=self.slowdown)
        # Letting a pass run again, which is the same move, may have been in vain before.
        unit.tried = unit.tried - outcome.again | outcome.vain
        for key, _, _ in step.made:
            unit.moves[key] = unit.moves.get(key, 0) + 1
        unit.current, unit.climb.composed_steps = outcome.current, outcome.composed_steps
        if outcome.confirmed is not unit.confirmed:
            unit.confirmed = outcome.confirmed
            self.put(unit, outcome.confirmed.done, outcome.variants)
            save_left_out(progress_path(self.folder, unit.module.name), outcome.confirmed.left_out)
        if step.made:
            unit.climb.rate = recent_rate(unit.climb.rate, outcome.saved, step.user_seconds)

    def put(self, unit: PassModule, build: Compilation, variants: Sequence[Compilation]) -> None:
        """Put a module's best build into the account, also for its copies, and the builds of its variants."""
        for variant, its in zip(unit.variants, variants, strict=True):
            variant.build = its
        for names, one in unit.parts(build, variants):
            for name in names:
                self.account.put(name, one.measured)

    def _end_pass(self, unit: PassModule) -> None:
        """Begin another pass over the moves of a module if the last one saved enough."""
        first, build = unit.climb.pass_from or unit.current.done, unit.current.done
        before, now = (self.account.module_bytes(unit.module.name, one.measured) for one in (first, build))
        if unit.climb.end_pass(build, before=before, now=now):
            unit.tried.clear()

    def close(self) -> None:
        """End resident compilers."""
        self.compiler.close()

    def left_out(self) -> frozenset[LeftOut]:
        """The passes that are left out of the best builds that were compiled, without what was taken back."""
        return frozenset(one for unit in self.units for one in unit.confirmed.left_out if one[0] not in self.withheld)

    def decided_functions(self) -> set[str]:
        """Names of the functions that the table has entries of."""
        keys = self.entries()
        return {name for unit in self.units for name, key in unit.keys.items() if key in keys}

    def take_back(self, functions: Collection[int]) -> bool:
        """Let all passes run on functions, by their ids; return whether one was left out."""
        keys = keys_of((unit.keys for unit in self.units), functions)
        changes = any(key in keys for key, _, _ in self.left_out())
        self.withheld |= keys
        return changes

    @property
    def kind(self) -> str:
        """Kind of the table: passes of the optimizer."""
        return OPTIMIZER_PASSES.table

    def entries(self) -> Collection[int]:
        """Keys of the functions that passes are left out of."""
        return group_by_function(self.left_out()).keys()

    def write(self, path: Path, kept: Collection[Hashable]) -> None:
        """Write the table with the passes that are left out of the ``kept`` functions."""
        by_key = {key: one for key, one in group_by_function(self.left_out()).items() if key in kept}
        summary = OverrideSummary(
            llvm=self.compiler.toolchain.major,
            functions=sum(len(unit.allowed) for unit in self.units),
            plain_score=self.before_bytes,
            tuned_score=self.account.image if kept else self.before_bytes,
        )
        write_overrides(OPTIMIZER_PASSES, path, by_key, summary)

    def refuted(
        self, before: VerifiedBuild, after: VerifiedBuild, kept: Collection[Hashable]
    ) -> dict[str, tuple[Collection[Hashable], str]]:
        """All entries of each module that does not become smaller with them."""
        wrong: dict[str, tuple[Collection[Hashable], str]] = {}
        for unit in self.units:
            mine = {key for key, _, _ in unit.confirmed.left_out if key in kept}
            for name in unit.names if mine else ():
                first, second = before.compilations[name], after.compilations[name]
                if not first.ok:
                    continue
                if not second.ok:
                    wrong[name] = mine, f"it does not compile with the result: {second.reason}"
                elif self.account.module_bytes(name, second.measured) >= self.account.module_bytes(
                    name, first.measured
                ):
                    wrong[name] = mine, "its object is no smaller with passes of the optimizer left out"
        return wrong

    def entries_of(self, modules: Collection[str]) -> Collection[int]:
        """Table keys of all functions of these modules, and of the modules that are searched together with them."""
        changed = [unit for unit in self.units if not set(unit.names).isdisjoint(modules)]
        return {key for unit in changed for key in unit.keys.values()}

    def objection(self, before: VerifiedBuild, after: VerifiedBuild) -> str:
        """Why the whole project is not smaller, by the link, the account or the user's own measure."""
        return objection_in_bytes(before, after, self.objective)
