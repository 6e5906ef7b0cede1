"""What is left of a tuned plugin's saving where only LLVM's inline replay can be used: clang, other majors, rustc."""

import dataclasses
import functools
import json
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, check_names, kept_row, run_benchmark
from results import Cell, Result, Table
from tuning_rust import MANIFEST, PROFILE, cargo_words, copied

from mlgokit.commands import export_replay, tune
from mlgokit.commands.corpus import fetch
from mlgokit.commands.options import CompilerOptions
from mlgokit.compiler.rust.toolchain import find_rustc
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.sources.extract import driver_words, input_words, project_sources
from mlgokit.corpus.sources.projects import Project, load_projects
from mlgokit.errors import CorpusError
from mlgokit.files import atomic_write
from mlgokit.progress import Report

PROJECTS = ("lua", "zlib", "brotli", "double-conversion", "marisa", "snappy", "hunspell")
RUST = ("hexyl", "pulldown-cmark")
RUSTC = "rustc"


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineReplay:
    """Tune projects for inlining alone, export their decisions as a replay, and measure what it saves by each clang."""

    folder: Path = Path("build/inline-replay")
    """Where sources, searches and finished rows are kept; a run goes on where the last one stopped."""
    projects: tuple[str, ...] = PROJECTS
    """Which projects of the list of `mlgokit corpus fetch`."""
    rust: tuple[str, ...] = RUST
    """Which programs of tuning_rust.toml; rustc replays what it was tuned for."""
    registry: Path = Path("/usr/share/cargo/registry")
    """Folder of crates, as librust-*-dev packages fill it."""
    clangs: tuple[str, ...] = ("clang-22", "clang-19", "clang-16", "clang-14")
    """The compilers that replay."""
    seconds: float = 60.0
    """Time of the search of each project."""
    seed: int = 1
    """Of the searches."""
    llvm: int | None = None
    """LLVM major of the plugin; the newest supported one if not given."""
    workers: int = 2
    """Compilers that run at once."""
    json: Path = Path("docs/results/inline_replay.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(InlineReplay, measure, arguments)


def measure(config: InlineReplay, setup: Setup) -> Result:
    """Tune what is not tuned yet, and export for each compiler.

    Raises:
        UsageError: a project is not known.
        ToolError: a compiler is missing.
    """
    known = {project.name: project for project in load_projects()}
    programs = {one["name"]: one for one in tomllib.loads(MANIFEST.read_text())["program"]}
    check_names("projects", config.projects, known)
    check_names("rust", config.rust, programs)
    toolchain = setup.toolchain(config.llvm)
    fetch.run(fetch.Fetch(projects=config.projects, folder=config.folder / "sources"), report=setup.report)
    rows = {
        (name, clang): kept_row(
            config.folder / name / f"finished-{clang}-{config.seconds:g}-{config.seed}.json",
            functools.partial(_replayed, config, toolchain, known[name], clang, setup.report),
        )
        for name in config.projects
        for clang in config.clangs
    }
    if config.rust:
        rustc = find_rustc()
        setup.tools.update({"rustc": rustc.version, "LLVM of rustc": rustc.llvm})
        os.environ.update(PROFILE)
    rows |= {
        (name, RUSTC): kept_row(
            config.folder / name / f"finished-{RUSTC}-{config.seconds:g}-{config.seed}.json",
            functools.partial(_replayed_by_rustc, config, programs[name], setup.report),
        )
        for name in config.rust
    }
    languages = {name: known[name].language for name in config.projects} | dict.fromkeys(config.rust, "rust")
    return summarise(rows, languages, config)


def _replayed(
    config: InlineReplay, toolchain: Toolchain, project: Project, clang: str, report: Report
) -> dict[str, Any]:
    folder = config.folder.absolute() / project.name
    database, plugin = folder / "compile_commands.json", folder / f"tuned-{config.seconds:g}-{config.seed}.so"
    if not plugin.exists():
        _write_database(config, toolchain, project, database)
        search = tune.Tune(
            compile_commands=database,
            budget=f"{config.seconds:g}s",
            output=plugin,
            folder=folder / f"tune-{config.seconds:g}-{config.seed}",
            go_on=True,
            # Registers and passes have no replay.
            allocation_share=0.0,
            pass_share=0.0,
            compiler=CompilerOptions(llvm=toolchain.major, workers=config.workers),
        )
        tune.run(
            dataclasses.replace(search, search=dataclasses.replace(search.search, seed=config.seed)), report=report
        )
    export = export_replay.ExportReplay(
        plugin=plugin,
        compile_commands=database,
        output=folder / f"replay-{clang}",
        clang=Path(clang),
        workers=config.workers,
    )
    return export_replay.run(export, report=report).to_json()


def _replayed_by_rustc(config: InlineReplay, program: dict[str, Any], report: Report) -> dict[str, Any]:
    """Tune a cargo build; the search exports its decisions for a rustc that loads nothing."""
    folder = config.folder.absolute() / program["name"]
    search = tune.Tune(
        cargo=" ".join(cargo_words(program)),
        link_folder=copied(program, config.folder, registry=config.registry, sources=config.registry),
        budget=f"{config.seconds:g}s",
        artifact="replay",
        output=folder / "tuned.so",
        folder=folder / "tune",
        compiler=CompilerOptions(workers=config.workers),
    )
    tuned = tune.run(
        dataclasses.replace(search, search=dataclasses.replace(search.search, seed=config.seed)), report=report
    )
    if tuned.replay is None:
        raise CorpusError(f"{program['name']}: expected a list of decisions, found none; search longer")
    return tuned.replay.to_json()


def _write_database(config: InlineReplay, toolchain: Toolchain, project: Project, database: Path) -> None:
    """The commands that `mlgokit corpus extract` would run, as a build's database."""
    root, names = project_sources(project, sources_folder=config.folder / "sources")
    words = [
        *driver_words(project, toolchain),
        *(f"-I{folder}" for folder in project.include),
        *(f"-D{macro}" for macro in project.defines),
    ]
    entries = [
        {
            "directory": str(root),
            "file": name,
            "arguments": [
                *words,
                "-c",
                "-o",
                str(database.parent / f"{name.replace('/', '_')}.o"),
                *input_words(project, name),
            ],
        }
        for name in names
    ]
    atomic_write(database, json.dumps(entries))


def summarise(rows: dict[tuple[str, str], dict[str, Any]], languages: dict[str, str], config: InlineReplay) -> Result:
    """The table of all projects and compilers, and the means."""
    cells: list[tuple[Cell, ...]] = []
    for (name, clang), row in rows.items():
        states = [module["state"] for module in row["modules"]]
        cells.append(
            (
                name, languages[name], clang, len(states), len(row["failures"]), row["decisions"], row["disputed"],
                f"{row['tuned_change']:+.2%}", f"{row['change']:+.2%}", f"{row['share']:.0%}",
                states.count("left out"), _larger(row), row["rounds"],
            )
        )  # fmt: skip
    means: list[tuple[Cell, ...]] = []
    for clang in dict.fromkeys(clang for _, clang in rows):
        of_clang = [row for (_, one), row in rows.items() if one == clang]
        tuned, replayed = (sum(row[key] for row in of_clang) / len(of_clang) for key in ("tuned_change", "change"))
        means.append(
            (clang, len(of_clang), f"{tuned:+.2%}", f"{replayed:+.2%}", f"{replayed / tuned if tuned else 0.0:.0%}")
        )
    larger = sum(_larger(row) for row in rows.values())
    shares = ", ".join(f"{row[4]} with {row[0]}" for row in means)
    return Result(
        benchmark="inline_replay",
        question="What is left of a tuned plugin's saving where only LLVM's inline replay can be used?",
        answer=(
            f"{len({name for name, _ in rows})} projects: of the plugin's saving, {shares} (of the means of changes); "
            f"{larger} modules are larger than plain, by line tables alone."
        ),
        bar="no project larger than plain; no module either, but by line tables alone, up to clang 16",
        passed=all(row["replayed_bytes"] <= row["plain_bytes"] for row in rows.values()),
        seed=config.seed,
        tables=(
            Table(
                title="All compilers",
                columns=("compiler", "projects", "by the plugin", "by the replay", "share of the saving"),
                rows=tuple(means),
                note="Means of the projects' changes.",
            ),
            Table(
                title="Projects",
                columns=(
                    "project", "language", "compiler", "modules", "do not compile", "decisions", "disputed call sites",
                    "by the plugin", "by the replay", "share of the saving", "modules left out", "larger modules",
                    "rounds",
                ),
                rows=tuple(cells),
                note=f"Inlining alone was searched, for {config.seconds:g} seconds each. Changes are those of the "
                "project's account (code, read-only data and unwind tables, each COMDAT signature once): by the plugin "
                "against the plain build of the plugin's compiler, by the replay against the plain build of the "
                "compiler that replays; rustc is its own plugin's compiler, and a module of it is a program after its "
                "link-time optimization. Modules left out would be larger by their decisions. Larger "
                "modules are so by line tables alone. Rounds: how often the build was "
                "compiled with a list until no module was larger.",
            ),
        ),
    )  # fmt: skip


def _larger(row: dict[str, Any]) -> int:
    return sum(module["replayed_bytes"] > module["plain_bytes"] for module in row["modules"])


if __name__ == "__main__":
    raise SystemExit(main())
