"""Objects and linked files of any format, as the sections that a linker keeps or drops as a whole.

Each format has a reader with the protocol :class:`ObjectFile`: :mod:`elf_object`, :mod:`wasm_object`, ... ;
:mod:`formats` finds the one for a file. A *section* here is what the linker of the format keeps or drops as a whole:
a section of ELF and COFF, a function or a data segment of wasm, an atom of Mach-O.
"""

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from mlgokit.errors import InputError

Ints = npt.NDArray[np.int64]

NONE, TEXT, RODATA, EH_FRAME, DATA, BSS = range(6)
"""Section kinds; ``TEXT``, ``RODATA`` and ``EH_FRAME`` together are what llvm-size calls text in an ELF file."""
LARGEST_FILE = 2 << 30
"""Limit on the size of a file, which is read into memory."""
LARGEST_SECTION = 2**40

Image = Literal["", "program", "library"]
"""What an object is linked into: a program or a library that uses shared libraries, or an image that uses none."""


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
        """All loaded sections that are read-only or executable: in an ELF file llvm-size's first column."""
        return self.text + self.rodata + self.eh_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """Functions in the order of section and offset: names, section indices, offsets and sizes of each one's code."""

    names: tuple[str, ...]
    section: Ints
    begin: Ints
    size: Ints

    def at(self, section: Ints, offset: Ints) -> Ints:
        """Index of the function [Q] that covers each ``offset`` [Q] of each ``section`` [Q], or -1."""
        if not len(self.names):
            return np.full(len(section), -1, np.int64)
        known = (section >= 0) & (offset >= 0) & (offset < LARGEST_SECTION)
        keys = self.section * LARGEST_SECTION + self.begin
        function = np.searchsorted(keys, np.where(known, section * LARGEST_SECTION + offset, -1), side="right") - 1
        inside = known & (function >= 0) & (self.section[function] == section)
        inside &= (offset < self.begin[function] + self.size[function]) | (offset == self.begin[function])
        return np.where(inside, function, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """The entries of an object's unwind tables, each of which describes a function: FDEs in ELF.

    Attributes:
        table: [D] section index of the unwind table that the entry is in.
        size: [D] bytes of the entry.
        section: [D] section of the code that it describes, or -1.
        function: [D] index of the function that it describes, or -1.
        table_section: [D] section of the function's exception table, or -1.
        table_begin: [D] offset of the exception table in that section.
    """

    table: Ints
    size: Ints
    section: Ints
    function: Ints
    table_section: Ints
    table_begin: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """An object as N sections with their owners.

    Attributes:
        kind: [N] kind of each section, ``NONE`` to ``BSS``.
        size: [N] bytes of each section.
        group: [N] index of the COMDAT signature that each section belongs to, or -1.
        signatures: [S] COMDAT signatures that the object defines.
        functions: its functions.
        frames: the entries of its unwind tables.
        tables: pairs of a read-only section and the only function that uses it, such as for a jump table.
    """

    kind: Ints
    size: Ints
    group: Ints
    signatures: tuple[str, ...]
    functions: Functions
    frames: Frames
    tables: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """What refers to the functions of an object.

    Attributes:
        by_function: [F] names of the symbols that each function refers to.
        always_live: names that data refer to, and functions that count as live for another reason, such as sharing a
            section.
    """

    by_function: tuple[tuple[str, ...], ...]
    always_live: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSection:
    """A section as the file has it.

    It has bytes in the file, in memory, or both: ``.bss`` takes memory alone, ``.debug_info`` is in the file alone.
    Byte ``i`` of a section is in the file if ``i < file_bytes``, and in memory if ``i < memory_bytes``.

    Attributes:
        name: as the file has it.
        address: where it is loaded; 0 in objects.
        size: what ``llvm-size -A`` says of it, in bytes.
        offset: where its bytes begin in the file, or in the member of a static library.
        file_bytes: bytes in the file.
        memory_bytes: bytes in memory.
        listed: whether ``llvm-size -A`` lists it.
        member: the member of a static library that it is of, else empty.
        is_code: whether it holds instructions.
    """

    name: str
    address: int
    size: int
    offset: int = 0
    file_bytes: int
    memory_bytes: int
    listed: bool = True
    member: str = ""
    is_code: bool = False

    @property
    def extent(self) -> int:
        """Bytes that may have an owner."""
        return max(self.file_bytes, self.memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the bytes of a file are, and which of them its D symbols have.

    Attributes:
        kind: its format, processor and role, such as ``ELF x86-64 program``.
        sections: its sections, which may overlap.
        tables: name, offset and size of what the format has outside of sections, if it is known.
        names: [D] names of functions and variables; several may be at one place.
        section: [D] index of the section of each.
        begin: [D] offset in the section.
        end: [D] offset behind the last byte, which may be beyond the section.
    """

    kind: str
    sections: tuple[FileSection, ...]
    tables: Sequence[tuple[str, int, int]] = ()
    names: Sequence[str]
    section: Ints
    begin: Ints
    end: Ints


class ObjectFile(Protocol):
    """An object or a linked file whose tables are sound."""

    @property
    def where(self) -> str:
        """Name of the file in messages."""
        ...

    @property
    def is_object(self) -> bool:
        """Whether it is to be linked."""
        ...

    @property
    def is_image(self) -> bool:
        """Whether it is a program or a shared library."""
        ...

    @property
    def is_bare(self) -> bool:
        """Whether it is a program that runs without an operating system."""
        ...

    def totals(self) -> SectionTotals:
        """Sum the sections by kind."""
        ...

    def layout(self) -> Layout:
        """Tell where the bytes of the file are.

        Raises:
            InputError: it is damaged.
        """
        ...

    def parts(self) -> Parts:
        """Divide an object into sections with their owners.

        Raises:
            InputError: it is no object, or damaged.
        """
        ...

    def references(self, parts: Parts) -> References | None:
        """What refers to the functions of an object; ``None`` for a format of which that is not known.

        Unwind and exception tables describe a function, and go with it. A jump table is a part of its function.
        """
        ...

    def strong_definitions(self) -> set[str]:
        """Names of the strong definitions of an object outside of COMDAT groups."""
        ...

    def function_sizes(self) -> Mapping[str, int]:
        """Bytes of the functions by name, as far as a linked file still has symbols."""
        ...

    def relocation_bytes(self) -> int:
        """Bytes of the relocations that a loader applies to an image; they are counted as read-only data."""
        ...

    def holds(self, text: bytes) -> bool:
        """Whether what is loaded of the file contains these bytes."""
        ...


def damage_error(where: str, expected: str, found: str) -> InputError:
    """Make the error for a file that contradicts itself."""
    return InputError(f"{where}: expected {expected}, found {found}; the file is damaged or cut short: make it again")


def linked_error(where: str, kind: str) -> InputError:
    """Make the error for a file of this format that is no object."""
    return InputError(
        f"{where}: expected a {kind} object, found a linked file; give an object as clang -c writes it, before linking"
    )


def read_bytes(source: bytes | Path, *, where: str = "object in memory") -> tuple[bytes, str]:
    """The bytes of a file, and its name in messages.

    Raises:
        InputError: the file is missing or too large.
    """
    if isinstance(source, bytes):
        return source, where
    where = str(source)
    try:
        if (size := source.stat().st_size) > LARGEST_FILE:
            raise InputError(
                f"{where}: expected at most {LARGEST_FILE} bytes of object, found {size}; leave this module out"
            )
        return source.read_bytes(), where
    except OSError as error:
        raise InputError(
            f"{where}: expected a readable object file, found {error.strerror}; compile it first"
        ) from error


def sum_kinds(kind: Ints, size: Ints, except_table: npt.NDArray[np.bool_] | None = None) -> SectionTotals:
    """Sum the sizes of sections [N] by their kinds [N]; ``except_table`` says which hold exception tables."""
    sums = np.bincount(kind, np.where(kind == NONE, 0, size), minlength=6).astype(np.int64).tolist()
    return SectionTotals(
        text=sums[TEXT],
        rodata=sums[RODATA],
        eh_frame=sums[EH_FRAME],
        data=sums[DATA],
        bss=sums[BSS],
        except_table=0 if except_table is None else int(size[except_table].sum()),
    )


def sum_by_name(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Sum the bytes of functions, of which several local ones may have one name."""
    sums: dict[str, int] = {}
    for name, size in sizes:
        sums[name] = sums.get(name, 0) + size
    return sums


def is_in_sections(text: bytes, data: bytes, sections: Iterable[tuple[int, int]]) -> bool:
    """Whether one of the sections, each an offset in the file and a number of bytes, contains ``text``."""
    return any(data.find(text, begin, begin + size) >= 0 for begin, size in sections)


def is_outlined(function: str) -> bool:
    """Whether LLVM's MachineOutliner made a function (``llvm/lib/CodeGen/MachineOutliner.cpp``)."""
    return function.startswith("OUTLINED_FUNCTION_")


def collect_references(
    parts: Parts,
    section: Ints,
    function: Ints,
    symbol: Ints,
    target: Ints,
    *,
    always_live: set[str],
    name_of: Callable[[int], str],
) -> References:
    """Collect from R relocations what refers to functions.

    Functions that share a section are always live: a linker keeps or discards whole sections, and that is not modelled.
    References of a function that LLVM's MachineOutliner made belong to its callers, and it is itself always live, as
    its name, a number, is not stable between compilations. A jump table is a part of its function.

    Args:
        parts: the object.
        section: [R] the section that contains each relocation.
        function: [R] index of the function that contains it, or -1.
        symbol: [R] number of the symbol that it refers to.
        target: [R] index of the function of that symbol, or -1 if it is none of this object.
        always_live: names that are live for other reasons; changed here.
        name_of: name of a symbol by its number.
    """
    code = parts.functions
    owner = np.full(len(parts.kind), -1, np.int64)
    for index, of_function in parts.tables:
        owner[index] = of_function
    containing: list[int] = np.where(function < 0, owner[section], function).tolist()
    targets: list[int] = np.where(target < 0, -1 - symbol, target).tolist()
    found, names = [set[str]() for _ in code.names], dict[int, str]()
    for user, to in set(zip(containing, targets, strict=True)):
        if to not in names:
            names[to] = code.names[to] if to >= 0 else sys.intern(name_of(-1 - to))
        (found[user] if user >= 0 else always_live).add(names[to])
    outlined = {name: index for index, name in enumerate(code.names) if is_outlined(name)}
    for references in found if outlined else ():
        for name in references & outlined.keys():
            references.update(found[outlined[name]])
    for name, index in outlined.items():
        found[index].clear()
        always_live.add(name)
    places: list[int] = code.section.tolist()
    number = Counter(places)
    always_live.update(name for name, place in zip(code.names, places, strict=True) if number[place] > 1)
    return References(by_function=tuple(tuple(sorted(one)) for one in found), always_live=frozenset(always_live))


def no_frames() -> Frames:
    """The frames of an object without unwind tables."""
    return frames_of([])


def frames_of(tables: Iterable[tuple[Ints, ...]]) -> Frames:
    """Join the columns of unwind tables, each in the order of :class:`Frames`."""
    names = [field.name for field in dataclasses.fields(Frames)]
    nothing = (np.empty(0, np.int64),) * len(names)
    return Frames(**dict(zip(names, map(np.concatenate, zip(nothing, *tables, strict=True)), strict=True)))


def functions_until_next(starts: Sequence[tuple[int, int, bool, str]], size: Ints) -> Functions:
    """Functions of a format that has no sizes of symbols: each ends where the next one in its section begins.

    Args:
        starts: section, offset, whether it is local, and name of each function; of several at one place there is one,
            that which is not local.
        size: [N] bytes of each section.
    """
    first: dict[tuple[int, int], str] = {}
    for section, begin, _, name in sorted(starts):
        first.setdefault((section, begin), name)
    section, begin = np.array(list(first), np.int64).reshape(-1, 2).T
    end = ends_at_next(section, begin, size)
    return Functions(names=tuple(first.values()), section=section, begin=begin, size=end - begin)


def distinct(values: Ints) -> Ints:
    """The values [V] without repetitions, in order; ``np.unique`` imports a package that takes longer than a file."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]


def ends_at_next(section: Ints, begin: Ints, size: Ints) -> Ints:
    """Where each symbol [D] of a format without sizes ends: where the next one begins, or its section, of [N], ends."""
    first = section * LARGEST_SECTION
    places = np.append(distinct(first + begin), np.iinfo(np.int64).max)
    following = places[np.searchsorted(places, first + begin, side="right")]
    return np.minimum(following - first, size[section]) if len(section) else section


def widen(table: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert a table of 32-bit fields to the dtype of a 64-bit file."""
    if table.dtype == dtype:
        return table
    wide = np.zeros(len(table), dtype)
    for name in table.dtype.names or ():
        wide[name] = table[name]
    return wide


def extents(size: Ints, section: Ints, begin: Ints) -> Ints:
    """Bytes [D] from each offset to the next one in the same section, or to its end; sections [N] have ``size``."""
    extent = np.zeros(len(section), np.int64)
    known = np.flatnonzero(section >= 0)
    if not len(known):
        return extent
    limit = size[section]
    known = known[(begin[known] >= 0) & (begin[known] < limit[known])]
    known = known[np.lexsort((begin[known], section[known]))]
    again = (section[known][1:] == section[known][:-1]) & (begin[known][1:] == begin[known][:-1])
    known = np.delete(known, np.flatnonzero(again) + 1)
    end = limit[known]
    follows = section[known][1:] == section[known][:-1]
    end[:-1] = np.where(follows, begin[known][1:], end[:-1])
    extent[known] = end - begin[known]
    return extent
