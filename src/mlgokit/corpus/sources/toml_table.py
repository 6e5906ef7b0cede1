"""Reading of hand-written TOML files, with an error sentence that says what is wrong and where."""

import posixpath
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

from mlgokit.errors import CorpusError


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """A TOML table with its name for messages; an unexpected value raises :class:`CorpusError`.

    Attributes:
        value: the table.
        where: its path, for messages.
    """

    value: Mapping[str, Any]
    where: str

    def entry_error(self, key: str, expected: str) -> CorpusError:
        """Make the error for a key with an unexpected value."""
        value = repr(self.value[key]) if key in self.value else "nothing"
        return CorpusError(f"{self.where}: {key}: expected {expected}, found {value[:200]}; correct it in the file")

    def check_keys(self, known: set[str]) -> None:
        """Refuse unknown keys."""
        for key in self.value:
            if key not in known:
                expected = f"one of the keys {', '.join(sorted(known))}"
                raise CorpusError(f"{self.where}: {key}: expected {expected}, found this unknown key; remove it")

    def text(
        self, key: str, expected: str, *, default: str | None = None, fits: Callable[[str], object] | None = None
    ) -> str:
        """Read a string that ``fits``; ``expected`` describes it in the error."""
        value = self.value.get(key, default)
        if not isinstance(value, str) or "\0" in value or (fits is not None and not fits(value)):
            raise self.entry_error(key, expected)
        return value

    def flag(self, key: str) -> bool:
        """Read a boolean; false if it is not given."""
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            raise self.entry_error(key, "true or false")
        return value

    def texts(self, key: str, expected: str, *, fits: Callable[[str], object] | None = None) -> tuple[str, ...]:
        """Read a list of strings that all ``fits``; empty if it is left out."""
        value: object = self.value.get(key, [])
        if not isinstance(value, list):
            raise self.entry_error(key, f"a list of {expected}")
        for item in cast("list[object]", value):
            if not isinstance(item, str) or "\0" in item or (fits is not None and not fits(item)):
                message = f"expected a list of {expected}, found in it {item!r}; correct it in the file"
                raise CorpusError(f"{self.where}: {key}: {message}")
        return tuple(cast("list[str]", value))

    def number(self, key: str, expected: str, *, default: int, least: int = 0) -> int:
        """Read a whole number of at least ``least``."""
        value = self.value.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.entry_error(key, expected)
        return value

    def word_lists(self, key: str, expected: str) -> tuple[tuple[str, ...], ...]:
        """Read a list of lists of strings, none of them empty; empty if it is left out."""
        value: object = self.value.get(key, [])
        if not isinstance(value, list):
            raise self.entry_error(key, expected)
        rows = [TomlTable(value={key: item}, where=self.where) for item in cast("list[object]", value)]
        lists = tuple(row.texts(key, "words") for row in rows)
        if not all(lists):
            raise self.entry_error(key, expected)
        return lists

    def table(self, key: str) -> "TomlTable":
        """Read a table; it must be there."""
        value: object = self.value.get(key)
        if not isinstance(value, dict):
            raise self.entry_error(key, "a table")
        return TomlTable(value=cast("dict[str, Any]", value), where=f"{self.where}: {key}")

    def tables(self, key: str) -> list["TomlTable"]:
        """Read a list of tables; empty if it is left out."""
        value: object = self.value.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("list[object]", value)):
            raise self.entry_error(key, "a list of tables")
        items = cast("list[dict[str, Any]]", value)
        return [TomlTable(value=item, where=f"{self.where}: {key} {number}") for number, item in enumerate(items, 1)]


def load_table(path: Path | Traversable, *, what: str) -> TomlTable:
    """Read a TOML file as a table; ``what`` describes it in the error.

    Raises:
        CorpusError: the file cannot be read, or is no TOML.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or error
        raise CorpusError(f"{path}: expected {what} in TOML, found: {reason}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: expected TOML, found: {error}; correct the file there") from error
    return TomlTable(value=document, where=str(path))


def stays_inside(path: str, *, below: str = "") -> bool:
    """Whether a relative path, starting from ``below``, stays inside the top folder.

    Example:
        >>> stays_inside("a/../b"), stays_inside("../b"), stays_inside("../b", below="a"), stays_inside("/b")
        (True, False, True, False)
    """
    if posixpath.isabs(path) or "\\" in path:
        return False
    return posixpath.normpath(posixpath.join(below, path)).split("/")[0] != ".."
