"""The results of a quickstart run and their page: held-out projects, a real program, the training, and the times."""

import json
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.decode import check_format, decode
from mlgokit.evaluation.page import comparison_parts, comparison_sentences, compile_time_ratio
from mlgokit.evaluation.program import ProgramComparison
from mlgokit.evaluation.records import Evaluation, ProjectComparison
from mlgokit.files import atomic_write
from mlgokit.manifest import finite_json, plain_json
from mlgokit.pages.html import render_html
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.model import (
    Bar,
    Bars,
    Curve,
    Curves,
    Page,
    Part,
    Table,
    change_columns,
    count_columns,
    drop_empty,
    number_columns,
    percent,
    relative_change,
    text_columns,
)
from mlgokit.terminal import counted

FORMAT_VERSION = 1
RESULTS_NAME = "results.json"
FORMAT = "mlgokit run"
REPORT_NAME = "report.html"
_UNKNOWN = "unknown"
_SECTIONS = {"text": ".text", "rodata": ".rodata", "eh_frame": ".eh_frame", "image": "image"}
_PROGRAM = {"objects": "Objects", **{name: f"Linked {title}" for name, title in _SECTIONS.items()}}
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
    "Change": "after / before - 1; negative is smaller. Over several projects it is the geometric mean of their ratios "
    "minus 1, so every project counts the same.",
    "95 % interval": "Bootstrap over projects: where the change would lie for other projects like these.",
    "Held-out": "No module of the project was used in training.",
    "Flip": "One inlining decision inverted for exploration.",
    "Component": "Functions that depend on one another through flips, with their change in size: one label of the "
    "regression.",
    "Correlation": "Correlation of the predicted and the measured changes, on projects that the network was not fitted "
    "on.",
    "Unattributed": "Share of all measured changes that no flip explains.",
    "Processor seconds": "Time in user mode of the compilers, all cores added up.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """The numbers of one round of training.

    Attributes:
        user_seconds: processor time of the round's compilations.
        flips: number of flipped decisions collected so far.
        components: number of components of flips, which are the labels, so far.
        correlation: correlation of predicted and measured changes on projects outside the fit; NaN if unknown.
        unattributed_share: share of all measured changes that no flip explains, 0 to 1.
        failures: number of compilations that failed.
    """

    round: int
    compilations: int
    user_seconds: float
    flips: int
    components: int
    correlation: float
    unattributed_share: float
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """The time and compilations of a stage of the run; ``reused`` if an earlier run did it."""

    stage: str
    seconds: float
    compilations: int
    reused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """All results of a quickstart run, and the settings that repeat it; ``results.json`` in ``docs/formats.md``.

    Attributes:
        corpus: numbers of ``projects``, ``modules``, ``c++ modules`` and ``failures`` of the corpus, by these names.
        stages: stages in the order in which they ran.
        evaluation: evaluation of the policy on projects held out of training.
        program: comparison of a real program with the trained policy; ``None`` if none was built.
        policy: path and digest of the policy file.
        plugin: path of the plugin for ``clang -fpass-plugin=``.
        peak_bytes: largest resident memory of the run.
        shipped: comparison of the same program with the pretrained policies of the package, or ``None``.
        shipped_plugin: path of the plugin with these; empty in a result of an earlier version.
    """

    command: str
    mlgokit_version: str
    toolchain: dict[str, str]
    seed: int
    corpus: dict[str, int]
    stages: tuple[StageTime, ...]
    rounds: tuple[RoundReport, ...]
    evaluation: Evaluation
    program: ProgramComparison | None
    policy: str
    plugin: str
    peak_bytes: int
    shipped: ProgramComparison | None = None
    shipped_plugin: str = ""

    @property
    def policy_file(self) -> str:
        """Path of the policy file, without the digest."""
        return self.policy.partition(" (sha256 ")[0]

    def to_json(self) -> dict[str, Any]:
        """Convert the report to plain JSON values; a number that is not finite is ``None``."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **finite_json(plain_json(self))}

    @classmethod
    def from_json(cls, value: object) -> "RunReport":
        """Decode what :meth:`to_json` encoded; unknown keys are ignored.

        Raises:
            InputError: the value has another format or version, lacks a key, or has a value of another type.
        """
        remedy = "make the results again with this version"
        return decode(cls, check_format(value, FORMAT, FORMAT_VERSION, where="results", remedy=remedy), "results")


