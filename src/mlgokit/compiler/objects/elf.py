"""Sections, symbols and relocations of a little-endian ELF file, as numpy arrays, every length checked.

Field names and numbers are those of the System V ABI (gABI) and of the processors' supplements. What is read of a
32-bit file has the columns of 64 bits, so nothing else needs to know. lief reads the same tables as fast as needed
(about 3 ms for 600 sections) but hands them over as Python objects and repairs what it can: a file cut short at a
random byte nearly always reads as a smaller object, which would pass for a good score here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects.magic import ELF
from mlgokit.compiler.objects.object_file import LARGEST_SECTION, Ints, damage_error, read_bytes, widen
from mlgokit.errors import InputError

SECTION = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("alignment", "<u8"),
        ("entry_size", "<u8"),
    ]
)
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

_SECTION_32 = np.dtype([(name, "<u4") for name in SECTION.names or ()])
_SYMBOL_32 = np.dtype(
    [("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")]
)
_REL_32 = np.dtype([("offset", "<u4"), ("info", "<u4")])
_RELA_32 = np.dtype([("offset", "<u4"), ("info", "<u4"), ("addend", "<i4")])
_REL_64 = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4")])

ET_REL, ET_EXEC, ET_DYN = 1, 2, 3
ARM, RISCV = 40, 243
MACHINES = {3: "i386", ARM: "ARM", 62: "x86-64", 183: "AArch64", RISCV: "RISC-V"}
SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOBITS, SHT_REL, SHT_GROUP, SHT_SYMTAB_SHNDX = 2, 3, 4, 8, 9, 17, 18
SHT_DYNSYM = 11
SHT_RELR = 19
_SHT_CREL = 0x40000014
_SHT_ARM_EXIDX = 0x70000001
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_MERGE = 0x1, 0x2, 0x4, 0x10
SHN_LORESERVE, SHN_XINDEX = 0xFF00, 0xFFFF
GRP_COMDAT = 1
STT_SECTION, STT_FUNC, STT_GNU_IFUNC = 3, 2, 10
STB_LOCAL, STB_GLOBAL = 0, 1
R_NONE, _R_ARM_PREL31 = 0, 42
FUNCTIONS = (STT_FUNC, STT_GNU_IFUNC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Sizes and offsets in files of one class, in bytes.

    Attributes:
        header: size of the file header.
        sections: offset of the field with the offset of the section headers.
        names: offset of the field with the index of the section name table; size and number of section headers come
            before it.
        section: size of a section header.
        symbol: size of a symbol.
    """

    header: int
    sections: int
    names: int
    section: np.dtype[Any]
    symbol: np.dtype[Any]


