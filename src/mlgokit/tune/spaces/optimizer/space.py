"""Passes of the optimizer as a space: modules, what does not run in them, and what is tried with them next."""

import functools
import threading
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.overrides import (
    OPTIMIZER_PASSES,
    LeftOut,
    OverrideSummary,
    by_function,
    override_bytes,
    write_overrides,
)
from mlgokit.tune.search import progress_path
from mlgokit.tune.space import IsOver, recent_rate, was_last_pass
from mlgokit.tune.spaces.functions.compare import objection_in_bytes
from mlgokit.tune.spaces.optimizer.state import PassModule, TriedFunction, save_left_out
from mlgokit.tune.spaces.optimizer.step import COMPOSED, PassStep, confirm, entered, step
from mlgokit.tune.verify import VerifiedBuild


@dataclass(slots=True, kw_only=True, eq=False)
class OptimizerSpace:
    """What of the optimizer does not run on functions of one project.

    Attributes:
        folder: where progress is kept.
        compiler: compiles.
        decisions: the decision table by which modules are inlined.
        units: modules that compile.
        failures: those that do not, with the reason.
        account: of the best builds.
        before_bytes: the account before the search.
        slowdown: part by which a function may execute more instructions than with all passes, by LLVM's estimate.
        shared: functions that several modules have, which are left alone, as each would change with them; those that
            copies and variants have are not among them.
        lock: of the account and the modules, which steps read while others are entered.
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
    lock: threading.Lock = field(default_factory=threading.Lock)
    label: str = "passes of the optimizer"
    table: str = OPTIMIZER_PASSES.table

    @property
    def objective(self) -> Objective:
        """Which bytes count."""
        return self.account.objective

    @property
    def standing(self) -> tuple[float, float]:
        """The exact account, and its change against that before the search."""
        return self.account.image, self.account.image / self.before_bytes - 1 if self.before_bytes else 0.0

    @property
    def owed(self) -> float:
        """Processor time of the compilations that composed builds wait for."""
        return sum(
            build.user_seconds
            for one in self.units
            if one.composed_steps
            for build in (one.build, *(variant.build for variant in one.variants))
        )

    @property
    def functions(self) -> list[TriedFunction]:
        """Those of all modules that may be changed."""
        return [one for unit in self.units for one in unit.functions]

    def compile(self, module: Module, left_out: frozenset[LeftOut], *, log: bool = False) -> Compilation:
        """Compile a module with passes left out, and list what the others changed."""
        use = PluginUse(
            policies={INLINE_SIZE.name: HEURISTIC},
            logs=(INLINE_SIZE.name,) if log else (),
            log_default=False,
            decisions=self.decisions,
            optimizer_passes=override_bytes(OPTIMIZER_PASSES, by_function(left_out)) if left_out else b"",
            list_changes=True,
        )
        return self.compiler.compile(module, CompileRequest(use=use, keep="none", reuse=True))

    def begin(self, _seconds: float) -> None:
        """Nothing is to be prepared."""

    def learn(self, _spent: float, _rng: np.random.Generator) -> float:
        """Nothing is learned."""
        return 0.0

    def urgency(self, unit: PassModule) -> tuple[float, ...] | None:
        """Modules that gained most per second lately come first."""
        return None if unit.exhausted else (-unit.rate,)

    def admits(self, unit: PassModule, running: int) -> bool:
        """Several steps try moves of one module, each its own, up to the next build that is to be compiled."""
        return not running or not (unit.exhausted or unit.waits or unit.composed_steps + running >= COMPOSED)

    def propose(self, unit: PassModule, rng: np.random.Generator, _is_over: IsOver) -> Callable[[], PassStep]:
        """One step."""
        with self.lock:
            unit.running += 1
        return functools.partial(
            step,
            self.compile,
            unit,
            self.account,
            lock=self.lock,
            slowdown=self.slowdown,
            rng=rng.spawn(1)[0],
        )

    def unsettled(self) -> Sequence[tuple[PassModule, Callable[[], PassStep]]]:
        """Composed builds, which are to be compiled."""
        return [
            (
                one,
                functools.partial(confirm, self.compile, one, self.account, lock=self.lock, slowdown=self.slowdown),
            )
            for one in self.units
            if one.composed_steps
        ]

    def accept(self, unit: PassModule, step: PassStep) -> None:
        """Enter the outcome of a step; one without a compilation ends a pass over the moves, if it was the only one."""
        with self.lock:
            # What was left to confirm was not proposed.
            unit.running = max(0, unit.running - 1)
            unit.claimed -= step.made
            unit.waits = not step.compilations and bool(unit.running or unit.composed_steps)
            if step.compilations:
                self._enter(unit, entered(step, unit, self.account))
            elif not unit.waits:
                self._end_pass(unit)
            if not unit.running:
                unit.gains.clear()

    def _enter(self, unit: PassModule, step: PassStep) -> None:
        # Letting a pass run again, which is the same move, may have been in vain before.
        unit.tried = unit.tried - step.again | step.vain
        for key, _, _ in step.made:
            unit.moves[key] = unit.moves.get(key, 0) + 1
        if step.build is not None:
            unit.build, unit.left_out, unit.composed_steps = step.build, step.left_out, step.composed_steps
            if not step.composed_steps and step.build is not unit.confirmed[0]:
                unit.confirmed = step.build, step.left_out
                self.put(unit, step.build, step.variants)
                save_left_out(progress_path(self.folder, unit.module.name), step.left_out)
        if step.made:
            unit.rate = recent_rate(unit.rate, step.saved, step.user_seconds)

    def put(self, unit: PassModule, build: Compilation, variants: Sequence[Compilation]) -> None:
        """Enter a module's best build in the account, for its copies as well, and those of its variants."""
        for variant, its in zip(unit.variants, variants, strict=True):
            variant.build = its
        for names, one in unit.parts(build, variants):
            for name in names:
                self.account.put(name, one.measured)

    def _end_pass(self, unit: PassModule) -> None:
        before, now = self._bytes(unit, unit.pass_from), self._bytes(unit, unit.build)
        unit.exhausted = was_last_pass(before, now)
        unit.pass_from = unit.build
        unit.tried.clear()

    def rest(self) -> None:
        """End the compilers that stay."""
        self.compiler.close()

    def left_out(self) -> frozenset[LeftOut]:
        """What does not run in the best builds that were compiled."""
        return frozenset(one for unit in self.units for one in unit.confirmed[1])

    def entries(self) -> Collection[int]:
        """Keys of the functions that passes are left out of."""
        return by_function(self.left_out()).keys()

    def write_table(self, path: Path, kept: Collection[Hashable]) -> None:
        """Write what does not run in these functions."""
        by_key = {key: one for key, one in by_function(self.left_out()).items() if key in kept}
        summary = OverrideSummary(
            llvm=self.compiler.toolchain.major,
            functions=sum(len(unit.allowed) for unit in self.units),
            plain_score=self.before_bytes,
            tuned_score=self.account.image if kept else self.before_bytes,
        )
        write_overrides(OPTIMIZER_PASSES, path, by_key, summary)

    def refused(
        self, before: VerifiedBuild, after: VerifiedBuild, kept: Collection[Hashable]
    ) -> dict[str, tuple[Collection[Hashable], str]]:
        """All functions of a module that is not smaller with them."""
        found: dict[str, tuple[Collection[Hashable], str]] = {}
        for unit in self.units:
            mine = {key for key, _, _ in unit.confirmed[1] if key in kept}
            for name in unit.names if mine else ():
                first, second = before.compilations[name], after.compilations[name]
                if not first.ok:
                    continue
                if not second.ok:
                    found[name] = mine, f"it does not compile with the result: {second.reason}"
                elif self.account.module_bytes(name, second.measured) >= self.account.module_bytes(
                    name, first.measured
                ):
                    found[name] = mine, "its object is no smaller with passes of the optimizer left out"
        return found

    def _bytes(self, unit: PassModule, done: Compilation) -> float:
        return self.account.module_bytes(unit.module.name, done.measured)

    def objection(self, before: VerifiedBuild, after: VerifiedBuild) -> str:
        """The link, the account and the user's own measure say of the whole."""
        return objection_in_bytes(before, after, self.objective)
