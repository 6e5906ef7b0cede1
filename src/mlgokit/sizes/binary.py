"""A program, a library or an object as sections and symbols, whatever its format is."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlgokit.compiler.objects.object_file import LARGEST_SECTION, FileSection, Ints
from mlgokit.sizes.record import OutsideSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Ranges [R] of bytes within sections, each of one owner; no two overlap.

    Attributes:
        owners: [O] the names of each owner; several for aliases and for functions that the linker folded.
        owner: [R] index of the owner.
        section: [R] index of the section.
        begin: [R] offset of the first byte.
        end: [R] offset behind the last byte.
    """

    owners: tuple[tuple[str, ...], ...] = ()
    owner: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    section: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    begin: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    end: Ints = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A file as sections and symbols.

    Attributes:
        kind: its format, processor and role, such as ``ELF x86-64 program``.
        is_linked: whether its addresses are those of a linker, so that DWARF and maps can be looked up by them.
        sections: all of them.
        symbols: who owns which bytes; one that a symbol within another owns is not the outer one's.
        outside: the rest of the file.
    """

    kind: str
    is_linked: bool
    sections: tuple[FileSection, ...]
    symbols: Layer
    outside: tuple[OutsideSize, ...]

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return sum(one.file_bytes for one in self.sections) + sum(one.file for one in self.outside)

    @property
    def addresses(self) -> Ints:
        """Address [N] of each section; see :func:`signed`."""
        return signed(one.address for one in self.sections)

    def sections_at(self, address: Ints, chosen: Ints) -> Ints:
        """Of sections with these indices, the last one [A] that begins at or before each address [A]."""
        order = chosen[np.argsort(self.addresses[chosen], kind="stable")]
        return order[np.maximum(0, np.searchsorted(self.addresses[order], address, side="right") - 1)]


def signed(addresses: Iterable[int]) -> Ints:
    """Addresses as numbers with a sign, which those of a kernel, in the upper half of 64 bits, have.

    Example:
        >>> signed([0x1000, 0xFFFF_FFFF_8100_0000]).tolist()
        [4096, -2130706432]
    """
    return np.array([address % 2**64 for address in addresses], np.uint64).astype(np.int64)


def outside_of(file_bytes: int, extents: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """The bytes of each part of a file that no earlier part has, and the bytes that no part has.

    Args:
        file_bytes: size of the file.
        extents: offset and size of each part.

    Example:
        >>> outside_of(100, [(0, 10), (20, 30), (40, 20)])
        ([10, 30, 10], 50)
    """
    own = [0] * len(extents)
    covered = 0
    for part in sorted(range(len(extents)), key=lambda part: extents[part]):
        begin, size = extents[part]
        own[part] = max(0, min(begin + size, file_bytes) - max(begin, covered))
        covered = max(covered, begin + size)
    return own, file_bytes - sum(own)


def make_layer(
    names: Sequence[tuple[str, ...]], section: Ints, begin: Ints, end: Ints, sections: Sequence[FileSection]
) -> Layer:
    """A layer of ranges that may overlap, or reach beyond their section.

    Of ranges that begin at the same byte there is one, the longest, with all names. Where ranges overlap, the bytes are
    those of the one that begins last, so that of nested ranges the inner one has them.

    Example:
        >>> text = FileSection(name=".text", address=0, size=10, file_bytes=10, memory_bytes=10)
        >>> found = make_layer(
        ...     [("outer",), ("inner",), ("alias",)], *(np.array(x) for x in ([0, 0, 0], [0, 4, 4], [9, 6, 5])), [text]
        ... )
        >>> found.owners, found.owner.tolist(), found.begin.tolist(), found.end.tolist()
        ((('outer',), ('inner', 'alias')), [0, 1, 0], [0, 4, 6], [4, 6, 9])
    """
    extent = np.array([one.extent for one in sections] or [0], np.int64)
    begin, limit = np.maximum(begin, 0), extent[section] if len(section) else section
    end = np.minimum(end, limit)
    order: Ints = np.flatnonzero(begin < end)
    order = order[np.lexsort((begin[order], section[order]))]
    if not len(order):
        return Layer()
    key = section[order] * LARGEST_SECTION + begin[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    places: list[int] = order.tolist()
    starts: list[int] = first.tolist()
    owners = tuple(
        tuple(dict.fromkeys(name for one in places[start:stop] for name in names[one]))
        for start, stop in itertools.pairwise([*starts, len(places)])
    )
    chosen_end = np.maximum.reduceat(end[order], first)
    section, begin = section[order[first]], begin[order[first]]
    owner = np.arange(len(first), dtype=np.int64)
    crossing = (section[1:] == section[:-1]) & (chosen_end[:-1] > begin[1:])
    if not crossing.any():
        return Layer(owners=owners, owner=owner, section=section, begin=begin, end=chosen_end)
    ranges = _flatten(section.tolist(), begin.tolist(), chosen_end.tolist())
    columns = np.array(ranges, np.int64).reshape(-1, 4).T
    return Layer(owners=owners, owner=columns[0], section=columns[1], begin=columns[2], end=columns[3])


def _flatten(section: list[int], begin: list[int], end: list[int]) -> list[tuple[int, int, int, int]]:
    """Owner, section, begin and end of ranges that do not overlap, from ranges in the order of their begin."""
    ranges: list[tuple[int, int, int, int]] = []
    around: list[int] = []
    place = 0

    def close(until: int) -> None:
        """Give the bytes up to ``until`` to the ranges that are open, the inner ones first."""
        nonlocal place
        while around and place < until:
            inner = around[-1]
            stop = min(end[inner], until)
            if stop > place:
                ranges.append((inner, section[inner], place, stop))
                place = stop
            if end[inner] <= place:
                around.pop()

    for one in range(len(begin)):
        if around and section[around[-1]] != section[one]:
            close(LARGEST_SECTION * 2)
        close(begin[one])
        around.append(one)
        place = begin[one]
    close(LARGEST_SECTION * 2)
    return ranges
