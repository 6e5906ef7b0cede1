"""One page of results for people: what it has as values, and the same as a file of HTML and as Markdown.

The HTML needs no network and runs no script but its own. Names of modules and functions are a stranger's text: they
are escaped here, and nowhere else.
"""

import base64
import hashlib
import importlib.resources
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.errors import UsageError
from mlgokit.evaluation.sentences import typeset
from mlgokit.files import atomic_write
from mlgokit.terminal import printable

ROWS_AT_ONCE = 50
"""Rows of a table that are in the document; a script shows the others, page by page."""
MARKDOWN_ROWS = 25
"""Rows of a table in Markdown, which nobody turns over."""
_CHANGE = re.compile(r"([+-])[0-9.,]+ %")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table of words.

    Attributes:
        title: its heading.
        columns: names; the first ones are words, the others numbers.
        rows: as many cells each, in an order that says something.
        words: how many columns are words.
        note: what has to be known to read it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    note: str = ""


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


Part = TextTable | Bars | Scatter


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
    """

    title: str
    answer: str
    good: bool
    headline: str
    sentences: tuple[str, ...]
    parts: tuple[Part, ...]
    command: str
    facts: tuple[tuple[str, str], ...]


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
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.from_string(page_part("page.html.j2")).render(
        page=page,
        parts=[(_kind(part), part) for part in page.parts],
        facts=_facts_table(page),
        data={
            "at_once": ROWS_AT_ONCE,
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
        style=page_part("page.css"),
        # The policy of the page lets this text alone run, whatever else got in.
        script=script,
        allowed=allowed,
    )


def markdown_page(page: Page) -> str:
    """The page as Markdown; tables are cut, and say so."""
    lines = [f"# {_quoted(page.title)}", ""]
    lines += [f"**{_quoted(page.answer)}.** {_quoted(page.headline)}" if page.answer else _quoted(page.headline), ""]
    lines += [line for sentence in page.sentences for line in (_quoted(sentence), "")]
    for part in page.parts:
        if isinstance(part, Bars):
            lines += _markdown_table(part.title, part.note, part.columns, [(bar.name, bar.text) for bar in part.bars])
        elif isinstance(part, TextTable):
            lines += _markdown_table(part.title, part.note, part.columns, part.rows, words=part.words)
    lines += ["## How it was made", ""]
    if page.command:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", page.command)), default=0))
        lines += [f"{fence}sh", printable(page.command), fence, ""]
    lines += [f"- {_quoted(name)}: {_quoted(value)}" for name, value in page.facts]
    return "\n".join(lines).rstrip() + "\n"


def check_json_name(path: Path) -> None:
    """Refuse a name for JSON that a page beside it would have.

    Raises:
        UsageError: it ends like a page.
    """
    if path.suffix in {".html", ".md"}:
        raise UsageError(
            f"--output: expected the name of a JSON file, found {path}, which the report beside it has; end it in .json"
        )


def write_page(page: Page, json_path: Path) -> Path:
    """Write the page as HTML and as Markdown beside the JSON that it was made of; gives the path of the HTML.

    Raises:
        StorageError: the disk is full or the place is not writable.
    """
    atomic_write(json_path.with_suffix(".html"), render_page(page))
    atomic_write(json_path.with_suffix(".md"), markdown_page(page))
    return json_path.with_suffix(".html")


def _kind(part: Part) -> str:
    return "table" if isinstance(part, TextTable) else "bars" if isinstance(part, Bars) else "scatter"


def _facts_table(page: Page) -> TextTable:
    return TextTable(title="Versions, seeds, files", columns=("what", "value"), rows=page.facts, words=2)


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


def _markdown_table(
    title: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1
) -> Iterator[str]:
    if not rows:
        return
    yield from (f"## {_quoted(title)}", "")
    if note:
        yield from (_quoted(note), "")
    kinds = ["---" if place < words else "---:" for place in range(len(columns))]
    for row in (columns, kinds, *rows[:MARKDOWN_ROWS]):
        cells = row if row is kinds else map(_quoted, row)
        yield "| " + " | ".join(cells) + " |"
    yield ""
    if len(rows) > MARKDOWN_ROWS:
        yield from (f"The first {MARKDOWN_ROWS:,} of {len(rows):,}.", "")


def _quoted(text: str) -> str:
    r"""Text that Markdown takes as it is: no tags, links, images, or ends of cells.

    Example:
        >>> _quoted("a|b<img src=x>")
        'a\\|b&lt;img src=x&gt;'
    """
    text = " ".join(printable(text).split())
    text = re.sub(r"([\\|`*\[\]])", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
