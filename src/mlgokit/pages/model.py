"""A page of results as values: tables, bars, points, curves and trees, and what stands above them.

Terminal, Markdown and HTML are rendered from a page. A change is after / before less 1, so negative is smaller.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

MOST_BARS = 40
"""How many have a bar of their own."""
NONE = "-"
"""Stands for a number that is not there."""


Kind = Literal["text", "count", "difference", "change", "number", "compared"]
"""What the cells of a column are: text; whole numbers, such as bytes; signed whole numbers; relative changes, shown in
per cent; other numbers, most of them formatted already; two sizes, before and after, with their change."""
Visibility = Literal["column", "below", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A size before and after."""

    before: float
    after: float


Cell = str | float | Compared | None
"""A value that its column's kind formats; a string stands as it is, and ``None`` is a dash."""
Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        title: its name.
        kind: of its cells.
        whole: of compared sizes, whether documents show before, after and change, and not the change alone.
        terminal: in the terminal, whether it is a column, is written below the row's name, or is left out.
    """

    title: str
    kind: Kind = "number"
    whole: bool = False
    terminal: Visibility = "column"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of typed cells.

    Attributes:
        title: its heading.
        columns: those of text come first.
        rows: as many cells each, in an order that says something.
        total: a last row that sums the others up, or empty.
        note: what has to be known to read it.
        symbols: whether the first column has symbols, which are shown by the names of :attr:`Page.names`.
        terminal_rows: how many rows the terminal shows, by default all; 0 leaves the table to documents.
        left_out: how many more rows there would be if it were not for the terminal alone.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    total: Row = ()
    note: str = ""
    symbols: bool = False
    terminal_rows: int | None = None
    left_out: int = 0

    @property
    def words(self) -> int:
        """How many columns are text."""
        return sum(column.kind == "text" for column in self.columns)

    def titles(self) -> tuple[str, ...]:
        """The columns of documents: compared sizes have three, or one for the change."""
        return tuple(
            title
            for column in self.columns
            for title in (("before", "after", "change") if column.whole else (column.title,))
        )

    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The cells of documents, as text, the total included."""
        rows = (*self.rows, self.total) if self.total else self.rows
        return tuple(
            tuple(text for column, cell in zip(self.columns, row, strict=True) for text in _texts(column, cell))
            for row in rows
        )

    def tones(self) -> tuple[bool, ...]:
        """Of each column of documents, whether its numbers are changes, which are good or bad news."""
        kinds = [
            kind
            for column in self.columns
            for kind in (("count", "count", "change") if column.whole else (column.kind,))
        ]
        return tuple(kind in {"change", "compared"} for kind in kinds)


def columns(kind: Kind, *titles: str, terminal: Visibility = "column") -> tuple[Column, ...]:
    """Columns of one kind."""
    return tuple(Column(title=title, kind=kind, terminal=terminal) for title in titles)


text_columns = partial(columns, "text")
count_columns = partial(columns, "count")
difference_columns = partial(columns, "difference")
change_columns = partial(columns, "change")
number_columns = partial(columns, "number")


def before_after_columns(before: str = "before", after: str = "after") -> tuple[Column, ...]:
    """Columns of sizes on both sides, of their difference and of the change; see :func:`before_after_cells`."""
    return (*count_columns(before, after), *difference_columns("difference"), *change_columns("change"))


def before_after_cells(before: Cell, after: Cell) -> tuple[Cell, ...]:
    """Both, their difference and their relative change; without the latter two where a side is no number."""
    if isinstance(before, int | float) and isinstance(after, int | float):
        return before, after, after - before, relative_change(before, after)
    return before, after, None, None


def format_cell(cell: Cell, kind: Kind) -> str:
    """A cell as text.

    Example:
        >>> format_cell(1234.0, "count"), format_cell(-3, "difference"), format_cell(0.0104, "change")
        ('1,234', '-3', '+1.04 %')
    """
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Compared):
        cell, kind = relative_change(cell.before, cell.after), "change"
    if cell is None or not math.isfinite(cell):
        return NONE
    formats = {"change": percent, "difference": format_difference, "count": "{:,.0f}".format}
    return formats.get(kind, "{:,.6g}".format)(cell)


