"""What is left of a tuning when the project moves on: tune version n, compile n + 1 and n + 2 with its plugin."""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, check_names, kept_row, run_benchmark
from results import Cell, Result, Table
from tuning_arms import proved

from mlgokit.commands.corpus import extract, fetch
from mlgokit.commands.options import CompilerOptions
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import NEVER
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tables.decisions import read_table
from mlgokit.tables.file import tables_inside
from mlgokit.tables.overrides import ALLOCATIONS, read_overrides
from mlgokit.tune.check import check_plugin
from mlgokit.tune.loop import run_search
from mlgokit.tune.spaces.inlining.opening import InliningSearch, open_inlining, try_policy, try_start
from mlgokit.tune.spaces.inlining.space import SearchConfig

MANIFEST = Path(__file__).with_suffix(".toml")
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningVersions:
    """Tune one version of each project, hold the plugin against the next ones, and tune those again."""

    corpus: Path | None = None
    """A corpus of all versions, the projects named as in the list; made in the folder if not given."""
    folder: Path = Path("build/tuning-versions")
    """Where sources, searches and finished projects are kept; a run goes on where the last one stopped."""
    projects: tuple[str, ...] = ()
    """Which projects; all of the list if none is named."""
    seconds: float = 60.0
    """Processor time of the first version's search, compilations and fits together."""
    allocation_seconds: float = 40.0
    """Processor time of the first version's search over register allocations, which follows."""
    again_seconds: float = 30.0
    """Processor time of each search of the second version, for inlining."""
    modules: int = 0
    """Modules of each version, the first ones; 0 for all."""
    seed: int = 1
    """Of the searches."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = 1
    """Compilers that run at once."""
    json: Path = Path("docs/results/tuning_versions.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TuningVersions, measure, arguments)


def measure(config: TuningVersions, setup: Setup) -> Result:
    """Run what is not finished yet.

    Raises:
        UsageError: a project is not known.
    """
    toolchain = setup.toolchain(config.llvm)
    place = config.corpus
    if place is None:
        place, sources = config.folder / "corpus", config.folder / "sources"
        fetch.run(fetch.Fetch(manifest=MANIFEST, folder=sources), report=setup.report)
        making = extract.Extract(
            manifest=MANIFEST,
            sources=sources,
            corpus=place,
            compiler=CompilerOptions(llvm=toolchain.major, workers=config.workers),
        )
        extract.extract(making, report=setup.report)
    found: dict[str, dict[str, list[Module]]] = {}
    for module in setup.corpus(place).modules:
        name, _, version = module.project.rpartition("_")
        found.setdefault(name, {}).setdefault(version, []).append(module)
    check_names("projects", config.projects, found)
    seconds = "-".join(f"{each:g}" for each in (config.seconds, config.allocation_seconds, config.again_seconds))
    measured = {
        name: kept_row(
            config.folder / name / f"finished-{seconds}-{config.seed}.json",
            functools.partial(_measured, config, toolchain, name, found[name], setup.report),
        )
        for name in config.projects or tuple(found)
    }
    return summarise(measured, config)


def _measured(
    config: TuningVersions, toolchain: Toolchain, name: str, versions: dict[str, list[Module]], report: Report
) -> dict[str, Any]:
    folder = config.folder / name
    # The order of the list is that of time; text would put 0.10 before 0.9.
    order = sorted(versions, key=lambda version: [int(part) for part in version.split(".")])
    chosen = {version: versions[version][: config.modules or None] for version in order}
    first, *later = order
    search = _search(config, toolchain, chosen[first], folder / first, start=None, report=report)
    _spend(search, config.seconds, config.workers, report)
    plugin = folder / "tuned.so"
    tuned = proved(search, plugin, seconds=config.allocation_seconds, report=report)
    decisions = read_table(plugin)
    allocations = read_overrides(ALLOCATIONS, plugin) if "allocations" in tables_inside(plugin) else None
    compiler = search.space.compiler
    kept = {
        version: check_plugin(chosen[version], compiler, plugin, decisions, allocations, report=report).to_json()
        for version in later
    }
    again: dict[str, dict[str, float]] = {}
    for arm, start in (("from nothing", None), ("from the decisions", search.folder / "decisions")):
        place = folder / f"{later[0]} {arm}"
        other = _search(config, toolchain, chosen[later[0]], place, start=start, report=report)
        begun = other.space.score.change
        _spend(other, config.again_seconds, config.workers, report)
        again[arm] = {
            "begun": begun,
            "change": other.space.score.change,
            "user_seconds": other.user_seconds,
        }
    return {
        "versions": order,
        "language": chosen[first][0].language,
        "tuned": tuned.to_json(),
        "kept": kept,
        "again": again,
    }


def _search(
    config: TuningVersions,
    toolchain: Toolchain,
    modules: Sequence[Module],
    folder: Path,
    *,
    start: Path | None,
    report: Report,
) -> InliningSearch:
    search = open_inlining(
        modules,
        compiler=ClangCompiler(
            toolchain=toolchain,
            plugin=build_plugin(toolchain),
            workers=config.workers,
            timeout_seconds=TIMEOUT_SECONDS,
            residents=Residents(),
            known={},
        ),
        config=dataclasses.replace(SearchConfig(), seed=config.seed),
        folder=folder,
        report=report,
    )
    if start is not None:
        try_start(search, start.read_bytes(), report=report)
    try_policy(search, NEVER, report=report)
    return search


def _spend(search: InliningSearch, seconds: float, workers: int, report: Report) -> None:
    left = max(0.0, seconds - search.user_seconds)
    run_search(search, seconds=left, workers=workers, report=report, clock=lambda: search.user_seconds)


def summarise(measured: dict[str, dict[str, Any]], config: TuningVersions) -> Result:
    """The tables of what is kept and of tuning again."""
    kept_rows: list[tuple[Cell, ...]] = []
    again_rows: list[tuple[Cell, ...]] = []
    larger, better, worth, saving_then, saving_now = 0, 0, 0, 0.0, 0.0
    for name, one in measured.items():
        first, second = one["versions"][0], one["versions"][1]
        then = one["tuned"]["tuned_bytes"] / one["tuned"]["plain_bytes"] - 1
        for version, kept in one["kept"].items():
            states = [module["state"] for module in kept["modules"]]
            larger += len(kept["larger"])
            kept_rows.append(
                (
                    name, one["language"], f"{first} -> {version}", len(states), states.count("new"), len(kept["gone"]),
                    kept["decisions"], f"{kept['share']:.0%}",
                    f"{kept['kept'] / kept['asked']:.0%}" if kept["asked"] else None,
                    kept["allocations"],
                    f"{kept['allocations_kept'] / kept['allocations']:.0%}" if kept["allocations"] else None,
                    f"{then:+.2%}", f"{kept['change']:+.2%}", _linked(kept), len(kept["larger"]),
                    f"{max((m['tuned_bytes'] - m['plain_bytes'] for m in kept['modules']), default=0.0):+.0f}",
                )
            )  # fmt: skip
        saving_then += then
        saving_now += one["kept"][second]["change"]
        nothing, decisions = one["again"]["from nothing"], one["again"]["from the decisions"]
        better += decisions["change"] <= nothing["change"]
        worth += decisions["change"] < one["kept"][second]["change"]
        again_rows.append(
            (
                name, second, f"{one['kept'][second]['change']:+.2%}", f"{nothing['begun']:+.2%}",
                f"{nothing['change']:+.2%}", f"{decisions['begun']:+.2%}", f"{decisions['change']:+.2%}",
            )
        )  # fmt: skip
    count = len(measured)
    return Result(
        benchmark="tuning_versions",
        question="What is left of a tuning when the project moves on, and what does it give the next tuning?",
        answer=(
            f"{count} projects: objects changed by {saving_then / count:+.2%} when version n was tuned and by "
            f"{saving_now / count:+.2%} in version n + 1 with the same plugin (means); {larger} modules of later "
            f"versions are larger than plain; tuning again from the old decisions was at least as good as from nothing "
            f"in {better} of {count} at equal time, and smaller than with the old plugin kept in {worth} of {count}."
        ),
        seed=config.seed,
        tables=(
            Table(
                title="Later versions with the plugin of version n",
                columns=(
                    "project", "language", "versions", "modules", "new", "gone", "decisions", "kept", "of those asked",
                    "functions allocated otherwise", "kept", "objects when tuned", "objects now", "linked now",
                    "larger modules", "worst module, bytes",
                ),
                rows=tuple(kept_rows),
                note=f"Inlining of version n was tuned for {config.seconds:g} seconds of processor time, then register "
                f"allocation for {config.allocation_seconds:g}. Kept: the part of the plugin's decisions that the "
                "later version asks for; of its functions, the part that the later version has, for the allocator as "
                "they were. Of those asked: the part of the later version's "
                "decisions, in modules that were tuned, that the plugin answers; LLVM's heuristic decides the others. "
                "Objects: text, read-only data and unwind tables, each COMDAT signature once, against plain.",
            ),
            Table(
                title="Tuning version n + 1 again",
                columns=(
                    "project", "version", "old plugin", "from nothing, begun", "from nothing, tuned",
                    "from the decisions, begun", "from the decisions, tuned",
                ),
                rows=tuple(again_rows),
                note=f"Each search has {config.again_seconds:g} seconds of processor time, the compilations that it "
                "begins with included. Begun: before the first step. Inlining alone is searched, from the old plugin's "
                "decisions without its register allocation, which counts in the column of the old plugin.",
            ),
        ),
    )  # fmt: skip


def _linked(kept: dict[str, Any]) -> Cell:
    before, after = kept["plain_link"], kept["tuned_link"]
    return f"{after['image'] / before['image'] - 1:+.2%}" if before and after else None


if __name__ == "__main__":
    raise SystemExit(main())
