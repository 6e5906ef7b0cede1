"""A million results through the engine, from a compiler that costs nothing: how many a second, and is memory flat?"""

import dataclasses
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import PLAIN
from mlgokit.errors import UsageError
from mlgokit.progress import say_nothing
from mlgokit.testing import ToyCall, ToyModule, toy_compiler, toy_source

LEAST_A_SECOND = 3000.0
MOST_GROWTH_MIB = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Ask the fake compiler for compilations in rounds, as a training does, and drop each round's results."""

    results: int = 1_000_000
    """How many in all."""
    round: int = 1000
    """How many in each round."""
    workers: int = 2
    """Threads that ask."""
    json: Path = Path("docs/results/engine.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Engine, measure, arguments)


def measure(config: Engine, setup: Setup) -> Result:
    """Run the rounds, and look at time and memory at ten places."""
    rounds = config.results // max(1, config.round)
    if config.round < 1 or rounds < 10:
        raise UsageError(f"results: expected at least ten rounds, found {rounds}; ask for more results")
    calls = tuple(ToyCall(caller=f"f{index}", callee="g", site=2 * index + 2) for index in range(8))
    toy = ToyModule(calls=calls, weigh=lambda inlined: {"f": 10 - sum(inlined), "g": 3})
    compiler = dataclasses.replace(toy_compiler({"m": toy}), workers=config.workers)
    modules = [toy_source("m")] * config.round
    rows: list[tuple[Cell, ...]] = []
    begin = last = time.perf_counter()
    sizes: list[float] = []
    for index in range(rounds):
        done = parallel(
            lambda module: compiler.compile(module, PLAIN),
            modules,
            workers=config.workers,
            report=say_nothing,
            label="",
        )
        if not all(each.ok for each in done):
            raise UsageError("the fake compiler: expected results that succeed, found others")
        # The record of what it was asked is for tests, and would be all that grows.
        compiler.asked.clear()
        if (index + 1) % (rounds // 10) == 0:
            now = time.perf_counter()
            sizes.append(resident_mib())
            rate = config.round * (rounds // 10) / (now - last)
            rows.append(((index + 1) * config.round, round(rate), round(sizes[-1], 1)))
            setup.report(index + 1, rounds, "rounds")
            last = now
    rate, growth = config.round * rounds / (last - begin), sizes[-1] - sizes[0]
    return Result(
        benchmark="engine",
        question="How many results a second does the engine take, and does its memory grow?",
        answer=f"{rate:,.0f} results a second; memory grew by {growth:+.1f} MiB from the first tenth to the last",
        bar=f"at least {LEAST_A_SECOND:,.0f} a second, at most {MOST_GROWTH_MIB:.0f} MiB",
        passed=rate >= LEAST_A_SECOND and growth <= MOST_GROWTH_MIB,
        seed=1,
        tables=(
            Table(
                title="On the way",
                note="Results with the sizes and decisions of a small module, from a compiler that starts no process. "
                f"Most memory at any time: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f} MiB.",
                columns=("results", "a second, since the row before", "memory (MiB)"),
                rows=tuple(rows),
            ),
        ),
    )


def resident_mib() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    raise SystemExit(main())
