"""What gate, limits, room and lock cost together, as a part of a compilation, and apart from them the sandbox."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from harness import Setup, run_benchmark
from results import Cell, Result, Table
from timing import RATIO_COLUMNS, compare_times, spent

from mlgokit.compiler import process
from mlgokit.compiler.compile import command
from mlgokit.compiler.limits import USERS_LIMITS, ModuleLimits
from mlgokit.compiler.options.safety import check_command_line
from mlgokit.compiler.sandbox import Sandbox, inside_environment, open_sandbox, try_sandbox
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.disk import Room
from mlgokit.errors import CorpusError
from mlgokit.locks import locked
from mlgokit.module import Module

BAR = 1.02
BUILDS = ("bare", "guarded", "in the sandbox")
_PIECE_CALLS = 300
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Compile small and median modules bare, with every guard, and in the sandbox, in turns; compare the times."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    modules: int = 16
    """Modules, half of them the smallest and half around the median of the corpus, by bytes of bitcode."""
    repetitions: int = 15
    """How often each build of each module is timed; the least time counts."""
    no_sandbox: bool = False
    """Leave the sandbox out: on a machine with more work than cores the kernel takes seconds to end a namespace."""
    seed: int = 1
    """Of the intervals."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/guards.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Guards, measure, arguments)


