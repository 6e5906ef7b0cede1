"""What an evaluation found, as tables and sentences in a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from mlgokit.evaluation.records import Evaluation, ProjectComparison, Sizes
from mlgokit.evaluation.sentences import FEW_PROJECTS, LANGUAGES, TITLES, is_linked
from mlgokit.pages.model import percent, relative_change
from mlgokit.terminal import counted, numbers, plain_table, say, words

COMPARED = ("objects", "text", "image")
"""The measures of a project or program that a table shows."""


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Each project's sizes by language, the summary with its intervals, what failed, and the verdict."""
    for language, title in LANGUAGES.items():
        projects = [project for project in evaluation.projects if project.language == language]
        if projects:
            console.print(_project_table(title, projects))
    if evaluation.summary:
        console.print(_summary_table(evaluation))
        counts = [change.projects for changes in evaluation.summary.values() for change in changes.values()]
        if max(counts) > 1 and min(counts) < FEW_PROJECTS:
            say(console, f"Intervals from fewer than {FEW_PROJECTS} projects are too narrow.")
    for project in evaluation.projects:
        _say_missing(project, console)
    _say_images(evaluation, console)
    if evaluation.baseline:
        say(console, f"baseline: {evaluation.baseline}")
    for sentence in evaluation.left_alone:
        say(console, sentence, style="yellow")
    if evaluation.verdict is not None:
        style = "bold green" if evaluation.verdict.ship else "bold yellow"
        say(console, evaluation.verdict.sentence, style=style)


def _say_missing(project: ProjectComparison, console: Console) -> None:
    """What the tables do not have, or have wrongly."""
    if project.link_failure:
        say(console, f"{project.project}: not linked: {project.link_failure}")
    if project.costs is not None and project.costs.unread:
        say(console, f"{project.project}: cost of register allocation {project.costs.unread}")
    passed = [row for row in project.module_rows if row.after.status == "passed_by"]
    if passed:
        row = passed[0]
        say(
            console,
            f"{project.project}: {len(passed)} objects are alike on both sides: {row.module}: {row.after.reason}",
        )
    gone = [row for row in project.module_rows if row.after.status == "left_out"]
    if gone:
        row = gone[0]
        say(
            console,
            f"{project.project}: {counted(len(gone), 'object')} not compared, such as {row.module}: {row.after.reason}",
        )
    for failure in project.failures:
        say(console, f"{failure.module}: left out, {failure.build}: {failure.reason}")


def _project_table(language: str, projects: Sequence[ProjectComparison]) -> Table:
    titles = ("objects", "", "linked\n.text", "", "linked\nimage", "")
    table = plain_table(
        f"{language} projects: bytes before, and after with the change",
        [*words("project"), *numbers(*titles)],
    )
    for project in projects:
        name = Text(f"{project.project}\n").append(f"  {counted(project.modules, 'module')}", style="dim")
        table.add_row(name, *_project_cells(project))
    return table


def _summary_table(evaluation: Evaluation) -> Table:
    interval = f"{100 * evaluation.level:g} % interval"
    columns = [Column("language"), Column("measure"), *numbers("change", interval, "projects")]
    table = plain_table("Change over the projects (geometric mean)", columns)
    for language, changes in sorted(evaluation.summary.items(), reverse=True):
        for measure, title in TITLES.items():
            if measure not in changes:
                continue
            change = changes[measure]
            interval = f"{percent(change.low)} to {percent(change.high)}" if change.projects > 1 else "none"
            name = LANGUAGES.get(language, language)
            table.add_row(name, title, change_text(change.mean), interval, str(change.projects))
        table.add_section()
    return table


def _project_cells(project: ProjectComparison) -> list[Text]:
    objects = _cells(project.before, project.after, "objects")
    if project.modules and not project.before.objects:
        objects = [Text("bitcode"), Text()]
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


def _say_images(evaluation: Evaluation, console: Console) -> None:
    """Where link-time optimization had the plugin, image by image: two programs of a build may differ in that."""
    for project in evaluation.projects:
        for image in project.images:
            if image.after.lto:
                compiled = "loaded" if any(row.after.plugin for row in project.module_rows) else "not loaded"
                linked = "loaded" if image.after.plugin else "not loaded"
                change = percent(relative_change(image.before.image, image.after.image))
                say(
                    console,
                    f"{image.image}: {image.after.lto} link-time optimization, plugin {compiled} while compiling, "
                    f"{linked} in the link: {change}",
                )
