"""Generates inputs of workloads, the same on every machine.

All random draws are raw numbers of PCG64, which numpy promises never to change.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from mlgokit.files import atomic_write

InputKind = Literal["text", "json", "xml", "markdown", "yaml", "scss"]
INPUT_KINDS: tuple[str, ...] = get_args(InputKind)
_SYLLABLES = ("be", "con", "ta", "ing", "ri", "me", "lo", "qua", "ter", "an", "zi", "tion", "de", "ou", "sp", "el")
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input file of a workload.

    Attributes:
        name: name of the file.
        kind: kind of content.
        size: minimum size in bytes.
        seed: random seed.
    """

    name: str
    kind: InputKind
    size: int
    seed: int = 1


def write_input(wanted: Input, folder: Path) -> Path:
    """Generate an input in a folder.

    Raises:
        StorageError: the disk is full or not writable.
    """
    path = folder / wanted.name
    atomic_write(path, make_input(wanted))
    return path


def make_input(wanted: Input) -> str:
    """Generate the text of an input.

    Example:
        >>> text = make_input(Input(name="a", kind="json", size=1000))
        >>> 1000 <= len(text) < 2000, text == make_input(Input(name="b", kind="json", size=1000))
        (True, True)
    """
    begin, part, end = _KINDS[wanted.kind]
    draws = _draws(wanted.seed)
    pieces, size, number = [begin], 0, 0
    while size < wanted.size:
        pieces.append(part(draws, number))
        size += len(pieces[-1])
        number += 1
    return "".join(pieces) + end


def _draws(seed: int) -> Iterator[int]:
    """Yield random numbers of 44 bits without end."""
    generator = np.random.PCG64(seed)
    while True:
        # The high bits are the better ones.
        yield from (int(number) for number in generator.random_raw(_PIECE) >> np.uint64(20))


def _word(draws: Iterator[int]) -> str:
    """Draw a word; as in a language, common words are short."""
    drawn = next(draws)
    rank = drawn % (1 + drawn // 7 % 400)
    letters = [_SYLLABLES[rank % 16]]
    while rank >= 16:
        rank //= 16
        letters.append(_SYLLABLES[(rank * 5 + len(letters)) % 16])
    return "".join(letters)


def _words(draws: Iterator[int], count: int) -> str:
    """Draw words, separated by spaces."""
    return " ".join(_word(draws) for _ in range(count))


def _line(draws: Iterator[int], _number: int) -> str:
    """Draw a line of text."""
    return _words(draws, 6 + next(draws) % 9).capitalize() + ".\n"


def _record(draws: Iterator[int], number: int) -> str:
    """Draw an element of a JSON array."""
    value = {
        "id": number,
        "name": _words(draws, 2),
        "price": next(draws) % 100000 / 100,
        "on": next(draws) % 3 == 0,
        "tags": [_word(draws) for _ in range(next(draws) % 4)],
        "nested": {"text": _words(draws, 5) + ' "quoted" \u00e9\n', "numbers": [next(draws) % 1000, -1.5e-7, None]},
    }
    return ("," if number else "") + json.dumps(value, ensure_ascii=number % 2 == 0) + "\n"


def _item(draws: Iterator[int], number: int) -> str:
    """Draw an XML element; every twentieth begins a new group."""
    opening = '</group>\n<group name="g">\n' if number % 20 == 19 else ""
    return (
        f'{opening}<item id="{number}" kind="{"abcd"[next(draws) % 4]}"><name>{_words(draws, 2)}</name>'
        f"<price>{next(draws) % 10000 / 100}</price><!-- {_word(draws)} -->"
        f"<text>{_words(draws, 6)} &amp; &lt;{_word(draws)}&gt; &#233;</text></item>\n"
    )


def _section(draws: Iterator[int], number: int) -> str:
    """Draw a section of Markdown."""
    listed = "".join(f"{'  ' * (index % 3)}- *{_word(draws)}* {_words(draws, 5)}\n" for index in range(5))
    return (
        f"{'#' * (1 + number % 4)} {_words(draws, 3)}\n\n{_words(draws, 25)} **{_words(draws, 2)}** `{_word(draws)}` "
        f'[{_word(draws)}](http://example.com/{_word(draws)} "{_word(draws)}").\n{_words(draws, 12)}\n\n{listed}\n'
        f"> {_words(draws, 9)}\n> > {_words(draws, 4)}\n\n```c\nint {_word(draws)} = {next(draws) % 99};\n```\n\n"
    )


def _entry(draws: Iterator[int], number: int) -> str:
    """Draw an entry of a YAML mapping."""
    return (
        f'entry{number}:\n  name: {_words(draws, 2)}\n  text: "{_words(draws, 4)}\\n"\n  list: '
        f"[{next(draws) % 100}, {_word(draws)}, {{a: {_word(draws)}}}]\n  deep:\n    - one: {_word(draws)}\n"
        f"      two: 'it''s {_word(draws)}'\n    - |\n      {_words(draws, 5)}\n      {_words(draws, 3)}\n"
    )


def _rule(draws: Iterator[int], number: int) -> str:
    """Draw a rule of SCSS."""
    color = next(draws) % 0xFFFFFF
    return (
        f"$c{number}: #{color:06x};\n.{_word(draws)}-{number} {{\n  color: darken($c{number}, {number % 40}%);\n"
        f"  width: calc(#{{{number % 90 + 1}px * 2}} + 1em);\n  &:hover > .{_word(draws)} {{ "
        f"@include box({number % 9 + 1}px); }}\n"
        f"  @each $side in top, left {{ margin-#{{$side}}: ({number % 7} + 1) * 3px; }}\n"
        f"  @if {number % 5} > 2 {{ border: 1px solid mix($c{number}, white, 30%); }} @else {{ @extend %base; }}\n}}\n"
    )


# For each kind of input the text before, a function that makes the part of a number, and the text after.
_KINDS: dict[str, tuple[str, Callable[[Iterator[int], int], str], str]] = {
    "text": ("", _line, ""),
    "json": ("[", _record, "]\n"),
    "xml": ('<?xml version="1.0"?>\n<all>\n<group name="first">\n', _item, "</group>\n</all>\n"),
    "markdown": ("", _section, ""),
    "yaml": ("", _entry, ""),
    "scss": (
        "%base { display: block; }\n@mixin box($size) { padding: $size; &::after { width: $size / 2; } }\n",
        _rule,
        "",
    ),
}
