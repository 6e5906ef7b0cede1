"""The table of a run: a row of numbers for each turn, as JSON for programs and CSV for spreadsheets."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def read_metrics(folder: Path) -> list[Row]:
    """The rows that were written.

    Raises:
        InputError: the file is missing or no such file.
    """
    path = folder / ROWS_NAME
    try:
        found = json.loads(path.read_bytes())
        return [{name: math.nan if value is None else value for name, value in row.items()} for row in found]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(
            f"metrics {path}: expected the rows of the checkpoint beside it, found: {error}; "
            "delete the checkpoint to start the training anew"
        ) from error
