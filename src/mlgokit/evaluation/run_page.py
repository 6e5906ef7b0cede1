"""A whole run as a page: the held-out projects, a real program, the training, where the time went."""

import json
import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlgokit.evaluation.page import comparison_parts
from mlgokit.evaluation.program import ProgramComparison
from mlgokit.evaluation.records import ProjectComparison
from mlgokit.evaluation.run import (
    REPORT_NAME,
    RESULTS_NAME,
    RoundReport,
    RunReport,
    StageTime,
    failures,
    program_sentence,
)
from mlgokit.evaluation.sentences import compile_time_ratio, control_sentence, headline, is_linked
from mlgokit.files import atomic_write
from mlgokit.pages.html import render_html
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.model import Bar, Bars, Curve, Curves, Page, Part, Table, percent, relative_change

_UNKNOWN = "unknown"
_SECTIONS = {"text": ".text", "rodata": ".rodata", "eh_frame": ".eh_frame", "image": "image"}
_PROGRAM = {
    "objects": "Objects",
    **{name: f"Linked {title}" for name, title in _SECTIONS.items()},
}
_WORDS = {
    "Objects": "Sum over a project's object files of what llvm-size calls text: .text + .rodata + .eh_frame. It counts "
    "a C++ inline function once for every object that has a copy, although the linker keeps one.",
    "Objects, link-aware": "The same bytes, but those of a COMDAT that k objects of the plain build define count 1/k. "
    "By default, training makes this smaller.",
    "Linked image": ".text + .rodata + .eh_frame after linking all objects with --gc-sections: what ships. A library "
    "is linked with the strong definitions of its plain build as roots, the same for both builds.",
    "Linked .text": "Machine code in the linked image.",
    ".rodata": "Read-only data in the linked image, exception tables included.",
    ".eh_frame": "Unwind tables in the linked image: a few dozen bytes for every function, so that inlining a function "
    "away for good saves them.",
    "Change": "after / before less 1; negative is smaller. Over several projects it is that of the geometric mean of "
    "their ratios, so every project counts the same.",
    "95 % interval": "Bootstrap over projects: where the change would lie for other projects like these.",
    "Held-out": "No module of the project was used in training.",
    "Control": "The plugin answering with LLVM's own decision every time. Differences come from LLVM's advisor for "
    "machine-learned inlining, which stops when the module has grown too much, not from the policy.",
    "Flip": "One inlining decision turned round for exploration.",
    "Component": "Functions that depend on one another through flips, with their change in size: one label of the "
    "regression.",
    "Correlation": "Of the predicted and the measured changes, on projects that the network did not learn from.",
    "Unattributed": "Part of all measured change that no flip explains.",
    "Processor seconds": "Time in user mode of the compilers, all cores added up.",
}


def run_page(report: RunReport, extra: Sequence[Part] = ()) -> Page:
    """The page of a whole run, with parts of another making after those of the training."""
    evaluation, program = report.evaluation, report.program
    parts: list[Part | None] = [
        *comparison_parts(evaluation),
        _sections(evaluation.projects),
        None if report.shipped is None else _program(report.shipped, "A real program by what comes with mlgokit"),
        None if program is None else _program(program, "A real program"),
        *_training(report.rounds),
        *extra,
        *_time(report.stages),
        _failures(report),
        Table(title="Glossary", columns=("word", "meaning"), rows=tuple(_WORDS.items()), words=2),
    ]
    same = all(one is None or one.runs == 0 or one.same_behaviour for one in (report.shipped, program))
    return Page(
        title="quickstart: inlining for size by a policy, against plain -Oz",
        answer="" if same else "Not the same behaviour",
        good=same,
        headline=headline(evaluation),
        sentences=tuple(_sentences(report)),
        parts=tuple(part for part in parts if part is not None and not (isinstance(part, Table) and not part.rows)),
        command=report.command,
        facts=tuple(_facts(report)),
    )


def write_report(report: RunReport, folder: Path, extra: Sequence[Part] = ()) -> Path:
    """Write ``results.json``, ``report.html`` and ``results.md`` into ``folder``; gives the path of the HTML.

    Raises:
        StorageError: the disk is full or the place is not writable.
    """
    page = run_page(report, extra)
    html, markdown = render_html(page), render_markdown(page)
    atomic_write(folder / RESULTS_NAME, json.dumps(report.to_json(), indent=2, allow_nan=False) + "\n")
    atomic_write(folder / REPORT_NAME, html)
    atomic_write((folder / RESULTS_NAME).with_suffix(".md"), markdown)
    return folder / REPORT_NAME