def small_and_median(modules: Sequence[Module], count: int) -> list[Module]:
    """Half the smallest modules, half those around the median, by bytes of bitcode.

    Example:
        >>> from types import SimpleNamespace as N
        >>> [one.bitcode_bytes for one in small_and_median([N(bitcode_bytes=size) for size in range(9)], 4)]
        [0, 1, 3, 4]
    """
    ordered = sorted(modules, key=lambda module: module.bitcode_bytes)
    small = count // 2
    middle = max(small, len(ordered) // 2 - (count - small) // 2)
    return [*ordered[:small], *ordered[middle : middle + count - small]]


def measure(config: Guards, setup: Setup) -> Result:
    """Time each build of each module in turns, and each guard alone.

    Raises:
        CorpusError: no module compiles.
    """
    toolchain = setup.toolchain(config.llvm)
    corpus = setup.corpus(config.corpus)
    chosen = small_and_median(corpus.modules, config.modules)
    has_none = config.no_sandbox or isinstance(try_sandbox(toolchain), str)
    box = None if has_none else open_sandbox(toolchain, (config.corpus,))
    builds = BUILDS[:2] if box is None else BUILDS
    with tempfile.TemporaryDirectory(prefix="mlgokit-guards-") as scratch:
        folder = Path(scratch)
        wall: dict[str, list[list[float]]] = {build: [] for build in builds}
        processor: dict[str, list[list[float]]] = {build: [] for build in builds}
        for index, module in enumerate(chosen):
            setup.report(index, len(chosen), "time")
            work = works(toolchain, module, config.corpus, folder, box)
            found: dict[str, list[tuple[float, float]]] = {build: [] for build in builds}
            for repetition in range(config.repetitions):
                for build in builds if repetition % 2 == 0 else builds[::-1]:
                    found[build].append(timed(work[build]))
            for build in builds:
                wall[build].append([one[0] for one in found[build]])
                processor[build].append([one[1] for one in found[build]])
        pieces = piece_times(toolchain, chosen[len(chosen) // 2], config.corpus, folder)
        pieces[-1] = (pieces[-1][0], pieces[-1][1] / len(corpus.modules))
    setup.report(len(chosen), len(chosen), "time")
    return summarise(config, wall, processor, pieces)


def works(
    toolchain: Toolchain, module: Module, corpus: Path, folder: Path, box: Sandbox | None
) -> Mapping[str, Callable[[], None]]:
    """The builds of one module."""
    output = folder / "module.o"
    argv = command(toolchain, module, output, None)
    room, limits = Room(folder=folder, most_bytes=1 << 40), ModuleLimits()
    limits.note(module.name, memory_bytes=100 << 20, object_bytes=1 << 20, seconds=0.1)
    environment = dict(os.environ)

    def bare() -> None:
        check(process.run(argv, timeout_seconds=60, env=environment, limits=USERS_LIMITS))

    def guard() -> None:
        refused = check_command_line(module.command_line, folder=corpus)
        if refused is not None:
            raise CorpusError(f"{module.name}: {refused}")
        room.check()

    def guarded() -> None:
        guard()
        found = limits.of(module.name, only_object=True)
        check(process.run(argv, timeout_seconds=60, env=environment, limits=found))

    def boxed() -> None:
        guard()
        found = limits.of(module.name, only_object=True)
        inside = () if box is None else box(found, program=toolchain.clang, writable=folder, readable=(module.bitcode,))
        variables = inside_environment(environment)
        check(process.run(argv, timeout_seconds=60, env=variables, limits=found, inside=inside))

    return dict(zip(BUILDS, (bare, guarded, boxed), strict=True))


def check(done: process.Completed) -> None:
    """Refuse to time a failure.

    Raises:
        CorpusError: the compiler failed.
    """
    if done.returncode != 0:
        raise CorpusError(f"guards: expected modules that compile, found: {done.stderr[:300]}; give another corpus")


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Elapsed seconds, and processor seconds of this process and of its children."""
    children, own = spent()
    begin = time.monotonic()
    work()
    end = time.monotonic()
    after = spent()
    return end - begin, after[0] - children + after[1] - own


def piece_times(toolchain: Toolchain, module: Module, corpus: Path, folder: Path) -> list[tuple[str, float]]:
    """Microseconds of each guard alone, the median of many calls."""
    limits, room = ModuleLimits(), Room(folder=folder, most_bytes=1 << 40)
    limits.note(module.name, memory_bytes=100 << 20, object_bytes=1 << 20, seconds=0.1)

    def lock() -> None:
        with locked(folder):
            pass

    child = process.start(["sleep", "600"], stderr=subprocess.DEVNULL)

    def limit() -> None:
        process.limit_child(child.pid, limits.of(module.name, only_object=True), str(toolchain.clang))

    pieces: dict[str, Callable[[], object]] = {
        "gate: one command line, parsed and checked": lambda: check_command_line(module.command_line, folder=corpus),
        "room: both disks asked": room.check,
        "limits: looked up and set": limit,
        "lock: taken and given back, shared by the modules of the corpus": lock,
    }
    found: list[tuple[str, float]] = []
    try:
        for name, piece in pieces.items():
            times: list[float] = []
            for _ in range(_PIECE_CALLS):
                begin = time.perf_counter()
                piece()
                times.append(time.perf_counter() - begin)
            found.append((name, 1e6 * statistics.median(times)))
    finally:
        process.end(child)
    return found


def summarise(
    config: Guards,
    wall: Mapping[str, Sequence[Sequence[float]]],
    processor: Mapping[str, Sequence[Sequence[float]]],
    pieces: Sequence[tuple[str, float]],
) -> Result:
    """The tables, and whether the bar is reached."""
    rng = np.random.default_rng(config.seed)
    rows: list[tuple[Cell, ...]] = []
    small = config.modules // 2
    medians: dict[str, float] = {}
    for title, times in (("processor", processor), ("elapsed", wall)):
        arrays: dict[str, Floats] = {build: np.array(values) for build, values in times.items()}
        groups = {"all": slice(None), "smallest": slice(0, small), "median": slice(small, None)}
        for build in list(arrays)[1:]:
            for group, part in groups.items():
                found = compare_times(arrays[build][part], arrays["bare"][part], rng)
                medians.setdefault(f"{title} {build}", found.median)
                rows.append((title, f"{build} / bare", group, found.modules, *found.cells()))
    bare = np.array(processor["bare"]).min(axis=1)
    total = sum(microseconds for _, microseconds in pieces)
    shares = [(f"{name}", microseconds, 1e-6 * microseconds / float(np.median(bare))) for name, microseconds in pieces]
    shares.append(("all together", total, 1e-6 * total / float(np.median(bare))))
    shares.append(("all together, of the smallest module", total, 1e-6 * total / float(bare.min())))
    guarded = medians["processor guarded"]
    passed = guarded <= BAR and shares[-1][2] <= BAR - 1
    boxed = medians.get("elapsed in the sandbox")
    apart = (
        "; the sandbox was not timed" if boxed is None else f"; the sandbox, apart: {boxed - 1:+.1%} of elapsed time"
    )
    return Result(
        benchmark="guards",
        question=(
            "How much of a compilation do gate, limits, room and lock take together, and how much the sandbox? Each "
            f"module is compiled {config.repetitions} times per build, the builds in turns, one at a time; the least "
            "time counts. Processor time is that of the compiler and of mlgokit."
        ),
        answer=(
            f"Median over {len(bare)} modules of processor time with all guards over bare: {guarded:.4f}; added up one "
            f"by one they take {total:.0f} microseconds, {shares[-2][2]:.2%} of the median compilation and "
            f"{shares[-1][2]:.2%} of the shortest{apart}"
        ),
        bar=(
            f"median of guarded / bare <= {BAR:.2f}, and the guards one by one <= {BAR - 1:.0%} of the shortest "
            "compilation"
        ),
        passed=passed,
        seed=config.seed,
        tables=(
            Table(title="Ratios", columns=("time", "builds", "modules", "number", *RATIO_COLUMNS), rows=tuple(rows)),
            Table(
                title="Each guard alone",
                columns=("guard", "microseconds", "part of a compilation"),
                rows=tuple(shares),
                note=(
                    "The gate is asked once for a module in a run, room and limits once in a compilation. A lock is "
                    "taken once in a run, and its time is divided by the modules of the corpus, each compiled once."
                ),
            ),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
