"""Where the bytes of a file are: each belongs to one section, and to at most one symbol, source and library."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlgokit.compiler.objects.object_file import LARGEST_SECTION, Ints
from mlgokit.sizes.binary import Binary, Layer
from mlgokit.sizes.dwarf import read_sources
from mlgokit.sizes.link_map import read_map
from mlgokit.sizes.names import crate_of, read_names, template_of
from mlgokit.sizes.read import read_binary
from mlgokit.sizes.record import GroupSize, OutsideSize, SectionSize, Sizes, SymbolSize, sum_by

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
    keys = np.unique(np.concatenate(cuts))
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


def measure_file(path: Path, *, link_map: Path | None = None) -> Sizes:
    """Tell where the bytes of a program, a library or an object are.

    Args:
        path: the file.
        link_map: what the linker wrote of its making with ``-Wl,-Map=``.

    Raises:
        InputError: a file is missing, damaged, or of another kind.
    """
    binary = read_binary(path)
    sources, notes = read_sources(path, binary)
    libraries = _members(binary) if link_map is None else read_map(link_map, binary)
    pieces = cut_sections(binary, (binary.symbols, sources, libraries))
    sections = _sections(binary, pieces)
    symbols = _symbols(binary, pieces, sources, libraries)
    return Sizes(
        path=str(path),
        kind=binary.kind,
        file_bytes=binary.file_bytes,
        memory_bytes=int(pieces.memory.sum()),
        sections=sections,
        outside=tuple(OutsideSize(name=one.name, file=one.file_bytes) for one in binary.outside if one.file_bytes),
        symbols=symbols,
        sources=_groups(sources, pieces, 1),
        libraries=_groups(libraries, pieces, 2),
        templates=sum_by((one.template, one.file, one.memory) for one in symbols),
        crates=sum_by((one.crate, one.file, one.memory) for one in symbols),
        notes=notes,
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


def _sums(pieces: Pieces, keys: Ints, count: int) -> tuple[list[int], list[int]]:
    """Bytes of each key in file and in memory."""
    sums = [np.zeros(count, np.int64), np.zeros(count, np.int64)]
    for total, values in zip(sums, (pieces.file, pieces.memory), strict=True):
        np.add.at(total, keys, values)
    return sums[0].tolist(), sums[1].tolist()


def _sections(binary: Binary, pieces: Pieces) -> tuple[SectionSize, ...]:
    owned = pieces.owners[0] >= 0
    # What symbols own goes behind the last section.
    file, memory = _sums(pieces, np.where(owned, len(binary.sections), pieces.section), len(binary.sections) + 1)
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


def _symbols(binary: Binary, pieces: Pieces, sources: Layer, libraries: Layer) -> tuple[SymbolSize, ...]:
    owners = binary.symbols.owners
    owner = pieces.owners[0]
    places = np.flatnonzero(owner >= 0)
    file, memory = _sums(pieces, np.where(owner >= 0, owner, len(owners)), len(owners) + 1)
    first = np.full(len(owners), NOBODY, np.int64)
    first[owner[places[::-1]]] = places[::-1]
    readable = read_names({names[0] for names in owners})
    found: list[SymbolSize] = []
    columns: list[list[int]] = [
        one.tolist() for one in (pieces.section, pieces.begin, pieces.owners[1], pieces.owners[2])
    ]
    sections, begins, of_source, of_library = columns
    for index, piece in enumerate(first.tolist()):
        if piece < 0:
            continue
        symbol = owners[index][0]
        name = readable.get(symbol, symbol)
        section = binary.sections[sections[piece]]
        found.append(
            SymbolSize(
                names=owners[index],
                readable=name,
                section=section.name,
                member=section.member,
                address=section.address + begins[piece],
                file=file[index],
                memory=memory[index],
                source=_name(sources, of_source[piece]),
                library=_name(libraries, of_library[piece]),
                template=template_of(name),
                crate=crate_of(symbol, name),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.size, one.names)))


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
    file, memory = _sums(pieces, keys, len(names) + 1)
    pairs = np.unique(np.stack([keys, pieces.owners[0]]), axis=1)
    counts = np.bincount(pairs[0][pairs[1] >= 0], minlength=len(names) + 1).tolist()
    groups = [
        GroupSize(name=name, symbols=counts[index], file=file[index], memory=memory[index])
        for index, name in enumerate([*names, ""])
        if file[index] or memory[index]
    ]
    return tuple(sorted(groups, key=lambda one: (not one.name, -max(one.file, one.memory), one.name)))
