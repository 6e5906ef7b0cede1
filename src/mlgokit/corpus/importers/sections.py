"""Locate named sections in ELF, Mach-O and COFF objects of either byte order; every length is checked.

Field offsets are those of the System V gABI, of Apple's ``<mach-o/loader.h>`` and of Microsoft's PE/COFF specification.
Files are read at positions, not mapped: one that is cut while it is mapped ends the process with a signal, and mapped
pages of large objects count as our memory. lief reads the same tables, but reads whole files and repairs damaged ones.
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mlgokit.errors import InputError

HEADERS_AT_ONCE = 8192
LARGEST_NAMES = 128 << 20
"""Limit in bytes on a string table; those of real objects have a few MiB."""
LARGEST_COMMANDS = 16 << 20

_SHT_NULL, _SHT_NOBITS, _SHN_XINDEX = 0, 8, 0xFFFF
_SHF_COMPRESSED = 0x800
_MACH_MAGICS = {
    b"\xfe\xed\xfa\xce": ("big", 4),
    b"\xce\xfa\xed\xfe": ("little", 4),
    b"\xfe\xed\xfa\xcf": ("big", 8),
    b"\xcf\xfa\xed\xfe": ("little", 8),
}
_LC_SEGMENT, _LC_SEGMENT_64, _ZEROFILL = 0x1, 0x19, 0x1
_COFF_MACHINES = {0x14C, 0x1C4, 0x8664, 0xAA64, 0xA641}
_BIG_COFF = b"\0\0\xff\xff"
_OTHER_KINDS = {
    b"BC\xc0\xde": "bitcode itself, as -flto makes it",
    b"\xde\xc0\x17\x0b": "bitcode itself, as -flto makes it",
    b"!<ar": "an archive",
    b"!<th": "a thin archive",
    b"\xca\xfe\xba\xbe": "a universal binary; extract one architecture with lipo -thin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A section's contents: ``size`` bytes at ``offset`` of the file."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSections:
    """The sections that were found in an object of a key of :data:`SECTION_NAMES`; several if a linker left them so."""

    format: str
    command_lines: tuple[Piece, ...]
    bitcodes: tuple[Piece, ...]


SECTION_NAMES = {
    "ELF": (".llvmcmd", ".llvmbc"),
    "COFF": (".llvmcmd", ".llvmbc"),
    "Mach-O": ("__LLVM,__cmdline", "__LLVM,__bitcode"),
}
"""Names of the sections with command line and bitcode, by format."""


def object_format(head: bytes) -> str | None:
    r"""Recognize the format by the first 16 bytes of a file; ``None`` for an unsupported one.

    Example:
        >>> object_format(b"\x7fELF\2\1\1" + bytes(9)), object_format(b"\0asm" + bytes(12))
        ('ELF', None)
    """
    if head[:4] == b"\x7fELF":
        return "ELF"
    if head[:4] in _MACH_MAGICS:
        return "Mach-O"
    if head[:4] == _BIG_COFF or (len(head) >= 16 and int.from_bytes(head[:2], "little") in _COFF_MACHINES):
        return "COFF"
    return None


def kind_of(head: bytes) -> str:
    """Describe what a file seems to be that is not an object file, for a message."""
    if not head:
        return "an empty file"
    return _OTHER_KINDS.get(head[:4], f"a file that begins with {head[:4].hex(' ')}")


def find_sections(
    descriptor: int, where: str, *, cmd_section: str | None = None, bitcode_section: str | None = None
) -> ObjectSections | None:
    """Find the sections with the command line and the bitcode.

    Args:
        descriptor: an open regular file.
        where: its name in messages.
        cmd_section: name of the section with options, ``segment,section`` for Mach-O; by default the format's own.
        bitcode_section: name of the section with bitcode, in the same form; by default the format's own.

    Returns:
        Offsets and sizes of the sections, or ``None`` if the format is not one that is read here.

    Raises:
        InputError: the file is damaged.
        OSError: the file cannot be read.
    """
    size = os.fstat(descriptor).st_size
    file = _File(descriptor=descriptor, size=size, where=where)
    format_ = object_format(file.read(0, min(16, size)))
    if format_ is None:
        return None
    names = SECTION_NAMES[format_]
    wanted = [(cmd_section or names[0]).encode(), (bitcode_section or names[1]).encode()]
    finder = {"ELF": _find_elf, "Mach-O": _find_mach_o, "COFF": _find_coff}[format_]
    command_lines, bitcodes = finder(file, wanted)
    return ObjectSections(format=format_, command_lines=tuple(command_lines), bitcodes=tuple(bitcodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """An open object file of ``size`` bytes, with its name for errors."""

    descriptor: int
    size: int
    where: str

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly ``size`` bytes."""
        if offset + size > self.size:
            raise self.damage_error(f"{size} bytes at {offset}", f"the end of the file at {self.size}")
        data = os.pread(self.descriptor, size, offset)
        if len(data) != size:
            raise self.damage_error(f"{size} bytes at {offset}", f"{len(data)}")
        return data

    def piece(self, name: bytes, offset: int, size: int) -> Piece:
        """Make the piece of the file with a section's contents, after checking that it lies within the file."""
        if offset + size > self.size:
            section = name.decode(errors="replace")
            raise self.damage_error(f"section {section} within {self.size} bytes", f"its end at {offset + size}")
        return Piece(offset=offset, size=size)

    def damage_error(self, expected: str, found: str) -> InputError:
        """Make the error for a damaged file."""
        return InputError(f"{self.where}: expected {expected}, found {found}; build the object again")


