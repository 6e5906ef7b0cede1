"""The command that compares builds under a policy with plain ones."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from mlgokit.commands.options import COMPILER, NO_CHANGES, Changes, Compiling, open_compiler
from mlgokit.compiler.request import PluginUse
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError, UsageError
from mlgokit.evaluation.compare import Change, Evaluation, ProjectComparison, Sizes, compare_projects
from mlgokit.evaluation.sentences import (
    FEW_PROJECTS,
    LANGUAGES,
    MEASURES,
    is_linked,
    percent,
    relative_change,
)
from mlgokit.files import atomic_write
from mlgokit.locks import reading
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import numbers, plain_table, say, words

COMPARED = ("objects", "text", "image")
"""The measures of a project or program that a table shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Build projects plainly and under a policy, link both, and compare the sizes."""

    policy: Annotated[str, tyro.conf.Positional]
    """Policy file, or one of the rules :default (LLVM's heuristic), :never and :always."""
    corpus: Path = Path("quickstart/corpus")
    """Folder of the corpus."""
    projects: tuple[str, ...] = ()
    """Names of the projects to build; all that are held out of training if none is given."""
    output: Path | None = None
    """JSON file for the result."""
    seed: int = 1
    """Random seed of the bootstrap intervals."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    changes: Changes = NO_CHANGES
    """Changes of the options of clang -cc1 in all command lines; each may be repeated."""


def run(config: Evaluate, *, report: Report = say_nothing) -> Evaluation:
    """Compare plain builds with builds under the policy.

    Raises:
        BusyError: another process changes the corpus.
    """
    with reading(config.corpus):
        return _evaluate(config, report)


def _evaluate(config: Evaluate, report: Report) -> Evaluation:
    corpus = load_corpus(config.corpus, config.changes.edits())
    known = {module.project for module in corpus.modules}
    unknown = sorted(set(config.projects) - known)
    if unknown:
        raise UsageError(
            f"projects: expected names from the corpus {config.corpus}, found {', '.join(unknown)}; it has "
            f"{', '.join(sorted(known))}"
        )
    modules = [
        module
        for module in corpus.modules
        if (module.project in config.projects if config.projects else module.held_out)
    ]
    if not modules:
        raise CorpusError(
            f"{config.corpus}: expected at least one held-out project to evaluate on, found none; "
            "name projects with --projects"
        )
    if not config.policy.startswith(":"):
        load_policy(Path(config.policy), problem=INLINE_SIZE.name)
    elif config.policy not in INLINE_SIZE.rules:
        raise UsageError(f"policy {config.policy}: expected a file or {', '.join(INLINE_SIZE.rules)}; correct the name")
    evaluation = compare_projects(
        modules,
        compiler=open_compiler(config.compiler),
        use=PluginUse(policies={INLINE_SIZE.name: config.policy}),
        rng=np.random.default_rng(config.seed),
        report=report,
    )
    if config.output is not None:
        atomic_write(config.output, json.dumps(evaluation.to_json(), indent=1))
    return evaluation


def render(evaluation: Evaluation, console: Console) -> None:
    """Each project's sizes by language, the summary with its 95 % intervals, and what failed."""
    for language, title in LANGUAGES.items():
        projects = [project for project in evaluation.projects if project.language == language]
        if projects:
            console.print(_project_table(title, projects))
    if evaluation.summary:
        console.print(_summary_table(evaluation.summary))
        if min(changes["image"].projects for changes in evaluation.summary.values()) < FEW_PROJECTS:
            say(console, f"Intervals from fewer than {FEW_PROJECTS} projects are too narrow.")
    for project in evaluation.projects:
        if project.link_failure:
            say(console, f"{project.project}: not linked: {project.link_failure}")
        for failure in project.failures:
            say(console, f"{failure.module}: left out, {failure.build}: {failure.reason}")


def _project_table(language: str, projects: Sequence[ProjectComparison]) -> Table:
    titles = ("objects", "", "linked\n.text", "", "linked\nimage", "")
    table = plain_table(
        f"Held-out {language} projects: bytes before, and after with the change",
        [*words("project"), *numbers(*titles)],
    )
    for project in projects:
        name = Text(f"{project.project}\n").append(f"  {_modules(project.modules)}", style="dim")
        table.add_row(name, *_project_cells(project))
    return table


def _summary_table(summary: Mapping[str, Mapping[str, Change]]) -> Table:
    columns = [Column("language"), Column("measure"), *numbers("change", "95 % interval", "projects")]
    table = plain_table("Change over the held-out projects (geometric mean)", columns)
    for language, changes in sorted(summary.items(), reverse=True):
        for measure, title in MEASURES.items():
            change = changes[measure]
            interval = f"{percent(change.low)} to {percent(change.high)}" if change.projects > 1 else "none"
            name = LANGUAGES.get(language, language)
            table.add_row(name, title, change_text(change.mean), interval, str(change.projects))
        table.add_section()
    return table


def _project_cells(project: ProjectComparison) -> list[Text]:
    objects = _cells(project.before, project.after, "objects")
    if not is_linked(project):
        why = Text("not\nlinked" if project.modules else "not\ncompiled", style="yellow")
        return [*objects, why, Text(), why, Text()]
    return objects + [cell for measure in COMPARED[1:] for cell in _cells(project.before, project.after, measure)]


def _cells(before: Sizes, after: Sizes, measure: str) -> list[Text]:
    """Two cells of two lines: the size before over that after, and the change beside the latter."""
    old, new = getattr(before, measure), getattr(after, measure)
    return [Text(f"{old:,}\n{new:,}"), Text("\n").append_text(change_text(relative_change(old, new)))]


def change_text(change: float) -> Text:
    """A change in percent, green where it is a gain."""
    return Text(percent(change), style="green" if change < 0 else "yellow" if change > 0 else "")


def _modules(count: int) -> str:
    return "1 module" if count == 1 else f"{count} modules"
