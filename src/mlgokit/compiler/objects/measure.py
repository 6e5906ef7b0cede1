"""Sizes of an object by section kind, function and COMDAT signature, and the scores that are computed from them.

Every byte that ``llvm-size`` calls *text* (allocated, not writable) is owned exactly once: by a function, by a COMDAT
signature (vtables, typeinfo names and other group contents that no function owns), or by the rest (constants,
strings, the CIEs of ``.eh_frame``, padding between functions that share a section).

The scores: a linker keeps one copy of a COMDAT signature however many modules define it, so the link-aware score
counts its bytes 1/k in a module of a project in which k modules define it (``docs/scores.md``).
"""

import enum
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.elf import Elf, Ints, Symbols
from mlgokit.compiler.objects.ownership import Functions, extents, find_functions, read_frames
from mlgokit.errors import InputError

NONE, TEXT, RODATA, EH_FRAME, DATA, BSS = range(6)
"""Section kinds; ``TEXT``, ``RODATA`` and ``EH_FRAME`` together are what llvm-size calls text."""
COLUMNS = 3
"""Columns of the byte tables: text, rodata, eh_frame, in this order."""

_EXCEPT_TABLES = (".gcc_except_table", ".ARM.extab")

Image = Literal["", "program", "library"]
"""What an object is linked into: a program or a library that uses shared libraries, or an image that uses none."""
PLT_ENTRY = 16
"""Bytes of a ``.plt`` entry."""
_RELOCATION = 24
_SYMBOL = 24 + 2
"""Bytes of a dynamic symbol without its name: an entry of ``.dynsym``, and its version."""
_CALLS = {62: (4,), 183: (282, 283)}
"""Relocation types of calls, by machine: ``R_X86_64_PLT32``, ``R_AARCH64_JUMP26`` and ``R_AARCH64_CALL26``."""
_DEFAULT_VISIBILITY = 0


class Objective(enum.Enum):
    """Which bytes of an object count."""

    LINK_AWARE = "link-aware"
    """Text, read-only data and unwind tables; a COMDAT signature that k objects define counts 1/k."""
    LINK_AWARE_TEXT = "link-aware-text"
    """Machine code only, COMDAT signatures at 1/k; for builds without unwind tables."""
    OBJECT_TEXT = "object-text"
    """llvm-size's text, the score of google/ml-compiler-opt; it ignores that the linker merges COMDAT copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionTotals:
    """Bytes of a file's sections by kind; ``except_table`` is a part of ``rodata``."""

    text: int
    rodata: int
    eh_frame: int
    data: int
    bss: int
    except_table: int

    @property
    def llvm_size_text(self) -> int:
        """llvm-size's first column: all allocated sections that are read-only or executable."""
        return self.text + self.rodata + self.eh_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSizes:
    """The sizes of one object, with F functions and S COMDAT signatures.

    Attributes:
        totals: bytes by section kind.
        function_names: [F] one symbol name for each function; if several share an address, the defining one.
        function_text: [F] machine code; the whole section including padding, if the function has a section of its own.
        function_rodata: [F] jump tables in sections of the function, and ``function_except_table``.
        function_except_table: [F] the function's LSDA.
        function_eh_frame: [F] the function's FDEs.
        function_signature: [F] index of the COMDAT signature, or -1 outside of groups.
        signatures: [S] COMDAT signatures that this object defines.
        signature_rest: [S, 3] text, rodata and eh_frame bytes of the group that no function owns.
        signature_data: [S] writable bytes of the group (vtables of position-independent code).
        rest: [3] text, rodata and eh_frame bytes that belong to no function and no signature.
    """

    totals: SectionTotals
    function_names: tuple[str, ...]
    function_text: Ints
    function_rodata: Ints
    function_except_table: Ints
    function_eh_frame: Ints
    function_signature: Ints
    signatures: tuple[str, ...]
    signature_rest: Ints
    signature_data: Ints
    rest: Ints

    @property
    def llvm_size_text(self) -> int:
        """Bytes in llvm-size's text column."""
        return self.totals.llvm_size_text

    @property
    def function_bytes(self) -> Ints:
        """[F, 3] text, rodata and eh_frame of each function."""
        return np.stack([self.function_text, self.function_rodata, self.function_eh_frame], axis=1)

    @property
    def signature_bytes(self) -> Ints:
        """[S, 3] text, rodata and eh_frame of each COMDAT signature, its functions included."""
        total = self.signature_rest.copy()
        inside = self.function_signature >= 0
        np.add.at(total, self.function_signature[inside], self.function_bytes[inside])
        return total


