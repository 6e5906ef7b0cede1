"""A page of results for people as a file of HTML, and where it is written, with Markdown beside it.

The HTML needs no network and runs no script but its own. Names of modules and functions are a stranger's text: they
are escaped here, and nowhere else.
"""

import base64
import hashlib
import importlib.resources
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.errors import UsageError
from mlgokit.files import atomic_write, check_writable
from mlgokit.pages.markdown import render_markdown
from mlgokit.pages.model import (
    NONE,
    Bar,
    Branch,
    Curve,
    Curves,
    Page,
    Scatter,
    Table,
    Tile,
    Tree,
    Treemap,
    Trees,
    choose_points,
    number_columns,
    text_columns,
)
from mlgokit.terminal import printable

ROWS_AT_ONCE = 50
"""Rows of a table that are in the document; a script shows the others, page by page."""
MOST_LETTERS = 160
"""Of a name that people read; of a longer one the middle is left out, and its symbol is whole."""
MOST_POINTS = 400
"""Points of a curve that are drawn; of more, every second, third and so on."""
MOST_MARKS = 40
"""Points up to which each gets a disc."""
_TICKS = 5


def read_asset(name: str) -> str:
    """The text of a file that pages are made of."""
    return importlib.resources.files("mlgokit.pages").joinpath(name).read_text("utf-8")


def tone(text: str, *, is_change: bool) -> str:
    """The class of a cell: ``smaller`` or ``larger`` for a change, else empty."""
    return {"-": "smaller", "+": "larger"}.get(text[:1], "") if is_change and text != NONE else ""


def render_html(page: Page) -> str:
    """The page, with all data, its style and its script inside: one file, no requests."""
    # Heavy, and only this function needs it.
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = read_asset("page.js")
    symbols = _symbols(page)
    names = {symbol: _shorten(name) for symbol, name in page.names.items() if symbol in symbols}
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    tables = {place: (part, part.texts()) for place, part in enumerate(page.parts) if isinstance(part, Table)}

    def named(symbol: str) -> str:
        return names.get(symbol, printable(symbol))

    return environment.from_string(read_asset("page.html.j2")).render(
        page=page,
        parts=[(type(part).__name__.lower(), part) for part in page.parts],
        facts=Table(title="Versions, seeds, files", columns=text_columns("what", "value"), rows=page.facts),
        tone=tone,
        data={
            "at_once": ROWS_AT_ONCE,
            "names": {printable(symbol): name for symbol, name in names.items()},
            "rows": {
                str(place): [
                    [printable(cell) if column < table.words else typeset(cell) for column, cell in enumerate(row)]
                    for row in rows
                ]
                for place, (table, rows) in tables.items()
                if len(rows) > ROWS_AT_ONCE
            },
            "points": {
                str(place): [part.before, part.after]
                for place, part in enumerate(page.parts)
                if isinstance(part, Scatter)
            },
            "tiles": {
                str(place): [_tile_values(tile) for tile in part.tiles]
                for place, part in enumerate(page.parts)
                if isinstance(part, Treemap)
            },
        },
        rows_at_once=ROWS_AT_ONCE,
        printable=printable,
        typeset=typeset,
        spans=_spans,
        plot_curves=plot_curves,
        curve_table=_curve_table,
        named=named,
        style=read_asset("page.css"),
        # The policy of the page lets this text alone run, whatever else got in.
        script=script,
        allowed=allowed,
    )


def check_json_name(path: Path) -> None:
    """Refuse a name for JSON that a page beside it would have, or whose pages cannot be written.

    Raises:
        StorageError: they cannot.
        UsageError: it ends like a page.
    """
    if path.suffix in {".html", ".md"}:
        raise UsageError(
            f"--output: expected a name ending in .json, found {path}, a name that the report beside it would "
            "overwrite; end it in .json"
        )
    for suffix in (".html", ".md"):
        check_writable(path.with_suffix(suffix))


def write_page(page: Page, json_path: Path) -> Path:
    """Write the page as HTML and as Markdown beside the JSON that it was made of; gives the path of the HTML.

    Raises:
        StorageError: the disk is full or the place is not writable.
    """
    atomic_write(json_path.with_suffix(".html"), render_html(page))
    atomic_write(json_path.with_suffix(".md"), render_markdown(page))
    return json_path.with_suffix(".html")


def _tile_values(tile: Tile) -> list[Any]:
    """Name, size and what is inside, as the script reads them."""
    inside = [_tile_values(one) for one in tile.tiles]
    return [_shorten(tile.name), tile.size, *([inside] if inside else [])]


