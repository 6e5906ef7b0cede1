"""Processor time of compilations: builds of a module in turns, and what one build takes over another."""

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from results import Cell, Table, quartiles

from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import CorpusError
from mlgokit.module import Module
from mlgokit.progress import Report

DRAWS = 2000
Floats = npt.NDArray[np.float64]
Once = tuple[float, float, int]
"""Seconds in user mode, seconds in user and system mode, and bytes of text, of one compilation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One build of one module, all repetitions.

    Attributes:
        user: [R] seconds in user mode.
        processor: [R] seconds in user and system mode together.
        text_bytes: llvm-size's text of the object.
    """

    user: Floats
    processor: Floats
    text_bytes: int


def spent() -> tuple[float, float]:
    """Processor time so far, in seconds: of children that were waited for, and of this process.

    System time is included: the kernel may count user time by clock ticks, but the sum exactly.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime, time.process_time()


def time_modules(
    toolchain: Toolchain,
    modules: Sequence[Module],
    uses: Mapping[str, PluginUse | None],
    *,
    options: Callable[[Module], tuple[str, ...]],
    repetitions: int,
    timeout_seconds: float,
    corpus: Path,
    report: Report,
) -> tuple[list[dict[str, Timing]], list[tuple[Cell, ...]]]:
    """Time every build of every module in turns.

    Args:
        toolchain: whose clang.
        modules: what to compile.
        uses: of each build how the plugin is used, or ``None``.
        options: the options of a module's command line.
        repetitions: how often each build of a module is compiled.
        timeout_seconds: deadline of one compilation.
        corpus: whose modules they are, for the error.
        report: told after every module.

    Returns:
        The timings by build of each module that compiles in all builds, and name and reason of the others.

    Raises:
        CorpusError: no module compiles in all builds.
    """
    compiler = ClangCompiler(toolchain=toolchain, timeout_seconds=timeout_seconds)
    timings: list[dict[str, Timing]] = []
    failures: list[tuple[Cell, ...]] = []
    for index, module in enumerate(modules):
        report(index, len(modules), "time")
        words = options(module)

        def compile_once(build: str, module: Module = module, words: tuple[str, ...] = words) -> Once | str:
            before = spent()[0]
            done = compiler.compile(replace(module, command_line=words), CompileRequest(use=uses[build]))
            if done.status is not CompileStatus.OK or done.sizes is None:
                return f"{done.status.value}: {done.reason}"
            return done.user_seconds, spent()[0] - before, done.sizes.llvm_size_text

        timed = time_in_turns(compile_once, repetitions, tuple(uses))
        if isinstance(timed, str):
            failures.append((module.name, timed))
        else:
            timings.append(timed)
    report(len(modules), len(modules), "time")
    if not timings:
        raise CorpusError(
            f"{corpus}: expected modules that compile in all builds, found none of {len(modules)} "
            f"({failures[0][1]}); check the compiler with `mlgokit doctor`"
        )
    return timings, failures


def time_in_turns(
    compile_once: Callable[[str], Once | str], repetitions: int, builds: Sequence[str]
) -> dict[str, Timing] | str:
    """Compile each build once per repetition, every other repetition in reverse, so that a drift favours none.

    Args:
        compile_once: compiles one build, or says why it failed.
        repetitions: how often.
        builds: their names.

    Returns:
        The timings by build, or why one of the compilations failed.
    """
    user: dict[str, list[float]] = {build: [] for build in builds}
    processor: dict[str, list[float]] = {build: [] for build in builds}
    text: dict[str, int] = {}
    for repetition in range(repetitions):
        for build in builds if repetition % 2 == 0 else tuple(reversed(builds)):
            once = compile_once(build)
            if isinstance(once, str):
                return f"{build}: {once}"
            user[build].append(once[0])
            processor[build].append(once[1])
            text[build] = once[2]
    return {
        build: Timing(user=np.array(user[build]), processor=np.array(processor[build]), text_bytes=text[build])
        for build in builds
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """How one build compares with another over modules; every time is the least of its repetitions.

    Attributes:
        modules: number of modules.
        low: lower quartile of the modules' ratios.
        median: their median.
        high: upper quartile.
        interval: 95 % bootstrap interval of the median, over modules.
        total: ratio of the sums.
        seconds: sum of the other build's times, the denominator.
    """

    modules: int
    low: float
    median: float
    high: float
    interval: tuple[float, float]
    total: float
    seconds: float

    def cells(self) -> tuple[Cell, ...]:
        """Of a table, in the order of :data:`RATIO_COLUMNS`."""
        return self.low, self.median, self.high, *self.interval, self.total, self.seconds


RATIO_COLUMNS = (
    "lower quartile", "median", "upper quartile", "median from", "median to (95 %)", "ratio of totals",
    "plain total (s)",
)  # fmt: skip


def left_out(failures: Sequence[tuple[Cell, ...]]) -> tuple[Table, ...]:
    """The table of modules that were not timed, if there are any."""
    return (Table(title="Modules left out", columns=("module", "reason"), rows=tuple(failures)),) if failures else ()


def compare_times(after: Floats, before: Floats, rng: np.random.Generator) -> Ratios:
    """Ratios of the least of each row of ``after`` [M, R] to that of ``before`` [M, R].

    Example:
        >>> found = compare_times(np.array([[3.0, 2.0], [4.0, 9.0]]), np.array([[2.0, 1.0], [4.0, 4.0]]),
        ...                       np.random.default_rng(1))
        >>> found.median, found.total, found.seconds
        (1.5, 1.2, 5.0)
    """
    numerator, denominator = after.min(axis=1), before.min(axis=1)
    # A compilation shorter than the kernel's clock tick may count as no time at all.
    kept = denominator > 0
    ratios = numerator[kept] / denominator[kept]
    low, median, high = quartiles(ratios)
    medians = np.median(ratios[rng.integers(len(ratios), size=(DRAWS, len(ratios)))], axis=1)
    bounds = np.quantile(medians, [0.025, 0.975]).tolist()
    return Ratios(
        modules=len(ratios),
        low=low,
        median=median,
        high=high,
        interval=(bounds[0], bounds[1]),
        total=float(numerator.sum() / denominator.sum()),
        seconds=float(denominator.sum()),
    )
