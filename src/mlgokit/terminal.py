"""How results look in a terminal: tables in the house style, and sentences between them."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

MOST_REASONS = 5


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


def say_reasons(console: Console, what: str, reasons: Mapping[str, str]) -> None:
    """Print the first few names, each with its reason, and how many more there are; nothing if there are none."""
    for name, reason in list(reasons.items())[:MOST_REASONS]:
        say(console, f"{what}: {name}: {reason}")
    if (more := len(reasons) - MOST_REASONS) > 0:
        say(console, f"{what}: {more:,} more; --json names them all")


def say(console: Console, sentence: str, *, style: str = "") -> None:
    """Print a sentence as it is: brackets are no markup, numbers have no colours, and nothing is wrapped."""
    console.print(sentence, style=style or None, markup=False, highlight=False, soft_wrap=True)
