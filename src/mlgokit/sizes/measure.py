"""Where the bytes of a file are: each belongs to one section, and to at most one symbol, source and library."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlgokit.compiler.objects.object_file import LARGEST_SECTION, Ints, distinct
from mlgokit.sizes.binary import Binary, Layer
from mlgokit.sizes.dwarf import read_sources
from mlgokit.sizes.names import crate_of, read_names, template_of
from mlgokit.sizes.read import read_binary
from mlgokit.sizes.record import GroupSize, SectionSize, Sizes, SymbolSize, sum_by

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Sections cut wherever an owner changes, so that each piece [P] has one owner of each kind, or none.

    Attributes:
        section: [P] index of the section.
        begin: [P] offset in the section.
        file: [P] bytes in the file.
        memory: [P] bytes in memory.
        owners: for each layer, [P] the index of the owner, or -1.
    """

    section: Ints
    begin: Ints
    file: Ints
    memory: Ints
    owners: tuple[Ints, ...]


def cut_sections(binary: Binary, layers: Sequence[Layer]) -> Pieces:
    """Cut the sections of a file by several layers of owners."""
    file, memory = (
        np.array([getattr(one, name) for one in binary.sections], np.int64) for name in ("file_bytes", "memory_bytes")
    )
    starts = np.arange(len(binary.sections), dtype=np.int64) * LARGEST_SECTION
    cuts = [starts, starts + file, starts + memory]
    cuts += [layer.section * LARGEST_SECTION + place for layer in layers for place in (layer.begin, layer.end)]
    keys = distinct(np.concatenate(cuts))
    section, begin = keys // LARGEST_SECTION, keys % LARGEST_SECTION
    end = np.append(keys[1:], 0) - section * LARGEST_SECTION
    end = np.minimum(end, np.maximum(file, memory)[section])
    end[-1:] = begin[-1:]
    kept = end > begin
    section, begin, end, keys = section[kept], begin[kept], end[kept], keys[kept]
    return Pieces(
        section=section,
        begin=begin,
        file=np.maximum(0, np.minimum(end, file[section]) - begin),
        memory=np.maximum(0, np.minimum(end, memory[section]) - begin),
        owners=tuple(owner_at(layer, keys) for layer in layers),
    )


def owner_at(layer: Layer, keys: Ints) -> Ints:
    """The owner [K] of the byte at each key, or -1."""
    begin = layer.section * LARGEST_SECTION + layer.begin
    order = np.argsort(begin, kind="stable")
    begin, end, owner = begin[order], (layer.section * LARGEST_SECTION + layer.end)[order], layer.owner[order]
    if not len(begin):
        return np.full(len(keys), NOBODY, np.int64)
    place = np.searchsorted(begin, keys, side="right") - 1
    inside = (place >= 0) & (keys < end[place])
    return np.where(inside, owner[place], NOBODY)


def symbols_at(binary: Binary, address: Ints) -> tuple[list[str], Ints]:
    """The symbols [A] that own the bytes at addresses of a linked file, empty for none, and the sections [A]."""
    loaded = np.flatnonzero([one.memory_bytes > 0 for one in binary.sections])
    if not len(loaded):
        return [""] * len(address), np.zeros(len(address), np.int64)
    section = binary.sections_at(address, loaded)
    owners: list[int] = owner_at(
        binary.symbols, section * LARGEST_SECTION + address - binary.addresses[section]
    ).tolist()
    return [_name(binary.symbols, owner) for owner in owners], section


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A file whose bytes have their owners, of which all or some can be told.

    Attributes:
        path: the file.
        binary: its sections and symbols.
        sources: its compilation units.
        libraries: its archive members, or the objects of its link.
        pieces: its sections, cut by symbols, sources and libraries.
        notes: sentences about what could not be told.
    """

    path: str
    binary: Binary
    sources: Layer
    libraries: Layer
    pieces: Pieces
    notes: tuple[str, ...]

    @property
    def symbols(self) -> int:
        """How many symbols own bytes."""
        owner = self.pieces.owners[0]
        return int(np.count_nonzero(np.bincount(owner[owner >= 0])))

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the file that are loaded; see :attr:`Sizes.loaded_bytes`."""
        return sum(one.file_bytes for one in self.binary.sections if one.memory_bytes)


def measure_file(path: Path, *, link_map: Path | None = None) -> Sizes:
    """Tell where the bytes of a program, a library or an object are; see :func:`find_owners`."""
    return sum_sizes(find_owners(path, link_map=link_map))


def find_owners(path: Path, *, link_map: Path | None = None) -> Measured:
    """Find who owns the bytes of a program, a library or an object.

    Args:
        path: the file.
        link_map: what the linker wrote of its making with ``-Wl,-Map=``.

    Raises:
        InputError: a file is missing, damaged, or of another kind.
    """
    binary = read_binary(path)
    sources, notes = read_sources(path, binary)
    if link_map is None:
        libraries = _members(binary)
    else:
        from mlgokit.sizes.link_map import read_map

        libraries = read_map(link_map, binary)
    pieces = cut_sections(binary, (binary.symbols, sources, libraries))
    return Measured(path=str(path), binary=binary, sources=sources, libraries=libraries, pieces=pieces, notes=notes)


