"""ELF objects and linked ELF files by the protocol of object formats."""

import functools
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.elf import Elf, Symbols
from mlgokit.compiler.objects.object_file import (
    BSS,
    DATA,
    EH_FRAME,
    LARGEST_SECTION,
    NONE,
    RODATA,
    TEXT,
    FileSection,
    Functions,
    Image,
    Ints,
    Layout,
    Parts,
    References,
    SectionTotals,
    collect_references,
    damage_error,
    is_in_sections,
    sum_by_name,
    sum_kinds,
)
from mlgokit.compiler.objects.ownership import find_functions, read_frames
from mlgokit.errors import InputError

_EXCEPT_TABLES = (".gcc_except_table", ".ARM.extab")
PLT_ENTRY = 16
"""Bytes of a ``.plt`` entry."""
_RELOCATION = 24
_SYMBOL = 24 + 2
"""Bytes of a dynamic symbol without its name: an entry of ``.dynsym``, and its version."""
_R_RISCV_CALLS, _R_RISCV_RELAX = (18, 19), 51
_RELAXED_CALL = 4
"""Bytes that a call loses."""
_CALLS = {62: (4,), 183: (282, 283)}
"""Relocation types of calls, by machine: ``R_X86_64_PLT32``, ``R_AARCH64_JUMP26`` and ``R_AARCH64_CALL26``."""
_DEFAULT_VISIBILITY = 0
_STT_FILE, _STT_TLS = 4, 6
_SHF_TLS = 0x400
_LISTED_IF_LOADED = (e.SHT_STRTAB, e.SHT_REL, e.SHT_RELA)
_ROLES = {e.ET_REL: "object", e.ET_EXEC: "program"}