def section_totals(elf: Elf) -> SectionTotals:
    """Sum the sections of an object or a linked file by kind."""
    kind, size = _kinds(elf), elf.sections["size"].astype(np.int64)
    sums = np.bincount(kind, np.where(kind == NONE, 0, size), minlength=6).astype(np.int64).tolist()
    return SectionTotals(
        text=sums[TEXT],
        rodata=sums[RODATA],
        eh_frame=sums[EH_FRAME],
        data=sums[DATA],
        bss=sums[BSS],
        except_table=int(size[_except_tables(elf, kind)].sum()),
    )


def measure_object(data: bytes | Path, *, folds: bool = False, image: Image = "") -> ObjectSizes:
    """Read an ELF object and assign every byte of it to an owner.

    Args:
        data: content or path of the object.
        folds: whether the linker folds identical functions (ICF); such functions share the bytes of one of them. The
            totals are still those of the object.
        image: kind of the image that the object is linked into, if functions are to be charged for the bytes of dynamic
            calls; else empty.

    Raises:
        InputError: the file is missing, damaged, or no relocatable object for a target of :data:`elf.MACHINES`.
    """
    elf = e.read_elf(data)
    if elf.kind != e.ET_REL:
        raise InputError(
            f"{elf.where}: expected a relocatable object (ELF type 1), found ELF type {elf.kind}; give an object "
            "as clang -c writes it, before linking"
        )
    kind, symbols = _kinds(elf), e.read_symbols(elf)
    signatures, group = read_groups(elf, symbols)
    code = find_functions(elf, symbols, kind == TEXT)
    count = len(code.names)
    left = np.where(kind == NONE, 0, elf.sections["size"].astype(np.int64))
    np.subtract.at(left, code.section, code.size)

    eh_frame, except_table = np.zeros(count, np.int64), np.zeros(count, np.int64)
    rest, signature_rest = np.zeros(COLUMNS, np.int64), np.zeros((len(signatures), COLUMNS), np.int64)
    tables = np.flatnonzero(kind == EH_FRAME)
    frames = read_frames(elf, symbols, tables, code, _except_tables(elf, kind))
    np.subtract.at(left, frames.table, frames.size)
    owned = frames.function >= 0
    np.add.at(eh_frame, frames.function[owned], frames.size[owned])
    owner = np.where(frames.section >= 0, group[frames.section], -1)
    grouped = ~owned & (owner >= 0)
    np.add.at(signature_rest[:, 2], owner[grouped], frames.size[grouped])
    rest[2] += int(frames.size[~owned & ~grouped].sum())
    table_size = extents(elf, frames.table_section, frames.table_begin)
    described = table_size > 0
    np.add.at(except_table, frames.function[described], table_size[described])
    np.subtract.at(left, frames.table_section[described], table_size[described])
    rodata = except_table.copy()
    for index, function in _jump_tables(elf, kind, group, code):
        rodata[function] += left[index]
        left[index] = 0

    text = code.size
    if folds:
        alike = group_alike_functions(elf, symbols, code, except_table)
        text, rodata, eh_frame = share_folded_bytes([text, rodata, eh_frame], alike)
    if image:
        plt, tables_read = count_dynamic_bytes(elf, symbols, code, image)
        text, rodata = text + plt, rodata + tables_read

    column = kind - TEXT
    counted = (column >= 0) & (column < COLUMNS)
    grouped = counted & (group >= 0)
    np.add.at(signature_rest, (group[grouped], column[grouped]), left[grouped])
    np.add.at(rest, column[counted & (group < 0)], left[counted & (group < 0)])
    written = (group >= 0) & ((kind == DATA) | (kind == BSS))
    signature_data = np.zeros(len(signatures), np.int64)
    np.add.at(signature_data, group[written], left[written])
    # Objects of a project have most of their names in common.
    return ObjectSizes(
        totals=section_totals(elf),
        function_names=tuple(map(sys.intern, code.names)),
        function_text=text,
        function_rodata=rodata,
        function_except_table=except_table,
        function_eh_frame=eh_frame,
        function_signature=group[code.section],
        signatures=tuple(map(sys.intern, signatures)),
        signature_rest=signature_rest,
        signature_data=signature_data,
        rest=rest,
    )


