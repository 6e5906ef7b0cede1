"""The tables that a terminal shows: sizes before and after, time and compilations spent."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from mlgokit.evaluation.compare import Change, Evaluation, ProjectComparison, Sizes
from mlgokit.evaluation.report import RunReport, program_sentence
from mlgokit.evaluation.sentences import (
    FEW_PROJECTS,
    LANGUAGES,
    MEASURES,
    control_sentence,
    headline,
    is_linked,
    percent,
    relative_change,
)
from mlgokit.terminal import numbers, plain_table, say, words

_COMPARED = ("objects", "text", "image")


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
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


def print_run(report: RunReport, console: Console) -> None:
    """The held-out projects, the program, what everything cost, and the result in a sentence."""
    print_evaluation(report.evaluation, console)
    program = report.program
    if program is not None:
        table = plain_table(
            Text(f"The program {program.name}, bytes"), [Column("measure"), *numbers("before", "after", "change")]
        )
        for measure in _COMPARED:
            before, after = getattr(program.before, measure), getattr(program.after, measure)
            table.add_row(MEASURES[measure], f"{before:,}", f"{after:,}", _change(relative_change(before, after)))
        console.print(table)
    table = plain_table("Spent", [*words("stage"), *numbers("seconds", "compilations")])
    for stage in report.stages:
        name = f"{stage.stage} (reused)" if stage.reused else stage.stage
        table.add_row(Text(name), f"{stage.seconds:,.1f}", f"{stage.compilations:,}")
    table.add_section()
    seconds = sum(stage.seconds for stage in report.stages)
    table.add_row("total", f"{seconds:,.1f}", f"{sum(stage.compilations for stage in report.stages):,}")
    console.print(table)
    say(console, headline(report.evaluation), style="bold")
    if program is not None:
        differs = program.runs > 0 and not program.same_behaviour
        say(console, program_sentence(program), style="bold red" if differs else "bold")
        for difference in program.differences:
            say(console, f"  other behaviour of: {difference}", style="red")
    if report.control is not None:
        say(console, control_sentence(report.control))


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
            table.add_row(name, title, _change(change.mean), interval, str(change.projects))
        table.add_section()
    return table


def _project_cells(project: ProjectComparison) -> list[Text]:
    objects = _cells(project.before, project.after, "objects")
    if not is_linked(project):
        why = Text("not\nlinked" if project.modules else "not\ncompiled", style="yellow")
        return [*objects, why, Text(), why, Text()]
    return objects + [cell for measure in _COMPARED[1:] for cell in _cells(project.before, project.after, measure)]


def _cells(before: Sizes, after: Sizes, measure: str) -> list[Text]:
    """Two cells of two lines: the size before over that after, and the change beside the latter."""
    old, new = getattr(before, measure), getattr(after, measure)
    return [Text(f"{old:,}\n{new:,}"), Text("\n").append_text(_change(relative_change(old, new)))]


def _change(change: float) -> Text:
    return Text(percent(change), style="green" if change < 0 else "yellow" if change > 0 else "")


def _modules(count: int) -> str:
    return "1 module" if count == 1 else f"{count} modules"