@dataclass(frozen=True, kw_only=True)
class ElfObject:
    """An ELF file by the protocol :class:`~mlgokit.compiler.objects.object_file.ObjectFile`.

    Attributes:
        elf: the file.
    """

    elf: Elf

    @property
    def where(self) -> str:
        """Name of the file in messages."""
        return self.elf.where

    @property
    def is_object(self) -> bool:
        """Whether it is to be linked."""
        return self.elf.kind == e.ET_REL

    @property
    def is_image(self) -> bool:
        """Whether it is a program or a shared library."""
        return self.elf.kind in {e.ET_EXEC, e.ET_DYN}

    @property
    def is_bare(self) -> bool:
        """Whether it is linked to fixed addresses for ARM or RISC-V, and names no interpreter."""
        elf = self.elf
        return elf.kind == e.ET_EXEC and elf.machine in (e.ARM, e.RISCV) and ".interp" not in elf.names

    @functools.cached_property
    def _symbols(self) -> Symbols:
        return e.read_symbols(self.elf)

    def totals(self) -> SectionTotals:
        """Sum the sections by kind."""
        kind = _kinds(self.elf)
        return sum_kinds(kind, self.elf.sections["size"].astype(np.int64), _except_tables(self.elf, kind))

    def layout(self) -> Layout:
        """Tell where the bytes of the file are.

        Raises:
            InputError: it is damaged.
        """
        elf, symbols = self.elf, self._symbols
        if not symbols.index:
            symbols = e.read_symbols(elf, kind=e.SHT_DYNSYM)
        table, kind = symbols.table, symbols.type
        size = np.minimum(table["size"], LARGEST_SECTION).astype(np.int64)
        owns = (symbols.section >= 0) & (size > 0) & (kind != e.STT_SECTION) & (kind != _STT_FILE)
        # Globals first: of several names of one function these are the ones that people know.
        chosen = np.flatnonzero(owns)
        chosen = chosen[np.argsort(symbols.binding[chosen] == e.STB_LOCAL, kind="stable")]
        section = symbols.section[chosen]
        begin = table["value"][chosen].astype(np.int64) - _bases(elf, section, kind[chosen])
        role = _ROLES.get(elf.kind) or ("program" if ".interp" in elf.names else "shared library")
        return Layout(
            kind=f"ELF {e.MACHINES[elf.machine]} {role}",
            sections=tuple(map(_file_section, elf.names, elf.sections.tolist())),
            tables=[one for one in e.header_extents(elf) if one[2]],
            names=[e.text_at(symbols.strings, offset) for offset in table["name"][chosen].tolist()],
            section=section,
            begin=begin,
            end=begin + size[chosen],
        )

    def parts(self) -> Parts:
        """Divide an object into sections with their owners.

        Raises:
            InputError: it is no object, or damaged.
        """
        elf = self.elf
        if not self.is_object:
            raise InputError(
                f"{elf.where}: expected a relocatable object (ELF type 1), found ELF type {elf.kind}; give an object "
                "as clang -c writes it, before linking"
            )
        symbols = self._symbols
        kind = _kinds(elf)
        signatures, group = read_groups(elf, symbols)
        functions = find_functions(elf, symbols, kind == TEXT)
        tables = np.flatnonzero(kind == EH_FRAME)
        return Parts(
            kind=kind,
            size=elf.sections["size"].astype(np.int64),
            group=group,
            signatures=signatures,
            functions=functions,
            frames=read_frames(elf, symbols, tables, functions, _except_tables(elf, kind)),
            tables=_jump_tables(elf, kind, group, functions),
        )

    def strong_definitions(self) -> set[str]:
        """Names of the strong definitions outside of COMDAT groups."""
        symbols = self._symbols
        _, group = read_groups(self.elf, symbols)
        strong = np.flatnonzero((symbols.binding == e.STB_GLOBAL) & (symbols.section >= 0))
        strong = strong[group[symbols.section[strong]] < 0]
        return {e.text_at(symbols.strings, offset) for offset in symbols.table["name"][strong].tolist()}

    def function_sizes(self) -> Mapping[str, int]:
        """Bytes of functions by name, from the symbol table; folded functions each have the size of their one copy."""
        symbols = self._symbols
        chosen = np.flatnonzero(np.isin(symbols.type, e.FUNCTIONS) & (symbols.section >= 0))
        rows = symbols.table[["name", "size"]][chosen].tolist()
        return sum_by_name((e.text_at(symbols.strings, name), size) for name, size in rows)

    def relocation_bytes(self) -> int:
        """Bytes of the relocations that the dynamic linker applies."""
        sections = self.elf.sections
        is_loaded = (sections["flags"] & e.SHF_ALLOC) != 0
        return int(sections["size"][is_loaded & np.isin(sections["type"], (e.SHT_REL, e.SHT_RELA, e.SHT_RELR))].sum())

    def holds(self, text: bytes) -> bool:
        """Whether a loaded section contains these bytes."""
        elf = self.elf
        loaded = (elf.sections["flags"] & e.SHF_ALLOC != 0) & (elf.sections["type"] != e.SHT_NOBITS)
        return is_in_sections(text, elf.data, elf.sections[["offset", "size"]][loaded].tolist())

    def number_alike(self, code: Functions, except_table: Ints) -> Ints:
        """Number the functions [F] such that those that ``lld --icf=all`` folds have the same number.

        Two functions are alike if their sections have the same bytes, and relocations at the same offsets to the same
        symbols, or to functions that are alike themselves. So all with the same bytes begin as alike, and are told
        apart until nothing changes any more.

        Args:
            code: the functions.
            except_table: [F] bytes of each function's exception table. One that has any is not folded, nor is one that
                shares its section with another one.
        """
        elf, symbols = self.elf, self._symbols
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

    def relaxed_bytes(self, code: Functions) -> Ints:
        """Bytes [F] that a linker takes out of the calls of each function; 0 for machines other than RISC-V.

        A direct call is ``auipc`` and ``jalr``, 8 bytes, which the linker replaces by one ``jal`` if the callee is
        within 1 MiB: "Linker Relaxation" in the RISC-V ELF psABI. Every callee is taken to be that near; what
        ``c.jal`` saves beyond that is not counted.
        """
        elf, symbols = self.elf, self._symbols
        relaxed = np.zeros(len(code.names), np.int64)
        if elf.machine != e.RISCV:
            return relaxed
        section, table, function = _relocations_by_function(elf, symbols, code)
        place = section * LARGEST_SECTION + table["offset"].astype(np.int64)
        relaxable = place[table["type"] == _R_RISCV_RELAX]
        calls = np.isin(table["type"], _R_RISCV_CALLS) & np.isin(place, relaxable) & (function >= 0)
        np.add.at(relaxed, function[calls], _RELAXED_CALL)
        return relaxed

    def references(self, parts: Parts) -> References:
        """What refers to the functions."""
        elf, symbols, code = self.elf, self._symbols, parts.functions
        section, table, function = _relocations_by_function(elf, symbols, code)
        counted = ~((parts.kind == EH_FRAME) | _except_tables(elf, parts.kind))[section]
        section, table, function = section[counted], table[counted], function[counted]
        return collect_references(
            parts,
            section,
            function,
            table["symbol"].astype(np.int64),
            _targets(symbols, table, code),
            always_live=_aliased_functions(symbols, code),
            name_of=lambda number: e.text_at(symbols.strings, int(symbols.table["name"][number])),
        )

    def dynamic_bytes(self, code: Functions, image: Image) -> tuple[Ints, Ints]:
        """Each function's share [F] of ``.plt``, and of the tables of the dynamic linker; 0 for unsupported machines.

        A dynamically bound function costs one symbol, one ``.plt`` entry and one relocation, however often it is
        called; its callers share this cost.

        Args:
            code: the functions.
            image: kind of the image; in a shared library, calls of exported functions are bound dynamically as well.
        """
        elf, symbols = self.elf, self._symbols
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


