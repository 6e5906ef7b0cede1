"""A page in a terminal: tables and trees, sentences, and at the end, where people look first, the result."""

import math
import textwrap
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Column as RichColumn, Table as RichTable
from rich.text import Text

from mlgokit.pages.model import Branch, Cell, Column, Compared, Page, Row, Table, Trees, format_cell, relative_change
from mlgokit.terminal import say


def print_page(page: Page, console: Console, *, report: str = "") -> None:
    """Print a page; ``report`` is where it was written, if it was."""
    for part in page.parts:
        if isinstance(part, Table) and part.terminal_rows != 0:
            if part.words == len(part.columns):
                _print_list(part, console)
            else:
                _print_table(part, console)
        elif isinstance(part, Trees) and part.terminal_rows:
            _print_trees(part, console)
    for sentence in page.sentences:
        say(console, sentence)
    for sentence in page.warnings:
        say(console, sentence, style="yellow")
    if report:
        say(console, f"Report: {report}")
    style = "bold yellow" if not page.good else "bold green" if page.answer else "bold"
    say(console, f"{page.answer}: {page.headline}" if page.answer else page.headline, style=style)
    for sentence in page.advice:
        say(console, sentence)


def _print_list(table: Table, console: Console) -> None:
    """A table of text alone is a line for each row, as reasons are long."""
    say(console, table.title, style="bold")
    indexes = _indexes(table.columns, "column")
    rows = table.rows[: table.terminal_rows]
    for row in rows:
        say(console, f"  {': '.join(text for index in indexes if (text := str(row[index])))}")
    _say_more(len(table.rows) + table.left_out - len(rows), console)
    say(console, "")


def _print_table(table: Table, console: Console) -> None:
    columns, below = _indexes(table.columns, "column"), _indexes(table.columns, "below")
    rows = [
        [_name(table, row, below), *_cells(table.columns, row, columns[1:])]
        for row in table.rows[: table.terminal_rows]
    ]
    total = [_cells(table.columns, table.total, columns)] if table.total else []
    made = RichTable(
        *_rich_columns(table.columns, columns, [*rows, *total]),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for row in rows:
        made.add_row(*row)
    for row in total:
        made.add_section()
        made.add_row(*row)
    # A title of rich's own is folded at the width of the table.
    say(console, table.title, style="bold")
    console.print(made)
    _say_more(len(table.rows) + table.left_out - len(rows), console)


def _indexes(columns: Sequence[Column], where: str) -> list[int]:
    return [index for index, column in enumerate(columns) if column.terminal == where]


def _name(table: Table, row: Row, below: Sequence[int]) -> Text:
    """The first cell, with what is written below it."""
    name = Text(format_cell(row[0], table.columns[0].kind))
    labels = [_label(table.columns[index], row[index]) for index in below]
    return name.append(f"\n  {', '.join(labels)}", style="dim") if labels else name


def _label(column: Column, cell: Cell) -> str:
    """A cell with what it counts; text says itself what it is."""
    text = format_cell(cell, column.kind)
    if column.kind == "text":
        return text
    return f"{text} {column.title.removesuffix('s') if cell == 1 else column.title}"


def _cells(columns: Sequence[Column], row: Row, indexes: Sequence[int]) -> list[Text]:
    """Cells of the terminal; compared sizes are two, each of two lines: before over after, and the change beside."""
    cells: list[Text] = []
    for index in indexes:
        column, cell = columns[index], row[index]
        if column.kind != "compared":
            cells.append(Text(format_cell(cell, column.kind), style=_style(cell) if column.kind == "change" else ""))
        elif isinstance(cell, Compared):
            change = relative_change(cell.before, cell.after)
            cells += [
                Text(f"{format_cell(cell.before, 'count')}\n{format_cell(cell.after, 'count')}"),
                Text("\n").append(format_cell(change, "change"), style=_style(change)),
            ]
        else:
            cells += [Text(format_cell(cell, "text").replace(" ", "\n", 1), style="yellow"), Text()]
    return cells


def _style(change: Cell) -> str:
    if not isinstance(change, int | float) or not math.isfinite(change):
        return ""
    return "green" if change < 0 else "yellow" if change > 0 else ""


def _rich_columns(
    columns: Sequence[Column], indexes: Sequence[int], rows: Sequence[Sequence[Text]]
) -> list[RichColumn]:
    """Names are folded where the terminal is narrow; numbers are not, and the heads above them are."""
    made: list[RichColumn] = []
    for index in indexes:
        column = columns[index]
        if column.kind == "text":
            made.append(RichColumn(Text(column.title), overflow="fold"))
            continue
        lines = [line for row in rows for line in row[len(made)].plain.splitlines()]
        widest = max(map(len, [*lines, *column.title.split()]), default=1)
        made.append(RichColumn(Text(textwrap.fill(column.title, widest)), justify="right", no_wrap=True))
        if column.kind == "compared":
            made.append(RichColumn("", justify="right", no_wrap=True))
    return made


def _print_trees(part: Trees, console: Console) -> None:
    say(console, part.title, style="bold")
    if part.note:
        say(console, part.note, style="dim")
    for tree in part.trees:
        say(console, f"{_one_line(tree.symbol)}: {tree.change}", style="bold")
        for note in tree.notes:
            say(console, f"  {note}")
        lines = [line for branch in tree.branches for line in _branch_lines(branch, 1)]
        for text, reason in lines[: part.terminal_rows]:
            say(console, text)
            if reason:
                say(console, reason, style="dim")
        _say_more(len(lines) - part.terminal_rows, console)
    say(console, "")


def _branch_lines(branch: Branch, depth: int) -> Iterator[tuple[str, str]]:
    """A branch and those below it, each with its reason or an empty text."""
    margin = "  " * depth
    reasons = [*filter(None, (branch.note,)), *(_reason(branch, row) for row in branch.rows)]
    what = f"{branch.how} {_one_line(branch.symbol)}".strip()
    yield f"{margin}{what}: {', '.join(branch.marks)}", f"{margin}  {'; '.join(reasons)}" if reasons else ""
    for below in branch.branches:
        yield from _branch_lines(below, depth + 1)


def _reason(branch: Branch, row: Sequence[str]) -> str:
    others = zip(branch.columns[1:], row[1:], strict=True)
    return f"{row[0]} {', '.join(f'{column} {text}' for column, text in others)}"


def _say_more(count: int, console: Console) -> None:
    if count > 0:
        say(console, f"  {count:,} more; --json has all", style="dim")


def _one_line(text: str) -> str:
    """A stranger's name on one line; the console escapes what else it may hold."""
    return text.replace("\n", "\\n")
