"""What eviction and priority cost in the plugin: processor time of compilations at ``-O2`` over that of plain ones."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, draw_modules, run_benchmark
from results import Cell, Result, Table
from timing import RATIO_COLUMNS, Ratios, Timing, compare_times, left_out, time_modules

from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC, PluginUse
from mlgokit.errors import UsageError
from mlgokit.policy.store import load_policy
from mlgokit.problems import REGALLOC_EVICTION, REGALLOC_PRIORITY

BARS = {REGALLOC_EVICTION.name: 1.10, REGALLOC_PRIORITY.name: 1.05}
"""Most that the median over modules may be, by what is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadRegalloc:
    """Compile the same modules plainly and under eviction and priority advisors, in turns; compare the user time."""

    policies: tuple[Path, ...] = ()
    """Policy files, timed beside the echo of the heuristic."""
    corpus: Path = Path("quickstart/corpus")
    """The corpus; its -Oz becomes -O2."""
    modules: int = 120
    """Modules drawn from all projects; 0 for all."""
    repetitions: int = 5
    """How often each build of each module is timed; the least time counts."""
    seed: int = 1
    """Of the draw and of the interval."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 120.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/overhead_regalloc.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(OverheadRegalloc, measure, arguments)


def measure(config: OverheadRegalloc, setup: Setup) -> Result:
    """Time every build of every drawn module in turns.

    Raises:
        CorpusError: no module compiles in all builds.
        UsageError: a policy decides something else.
    """
    rng = np.random.default_rng(config.seed)
    toolchain = setup.toolchain(config.llvm)
    corpus = setup.corpus(config.corpus)
    setup.policies(config.policies)
    drawn = draw_modules(corpus.modules, config.modules, rng)
    plugin = build_plugin(toolchain)
    uses: dict[str, PluginUse | None] = {"plain": None}
    decides: dict[str, str] = {}
    for name in BARS:
        decides[build := f"{name} echo"] = name
        uses[build] = PluginUse(plugin=plugin, policies={name: HEURISTIC}, logs=(name,))
    for path in config.policies:
        decides[path.name] = problem = load_policy(path).problem
        if problem not in BARS:
            raise UsageError(
                f"{path}: expected a policy that decides one of {', '.join(BARS)}, found {problem}; leave it out"
            )
        uses[path.name] = PluginUse(plugin=plugin, policies={problem: str(path)})
    timings, failures = time_modules(
        toolchain,
        drawn,
        uses,
        options=lambda module: tuple("-O2" if option == "-Oz" else option for option in module.command_line),
        repetitions=config.repetitions,
        timeout_seconds=config.timeout_seconds,
        corpus=config.corpus,
        report=setup.report,
    )
    return summarise(timings, failures, config=config, decides=decides)


def summarise(
    timings: Sequence[dict[str, Timing]],
    failures: Sequence[tuple[Cell, ...]],
    *,
    config: OverheadRegalloc,
    decides: Mapping[str, str],
) -> Result:
    """The table, and whether the medians over modules reach the bars of what each build decides."""
    rng = np.random.default_rng(config.seed)
    builds = tuple(timings[0])
    ratios: dict[str, Ratios] = {}
    rows: list[tuple[Cell, ...]] = []
    for kind in ("user", "processor"):
        for build in builds[1:]:
            times = {name: np.array([getattr(timed[name], kind) for timed in timings]) for name in ("plain", build)}
            now = compare_times(times[build], times["plain"], rng)
            ratios.setdefault(build, now)
            text = {name: sum(timed[name].text_bytes for timed in timings) for name in times}
            title = "user" if kind == "user" else "user + system"
            change = f"{text[build] / text['plain'] - 1:+.2%}"
            rows.append((title, f"{build} / plain", now.modules, *now.cells(), change))
    table = Table(
        title="Ratios of processor time",
        columns=("time", "builds", "modules", *RATIO_COLUMNS, "text"),
        rows=tuple(rows),
        note=(
            "The echo asks LLVM's ML advisor for all features, asks the heuristic, does what the heuristic says, "
            "and writes the log: the same code comes out, so its ratio is the cost alone. A policy makes "
            "other decisions, and so has more or fewer to make, and other code after them. Every build is a whole "
            "process: start, loading of the plugin and of the policy included."
        ),
    )
    medians = ", ".join(f"{build} {found.median:.3f}" for build, found in ratios.items())
    return Result(
        benchmark="overhead_regalloc",
        question=(
            "How much more user time does clang -O2 take when the plugin decides evictions and priorities? Each module "
            f"is compiled {config.repetitions} times per build, the builds in turns; the least time counts."
        ),
        answer=f"Medians over {len(timings)} modules of user time over plain -O2: {medians}",
        bar="; ".join(f"{problem}: every median <= {bar:.2f}" for problem, bar in BARS.items()),
        passed=all(found.median <= BARS[decides[build]] for build, found in ratios.items()),
        seed=config.seed,
        tables=(table, *left_out(failures)),
    )


if __name__ == "__main__":
    sys.exit(main())
