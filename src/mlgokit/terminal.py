"""How results look in a terminal: tables in the house style, and sentences between them."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text


def plain_table(title: str | Text, columns: Sequence[Column]) -> Table:
    """An empty table with a line under its head and no other lines."""
    return Table(
        *columns,
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def numbers(*titles: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, justify="right", no_wrap=True) for title in titles]


def words(*titles: str) -> list[Column]:
    """Columns of names, which are folded where the terminal is narrow."""
    return [Column(title, overflow="fold") for title in titles]


def say(console: Console, sentence: str, *, style: str = "") -> None:
    """Print a sentence as it is: brackets are no markup, numbers have no colours, and nothing is wrapped."""
    console.print(sentence, style=style or None, markup=False, highlight=False, soft_wrap=True)
