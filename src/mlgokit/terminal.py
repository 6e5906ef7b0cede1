"""What is printed: a console to which a stranger's text may go, sentences, and counts.

Names of modules, functions and projects, and what compilers say, are a stranger's text. What a terminal would obey in
it, or show as other text than it is, is shown as an escape.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

_WIDTH = 120
"""Columns of what goes to a file or a pipe, where no terminal has a width; names are folded less than in 80."""
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters but for tab and line feed, what turns the direction of text, what is not seen, and surrogates."""


def printable(text: str) -> str:
    r"""Text as a terminal may get it: what it would obey is an escape as in Python.

    Example:
        >>> printable("lib/\x1b]0;moon\x07a.o\n")
        'lib/\\x1b]0;moon\\x07a.o\n'
    """
    return _OBEYED.sub(lambda match: ascii(match[0])[1:-1], text)


def counted(number: int, noun: str) -> str:
    """A number with its noun, whose plural has an s.

    Example:
        >>> counted(1, "module"), counted(0, "module")
        ('1 module', '0 modules')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass(frozen=True, slots=True)
class _Shown:
    """Something to print, whose text is made printable last, so that the style that rich writes is left alone."""

    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.content, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


@dataclass(frozen=True, slots=True)
class _Showing:
    """What rich calls with whatever is to be printed."""

    def process_renderables(self, renderables: Sequence[RenderableType]) -> list[RenderableType]:
        return [_Shown(renderable) for renderable in renderables]


def open_console(file: IO[str] | None = None, *, soft_wrap: bool = False) -> Console:
    """A console on standard output, or on ``file``, to which a stranger's text may be printed."""
    target = file or sys.stdout
    width = None if target.isatty() or "COLUMNS" in os.environ else _WIDTH
    console = Console(file=target, width=width, soft_wrap=soft_wrap, emoji=False)
    console.push_render_hook(_Showing())  # pyright: ignore[reportArgumentType]  (it is called, and never looked at)
    return console


def say(console: Console, sentence: str, *, style: str = "") -> None:
    """Print a sentence as it is: brackets are no markup, numbers have no colours, and nothing is wrapped."""
    console.print(sentence, style=style or None, markup=False, highlight=False, soft_wrap=True)
