"""The table of a run: a row of numbers for each turn, as JSON for programs and CSV for spreadsheets."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlgokit.errors import InputError
from mlgokit.files import atomic_write
from mlgokit.manifest import finite_json

ROWS_NAME = "turns.json"
CSV_NAME = "metrics.csv"

Row = Mapping[str, float]
"""Numbers by name; NaN for what was not measured in that turn."""


def write_metrics(folder: Path, rows: Sequence[Row]) -> None:
    """Write both files; in JSON null, in CSV nothing stands for a number that is not finite.

    Raises:
        StorageError: the disk is full or not writable.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(names)
    lines.writerows(finite_json([row.get(name, math.nan) for name in names]) for row in rows)
    atomic_write(folder / CSV_NAME, text.getvalue())
    atomic_write(folder / ROWS_NAME, json.dumps(finite_json(rows), allow_nan=False))


def rounds_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Each turn by itself: what it cost, what failed in it, and the learner's own numbers, as JSON values.

    Example:
        >>> rows = [{"turn": 1, "compilations": 9, "user_seconds": 2.0, "seconds": 1.0, "failed/boom": 1,
        ...          "learner/flips": 8.0, "learner/gate/set/margin": 2.0}]
        >>> (first,) = rounds_of(rows)
        >>> first["flips"], first["failures"], first["gate"][0]["margin"]
        (8, {'boom': 1}, 2.0)
    """
    found: list[dict[str, Any]] = []
    for before, row in zip([{}, *rows], rows, strict=False):

        def spent(name: str, before: Row = before, row: Row = row) -> float:
            return row[name] - before.get(name, 0)

        known = {name: value for name, value in row.items() if not math.isnan(value)}
        mine = _below("learner/", known)
        found.append(
            {
                "round": int(row["turn"]) - 1,
                "compilations": int(spent("compilations")),
                "user_seconds": spent("user_seconds"),
                "wall_seconds": spent("seconds"),
                "failures": {reason: int(count) for reason, count in _below("failed/", known).items()},
                "validation_gain": row.get("validation_gain", math.nan),
                "reward": row.get("reward", math.nan),
                **{name: _counted(value) for name, value in mine.items() if "/" not in name},
                "gate": _gate(mine),
            }
        )
    return found


def _counted(value: float) -> float:
    return int(value) if value.is_integer() else value


def _below(prefix: str, row: Row) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def _gate(numbers: Row) -> list[dict[str, Any]]:
    """What a gate rests on, side by side; the margin of a closed side is infinite."""
    sides = {side: _below(f"gate/{side}/", numbers) for side in ("unset", "set")}
    return [
        {
            "feature_is_set": side == "set",
            "departures": int(facts.get("departures", 0)),
            "saved_bytes": facts.get("saved_bytes", 0.0),
            "error_bytes": facts.get("error_bytes", 0.0),
            "alone_saved_bytes": facts.get("alone_saved_bytes", 0.0),
            "alone_error_bytes": facts.get("alone_error_bytes", 0.0),
            "margin": facts.get("margin", math.inf),
        }
        for side, facts in sides.items()
        if facts
    ]


def _number(value: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"expected a number, found {value!r:.100}")
    return value


def read_metrics(folder: Path) -> list[Row]:
    """The rows that were written.

    Raises:
        InputError: the file is missing or no such file.
    """
    path = folder / ROWS_NAME
    try:
        found = json.loads(path.read_bytes())
        return [{name: _number(value) for name, value in row.items()} for row in found]
    except (OSError, ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"metrics {path}: expected the rows of the checkpoint beside it, found: {error}; "
            "delete the checkpoint to start the training anew"
        ) from error