def program_sentence(program: ProgramComparison) -> str:
    """Say in one sentence how the program's size changed, and whether its behaviour is the same."""
    change = percent(relative_change(program.before.image, program.after.image))
    sizes = f"{program.name}: linked image {program.before.image:,} -> {program.after.image:,} bytes ({change})"
    if program.runs == 0:
        return f"{sizes}; it was not run."
    behaviour = "the same behaviour" if program.same_behaviour else "NOT the same behaviour"
    return f"{sizes}; {behaviour} in {counted(program.runs, 'run')}."


def list_failures(report: RunReport) -> list[tuple[str, str, str]]:
    """List everything that failed in a run: module or project, step, and reason."""
    rows: list[tuple[str, str, str]] = []
    for project in report.evaluation.projects:
        if project.link_failure:
            rows.append((project.project, "link, policy", project.link_failure))
        rows += [(failure.module, f"compile {failure.build}, policy", failure.reason) for failure in project.failures]
    rows += [
        (f"round {entry.round + 1}", "training", f"{entry.failures} of {entry.compilations} compilations failed")
        for entry in report.rounds
        if entry.failures
    ]
    for program in (report.shipped, report.program):
        if program is not None:
            rows += [
                (program.name, "run", f"different behaviour with the arguments: {difference}")
                for difference in program.differences
            ]
    return rows


def headline(evaluation: Evaluation) -> str:
    """Say the result in one sentence: the change of the linked images of the held-out C++ projects."""
    change = evaluation.summary.get("c++", {}).get("image")
    if change is None:
        return "No held-out C++ project could be built and linked, so there is no result for C++."
    projects = [project for project in evaluation.projects if project.language == "c++"]
    linked = [project for project in projects if project.is_linked]
    smaller = sum(project.after.image < project.before.image for project in linked)
    size = percent(abs(change.mean)).lstrip("+")
    outcome = "the same size as" if size == "0.00 %" else f"{size} {'smaller' if change.mean < 0 else 'larger'} than"
    if change.projects > 1:
        certainty = f"95 % interval {percent(change.low)} to {percent(change.high)}"
        if change.low <= 0 <= change.high:
            certainty += ", which includes no change"
    else:
        certainty = "a single project, so without an interval"
    unlinked = f"; {len(projects) - len(linked)} could not be linked" if len(linked) < len(projects) else ""
    return (
        f"Linked image of the held-out C++ projects: {outcome} plain -Oz ({certainty}), "
        f"{smaller} of {len(linked)} projects smaller{unlinked}."
    )


def run_page(report: RunReport, extra: Sequence[Part] = ()) -> Page:
    """Make the page of a quickstart run, with ``extra`` parts after those of the training."""
    evaluation, program = report.evaluation, report.program
    parts: list[Part | None] = [
        *comparison_parts(evaluation),
        _section_table(evaluation.projects),
        None
        if report.shipped is None
        else _program_table(report.shipped, ("A real program with the pretrained policies")),
        None if program is None else _program_table(program, "A real program"),
        *_training_parts(report.rounds),
        *extra,
        *_time_parts(report.stages),
        _failure_table(report),
        Table(title="Glossary", columns=text_columns("word", "meaning"), rows=tuple(_WORDS.items()), terminal_rows=0),
    ]
    same = all(one is None or one.runs == 0 or one.same_behaviour for one in (report.shipped, program))
    return Page(
        title="quickstart: inlining for size by a policy, against plain -Oz",
        answer="" if same else "Not the same behaviour",
        good=same,
        headline=headline(evaluation),
        sentences=tuple(_sentences(report)),
        advice=(_advice(report),),
        parts=drop_empty(parts),
        command=report.command,
        facts=tuple(_facts(report)),
    )


def _advice(report: RunReport) -> str:
    """Name the plugin with which the program is smaller, of this run's policy and of the pretrained ones."""
    own, shipped = report.program, report.shipped if report.shipped_plugin else None
    if own is not None and not own.same_behaviour and (shipped is None or not shipped.same_behaviour):
        return f"Do not use it: {own.name} does not behave the same with it, as the failures say."
    use = f"add -fpass-plugin={shlex.quote(report.plugin)} to the options of clang"
    if own is None or shipped is None:
        return f"Use it: {use}."
    pretrained = f"add -fpass-plugin={shlex.quote(report.shipped_plugin)} to the options of clang"
    sizes = f"{own.name} has {shipped.after.image:,} bytes with them, and {own.after.image:,} with this run's policy"
    if shipped.same_behaviour and (shipped.after.image <= own.after.image or not own.same_behaviour):
        return f"Use the policies that come with mlgokit: {pretrained}; {sizes} ({shlex.quote(report.plugin)})."
    return f"Use this run's policy rather than those that come with mlgokit: {use}; {sizes}."


