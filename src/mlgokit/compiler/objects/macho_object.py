"""Mach-O objects and images by the protocol of object formats, as of Apple's ``mach-o/loader.h`` and ``nlist.h``.

The assembler of clang says with ``MH_SUBSECTIONS_VIA_SYMBOLS`` that the linker may take a section apart at its symbols.
What lies between two of them is an atom, which the linker keeps or drops as a whole; so is a section without symbols.
A weak definition is what a COMDAT signature is elsewhere. ``__compact_unwind`` is not loaded: the linker makes pages of
few bytes for each function of it, which are counted in images alone.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects.magic import MACH_O
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
    Ints,
    Layout,
    Parts,
    SectionTotals,
    damage_error,
    ends_at_next,
    functions_until_next,
    is_in_sections,
    linked_error,
    no_frames,
    sum_by_name,
    sum_kinds,
    widen,
)
from mlgokit.errors import InputError

_PROCESSORS = {0x01000007: "x86_64", 0x0100000C: "arm64", 0x7: "i386", 0xC: "armv7", 0x0200000C: "arm64_32"}
_LLVM_NAMES = {"arm64": "aarch64", "armv7": "arm", "arm64_32": "aarch64_32"}
"""What LLVM calls processors that linkers call otherwise."""
_OBJECT, _IMAGES = 1, (2, 6, 8)
_SYMTAB = 0x2
_SECTION = np.dtype(
    [
        ("name", "S16"),
        ("segment", "S16"),
        ("address", "<u8"),
        ("size", "<u8"),
        ("offset", "<u4"),
        ("alignment", "<u4"),
        ("relocations", "<u4"),
        ("relocation_count", "<u4"),
        ("flags", "<u4"),
        ("reserved1", "<u4"),
        ("reserved2", "<u4"),
        ("reserved3", "<u4"),
    ]
)
_SYMBOL = np.dtype([("name", "<u4"), ("type", "u1"), ("section", "u1"), ("description", "<u2"), ("value", "<u8")])
_SECTION_32, _SYMBOL_32 = (
    np.dtype([(name, "<u4" if dtype[name] == "<u8" else dtype[name]) for name in names])
    for dtype, names in ((_SECTION, (_SECTION.names or ())[:-1]), (_SYMBOL, _SYMBOL.names or ()))
)
_ZERO_TYPES = (0x1, 0xC, 0x12)
_PURE_INSTRUCTIONS, _INSTRUCTIONS, _DEBUG = 0x80000000, 0x80000400, 0x02000000
_STAB, _PRIVATE, _DEFINED, _EXTERNAL = 0xE0, 0x10, 0x0E, 0x01
_WEAK = 0x80
_UNWIND = ("__eh_frame", "__unwind_info")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Symbol:
    """A definition: section, offset in it, whether it is local or weak, and its name."""

    section: int
    begin: int
    is_local: bool
    is_weak: bool
    name: str


@dataclass(frozen=True, kw_only=True)
class MachObject:
    """A Mach-O file by the protocol :class:`~mlgokit.compiler.objects.object_file.ObjectFile`.

    Attributes:
        where: name of the file in messages.
        data: the whole file.
        kind: type of the file, as its header has it.
        architecture: its processor, by the name that linkers know.
        sections: [N] of the sections.
        symbols: [S] of the symbol table.
        strings: the string table.
    """

    where: str
    data: bytes
    kind: int
    architecture: str
    sections: npt.NDArray[Any]
    symbols: npt.NDArray[Any]
    strings: bytes

    is_bare = False

    @property
    def is_object(self) -> bool:
        """Whether it is to be linked."""
        return self.kind == _OBJECT

    @property
    def is_image(self) -> bool:
        """Whether it is a program or a shared library."""
        return self.kind in _IMAGES

    @functools.cached_property
    def _sizes(self) -> Ints:
        return self.sections["size"].astype(np.int64)

    @functools.cached_property
    def _kinds(self) -> Ints:
        """[N] kinds of the sections of the file."""
        flags = self.sections["flags"]
        kind = np.where(self.sections["segment"] == b"__TEXT", RODATA, DATA).astype(np.int64)
        kind[np.isin(flags & 0xFF, _ZERO_TYPES)] = BSS
        kind[(flags & _INSTRUCTIONS) != 0] = TEXT
        kind[np.isin(self.sections["name"], [name.encode() for name in _UNWIND])] = EH_FRAME
        kind[((flags & _DEBUG) != 0) | np.isin(self.sections["segment"], [b"__DWARF", b"__LD", b"__LLVM"])] = NONE
        return kind

    @functools.cached_property
    def _definitions(self) -> list[_Symbol]:
        """The definitions in sections, without those that the assembler makes for line tables."""
        found: list[_Symbol] = []
        for name, kind, section, description, value in self.symbols.tolist():
            if kind & _STAB or kind & _DEFINED != _DEFINED or not section:
                continue
            if section > len(self.sections):
                raise damage_error(self.where, f"symbols in {len(self.sections)} sections", f"one in {section}")
            begin = value - int(self.sections["address"][section - 1])
            text = self._string(name)
            if 0 <= begin < self._sizes[section - 1] and not text.startswith("ltmp"):
                found.append(
                    _Symbol(
                        section=section - 1,
                        begin=begin,
                        is_local=not kind & _EXTERNAL,
                        is_weak=bool(description & _WEAK),
                        name=text,
                    )
                )
        return found

    def totals(self) -> SectionTotals:
        """Sum the sections by kind."""
        tables = self.sections["name"] == b"__gcc_except_tab"
        return sum_kinds(self._kinds, self._sizes, tables & (self._kinds == RODATA))

    def layout(self) -> Layout:
        """Tell where the bytes of the file are.

        Raises:
            InputError: it is damaged.
        """
        sections = tuple(
            FileSection(
                name=row["name"].decode("utf-8", "backslashreplace"),
                address=int(row["address"]),
                size=int(row["size"]),
                offset=int(row["offset"]),
                # A file with debug information alone has the other sections without their bytes.
                file_bytes=0 if row["flags"] & 0xFF in _ZERO_TYPES or not row["offset"] else int(row["size"]),
                memory_bytes=0 if row["segment"].startswith(b"__DWARF") else int(row["size"]),
                is_code=bool(row["flags"] & _PURE_INSTRUCTIONS),
            )
            for row in self.sections
        )
        section = np.array([one.section for one in self._definitions], np.int64)
        begin = np.array([one.begin for one in self._definitions], np.int64)
        processor = _LLVM_NAMES.get(self.architecture, self.architecture)
        return Layout(
            kind=f"Mach-O {processor} {'object' if self.is_object else 'program or library'}",
            sections=sections,
            names=[one.name for one in self._definitions],
            section=section,
            begin=begin,
            end=ends_at_next(section, begin, self._sizes),
        )

    def parts(self) -> Parts:
        """Divide an object into atoms with their owners.

        Raises:
            InputError: it is no object, or damaged.
        """
        if not self.is_object:
            raise linked_error(self.where, "Mach-O")
        first: dict[tuple[int, int], _Symbol] = {}
        for symbol in sorted(self._definitions, key=lambda one: (one.section, one.begin, one.is_local, one.name)):
            first.setdefault((symbol.section, symbol.begin), symbol)
        places = sorted({*first, *((section, 0) for section in range(len(self.sections)))})
        kind = np.array([self._kinds[section] for section, _ in places] or [NONE], np.int64)
        section = np.array([place[0] for place in places] or [0], np.int64)
        begin = np.array([place[1] for place in places] or [0], np.int64)
        end = self._sizes[section] if places else begin.copy()
        end[:-1] = np.where(section[1:] == section[:-1], begin[1:], end[:-1])
        group = np.full(len(kind), -1, np.int64)
        signatures: list[str] = []
        names: list[str] = []
        owners: list[int] = []
        for atom, place in enumerate(places):
            symbol = first.get(place)
            if symbol is not None and symbol.is_weak:
                group[atom] = len(signatures)
                signatures.append(symbol.name)
            if symbol is not None and kind[atom] == TEXT:
                names.append(symbol.name)
                owners.append(atom)
        own = np.array(owners, np.int64)
        size = end - begin
        functions = Functions(names=tuple(names), section=own, begin=np.zeros(len(own), np.int64), size=size[own])
        return Parts(
            kind=kind,
            size=size,
            group=group,
            signatures=tuple(signatures),
            functions=functions,
            frames=no_frames(),
            tables=(),
        )

    def references(self, parts: Parts) -> None:
        """Not read."""

    def strong_definitions(self) -> set[str]:
        """Names of the definitions of an object that are neither local nor weak."""
        return {symbol.name for symbol in self._definitions if not (symbol.is_local or symbol.is_weak)}

    def function_sizes(self) -> Mapping[str, int]:
        """Bytes of the functions by name, of a file whose symbols were not stripped."""
        starts = [
            (one.section, one.begin, one.is_local, one.name)
            for one in self._definitions
            if self._kinds[one.section] == TEXT
        ]
        functions = functions_until_next(starts, self._sizes)
        return sum_by_name(zip(functions.names, functions.size.tolist(), strict=True))

    def relocation_bytes(self) -> int:
        """What the loader has to fix is in no section, and not counted."""
        return 0

    def holds(self, text: bytes) -> bool:
        """Whether a loaded section contains these bytes."""
        loaded = (self._kinds != NONE) & (self._kinds != BSS)
        return is_in_sections(text, self.data, self.sections[["offset", "size"]][loaded].tolist())

    def _string(self, place: int) -> str:
        end = self.strings.find(b"\0", place)
        if end < 0:
            raise damage_error(self.where, f"names within {len(self.strings)} bytes", f"one at byte {place}")
        return self.strings[place:end].decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file that is being read; every place is checked."""

    where: str
    data: bytes

    @property
    def is_64(self) -> bool:
        """Whether addresses have 64 bits."""
        return self.data.startswith(MACH_O)

    def number(self, place: int) -> int:
        """A number of 32 bits."""
        return int(self.table(np.dtype("<u4"), place, 1)[0])

    def table(self, dtype: np.dtype[Any], begin: int, count: int) -> npt.NDArray[Any]:
        """A table of ``count`` entries."""
        if begin + count * dtype.itemsize > len(self.data):
            raise damage_error(self.where, f"{count} entries at byte {begin}", f"a file of {len(self.data)} bytes")
        return np.frombuffer(self.data, dtype, count, begin) if count else np.empty(0, dtype)

    def commands(self) -> Iterator[tuple[int, int]]:
        """Kind and place of each load command."""
        place = 32 if self.is_64 else 28
        for _ in range(self.number(16)):
            size = self.number(place + 4)
            if size < 8:
                raise damage_error(self.where, "load commands of at least 8 bytes", f"one of {size} at {place}")
            yield self.number(place), place
            place += size