def read_elf_object(data: bytes | Path, where: str = "object in memory") -> ElfObject:
    """Read an ELF file; errors are those of :func:`mlgokit.compiler.objects.elf.read_elf`."""
    return ElfObject(elf=e.read_elf(data, where=where))


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
            raise damage_error(where, "a flag word and section indices of 4 bytes each", f"{size} bytes")
        flags, *members = struct.unpack_from(f"<{size // 4}I", elf.data, begin)
        if not flags & e.GRP_COMDAT:
            continue
        if link != symbols.index or symbol >= len(symbols.table):
            raise damage_error(where, f"a signature among {len(symbols.table)} symbols", f"symbol {symbol}")
        for member in members:
            if member >= count or group[member] >= 0:
                raise damage_error(where, f"members of its own among {count} sections", f"section {member}")
            group[member] = len(signatures)
        signatures.append(_signature(elf, symbols, symbol))
    return tuple(signatures), np.array(group, np.int64)


def _signature(elf: Elf, symbols: Symbols, symbol: int) -> str:
    """The signature of a group: the name of its symbol, or of the section if it is a section symbol."""
    entry, section = symbols.table[symbol], int(symbols.section[symbol])
    if int(entry["info"]) & 15 == e.STT_SECTION and section >= 0:
        return elf.names[section]
    return e.text_at(symbols.strings, int(entry["name"]))


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


def _file_section(name: str, row: tuple[int, ...]) -> FileSection:
    """A section by its header, a row of ``SECTION``."""
    _, kind, flags, address, offset, size, *_ = row
    size, is_loaded = size if kind else 0, bool(flags & e.SHF_ALLOC)
    return FileSection(
        name=name,
        address=address,
        size=size,
        offset=offset,
        file_bytes=0 if kind == e.SHT_NOBITS else size,
        memory_bytes=size if is_loaded else 0,
        listed=kind not in {0, e.SHT_SYMTAB} and (is_loaded or kind not in _LISTED_IF_LOADED),
        is_code=bool(flags & e.SHF_EXECINSTR),
    )


