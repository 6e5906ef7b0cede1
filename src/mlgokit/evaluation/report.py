"""What a whole run gave: ``results.json`` for programs, ``report.html`` for people; the page needs no network.

Everywhere here a change is after / before less 1, so negative is smaller.
"""

import html
import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mlgokit.errors import InputError
from mlgokit.evaluation.decode import decode
from mlgokit.evaluation.page import page_part
from mlgokit.evaluation.program import ProgramComparison
from mlgokit.evaluation.records import Evaluation, ProjectComparison
from mlgokit.evaluation.sentences import (
    FEW_PROJECTS,
    LANGUAGES,
    MEASURES,
    compile_time_ratio,
    control_sentence,
    headline,
    is_linked,
    percent,
    relative_change,
    typeset,
)
from mlgokit.files import atomic_write
from mlgokit.manifest import finite_json, plain_json

FORMAT_VERSION = 1
RESULTS_NAME = "results.json"
REPORT_NAME = "report.html"

# At least 3:1 against both the light and the dark page.
_MEASURE_COLOURS = {"objects": "#7c8796", "text": "#c06f00", "image": "#2f7fd1"}
_SECTION_COLOURS = {"text": "#c06f00", "rodata": "#2f8f6b", "eh_frame": "#8f6fc9"}
_STAGE_COLOUR, _REUSED_COLOUR = "#2f7fd1", "#7c8796"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """One round of training.

    Attributes:
        round: counted from 0.
        compilations: compilations of the round.
        user_seconds: their processor time.
        flips: flipped decisions collected so far.
        components: labels made of them.
        correlation: of predicted and measured changes on projects not learned from; NaN if unknown.
        unattributed_share: part of all measured change that no flip explains, 0 to 1.
        failures: compilations that failed.
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
    """What a stage of the run cost; ``reused`` if an earlier run had done it."""

    stage: str
    seconds: float
    compilations: int
    reused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Everything that a run gave, and what makes it repeatable.

    Attributes:
        command: what was typed.
        mlgokit_version: of this package.
        toolchain: tool name -> version.
        seed: random seed.
        corpus: what was counted (``projects``, ``modules``, ``c++ modules``, ``failures``) -> number.
        stages: in the order in which they ran.
        rounds: of training.
        evaluation: the policy on projects held out of training.
        control: the heuristic echoed through the plugin on the same projects; about 0 everywhere.
        program: a real program, or ``None`` if none was built.
        policy: file of the policy.
        plugin: file for ``clang -fpass-plugin=``.
        peak_bytes: largest resident memory of the run.
    """

    command: str
    mlgokit_version: str
    toolchain: dict[str, str]
    seed: int
    corpus: dict[str, int]
    stages: tuple[StageTime, ...]
    rounds: tuple[RoundReport, ...]
    evaluation: Evaluation
    control: Evaluation | None
    program: ProgramComparison | None
    policy: str
    plugin: str
    peak_bytes: int

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values; a number that is not finite is ``None``."""
        return {"format_version": FORMAT_VERSION, **finite_json(plain_json(self))}

    @classmethod
    def from_json(cls, value: object) -> "RunReport":
        """The report that :meth:`to_json` gave; keys that are not known are ignored.

        Raises:
            InputError: another format version, a missing key, or a value of another type.
        """
        version = cast("dict[str, Any]", value).get("format_version") if isinstance(value, dict) else None
        if version != FORMAT_VERSION:
            raise InputError(
                f"results: expected a JSON object with format_version {FORMAT_VERSION}, found {version}; "
                "make the results again with this version"
            )
        return decode(cls, value, "results")


def program_sentence(program: ProgramComparison) -> str:
    """What became of the real program, in one sentence."""
    change = percent(relative_change(program.before.image, program.after.image))
    sizes = f"{program.name}: linked image {program.before.image:,} -> {program.after.image:,} bytes ({change})"
    if program.runs == 0:
        return f"{sizes}; it was not run."
    runs = "1 run" if program.runs == 1 else f"{program.runs} runs"
    return f"{sizes}; {'the same behaviour' if program.same_behaviour else 'NOT the same behaviour'} in {runs}."


def failures(report: RunReport) -> list[tuple[str, str, str]]:
    """Everything that went wrong: where, what, and why."""
    found: list[tuple[str, str, str]] = []
    for label, evaluation in (("policy", report.evaluation), ("control", report.control)):
        for project in evaluation.projects if evaluation is not None else ():
            if project.link_failure:
                found.append((project.project, f"link, {label}", project.link_failure))
            found += [
                (failure.module, f"compile {failure.build}, {label}", failure.reason) for failure in project.failures
            ]
    found += [
        (f"round {entry.round + 1}", "training", f"{entry.failures} of {entry.compilations} compilations failed")
        for entry in report.rounds
        if entry.failures
    ]
    if report.program is not None:
        found += [
            (report.program.name, "run", f"other behaviour of: {difference}")
            for difference in report.program.differences
        ]
    return found


def render_html(report: RunReport) -> str:
    """The page, with plotly.js and all data inside: one file, no requests."""
    # Both are heavy, and only this function needs them.
    import jinja2
    from plotly.offline import get_plotlyjs  # pyright: ignore[reportMissingTypeStubs]

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(page_part("report.html.j2")).render(
        style=page_part("page.css"),
        report=report,
        headline=headline(report.evaluation),
        program_sentence=program_sentence(report.program) if report.program else "",
        control_sentence=control_sentence(report.control) if report.control else "",
        time_ratio=compile_time_ratio(report.evaluation),
        failures=failures(report),
        tables={
            title: chosen
            for language, title in LANGUAGES.items()
            if (chosen := [project for project in report.evaluation.projects if project.language == language])
        },
        summary={
            LANGUAGES.get(language, language): changes
            for language, changes in sorted(report.evaluation.summary.items(), reverse=True)
        },
        measures=MEASURES,
        few_projects=FEW_PROJECTS,
        use=f"clang++ -Oz -fpass-plugin={shlex.quote(report.plugin)} ...",
        percent=percent,
        typeset=typeset,
        relative_change=relative_change,
        is_linked=is_linked,
        figures=finite_json(figures(report)),
        plotly=get_plotlyjs(),
    )


def write_report(report: RunReport, folder: Path) -> Path:
    """Write ``results.json`` and ``report.html`` into ``folder``; gives the path of the page.

    Raises:
        StorageError: the disk is full or the place is not writable.
    """
    page = render_html(report)
    atomic_write(folder / RESULTS_NAME, json.dumps(report.to_json(), indent=2, allow_nan=False) + "\n")
    atomic_write(folder / REPORT_NAME, page)
    return folder / REPORT_NAME


def figures(report: RunReport) -> dict[str, dict[str, Any]]:
    """Name of a plot -> ``data`` and ``layout`` as plotly.js takes them; a plot without data is left out.

    Colours of text and grid are the page's: they follow its scheme.
    """
    linked = [project for project in report.evaluation.projects if is_linked(project)]
    linked.sort(key=lambda project: relative_change(project.before.image, project.after.image))
    linked.sort(key=lambda project: project.language, reverse=True)
    drawn = {
        "changes": _change_figure(linked) if linked else None,
        "sections": _section_figure(linked) if linked else None,
        "training": _training_figure(report.rounds) if report.rounds else None,
        "time": _time_figure(report.stages) if report.stages else None,
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _labels(projects: Sequence[ProjectComparison]) -> list[str]:
    return [html.escape(project.project) + (" (C)" if project.language == "c" else "") for project in projects]


def _rows(count: int, pixels: int, **axis: object) -> dict[str, Any]:
    """Layout of horizontal bars, first on top."""
    return {
        "height": 110 + pixels * count,
        "xaxis": {"zeroline": True, **axis},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "showgrid": False},
    }


def _change_figure(projects: Sequence[ProjectComparison]) -> dict[str, Any]:
    bars: list[dict[str, Any]] = []
    for measure, colour in _MEASURE_COLOURS.items():
        pairs = [(getattr(project.before, measure), getattr(project.after, measure)) for project in projects]
        bars.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": MEASURES[measure],
                "y": _labels(projects),
                "x": [100 * relative_change(*pair) for pair in pairs],
                "customdata": pairs,
                "hovertemplate": "%{y}: %{x:+.2f} %<br>%{customdata[0]:,} → %{customdata[1]:,} bytes",
                "marker": {"color": colour},
            }
        )
    layout = _rows(len(projects), 46, title={"text": "change in size"}, ticksuffix=" %")
    largest = max((change for trace in bars for change in trace["x"]), default=0.0)
    # The page fills it with its colour for growth.
    growth = {"type": "rect", "x0": 0, "x1": 1.05 * largest, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    shapes = [{**growth, "line": {"width": 0}}] if largest > 0 else []
    return {"data": bars, "layout": {"barmode": "group", "bargap": 0.3, "shapes": shapes, **layout}}


def _section_figure(projects: Sequence[ProjectComparison]) -> dict[str, Any]:
    bars: list[dict[str, Any]] = []
    for build in ("before", "after"):
        for section, colour in _SECTION_COLOURS.items():
            sizes = [getattr(getattr(project, build), section) for project in projects]
            bars.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": f".{section}",
                    "y": _labels(projects),
                    "x": [
                        100 * size / project.before.image if project.before.image else math.nan
                        for size, project in zip(sizes, projects, strict=True)
                    ],
                    "customdata": sizes,
                    "hovertemplate": f"%{{y}} {build}: %{{customdata:,}} bytes, %{{x:.1f}} % of the image before",
                    "offsetgroup": build,
                    "legendgroup": section,
                    "showlegend": build == "after",
                    "marker": {"color": colour, "opacity": 0.55 if build == "before" else 1},
                }
            )
    layout = _rows(len(projects), 40, title={"text": "share of the image before"}, ticksuffix=" %")
    return {"data": bars, "layout": {"barmode": "stack", "bargap": 0.3, **layout}}


def _training_figure(rounds: Sequence[RoundReport]) -> dict[str, Any]:
    """Two plots above each other, because two scales in one plot suggest a relation that is not there."""
    names = [f"round {entry.round + 1}" for entry in rounds]
    correlation = {"name": "correlation", "x": names, "y": [entry.correlation for entry in rounds]}
    components = {"name": "components", "x": names, "y": [entry.components for entry in rounds]}
    line, bars = {"color": _MEASURE_COLOURS["image"]}, {"color": _MEASURE_COLOURS["objects"]}
    return {
        "data": [
            {"type": "scatter", "mode": "lines+markers", "line": line, "marker": {"size": 9}, **correlation},
            {"type": "bar", "marker": bars, "yaxis": "y2", "width": 0.5, **components},
        ],
        "layout": {
            "height": 420,
            "xaxis": {"type": "category", "anchor": "y2", "showgrid": False},
            "yaxis": {"title": {"text": "correlation"}, "rangemode": "tozero", "domain": [0.56, 1], "automargin": True},
            "yaxis2": {"title": {"text": "components"}, "domain": [0, 0.44], "automargin": True},
        },
    }


def _time_figure(stages: Sequence[StageTime]) -> dict[str, Any]:
    bars = {
        "type": "bar",
        "orientation": "h",
        "showlegend": False,
        "y": [html.escape(entry.stage) + (" (reused)" if entry.reused else "") for entry in stages],
        "x": [entry.seconds for entry in stages],
        "customdata": [entry.compilations for entry in stages],
        "hovertemplate": "%{y}: %{x:.1f} s, %{customdata:,} compilations<extra></extra>",
        "marker": {"color": [_REUSED_COLOUR if entry.reused else _STAGE_COLOUR for entry in stages]},
    }
    return {"data": [bars], "layout": _rows(len(stages), 30, title={"text": "seconds"})}