def _find_elf(file: _File, names: Sequence[bytes]) -> list[list[Piece]]:
    """Find the sections of each name in an ELF file; headers are read in chunks, to bound the memory."""
    head = file.read(0, 52)
    if head[4] not in {1, 2} or head[5] not in {1, 2}:
        raise file.damage_error("ELF class and byte order 1 or 2", f"{head[4]} and {head[5]}")
    order, is_wide = "<" if head[5] == 1 else ">", head[4] == 2
    header = struct.Struct(f"{order}16xHHI{'QQQ' if is_wide else 'III'}I6H")
    layout = struct.Struct(f"{order}{'IIQQQQIIQQ' if is_wide else '10I'}")
    *_, begin, _, _, _, _, entry, count, names_index = header.unpack(file.read(0, header.size))
    sections: list[list[Piece]] = [[] for _ in names]
    if begin == 0:
        return sections
    if entry != layout.size:
        raise file.damage_error(f"section headers of {layout.size} bytes", f"{entry}")
    first = _ElfSection(*layout.unpack(file.read(begin, entry)))
    count = count or first.size
    names_index = first.link if names_index == _SHN_XINDEX else names_index
    if begin + count * entry > file.size:
        raise file.damage_error(
            f"{count} section headers within {file.size} bytes", f"their end at {begin + count * entry}"
        )
    if names_index >= count:
        raise file.damage_error(f"the section with names among {count}", f"number {names_index}")
    table = _ElfSection(*layout.unpack(file.read(begin + names_index * entry, entry)))
    strings = _read_names(file, table.offset, table.size)
    wanted = [(pieces, name) for pieces, name in zip(sections, names, strict=True) if name + b"\0" in strings]
    for start in range(0, count if wanted else 0, HEADERS_AT_ONCE):
        number = min(HEADERS_AT_ONCE, count - start)
        for section in map(_ElfSection._make, layout.iter_unpack(file.read(begin + start * entry, number * entry))):
            for pieces, name in wanted:
                if strings.startswith(name + b"\0", section.name):
                    pieces.extend(_elf_piece(file, name, section))
    return sections


