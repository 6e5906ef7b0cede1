"""Printing to a terminal: a console that escapes control characters, sentences, and counts.

Names of modules, functions and projects, and messages of compilers, may come from strangers. Characters that a terminal
would obey, or that hide or reorder text, are shown as escapes.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import IO, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

_WIDTH = 120
"""Width of output to a file or a pipe, which has no width; wide enough that few names are folded."""
_LONG = 12
"""Length of a list beyond which it is not printed."""
_ESCAPED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters except tab and line feed, characters that change the direction of text, invisible ones, and
surrogates."""


def printable(text: str) -> str:
    r"""Replace characters that a terminal would obey, or not show, by escapes as in Python.

    Example:
        >>> printable("lib/\x1b]0;moon\x07a.o\n")
        'lib/\\x1b]0;moon\\x07a.o\n'
    """
    return _ESCAPED.sub(lambda match: ascii(match[0])[1:-1], text)


def counted(number: int, noun: str) -> str:
    """Format a number with its noun, whose plural has an s.

    Example:
        >>> counted(1, "module"), counted(0, "module")
        ('1 module', '0 modules')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass(frozen=True, slots=True)
class _Shown:
    """A renderable of rich whose text is made printable after rendering, so that rich's own styles are not escaped."""

    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.content, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


@dataclass(frozen=True, slots=True)
class _Showing:
    """The hook that rich calls with everything that is printed."""

    def process_renderables(self, renderables: Sequence[RenderableType]) -> list[RenderableType]:
        """Wrap all that is printed, as rich asks its hooks to."""
        return [_Shown(renderable) for renderable in renderables]


def open_console(file: IO[str] | None = None, *, soft_wrap: bool = False) -> Console:
    """Open a console on standard output, or on ``file``, that escapes control characters."""
    target = file or sys.stdout
    width = None if target.isatty() or "COLUMNS" in os.environ else _WIDTH
    console = Console(file=target, width=width, soft_wrap=soft_wrap, emoji=False)
    console.push_render_hook(_Showing())  # pyright: ignore[reportArgumentType]  (it is called, and never looked at)
    return console


def say(console: Console, sentence: str, *, style: str = "") -> None:
    """Print a sentence unchanged: without markup, highlighting and wrapping."""
    console.print(sentence, style=style or None, markup=False, highlight=False, soft_wrap=True)


def print_values(values: Mapping[str, Any], out: Console) -> None:
    """Print short values as lines, and long lists by their length; ``--json`` has everything."""
    for name, value in values.items():
        if isinstance(value, (list, tuple, dict)) and len(cast("Sized", value)) > _LONG:
            out.print(f"{name}: {len(cast('Sized', value))} (use --json to see them)", markup=False, highlight=False)
        else:
            out.print(f"{name}: {value}", markup=False, highlight=False)
