"""What eviction and priority cost in the plugin: processor time of compilations at ``-O2`` over that of plain ones."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from results import Cell, Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions
from timing import Once, Ratios, Timing, compare_times, compile_timed, time_modules

from mlgokit.compiler.compile import HEURISTIC, PluginUse
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.module import Module
from mlgokit.policy.store import load_policy
from mlgokit.problems import REGALLOC_EVICTION, REGALLOC_PRIORITY
from mlgokit.progress import Report

BAR = 1.15
PROBLEMS = (REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name)


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


def measure(config: OverheadRegalloc, report: Report) -> Result:
    """Time every build of every drawn module in turns.

    Raises:
        CorpusError: no module compiles in all builds.
    """
    rng = np.random.default_rng(config.seed)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    found = tool_versions(toolchain)
    corpus = load_corpus(config.corpus)
    drawn = draw_modules(corpus.modules, config.modules, rng)
    plugin = build_plugin(toolchain)
    uses: dict[str, PluginUse | None] = {"plain": None}
    for name in PROBLEMS:
        uses[f"{name} echo"] = PluginUse(plugin=plugin, policies={name: HEURISTIC}, logs=(name,))
    for path in config.policies:
        uses[path.name] = PluginUse(plugin=plugin, policies={load_policy(path).problem: str(path)})

    def compile_build(module: Module, build: str) -> Once | str:
        options = tuple("-O2" if option == "-Oz" else option for option in module.command_line)
        return compile_timed(toolchain, module, options, use=uses[build], timeout_seconds=config.timeout_seconds)

    timings, failures = time_modules(
        compile_build, drawn, tuple(uses), repetitions=config.repetitions, corpus=config.corpus, report=report
    )
    return summarise(
        timings, failures, config=config, versions=found, inputs=corpus_inputs(corpus, list(config.policies))
    )


def summarise(
    timings: Sequence[dict[str, Timing]],
    failures: Sequence[tuple[Cell, ...]],
    *,
    config: OverheadRegalloc,
    versions: dict[str, str],
    inputs: dict[str, str],
) -> Result:
    """The table, and whether the medians over modules reach the bar."""
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
            rows.append(
                (
                    "user" if kind == "user" else "user + system", f"{build} / plain", now.modules, now.low, now.median,
                    now.high, *now.interval, now.total, now.seconds, f"{text[build] / text['plain'] - 1:+.2%}",
                )
            )  # fmt: skip
    tables = [
        Table(
            title="Ratios of processor time",
            columns=(
                "time", "builds", "modules", "lower quartile", "median", "upper quartile", "median from",
                "median to (95 %)", "ratio of totals", "plain total (s)", "text",
            ),
            rows=tuple(rows),
            note=(
                "The echo asks LLVM's ML advisor for all features, asks the heuristic, does what the heuristic says, "
                "and writes the log: the same code comes out, so its ratio is the cost alone. A policy makes "
                "other decisions, and so has more or fewer to make, and other code after them. Every build is a whole "
                "process: start, loading of the plugin and of the policy included."
            ),
        )
    ]  # fmt: skip
    if failures:
        tables.append(Table(title="Modules left out", columns=("module", "reason"), rows=tuple(failures)))
    medians = ", ".join(f"{build} {found.median:.3f}" for build, found in ratios.items())
    return Result(
        benchmark="overhead_regalloc",
        question=(
            "How much more user time does clang -O2 take when the plugin decides evictions and priorities? Each module "
            f"is compiled {config.repetitions} times per build, the builds in turns; the least time counts."
        ),
        answer=f"Medians over {len(timings)} modules of user time over plain -O2: {medians}",
        bar=f"every median <= {BAR:.2f}",
        passed=all(found.median <= BAR for found in ratios.values()),
        seed=config.seed,
        versions=versions,
        inputs=inputs,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())