def write_report(report: RunReport, folder: Path, extra: Sequence[Part] = ()) -> Path:
    """Write ``results.json``, ``report.html`` and ``results.md`` into ``folder``; returns the path of the HTML file.

    Raises:
        StorageError: the disk is full or the folder is not writable.
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
    if not report.evaluation.projects:
        yield "No project was evaluated."
    yield from comparison_sentences(report.evaluation)
    ratio = compile_time_ratio(report.evaluation)
    if math.isfinite(ratio):
        yield (
            f"Compiling the held-out projects under the policy took {ratio:.3f} times the processor time of plain -Oz."
        )
    if not report.rounds:
        yield "This run did not train in rounds."


def _section_table(projects: Sequence[ProjectComparison]) -> Table:
    return Table(
        title="Sections of the linked images",
        columns=(
            *text_columns("project"),
            *count_columns(*(f"{name}, {side}" for name in _SECTIONS.values() for side in ("before", "after"))),
        ),
        rows=tuple(
            (project.project, *(getattr(side, name) for name in _SECTIONS for side in (project.before, project.after)))
            for project in projects
            if project.is_linked
        ),
        note="Bytes.",
        terminal_rows=0,
    )


def _program_table(program: ProgramComparison, title: str) -> Table:
    return Table(
        title=f"{title}: {program.name}",
        columns=(*text_columns("measure"), *count_columns("before", "after"), *change_columns("change")),
        rows=tuple(
            (title, before, after, relative_change(before, after))
            for name, title in _PROGRAM.items()
            for before, after in ((getattr(program.before, name), getattr(program.after, name)),)
        ),
        note="Bytes. Built by clang itself, linked with --gc-sections, and run both ways on the same input.",
    )


def _training_parts(rounds: Sequence[RoundReport]) -> list[Part]:
    points = tuple((one.round + 1.0, one.correlation) for one in rounds if math.isfinite(one.correlation))
    curves = Curves(
        title="How well effects are predicted",
        axes=("round", "correlation"),
        curves=(Curve(name="correlation", points=points),),
        note="Correlation of the predicted and the measured changes, on projects outside the fit.",
    )
    table = Table(
        title="Training",
        columns=count_columns(
            "round", "compilations", "processor seconds", "flips", "components", "correlation", "unattributed",
            "failures",
        ),
        rows=tuple(
            (
                one.round + 1,
                one.compilations,
                f"{one.user_seconds:,.1f}",
                one.flips,
                one.components,
                f"{one.correlation:.3f}" if math.isfinite(one.correlation) else _UNKNOWN,
                f"{100 * one.unattributed_share:.2f} %" if math.isfinite(one.unattributed_share) else _UNKNOWN,
                one.failures,
            )
            for one in rounds
        ),
        terminal_rows=0,
        note="Flips and components are all that were collected up to the end of the round.",
    )  # fmt: skip
    return [curves, table] if len(points) > 1 else [table]


def _time_parts(stages: Sequence[StageTime]) -> list[Part]:
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
    rows = tuple((one.stage, f"{one.seconds:,.1f}", one.compilations, "yes" if one.reused else "no") for one in stages)
    return [
        Bars(
            title="Where the time went",
            columns=("stage", "seconds"),
            bars=tuple(bars),
            note="Elapsed time. A stage that was reused was done by an earlier run.",
        ),
        Table(
            title="Stages",
            columns=(
                *text_columns("stage"),
                *number_columns("seconds"),
                *count_columns("compilations"),
                *number_columns("reused"),
            ),
            rows=rows,
            total=("all", f"{seconds:,.1f}", compilations, ""),
        ),
    ]


def _failure_table(report: RunReport) -> Table:
    return Table(
        title="Failures",
        columns=text_columns("where", "what", "reason"),
        rows=tuple(list_failures(report)),
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