def _symbols(page: Page) -> set[str]:
    """All that is a symbol on the page, or may be one."""
    found = {str(row[0]) for part in page.parts if isinstance(part, Table) and part.symbols for row in part.rows}
    todo: list[Tree | Branch] = [tree for part in page.parts if isinstance(part, Trees) for tree in part.trees]
    while todo:
        one = todo.pop()
        found.add(one.symbol)
        todo += one.branches
    return found


def _shorten(name: str) -> str:
    name = printable(name)
    if len(name) <= MOST_LETTERS:
        return name
    half = MOST_LETTERS // 2
    return f"{name[:half]} \N{HORIZONTAL ELLIPSIS} {name[-half:]}"


def _curve_table(part: Curves, curve: Curve) -> Table:
    """Points of a curve, the first and the last among them, to be read."""
    points = choose_points(curve.points, ROWS_AT_ONCE)
    return Table(title=f"{part.title}: {curve.name}", columns=number_columns(*part.axes), rows=points)


def _spans(bars: Sequence[Bar]) -> dict[str, Any]:
    """Where bars begin and how wide they are, and where zero is, in per cent of the widest extent."""
    low = min(0.0, *(min(bar.start, bar.end) for bar in bars))
    high = max(0.0, *(max(bar.start, bar.end) for bar in bars))
    extent = (high - low) or 1.0
    return {
        "zero": round(100 * -low / extent, 3),
        "spans": [
            (
                round(100 * (min(bar.start, bar.end) - low) / extent, 3),
                round(100 * abs(bar.end - bar.start) / extent, 3),
            )
            for bar in bars
        ],
    }


def typeset(text: str) -> str:
    """Sentences and numbers as they are printed; names stay as they are, to be copied.

    They have real minus signs and arrows, and no line break before a per cent sign or inside an option.

    Example:
        >>> typeset("1 -> 2 (-1.50 %)") == "1 → 2 (\N{MINUS SIGN}1.50\N{NO-BREAK SPACE}%)"
        True
    """
    text = printable(text).replace(" %", "\N{NO-BREAK SPACE}%").replace("->", "→").replace("-Oz", "-\N{WORD JOINER}Oz")
    return re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedCurve:
    """One curve: its name, the path of its line, and that of its discs."""

    name: str
    line: str
    marks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot whose width and height are 100.

    Attributes:
        curves: what is drawn.
        across: place and label of each number at the bottom.
        up: place, from the top, and label of each number on the left.
    """

    curves: tuple[PlottedCurve, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]

    @property
    def widest(self) -> str:
        """The longest label on the left, which decides where the plot begins."""
        return max((text for _, text in self.up), key=len, default="")


def plot_curves(part: Curves) -> Plot:
    """The plot of all points that are numbers."""
    kept = [(curve.name, [point for point in curve.points if all(map(math.isfinite, point))]) for curve in part.curves]
    points = [point for _, chosen in kept for point in chosen]
    left, right = _extent([x for x, _ in points])
    low, high = _extent([y for _, y in points])

    def place(point: tuple[float, float]) -> str:
        return f"{100 * (point[0] - left) / (right - left):.2f} {100 * (high - point[1]) / (high - low):.2f}"

    curves: list[PlottedCurve] = []
    for name, chosen in kept:
        places = [place(point) for point in choose_points(chosen, MOST_POINTS)]
        curves.append(
            PlottedCurve(
                name=name,
                line=f"M{'L'.join(places)}" if places else "",
                # A line of no length with round ends is a disc, whatever the plot's width and height are stretched to.
                marks="".join(f"M{one}h0" for one in places) if len(places) <= MOST_MARKS else "",
            )
        )
    return Plot(
        curves=tuple(curves),
        across=tuple((100 * (tick - left) / (right - left), text) for tick, text in _ticks(left, right)),
        up=tuple((100 * (high - tick) / (high - low), text) for tick, text in _ticks(low, high)),
    )


def _extent(values: list[float]) -> tuple[float, float]:
    """From the least to the most; around a single value, a little of both sides."""
    least, most = min(values, default=0.0), max(values, default=1.0)
    if least == most:
        room = abs(least) / 10 or 1.0
        return least - room, most + room
    return least, most


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round numbers from ``low`` to ``high``, about five.

    Example:
        >>> _ticks(0, 1200)
        [(0, '0'), (250, '250'), (500, '500'), (750, '750'), (1000, '1,000')]
    """
    raw = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    digits = max(0, -math.floor(math.log10(step)) + (step / power == 2.5))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    found = [(number * step, f"{number * step:,.{digits}f}") for number in range(first, last + 1)]
    return [(round(tick) if tick == round(tick) else tick, text) for tick, text in found]
