"""The report of a training: turns, validation by project and module, and the policy's gate."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mlgokit.learning.record import Round, TrainingRecord
from mlgokit.learning.validation import ValidatedModule
from mlgokit.pages.model import (
    Cell,
    Curve,
    Curves,
    Page,
    Part,
    Scatter,
    Table,
    before_after_cells,
    before_after_columns,
    change_columns,
    count_columns,
    drop_empty,
    number_columns,
    percent,
    relative_change,
    text_columns,
    waterfall,
)

_COUNTS = {"flips", "components"}
"""Learner metrics that are shown in the table of turns only, not as a plot."""
_MOST_PLOTS = 6
"""Maximum learner metrics that are plotted."""


def training_page(record: TrainingRecord, extra: Sequence[Part] = ()) -> Page:
    """Make the page of a training.

    Args:
        record: record of the training.
        extra: parts that are inserted before the last tables, such as feature importance.
    """
    parts: list[Part | None] = [
        _gain_plot(record.rounds),
        *_number_plots(record.rounds),
        *_validation_parts(record.judged_modules),
        *extra,
        _turn_table(record.rounds),
        _gate_table(record.rounds),
        _left_out_table(record),
    ]
    return Page(
        title=f"{record.policy}: {record.algorithm or 'a learner'} on {record.problem or 'a problem'}",
        headline=_headline(record),
        sentences=tuple(_sentences(record)),
        parts=drop_empty(parts),
        command=record.command,
        facts=tuple(_facts(record)),
    )


def _headline(record: TrainingRecord) -> str:
    """Say the best gain in validation, and in which turn it was."""
    gain = record.counters.get("best_gain", math.nan)
    if math.isfinite(gain):
        turn = record.counters["best_turn"]
        return f"In validation, {percent(-gain)} against LLVM's heuristic at turn {turn:.0f} of {len(record.rounds)}."
    return f"{len(record.rounds):,} turns without validation."


def _sentences(record: TrainingRecord) -> Iterable[str]:
    """Say the number of modules and the cost of the training."""
    counters = record.counters
    yield (
        f"{record.taught:,} training modules, {record.judged:,} validation modules. "
        f"{counters.get('compilations', 0):,.0f} compilations, {counters.get('failed', 0):,.0f} of them failed; "
        f"{counters.get('user_seconds', 0) / 60:.1f} minutes of processor time, "
        f"{counters.get('seconds', 0) / 60:.1f} minutes in all. Negative is smaller."
    )
    yield ("Validation is not an evaluation: mlgokit evaluate measures the policy on held-out projects.")


def _gain_plot(rounds: Sequence[Round]) -> Curves | None:
    """Plot the change of the score by turn, in validation and while exploring."""
    values = {
        "in validation": [(turn.round + 1, -100 * turn.validation_gain) for turn in rounds],
        "while exploring, mean of the turn": [(turn.round + 1, -100 * turn.reward) for turn in rounds],
    }
    curves = [Curve(name=name, points=finite) for name, points in values.items() if (finite := _finite(points))]
    if not curves:
        return None
    return Curves(
        title="Change of the score by turn",
        axes=("turn", "change against LLVM's heuristic, %"),
        curves=tuple(curves),
        note="Scores of training compilations include exploration, so they are worse than those of the policy alone.",
    )


def _number_plots(rounds: Sequence[Round]) -> list[Curves]:
    """Plot the learner metrics that change between turns."""
    names = [name for name in dict.fromkeys(name for turn in rounds for name in turn.numbers) if name not in _COUNTS]
    plots: list[Curves] = []
    for name in names:
        points = tuple(
            (turn.round + 1, turn.numbers[name]) for turn in rounds if math.isfinite(turn.numbers.get(name, math.nan))
        )
        if len({value for _, value in points}) > 1:
            title = name.replace("_", " ").replace("/", ", ")
            plots.append(
                Curves(title=title.capitalize(), axes=("turn", title), curves=(Curve(name=title, points=points),))
            )
    return plots[:_MOST_PLOTS]


def _validation_parts(rows: Sequence[ValidatedModule]) -> list[Part | None]:
    """Make the waterfall by project, the scatter plot and the table of the validation modules."""
    if not rows:
        return []
    by_project: dict[str, list[ValidatedModule]] = defaultdict(list)
    for module in rows:
        by_project[module.project].append(module)
    sums = [
        (name, sum(module.before for module in of_project), sum(module.after for module in of_project))
        for name, of_project in by_project.items()
    ]
    steps = [(name, after - before, relative_change(before, after)) for name, before, after in sums]
    order = sorted(rows, key=lambda module: (module.before - module.after, module.module))
    table = Table(
        title="Validation modules, worst first",
        columns=(
            *text_columns("module", "project"),
            *before_after_columns("by LLVM", "by the policy"),
        ),
        rows=tuple(
            (
                module.module,
                module.project,
                *before_after_cells(module.before, module.after),
            )
            for module in order
        ),
        note="Scores at the best turn.",
    )
    scatter = Scatter(
        title="Change by score of the module",
        unit="score",
        before=tuple(round(module.before) for module in order),
        after=tuple(round(module.after) for module in order),
        note="One point for each validation module: discs shrank, triangles grew, small squares are the same. The "
        "slider goes through them by their change.",
    )
    return [waterfall("What each project adds", ("project", "score"), steps, "Scores of the validation modules"),
            scatter, table]  # fmt: skip


def _turn_table(rounds: Sequence[Round]) -> Table:
    """Make the table of turns with all metrics."""
    names = list(dict.fromkeys(name for turn in rounds for name in turn.numbers))
    return Table(
        title="Turns",
        columns=(
            *count_columns("turn", "compilations", "failed"),
            *number_columns("processor seconds", "seconds"),
            *change_columns("in validation", "reward"),
            *number_columns(*(name.replace("_", " ") for name in names)),
        ),
        rows=tuple(
            (
                turn.round + 1,
                turn.compilations,
                sum(turn.failures.values()),
                f"{turn.user_seconds:,.1f}",
                f"{turn.wall_seconds:,.1f}",
                -turn.validation_gain,
                -turn.reward,
                *(_number(turn.numbers.get(name, math.nan)) for name in names),
            )
            for turn in rounds
        ),
    )


def _gate_table(rounds: Sequence[Round]) -> Table:
    """Make the table of the evidence on each side of the gate, by turn."""
    rows = tuple(
        (
            f"{turn.round + 1}",
            "set" if side.feature_is_set else "not set",
            f"{side.departures:,}",
            f"{-side.saved_bytes:+,.0f}",
            f"{side.error_bytes:,.0f}",
            f"{-side.alone_saved_bytes:+,.0f}",
            f"{side.alone_error_bytes:,.0f}",
            f"{side.margin:,.3g}" if math.isfinite(side.margin) else "closed",
        )
        for turn in rounds
        for side in turn.gate
    )
    return Table(
        title="The gate",
        columns=(
            *text_columns("turn", "gate feature"),
            *number_columns(
                "departures from LLVM",
                "bytes",
                "standard error",
                "bytes in projects without the feature",
                "standard error there",
                "margin",
            ),
        ),
        rows=rows,
        note="Effect of departures from LLVM's decision that ensemble members predicted to save bytes, on projects "
        "outside their training set. If they saved nothing, the gate leaves the decision to LLVM. Where the feature is "
        "not set, departures must also have saved bytes in projects without the feature, such as those in C.",
    )  # fmt: skip


def _left_out_table(record: TrainingRecord) -> Table:
    """Count the modules that were left out and the compilations that failed, by reason."""
    failures: dict[str, int] = defaultdict(int)
    for turn in record.rounds:
        for why, count in turn.failures.items():
            failures[why] += count
    rows = [(why, "module, left out", count) for why, count in record.left_out.items()]
    rows += [(why, "compilation, failed", count) for why, count in failures.items()]
    return Table(
        title="Modules left out, and failed compilations",
        columns=(*text_columns("reason", "what"), *count_columns("number")),
        rows=tuple(rows),
    )


def _facts(record: TrainingRecord) -> Iterable[tuple[str, str]]:
    yield "mlgokit", record.mlgokit_version or "unknown"
    yield from record.toolchain.items()
    yield "corpus", record.source or "unknown"
    yield "policy", record.policy
    yield from record.settings.items()


def _finite(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Keep the points whose value is finite."""
    return tuple(point for point in points if math.isfinite(point[1]))


def _number(value: float) -> Cell:
    return f"{value:,.5g}" if math.isfinite(value) else None
