"""A benchmark's result: one JSON file for machines, and a page in Markdown with the same tables for people."""

import dataclasses
import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.errors import InputError, UsageError
from mlgokit.files import atomic_write
from mlgokit.statistics import bootstrap_interval, geometric_mean_change

FORMAT_VERSION = 1

Cell = str | int | float | None
Changes = Sequence[float] | npt.NDArray[Any]
"""Relative changes, of a project or a program each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of a result.

    Attributes:
        title: its heading.
        columns: names of the columns, with units.
        rows: one cell per column; floats are shown with four significant digits, in JSON whole.
        note: what a reader must know to read it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a benchmark found.

    Attributes:
        benchmark: its name.
        question: what it asks, one sentence.
        answer: what it found, one sentence.
        bar: what had to be reached, or empty.
        passed: whether it was, or ``None`` without a bar.
        seed: random seed.
        versions: of the tools that take part, and of the machine; the harness fills them in.
        inputs: name to digest; likewise.
        tables: the numbers.
    """

    benchmark: str
    question: str
    answer: str
    bar: str = ""
    passed: bool | None = None
    seed: int
    versions: dict[str, str] = field(default_factory=dict[str, str])
    inputs: dict[str, str] = field(default_factory=dict[str, str])
    tables: tuple[Table, ...]


def write_result(result: Result, path: Path, *, command: str) -> None:
    """Write ``result`` to ``path`` as JSON, and its page as Markdown.

    Raises:
        UsageError: ``path`` does not end with ``.json``.
        StorageError: the disk is full or not writable.
    """
    if path.suffix != ".json":
        raise UsageError(f"{path}: expected a path that ends with .json, found {path.suffix!r}; give another --json")
    values = {"format_version": FORMAT_VERSION, "command": command, "written": today(), **dataclasses.asdict(result)}
    atomic_write(path, json.dumps(values, indent=1, allow_nan=False) + "\n")
    atomic_write(page_of(path), markdown(result, command=command, written=values["written"]))


def page_of(path: Path) -> Path:
    """Where the page of the result in ``path`` is: beside it, but that of one in ``docs/data`` is in ``docs/results``.

    Example:
        >>> page_of(Path("docs/data/overhead.json")).as_posix(), page_of(Path("build/overhead.json")).as_posix()
        ('docs/results/overhead.md', 'build/overhead.md')
    """
    page = path.with_suffix(".md")
    return page.parent.parent / "results" / page.name if page.parent.parts[-2:] == ("docs", "data") else page


def markdown(result: Result, *, command: str, written: str) -> str:
    """The result for people."""
    lines = [f"# {result.benchmark.replace('_', ' ')}", "", result.question, "", f"**{result.answer}**", ""]
    if result.bar:
        verdict = "reached" if result.passed else "missed"
        lines += [f"Bar: {result.bar}: {verdict}.", ""]
    for table in result.tables:
        numeric = [all(not isinstance(row[column], str) for row in table.rows) for column in range(len(table.columns))]
        lines += [f"## {table.title}", ""]
        if table.note:
            lines += [table.note, ""]
        lines += [_row(table.columns), _row(["---:" if right else "---" for right in numeric])]
        lines += [_row([shown(cell) for cell in row]) for row in table.rows]
        lines += [""]
    lines += ["## How it was made", "", "```sh", command, "```", ""]
    lines += [f"- seed: {result.seed}", f"- written: {written}"]
    lines += [f"- {name}: {value}" for name, value in result.versions.items()]
    lines += [f"- {name}: sha256 {value}" for name, value in result.inputs.items()]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A result that was written.

    Attributes:
        result: what was found.
        command: what made it.
        written: the date.
    """

    result: Result
    command: str
    written: str


def read_result(path: Path) -> Written:
    """The result in ``path``, as :func:`write_result` wrote it.

    Raises:
        InputError: it cannot be read, or is no result.
    """
    try:
        values = json.loads(path.read_bytes())
        names = {part.name for part in dataclasses.fields(Result)} - {"tables"}
        tables = [
            Table(
                title=table["title"],
                columns=tuple(table["columns"]),
                rows=tuple(tuple(row) for row in table["rows"]),
                note=table["note"],
            )
            for table in values["tables"]
        ]
        result = Result(**{name: values[name] for name in names}, tables=tuple(tables))
        return Written(result=result, command=str(values["command"]), written=str(values["written"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: expected a result that a benchmark wrote, found: {error}; write it again") from error


def rendered(path: Path) -> str:
    """The Markdown of the result in ``path``.

    Raises:
        InputError: it cannot be read, or is no result.
    """
    found = read_result(path)
    return markdown(found.result, command=found.command, written=found.written)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shown(cell: Cell) -> str:
    """One cell as text.

    Example:
        >>> [shown(cell) for cell in (1.23456, 0.0, 12345.6, 12345, None, "text")]
        ['1.235', '0', '12346', '12345', '', 'text']
    """
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return str(cell)


def today() -> str:
    """The date in UTC, as 2025-01-31."""
    return dt.datetime.now(dt.UTC).date().isoformat()


def percent(change: float) -> str:
    """A change for people.

    Example:
        >>> percent(-0.0414)
        '-4.14 %'
    """
    return f"{100 * change:+.2f} %"


def quartiles(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile.

    Example:
        >>> quartiles(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
        (2.0, 3.0, 4.0)
    """
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return low, middle, high


def mean_change(changes: Changes) -> float:
    """The change of the geometric mean.

    Example:
        >>> round(mean_change([-0.1, -0.6]), 6)
        -0.4
    """
    return geometric_mean_change(np.ones(len(changes)), 1 + np.asarray(changes))


def interval_of(changes: Changes, rng: np.random.Generator) -> tuple[float, float]:
    """Between which mean changes others of the kind would lie, in 95 % of cases; one change is its own interval.

    Example:
        >>> interval_of([-0.1], np.random.default_rng(1))
        (-0.1, -0.1)
        >>> low, high = interval_of([-0.1, -0.2, -0.3], np.random.default_rng(1))
        >>> -0.31 < low < mean_change([-0.1, -0.2, -0.3]) < high < -0.09
        True
    """
    if len(changes) < 2:
        return float(changes[0]), float(changes[0])
    return bootstrap_interval(np.ones(len(changes)), 1 + np.asarray(changes), rng=rng)
