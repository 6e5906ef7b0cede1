"""The builds that a search wants to know on one module, and what the search takes for them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from timing import spent

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import NEVER, PLAIN, CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.module import Module
from mlgokit.tune.spaces.inlining.state import ModuleState
from mlgokit.tune.spaces.inlining.step import (
    MovePriority,
    compile_decided,
    confirm_composed,
    indifferent,
    request_of,
    step,
    table_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A build that a search wanted; ``composed`` is what it took it for without compiling it."""

    request: CompileRequest
    composed: Compilation | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Recorder:
    """A compiler that also tells ``note`` what it was asked, and what came of it."""

    compiler: ClangCompiler
    note: Callable[[Module, CompileRequest, Compilation], None]

    @property
    def toolchain(self) -> Toolchain:
        """The compiler's."""
        return self.compiler.toolchain

    @property
    def loaded(self) -> Loaded:
        """What the compiler is made of."""
        return self.compiler.loaded

    @property
    def plugin(self) -> Path | None:
        """The compiler's."""
        return self.compiler.plugin

    @property
    def workers(self) -> int:
        """One at a time."""
        return 1

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """As the compiler does."""
        done = self.compiler.compile(module, request)
        self.note(module, request, done)
        return done

    def close(self) -> None:
        """End the compilers that stay."""
        self.compiler.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What results took: processor time of all children and of this process, and what compilations said themselves."""

    results: int
    compilations: int
    children: float
    python: float
    said: float
    hits: int = 0
    misses: int = 0

    @property
    def seconds(self) -> float:
        """Processor time for one result."""
        return (self.children + self.python) / self.results


def searched(
    compiler: ClangCompiler, module: Module, *, steps: int, rng: np.random.Generator
) -> tuple[list[Asked], Cost]:
    """The builds that a search wants in some steps on one module, each once, and what the whole search takes."""
    asked: list[Asked] = []
    compilations = 0

    def note(_module: Module, request: CompileRequest, _done: Compilation) -> None:
        nonlocal compilations
        compilations += 1
        asked.append(Asked(request=request))

    recorder = Recorder(compiler=compiler, note=note)
    plain = compiler.compile(module)
    before = spent()
    build = compile_decided(recorder, module)
    never = compile_decided(recorder, module, policy=NEVER)
    said = 0.0
    if plain.ok and build.ok and never.ok:
        said = build.user_seconds + never.user_seconds
        account = account_of([module.name], {module.name: build.measured}, objective=Objective.LINK_AWARE)
        weights = [account.module_bytes(module.name, found.measured) for found in (build, never)]
        best = build if weights[0] <= weights[1] else never
        one = ModuleState(module=module, plain=plain.measured, build=best)
        account.put(module.name, best.measured)
        for number in range(steps + 1):
            if number == steps:
                done = confirm_composed(recorder, one, account, lock=threading.Lock())
            else:
                done = step(
                    recorder,
                    one,
                    account,
                    lock=threading.Lock(),
                    priority=MovePriority(rank=indifferent, noise=8.0, most=64, tries=1),
                    rng=rng,
                )
            said += done.user_seconds
            if not done.compilations:
                break
            if not done.flips:
                # The same decisions as those of the last composed build.
                asked.pop()
            one.tried.update(done.failed)
            if done.build is not None:
                one.build = done.build
                account.put(module.name, done.build.measured)
            one.composed, one.climb.composed_steps = done.composed, done.composed_steps
            if done.composed is not None and done.kept:
                request = request_of(table_of(done.composed.decisions.by_site, one.names))
                asked.append(Asked(request=request, composed=done.composed))
    recorder.close()
    cost = cost_since(before, compiler, results=len(asked), compilations=compilations, said=said)
    return asked, cost


def cost_since(
    before: tuple[float, float], compiler: ClangCompiler, *, results: int, compilations: int, said: float
) -> Cost:
    """What results took since :func:`~timing.spent` gave ``before``; a compiler knows functions of one module."""
    children, python = spent()
    known = next(iter(compiler.known.values()), None) if compiler.known is not None else None
    return Cost(
        results=results,
        compilations=compilations,
        children=children - before[0],
        python=python - before[1],
        said=said,
        hits=known.hits if known else 0,
        misses=known.misses if known else 0,
    )
