"""How far training and tuning scale: a simulation from measured compilations, held against real clusters here."""

import contextlib
import heapq
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Setup, run_benchmark
from results import Cell, Result, Table, percent

from cluster import worker_processes
from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.compiler import open_cluster
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.errors import UsageError
from mlgokit.module import Module
from mlgokit.policy.pretrained import policy_file
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report, say_nothing

MOST_ERROR = 0.10
IDLE_SECONDS = 3.0
TIMES = 5
"""Rounds in which all modules are compiled by threads and by each number of workers; medians count."""
BYTES_A_SECOND = 1.25e8
"""Of a network of one gigabit a second, by which files leave the client."""
CORES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000)
HALF = 0.5
"""Efficiency below which more machines are said to be no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Measure compilations and the client's own work here, predict clusters, and compare with real small ones."""

    corpus: Path = Path("quickstart/corpus")
    """What is compiled."""
    projects: tuple[str, ...] = ("snappy", "double-conversion", "leveldb", "re2", "zstd")
    """Whose modules are compiled in the comparison."""
    workers: tuple[int, ...] = (1, 2, 4)
    """Workers of the real clusters."""
    turns: int = 3
    """Turns of the predicted training."""
    rounds: int = 10
    """Compilations of each module in a turn of it."""
    fit_seconds: float = 30.0
    """Time in which its client fits the policy after a turn, and nobody compiles."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the simulation goes by.

    Attributes:
        seconds: [M] of a worker for each module, its compiler alone on a processor.
        beside: how much longer a compilation takes when all processors have one.
        client: seconds of the client for each result, one after another.
        file_bytes: of all modules, which go to each machine once.
        start: seconds from the first question to the first compilation.
    """

    seconds: tuple[float, ...]
    beside: float
    client: float
    file_bytes: int
    start: float = 0.0


def makespan(tasks: Sequence[float], *, workers: int, client: float, start: float = 0.0) -> float:
    """Seconds until all results are in: the next task goes to whoever is free, and the client takes one at a time.

    Args:
        tasks: seconds of each, in the order in which they are asked for.
        workers: that take one task at a time.
        client: seconds of the client for each result.
        start: seconds before the first task begins.

    Example:
        >>> makespan([3.0, 2.0, 1.0], workers=2, client=0.0)
        3.0
        >>> makespan([1.0, 1.0, 1.0, 1.0], workers=4, client=2.0)
        9.0
    """
    free = [start] * workers
    ended: list[float] = []
    for task in tasks:
        end = heapq.heappop(free) + task
        heapq.heappush(free, end)
        ended.append(end)
    taken = start
    for end in sorted(ended):
        taken = max(taken, end) + client
    return taken


