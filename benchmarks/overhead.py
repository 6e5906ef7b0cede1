"""What the plugin costs: processor time of compilations with it over that of plain ``-Oz``."""

import math
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from harness import Setup, draw_modules, run_benchmark
from results import Cell, Result, Table
from timing import RATIO_COLUMNS, Ratios, Timing, compare_times, left_out, time_modules

from mlgokit.compiler import process
from mlgokit.compiler.compile import command
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import CorpusError, ToolError
from mlgokit.export.plugin import export_plugin
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report

BAR = 1.05
BUILDS = ("plain", "policy", "echo")
LONG_QUANTILE = 0.9
JOINED = 8
"""Modules of one unit of a unity build, as CMake has it by default."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "analyses of callees": ("llvm::getInliningCostFeatures(", "llvm::getInliningCostEstimate("),
    "counts of bodies": (
        "mlgokit::CallerCounter::beforeInlining(", "mlgokit::CallerCounter::afterInlining(",
        "mlgokit::BodyCountsAnalysis::run(", "mlgokit::CostTraitsAnalysis::run(",
    ),
    "the plugin's features": ("mlgokit::CallSiteObserver::observe(",),
    "the network": ("mlgokit::Policy::normalise(", "mlgokit::Network::evaluate("),
    "reading the policy": ("mlgokit::loadPolicy(",),
    "the heuristic": ("llvm::shouldInline(",),
    "all of deciding": (
        "llvm::DefaultInlineAdvisor::getAdviceImpl(", "mlgokit::(anonymous namespace)::PolicyAdvisor::getAdviceImpl(",
        "mlgokit::(anonymous namespace)::PolicyAdvisor::onPass",
    ),
    "the inliner": ("llvm::InlinerPass::run(",),
}  # fmt: skip
"""By part, the functions that are counted with all that they call; the inliner has all the others in it."""
_LINE = re.compile(r"\s*([\d,]+) \(\s*[\d.]+%\)\s+[^:]*:(.*?)(?: \[[^\]]*\])?$")
_RECURSION = re.compile(r"'\d+$")
_SLOWER = 300.0
"""How many times the deadline of a compilation callgrind may take, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Compile the same modules plainly and under a policy, in turns; compare user time, and count instructions."""

    policy: tuple[Path, ...]
    """Policy files, one for each problem; they are exported into a plugin of their own, as a user would load it."""
    level: str = "-Oz"
    """Optimization level of all builds; the bar is about -Oz. Policies of evictions and priorities are for -O2."""
    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    modules: int = 120
    """Modules drawn from all projects; 0 for all."""
    large: Path | None = None
    """Another corpus, all of whose modules take part: of overhead_large.toml, for example."""
    joined: int = 0
    """Modules that are joined from eight of a project each, as a unity build compiles them."""
    counted: int = 0
    """Modules whose instructions are counted, part by part; callgrind takes a minute for each second."""
    counted_large: int = 0
    """As many of the other corpus's modules are counted as well."""
    echo: bool = False
    """Also echo the heuristic by the plugin that logs."""
    repetitions: int = 5
    """How often each build of each module is timed; the least time counts."""
    large_seconds: float = 0.1
    """Modules that take at least this long are also reported alone: process start is little of them."""
    long_seconds: float = 1.0
    """So are those that take at least this long."""
    seed: int = 1
    """Of the draw and of the interval."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""


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
    setup.policies(config.policy)
    drawn = draw_modules(corpus.modules, config.modules, rng)
    large = [] if config.large is None else setup.corpus(config.large).modules
    with tempfile.TemporaryDirectory(prefix="mlgokit-overhead-") as scratch:
        folder = Path(scratch)
        joined = join_modules(toolchain, corpus.modules, config.joined, folder, rng)
        exported = folder / "policy.so"
        export_plugin(toolchain, list(config.policy), exported)
        uses: dict[str, PluginUse | None] = {"plain": None, "policy": PluginUse(plugin=exported)}
        if config.echo:
            echo = PluginUse(plugin=build_plugin(toolchain), policies={INLINE_SIZE.name: HEURISTIC})
            uses["echo"] = echo
        timings, failures = time_modules(
            toolchain,
            [*drawn, *large, *joined],
            uses,
            options=lambda module: at_level(module, config.level).command_line,
            repetitions=config.repetitions,
            timeout_seconds=config.timeout_seconds,
            corpus=config.corpus,
            report=setup.report,
        )
        counted = draw_modules(drawn, config.counted, rng) if config.counted else []
        counted += draw_modules(large, config.counted_large, rng) if config.counted_large else []
        counted = [at_level(module, config.level) for module in counted]
        counts = count_builds(config, toolchain, counted, exported, setup.report)
        memory = memory_table(config, toolchain, counted, exported)
    return summarise(timings, failures, config=config, more=(part_table(counts), memory) if counts else ())


def at_level(module: Module, level: str) -> Module:
    """The module with another optimization level in place of -Oz."""
    return replace(module, command_line=tuple(level if word == "-Oz" else word for word in module.command_line))


def join_modules(
    toolchain: Toolchain, modules: Sequence[Module], count: int, folder: Path, rng: np.random.Generator
) -> list[Module]:
    """``count`` modules, each of :data:`JOINED` of one project that follow each other, linked to one.

    Raises:
        CorpusError: no project has so many, or they do not link.
    """
    projects: dict[str, list[Module]] = {}
    for module in modules:
        projects.setdefault(module.project, []).append(module)
    groups = [
        members[start : start + JOINED]
        for members in projects.values()
        for start in range(0, len(members) - JOINED + 1, JOINED)
    ]
    if count > len(groups):
        raise CorpusError(f"joined: expected at most {len(groups)} of this corpus, found {count}; ask for fewer")
    joined: list[Module] = []
    for index in sorted(rng.choice(len(groups), count, replace=False).tolist()):
        first, output = groups[index][0], folder / f"joined{index}.bc"
        link = toolchain.clang.parent / "llvm-link"
        done = process.run([link, *(m.bitcode for m in groups[index]), "-o", output], timeout_seconds=120)
        if done.returncode != 0:
            raise CorpusError(f"{first.name}: expected to be linked with its neighbours, found {done.stderr[-200:]!r}")
        joined.append(replace(first, name=f"{first.name} and {JOINED - 1} more", bitcode=output))
    return joined


def count_builds(
    config: Overhead, toolchain: Toolchain, modules: Sequence[Module], exported: Path, report: Report
) -> list[dict[str, dict[str, int]]]:
    """Executed instructions of each of ``modules`` by part, plainly and under the policy."""
    counts: list[dict[str, dict[str, int]]] = []
    timeout = config.timeout_seconds * _SLOWER
    for index, module in enumerate(modules):
        report(index, len(modules), "count")
        plugins = {"plain": None, "policy": exported}
        counts.append(
            {
                build: count_instructions(toolchain, module, plugin, exported.parent, timeout_seconds=timeout)
                for build, plugin in plugins.items()
            }
        )
    report(len(modules), len(modules), "count")
    return counts


def count_instructions(
    toolchain: Toolchain, module: Module, plugin: Path | None, scratch: Path, *, timeout_seconds: float
) -> dict[str, int]:
    """Compile ``module`` under callgrind.

    Args:
        toolchain: whose clang.
        module: what is compiled.
        plugin: an exported plugin, or ``None``.
        scratch: a folder.
        timeout_seconds: deadline; callgrind is some fifty times slower than the compiler.

    Returns:
        Executed instructions of the whole process under ``""``, and of each of :data:`PARTS`.

    Raises:
        ToolError: the compiler or valgrind fails.
    """
    profile = scratch / "profile"
    extra = [] if plugin is None else [f"-fpass-plugin={plugin}"]
    argv = [
        "valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={profile}", toolchain.clang,
        *(word for word in module.command_line if word), *extra, "-x", "ir", module.bitcode.absolute(), "-emit-obj",
        "-o", scratch / "counted.o",
    ]  # fmt: skip
    done = process.run(argv, timeout_seconds=timeout_seconds)
    if done.returncode != 0:
        raise ToolError(
            f"{module.name}: expected callgrind to run the compiler, found exit code {done.returncode} "
            f"({done.stderr.strip().splitlines()[-1:]}); install valgrind, or give it more time"
        )
    argv = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--show-percs=yes", profile]
    listed = process.run(argv, timeout_seconds=timeout_seconds)
    return read_parts(listed.stdout.decode(errors="replace").splitlines())


def read_parts(lines: Sequence[str]) -> dict[str, int]:
    """The counts in what callgrind_annotate prints; a recursive call is in its first one already.

    Example:
        >>> found = read_parts(["9,000 (100.0%)  PROGRAM TOTALS", " 700 ( 7.8%)  ???:llvm::shouldInline(int) [/l/so]",
        ...                     " 100 ( 1.1%)  ???:llvm::shouldInline(int)'2 [/l/so]"])
        >>> found[""], found["the heuristic"], found["the network"]
        (9000, 700, 0)
    """
    found = dict.fromkeys(("", *PARTS), 0)
    for line in lines:
        if line.endswith("PROGRAM TOTALS"):
            found[""] = int(line.split()[0].replace(",", ""))
        match = _LINE.match(line)
        if not match or _RECURSION.search(match[2]):
            continue
        for part, names in PARTS.items():
            if match[2].startswith(names):
                found[part] += int(match[1].replace(",", ""))
    return found


def part_table(counts: Sequence[Mapping[str, Mapping[str, int]]]) -> Table:
    """What each part of the compiler executes of all that plain compilations do.

    Args:
        counts: of each module, by build and by part; the whole is the part without a name.
    """
    totals = {
        build: {part: sum(found[build][part] for found in counts) for part in ("", *PARTS)}
        for build in ("plain", "policy")
    }
    ratios = [found["policy"][""] / found["plain"][""] for found in counts]
    whole = totals["plain"][""]
    rows = [
        (part or "the whole compiler", *(100 * totals[build][part] / whole for build in ("plain", "policy")))
        for part in totals["plain"]
    ]
    inside = 100 * (totals["policy"]["the inliner"] - totals["plain"]["the inliner"]) / whole
    code = 100 * (totals["policy"][""] - whole) / whole - inside
    return Table(
        title="Instructions, by part",
        columns=("part", "plain (% of plain)", "policy (% of plain)"),
        rows=(*rows, ("more in the inliner", None, inside), ("more outside, since other code is compiled", None, code)),
        note=(
            f"Executed instructions of {len(counts)} of the modules, counted by callgrind, which is exact on a busy "
            f"machine; median of their ratios {float(np.median(ratios)):.3f}. A part is with all that it calls; the "
            "inliner has all parts above it, but for reading the policy and a first count of all bodies. The heuristic "
            "is asked by plain clang at each call, and under the policy where its gate leaves the call to it."
        ),
    )


def summarise(
    timings: Sequence[Mapping[str, Timing]],
    failures: Sequence[tuple[Cell, ...]],
    *,
    config: Overhead,
    more: Sequence[Table] = (),
) -> Result:
    """The tables, and whether the total and the modules that take long reach the bar."""
    rng = np.random.default_rng(config.seed)
    builds = [build for build in BUILDS if build in (timings[0] if timings else ())]
    user = {build: np.array([timed[build].user for timed in timings]) for build in builds}
    processor = {build: np.array([timed[build].processor for timed in timings]) for build in builds}
    text = {build: sum(timed[build].text_bytes for timed in timings) for build in builds}
    least = user["plain"].min(axis=1) if timings else np.zeros(0)
    groups = [
        ("all", np.ones(len(timings), bool)),
        *((f"at least {most:g} s", least >= most) for most in (config.large_seconds, config.long_seconds)),
    ]
    pairs = [(build, "plain") for build in builds[1:]]
    rows: list[tuple[Cell, ...]] = []
    bar: Ratios | None = None
    for title, seconds in (("user", user), ("user + system", processor)):
        for group, chosen in groups:
            for build, base in pairs:
                if not chosen.any():
                    continue
                found = compare_times(seconds[build][chosen], seconds[base][chosen], rng)
                bar = bar or found
                rows.append((title, f"{build} / {base}", group, found.modules, *found.cells()))
    if bar is None:
        raise CorpusError("overhead: expected at least one timed module, found none; give a corpus that compiles")
    long = least >= config.long_seconds
    slowest = (
        float(np.quantile(user["policy"][long].min(axis=1) / user["plain"][long].min(axis=1), LONG_QUANTILE))
        if long.any()
        else math.nan
    )
    echoed = (
        f" and {text['echo'] / text['plain'] - 1:+.2%} when the heuristic is echoed, by the advisor that logs, which "
        "is LLVM's own"
        if "echo" in text
        else ""
    )
    note = (
        "The policy changes which code there is to optimize and to generate, so its ratio includes that: the text of "
        f"all objects is {text['policy'] / text['plain'] - 1:+.2%} under the policy{echoed}. Modules are bitcode "
        "before any pass: of a build from sources the front end is a part that no policy changes. Every build is a "
        "whole process: start, loading of the plugin and of the policy included. The kernel may count user time by "
        "clock ticks, 1 to 10 ms each, and user + system exactly: where the two differ for small modules, believe the "
        "sum."
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
            f"User time with the policy over plain {config.level}: {bar.total:.3f} in total and {bar.median:.3f} in "
            f"the median of {bar.modules} modules; {_shown(slowest)} in the 90th percentile of the {int(long.sum())} "
            f"that take {config.long_seconds:g} s or more"
        ),
        bar=""
        if config.level != "-Oz"
        else (
            f"user time of policy / plain <= {BAR:.2f} in total, and in the 90th percentile of modules of at least "
            f"{config.long_seconds:g} s"
        ),
        passed=None if config.level != "-Oz" else bar.total <= BAR and slowest <= BAR,
        seed=config.seed,
        tables=(table, *more, *left_out(failures)),
    )


def memory_table(config: Overhead, toolchain: Toolchain, modules: Sequence[Module], exported: Path) -> Table:
    """The compiler's largest resident set, plainly and under the policy, of as many modules as are counted."""
    rows: list[tuple[Cell, ...]] = []
    for module in modules:
        plain, policy = (
            _peak(toolchain, module, plugin, exported.parent, config.timeout_seconds) / 1e6
            for plugin in (None, exported)
        )
        rows.append((module.name, plain, policy, policy / plain))
    return Table(
        title="Peak memory of the compiler",
        columns=("module", "plain (MB)", "policy (MB)", "ratio"),
        rows=tuple(rows),
        note="The largest resident set of one compilation; never less than that of this benchmark.",
    )


def _peak(toolchain: Toolchain, module: Module, plugin: Path | None, folder: Path, timeout: float) -> int:
    return process.run(command(toolchain, module, folder / "peak.o", plugin), timeout_seconds=timeout).peak_bytes


def _shown(ratio: float) -> str:
    return "none measured" if math.isnan(ratio) else f"{ratio:.3f}"


if __name__ == "__main__":
    sys.exit(main())
