"""The builds that a search wants to know on one module, and what the search takes for them."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from timing import spent

from mlgokit.compiler.compile import HEURISTIC, NEVER, CompileResult
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective
from mlgokit.module import Module
from mlgokit.tune.search import Bench, ModuleState, MovePriority, confirm_composed, indifferent, step
from mlgokit.tune.state import Build, Keys, build_of, nothing_decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A build that a search wanted; ``composed`` is what it took it for without compiling it."""

    policy: str = HEURISTIC
    decisions: Mapping[int, bool] | None = None
    names: Keys | None = None
    composed: Build | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Recorder:
    """A bench that also writes down what it is asked."""

    bench: Bench
    asked: list[Asked] = field(default_factory=list[Asked])
    compilations: int = 0

    def compile(self, module: Module, **settings: Any) -> CompileResult:
        """As the bench does."""
        self.asked.append(Asked(**settings))
        self.compilations += 1
        return self.bench.compile(module, **settings)


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


def searched(bench: Bench, module: Module, *, steps: int, rng: np.random.Generator) -> tuple[list[Asked], Cost]:
    """The builds that a search wants in some steps on one module, each once, and what the whole search takes."""
    recorder = Recorder(bench=bench)
    plain = recorder.bench.compile_plain(module)
    before = spent()
    build = build_of(recorder.compile(module))
    never = build_of(recorder.compile(module, policy=NEVER))
    said = 0.0
    if plain.sizes is not None and build is not None and never is not None:
        said = build.user_seconds + never.user_seconds
        one = ModuleState(module=module, plain=plain.sizes, build=nothing_decided(plain.sizes))
        account = account_of([module.name], {module.name: build.sizes}, objective=Objective.LINK_AWARE)
        weights = [account.module_bytes(module.name, found.sizes) for found in (build, never)]
        one.build = build if weights[0] <= weights[1] else never
        account.put(module.name, one.build.sizes)
        recording = cast("Bench", recorder)
        for number in range(steps + 1):
            if number == steps:
                done = confirm_composed(recording, one, account, lock=threading.Lock())
            else:
                done = step(
                    recording,
                    one,
                    account,
                    lock=threading.Lock(),
                    order=MovePriority(rank=indifferent, noise=8.0, most=64, tries=1),
                    rng=rng,
                )
            said += done.user_seconds
            if not done.compilations:
                break
            if not done.flips:
                # The same decisions as those of the last composed build.
                recorder.asked.pop()
            one.tried.update(done.failed)
            if done.build is not None:
                one.build = done.build
                account.put(module.name, done.build.sizes)
            one.composed, one.composed_steps = done.composed, done.composed_steps
            if done.composed is not None and done.kept:
                decisions = done.composed.decisions
                recorder.asked.append(Asked(decisions=decisions, names=one.names, composed=done.composed))
    recorder.bench.rest()
    wanted = len(recorder.asked)
    cost = cost_since(before, recorder.bench, results=wanted, compilations=recorder.compilations, said=said)
    return recorder.asked, cost


def cost_since(before: tuple[float, float], bench: Bench, *, results: int, compilations: int, said: float) -> Cost:
    """What results took since :func:`~timing.spent` gave ``before``; a bench has the known functions of one module."""
    children, python = spent()
    known = next(iter(bench.known.values()), None) if bench.known is not None else None
    return Cost(
        results=results,
        compilations=compilations,
        children=children - before[0],
        python=python - before[1],
        said=said,
        hits=known.hits if known else 0,
        misses=known.misses if known else 0,
    )
