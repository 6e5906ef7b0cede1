"""Stages that make and look at corpora of listed projects: fetch, extract, info, split."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.identity import Contents, describe_corpus
from mlgokit.corpus.info import CorpusInfo, corpus_info
from mlgokit.corpus.sources.extract import extract_projects
from mlgokit.corpus.sources.fetch import default_cache_folder, fetch_archive, prepare_sources
from mlgokit.corpus.sources.projects import Project, load_projects
from mlgokit.corpus.split import SplitBy, SplitResult, split_corpus
from mlgokit.errors import ToolError, UsageError
from mlgokit.progress import Report, say_nothing

WORKERS = os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Fetch the archives of open-source projects, verify and unpack them."""

    projects: tuple[str, ...] = ()
    """Names of the projects; all of the list if none is named."""
    manifest: Path | None = None
    """A TOML file that lists the projects; the list that comes with mlgokit if not given."""
    folder: Path = Path("quickstart/sources")
    """Where the sources go."""
    cache: Path | None = None
    """Where archives are kept; the user's cache folder if not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """Run the front end over fetched projects: bitcode and command lines, in LLVM's corpus layout."""

    projects: tuple[str, ...] = ()
    """Names of the projects; all of the list if none is named."""
    manifest: Path | None = None
    """A TOML file that lists the projects; the list that comes with mlgokit if not given."""
    sources: Path = Path("quickstart/sources")
    """Where `corpus fetch` put the sources."""
    corpus: Path = Path("quickstart/corpus")
    """Where the corpus goes."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = WORKERS
    """Compilers that run at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Count a corpus: modules, functions, call sites, languages, copies, the split, what was skipped and why."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    counts: bool = True
    """Look into the modules with the compiler; without, sizes and equal files only."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = WORKERS
    """Compilers that run at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Choose the projects that are kept out of training; the choice stays when projects are added."""

    corpus: Annotated[Path, tyro.conf.Positional] = Path("quickstart/corpus")
    """The corpus."""
    share: float = 0.2
    """Share of the projects to hold out, or of the modules of a single project."""
    seed: int = 1
    """Another one gives another split."""
    by: SplitBy = SplitBy.AUTO
    """What stays together: projects, or only copies of a module; auto splits a single project by module."""
    held_out: tuple[str, ...] = ()
    """Names of projects: hold out these and no others."""
    force: bool = False
    """Replace a split that was made by name."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = WORKERS
    """Compilers that run at once."""


def choose_projects(manifest: Path | None, names: Sequence[str]) -> tuple[Project, ...]:
    """The projects of a list, or those of them that are named.

    Raises:
        UsageError: a name is not in the list.
    """
    projects = load_projects(manifest)
    unknown = sorted(set(names) - {project.name for project in projects})
    if unknown:
        raise UsageError(
            f"projects: expected names from the list, found {', '.join(unknown)}; the list has "
            f"{', '.join(project.name for project in projects)}"
        )
    return tuple(project for project in projects if not names or project.name in names)


def fetch(config: Sources, *, report: Report = say_nothing) -> dict[str, Any]:
    """Fetch and unpack; returns the folder of each project."""
    projects = choose_projects(config.manifest, config.projects)
    cache = config.cache or default_cache_folder()
    roots: dict[str, Any] = {}
    for index, project in enumerate(projects):
        report(index, len(projects), "fetch")
        archive = fetch_archive(project.archive, cache_folder=cache)
        roots[project.name] = str(prepare_sources(project, archive_path=archive, sources_folder=config.folder))
    report(len(projects), len(projects), "fetch")
    return {"projects": roots}


def extract(config: Extract, *, report: Report = say_nothing) -> Corpus:
    """Make the corpus."""
    return extract_projects(
        choose_projects(config.manifest, config.projects),
        toolchain=find_toolchain(config.llvm),
        sources_folder=config.sources,
        corpus_folder=config.corpus,
        workers=config.workers,
        report=lambda done, total, label: report(done, total, "front end"),  # noqa: ARG005  (the protocol names it)
    )


def info(config: Info, *, report: Report = say_nothing) -> CorpusInfo:
    """Count the corpus."""
    corpus = load_corpus(config.corpus)
    return corpus_info(corpus, _contents(corpus, config, use_compiler=config.counts, report=report))


def split(config: Split, *, report: Report = say_nothing) -> SplitResult:
    """Split the corpus, and write it down."""
    corpus = load_corpus(config.corpus)
    result, _ = split_corpus(
        corpus,
        _contents(corpus, config, use_compiler=True, report=report),
        share=config.share,
        seed=config.seed,
        by=config.by,
        held_out=config.held_out,
        force=config.force,
    )
    return result


def _contents(corpus: Corpus, config: Info | Split, *, use_compiler: bool, report: Report) -> Contents:
    """What is in the modules; only their digests if there is no compiler that a plugin can be built for."""
    toolchain, plugin = None, None
    if use_compiler:
        try:
            toolchain = find_toolchain(config.llvm, need_plugin=True)
            plugin = build_plugin(toolchain)
        except ToolError:
            if config.llvm is not None:
                raise
            # Equal files are found all the same, and the table says that nothing was counted.
            toolchain = None
    return describe_corpus(
        corpus.folder, corpus.modules, toolchain=toolchain, plugin=plugin, workers=config.workers, report=report
    )