def _texts(column: Column, cell: Cell) -> tuple[str, ...]:
    if not column.whole:
        # Why there are no sizes is said once, in the columns of the whole ones.
        return (NONE,) if column.kind == "compared" and isinstance(cell, str) else (format_cell(cell, column.kind),)
    if isinstance(cell, Compared):
        return format_cell(cell.before, "count"), format_cell(cell.after, "count"), format_cell(cell, "change")
    return (cell, cell, NONE) if isinstance(cell, str) else (NONE, NONE, NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar, from ``start`` to ``end``; a ``sum`` is drawn otherwise."""

    name: str
    start: float
    end: float
    text: str
    is_sum: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars below each other, each with its number: a waterfall if each begins where the one before ended.

    Attributes:
        title: its heading.
        columns: names of the bars, of their numbers.
        bars: top to bottom.
        note: what has to be known to read it.
    """

    title: str
    columns: tuple[str, str]
    bars: tuple[Bar, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Points of what the rows of a table, the next part of the page, have before and after.

    Attributes:
        title: its heading.
        unit: of ``before`` and ``after``.
        before: by row of the table; ``None`` where there is no point.
        after: likewise.
        note: what has to be known to read it.
    """

    title: str
    unit: str
    before: tuple[int | None, ...]
    after: tuple[int | None, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a plot: its name, and its points from left to right."""

    name: str
    points: tuple[tuple[float, float], ...]


def choose_points(points: Sequence[tuple[float, float]], most: int) -> tuple[tuple[float, float], ...]:
    """Up to ``most`` points of a curve, evenly from all; the first and the last are always there."""
    step = max(1, -(-(len(points) - 1) // (most - 1)))
    return (*points[:-1:step], *points[-1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Lines in one plot, with one scale.

    Attributes:
        title: its heading.
        axes: what is from left to right, and what from bottom to top, with units.
        curves: at most four, which differ in colour and in dashes.
        note: what has to be known to read it.
    """

    title: str
    axes: tuple[str, str]
    curves: tuple[Curve, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One line of a tree, with what belongs below it.

    Attributes:
        how: words before the name.
        symbol: what it is about, shown by its name in :attr:`Page.names`.
        marks: facts of few words, each of which stands alone.
        is_loud: whether it is one of those that the tree is for.
        note: a sentence below it.
        columns: of ``rows``; the first are words, the others numbers.
        rows: a small table that the note opens.
        branches: what is below.
    """

    how: str
    symbol: str
    marks: tuple[str, ...] = ()
    is_loud: bool = False
    note: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    branches: tuple["Branch", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A tree that is opened and closed.

    Attributes:
        symbol: its root, shown by its name in :attr:`Page.names`.
        change: what became of it, such as ``+12 bytes``.
        tone: ``smaller``, ``larger`` or empty.
        notes: sentences about the whole.
        branches: what is below the root.
    """

    symbol: str
    change: str
    tone: str = ""
    notes: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Trees below each other.

    Attributes:
        title: their heading.
        trees: top to bottom.
        note: what has to be known to read them.
        terminal_rows: how many branches of each tree the terminal shows; 0 leaves the trees to documents.
    """

    title: str
    trees: tuple[Tree, ...]
    note: str = ""
    terminal_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """An area of a treemap, as large as its number, with those inside it, the largest first."""

    name: str
    size: int
    tiles: tuple["Tile", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Treemap:
    """Areas in areas that are opened, closed and searched; documents alone have it, and tables have its numbers.

    Attributes:
        title: its heading.
        tiles: the largest first, in bytes.
        note: what has to be known to read it.
    """

    title: str
    tiles: tuple[Tile, ...]
    note: str = ""


Part = Table | Bars | Scatter | Curves | Trees | Treemap
"""The terminal shows tables and trees: the numbers of what is drawn are in a table as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that a page has.

    Attributes:
        title: what was compared.
        answer: the verdict in few words, or empty.
        good: whether that is good news.
        headline: the result in a sentence.
        number: the result as one number, which HTML shows largest; its sentences are then with how it was made.
        sentences: what else has to be known first.
        warnings: sentences without which the numbers mislead.
        advice: what to do now, a sentence each.
        parts: tables and pictures; a :class:`Scatter` comes right before its table.
        command: what was typed, or empty.
        facts: versions, seeds and files, by name.
        names: by symbol, the name that people read; symbols that are none of these are shown as they are.
    """

    title: str
    headline: str
    parts: tuple[Part, ...]
    answer: str = ""
    good: bool = True
    number: str = ""
    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    command: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict[str, str])


def drop_empty(parts: Iterable[Part | None]) -> tuple[Part, ...]:
    """The parts that are there; a table without rows is not."""
    return tuple(part for part in parts if part is not None and not (isinstance(part, Table) and not part.rows))


def relative_change(before: float, after: float) -> float:
    """Change of a size; NaN if there was nothing before.

    Example:
        >>> round(relative_change(200, 190), 6)
        -0.05
    """
    return after / before - 1 if before else math.nan


def percent(change: float) -> str:
    """A change with its sign, as people read it.

    Example:
        >>> percent(-0.02531), percent(0.0104), percent(-0.000001), percent(math.nan)
        ('-2.53 %', '+1.04 %', '0.00 %', 'unknown')
    """
    if not math.isfinite(change):
        return "unknown"
    rounded = round(100 * change, 2)
    return f"{rounded:+.2f} %" if rounded else "0.00 %"


def format_difference(difference: float) -> str:
    """A difference with its sign, but for none.

    Example:
        >>> format_difference(1234.2), format_difference(-0.3)
        ('+1,234', '0')
    """
    return f"{difference:+,.0f}" if round(difference) else "0"


def waterfall(
    title: str, columns: tuple[str, str], steps: Sequence[tuple[str, float, float]], what: str
) -> Bars | None:
    """Bars that begin where the one above ends, and the sum; nothing without steps.

    Args:
        title: its heading.
        columns: of the names, and of the numbers.
        steps: name, difference, and relative change of each.
        what: what differs, in words.
    """
    if not steps:
        return None
    by_size = sorted(steps, key=lambda step: -abs(step[1]))
    shown, others = sorted(by_size[:MOST_BARS], key=lambda step: step[1]), by_size[MOST_BARS:]
    bars: list[Bar] = []
    place = 0.0
    for name, difference, change in shown:
        bars.append(
            Bar(
                name=name,
                start=place,
                end=place + difference,
                text=f"{format_difference(difference)} ({percent(change)})",
            )
        )
        place += difference
    if others:
        more = sum(step[1] for step in others)
        bars.append(Bar(name=f"{len(others):,} others", start=place, end=place + more, text=format_difference(more)))
        place += more
    bars.append(Bar(name="all", start=0, end=place, text=format_difference(place), is_sum=True))
    return Bars(
        title=title,
        columns=columns,
        bars=tuple(bars),
        note=f"{what}: candidate minus baseline. Each bar begins where the one above ends; bars to the left are "
        "smaller, hatched bars larger.",
    )
