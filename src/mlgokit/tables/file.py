"""The files of tables, by themselves or inside a plugin: what all kinds have in common."""

import dataclasses
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mlgokit.compiler.objects.elf import read_elf, read_symbols, text_at
from mlgokit.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TABLES = ("decisions", "optimizer_passes", "passes", "allocations")
"""What a tuned plugin may have inside."""
_Summary = TypeVar("_Summary")


def summary_bytes(summary: "DataclassInstance | None") -> bytes:
    """The end of a table: the length of a text, and the text, which says what was found when the table was made."""
    text = b"" if summary is None else json.dumps(dataclasses.asdict(summary)).encode()
    return struct.pack("<I", len(text)) + text


def read_summary_text(data: bytes, at: int) -> bytes | None:
    """The text that ends a table; ``None`` if the file is not as long as it says there."""
    text = data[at + 4 :]
    return None if len(data) < at + 4 or int.from_bytes(data[at : at + 4], "little") != len(text) else text


def read_summary(text: bytes, make: Callable[[Any], _Summary], *, what: str) -> _Summary | None:
    """What the text at the end of a table says; nothing if it is empty.

    Args:
        text: of :func:`read_summary_text`.
        make: makes it of the values.
        what: names the table in errors.

    Raises:
        InputError: the text is no such thing.
    """
    try:
        return make(json.loads(text)) if text else None
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise InputError(
            f"{what}: expected at its end what the search found, found {error!r}; it is damaged, tune again"
        ) from error


def finite_float(value: Any) -> float:
    """A number of a summary.

    Raises:
        ValueError: it is not finite.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"expected a number, found {number}")
    return number


def list_tables(plugin: Path) -> set[str]:
    """Names of the tables that a plugin has inside, of those in :data:`TABLES`.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        data = plugin.read_bytes()
    except OSError as error:
        raise InputError(f"{plugin}: expected a readable file, found: {error.strerror}; check the path") from error
    return {name for name in TABLES if _ends(name)[0].encode() in data}


def read_table_file(path: Path, *, name: str, called: str, magic: bytes, made_by: str) -> bytes:
    """The bytes of a table, from its magic number on; at least a count follows it.

    Args:
        path: the table, or a plugin that has it inside.
        name: of the table in the plugin, one of :data:`TABLES`.
        called: what people call such a table.
        magic: what the table begins with.
        made_by: the command that makes such tables.

    Raises:
        InputError: the file is missing, or has no such table.
    """
    what = f"{called} {path}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{what}: expected a readable file, found: {error.strerror}; check the path") from error
    if data.startswith(b"\x7fELF"):
        data = _inside(path, data, name)
    if not data.startswith(magic) or len(data) < len(magic) + 4:
        raise InputError(
            f"{what}: expected a file that `{made_by}` wrote, found another "
            "or one of another version of mlgokit; tune again"
        )
    return data


def read_plugin_data(plugin: bytes, name: str) -> bytes | None:
    """What is linked into a plugin under a name; nothing if that is not there, or symbols are not.

    Raises:
        InputError: the file is malformed.
    """
    ends = _ends(name)
    elf = read_elf(plugin)
    symbols = read_symbols(elf)
    places: dict[str, int] = {}
    for index, start in enumerate(symbols.table["name"].tolist()):
        section = int(symbols.section[index])
        if section >= 0 and text_at(symbols.strings, start) in ends:
            header = elf.sections[section]
            address = int(symbols.table["value"][index])
            places[text_at(symbols.strings, start)] = address - int(header["address"]) + int(header["offset"])
    return plugin[places[ends[0]] : places[ends[1]]] if set(places) == set(ends) else None


def _inside(path: Path, plugin: bytes, name: str) -> bytes:
    content = read_plugin_data(plugin, name)
    if content is None:
        raise InputError(
            f"{path}: expected a plugin that `mlgokit tune` wrote, found one without {name}, or without symbols; "
            "give the file as it was written"
        )
    return content


def _ends(name: str) -> tuple[str, str]:
    """The symbols at the table's ends."""
    return f"mlgokit_{name}_begin", f"mlgokit_{name}_end"
