"""Decision tables: the tuned decisions of a project's modules, as the plugin reads them (docs/formats.md)."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mlgokit.collect import function_id
from mlgokit.compiler.measure import ObjectSizes
from mlgokit.errors import InputError
from mlgokit.manifest import atomic_write

Keys = npt.NDArray[np.uint64]
_MAGIC = b"MLGODT1\n"
_PLAIN = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableEntry:
    """The decisions of one module; S names, K keys.

    Attributes:
        names: [S] ids of its externally visible functions, by which the compiler finds the entry.
        keys: [K] ascending keys of call sites; bit 0 is the decision.
        plain: the module is left to LLVM's own advisor.
    """

    names: Keys
    keys: Keys
    plain: bool = False


def strong_names(sizes: ObjectSizes) -> list[int]:
    """Ids of the functions of an object that are in no COMDAT group: most of them are the module's alone."""
    return [
        function_id(name)
        for name, signature in zip(sizes.function_names, sizes.function_signature.tolist(), strict=True)
        if signature < 0
    ]


def entry_of(names: Sequence[int], sites: Keys, inlined: npt.NDArray[np.bool_]) -> TableEntry:
    """The entry that repeats the decisions of one compilation.

    Example:
        >>> entry = entry_of([-1], np.array([8, 4], np.uint64), np.array([True, False]))
        >>> entry.keys.tolist()
        [4, 9]
    """
    keys = (sites & ~np.uint64(1)) | inlined.astype(np.uint64)
    return TableEntry(names=np.array([name & (2**64 - 1) for name in names], np.uint64), keys=np.sort(keys))


def table_bytes(entries: Sequence[TableEntry]) -> bytes:
    """The file for ``entries``."""
    parts = [_MAGIC, struct.pack("<I", len(entries))]
    for entry in entries:
        parts.extend(
            (
                struct.pack("<III", len(entry.names), len(entry.keys), _PLAIN if entry.plain else 0),
                entry.names.astype("<u8").tobytes(),
                entry.keys.astype("<u8").tobytes(),
            )
        )
    return b"".join(parts)


def write_table(path: Path, entries: Sequence[TableEntry]) -> None:
    """Write a decision table, atomically.

    Raises:
        StorageError: the disk is full or not writable.
    """
    atomic_write(path, table_bytes(entries))


def read_table(path: Path) -> list[TableEntry]:
    """Read a decision table.

    Raises:
        InputError: the file is missing, or is not a decision table, or is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"decision table {path}: expected a readable file, found: {error.strerror}; check the path"
        ) from error
    if not data.startswith(_MAGIC) or len(data) < len(_MAGIC) + 4:
        raise InputError(f"decision table {path}: expected a file that `mlgokit tune` wrote, found another")
    position = len(_MAGIC) + 4
    entries: list[TableEntry] = []
    for index in range(int.from_bytes(data[len(_MAGIC) : position], "little")):
        end = position + 12
        counts = struct.unpack_from("<III", data, position) if end <= len(data) else (0, 0, 0)
        if end > len(data) or end + 8 * (counts[0] + counts[1]) > len(data):
            raise InputError(
                f"decision table {path}: expected the decisions of module {index}, found the end of the file after "
                f"{len(data)} bytes; it is cut short, tune again with --continue"
            )
        numbers = np.frombuffer(data, "<u8", counts[0] + counts[1], end)
        entries.append(
            TableEntry(names=numbers[: counts[0]], keys=numbers[counts[0] :], plain=bool(counts[2] & _PLAIN))
        )
        position = end + 8 * (counts[0] + counts[1])
    if position != len(data):
        raise InputError(
            f"decision table {path}: expected {position} bytes, found {len(data)}; it is damaged, tune again"
        )
    return entries
