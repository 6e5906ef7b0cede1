"""The command that splits a corpus."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlgokit.commands.corpus.info import MOST_PROJECTS, contents_of, kinship_warnings, leak_sentences
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.split import ProjectsBy, SplitBy, SplitResult, split_corpus
from mlgokit.locks import locked
from mlgokit.pages.model import Page, Table, count_columns, text_columns
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import counted

_DECIDED = {
    "listed": "name",
    "project": "hash of the project",
    "module": "hash of the module",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Choose the projects that are held out of training; the choice stays when projects are added."""

    corpus: Annotated[Path, tyro.conf.Positional] = Path("quickstart/corpus")
    """Folder of the corpus."""
    share: float = 0.2
    """Share of the projects to hold out, or of the modules of a single project."""
    seed: int = 1
    """Random seed; another one gives another split."""
    by: SplitBy = SplitBy.AUTO
    """Unit of the split: project, or module together with its copies; auto splits a single project by module."""
    projects: ProjectsBy = ProjectsBy.AUTO
    """Grouping of modules into projects from now on: build (all modules are one project), folder (one project for
    each top folder), auto (unchanged)."""
    held_out: tuple[str, ...] = ()
    """Names of the projects to hold out, in place of --share."""
    force: bool = False
    """Replace a split whose projects were named, by --held-out or by the list that the corpus was made from."""
    compiler: Compiling = COMPILER
    """The clang that reads the modules."""


def run(config: Split, *, report: Report = say_nothing) -> SplitResult:
    """Split the corpus, and write it down.

    Raises:
        BusyError: another process uses the corpus.
    """
    with locked(config.corpus, make=False):
        corpus = load_corpus(config.corpus)
        result, _ = split_corpus(
            corpus,
            contents_of(corpus, config.compiler, report=report),
            share=config.share,
            seed=config.seed,
            by=config.by,
            projects_by=config.projects,
            held_out=config.held_out,
            force=config.force,
        )
        return result


def page(result: SplitResult) -> Page:
    """Projects with the modules on either side, and what crosses."""
    projects = result.projects
    training, copies, held_out = (
        sum(getattr(one, name) for one in projects) for name in ("training", "copies", "held_out")
    )
    return Page(
        title=f"Split of {result.folder}",
        headline=f"{training:,} modules to train on, {held_out:,} held out.",
        sentences=(*result.notes, *leak_sentences(result.leaks)),
        warnings=tuple(kinship_warnings(result.kinships)),
        parts=(
            Table(
                title=f"Split of {result.folder}, share {result.share:g}, seed {result.seed}",
                columns=(*text_columns("project", "decided by"), *count_columns("training", "copies", "held out")),
                rows=tuple(
                    (
                        one.name,
                        _DECIDED[one.by],
                        *(count or "" for count in (one.training, one.copies, one.held_out)),
                    )
                    for one in projects
                ),
                total=(counted(len(projects), "project"), "", training, copies, held_out),
                terminal_rows=MOST_PROJECTS,
            ),
        ),
    )
