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
"""Names of the tables that may be embedded in a tuned plugin."""
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
        text: text that :func:`read_summary_text` read.
        make: function that makes the summary from the parsed JSON.
        what: name of the table in error messages.

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
    """Convert a number of a summary to a finite float.

    Raises:
        ValueError: the number is not finite.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, found {number}")
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
    named = {name for name in TABLES if _boundary_symbols(name)[0].encode() in data}
    if not data.startswith(b"\x7fELF"):
        return named
    # Some linkers, such as lld, keep the names of undefined symbols, which the plugin has for tables that it lacks.
    return {name for name in named if read_plugin_data(data, name) is not None}


def read_table_file(path: Path, *, name: str, called: str, magic: bytes) -> bytes:
    """Read the bytes of a table from its magic number on, with at least a count after it.

    Args:
        path: path of the table file, or of a plugin in which the table is embedded.
        name: name of the table in the plugin, one of :data:`TABLES`.
        called: name of the kind of table in error messages.
        magic: first bytes of the table.

    Raises:
        InputError: the file is missing, or has no such table.
    """
    what = f"{called} {path}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{what}: expected a readable file, found: {error.strerror}; check the path") from error
    if data.startswith(b"\x7fELF"):
        data = _embedded_table(path, data, name)
    if not data.startswith(magic) or len(data) < len(magic) + 4:
        raise InputError(
            f"{what}: expected a file that `mlgokit tune` of this version wrote, found {data[: len(magic)]!r} at its "
            "beginning; tune again"
        )
    return data


def read_plugin_data(plugin: bytes, name: str) -> bytes | None:
    """Read data that is embedded in a plugin under a name; ``None`` if the plugin lacks it, or is stripped.

    Raises:
        InputError: the plugin is malformed.
    """
    ends = _boundary_symbols(name)
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


def _embedded_table(path: Path, plugin: bytes, name: str) -> bytes:
    """Read a table that must be embedded in a plugin."""
    content = read_plugin_data(plugin, name)
    if content is None:
        raise InputError(
            f"{path}: expected a plugin of `mlgokit tune` with the table {name!r}, found one without this table "
            "(perhaps a plugin of policies alone, or a stripped one); name the plugin as `mlgokit tune` wrote it"
        )
    return content


def _boundary_symbols(name: str) -> tuple[str, str]:
    """Name the symbols at the start and the end of a table that is embedded in a plugin."""
    return f"mlgokit_{name}_begin", f"mlgokit_{name}_end"