def folded_functions(data: bytes | Path) -> dict[str, int]:
    """Number the functions of an object, by name; functions that a linker folds have the same number."""
    except_table = measure_object(data).function_except_table
    elf = e.read_elf(data)
    symbols = e.read_symbols(elf)
    code = find_functions(elf, symbols, _kinds(elf) == TEXT)
    return dict(zip(code.names, group_alike_functions(elf, symbols, code, except_table).tolist(), strict=True))


def read_groups(elf: Elf, symbols: Symbols) -> tuple[tuple[str, ...], Ints]:
    """Read the COMDAT signatures of an object, and for each section [N] the index of its signature or -1.

    Raises:
        InputError: a group names a symbol or a section that does not exist, or a section is in two groups.
    """
    sections, count = elf.sections, len(elf.sections)
    group = [-1] * count
    signatures: list[str] = []
    for index in np.flatnonzero(sections["type"] == e.SHT_GROUP).tolist():
        where = f"{elf.where}: section group {index}"
        begin, size, link, symbol = (int(sections[field][index]) for field in ("offset", "size", "link", "info"))
        if size < 4 or size % 4:
            raise e.damage_error(where, "a flag word and section indices of 4 bytes each", f"{size} bytes")
        flags, *members = struct.unpack_from(f"<{size // 4}I", elf.data, begin)
        if not flags & e.GRP_COMDAT:
            continue
        if link != symbols.index or symbol >= len(symbols.table):
            raise e.damage_error(where, f"a signature among {len(symbols.table)} symbols", f"symbol {symbol}")
        for member in members:
            if member >= count or group[member] >= 0:
                raise e.damage_error(where, f"members of its own among {count} sections", f"section {member}")
            group[member] = len(signatures)
        signatures.append(_signature(elf, symbols, symbol))
    return tuple(signatures), np.array(group, np.int64)


def _signature(elf: Elf, symbols: Symbols, symbol: int) -> str:
    """The signature of a group: the name of its symbol, or of the section if it is a section symbol."""
    entry, section = symbols.table[symbol], int(symbols.section[symbol])
    if int(entry["info"]) & 15 == e.STT_SECTION and section >= 0:
        return elf.names[section]
    return e.text_at(symbols.strings, int(entry["name"]))


def link_weights(objects: Iterable[ObjectSizes]) -> dict[str, int]:
    """For each COMDAT signature, the number k of a project's baseline objects that define it."""
    weights: dict[str, int] = {}
    for sizes in objects:
        for signature in set(sizes.signatures):
            weights[signature] = weights.get(signature, 0) + 1
    return weights


def size_score(sizes: ObjectSizes, weights: Mapping[str, int], *, objective: Objective = Objective.LINK_AWARE) -> float:
    """Score an object by an objective; a signature that is not in ``weights`` counts fully."""
    scores, rest = _weigh(sizes, weights, objective)
    return float(scores.sum()) + rest


def link_aware_score(sizes: ObjectSizes, weights: Mapping[str, int]) -> float:
    """Score an object by the default objective: llvm-size's text, with COMDAT signatures at 1/k."""
    return size_score(sizes, weights)


def function_scores(
    sizes: ObjectSizes, weights: Mapping[str, int], *, objective: Objective = Objective.LINK_AWARE
) -> tuple[tuple[str, ...], npt.NDArray[np.float64], float]:
    """Divide an object's score among its functions: names [F], scores [F], and the score of all other bytes."""
    return sizes.function_names, *_weigh(sizes, weights, objective)


def project_image_estimate(objects: Iterable[ObjectSizes], *, objective: Objective = Objective.LINK_AWARE) -> float:
    """Bytes of all objects with every COMDAT signature counted once, by its first definition.

    Unreferenced sections are not removed. ``OBJECT_TEXT`` merges nothing, and gives the sum over the objects.
    """
    seen: set[str] = set()
    total = 0.0
    for sizes in objects:
        unknown = dict.fromkeys(sizes.signatures, 1)
        total += size_score(sizes, unknown, objective=objective)
        if objective is not Objective.OBJECT_TEXT:
            duplicate = np.array([signature in seen for signature in sizes.signatures], bool)
            total -= float(sizes.signature_bytes[duplicate][:, : columns_of(objective)].sum())
            seen.update(sizes.signatures)
    return total


def columns_of(objective: Objective) -> int:
    """The number of columns of text, rodata and eh_frame that count."""
    return 1 if objective is Objective.LINK_AWARE_TEXT else COLUMNS