class _ElfSection(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def _elf_piece(file: _File, name: bytes, section: _ElfSection) -> list[Piece]:
    """Find the contents of a section by its header; an empty list for a section without bytes in the file."""
    if section.kind in {_SHT_NULL, _SHT_NOBITS}:
        return []
    if section.flags & _SHF_COMPRESSED:
        raise file.damage_error(f"section {name.decode(errors='replace')} as it is", "it compressed")
    return [file.piece(name, section.offset, section.size)]


def _read_names(file: _File, offset: int, size: int) -> bytes:
    if size > LARGEST_NAMES:
        raise file.damage_error(f"at most {LARGEST_NAMES} bytes of section names", f"{size}")
    return file.read(offset, size)


def _find_mach_o(file: _File, names: Sequence[bytes]) -> list[list[Piece]]:
    """Find the sections of each name, ``segment,section``, in a Mach-O file."""
    order, word = _MACH_MAGICS[file.read(0, 4)]
    wide = word == 8
    begin = 32 if wide else 28
    head = file.read(0, begin)
    count, size = _number(head, 16, 4, order), _number(head, 20, 4, order)
    if size > LARGEST_COMMANDS:
        raise file.damage_error(f"at most {LARGEST_COMMANDS} bytes of load commands", f"{size}")
    commands = file.read(begin, size)
    sections: list[list[Piece]] = [[] for _ in names]
    offset = 0
    for _ in range(count):
        length = _number(commands, offset + 4, 4, order)
        if length < 8 or offset + length > size:
            raise file.damage_error(f"load commands within {size} bytes", f"one of {length} bytes at {offset}")
        if _number(commands, offset, 4, order) == (_LC_SEGMENT_64 if wide else _LC_SEGMENT):
            _scan_segment(file, commands[offset : offset + length], order, wide=wide, names=names, sections=sections)
        offset += length
    return sections


def _scan_segment(
    file: _File, segment: bytes, order: str, *, wide: bool, names: Sequence[bytes], sections: list[list[Piece]]
) -> None:
    """Collect the sections of one segment of a Mach-O file; in an object, it has the sections of all segments."""
    header, entry, count_at = (72, 80, 64) if wide else (56, 68, 48)
    size_at, size_width, offset_at, flags_at = (40, 8, 48, 64) if wide else (36, 4, 40, 56)
    count = _number(segment, count_at, 4, order) if len(segment) >= header else 0
    if len(segment) < header or header + count * entry > len(segment):
        raise file.damage_error(f"{count} sections in a load command", f"{len(segment)} bytes")
    for begin in range(header, header + count * entry, entry):
        section, owner = (segment[at : at + 16].partition(b"\0")[0] for at in (begin, begin + 16))
        name = owner + b"," + section
        if name in names and _number(segment, begin + flags_at, 4, order) & 0xFF != _ZEROFILL:
            at = _number(segment, begin + offset_at, 4, order)
            size = _number(segment, begin + size_at, size_width, order)
            sections[names.index(name)].append(file.piece(name, at, size))


def _find_coff(file: _File, names: Sequence[bytes]) -> list[list[Piece]]:
    """Find the sections of each name in a COFF file, also one with more than 65,279 sections (``/bigobj``)."""
    head = file.read(0, min(56, file.size))
    sections: list[list[Piece]] = [[] for _ in names]
    if head[:4] == _BIG_COFF:
        if len(head) < 56 or _number(head, 4, 2) < 2:
            raise file.damage_error("a COFF header of 56 bytes, version 2", f"{len(head)} bytes")
        begin, count, symbols, symbol_size = 56, _number(head, 44, 4), _number(head, 48, 4), 20
        strings_at = symbols + symbol_size * _number(head, 52, 4)
    else:
        if len(head) < 20:
            raise file.damage_error("a COFF header of 20 bytes", f"{len(head)}")
        begin, count, symbols = 20 + _number(head, 16, 2), _number(head, 2, 2), _number(head, 8, 4)
        strings_at = symbols + 18 * _number(head, 12, 4)
    if begin + 40 * count > file.size:
        raise file.damage_error(
            f"{count} section headers within {file.size} bytes", f"their end at {begin + 40 * count}"
        )
    strings = b""
    if symbols:
        strings = _read_names(file, strings_at, _number(file.read(strings_at, 4), 0, 4))
    for start in range(0, count, HEADERS_AT_ONCE):
        number = min(HEADERS_AT_ONCE, count - start)
        headers = file.read(begin + 40 * start, 40 * number)
        for at in range(0, len(headers), 40):
            name = _coff_name(headers[at : at + 8], strings)
            if name in names:
                size, offset = _number(headers, at + 16, 4), _number(headers, at + 20, 4)
                sections[names.index(name)].append(file.piece(name, offset, size))
    return sections


def _coff_name(field: bytes, strings: bytes) -> bytes:
    """Decode a section name: up to eight bytes, or ``/`` and the decimal offset of a longer name."""
    name = field.rstrip(b"\0")
    if name[:1] != b"/" or not name[1:].isdigit():
        return name
    begin = int(name[1:])
    end = strings.find(b"\0", begin, begin + 256)
    return strings[begin:end] if end >= 0 else name


def _number(data: bytes, offset: int, size: int, order: str = "little") -> int:
    return int.from_bytes(data[offset : offset + size], "big" if order == "big" else "little")