def read_macho(data: bytes, where: str) -> MachObject:
    """Read the tables of a Mach-O file.

    Raises:
        InputError: it is damaged, or for another processor than x86 and ARM.
    """
    file = _File(where=where, data=data)
    processor = _PROCESSORS.get(file.number(4))
    if processor is None:
        raise InputError(
            f"{where}: expected Mach-O for {', '.join(_PROCESSORS.values())}, found processor {file.number(4):#x}; "
            "compile for one of these"
        )
    # Numbers of the command, the size of its header and the place of the number of its sections.
    segment, header, count = (0x19, 72, 64) if file.is_64 else (0x1, 56, 48)
    of_section, of_symbol = (_SECTION, _SYMBOL) if file.is_64 else (_SECTION_32, _SYMBOL_32)
    sections, symbols, strings = [np.empty(0, _SECTION)], np.empty(0, _SYMBOL), b""
    for command, place in file.commands():
        if command == segment:
            sections.append(widen(file.table(of_section, place + header, file.number(place + count)), _SECTION))
        elif command == _SYMTAB:
            symbols = widen(file.table(of_symbol, file.number(place + 8), file.number(place + 12)), _SYMBOL)
            strings = file.table(np.dtype("u1"), file.number(place + 16), file.number(place + 20)).tobytes()
    found = np.concatenate(sections)
    kept = ~np.isin(found["flags"] & 0xFF, _ZERO_TYPES)
    limit = np.where(kept, len(data) - np.minimum(found["offset"].astype(np.int64), len(data)), LARGEST_SECTION)
    if (found["size"] > limit).any():
        raise damage_error(where, f"sections within {len(data)} bytes", "one that reaches beyond them")
    return MachObject(
        where=where,
        data=data,
        kind=file.number(12),
        architecture=processor,
        sections=found,
        symbols=symbols,
        strings=strings,
    )