def sum_sizes(measured: Measured, *, largest: int | None = None) -> Sizes:
    """Tell who owns the bytes of a file.

    Args:
        measured: the file.
        largest: how many symbols are told, the largest; templates and crates are told of these alone. By default all.
    """
    binary, pieces = measured.binary, measured.pieces
    symbols = _symbols(measured, largest)
    return Sizes(
        path=measured.path,
        kind=binary.kind,
        file_bytes=binary.file_bytes,
        memory_bytes=int(pieces.memory.sum()),
        sections=_sections(binary, pieces),
        outside=tuple(one for one in binary.outside if one.file),
        symbols=symbols,
        sources=_groups(measured.sources, pieces, 1),
        libraries=_groups(measured.libraries, pieces, 2),
        templates=sum_by((one.template, one.file, one.memory) for one in symbols),
        crates=sum_by((one.crate, one.file, one.memory) for one in symbols),
        notes=measured.notes,
    )


def _members(binary: Binary) -> Layer:
    """The members of a static library as owners of all their sections."""
    members = list(dict.fromkeys(one.member for one in binary.sections))
    if members == [""]:
        return Layer()
    index = {member: place for place, member in enumerate(members)}
    return Layer(
        owners=tuple((member,) for member in members),
        owner=np.array([index[one.member] for one in binary.sections], np.int64),
        section=np.arange(len(binary.sections), dtype=np.int64),
        begin=np.zeros(len(binary.sections), np.int64),
        end=np.array([one.extent for one in binary.sections], np.int64),
    )


def _sums(pieces: Pieces, keys: Ints, count: int) -> tuple[Ints, Ints]:
    """Bytes [count] of each key in file and in memory."""
    file, memory = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(file, keys, pieces.file)
    np.add.at(memory, keys, pieces.memory)
    return file, memory


def _sections(binary: Binary, pieces: Pieces) -> tuple[SectionSize, ...]:
    owned = pieces.owners[0] >= 0
    # What symbols own goes behind the last section.
    sums = _sums(pieces, np.where(owned, len(binary.sections), pieces.section), len(binary.sections) + 1)
    file, memory = (one.tolist() for one in sums)
    return tuple(
        SectionSize(
            name=one.name,
            member=one.member,
            address=one.address,
            size=one.size,
            listed=one.listed,
            file=one.file_bytes,
            memory=one.memory_bytes,
            no_symbol_file=file[index],
            no_symbol_memory=memory[index],
        )
        for index, one in enumerate(binary.sections)
        if one.listed or one.extent
    )


def _symbols(measured: Measured, largest: int | None) -> tuple[SymbolSize, ...]:
    binary, pieces = measured.binary, measured.pieces
    owners, owner = binary.symbols.owners, pieces.owners[0]
    places = np.flatnonzero(owner >= 0)
    file, memory = _sums(pieces, np.where(owner >= 0, owner, len(owners)), len(owners) + 1)
    first = np.full(len(owners), NOBODY, np.int64)
    first[owner[places[::-1]]] = places[::-1]
    told = np.flatnonzero(first >= 0)
    if largest is not None and largest < len(told):
        size = np.maximum(file, memory)[told]
        # Names decide between symbols of one size, so that all of the last one's size are read.
        told = told[size >= np.partition(size, -max(1, largest))[-max(1, largest)]]
    readable = read_names({owners[index][0] for index in told.tolist()})
    places = first[told]
    columns = (
        told,
        file[told],
        memory[told],
        *(one[places] for one in (pieces.section, pieces.begin, *pieces.owners[1:])),
    )
    rows: list[list[int]] = np.stack(columns, axis=1).tolist()
    found: list[SymbolSize] = []
    for index, in_file, in_memory, of_section, begin, of_source, of_library in rows:
        symbol = owners[index][0]
        name = readable.get(symbol, symbol)
        section = binary.sections[of_section]
        found.append(
            SymbolSize(
                names=owners[index],
                readable=name,
                section=section.name,
                member=section.member,
                address=section.address + begin,
                file=in_file,
                memory=in_memory,
                source=_name(measured.sources, of_source),
                library=_name(measured.libraries, of_library),
                template=template_of(name),
                crate=crate_of(symbol, name),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.size, one.names))[:largest])


def _name(layer: Layer, owner: int) -> str:
    return layer.owners[owner][0] if owner >= 0 else ""


def _groups(layer: Layer, pieces: Pieces, kind: int) -> tuple[GroupSize, ...]:
    """The bytes of each owner of a layer, and last of nobody; owners of one name together."""
    if not layer.owners:
        return ()
    names = list(dict.fromkeys(names[0] for names in layer.owners))
    place = {name: index for index, name in enumerate(names)}
    group = np.array([place[owner[0]] for owner in layer.owners] + [len(names)], np.int64)
    keys = group[pieces.owners[kind]]
    file, memory = (one.tolist() for one in _sums(pieces, keys, len(names) + 1))
    owned = pieces.owners[0] >= 0
    pairs = distinct(keys[owned] * LARGEST_SECTION + pieces.owners[0][owned])
    counts = np.bincount(pairs // LARGEST_SECTION, minlength=len(names) + 1).tolist()
    groups = [
        GroupSize(name=name, symbols=counts[index], file=file[index], memory=memory[index])
        for index, name in enumerate([*names, ""])
        if file[index] or memory[index]
    ]
    return tuple(sorted(groups, key=lambda one: (not one.name, -max(one.file, one.memory), one.name)))
