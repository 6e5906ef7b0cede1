"""What tuning of register allocation saves: costs of real projects, plain and with what `mlgokit tune` found."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.corpus.corpus import Corpus
from mlgokit.errors import UsageError
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tune.loop import run_search
from mlgokit.tune.publish import publish
from mlgokit.tune.result import SearchedFunctions, SpillCosts, Tuned, costs_of
from mlgokit.tune.spaces.allocation.trials import TrialConfig
from mlgokit.tune.spaces.functions.finish import finish_costs
from mlgokit.tune.spaces.functions.opening import open_functions
from mlgokit.tune.verify import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSpillCost:
    """Tune the register allocation of projects, each for some processor time, and prove the result."""

    corpus: tuple[Path, ...] = (Path("quickstart/corpus"),)
    """Corpora, one or several."""
    projects: tuple[str, ...] = ("re2", "lua", "zstd")
    """Which of their projects."""
    seconds: float = 60.0
    """User time of the compilations of one project's search."""
    seed: int = 1
    """Of the search."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = 1
    """Compilers that run at once."""
    json: Path = Path("docs/results/tuning_spill_cost.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedProject:
    """One project.

    Attributes:
        name: the project, and the level it is compiled at.
        tuned: the result of the tuning.
        allocated: what register allocation gave.
        costs: of all functions.
        spilling: functions with spills or reloads, by which most can be saved.
        change: geometric mean over those alone, as the search says.
    """

    name: str
    tuned: Tuned
    allocated: SearchedFunctions
    costs: SpillCosts
    spilling: int
    change: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TuningSpillCost, measure, arguments)


def measure(config: TuningSpillCost, setup: Setup) -> Result:
    """Tune every project.

    Raises:
        UsageError: a corpus has none of the projects.
        CorpusError: nothing in a project has costs.
    """
    toolchain = setup.toolchain(config.llvm)
    corpora = [
        setup.corpus(path, f"corpus {number}" if number > 1 else "corpus")
        for number, path in enumerate(config.corpus, start=1)
    ]
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), workers=config.workers)
    tuned = [
        tune_one(compiler, name, modules, config, setup.report)
        for corpus in corpora
        for name, modules in _projects(corpus, config)
    ]
    return summarise(tuned, config=config)


def _projects(corpus: Corpus, config: TuningSpillCost) -> list[tuple[str, list[Module]]]:
    chosen: list[tuple[str, list[Module]]] = []
    for name in sorted({module.project for module in corpus.modules} & set(config.projects)):
        modules = [module for module in corpus.modules if module.project == name]
        levels = sorted({word for module in modules for word in module.command_line if word.startswith("-O")})
        chosen.append((f"{name} {' '.join(levels)}", modules))
    if not chosen:
        raise UsageError(f"{corpus.folder}: expected one of the projects {', '.join(config.projects)}, found none")
    return chosen


def tune_one(
    compiler: ClangCompiler, name: str, modules: Sequence[Module], config: TuningSpillCost, report: Report
) -> TunedProject:
    """Search until the time is spent, then compile everything with the result."""
    with tempfile.TemporaryDirectory(prefix="mlgokit-spill-") as scratch:
        folder = Path(scratch)
        search = open_functions(
            modules,
            compiler=compiler,
            config=TrialConfig(),
            folder=folder,
            start={},
            seed=config.seed,
            report=report,
        )
        opened = search.user_seconds
        run_search(
            search,
            seconds=config.seconds,
            workers=config.workers,
            report=report,
            clock=lambda: search.user_seconds - opened,
        )
        output = folder / "tuned.so"
        with Verifier(
            compiler=compiler, modules=modules, output=output, search_folder=folder, report=report, costs=True
        ) as verifier:
            tuned = publish(verifier, finish_costs(verifier, search), folder)
    spilling = costs_of([(one.plain, one.score) for one in search.space.functions if one.spills])
    if tuned.allocated is None or tuned.costs is None:
        raise AssertionError("a search for costs says what they are")
    return TunedProject(
        name=name, tuned=tuned, allocated=tuned.allocated, costs=tuned.costs, spilling=spilling.functions,
        change=spilling.change,
    )  # fmt: skip


def summarise(tuned: Sequence[TunedProject], *, config: TuningSpillCost) -> Result:
    """The tables."""
    rows: list[tuple[Cell, ...]] = [
        (
            one.name, len(one.tuned.modules), one.allocated.functions, one.spilling, one.allocated.changed,
            100 * one.change, 100 * one.costs.change, one.costs.plain, one.costs.tuned,
            100 * (one.costs.tuned / one.costs.plain - 1),
            one.tuned.plain_bytes, 100 * (one.tuned.tuned_bytes / one.tuned.plain_bytes - 1),
            one.allocated.user_seconds, one.allocated.compilations, one.allocated.trials,
        )
        for one in tuned
    ]  # fmt: skip
    notes = [(one.name, module.name, module.note) for one in tuned for module in one.tuned.modules if module.note]
    tables = [
        Table(
            title="Costs of spills, reloads and copies",
            columns=(
                "project", "modules", "functions with costs", "with spills", "allocated otherwise",
                "mean, with spills (%)", "mean, all (%)", "sum before", "sum after", "sum (%)",
                "text before (bytes)", "text (%)", "user time (s)", "compilations", "trials",
            ),
            rows=tuple(rows),
            note=(
                "A cost is LLVM's, by block frequencies relative to the function's entry (docs/scores.md). Means are "
                "geometric, of the ratios of functions; the sum is that of the functions with the deepest loops. Most "
                "functions with costs have copies only, of which few can be saved: the mean over those with spills or "
                "reloads is of what can change. Means with spills count a COMDAT function once, the others in each "
                "module that has it. All but that column is of the compilations with the finished plugin. Text is "
                "reported, and not an objective. Costs are estimates: no run time was measured."
            ),
        )
    ]  # fmt: skip
    if notes:
        tables.append(Table(title="Put back", columns=("project", "module", "why"), rows=tuple(notes)))
    change = float(np.mean([100 * one.change for one in tuned]))
    return Result(
        benchmark="tuning_spill_cost",
        question=(
            "How much less do spills, reloads and copies cost after tuning the register allocation of a project for "
            f"{config.seconds:g} s of user time?"
        ),
        answer=(
            f"Functions with spills cost {change:+.1f} % in the mean over {len(tuned)} projects "
            f"({min(100 * one.change for one in tuned):+.1f} to {max(100 * one.change for one in tuned):+.1f} %), "
            "none costs more than before"
        ),
        seed=config.seed,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())
