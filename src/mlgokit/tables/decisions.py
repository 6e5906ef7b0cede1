"""Decision tables: the tuned decisions of a project's modules, as the plugin reads them (docs/formats.md)."""

import dataclasses
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.learner import ForcedDecisions
from mlgokit.compiler.compilation import Compilation, InlineDecisions
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.errors import InputError
from mlgokit.files import atomic_write
from mlgokit.tables.file import finite_float, read_summary, read_summary_text, read_table_file, summary_bytes
from mlgokit.traces.function_id import function_id

Keys = npt.NDArray[np.uint64]
_MAGIC = b"MLGODT2\n"
_PLAIN, _AT_LINK, _DEFERS, _ANY_LEVEL = 1, 2, 4, 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableEntry:
    """The decisions of one module; S names, K keys.

    Attributes:
        names: [S] ids of the module's externally visible functions, by which the compiler finds the entry.
        keys: [K] ascending keys of call sites; bit 0 is the decision.
        plain: whether the module is left to LLVM's own advisor; its keys then only tell it from modules with the same
            names.
        at_link: whether the module is the merged one of a full link-time optimization, where alone it is looked up.
        defers: whether the compile steps before that link inline nothing, so that the link decides about all calls.
        any_level: whether the decisions are for a module that is not compiled for size.
    """

    names: Keys
    keys: Keys
    plain: bool = False
    at_link: bool = False
    defers: bool = False
    any_level: bool = False


def strong_names(sizes: ObjectSizes) -> Keys:
    """List the ids of an object's functions outside of COMDAT groups, which few other modules define."""
    return _to_unsigned(
        function_id(name)
        for name, signature in zip(sizes.function_names, sizes.function_signature.tolist(), strict=True)
        if signature < 0
    )


