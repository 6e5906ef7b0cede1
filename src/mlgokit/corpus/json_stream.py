"""Streaming reader for one member of a large JSON object, with limits on the depth and size of an element."""

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

_BLOCK_BYTES = 1 << 16


Container = tuple[Any, list[str]]
"""A list or an object that is being read, with the last key of an object."""
MOST_DIGITS = 1000
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % MOST_DIGITS)


def has_long_number(before: bytes, data: bytes) -> bool:
    """Whether a number has at least :data:`MOST_DIGITS` digits; ``before`` is the preceding block.

    Python makes no integers of more than 4,300 digits, and ijson's reader in C goes on reading while that error waits
    to be noticed, wherever it then is.
    """
    return _LONG_NUMBER.search(before[-MOST_DIGITS:] + data) is not None


@dataclass(slots=True, kw_only=True)
class _BoundedFile:
    """A file that limits the size of an element; a block belongs to the element that ends in it."""

    file: IO[bytes]
    path: Path
    remedy: str
    since: int = 0
    last: bytes = b""

    def read(self, size: int) -> bytes:
        """Read the next block; a number or a part that is too long is an error."""
        before, data = self.last, self.file.read(size)
        self.since += len(data)
        if has_long_number(before, data):
            raise CorpusError(
                f"{self.path}: expected numbers of less than {MOST_DIGITS} digits, found a longer one; {self.remedy}"
            )
        self.last = data
        if self.since > PIECE_BYTES:
            raise CorpusError(
                f"{self.path}: expected members of at most {PIECE_BYTES} bytes in this JSON file, found a longer "
                f"one; {self.remedy}"
            )
        return data


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
            open(descriptor, "rb", closefd=False) as file,
        ):
            yield from _iter_members(_BoundedFile(file=file, path=path, remedy=remedy), key)
    except CorpusError:
        raise
    except (OSError, InputError) as error:
        reason = error if isinstance(error, InputError) else error.strerror or error
        raise CorpusError(f"{path}: expected a file, found: {reason}; {remedy}") from error
    except (ijson.JSONError, ValueError, ArithmeticError, SystemError) as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise CorpusError(f"{path}: expected JSON, found: {reason:.200}; {remedy}") from error


def _iter_members(file: _BoundedFile, key: str) -> Generator[tuple[str, Any]]:
    """Yield the elements of a member as :func:`iter_members` does, from an open file."""
    # Containers that are open, the outermost first. Of what is not wanted nothing is kept.
    stack: list[Container] = []
    events = cast("Iterator[tuple[str, Any]]", ijson.basic_parse(file, use_float=True, buf_size=_BLOCK_BYTES))
    for event, value in events:
        if not stack and event != "start_map":
            raise CorpusError(f"{file.path}: expected a JSON object, found another value; {file.remedy}")
        if event == "map_key":
            stack[-1][1][0] = value
            continue
        if event in {"start_map", "start_array"}:
            if len(stack) >= DEPTH:
                raise CorpusError(
                    f"{file.path}: expected JSON nested at most {DEPTH} levels deep, found more; {file.remedy}"
                )
            stack.append(({} if event == "start_map" else [], [""]))
            continue
        item = stack.pop()[0] if event in {"end_map", "end_array"} else value
        wanted = bool(stack) and stack[0][1][0] == key
        if len(stack) == 2 and wanted:
            yield stack[1][1][0], item
        elif len(stack) > 2 and wanted:
            put_item(*stack[-1], item)
        elif len(stack) == 1 and wanted and not isinstance(item, (dict, list)):
            yield "", item
        if len(stack) <= 2:
            file.since = 0


def put_item(container: Any, last: list[str], item: object) -> None:
    """Add an item to the list or object that is being built; ``last`` has the last key of an object."""
    if isinstance(container, dict):
        container[last[0]] = item
    else:
        container.append(item)
