"""The result of a run as Markdown, for repositories and reviews; ``results.json`` is its machine-readable twin."""

import re
from collections.abc import Sequence

from mlgokit.evaluation.records import MEASURES, Evaluation, Sizes
from mlgokit.evaluation.report import RunReport
from mlgokit.evaluation.sentences import percent, relative_change

_MARKUP = re.compile(r"[\\|`\[\]!*]")
_TITLES = {
    "objects": "objects, llvm-size text",
    "link_aware": "objects, link-aware score",
    "text": "linked .text",
    "image": "linked image",
}

_MEANING = (
    "Image: .text + .rodata + .eh_frame (exception tables are in .rodata) of the linked file with --gc-sections. "
    "Object text: what llvm-size calls text."
)


def render_markdown(report: RunReport) -> str:
    """Versions, seed, command, sizes before and after, time and compilations."""
    parts = [
        "# Quickstart\n",
        f"Command: `{report.command}`, mlgokit {report.mlgokit_version}, seed {report.seed}.  ",
        f"Compiler: {', '.join(f'{tool} {version}' for tool, version in report.toolchain.items())}.  ",
        "Corpus: " + ", ".join(f"{count} {name}" for name, count in report.corpus.items()) + ".  ",
        f"{_MEANING}\n",
        *_evaluation(report.evaluation),
        *_program(report),
        "## Spent\n",
        *_table(
            ("stage", "seconds", "compilations"),
            [(stage.stage, f"{stage.seconds:.0f}", str(stage.compilations or "")) for stage in report.stages]
            + [
                (
                    "all",
                    f"{sum(stage.seconds for stage in report.stages):.0f}",
                    str(sum(stage.compilations for stage in report.stages)),
                )
            ],
        ),
        f"Largest processes together: {report.peak_bytes / 1e6:.0f} MB.\n",
        "## Training\n",
        *_table(
            ("round", "compilations", "user seconds", "flips so far", "labels so far", "correlation", "unattributed"),
            [
                (
                    str(entry.round + 1),
                    str(entry.compilations),
                    f"{entry.user_seconds:.0f}",
                    str(entry.flips),
                    str(entry.components),
                    f"{entry.correlation:.3f}",
                    f"{100 * entry.unattributed_share:.2f} %",
                )
                for entry in report.rounds
            ],
        ),
    ]
    return "\n".join(parts)


def _evaluation(evaluation: Evaluation) -> list[str]:
    lines: list[str] = []
    for language, changes in evaluation.summary.items():
        lines += [
            f"## Held-out projects, {language}\n",
            f"Geometric mean of {changes['image'].projects} projects, with a 95 % bootstrap interval over projects:\n",
            *_table(
                ("measure", "change", "from", "to"),
                [
                    (_TITLES[name], *(percent(value) for value in (change.mean, change.low, change.high)))
                    for name in MEASURES
                    for change in (changes[name],)
                ],
            ),
            *_table(
                ("project", "modules", "objects", "change", "linked .text", "change", "linked image", "change"),
                [
                    (
                        project.project,
                        str(project.modules),
                        *(
                            cell
                            for name in ("objects", "text", "image")
                            for cell in _cells(project.before, project.after, name)
                        ),
                    )
                    for project in evaluation.projects
                    if project.language == language
                ],
            ),
        ]
    return lines


def _program(report: RunReport) -> list[str]:
    program = report.program
    if program is None:
        return []
    behaviour = "the same output and exit code" if program.same_behaviour else "DIFFERENT behaviour"
    return [
        f"## The program {program.name}, built from source and linked by clang\n",
        f"{program.runs} runs of each build: {behaviour}.\n",
        *_table(
            ("measure", "plain -Oz -> policy", "change"),
            [(_TITLES[name], *_cells(program.before, program.after, name)) for name in ("objects", "text", "image")],
        ),
    ]


def _cells(before: Sizes, after: Sizes, measure: str) -> tuple[str, str]:
    old, new = getattr(before, measure), getattr(after, measure)
    return f"{old:,.0f} -> {new:,.0f}", percent(relative_change(old, new))


def _plain(text: str) -> str:
    """Text that is no Markdown and no HTML: names of projects are others'."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split())).replace("<", "&lt;")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[_plain(cell) for cell in row] for row in rows]
    body = ["| " + " | ".join(row) + " |" for row in (titles, ["---"] * len(titles), *cells)]
    return [*body, ""]