_FORMATS = {
    b"BC\xc0\xde": "LLVM bitcode",
    b"!<arch>": "a static library",
}
"""Other kinds of files, by their first bytes, for error messages."""
_BITS = {1: 32, 2: 64}
"""Layouts by the ELF class of a file."""
_LAYOUTS = {
    32: _Layout(header=52, sections=32, names=50, section=_SECTION_32, symbol=_SYMBOL_32),
    64: _Layout(header=64, sections=40, names=62, section=SECTION, symbol=SYMBOL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """One ELF file whose section table is sound: every section with contents lies within the file.

    Attributes:
        where: name of the file in messages, usually its path.
        data: the whole file.
        bits: 32 or 64.
        kind: ``ET_REL``, ``ET_EXEC`` or ``ET_DYN``.
        machine: key of ``MACHINES``.
        sections: [N] of ``SECTION``.
        names: [N] section names.
    """

    where: str
    data: bytes
    bits: int
    kind: int
    machine: int
    sections: npt.NDArray[Any]
    names: tuple[str, ...]

    def is_index_table(self, index: int) -> bool:
        """Whether section ``index`` is an ``.ARM.exidx``; for x86-64, the same section type means ``.eh_frame``."""
        return self.machine == ARM and int(self.sections["type"][index]) == _SHT_ARM_EXIDX


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbols:
    """The symbol table.

    Attributes:
        index: the table's section, 0 when the file has none.
        table: [S] of ``SYMBOL``.
        section: [S] section index with extended indices resolved; -1 for undefined, absolute and common symbols.
        strings: the string table; its last byte is zero.
    """

    index: int
    table: npt.NDArray[Any]
    section: Ints
    strings: bytes

    @property
    def type(self) -> Ints:
        """Types of the symbols [S], ``STT_*``."""
        return (self.table["info"] & 15).astype(np.int64)

    @property
    def binding(self) -> Ints:
        """Bindings of the symbols [S], ``STB_*``."""
        return (self.table["info"] >> 4).astype(np.int64)


def text_at(strings: bytes, offset: int) -> str:
    r"""Read the zero-terminated string at ``offset`` of a checked string table.

    Example:
        >>> text_at(b"\0main\0", 1)
        'main'
    """
    return strings[offset : strings.index(0, offset)].decode("utf-8", "backslashreplace")


def _describe(data: bytes) -> str:
    """Describe what kind of file a file is that is not ELF."""
    known = next((name for begin, name in _FORMATS.items() if data.startswith(begin)), None)
    return known or f"{len(data)} bytes that begin with {data[:4].hex() or 'nothing'}"


def read_elf(source: bytes | Path, *, where: str = "object in memory") -> Elf:
    """Read the header and the section table; ``where`` names bytes in messages.

    Raises:
        InputError: the file is missing, or is no sound ELF file for one of :data:`MACHINES`.

    Example:
        >>> read_elf(b"BC")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        mlgokit.errors.InputError: object in memory: expected an ELF file, found 2 bytes that begin with 4243; ...
    """
    data, where = read_bytes(source, where=where)
    bits = _BITS.get(data[4], 64) if len(data) > 4 else 64
    if len(data) < _LAYOUTS[bits].header or data[:4] != ELF:
        raise InputError(
            f"{where}: expected an ELF file, found {_describe(data)}; give an object that clang wrote for a target "
            "with ELF"
        )
    kind, machine = _number(data, 16, 2), _number(data, 18, 2)
    if data[4] not in _BITS or data[5:7] != b"\x01\x01" or machine not in MACHINES:
        raise InputError(
            f"{where}: expected little-endian ELF for {', '.join(MACHINES.values())}, found class {data[4]}, "
            f"byte order {data[5]}, version {data[6]}, machine {machine}; compile for one of these targets"
        )
    sections = _section_table(data, where, _LAYOUTS[bits])
    names_index = _number(data, _LAYOUTS[bits].names, 2)
    if names_index == SHN_XINDEX and len(sections):
        names_index = int(sections["link"][0])
    strings = _strings(data, sections, names_index, where)
    offsets = sections["name"]
    if len(sections) and int(offsets.max()) >= len(strings):
        raise damage_error(where, f"section names within {len(strings)} bytes", f"one at byte {int(offsets.max())}")
    names = tuple(text_at(strings, offset) for offset in offsets.tolist())
    return Elf(where=where, data=data, bits=bits, kind=kind, machine=machine, sections=sections, names=names)


def read_table(elf: Elf, index: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Read section ``index`` as an array of ``dtype``.

    Raises:
        InputError: the section's size is no multiple of the entry's, or it has no contents.
    """
    section = elf.sections[index]
    begin, size = int(section["offset"]), int(section["size"])
    if size % dtype.itemsize or section["type"] == SHT_NOBITS:
        where = f"{elf.where}: section {index} ({elf.names[index]})"
        raise damage_error(where, f"entries of {dtype.itemsize} bytes", f"{size} bytes in all")
    return np.frombuffer(elf.data, dtype, size // dtype.itemsize, begin) if size else np.empty(0, dtype)


def header_extents(elf: Elf) -> list[tuple[str, int, int]]:
    """Name, offset and size of the file's header and of its tables of sections and segments."""
    layout, data = _LAYOUTS[elf.bits], elf.data
    width = layout.section["offset"].itemsize
    segments, sections = (_number(data, place, width) for place in (layout.sections - width, layout.sections))
    each, count = (_number(data, layout.names - back, 2) for back in (8, 6))
    return [
        ("ELF header", 0, layout.header),
        ("program headers", segments, each * count),
        ("section headers", sections, layout.section.itemsize * len(elf.sections)),
    ]


def read_symbols(elf: Elf, *, kind: int = SHT_SYMTAB) -> Symbols:
    """Read the symbol table, or with ``SHT_DYNSYM`` the dynamic one; a file without one has no symbols.

    Raises:
        InputError: a symbol points to a section or a name that does not exist.
    """
    tables = np.flatnonzero(elf.sections["type"] == kind)
    if not len(tables):
        return Symbols(index=0, table=np.empty(0, SYMBOL), section=np.empty(0, np.int64), strings=b"\0")
    index = int(tables[0])
    table = widen(read_table(elf, index, _LAYOUTS[elf.bits].symbol), SYMBOL)
    if elf.machine == ARM:
        # Bit 0 of a function's address says that its code is Thumb.
        table = table.copy()
        table["value"] &= np.where(np.isin(table["info"] & 15, FUNCTIONS), ~np.uint64(1), ~np.uint64(0))
    strings = _strings(elf.data, elf.sections, int(elf.sections["link"][index]), elf.where)
    if len(table) and int(table["name"].max()) >= len(strings):
        largest = f"one at byte {int(table['name'].max())}"
        raise damage_error(elf.where, f"symbol names within {len(strings)} bytes", largest)
    section = table["section"].astype(np.int64)
    extended = section == SHN_XINDEX
    if extended.any():
        section = np.where(extended, _extended_indices(elf, index, len(table)), section)
    section[(~extended & (section >= SHN_LORESERVE)) | (section == 0)] = -1
    if len(section) and int(section.max()) >= len(elf.sections):
        expected = f"symbols in {len(elf.sections)} sections"
        raise damage_error(elf.where, expected, f"one in section {int(section.max())}")
    return Symbols(index=index, table=table, section=section, strings=strings)


def relocation_sections(elf: Elf, target: int) -> list[int]:
    """List the sections that hold relocations for section ``target``.

    Raises:
        InputError: they are compressed, as clang's assembler writes them with ``-Wa,--crel``.
    """
    types = elf.sections["type"]
    if ((types == _SHT_CREL) & (elf.sections["info"] == target)).any():
        raise InputError(
            f"{elf.where}: expected relocations of the types SHT_REL or SHT_RELA, found SHT_CREL; compile without "
            "-Wa,--crel"
        )
    return np.flatnonzero(((types == SHT_RELA) | (types == SHT_REL)) & (elf.sections["info"] == target)).tolist()


def read_relocations(elf: Elf, source: int, symbols: Symbols) -> npt.NDArray[Any]:
    """Read the relocations in section ``source``, [R] of ``RELOCATION``; implicit addends are read from the code.

    Raises:
        InputError: a relocation names a symbol that does not exist, or lies beyond its section.
    """
    where, section = f"{elf.where}: section {source}", elf.sections[source]
    if section["link"] != symbols.index:
        raise damage_error(where, "relocations by the symbol table", "another table")
    with_addends = section["type"] == SHT_RELA
    if elf.bits == 64:
        entries = read_table(elf, source, RELOCATION if with_addends else _REL_64)
        table = widen(entries, RELOCATION)
    else:
        entries = read_table(elf, source, _RELA_32 if with_addends else _REL_32)
        table = np.zeros(len(entries), RELOCATION)
        table["offset"], table["type"], table["symbol"] = (
            entries["offset"],
            entries["info"] & 0xFF,
            entries["info"] >> 8,
        )
        table["addend"] = entries["addend"] if with_addends else 0
    if len(table) and int(table["symbol"].max()) >= len(symbols.table):
        raise damage_error(where, f"one of {len(symbols.table)} symbols", f"symbol {int(table['symbol'].max())}")
    if not with_addends:
        table["addend"] = _addends_in_place(elf, int(section["info"]), table, where)
    return table


def _addends_in_place(elf: Elf, target: int, table: npt.NDArray[Any], where: str) -> Ints:
    """Read the implicit addends [R] of relocations, which are stored in the relocated words."""
    if target >= len(elf.sections):
        raise damage_error(where, f"relocations of one of {len(elf.sections)} sections", f"of section {target}")
    contents = read_table(elf, target, np.dtype(np.uint8)).astype(np.int64)
    size = len(contents)
    offset = table["offset"].astype(np.int64)
    # A relocation of fewer than four bytes may be at the end of the section.
    if len(offset) and (int(offset.max()) >= size or int(table["offset"].max()) > LARGEST_SECTION):
        raise damage_error(where, f"places within {size} bytes", f"one at byte {int(table['offset'].max())}")
    words = np.append(contents, np.zeros(3, np.int64))
    value = sum(words[offset + index] << (8 * index) for index in range(4))
    bits = np.where(table["type"] == _R_ARM_PREL31, 31, 32) if elf.machine == ARM else np.full(len(offset), 32)
    value &= (np.int64(1) << bits) - 1
    return value - ((value >> (bits - 1)) << bits)


def _extended_indices(elf: Elf, symbol_table: int, count: int) -> Ints:
    """Section indices [S] of symbols in a file with more than 65,279 sections."""
    mask = (elf.sections["type"] == SHT_SYMTAB_SHNDX) & (elf.sections["link"] == symbol_table)
    for index in np.flatnonzero(mask).tolist():
        indices = read_table(elf, index, np.dtype("<u4"))
        if len(indices) == count:
            return indices.astype(np.int64)
    raise damage_error(elf.where, f"a table of {count} extended section indices", "none")


def _number(data: bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _section_table(data: bytes, where: str, layout: _Layout) -> npt.NDArray[Any]:
    """Read the section headers. Section 0 holds their number if it does not fit into the header's 16 bits."""
    width = layout.section["offset"].itemsize
    begin = _number(data, layout.sections, width)
    entry, count = (_number(data, layout.names - back, 2) for back in (4, 2))
    if begin == 0:
        return np.empty(0, SECTION)
    if entry != layout.section.itemsize:
        raise damage_error(where, f"section headers of {layout.section.itemsize} bytes", f"{entry}")
    if begin + entry > len(data):
        raise damage_error(where, f"section headers within {len(data)} bytes", f"them at byte {begin}")
    if count == 0:
        count = int(np.frombuffer(data, layout.section, 1, begin)["size"][0])
    if begin + count * entry > len(data):
        raise damage_error(
            where, f"{count} section headers within {len(data)} bytes", f"an end at {begin + count * entry}"
        )
    sections = widen(np.frombuffer(data, layout.section, count, begin), SECTION)
    size = sections["size"]
    contents = (sections["type"] != SHT_NOBITS) & (sections["type"] != 0)
    outside = contents & ((size > len(data)) | (sections["offset"] > len(data) - np.minimum(size, len(data))))
    outside |= ~contents & (size > LARGEST_SECTION)
    if outside.any():
        index = int(np.flatnonzero(outside)[0])
        extent = f"{int(size[index])} bytes at {int(sections['offset'][index])}"
        raise damage_error(f"{where}: section {index}", f"contents within the file's {len(data)} bytes", extent)
    return sections


def _strings(data: bytes, sections: npt.NDArray[Any], index: int, where: str) -> bytes:
    """Read a string table, and check that it ends in a zero byte."""
    if not len(sections):
        return b"\0"
    if index >= len(sections) or sections["type"][index] != SHT_STRTAB:
        raise damage_error(where, "a string table", f"none in section {index} of {len(sections)}")
    begin, size = int(sections["offset"][index]), int(sections["size"][index])
    strings = data[begin : begin + size]
    if not strings or strings[-1] != 0:
        raise damage_error(f"{where}: section {index}", "a string table that ends in a zero byte", f"{size} bytes")
    return strings