def _to_unsigned(ids: Iterable[int]) -> Keys:
    """Reinterpret signed 64-bit ids as unsigned ones."""
    return np.array([number & (2**64 - 1) for number in ids], np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSummary:
    """The measurements of the search that made a table.

    Attributes:
        llvm: LLVM major.
        objective: which bytes counted, as in :class:`~mlgokit.compiler.objects.measure.Objective`.
        plain_bytes: size of the project in the baseline build.
        tuned_bytes: size of the project with the table.
        modules: names of the modules, in the order of the entries.
        linked: whether the search counted what a link keeps: an object may then be larger, and the program smaller.
    """

    llvm: int
    objective: str
    plain_bytes: float
    tuned_bytes: float
    modules: tuple[str, ...]
    linked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionTable:
    """A decision table that was read from a file.

    Attributes:
        entries: one entry for each module.
        summary: measurements of the search that made the table; ``None`` for tables that no search wrote.
    """

    entries: tuple[TableEntry, ...]
    summary: TuningSummary | None
    _by_name: dict[int, list[int]] = field(init=False, repr=False, default_factory=dict[int, list[int]])

    def __post_init__(self) -> None:
        for index, entry in enumerate(self.entries):
            for name in set(entry.names.tolist()):
                self._by_name.setdefault(name, []).append(index)

    def find_entry(self, module: str, names: Keys, answered: Keys) -> int | None:
        """Find the entry of a module: the one with most of the keys that it was asked for, or else most of its names.

        Of several, such as those of programs that have nothing but ``main`` in common, it is the one of the same name.

        Args:
            module: name of the module.
            names: ids of its functions, as :func:`strong_names` lists them.
            answered: keys of its call sites that the table decided.

        Returns:
            The index of the entry, or ``None`` if the table knows neither the module's functions nor, of a module
            without any, its name.
        """
        known = () if self.summary is None else self.summary.modules
        # In a project of thousands of modules, few entries have any of its functions.
        shared = Counter(index for name in names.tolist() for index in self._by_name.get(name, ()))
        nameless = [] if len(names) else [index for index, entry in enumerate(self.entries) if not len(entry.names)]
        best, score = None, (0, 0, False)
        for index in (*sorted(shared), *nameless):
            is_named = known[index : index + 1] == (module,)
            same = np.isin(answered, self.entries[index].keys & ~np.uint64(1)) if shared[index] else ()
            found = (int(np.sum(same)), shared[index], is_named)
            if found > score:
                best, score = index, found
        return best


def make_entry(
    names: Iterable[int],
    sites: Keys,
    inlined: npt.NDArray[np.bool_],
    *,
    plain: bool = False,
    at_link: bool = False,
    defers: bool = False,
    any_level: bool = False,
) -> TableEntry:
    """Make the entry that repeats the decisions of one compilation.

    Args:
        names: ids of the module's functions, as :func:`strong_names` lists them; signed or not.
        sites: [K] keys of the call sites that were asked about.
        inlined: [K] the decision at each of them.
        plain: as in :class:`TableEntry`.
        at_link: as in :class:`TableEntry`.
        defers: as in :class:`TableEntry`.
        any_level: as in :class:`TableEntry`.

    Example:
        >>> entry = make_entry([-1], np.array([8, 4], np.uint64), np.array([True, False]))
        >>> entry.keys.tolist()
        [4, 9]
    """
    keys = (sites & ~np.uint64(1)) | inlined.astype(np.uint64)
    return TableEntry(
        names=_to_unsigned(names),
        keys=np.sort(keys),
        plain=plain,
        at_link=at_link,
        defers=defers,
        any_level=any_level,
    )


def table_bytes(entries: Sequence[TableEntry], summary: TuningSummary | None = None) -> bytes:
    """Encode ``entries`` as a table file."""
    parts = [_MAGIC, struct.pack("<I", len(entries))]
    for entry in entries:
        parts.extend(
            (
                struct.pack("<III", len(entry.names), len(entry.keys), _flags_of(entry)),
                entry.names.astype("<u8").tobytes(),
                entry.keys.astype("<u8").tobytes(),
            )
        )
    return b"".join((*parts, summary_bytes(summary)))


def _flags_of(entry: TableEntry) -> int:
    """Combine an entry's flags to a number."""
    return _PLAIN * entry.plain | _AT_LINK * entry.at_link | _DEFERS * entry.defers | _ANY_LEVEL * entry.any_level


def find_flipped_keys(base: InlineDecisions, forced: ForcedDecisions) -> npt.NDArray[np.int64]:
    """Find the sites of ``base`` at which ``forced`` decides differently; bit 0 of each key is that decision."""
    sites = base.sites.view(np.int64) & ~1
    keys = (forced.sites & ~1) | (forced.decisions != 0)
    return keys[np.isin(forced.sites & ~1, sites) & ~np.isin(keys, sites | base.inlined)]


def site_table(default: Compilation, forced: ForcedDecisions) -> bytes:
    """Make a decision table that forces ``forced`` in the module of ``default``, recognized by its object's functions.

    The table is empty if nothing is forced, or the compilation has no object.
    """
    if not len(forced.sites) or default.sizes is None:
        return b""
    return table_bytes([make_entry(strong_names(default.sizes), forced.sites.view(np.uint64), forced.decisions != 0)])


def write_table(path: Path, entries: Sequence[TableEntry], summary: TuningSummary | None = None) -> None:
    """Write a decision table, atomically.

    Raises:
        StorageError: the disk is full or not writable.
    """
    atomic_write(path, table_bytes(entries, summary))


def renew_summary(path: Path, tuned_bytes: float) -> bool:
    """Set the tuned size in a decision table's summary to a new measurement; returns whether the file changed."""
    table = read_table(path)
    if table.summary is None or table.summary.tuned_bytes == tuned_bytes:
        return False
    write_table(path, table.entries, dataclasses.replace(table.summary, tuned_bytes=tuned_bytes))
    return True


def read_table(path: Path) -> DecisionTable:
    """Read a decision table from a table file, or from a tuned plugin in which it is embedded.

    Raises:
        InputError: the file is missing, or has no decision table, or is damaged.
    """
    data = read_table_file(path, name="decisions", called="decision table", magic=_MAGIC)
    return parse_table(data, name=path)


def parse_table(data: bytes, *, name: Path | str) -> DecisionTable:
    """Parse a decision table in memory as :func:`read_table` does; error messages name it ``name``."""
    position = len(_MAGIC) + 4
    entries: list[TableEntry] = []
    for index in range(int.from_bytes(data[len(_MAGIC) : position], "little")):
        end = position + 12
        counts = struct.unpack_from("<III", data, position) if end <= len(data) else (0, 0, 0)
        if end > len(data) or end + 8 * (counts[0] + counts[1]) > len(data):
            raise InputError(
                f"decision table {name}: expected the decisions of module {index}, found the end of the file after "
                f"{len(data)} bytes; it is cut short, tune again with --continue"
            )
        numbers = np.frombuffer(data, "<u8", counts[0] + counts[1], end)
        entries.append(
            TableEntry(
                names=numbers[: counts[0]],
                keys=numbers[counts[0] :],
                plain=bool(counts[2] & _PLAIN),
                at_link=bool(counts[2] & _AT_LINK),
                defers=bool(counts[2] & _DEFERS),
                any_level=bool(counts[2] & _ANY_LEVEL),
            )
        )
        position = end + 8 * (counts[0] + counts[1])
    text = read_summary_text(data, position)
    if text is None:
        raise InputError(
            f"decision table {name}: expected the table's summary and its length after byte {position}, found "
            f"{len(data)} bytes in all; it is damaged, tune again"
        )
    return DecisionTable(entries=tuple(entries), summary=read_summary(text, _summary_of, what=f"decision table {name}"))


def _summary_of(values: Any) -> TuningSummary:
    """Make the summary of parsed JSON."""
    return TuningSummary(
        llvm=int(values["llvm"]),
        objective=Objective(values["objective"]).value,
        plain_bytes=finite_float(values["plain_bytes"]),
        tuned_bytes=finite_float(values["tuned_bytes"]),
        modules=tuple(str(name) for name in values["modules"]),
        linked=bool(values.get("linked")),
    )