def _weigh(
    sizes: ObjectSizes, weights: Mapping[str, int], objective: Objective
) -> tuple[npt.NDArray[np.float64], float]:
    """Scores of the functions [F], and the score of everything else."""
    columns = columns_of(objective)
    functions = sizes.function_bytes[:, :columns].sum(axis=1)
    groups = sizes.signature_rest[:, :columns].sum(axis=1)
    rest = float(sizes.rest[:columns].sum())
    if objective is Objective.OBJECT_TEXT:
        return functions.astype(np.float64), rest + float(groups.sum())
    share = np.array([1.0 / weights.get(signature, 1) for signature in sizes.signatures] + [1.0])
    return functions * share[sizes.function_signature], rest + float(groups @ share[:-1])


def _kinds(elf: Elf) -> Ints:
    """The kind of each section [N], with llvm-size's definition of text."""
    flags, types = elf.sections["flags"], elf.sections["type"]
    kind = np.full(len(flags), RODATA, np.int64)
    kind[(flags & e.SHF_WRITE) != 0] = DATA
    kind[((flags & e.SHF_WRITE) != 0) & (types == e.SHT_NOBITS)] = BSS
    kind[(flags & e.SHF_EXECINSTR) != 0] = TEXT
    kind[(flags & e.SHF_ALLOC) == 0] = NONE
    for index in np.flatnonzero(kind == RODATA).tolist():
        if elf.names[index] in (".eh_frame", ".eh_frame_hdr") or elf.is_index_table(index):
            kind[index] = EH_FRAME
    return kind


def _except_tables(elf: Elf, kind: Ints) -> npt.NDArray[np.bool_]:
    """Whether each section [N] holds exception tables."""
    mask = np.zeros(len(kind), bool)
    for index in np.flatnonzero(kind == RODATA).tolist():
        mask[index] = elf.names[index].startswith(_EXCEPT_TABLES)
    return mask


def _jump_tables(elf: Elf, kind: Ints, group: Ints, code: Functions) -> list[tuple[int, int]]:
    """Pairs of a read-only section that is named after a function, ``.rodata.<name>``, and that function."""
    plain = (kind == RODATA) & ((elf.sections["flags"] & e.SHF_MERGE) == 0)
    named = [index for index in np.flatnonzero(plain).tolist() if elf.names[index].startswith(".rodata.")]
    if not named:
        return []
    functions = {name: function for function, name in enumerate(code.names)}
    pairs: list[tuple[int, int]] = []
    for index in named:
        name = elf.names[index].removeprefix(".rodata.")
        function = functions.get(name)
        for prefix in ("hot.", "unlikely."):
            if function is None:
                function = functions.get(name.removeprefix(prefix))
        if function is not None and group[index] == group[code.section[function]]:
            pairs.append((index, function))
    return pairs


def group_alike_functions(elf: Elf, symbols: Symbols, code: Functions, except_table: Ints) -> Ints:
    """Number the functions [F] such that those that ``lld --icf=all`` folds have the same number.

    Two functions are alike if their sections have the same bytes, and relocations at the same offsets to the same
    symbols, or to functions that are alike themselves. So all with the same bytes begin as alike, and are told apart
    until nothing changes any more.

    Args:
        elf: the object.
        symbols: its symbols.
        code: its functions.
        except_table: [F] bytes of each function's exception table. One that has any is not folded, nor is one that
            shares its section with another one.
    """
    count = len(code.names)
    alone = np.bincount(code.section, minlength=len(elf.names))[code.section] == 1 if count else np.zeros(0, bool)
    candidates = np.flatnonzero((except_table == 0) & alone).tolist()
    function_at = np.full(len(elf.names) + 1, -1, np.int64)
    function_at[code.section[candidates]] = candidates
    numbers, known = np.arange(count, dtype=np.int64), dict[object, int]()
    named: list[Ints] = []
    for function in candidates:
        section = int(code.section[function])
        begin, size = int(elf.sections["offset"][section]), int(elf.sections["size"][section])
        facts: list[object] = [int(elf.sections["flags"][section]), elf.data[begin : begin + size]]
        targets = [np.empty(0, np.int64)]
        for source in e.relocation_sections(elf, section):
            table = e.read_relocations(elf, source, symbols)
            symbol = table["symbol"].astype(np.int64)
            target = symbols.section[symbol].astype(np.int64)
            value = np.where(target >= 0, symbols.table["value"][symbol].astype(np.int64), 0) + table["addend"]
            # What another file defines is told by its symbol, all else by where it is.
            targets.append(np.where(target >= 0, target, -2 - symbol))
            facts += [table["offset"].tobytes(), table["type"].tobytes(), value.tobytes()]
        numbers[function] = known.setdefault(tuple(facts), function)
        named.append(np.concatenate(targets))
    groups = 0
    while len(known) != groups:
        groups = len(known)
        known.clear()
        refined = numbers.copy()
        for function, targets in zip(candidates, named, strict=True):
            callee = function_at[np.maximum(targets, -1)]
            key = np.where(callee >= 0, numbers[callee], -1).tobytes(), np.where(callee >= 0, -1, targets).tobytes()
            refined[function] = known.setdefault((int(numbers[function]), *key), function)
        numbers = refined
    return numbers


