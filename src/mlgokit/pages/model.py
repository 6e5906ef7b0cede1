"""What a page of results has, as values: tables, bars, points, curves and trees, and what stands above them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MOST_BARS = 40
"""How many have a bar of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of words.

    Attributes:
        title: its heading.
        columns: names; the first ones are words, the others numbers.
        rows: as many cells each, in an order that says something.
        words: how many columns are words.
        note: what has to be known to read it.
        symbols: whether the first column has symbols, which are shown by the names of :attr:`Page.names`.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    note: str = ""
    symbols: bool = False


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
    """Trees below each other."""

    title: str
    trees: tuple[Tree, ...]
    note: str = ""


Part = Table | Bars | Scatter | Curves | Trees


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that a page has.

    Attributes:
        title: what was compared.
        answer: the verdict in few words, or empty.
        good: whether that is good news.
        headline: the result in a sentence.
        sentences: what else has to be known first.
        parts: tables and pictures; a :class:`Scatter` comes right before its table.
        command: what was typed, or empty.
        facts: versions, seeds and files, by name.
        names: by symbol, the name that people read; symbols that are none of these are shown as they are.
    """

    title: str
    answer: str
    good: bool
    headline: str
    sentences: tuple[str, ...]
    parts: tuple[Part, ...]
    command: str
    facts: tuple[tuple[str, str], ...]
    names: Mapping[str, str] = field(default_factory=dict[str, str])


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
            Bar(name=name, start=place, end=place + difference, text=f"{_signed(difference)} ({percent(change)})")
        )
        place += difference
    if others:
        more = sum(step[1] for step in others)
        bars.append(Bar(name=f"{len(others):,} others", start=place, end=place + more, text=_signed(more)))
        place += more
    bars.append(Bar(name="all", start=0, end=place, text=_signed(place), is_sum=True))
    return Bars(
        title=title,
        columns=columns,
        bars=tuple(bars),
        note=f"{what}, after less before. Each bar begins where the one above it ends; to the left is smaller, and "
        "hatched is larger.",
    )


def _signed(difference: float) -> str:
    return f"{difference:+,.0f}" if round(difference) else "0"
