"""The report of a training: each turn, the validation by project and module, and the gate."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mlgokit.evaluation.page_bars import waterfall
from mlgokit.evaluation.page_parts import Curve, Curves, Page, Part, Scatter, TextTable
from mlgokit.evaluation.sentences import percent, relative_change
from mlgokit.learning.record import Round, TrainingRecord
from mlgokit.learning.validation import ValidatedModule

_COUNTS = {"flips", "components"}
"""Numbers of a learner that are in the table of turns, and have no plot."""
_MOST_PLOTS = 6
_NONE = "-"


def training_page(found: TrainingRecord, extra: Sequence[Part] = ()) -> Page:
    """Make the page of a training.

    Args:
        found: the record.
        extra: parts before the last tables, such as the importance of features.
    """
    parts: list[Part | None] = [
        _gains(found.rounds),
        *_plots(found.rounds),
        *_judged(found.judged_modules),
        *extra,
        _turns(found.rounds),
        _gates(found.rounds),
        _left_out(found),
    ]
    return Page(
        title=f"{found.policy}: {found.algorithm or 'a learner'} on {found.problem or 'a problem'}",
        answer="",
        good=True,
        headline=_headline(found),
        sentences=tuple(_sentences(found)),
        parts=tuple(part for part in parts if part is not None and not (isinstance(part, TextTable) and not part.rows)),
        command=found.command,
        facts=tuple(_facts(found)),
    )


def _headline(found: TrainingRecord) -> str:
    judged = [one for one in found.rounds if math.isfinite(one.validation_gain)]
    if judged:
        best = max(judged, key=lambda one: one.validation_gain)
        return (
            f"In validation, {percent(-best.validation_gain)} against LLVM's heuristic at turn {best.round + 1} of "
            f"{len(found.rounds)}."
        )
    return f"{len(found.rounds):,} turns without validation."


def _sentences(found: TrainingRecord) -> Iterable[str]:
    counters = found.counters
    yield (
        f"{found.taught:,} modules taught, {found.judged:,} judged. {counters.get('compilations', 0):,.0f} "
        f"compilations, {counters.get('failed', 0):,.0f} of them failed; {counters.get('user_seconds', 0) / 60:.1f} "
        f"minutes of processor time, {counters.get('seconds', 0) / 60:.1f} minutes in all. Negative is smaller."
    )
    yield (
        "Validation is no result: mlgokit evaluate says what the policy does to projects that no part of it has seen."
    )


def _gains(rounds: Sequence[Round]) -> Curves | None:
    values = {
        "in validation": [(one.round + 1, -100 * one.validation_gain) for one in rounds],
        "while exploring, mean of the turn": [(one.round + 1, -100 * one.reward) for one in rounds],
    }
    curves = [Curve(name=name, points=found) for name, points in values.items() if (found := _finite(points))]
    if not curves:
        return None
    return Curves(
        title="Change of the score by turn",
        axes=("turn", "change against LLVM's heuristic, %"),
        curves=tuple(curves),
        note="Scores of the learner's own compilations have its exploration in them, so that they are worse than the "
        "policy alone.",
    )


def _plots(rounds: Sequence[Round]) -> list[Curves]:
    """The learner's own numbers that vary."""
    names = [name for name in dict.fromkeys(name for one in rounds for name in one.numbers) if name not in _COUNTS]
    found: list[Curves] = []
    for name in names:
        points = tuple(
            (one.round + 1, one.numbers[name]) for one in rounds if math.isfinite(one.numbers.get(name, math.nan))
        )
        if len({value for _, value in points}) > 1:
            title = name.replace("_", " ").replace("/", ", ")
            found.append(
                Curves(title=title.capitalize(), axes=("turn", title), curves=(Curve(name=title, points=points),))
            )
    return found[:_MOST_PLOTS]


