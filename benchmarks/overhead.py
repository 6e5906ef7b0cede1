"""What the plugin costs: processor time of compilations with it over that of plain ``-Oz``."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, draw_modules, run_benchmark
from results import Cell, Result, Table
from timing import RATIO_COLUMNS, Ratios, Timing, compare_times, left_out, time_modules

from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC, PluginUse
from mlgokit.errors import CorpusError
from mlgokit.export.plugin import export_plugin
from mlgokit.problems import INLINE_SIZE

BAR = 1.10
BUILDS = ("plain", "policy", "echo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Compile the same modules plainly, under a policy, and echoing the heuristic, in turns; compare the user time."""

    policy: Path
    """The policy file; it is exported into a plugin of its own, as a user would load it."""
    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    modules: int = 120
    """Modules drawn from all projects; 0 for all."""
    repetitions: int = 5
    """How often each build of each module is timed; the least time counts."""
    large_seconds: float = 0.1
    """Modules that take at least this long are also reported alone: process start is little of them."""
    seed: int = 1
    """Of the draw and of the interval."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/overhead.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Overhead, measure, arguments)


def measure(config: Overhead, setup: Setup) -> Result:
    """Time every build of every drawn module in turns.

    Raises:
        CorpusError: no module compiles in all builds.
    """
    rng = np.random.default_rng(config.seed)
    toolchain = setup.toolchain(config.llvm)
    corpus = setup.corpus(config.corpus)
    setup.policies([config.policy])
    drawn = draw_modules(corpus.modules, config.modules, rng)
    generic = build_plugin(toolchain)
    with tempfile.TemporaryDirectory(prefix="mlgokit-overhead-") as scratch:
        exported = Path(scratch) / "policy.so"
        export_plugin(toolchain, [config.policy], exported)
        uses = {
            "plain": None,
            "policy": PluginUse(plugin=exported),
            "echo": PluginUse(plugin=generic, policies={INLINE_SIZE.name: HEURISTIC}),
        }
        timings, failures = time_modules(
            toolchain,
            drawn,
            uses,
            options=lambda module: module.command_line,
            repetitions=config.repetitions,
            timeout_seconds=config.timeout_seconds,
            corpus=config.corpus,
            report=setup.report,
        )
    return summarise(timings, failures, config=config)


def summarise(
    timings: Sequence[Mapping[str, Timing]], failures: Sequence[tuple[Cell, ...]], *, config: Overhead
) -> Result:
    """The tables, and whether the median over modules reaches the bar."""
    rng = np.random.default_rng(config.seed)
    user = {build: np.array([timed[build].user for timed in timings]) for build in BUILDS}
    processor = {build: np.array([timed[build].processor for timed in timings]) for build in BUILDS}
    text = {build: sum(timed[build].text_bytes for timed in timings) for build in BUILDS}
    large = user["plain"].min(axis=1) >= config.large_seconds
    groups = [("all", np.ones(len(timings), bool)), (f"at least {config.large_seconds:g} s", large)]
    rows: list[tuple[Cell, ...]] = []
    bar: Ratios | None = None
    for title, seconds in (("user", user), ("user + system", processor)):
        for group, chosen in groups:
            for build in BUILDS[1:]:
                if not chosen.any():
                    continue
                found = compare_times(seconds[build][chosen], seconds["plain"][chosen], rng)
                bar = bar or found
                rows.append((title, f"{build} / plain", group, found.modules, *found.cells()))
    if bar is None:
        raise CorpusError("overhead: expected at least one timed module, found none; give a corpus that compiles")
    note = (
        "The policy changes which code there is to optimize and to generate, so its ratio includes that: the text of "
        f"all objects is {text['policy'] / text['plain'] - 1:+.2%} under the policy and "
        f"{text['echo'] / text['plain'] - 1:+.2%} when the heuristic is echoed. The echo makes the same code (but for "
        "LLVM's growth stop, see the benchmark echo) and is the nearest to a pure cost, but it asks for LLVM's own "
        "cost analysis of each call once more, which a policy does not. Every build is a whole process: start, loading "
        "of the plugin and of the policy included. The kernel may count user time by clock ticks, 1 to 10 ms each, and "
        "user + system exactly: where the two differ for small modules, believe the sum."
    )
    table = Table(
        title="Ratios of processor time",
        columns=("time", "builds", "modules", "number", *RATIO_COLUMNS),
        rows=tuple(rows),
        note=note,
    )
    return Result(
        benchmark="overhead",
        question=(
            "How much more user time does clang take with the plugin? Each module is compiled "
            f"{config.repetitions} times per build, the builds in turns, one at a time; the least time counts."
        ),
        answer=(
            f"Median over {bar.modules} modules of user time with the policy over plain -Oz: {bar.median:.3f} "
            f"(quartiles {bar.low:.3f} and {bar.high:.3f}, ratio of totals {bar.total:.3f})"
        ),
        bar=f"median of policy / plain user time over all modules <= {BAR:.2f}",
        passed=bar.median <= BAR,
        seed=config.seed,
        tables=(table, *left_out(failures)),
    )


if __name__ == "__main__":
    sys.exit(main())
