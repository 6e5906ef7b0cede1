"""Allocation tables: how the functions of a project are to be allocated, as the plugin reads them (docs/formats.md)."""

import dataclasses
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides
from mlgokit.errors import InputError
from mlgokit.files import atomic_write
from mlgokit.tables.file import end_bytes, finite_float, read_summary, read_table_file, tables_inside, text_at_end

_MAGIC = b"MLGORT1\n"
_NAME = "allocations"
_HEAD = struct.Struct("<QII")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationSummary:
    """What was found when a table was made.

    Attributes:
        llvm: the major.
        functions: how many functions of the project had costs.
        plain_score: the sum of their scores as LLVM allocates them.
        tuned_score: the same with the table.
    """

    llvm: int
    functions: int
    plain_score: float
    tuned_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTable:
    """A table with all that is in its file.

    Attributes:
        by_key: overrides by the key of the function.
        summary: what was found when it was made; tables that no tuning wrote have none.
    """

    by_key: Mapping[int, Overrides]
    summary: AllocationSummary | None


def allocation_bytes(by_key: Mapping[int, Overrides], summary: AllocationSummary | None = None) -> bytes:
    """The file for these functions.

    Example:
        >>> allocation_bytes({7: Overrides()}).hex()
        '4d4c474f5254310a010000000700000000000000000000000000000000000000'
    """
    parts = [_MAGIC, struct.pack("<I", len(by_key))]
    for key, one in sorted(by_key.items()):
        parts += [_HEAD.pack(key, len(one.evictions), len(one.priorities))]
        parts += [one.evictions.tobytes(), one.priorities.tobytes()]
    return b"".join((*parts, end_bytes(summary)))


def write_allocations(path: Path, by_key: Mapping[int, Overrides], summary: AllocationSummary | None = None) -> None:
    """Write an allocation table, atomically.

    Raises:
        StorageError: the disk is full or not writable.
    """
    atomic_write(path, allocation_bytes(by_key, summary))


def read_allocations(path: Path) -> AllocationTable:
    """Read an allocation table, by itself or inside the plugin that a tuning wrote.

    Raises:
        InputError: the file is missing, or has no allocation table, or is damaged.
    """
    data = read_table_file(path, name=_NAME, magic=_MAGIC, made_by="mlgokit tune")
    at = len(_MAGIC) + 4
    by_key: dict[int, Overrides] = {}
    for _ in range(int.from_bytes(data[at - 4 : at], "little")):
        key, evictions, priorities = _HEAD.unpack_from(data, at) if at + _HEAD.size <= len(data) else (0, 0, 1 << 32)
        begin = at + _HEAD.size
        at = begin + OVERRIDE.itemsize * (evictions + priorities)
        if at > len(data):
            raise _damaged(path, len(data))
        records = np.frombuffer(data, OVERRIDE, evictions + priorities, begin)
        by_key[key] = Overrides(evictions=records[:evictions], priorities=records[evictions:])
    text = text_at_end(data, at)
    if text is None:
        raise _damaged(path, len(data))
    return AllocationTable(by_key=by_key, summary=read_summary(text, _summary_of, what=f"allocation table {path}"))


def renew_costs(path: Path, plain_score: float, tuned_score: float) -> bool:
    """Let a table say what was measured with it, and tell whether it said something else.

    Raises:
        InputError: the file is missing or damaged.
        StorageError: the disk is full or not writable.
    """
    table = read_allocations(path)
    if table.summary is None:
        return False
    renewed = dataclasses.replace(table.summary, plain_score=plain_score, tuned_score=tuned_score)
    if renewed != table.summary:
        write_allocations(path, table.by_key, renewed)
    return renewed != table.summary


def allocations_inside(plugin: Path) -> Mapping[int, Overrides]:
    """The overrides in a plugin, by the key of the function; none if it has decisions only.

    Raises:
        InputError: the file is missing or damaged.
    """
    return read_allocations(plugin).by_key if _NAME in tables_inside(plugin) else dict[int, Overrides]()


def _summary_of(values: Any) -> AllocationSummary:
    return AllocationSummary(
        llvm=int(values["llvm"]),
        functions=int(values["functions"]),
        plain_score=finite_float(values["plain_score"]),
        tuned_score=finite_float(values["tuned_score"]),
    )


def _damaged(path: Path, size: int) -> InputError:
    return InputError(
        f"allocation table {path}: expected all functions and a length at the end, found {size} bytes; "
        "it is cut short, tune again with --continue"
    )