def _judged(rows: Sequence[ValidatedModule]) -> list[Part | None]:
    if not rows:
        return []
    by_project: dict[str, list[ValidatedModule]] = defaultdict(list)
    for one in rows:
        by_project[one.project].append(one)
    sums = [
        (name, sum(one.before for one in chosen), sum(one.after for one in chosen))
        for name, chosen in by_project.items()
    ]
    steps = [(name, after - before, relative_change(before, after)) for name, before, after in sums]
    order = sorted(rows, key=lambda one: (one.before - one.after, one.module))
    table = TextTable(
        title="Modules that judged, worst first",
        columns=("module", "project", "by LLVM", "by the policy", "difference", "change"),
        rows=tuple(
            (one.module, one.project, f"{one.before:,.0f}", f"{one.after:,.0f}", _signed(one.after - one.before),
             _percent(one.before, one.after))
            for one in order
        ),
        words=2,
        note="Scores at the turn that was judged best.",
    )  # fmt: skip
    scatter = Scatter(
        title="Change by score of the module",
        unit="score",
        before=tuple(round(one.before) for one in order),
        after=tuple(round(one.after) for one in order),
        note="One point for each module that judged: discs shrank, triangles grew, small squares are the same. The "
        "slider goes through them by their change.",
    )
    return [waterfall("What each project adds", ("project", "score"), steps, "Scores of the modules that judged"),
            scatter, table]  # fmt: skip


def _turns(rounds: Sequence[Round]) -> TextTable:
    names = list(dict.fromkeys(name for one in rounds for name in one.numbers))
    return TextTable(
        title="Turns",
        columns=("turn", "compilations", "failed", "processor seconds", "seconds", "in validation", "reward",
                 *(name.replace("_", " ") for name in names)),
        rows=tuple(
            (
                f"{one.round + 1}",
                f"{one.compilations:,}",
                f"{sum(one.failures.values()):,}",
                f"{one.user_seconds:,.1f}",
                f"{one.wall_seconds:,.1f}",
                _gain(one.validation_gain),
                _gain(one.reward),
                *(_number(one.numbers.get(name, math.nan)) for name in names),
            )
            for one in rounds
        ),
        words=0,
    )  # fmt: skip


def _gates(rounds: Sequence[Round]) -> TextTable:
    rows = tuple(
        (
            f"{one.round + 1}",
            "set" if side.feature_is_set else "not set",
            f"{side.departures:,}",
            f"{-side.saved_bytes:+,.0f}",
            f"{side.error_bytes:,.0f}",
            f"{-side.alone_saved_bytes:+,.0f}",
            f"{side.alone_error_bytes:,.0f}",
            f"{side.margin:,.3g}" if math.isfinite(side.margin) else "closed",
        )
        for one in rounds
        for side in one.gate
    )
    return TextTable(
        title="The gate",
        columns=("turn", "its feature", "departures from LLVM", "bytes", "standard error",
                 "bytes in projects without the feature", "standard error there", "margin"),
        rows=rows,
        words=2,
        note="What departures did that members foretold to save, on projects that they had not seen. Where that is no "
        "saving, the gate leaves the decision to LLVM. Where the feature is not set, departures must have saved in "
        "projects without the feature, too, if there are some, such as those in C.",
    )  # fmt: skip


def _left_out(found: TrainingRecord) -> TextTable:
    failures: dict[str, int] = defaultdict(int)
    for one in found.rounds:
        for why, count in one.failures.items():
            failures[why] += count
    rows = [(why, "module, left out", f"{count:,}") for why, count in found.left_out.items()]
    rows += [(why, "compilation, failed", f"{count:,}") for why, count in failures.items()]
    return TextTable(title="Left out, and failed", columns=("reason", "what", "how many"), rows=tuple(rows), words=2)


def _facts(found: TrainingRecord) -> Iterable[tuple[str, str]]:
    yield "mlgokit", found.mlgokit_version or "unknown"
    yield from found.toolchain.items()
    yield "corpus", found.source or "unknown"
    yield "policy", found.policy
    yield from found.settings.items()


def _finite(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    return tuple(point for point in points if math.isfinite(point[1]))


def _gain(value: float) -> str:
    return percent(-value) if math.isfinite(value) else _NONE


def _number(value: float) -> str:
    return f"{value:,.5g}" if math.isfinite(value) else _NONE


def _signed(difference: float) -> str:
    return f"{difference:+,.0f}" if round(difference) else "0"


def _percent(before: float, after: float) -> str:
    change = relative_change(before, after)
    return percent(change) if math.isfinite(change) else _NONE
