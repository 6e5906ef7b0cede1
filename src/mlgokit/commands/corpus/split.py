"""The command that splits a corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from mlgokit.commands.corpus.info import MOST_PROJECTS, contents_of, print_leaks
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.split import ProjectsBy, ProjectSplit, SplitBy, SplitResult, split_corpus
from mlgokit.locks import locked
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import numbers, plain_table, say, words

_DECIDED = {
    "given": "who made the corpus",
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
    """Unit that stays on one side: a project, or a module with its copies; auto splits a single project by module."""
    projects: ProjectsBy = ProjectsBy.AUTO
    """Members of one project from now on: build, all modules; folder, those below one folder; auto, as before."""
    held_out: tuple[str, ...] = ()
    """Names of the projects to hold out, in place of a share."""
    force: bool = False
    """Replace a split that was made by name."""
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


def render(result: SplitResult, console: Console) -> None:
    """Projects with the modules on either side, and what crosses."""
    table = plain_table(
        Text(f"Split of {result.folder}, share {result.share:g}, seed {result.seed}"),
        [*words("project", "decided by"), *numbers("training", "copies", "held out")],
    )
    for project in result.projects[:MOST_PROJECTS]:
        counts = (project.training, project.copies, project.held_out)
        table.add_row(
            Text(project.name), _DECIDED.get(project.by, project.by), *(f"{n:,}" if n else "" for n in counts)
        )
    table.add_section()
    rows: Sequence[ProjectSplit] = result.projects
    totals = (sum(r.training for r in rows), sum(r.copies for r in rows), sum(r.held_out for r in rows))
    table.add_row(f"{len(rows)} projects", "", *(f"{n:,}" for n in totals))
    console.print(table)
    for note in result.notes:
        say(console, note)
    print_leaks(console, result.leaks, result.kinships)