def _bases(elf: Elf, section: Ints, kind: Ints) -> Ints:
    """What symbols' values [S] count from: in linked files the address of their section is a part of them."""
    if elf.kind == e.ET_REL:
        return np.zeros(len(section), np.int64)
    address = elf.sections["address"].astype(np.int64)
    threads = np.flatnonzero(elf.sections["flags"] & _SHF_TLS)
    # Values of thread-local symbols count from the first section of their kind.
    first = address[threads].min() if len(threads) else 0
    return address[section] - np.where(kind == _STT_TLS, first, 0)


def _references(
    elf: Elf, symbols: Symbols, code: Functions, calls: tuple[int, ...]
) -> tuple[dict[int, list[int]], set[int]]:
    """The functions that call each symbol, and the symbols that anything but a function's call refers to."""
    if not calls:
        return {}, set()
    called: dict[int, set[int]] = {}
    _, table, function = _relocations_by_function(elf, symbols, code)
    symbol = table["symbol"].astype(np.int64)
    by_call = np.isin(table["type"], calls) & (function >= 0)
    for target, caller in set(zip(symbol[by_call].tolist(), function[by_call].tolist(), strict=True)):
        called.setdefault(target, set()).add(caller)
    return {target: sorted(callers) for target, callers in called.items()}, set(symbol[~by_call].tolist())


def _targets(symbols: Symbols, table: npt.NDArray[Any], code: Functions) -> Ints:
    """The function of this object that each relocation [R] refers to, or -1."""
    symbol = table["symbol"].astype(np.int64)
    section = symbols.section[symbol].astype(np.int64)
    value = symbols.table["value"][symbol].astype(np.int64)
    by_section = symbols.type[symbol] == e.STT_SECTION
    target = code.at(section, np.where(by_section, value + table["addend"], value))
    # The addend of a PC-relative reference counts from its field's end, so a reference to the begin of a section lands
    # before it. Others may land in the function before theirs, with which they share the section.
    before = (target < 0) & by_section
    target[before] = code.at(section[before], np.zeros(int(before.sum()), np.int64))
    return target


def _aliased_functions(symbols: Symbols, code: Functions) -> set[str]:
    """Functions with a further name that is not local, by which other objects may refer to them."""
    aliased = set[str]()
    known = (symbols.binding != e.STB_LOCAL) & np.isin(symbols.type, e.FUNCTIONS) & (symbols.section >= 0)
    named = np.flatnonzero(known)
    places = code.at(symbols.section[named].astype(np.int64), symbols.table["value"][named].astype(np.int64))
    at: list[int] = places.tolist()
    for number, place in zip(named.tolist(), at, strict=True):
        if place >= 0 and e.text_at(symbols.strings, int(symbols.table["name"][number])) != code.names[place]:
            aliased.add(code.names[place])
    return aliased


def _relocations_by_function(elf: Elf, symbols: Symbols, code: Functions) -> tuple[Ints, npt.NDArray[Any], Ints]:
    """The relocations of allocated sections: section [R], entry [R], and index [R] of the function that holds it or -1.

    All at once, as there may be a section for each function.

    Raises:
        InputError: relocations name a section or a symbol that does not exist.
    """
    sections, tables = [np.empty(0, np.int64)], [np.empty(0, e.RELOCATION)]
    targets = elf.sections["info"].astype(np.int64)
    for source in np.flatnonzero(np.isin(elf.sections["type"], (e.SHT_RELA, e.SHT_REL))).tolist():
        section = int(targets[source])
        if section >= len(elf.sections):
            where = f"{elf.where}: section {source}"
            raise damage_error(where, f"relocations of one of {len(elf.sections)} sections", f"of section {section}")
        if int(elf.sections["flags"][section]) & e.SHF_ALLOC:
            tables.append(e.read_relocations(elf, source, symbols))
            sections.append(np.full(len(tables[-1]), section, np.int64))
    place, table = np.concatenate(sections), np.concatenate(tables)
    return place, table, code.at(place, table["offset"].astype(np.int64))


def _share(column: Ints, functions: list[int], size: int) -> None:
    """Divide some bytes among functions, what is left over among the first ones."""
    each, more = divmod(size, len(functions))
    column[functions] += each
    column[functions[:more]] += 1
