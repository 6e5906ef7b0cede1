"""An ELF file as sections and symbols."""

import numpy as np

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.elf import Elf
from mlgokit.compiler.objects.object_file import LARGEST_SECTION, Ints
from mlgokit.sizes.binary import Binary, Layer, Outside, Section, make_layer, outside_of

_STT_FILE, _STT_TLS = 4, 6
_SHF_TLS = 0x400
_LISTED_IF_LOADED = (e.SHT_STRTAB, e.SHT_REL, e.SHT_RELA)
_ROLES = {e.ET_REL: "object", e.ET_EXEC: "program"}


def read_elf_binary(data: bytes, where: str) -> Binary:
    """Read an ELF file.

    Raises:
        InputError: it is damaged, or for a processor that is not read.
    """
    elf = e.read_elf(data, where=where)
    table = elf.sections
    is_loaded = (table["flags"] & e.SHF_ALLOC) != 0
    in_file = (table["type"] != e.SHT_NOBITS) & (table["type"] != 0)
    size = np.where(table["type"] == 0, 0, table["size"]).astype(np.int64)
    extents = list(zip(table["offset"].tolist(), np.where(in_file, size, 0).tolist(), strict=True))
    headers = [(name, begin, count) for name, begin, count in e.header_extents(elf) if count]
    own, rest = outside_of(len(data), [*extents, *((begin, count) for _, begin, count in headers)])
    sections = tuple(
        Section(
            name=elf.names[index],
            address=int(table["address"][index]),
            size=int(size[index]),
            file_bytes=own[index],
            memory_bytes=int(size[index]) if is_loaded[index] else 0,
            listed=_is_listed(int(table["type"][index]), loaded=bool(is_loaded[index])),
            is_code=bool(table["flags"][index] & e.SHF_EXECINSTR),
        )
        for index in range(len(table))
    )
    outside = [
        Outside(name=name, file_bytes=count) for (name, _, _), count in zip(headers, own[len(extents) :], strict=True)
    ]
    outside.append(Outside(name="between sections", file_bytes=rest))
    role = _ROLES.get(elf.kind) or ("program" if ".interp" in elf.names else "shared library")
    return Binary(
        kind=f"ELF {e.MACHINES[elf.machine]} {role}",
        is_linked=elf.kind != e.ET_REL,
        sections=sections,
        symbols=_read_owners(elf, sections),
        outside=tuple(outside),
    )


def _is_listed(kind: int, *, loaded: bool) -> bool:
    """Whether ``llvm-size -A`` lists a section of this type."""
    return kind not in {0, e.SHT_SYMTAB} and (loaded or kind not in _LISTED_IF_LOADED)


def _read_owners(elf: Elf, sections: tuple[Section, ...]) -> Layer:
    symbols = e.read_symbols(elf)
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
    names = [(e.text_at(symbols.strings, offset),) for offset in table["name"][chosen].tolist()]
    return make_layer(names, section, begin, begin + size[chosen], sections)


def _bases(elf: Elf, section: Ints, kind: Ints) -> Ints:
    """What symbols' values [S] count from: in linked files the address of their section is a part of them."""
    if elf.kind == e.ET_REL:
        return np.zeros(len(section), np.int64)
    address = elf.sections["address"].astype(np.int64)
    threads = np.flatnonzero(elf.sections["flags"] & _SHF_TLS)
    # Values of thread-local symbols count from the first section of their kind.
    first = address[threads].min() if len(threads) else 0
    return address[section] - np.where(kind == _STT_TLS, first, 0)
