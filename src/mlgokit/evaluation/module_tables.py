"""What the page of an evaluation says of single modules and functions, worst first."""

import math
from collections.abc import Sequence

from mlgokit.evaluation.functions import differing_functions
from mlgokit.evaluation.records import (
    BITCODE,
    OK,
    BuiltModule,
    FunctionBytes,
    ModuleComparison,
    ProjectComparison,
)
from mlgokit.pages.model import Part, Scatter, Table, percent, relative_change

MOST_FUNCTIONS = 1000
"""Functions on the page that grew most, and as many that shrank most; the JSON has all."""
NONE = "-"
"""Stands for a number that is not there."""


def module_parts(rows: list[tuple[str, ModuleComparison]]) -> list[Part | None]:
    """The scatter plot and the table that it points into; link-time optimization leaves no sizes of objects."""
    if not rows:
        return []
    rows = sorted(rows, key=lambda pair: _module_place(pair[1]))
    both = [row.before.status == row.after.status == OK for _, row in rows]
    table = Table(
        title="Modules, worst first",
        columns=(
            "module", "project", "before", "after", "difference", "change", "functions that differ", "seconds before",
            "seconds after",
        ),
        rows=tuple(
            (
                row.module,
                project,
                _module_cell(row.before),
                _module_cell(row.after),
                _signed(row.after.objects - row.before.objects) if sized else NONE,
                percent(relative_change(row.before.objects, row.after.objects)) if sized else NONE,
                f"{len(row.differing):,} of {row.functions:,}",
                f"{row.before.user_seconds:.2f}",
                f"{row.after.user_seconds:.2f}",
            )
            for sized, (project, row) in zip(both, rows, strict=True)
        ),
        words=2,
        note="Bytes of objects, each whole: text, read-only data and unwind tables. Those that failed come first.",
    )  # fmt: skip
    if not any(sized and row.before.objects for sized, (_, row) in zip(both, rows, strict=True)):
        return [table]
    scatter = Scatter(
        title="Change by size of the module",
        unit="bytes",
        before=tuple(row.before.objects if sized else None for sized, (_, row) in zip(both, rows, strict=True)),
        after=tuple(row.after.objects if sized else None for sized, (_, row) in zip(both, rows, strict=True)),
        note="One point for each module that compiles on both sides: discs shrank, triangles grew, small squares are "
        "the same. The slider goes through them by their change.",
    )
    return [scatter, table]


def _module_place(row: ModuleComparison) -> tuple[bool, int]:
    """Failures first, then by growth in bytes."""
    whole = {row.before.status, row.after.status} <= {OK, BITCODE}
    return whole, row.before.objects - row.after.objects


def _module_cell(module: BuiltModule) -> str:
    return f"{module.objects:,}" if module.status == OK else module.status.replace("_", " ")


def function_table(projects: Sequence[ProjectComparison], *, by_cost: bool) -> Table:
    """Functions that differ, those in the middle left out if there are many."""
    found = differing_functions(projects, by_cost=by_cost)
    has_costs = any(one.has_costs for one in found)
    kept = found if len(found) <= 2 * MOST_FUNCTIONS else [*found[:MOST_FUNCTIONS], *found[-MOST_FUNCTIONS:]]
    rows: list[tuple[str, ...]] = []
    for one in kept:
        before, after = one.before, one.after
        first, *others = one.where
        more = f" and {len(others):,} more" if others else ""
        change = relative_change(before.total, after.total) if before is not None and after is not None else math.nan
        costs = (_cost_cell(before), _cost_cell(after)) if has_costs else ()
        rows.append(
            (
                one.function,
                f"{first}{more}",
                one.project,
                "absent" if before is None else f"{before.total:,}",
                "absent" if after is None else f"{after.total:,}",
                _signed(one.growth),
                percent(change) if math.isfinite(change) else NONE,
                *costs,
            )
        )
    cut = f" These are the {MOST_FUNCTIONS:,} first and the {MOST_FUNCTIONS:,} last of {len(found):,}."
    return Table(
        title="Functions, worst first",
        columns=("function", "module", "project", "before", "after", "difference", "change")
        + (("cost before", "cost after") if has_costs else ()),
        rows=tuple(rows),
        words=3,
        note="Functions that are not the same on both sides, by "
        + ("their costs" if by_cost else "bytes")
        + "; one that is absent was inlined everywhere, or is not needed any more."
        + (cut if len(found) > len(kept) else ""),
        symbols=True,
    )


def _signed(difference: float) -> str:
    return f"{difference:+,.0f}" if difference else "0"


def _cost_cell(function: FunctionBytes | None) -> str:
    return NONE if function is None or function.cost is None else f"{function.cost:,.3g}"