def training_seconds(costs: Costs, config: Scale, *, cores: int) -> float:
    """Predicted time of a training: files go out, then turns of compilations, each with a fit behind it."""
    tasks = sorted((one * costs.beside for one in costs.seconds), reverse=True) * config.rounds
    machines = max(1, cores // 16)
    sending = costs.file_bytes * machines / BYTES_A_SECOND
    turn = makespan(tasks, workers=cores, client=costs.client)
    return sending + config.turns * (turn + config.fit_seconds)


def tuning_seconds(costs: Costs, *, cores: int, states: int = 300, at_once: int = 4) -> float:
    """Predicted time of a search that tries so many states of each module, a few of one module at once at most."""
    lanes = [states / at_once * one * costs.beside for one in costs.seconds for _ in range(at_once)]
    busy = makespan(sorted(lanes, reverse=True), workers=cores, client=0.0)
    return max(busy, costs.client * states * len(costs.seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Scale, measure, arguments)


def measure(config: Scale, setup: Setup) -> Result:
    """Calibrate, compare, predict."""
    toolchain = setup.toolchain(config.llvm)
    modules = [one for one in setup.corpus(config.corpus).modules if one.project in config.projects]
    if not modules:
        raise UsageError(f"projects: expected modules of {', '.join(config.projects)} in the corpus, found none")
    modules.sort(key=lambda one: -one.bitcode_bytes)
    here = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain))
    processors = os.cpu_count() or 1
    policy = {INLINE_SIZE.name: str(policy_file("builtin:size"))}
    request = CompileRequest(use=PluginUse(policies=policy, logs=(INLINE_SIZE.name,), seed=1, temperature=0.3))
    turns = _in_turns(here, modules, request, config, processors=processors, report=setup.report)
    each = {
        count: [statistics.median(one) for one in zip(*times, strict=True)] for count, times in turns.by_threads.items()
    }
    alone = each[1]
    slower = {count: sum(times) / sum(alone) for count, times in each.items()}
    seconds, client = (statistics.median(one) for one in zip(*turns.learned, strict=True))
    added = max(0.0, (seconds - sum(alone[1::2])) / len(modules[1::2]))
    compared: list[tuple[Cell, ...]] = []
    errors: list[float] = []
    for workers, times in turns.clusters.items():
        # What the client does for each result takes a processor from the workers as soon as they have all of them.
        waits = client if workers >= processors else 0.0
        share = max(1.0, workers / processors)
        tasks = [one * slower[workers] + (added + waits) * share for one in alone[::2]]
        said, real_seconds = makespan(tasks, workers=workers, client=0.0), statistics.median(times)
        errors.append(said / real_seconds - 1)
        compared.append((workers, round(real_seconds, 2), round(said, 2), percent(errors[-1])))
    costs = Costs(
        seconds=tuple(one + added for one in alone),
        beside=slower[processors],
        client=client,
        file_bytes=sum(one.bitcode_bytes for one in modules),
    )
    return summarise(config, costs, compared, errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """What was timed, each list by turn, as the speed of a machine changes in minutes.

    Attributes:
        by_threads: seconds of each module, by how many threads compile at once.
        learned: seconds of a cluster of one worker with every second module, and of the client for each result: what
            Dask and this process add is learned from other modules than those that are compared.
        clusters: seconds of a cluster with the other modules, by workers.
    """

    by_threads: dict[int, list[tuple[float, ...]]]
    learned: list[tuple[float, float]]
    clusters: dict[int, list[float]]


def _in_turns(
    compiler: ClangCompiler,
    modules: Sequence[Module],
    request: CompileRequest,
    config: Scale,
    *,
    processors: int,
    report: Report,
) -> Turns:
    def timed(workers: int) -> tuple[float, ...]:
        def work(module: Module) -> float:
            begin = time.perf_counter()
            compiler.compile(module, request)
            return time.perf_counter() - begin

        return tuple(parallel(work, modules, workers=workers, report=say_nothing, label=""))

    timed(processors)
    turns = Turns(
        by_threads={count: [] for count in sorted({1, processors, *config.workers})},
        learned=[],
        clusters={workers: [] for workers in config.workers},
    )
    for number in range(TIMES):
        for count, times in turns.by_threads.items():
            times.append(timed(count))
        turns.learned.append(real(compiler, modules[1::2], request, workers=1))
        for workers, times in turns.clusters.items():
            times.append(real(compiler, modules[::2], request, workers=workers)[0])
        report(number + 1, TIMES, "real clusters")
    return turns


def real(
    here: ClangCompiler, modules: Sequence[Module], request: CompileRequest, *, workers: int
) -> tuple[float, float]:
    """Seconds of all modules on a real cluster, and the client's own processor seconds for a result.

    The scheduler is in this process, too; what it takes while nothing happens is not the client's.
    """
    with worker_processes(workers, compilers=1) as scheduler:
        there = open_cluster(here, ClusterOptions(scheduler=scheduler, insecure=True))

        def work(module: Module) -> Compilation:
            return there.compile(module, request)

        def compile_all() -> None:
            parallel(work, modules, workers=there.workers, report=say_nothing, label="")

        with contextlib.closing(there):
            compile_all()
            begin, spent = time.perf_counter(), time.process_time()
            time.sleep(IDLE_SECONDS)
            idle = (time.process_time() - spent) / (time.perf_counter() - begin)
            begin, spent = time.perf_counter(), time.process_time()
            compile_all()
            taken = time.perf_counter() - begin
            busy = time.process_time() - spent - idle * taken
            return taken, max(0.0, busy) / len(modules)


def summarise(config: Scale, costs: Costs, compared: Sequence[tuple[Cell, ...]], errors: Sequence[float]) -> Result:
    """Predictions, and where they stop to scale."""
    base = {
        "training": training_seconds(costs, config, cores=CORES[0]),
        "tuning": tuning_seconds(costs, cores=CORES[0]),
    }
    rows: list[tuple[Cell, ...]] = []
    curves: dict[str, list[float]] = {"training": [], "tuning": []}
    for cores in CORES:
        times = {
            "training": training_seconds(costs, config, cores=cores),
            "tuning": tuning_seconds(costs, cores=cores),
        }
        for name, seconds in times.items():
            curves[name].append(base[name] * CORES[0] / (seconds * cores))
        rows.append(
            (
                cores,
                round(times["training"] / 60, 2),
                f"{curves['training'][-1]:.0%}",
                round(times["tuning"] / 60, 2),
                f"{curves['tuning'][-1]:.0%}",
            )
        )
    stops = {
        name: max(cores for cores, one in zip(CORES, curve, strict=True) if one >= HALF)
        for name, curve in curves.items()
    }
    worst = max(abs(one) for one in errors)
    return Result(
        benchmark="scale",
        question="How long do training and tuning take on larger clusters, and where does more of them not help?",
        answer=f"predicted times of real clusters of {', '.join(str(one) for one in config.workers)} workers here are "
        f"wrong by at most {worst:.1%}; half of the processors' time is used up to {stops['training']} cores in "
        f"training and {stops['tuning']} in tuning",
        bar=f"wrong by at most {MOST_ERROR:.0%}",
        passed=worst <= MOST_ERROR,
        seed=1,
        tables=(
            Table(
                title="Against real clusters",
                note=f"Every other module, on {os.cpu_count()} processors, after one pass in which the files travel; "
                f"the median of {TIMES} times. Predicted from compilations by as many threads, and from what one "
                "worker of a cluster adds to each of the other modules, and takes of its client's processor, which "
                "workers on all processors lack.",
                columns=("workers", "seconds", "predicted", "wrong by"),
                rows=tuple(compared),
            ),
            Table(
                title="Predicted",
                note=f"Training: {config.turns} turns, {len(costs.seconds)} modules compiled {config.rounds} times in "
                f"each, {config.fit_seconds:g} s of fitting behind each, files sent once to each machine of 16 "
                "cores by a network of a gigabit a second. Tuning: 300 states of each module, at most four at once. "
                f"The client takes {1000 * costs.client:.1f} ms of its processor for each result, one after another. "
                f"Efficiency: work done for each core's time, beside {CORES[0]} cores.",
                columns=("cores", "training (minutes)", "efficiency", "tuning (minutes)", "efficiency"),
                rows=tuple(rows),
            ),
        ),
    )


if __name__ == "__main__":
    raise SystemExit(main())
