"""Table files of all kinds, standalone or embedded in a plugin."""

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
    """Encode the summary at the end of a table: its length, and its JSON text."""
    text = b"" if summary is None else json.dumps(dataclasses.asdict(summary)).encode()
    return struct.pack("<I", len(text)) + text


def read_summary_text(data: bytes, at: int) -> bytes | None:
    """Read the summary text at the end of a table; ``None`` if its length does not fit the file."""
    text = data[at + 4 :]
    return None if len(data) < at + 4 or int.from_bytes(data[at : at + 4], "little") != len(text) else text


def read_summary(text: bytes, make: Callable[[Any], _Summary], *, what: str) -> _Summary | None:
    """Parse the summary at the end of a table; ``None`` if it is empty.

    Args:
        text: of :func:`read_summary_text`.
        make: makes the summary from the parsed values.
        what: name of the table in errors.

    Raises:
        InputError: the text is not a summary.
    """
    try:
        return make(json.loads(text)) if text else None
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise InputError(
            f"{what}: expected a summary at its end, found {error!r}; it is damaged, tune again"
        ) from error


def finite_float(value: Any) -> float:
    """Check a number of a summary.

    Raises:
        ValueError: it is not finite.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"expected a number, found {number}")
    return number


def list_tables(plugin: Path) -> set[str]:
    """List the tables of :data:`TABLES` that are embedded in a plugin.

    Raises:
        InputError: the file cannot be read, or is malformed.
    """
    try:
        data = plugin.read_bytes()
    except OSError as error:
        raise InputError(f"{plugin}: expected a readable file, found: {error.strerror}; check the path") from error
    named = {name for name in TABLES if _ends(name)[0].encode() in data}
    if not data.startswith(b"\x7fELF"):
        return named
    # Some linkers, such as lld, keep the names of tables that are asked for and not there.
    return {name for name in named if read_plugin_data(data, name) is not None}


def read_table_file(path: Path, *, name: str, called: str, magic: bytes, made_by: str) -> bytes:
    """Read the bytes of a table from its magic number on, with at least a count after it.

    Args:
        path: the table, or a plugin in which it is embedded.
        name: of the table in the plugin, one of :data:`TABLES`.
        called: name of the kind in messages.
        magic: first bytes of the table.
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
    """Read the data that is linked into a plugin under a name; empty if the plugin lacks it, or is stripped.

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
    """The names of the symbols at the table's start and end."""
    return f"mlgokit_{name}_begin", f"mlgokit_{name}_end"
