"""Streaming readers for large JSON files, with limits on the depth and size of an element."""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import ijson  # pyright: ignore[reportMissingTypeStubs]

from mlgokit.corpus.files import open_untrusted
from mlgokit.errors import CorpusError, InputError

DEPTH = 32
PIECE_BYTES = 64 << 20
MOST_DIGITS = 1000

_BLOCK_BYTES = 1 << 16
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % MOST_DIGITS)

Container = tuple[Any, list[str]]
"""A list or an object that is being read, with the last key of an object."""


@dataclass(slots=True, kw_only=True)
class JsonFile:
    """An open JSON file whose elements are limited; a block belongs to the element that ends in it.

    Attributes:
        elements: what an element is, for messages, such as ``entries``.
        remedy: what to do about a bad file, for messages.
        position: number of bytes read so far.
        begin: position at which the element begins that is being read; the caller sets it when one has ended.
        last: the last block.
    """

    file: IO[bytes]
    path: Path
    elements: str
    most_bytes: int
    most_levels: int
    remedy: str
    position: int = 0
    begin: int = 0
    last: bytes = b""

    def read(self, size: int) -> bytes:
        """Read the next block; an element or a number that is too long is an error."""
        if self.position - self.begin > self.most_bytes:
            raise self.error(
                f"{self.elements} of at most {self.most_bytes} bytes", f"a longer one at byte {self.begin}"
            )
        before, self.last = self.last, self.file.read(size)
        self.position += len(self.last)
        # Python makes no integers of more than 4,300 digits, and ijson's reader in C goes on reading while that error
        # waits to be noticed, wherever it then is.
        if _LONG_NUMBER.search(before[-MOST_DIGITS:] + self.last) is not None:
            raise self.error(f"numbers of less than {MOST_DIGITS} digits", f"a longer one before byte {self.position}")
        return self.last

    def error(self, expected: str, found: str) -> CorpusError:
        """Make the error for a file with something else than expected."""
        return CorpusError(f"{self.path}: expected {expected}, found {found}; {self.remedy}")

    def values(self) -> Iterator[tuple[list[Container], Any]]:
        """Yield each value when it has ended, after the containers around it, the outermost first.

        The value is not in its container yet; :func:`put_item` puts it there, if it is to be kept.

        Raises:
            CorpusError: the file is no JSON, or has an element or a number that is too large or too deeply nested.
        """
        stack: list[Container] = []
        events = cast("Iterator[tuple[str, Any]]", ijson.basic_parse(self, use_float=True, buf_size=_BLOCK_BYTES))
        try:
            for event, value in events:
                if event == "map_key":
                    stack[-1][1][0] = value
                elif event in {"start_map", "start_array"}:
                    if len(stack) >= self.most_levels:
                        raise self.error(
                            f"{self.elements} nested at most {self.most_levels} levels deep",
                            f"more before byte {self.position}",
                        )
                    stack.append(({} if event == "start_map" else [], [""]))
                else:
                    item = stack.pop()[0] if event in {"end_map", "end_array"} else value
                    yield stack, item
        except (ijson.JSONError, ValueError, ArithmeticError, SystemError) as error:
            reason = str(error).removeprefix("b'").replace("\\n", "\n").split("\n", maxsplit=1)[0]
            begin = max(0, self.position - _BLOCK_BYTES)
            raise self.error("JSON", f"between bytes {begin} and {self.position}: {reason:.200}") from error


def iter_members(path: Path, key: str, *, remedy: str) -> Generator[tuple[str, Any]]:
    """Iterate over the elements of the member ``key`` of a file's top-level object; empty without that member.

    Args:
        path: the file; its other members are skipped.
        key: name of the member. Of a list come the elements with an empty name, of an object the members with their
            names; any other value comes itself.
        remedy: what to do about a bad file, for the error.

    Raises:
        CorpusError: the file cannot be read, is no JSON, or has an element that is too large or too deeply nested.
    """
    try:
        with (
            open_untrusted(path, "No such file or directory") as descriptor,
            open(descriptor, "rb", closefd=False) as opened,
        ):
            file = JsonFile(
                file=opened, path=path, elements="members", most_bytes=PIECE_BYTES, most_levels=DEPTH, remedy=remedy
            )
            for stack, item in file.values():
                if not isinstance(stack[0][0] if stack else item, dict):
                    raise file.error("a JSON object", "another value")
                # Of what is not wanted nothing is kept.
                level = len(stack) if stack and stack[0][1][0] == key else 0
                if level > 2:
                    put_item(*stack[-1], item)
                elif level == 2:
                    yield stack[1][1][0], item
                elif level == 1 and not isinstance(item, (dict, list)):
                    yield "", item
                if len(stack) <= 2:
                    file.begin = file.position
    except CorpusError:
        raise
    except (OSError, InputError) as error:
        reason = error if isinstance(error, InputError) else error.strerror or error
        raise CorpusError(f"{path}: expected a file, found: {reason}; {remedy}") from error


def put_item(container: Any, last: list[str], item: object) -> None:
    """Add an item to the list or object that is being built; ``last`` has the last key of an object."""
    if isinstance(container, dict):
        container[last[0]] = item
    else:
        container.append(item)
