"""A page as Markdown, for repositories and reviews."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mlgokit.pages.model import Bars, Branch, Curves, Page, Part, Table, Trees, choose_points
from mlgokit.terminal import printable

MARKDOWN_ROWS = 25
"""Rows of a table, which nobody turns over."""


def render_markdown(page: Page) -> str:
    """The page as Markdown; tables are cut, and say so; a symbol stands behind the name that is read for it."""
    lines = [f"# {_escape(page.title)}", ""]
    lines += [f"**{_escape(page.answer)}.** {_escape(page.headline)}" if page.answer else _escape(page.headline), ""]
    said = (*page.sentences, *(f"Warning: {one}" for one in page.warnings), *page.advice)
    lines += [line for sentence in said for line in (_escape(sentence), "")]
    for part in page.parts:
        lines += _part(part, page.names)
    lines += ["## How it was made", ""]
    if page.command:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", page.command)), default=0))
        lines += [f"{fence}sh", printable(page.command), fence, ""]
    lines += [f"- {_escape(name)}: {_escape(value)}" for name, value in page.facts]
    return "\n".join(lines).rstrip() + "\n"


def _part(part: Part, names: Mapping[str, str]) -> Iterable[str]:
    """What Markdown shows of a part: numbers of what is drawn; points are those of the table behind them."""
    match part:
        case Bars():
            return _table(part.title, part.note, part.columns, [(bar.name, bar.text) for bar in part.bars])
        case Table():
            return _table(part.title, part.note, *_with_names(part, names), words=part.words)
        case Curves():
            return _curves(part)
        case Trees():
            return _trees(part, names)
        case _:
            return ()


def _with_names(table: Table, names: Mapping[str, str]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Columns and rows with names in place of symbols, which have a column of their own at the end."""
    columns, rows = table.titles(), table.texts()
    if not table.symbols or not any(row[0] in names for row in rows[:MARKDOWN_ROWS]):
        return columns, rows
    named = [(names.get(row[0], row[0]), *row[1:], row[0] if row[0] in names else "") for row in rows]
    return (*columns, "symbol"), named


def _curves(part: Curves) -> Iterator[str]:
    for curve in part.curves:
        name = part.title if len(part.curves) == 1 else f"{part.title}: {curve.name}"
        rows = [(f"{x:,.6g}", f"{y:,.6g}") for x, y in choose_points(curve.points, MARKDOWN_ROWS)]
        yield from _table(name, part.note, part.axes, rows, words=0)


def _trees(part: Trees, names: Mapping[str, str]) -> Iterator[str]:
    yield from (f"## {_escape(part.title)}", "")
    if part.note:
        yield from (_escape(part.note), "")
    for tree in part.trees:
        yield from (f"### {_escape(names.get(tree.symbol, tree.symbol))}: {_escape(tree.change)}", "")
        if tree.symbol in names:
            yield from (f"Symbol: {_escape(tree.symbol)}", "")
        for sentence in tree.notes:
            yield from (_escape(sentence), "")
        for branch in tree.branches:
            yield from _branch(branch, names, 0)
        if tree.branches:
            yield ""


def _branch(branch: Branch, names: Mapping[str, str], depth: int) -> Iterator[str]:
    margin = "  " * depth
    told = [f"{branch.how} {names.get(branch.symbol, branch.symbol)}".strip(), *branch.marks]
    yield f"{margin}- {_escape('; '.join(told))}"
    reasons = [*filter(None, (branch.note,)), *(" ".join(row) for row in branch.rows)]
    if reasons:
        yield f"{margin}  - {_escape('; '.join(reasons))}"
    for one in branch.branches:
        yield from _branch(one, names, depth + 1)


def _table(
    title: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1
) -> Iterator[str]:
    if not rows:
        return
    yield from (f"## {_escape(title)}", "")
    if note:
        yield from (_escape(note), "")
    kinds = ["---" if place < words else "---:" for place in range(len(columns))]
    for row in (columns, kinds, *rows[:MARKDOWN_ROWS]):
        cells = row if row is kinds else map(_escape, row)
        yield "| " + " | ".join(cells) + " |"
    yield ""
    if len(rows) > MARKDOWN_ROWS:
        yield from (f"The first {MARKDOWN_ROWS:,} of {len(rows):,}.", "")


def _escape(text: str) -> str:
    r"""Text that Markdown takes as it is: no tags, links, images, or ends of cells.

    Example:
        >>> _escape("a|b<img src=x>")
        'a\\|b&lt;img src=x>'
    """
    text = " ".join(printable(text).split())
    text = re.sub(r"([\\|`*\[\]]|^>)", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;")
