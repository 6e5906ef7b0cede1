"""What a cluster on this machine costs: compilations a second of plain clang, of threads, and of Dask's workers."""

import contextlib
import dataclasses
import math
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed
from harness import Setup, run_benchmark
from results import Cell, Result, Table, percent

from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.compiler import open_cluster
from mlgokit.cluster.connection import COMPILERS, threads_for, turn_off_dashboard
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.compile import ClangCompiler, command, compiler_environment
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler, CompileRequest, PluginUse
from mlgokit.errors import UsageError
from mlgokit.module import Module
from mlgokit.policy.pretrained import policy_file
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import say_nothing

TEMPERATURE = 0.3
LEAST_OF_PLAIN, MOST_OVERHEAD, MOST_IDLE = 0.93, 0.05, 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCost:
    """Compile modules plainly, and with a policy that draws, and its log: by threads, and by workers of Dask.

    Dask twice: its scheduler and worker in the client's process, as ``--scheduler local:2`` has them, and a worker
    process that is reached by TCP, as ``mlgokit worker`` is.
    """

    corpus: Path = Path("quickstart/corpus")
    """Where the modules are."""
    projects: tuple[str, ...] = ("snappy", "double-conversion", "leveldb", "re2", "zstd")
    """Whose modules."""
    rounds: int = 12
    """How often each way compiles all modules, one after another, in turns; the speed of a machine changes from one
    round to the next by more than the ways differ, so few say little."""
    workers: int = 2
    """Compilers that run at once, in each way."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """All modules, compiled once.

    Attributes:
        seconds: in which a compiler ran, summed.
        succeeded: how many compiled.
        text_bytes: of their code; 0 if it was not measured.
    """

    seconds: float
    succeeded: int
    text_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class Way:
    """One way to compile all modules.

    Attributes:
        name: of it.
        compile_all: compiles all modules.
        seconds: of each round.
        idle: part of the workers' time in which they had no compiler, of each round.
    """

    name: str
    compile_all: Callable[[], Done]
    seconds: list[float] = field(default_factory=list[float])
    idle: list[float] = field(default_factory=list[float])


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ClusterCost, measure, arguments)


def measure(config: ClusterCost, setup: Setup) -> Result:
    """Open each way, compile in turns, and sum up."""
    if config.rounds < 1:
        raise UsageError(f"rounds: expected at least one, found {config.rounds}; ten say more")
    toolchain = setup.toolchain(config.llvm)
    known = setup.corpus(config.corpus).modules
    # Large ones first, as no worker is idle at the end then.
    modules = sorted((one for one in known if one.project in config.projects), key=lambda one: -one.bitcode_bytes)
    here = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), workers=config.workers)
    ends = contextlib.ExitStack()

    def joined(scheduler: str) -> Compiler:
        compiler = open_cluster(here, ClusterOptions(scheduler=scheduler, insecure=True))
        ends.callback(compiler.close)
        return compiler

    policy = {INLINE_SIZE.name: str(policy_file("builtin:size"))}
    logged = PluginUse(policies=policy, logs=(INLINE_SIZE.name,), seed=1)
    decides = CompileRequest(use=logged)
    draws = CompileRequest(use=dataclasses.replace(logged, temperature=TEMPERATURE))
    doubts = CompileRequest(use=dataclasses.replace(logged, temperature=1.0))

    def asked(compiler: Compiler, request: CompileRequest) -> Callable[[], Done]:
        def work(module: Module) -> Compilation:
            return compiler.compile(module, request)

        def compile_all() -> Done:
            done = parallel(work, modules, workers=compiler.workers, report=say_nothing, label="")
            return Done(
                seconds=sum(one.wall_seconds for one in done),
                succeeded=sum(one.ok for one in done),
                text_bytes=sum(one.measured.totals.text for one in done if one.ok),
            )

        return compile_all

    with ends:
        processes = ends.enter_context(worker_processes(1, compilers=config.workers))
        ways = (
            Way(name="plain clang", compile_all=lambda: plain(here, modules, workers=config.workers)),
            Way(name="threads, a policy that draws a little, its log", compile_all=asked(here, draws)),
            Way(name="Dask, the same", compile_all=asked(joined(f"local:{config.workers}"), draws)),
            Way(
                name="Dask, a worker process over TCP, the same",
                compile_all=asked(joined(processes), draws),
            ),
            Way(name="threads, a policy that does not draw, its log", compile_all=asked(here, decides)),
            Way(name="threads, a policy that draws much, its log", compile_all=asked(here, doubts)),
        )
        # The files travel, and every way finds its libraries in memory.
        first = {way.name: way.compile_all() for way in ways}
        plain_text = asked(here, CompileRequest())().text_bytes
        for index in range(config.rounds):
            # Each way is the first in turn, as a machine is faster or slower from one minute to the next.
            for way in (*ways[index % len(ways) :], *ways[: index % len(ways)]):
                begin = time.perf_counter()
                busy = way.compile_all().seconds
                way.seconds.append(time.perf_counter() - begin)
                way.idle.append(1 - busy / (config.workers * way.seconds[-1]))
            setup.report(index + 1, config.rounds, "rounds")
    return summarise(ways, modules=len(modules), first=first, plain_text=plain_text, config=config)


def plain(compiler: ClangCompiler, modules: Sequence[Module], *, workers: int) -> Done:
    """Nothing but a clang for each module, as a build system runs it."""
    environment = compiler_environment()

    def work(module: Module) -> tuple[float, bool]:
        begin = time.perf_counter()
        argv = command(compiler.toolchain, module, Path("/dev/null"), None)
        done = subprocess.run(argv, env=environment, capture_output=True, timeout=120, check=False)
        return time.perf_counter() - begin, done.returncode == 0

    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(work, modules))
    return Done(seconds=sum(seconds for seconds, _ in done), succeeded=sum(fine for _, fine in done))


def ratio(one: Way, other: Way) -> float:
    """Geometric mean over the rounds of the time of one by that of the other."""
    return math.exp(
        math.fsum(math.log(a / b) for a, b in zip(one.seconds, other.seconds, strict=True)) / len(one.seconds)
    )


def summarise(
    ways: Sequence[Way], *, modules: int, first: dict[str, Done], plain_text: int, config: ClusterCost
) -> Result:
    """The table and the bars."""
    bare, threads, dask, tcp, *_ = ways
    of_plain, overhead = ratio(bare, threads), ratio(dask, threads) - 1
    idle = sorted(threads.idle)[len(threads.idle) // 2]
    rows: list[tuple[Cell, ...]] = [
        (
            way.name,
            first[way.name].succeeded,
            percent(text / plain_text - 1) if (text := first[way.name].text_bytes) else None,
            round(modules * len(way.seconds) / math.fsum(way.seconds), 2),
            round(ratio(bare, way), 3),
            f"{sorted(way.idle)[len(way.idle) // 2]:.1%}",
        )
        for way in ways
    ]
    passed = of_plain >= LEAST_OF_PLAIN and overhead <= MOST_OVERHEAD and idle <= MOST_IDLE
    return Result(
        benchmark="cluster",
        question="What do collection by threads, and a cluster of Dask on one machine, cost beside plain clang?",
        answer=f"threads make {of_plain:.3f} of plain clang's compilations a second, with a policy that draws and its "
        f"log (bar {LEAST_OF_PLAIN}); Dask takes {percent(overhead)} longer (bar {percent(MOST_OVERHEAD)}), a "
        f"worker process over TCP {percent(ratio(tcp, threads) - 1)}; {idle:.1%} of two threads' time has no compiler "
        f"(bar {MOST_IDLE:.0%})",
        passed=passed,
        tables=(
            Table(
                title="Ways to compile",
                note=f"{modules} modules of {', '.join(config.projects)}, {config.workers} at once, {config.rounds} "
                "rounds in turns after one that is not counted. Beside plain clang: geometric mean over rounds. "
                "Code: beside plain clang's, as a policy that draws compiles other code: a little at temperature "
                f"{TEMPERATURE}, much at 1. Idle: median over rounds of the part of the workers' time in which they "
                "have no compiler.",
                columns=("way", "succeeded", "code", "compilations a second", "beside plain clang", "idle"),
                rows=tuple(rows),
            ),
        ),
        seed=1,
    )


@contextlib.contextmanager
def worker_processes(count: int, *, compilers: int) -> Generator[str]:
    """The address of a scheduler in this process with ``count`` workers, which run so many compilers each.

    A local cluster of few compilers has no such processes (:mod:`mlgokit.cluster.connection`).
    """
    turn_off_dashboard()
    made: Any = distributed.LocalCluster(
        n_workers=count,
        threads_per_worker=threads_for(compilers),
        resources={COMPILERS: compilers},
        processes=True,
        dashboard_address="127.0.0.1:0",
    )
    with made as cluster:
        yield cluster.scheduler_address


if __name__ == "__main__":
    raise SystemExit(main())
