"""Tables of functions with overridden decisions, for register allocation and for passes."""

import dataclasses
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides
from mlgokit.errors import InputError
from mlgokit.files import atomic_write
from mlgokit.tables.file import (
    finite_float,
    list_tables,
    read_summary,
    read_summary_text,
    read_table_file,
    summary_bytes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideKind:
    """A kind of override table.

    Attributes:
        table: name of the table in a plugin, one of :data:`mlgokit.tables.file.TABLES`.
        called: name of the kind in error messages.
        magic: first bytes of a table file.
        lists: names of the fields of :class:`Overrides` that the table has, in their order.
    """

    table: str
    called: str
    magic: bytes
    lists: tuple[str, ...]


ALLOCATIONS = OverrideKind(
    table="allocations", called="allocation table", magic=b"MLGORT1\n", lists=("evictions", "priorities")
)
"""Tables of evictions and priorities in the register allocation of functions."""
PASSES = OverrideKind(table="passes", called="pass table", magic=b"MLGOPT1\n", lists=("passes",))
"""Tables of optional passes of the code generator that do not run on functions."""
OPTIMIZER_PASSES = OverrideKind(
    table="optimizer_passes", called="pass table of the optimizer", magic=PASSES.magic, lists=PASSES.lists
)
"""Tables of optional passes of the optimizer that do not run on functions, from the inliner on."""

EACH_TIME = (1 << 16) - 1
"""In place of the number of one run: every run of an optimizer pass on a function."""

LeftOut = tuple[int, int, int]
"""A skipped pass: the key of the function, the number of the pass, and the number of its run, or :data:`EACH_TIME`."""


def group_by_function(left_out: Collection[LeftOut]) -> dict[int, Overrides]:
    """Group skipped passes by function, as the entries of a table.

    Example:
        >>> group_by_function([(7, 1, EACH_TIME), (7, 2, 0)])[7].passes.tolist()
        [(1, 65535, 0), (2, 0, 0)]
    """
    records_by_key: dict[int, list[tuple[int, int, int]]] = {}
    for key, number, nth in sorted(left_out):
        records_by_key.setdefault(key, []).append((number, nth, 0))
    return {key: Overrides(passes=np.array(records, OVERRIDE)) for key, records in records_by_key.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideSummary:
    """The measurements of the search that made an override table.

    Attributes:
        llvm: LLVM major.
        functions: number of functions of the project that were measured.
        plain_score: sum of the functions' scores without the table.
        tuned_score: sum of the functions' scores with the table.
    """

    llvm: int
    functions: int
    plain_score: float
    tuned_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideTable:
    """An override table that was read from a file.

    Attributes:
        kind: kind of the table.
        by_key: overrides of each function, by the function's key.
        summary: measurements of the search that made the table; ``None`` for tables that no search wrote.
    """

    kind: OverrideKind
    by_key: Mapping[int, Overrides]
    summary: OverrideSummary | None


def override_bytes(
    kind: OverrideKind, by_key: Mapping[int, Overrides], summary: OverrideSummary | None = None
) -> bytes:
    """Encode the overrides of functions as a table file.

    Example:
        >>> override_bytes(PASSES, {7: Overrides()}).hex()
        '4d4c474f5054310a0100000007000000000000000000000000000000'
    """
    parts = [kind.magic, struct.pack("<I", len(by_key))]
    head = _head(kind)
    for key, overrides in sorted(by_key.items()):
        lists = [getattr(overrides, name) for name in kind.lists]
        parts += [head.pack(key, *map(len, lists)), *(records.tobytes() for records in lists)]
    return b"".join((*parts, summary_bytes(summary)))


def write_overrides(
    kind: OverrideKind, path: Path, by_key: Mapping[int, Overrides], summary: OverrideSummary | None = None
) -> None:
    """Write an override table, atomically.

    Raises:
        StorageError: the disk is full or not writable.
    """
    atomic_write(path, override_bytes(kind, by_key, summary))


def read_overrides(kind: OverrideKind, path: Path) -> OverrideTable:
    """Read an override table from a table file, or from a tuned plugin in which it is embedded.

    Raises:
        InputError: the file is missing, or has no such table, or is damaged.
    """
    data = read_table_file(path, name=kind.table, called=kind.called, magic=kind.magic)
    at, head = len(kind.magic) + 4, _head(kind)
    by_key: dict[int, Overrides] = {}
    for _ in range(int.from_bytes(data[at - 4 : at], "little")):
        if at + head.size > len(data):
            raise _damage_error(kind, path, len(data))
        key, *counts = head.unpack_from(data, at)
        begin = at + head.size
        at = begin + OVERRIDE.itemsize * sum(counts)
        if at > len(data):
            raise _damage_error(kind, path, len(data))
        records = np.split(np.frombuffer(data, OVERRIDE, sum(counts), begin), np.cumsum(counts)[:-1])
        by_key[key] = Overrides(**dict(zip(kind.lists, records, strict=True)))
    text = read_summary_text(data, at)
    if text is None:
        raise _damage_error(kind, path, len(data))
    return OverrideTable(
        kind=kind, by_key=by_key, summary=read_summary(text, _summary_of, what=f"{kind.called} {path}")
    )


def renew_scores(kind: OverrideKind, path: Path, plain_score: float, tuned_score: float) -> bool:
    """Set the scores in an override table's summary to a new measurement; returns whether the file changed."""
    table = read_overrides(kind, path)
    if table.summary is None:
        return False
    renewed = dataclasses.replace(table.summary, plain_score=plain_score, tuned_score=tuned_score)
    if renewed != table.summary:
        write_overrides(kind, path, table.by_key, renewed)
    return renewed != table.summary


def read_plugin_overrides(kind: OverrideKind, plugin: Path) -> Mapping[int, Overrides]:
    """Read the overrides embedded in a plugin, by the function's key; empty if the plugin has no table of this kind.

    Raises:
        InputError: the file is missing or damaged.
    """
    return read_overrides(kind, plugin).by_key if kind.table in list_tables(plugin) else dict[int, Overrides]()


def _head(kind: OverrideKind) -> struct.Struct:
    """Return the format of a function's head in a table: its key, and the number of records in each list."""
    return struct.Struct(f"<Q{len(kind.lists)}I")


def _summary_of(values: Any) -> OverrideSummary:
    """Make the summary of parsed JSON."""
    return OverrideSummary(
        llvm=int(values["llvm"]),
        functions=int(values["functions"]),
        plain_score=finite_float(values["plain_score"]),
        tuned_score=finite_float(values["tuned_score"]),
    )


def _damage_error(kind: OverrideKind, path: Path, size: int) -> InputError:
    """Make the error for a table file that ends too early."""
    return InputError(
        f"{kind.called} {path}: expected all functions and the length of the summary at the end, found {size} bytes; "
        "it is cut short, tune again with --continue"
    )