def share_folded_bytes(columns: Sequence[Ints], alike: Ints) -> list[Ints]:
    """Divide the bytes [F] of functions that are folded into one among these functions.

    Example:
        >>> share_folded_bytes([np.array([7, 5, 7])], np.array([0, 1, 0]))[0].tolist()
        [4, 5, 3]
    """
    _, group, count = np.unique(alike, return_inverse=True, return_counts=True)
    rank = np.empty(len(alike), np.int64)
    rank[np.argsort(group, kind="stable")] = np.arange(len(alike)) - np.repeat(np.cumsum(count) - count, count)
    many = count[group]
    # The bytes of a group are those of the first: of the others the tables may differ, and go with them.
    first = np.unique(group, return_index=True)[1][group]
    return [column[first] // many + (rank < column[first] % many) for column in columns]


def count_dynamic_bytes(elf: Elf, symbols: Symbols, code: Functions, image: Image) -> tuple[Ints, Ints]:
    """Each function's share [F] of ``.plt``, and of the tables of the dynamic linker; 0 for unsupported machines.

    A dynamically bound function costs one symbol, one ``.plt`` entry and one relocation, however often it is called;
    its callers share this cost.

    Args:
        elf: the object.
        symbols: its symbols.
        code: its functions.
        image: kind of the image; in a shared library, calls of exported functions are bound dynamically as well.
    """
    plt, tables = np.zeros(len(code.names), np.int64), np.zeros(len(code.names), np.int64)
    called, elsewhere = _references(elf, symbols, code, _CALLS.get(elf.machine, ()))
    info, section = symbols.table["info"].astype(np.int64), symbols.section
    named = (symbols.table["name"] > 0) & (info >> 4 != e.STB_LOCAL)
    undefined = named & (symbols.table["section"] == 0)
    exported = named & (section >= 0) & (symbols.table["other"] & 3 == _DEFAULT_VISIBILITY)
    for symbol, callers in called.items():
        if not (undefined[symbol] or (image == "library" and exported[symbol])):
            continue
        _share(plt, callers, PLT_ENTRY)
        # Data that refers to it keeps the symbol there in any case.
        new = undefined[symbol] and symbol not in elsewhere
        name = e.text_at(symbols.strings, int(symbols.table["name"][symbol]))
        _share(tables, callers, _RELOCATION + (_SYMBOL + len(name.encode()) + 1 if new else 0))
    return plt, tables


def _references(
    elf: Elf, symbols: Symbols, code: Functions, calls: tuple[int, ...]
) -> tuple[dict[int, list[int]], set[int]]:
    """The functions that call each symbol, and the symbols that anything but a function's call refers to."""
    called: dict[int, set[int]] = {}
    elsewhere: set[int] = set()
    targets = elf.sections["info"].astype(np.int64)
    for source in np.flatnonzero(np.isin(elf.sections["type"], (e.SHT_RELA, e.SHT_REL))).tolist() if calls else ():
        section = int(targets[source])
        if not int(elf.sections["flags"][section]) & e.SHF_ALLOC:
            continue
        table = e.read_relocations(elf, source, symbols)
        symbol, offset = table["symbol"].astype(np.int64), table["offset"].astype(np.int64)
        function = code.at(np.full(len(table), section, np.int64), offset)
        by_call = np.isin(table["type"], calls) & (function >= 0)
        for target, caller in set(zip(symbol[by_call].tolist(), function[by_call].tolist(), strict=True)):
            called.setdefault(target, set()).add(caller)
        elsewhere.update(symbol[~by_call].tolist())
    return {symbol: sorted(callers) for symbol, callers in called.items()}, elsewhere


def _share(column: Ints, functions: list[int], size: int) -> None:
    """Divide some bytes among functions, what is left over among the first ones."""
    each, more = divmod(size, len(functions))
    column[functions] += each
    column[functions[:more]] += 1
