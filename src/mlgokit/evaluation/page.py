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
from pathlib import Path
from typing import Any

from mlgokit.errors import UsageError
from mlgokit.evaluation.page_curves import drawn
from mlgokit.evaluation.page_markdown import markdown_page
from mlgokit.evaluation.page_parts import Bar, Bars, Branch, Curve, Curves, Page, Part, Scatter, TextTable, Tree, Trees
from mlgokit.evaluation.sentences import typeset
from mlgokit.files import atomic_write, check_writable
from mlgokit.terminal import printable

ROWS_AT_ONCE = 50
"""Rows of a table that are in the document; a script shows the others, page by page."""
MOST_LETTERS = 160
"""Of a name that people read; of a longer one the middle is left out, and its symbol is whole."""
_CHANGE = re.compile(r"([+-])[0-9.,]+ %")


def page_part(name: str) -> str:
    """The text of a file that pages are made of."""
    return importlib.resources.files("mlgokit.evaluation").joinpath(name).read_text("utf-8")


def tone(cell: str) -> str:
    """The class of a cell: ``smaller`` or ``larger`` for a change, else empty."""
    found = _CHANGE.fullmatch(cell)
    if found is None:
        return ""
    return "smaller" if found[1] == "-" else "larger"


def render_page(page: Page) -> str:
    """The page, with all data, its style and its script inside: one file, no requests."""
    # Heavy, and only this function needs it.
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = page_part("page.js")
    names = {symbol: _shortened(name) for symbol, name in page.names.items() if symbol in _symbols(page)}
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    def named(symbol: str) -> str:
        return names.get(symbol, printable(symbol))

    return environment.from_string(page_part("page.html.j2")).render(
        page=page,
        parts=[(_kind(part), part) for part in page.parts],
        facts=_facts_table(page),
        data={
            "at_once": ROWS_AT_ONCE,
            "names": {printable(symbol): name for symbol, name in names.items()},
            "rows": {
                str(place): [
                    [printable(cell) if column < part.words else _typed(cell) for column, cell in enumerate(row)]
                    for row in part.rows
                ]
                for place, part in enumerate(page.parts)
                if isinstance(part, TextTable) and len(part.rows) > ROWS_AT_ONCE
            },
            "points": {
                str(place): [part.before, part.after]
                for place, part in enumerate(page.parts)
                if isinstance(part, Scatter)
            },
        },
        rows_at_once=ROWS_AT_ONCE,
        printable=printable,
        typed=_typed,
        tone=tone,
        spans=_spans,
        drawn=drawn,
        numbers=_numbers,
        named=named,
        style=page_part("page.css"),
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
            f"--output: expected the name of a JSON file, found {path}, which the report beside it has; end it in .json"
        )
    for suffix in (".html", ".md"):
        check_writable(path.with_suffix(suffix))


def write_page(page: Page, json_path: Path) -> Path:
    """Write the page as HTML and as Markdown beside the JSON that it was made of; gives the path of the HTML.

    Raises:
        StorageError: the disk is full or the place is not writable.
    """
    atomic_write(json_path.with_suffix(".html"), render_page(page))
    atomic_write(json_path.with_suffix(".md"), markdown_page(page))
    return json_path.with_suffix(".html")


def _kind(part: Part) -> str:
    kinds = {TextTable: "table", Bars: "bars", Scatter: "scatter", Curves: "curves", Trees: "trees"}
    return kinds[type(part)]


def _symbols(page: Page) -> set[str]:
    """All that is a symbol on the page, or may be one."""
    found = {row[0] for part in page.parts if isinstance(part, TextTable) and part.symbols for row in part.rows}
    todo: list[Tree | Branch] = [tree for part in page.parts if isinstance(part, Trees) for tree in part.trees]
    while todo:
        one = todo.pop()
        found.add(one.symbol)
        todo += one.branches
    return found


def _shortened(name: str) -> str:
    name = printable(name)
    if len(name) <= MOST_LETTERS:
        return name
    half = MOST_LETTERS // 2
    return f"{name[:half]} \N{HORIZONTAL ELLIPSIS} {name[-half:]}"


def _facts_table(page: Page) -> TextTable:
    return TextTable(title="Versions, seeds, files", columns=("what", "value"), rows=page.facts, words=2)


def _numbers(part: Curves, curve: Curve) -> TextTable:
    """Points of a curve, the first and the last among them, to be read."""
    step = max(1, -(-(len(curve.points) - 1) // (ROWS_AT_ONCE - 1)))
    points = [*curve.points[:-1:step], *curve.points[-1:]]
    rows = tuple(tuple(f"{value:,.6g}" if math.isfinite(value) else "-" for value in point) for point in points)
    return TextTable(title=f"{part.title}: {curve.name}", columns=part.axes, rows=rows, words=0)


def _typed(text: str) -> str:
    """Sentences and numbers as they are printed; names stay as they are, to be copied."""
    return typeset(printable(text))


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
