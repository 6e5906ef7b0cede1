"""The tables that a terminal shows: sizes before and after, time and compilations spent."""

from rich.console import Console
from rich.table import Table

from mlgokit.evaluation.compare import MEASURES, Evaluation, ProjectComparison, Sizes
from mlgokit.evaluation.report import RunReport
from mlgokit.evaluation.sentences import percent, relative_change

_TITLES = {
    "objects": "objects (llvm-size text)",
    "link_aware": "objects (link-aware)",
    "text": "linked .text",
    "image": "linked image",
}


def print_evaluation(evaluation: Evaluation, console: Console) -> None:
    """One row for each project, then the summary by language with its 95 % interval."""
    table = Table(title="plain -Oz -> policy, bytes")
    for title in ("project", "language", "modules", "objects", "change", "linked .text", "linked image", "change"):
        table.add_column(title, justify="left" if title in {"project", "language"} else "right")
    for project in evaluation.projects:
        table.add_row(*_project_cells(project))
    console.print(table)
    for language, changes in evaluation.summary.items():
        lines = Table(title=f"{language}: geometric mean of {changes['image'].projects} projects, 95 % interval")
        for title in ("measure", "change", "from", "to"):
            lines.add_column(title, justify="left" if title == "measure" else "right")
        for measure in MEASURES:
            change = changes[measure]
            lines.add_row(_TITLES[measure], percent(change.mean), percent(change.low), percent(change.high))
        console.print(lines)
    for project in evaluation.projects:
        if project.link_failure:
            console.print(f"{project.project}: not linked: {project.link_failure}", markup=False, highlight=False)
        for failure in project.failures:
            console.print(
                f"{failure.module}: left out, {failure.build}: {failure.reason}", markup=False, highlight=False
            )


def print_run(report: RunReport, console: Console) -> None:
    """The held-out projects, the program, and what everything cost."""
    print_evaluation(report.evaluation, console)
    if report.program is not None:
        before, after = report.program.before, report.program.after
        behaviour = "the same behaviour" if report.program.same_behaviour else "DIFFERENT BEHAVIOUR"
        table = Table(title=f"{report.program.name}: {behaviour} in {report.program.runs} runs of each build")
        for title in ("measure", "plain -Oz", "policy", "change"):
            table.add_column(title, justify="left" if title == "measure" else "right")
        for measure in ("objects", "text", "image"):
            table.add_row(_TITLES[measure], *_cells(before, after, measure))
        console.print(table)
    table = Table(title="spent")
    for title in ("stage", "seconds", "compilations"):
        table.add_column(title, justify="left" if title == "stage" else "right")
    for stage in report.stages:
        name = f"{stage.stage} (reused)" if stage.reused else stage.stage
        table.add_row(name, f"{stage.seconds:.0f}", str(stage.compilations or ""))
    total = sum(stage.seconds for stage in report.stages)
    table.add_row("all", f"{total:.0f}", str(sum(stage.compilations for stage in report.stages)))
    console.print(table)


def _project_cells(project: ProjectComparison) -> list[str]:
    objects = _cells(project.before, project.after, "objects")
    image = _cells(project.before, project.after, "image")
    return [
        project.project,
        project.language,
        str(project.modules),
        f"{objects[0]} -> {objects[1]}",
        objects[2],
        _cells(project.before, project.after, "text")[2],
        f"{image[0]} -> {image[1]}",
        image[2],
    ]


def _cells(before: Sizes, after: Sizes, measure: str) -> tuple[str, str, str]:
    old, new = getattr(before, measure), getattr(after, measure)
    return f"{old:,.0f}", f"{new:,.0f}", percent(relative_change(old, new))