def _sentences(report: RunReport) -> Iterable[str]:
    if report.shipped is not None:
        yield f"With the policies that come with mlgokit, before any training, {program_sentence(report.shipped)}"
    if report.program is not None:
        yield program_sentence(report.program)
    yield f"Use it: add -fpass-plugin={shlex.quote(report.plugin)} to the options of clang."
    if report.control is not None:
        yield f"Control: {control_sentence(report.control)}"
    if not report.evaluation.projects:
        yield "No project was evaluated."
    ratio = compile_time_ratio(report.evaluation)
    if math.isfinite(ratio):
        yield (
            f"Compiling the held-out projects under the policy took {ratio:.3f} times the processor time of plain -Oz."
        )
    if not report.rounds:
        yield "This run did not train in rounds."


def _sections(projects: Sequence[ProjectComparison]) -> Table:
    """What linked images are made of."""
    return Table(
        title="What linked images are made of",
        columns=("project", *(f"{name}, {side}" for name in _SECTIONS.values() for side in ("before", "after"))),
        rows=tuple(
            (
                project.project,
                *(f"{getattr(side, name):,}" for name in _SECTIONS for side in (project.before, project.after)),
            )
            for project in projects
            if is_linked(project)
        ),
        note="Bytes.",
    )


def _program(program: ProgramComparison, title: str) -> Table:
    return Table(
        title=f"{title}: {program.name}",
        columns=("measure", "before", "after", "change"),
        rows=tuple(
            (title, f"{before:,}", f"{after:,}", percent(relative_change(before, after)))
            for name, title in _PROGRAM.items()
            for before, after in ((getattr(program.before, name), getattr(program.after, name)),)
        ),
        note="Bytes. Built by clang itself, linked with --gc-sections, and run both ways on the same input.",
    )


def _training(rounds: Sequence[RoundReport]) -> list[Part]:
    points = tuple((one.round + 1.0, one.correlation) for one in rounds if math.isfinite(one.correlation))
    curves = Curves(
        title="How well effects are foreseen",
        axes=("round", "correlation"),
        curves=(Curve(name="correlation", points=points),),
        note="Of the predicted and the measured changes, on projects not learned from.",
    )
    table = Table(
        title="Training",
        columns=("round", "compilations", "processor seconds", "flips", "components", "correlation", "unattributed",
                 "failures"),
        rows=tuple(
            (
                f"{one.round + 1}",
                f"{one.compilations:,}",
                f"{one.user_seconds:,.1f}",
                f"{one.flips:,}",
                f"{one.components:,}",
                f"{one.correlation:.3f}" if math.isfinite(one.correlation) else _UNKNOWN,
                f"{100 * one.unattributed_share:.2f} %" if math.isfinite(one.unattributed_share) else _UNKNOWN,
                f"{one.failures:,}",
            )
            for one in rounds
        ),
        words=0,
        note="Flips and components are all that were collected up to the end of the round.",
    )  # fmt: skip
    return [curves, table] if len(points) > 1 else [table]


def _time(stages: Sequence[StageTime]) -> list[Part]:
    if not stages:
        return []
    seconds, compilations = sum(one.seconds for one in stages), sum(one.compilations for one in stages)
    # Nothing became larger or smaller here: bars of sums have no such meaning.
    bars = [
        Bar(
            name=f"{one.stage} (reused)" if one.reused else one.stage,
            start=0,
            end=one.seconds,
            text=f"{one.seconds:,.0f} s",
            is_sum=True,
        )
        for one in stages
    ]
    rows = [
        (one.stage, f"{one.seconds:,.1f}", f"{one.compilations:,}", "yes" if one.reused else "no") for one in stages
    ]
    return [
        Bars(
            title="Where the time went",
            columns=("stage", "seconds"),
            bars=tuple(bars),
            note="Elapsed time. A stage that was reused was done by an earlier run.",
        ),
        Table(
            title="Stages",
            columns=("stage", "seconds", "compilations", "reused"),
            rows=(*rows, ("all", f"{seconds:,.1f}", f"{compilations:,}", "")),
        ),
    ]


def _failures(report: RunReport) -> Table:
    return Table(
        title="Failures",
        columns=("where", "what", "reason"),
        rows=tuple(failures(report)),
        words=3,
        note="A module that fails in one build is left out of both, a project that cannot be linked is in no summary.",
    )


def _facts(report: RunReport) -> Iterable[tuple[str, str]]:
    yield "mlgokit", report.mlgokit_version
    yield from report.toolchain.items()
    yield "seed", str(report.seed)
    yield from ((f"corpus: {what}", f"{count:,}") for what, count in report.corpus.items())
    yield "policy", report.policy
    yield "plugin", report.plugin
    yield "memory of the largest processes together", f"{report.peak_bytes / 2**20:,.0f} MiB"
