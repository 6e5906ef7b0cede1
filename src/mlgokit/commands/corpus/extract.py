"""The command that runs the front end over fetched projects."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlgokit.builds.compilers import open_sandbox_of_front_ends
from mlgokit.commands.corpus import info
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import Corpus
from mlgokit.corpus.front_end import ExtractionLimits, Level
from mlgokit.corpus.info import CorpusInfo
from mlgokit.corpus.sources.extract import extract_projects
from mlgokit.corpus.sources.projects import choose_projects
from mlgokit.locks import locked
from mlgokit.progress import Report, say_nothing

page = info.page
"""What is printed is what `corpus info` says of the new corpus."""
FRONT_END_SECONDS = ExtractionLimits().module_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """Run the front end over fetched projects: bitcode and command lines, in LLVM's corpus layout."""

    projects: tuple[str, ...] = ()
    """Names of the projects to extract, among those that --manifest lists; all if none is given."""
    manifest: Path | None = None
    """TOML file that lists the projects; the list that comes with mlgokit if not given."""
    sources: Path = Path("quickstart/sources")
    """Folder where `corpus fetch` put the sources."""
    corpus: Path = Path("quickstart/corpus")
    """Folder for the corpus."""
    level: Level = "Oz"
    """Optimization level of the modules: Oz for policies that save size, O2 or O3 for policies of speed."""
    target: str | None = None
    """Triple of another processor to compile for, such as aarch64-linux-gnu, whose headers are installed; the
    compiler's own if not given."""
    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Further option of the compiler for all modules, as in --option=-fno-unwind-tables."""
    compiler: Compiling = COMPILER
    """The clang that compiles the sources to bitcode."""


def run(config: Extract, *, report: Report = say_nothing) -> CorpusInfo:
    """Make the corpus and count it.

    Raises:
        BusyError: another process uses the corpus.
    """
    with locked(config.corpus):
        extract(config, report=report)
        return info.run(info.Info(corpus=config.corpus, compiler=config.compiler), report=report)


def extract(config: Extract, *, report: Report = say_nothing) -> Corpus:
    """Make the corpus."""
    toolchain = find_toolchain(config.compiler.llvm)
    return extract_projects(
        choose_projects(config.manifest, config.projects),
        toolchain=toolchain,
        sources_folder=config.sources,
        corpus_folder=config.corpus,
        level=config.level,
        target=config.target,
        options=config.option,
        workers=config.compiler.workers,
        limits=ExtractionLimits(
            module_seconds=config.compiler.deadline(FRONT_END_SECONDS),
            compiler=config.compiler.limits().default,
            room=config.compiler.room(config.corpus),
            sandbox=open_sandbox_of_front_ends(config.compiler.sandbox, toolchain),
        ),
        report=lambda done, total, label: report(done, total, "front end"),  # noqa: ARG005  (the protocol names it)
    )
