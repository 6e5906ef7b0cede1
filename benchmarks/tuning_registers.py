"""What register allocation for size saves by itself, and what spills cost then: real projects, inlining as it is."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, check_names, run_benchmark
from results import Cell, Result, Table, percent

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tune.loop import run_search
from mlgokit.tune.publish import publish
from mlgokit.tune.result import Tuned, mean_ratio
from mlgokit.tune.spaces.allocation.trials import SHARE_OF_FEW, TrialConfig, open_bytes
from mlgokit.tune.spaces.functions.finish import finish_bytes
from mlgokit.tune.spaces.inlining.finish import finish_inlining
from mlgokit.tune.spaces.inlining.opening import open_inlining
from mlgokit.tune.spaces.inlining.space import SearchConfig
from mlgokit.tune.verify import Verifier

PARTS = (0.25, 0.5, 1.0)
"""Of the time, at which the search is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRegisters:
    """Search the register allocation of projects for bytes, each for some processor time, and prove the result."""

    corpus: Path = Path("quickstart/corpus")
    """A corpus with the projects."""
    projects: tuple[str, ...] = ("lua", "re2", "zstd")
    """Which of its projects."""
    shares: tuple[float, ...] = (SHARE_OF_FEW, 0.0, 1.0)
    """Trials that flip few decisions; the first is proved, the others are compared with it."""
    seconds: float = 60.0
    """User time of the compilations of one search."""
    seed: int = 1
    """Of the search."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = 1
    """Compilers that run at once."""
    json: Path = Path("docs/results/tuning_registers.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers:
    """One project.

    Attributes:
        name: the project.
        tuned: the result.
        costs: geometric mean of what spills, reloads and copies cost by the functions' ratios, minus 1.
        spilled: by how much the sum of that changes.
        searches: by share of trials that flip few decisions, where the search stood at :data:`PARTS`.
    """

    name: str
    tuned: Tuned
    costs: float
    spilled: float
    searches: dict[float, tuple[float, ...]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TuningRegisters, measure, arguments)


def measure(config: TuningRegisters, setup: Setup) -> Result:
    """Tune every project.

    Raises:
        UsageError: the corpus has not all of the projects.
    """
    toolchain = setup.toolchain(config.llvm)
    modules = setup.corpus(config.corpus).modules
    check_names("projects", config.projects, sorted({module.project for module in modules}))
    found = [
        tune_one(toolchain, name, [one for one in modules if one.project == name], config, setup.report)
        for name in config.projects
    ]
    return summarise(found, config=config)


def tune_one(
    toolchain: Toolchain, name: str, modules: Sequence[Module], config: TuningRegisters, report: Report
) -> Registers:
    """Search with each share; the first result is put into a plugin, and everything compiled with it."""
    searches: dict[float, tuple[float, ...]] = {}
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), workers=config.workers)
    with tempfile.TemporaryDirectory(prefix="mlgokit-registers-") as scratch:
        folder = Path(scratch)
        asked, place, output = SearchConfig(seed=config.seed), folder / "search", folder / "tuned.so"
        search = open_inlining(modules, compiler=compiler, config=asked, folder=place, report=report)
        proved: Tuned | None = None
        with Verifier(
            compiler=compiler, modules=modules, output=output, search_folder=place, report=report
        ) as verifier:
            decided = finish_inlining(verifier, search)
            for share in config.shares:
                found = open_bytes(
                    verifier,
                    objective=asked.objective,
                    folder=folder / str(share),
                    start={},
                    seed=config.seed,
                    report=report,
                )
                found.space.config = TrialConfig(weights=found.space.config.weights, few=share)
                opened = found.user_seconds
                run_search(
                    found,
                    seconds=config.seconds,
                    workers=config.workers,
                    report=report,
                    clock=lambda found=found, opened=opened: found.user_seconds - opened,
                )
                reached = [
                    [one.change for one in found.curve if one.user_seconds <= part * config.seconds] for part in PARTS
                ]
                searches[share] = tuple(changes[-1] if changes else 0.0 for changes in reached)
                if proved is None:
                    proved = finish_bytes(verifier, found, decided, search.space.account.module_bytes)
                    proved = publish(verifier, proved, folder)
                    costs = _costs(compiler, modules, output)
    if proved is None:
        raise UsageError("shares: expected at least one, found none; name one")
    before, after = (sum(column) for column in zip(*costs, strict=True))
    return Registers(name=name, tuned=proved, costs=mean_ratio(costs), spilled=after / before - 1, searches=searches)


def _costs(compiler: ClangCompiler, modules: Sequence[Module], plugin: Path) -> list[tuple[float, float]]:
    """Scores of all functions with costs, plainly and with the plugin."""
    pairs: list[tuple[float, float]] = []
    for module in modules:
        both = [
            compiler.compile(module, CompileRequest(use=use, regalloc=True)).regalloc
            for use in (None, PluginUse(plugin=plugin))
        ]
        if both[0] is not None and both[1] is not None:
            names = sorted({*both[0].functions, *both[1].functions})
            pairs += zip(both[0].score_of(names).tolist(), both[1].score_of(names).tolist(), strict=True)
    return pairs


def summarise(found: Sequence[Registers], *, config: TuningRegisters) -> Result:
    """The tables."""
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        tuned, allocated = one.tuned, one.tuned.allocated
        if allocated is None:
            continue
        links = tuned.plain_link, tuned.tuned_link
        rows.append(
            (
                one.name, len(tuned.modules), allocated.functions, allocated.changed, allocated.put_back,
                f"{tuned.plain_bytes:,.0f}", percent(tuned.tuned_bytes / tuned.plain_bytes - 1),
                *(
                    (None, None)
                    if links[0] is None or links[1] is None or not links[0].image
                    else (percent(links[1].image / links[0].image - 1), percent(links[1].text / links[0].text - 1))
                ),
                percent(one.costs), percent(one.spilled), f"{allocated.user_seconds:.0f}", allocated.trials,
            )
        )  # fmt: skip
    changes = [one.tuned.tuned_bytes / one.tuned.plain_bytes - 1 for one in found]
    return Result(
        benchmark="tuning_registers",
        question=(
            "How much smaller does register allocation for size make projects by itself, in "
            f"{config.seconds:g} s of user time?"
        ),
        answer=(
            f"{percent(float(np.mean(changes)))} of code, read-only data and unwind tables in the mean over "
            f"{len(found)} projects ({percent(min(changes))} to {percent(max(changes))}); no function larger."
        ),
        seed=config.seed,
        tables=(
            Table(
                title="Projects, inlining as LLVM has it",
                columns=(
                    "project", "modules", "functions", "allocated otherwise", "put back", "objects, plain (bytes)",
                    "objects", "linked", "of that .text", "spill cost, mean", "spill cost, sum", "user time (s)",
                    "trials",
                ),
                rows=tuple(rows),
                note=(
                    "Objects: code, read-only data and unwind tables, each COMDAT signature once. Linked with "
                    "--gc-sections. Spill cost: LLVM's estimate of what spills, reloads and copies cost at run time "
                    "(docs/scores.md), which was not asked for: the geometric mean over functions with costs, and the "
                    "sum, which deep loops decide. No run time was measured."
                ),
            ),
            Table(
                title="How many decisions are flipped",
                columns=("project", "trials that flip few", *(f"{part * config.seconds:g} s" for part in PARTS)),
                rows=tuple(
                    (one.name, f"{100 * share:g} %", *(percent(change) for change in changes))
                    for one in found
                    for share, changes in one.searches.items()
                ),
                note=(
                    "Bytes of all functions by the trials, each COMDAT function once. Few: 1, 2, 4 or 8 in the mean. "
                    "The share that is the usual one was chosen looking at lua, re2 and zstd."
                ),
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
