"""Objects and linked files of WebAssembly by the protocol of object formats.

The format is that of the WebAssembly specification, chapter "Binary Format"; what a linker has to know is in the custom
section ``linking`` ("Tool Conventions: Linking"). A function and a data segment is what a linker keeps or drops as a
whole, with and without ``-ffunction-sections``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from mlgokit.compiler.objects.magic import WASM
from mlgokit.compiler.objects.object_file import (
    BSS,
    DATA,
    NONE,
    RODATA,
    TEXT,
    FileSection,
    Functions,
    Layout,
    Parts,
    SectionTotals,
    damage_error,
    is_in_sections,
    linked_error,
    no_frames,
    sum_by_name,
    sum_kinds,
)
from mlgokit.errors import InputError

_CUSTOM, _IMPORT, _FUNCTION, _EXPORT, _CODE, _DATA = 0, 2, 3, 7, 10, 11
_SECTIONS = (
    "CUSTOM", "TYPE", "IMPORT", "FUNCTION", "TABLE", "MEMORY", "GLOBAL", "EXPORT", "START", "ELEM", "CODE", "DATA",
    "DATACOUNT", "TAG",
)  # fmt: skip
"""LLVM's names of sections, by their number."""
_LINKING, _NAME = "linking", "name"
_FUNCTION_NAMES, _SEGMENT_NAMES = 1, 9
_SEGMENTS, _COMDATS, _SYMBOLS = 5, 7, 8
_SYMBOL_FUNCTION, _SYMBOL_DATA, _SYMBOL_SECTION = 0, 1, 3
_WEAK, _LOCAL, _UNDEFINED, _EXPLICIT_NAME, _ABSOLUTE = 0x1, 0x2, 0x10, 0x40, 0x200
_COMDAT_DATA, _COMDAT_FUNCTION = 0, 1
_WRITABLE = (".data", ".tdata", ".init_array")
_ZERO = (".bss", ".tbss")


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads numbers and names of a file one behind the other; every length is checked."""

    where: str
    data: bytes
    place: int
    end: int

    def number(self) -> int:
        """An unsigned LEB128 number of at most 64 bits."""
        value = shift = 0
        while True:
            if self.place >= self.end or shift > 63:
                raise damage_error(self.where, f"a number before byte {self.end}", "none")
            byte = self.data[self.place]
            self.place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip(self, count: int) -> int:
        """Leave out some bytes, and return where they begin."""
        begin = self.place
        if count > self.end - begin:
            raise damage_error(self.where, f"{count} bytes at {begin} before byte {self.end}", "fewer")
        self.place += count
        return begin

    def byte(self) -> int:
        """One byte."""
        return self.data[self.skip(1)]

    def text(self) -> str:
        """A name."""
        begin = self.skip(self.number())
        return self.data[begin : self.place].decode("utf-8", "backslashreplace")

    def part(self) -> "_Reader":
        """A reader of the bytes whose number comes first."""
        begin = self.skip(self.number())
        return _Reader(where=self.where, data=self.data, place=begin, end=self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A section of the file: its number, its name if it is a custom one, and its contents."""

    kind: int
    name: str
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of the contents."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class _Linking:
    """What the linker is told.

    Attributes:
        functions: number and name of each definition.
        variables: segment, name, offset and size of each definition.
        segments: names of segments.
        comdats: signatures, each with kinds and numbers of its members.
        strong: name, kind and number of the strong definitions.
    """

    functions: list[tuple[int, str]]
    variables: list[tuple[int, str, int, int]]
    segments: list[str]
    comdats: list[tuple[str, list[tuple[int, int]]]]
    strong: list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WasmObject:
    """A wasm file by the protocol :class:`~mlgokit.compiler.objects.object_file.ObjectFile`.

    Attributes:
        where: name of the file in messages.
        data: the whole file.
        sections: its sections in their order.
    """

    where: str
    data: bytes
    sections: tuple[_Section, ...]

    is_bare = False

    @property
    def is_object(self) -> bool:
        """Whether it is to be linked."""
        return any(section.name == _LINKING for section in self.sections)

    @property
    def is_image(self) -> bool:
        """Whether it is a program or a shared library."""
        return not self.is_object

    def totals(self) -> SectionTotals:
        """Sum the sections by kind: of an image, all but custom ones, without their headers."""
        if self.is_object:
            parts = self.parts()
            return sum_kinds(parts.kind, parts.size)
        kinds = {_CUSTOM: NONE, _CODE: TEXT}
        kind = np.array([kinds.get(section.kind, RODATA) for section in self.sections], np.int64)
        return sum_kinds(kind, np.array([section.size for section in self.sections], np.int64))

    def layout(self) -> Layout:
        """Tell where the bytes of the file are.

        Raises:
            InputError: it is damaged.
        """
        sections = tuple(
            FileSection(
                name=one.name if one.kind == _CUSTOM else _SECTIONS[one.kind],
                address=0,
                size=one.size,
                offset=one.begin,
                file_bytes=one.size,
                memory_bytes=0 if one.kind == _CUSTOM else one.size,
                is_code=one.kind == _CODE,
            )
            for one in self.sections
        )
        index = {one.kind: number for number, one in enumerate(self.sections)}
        rows = list(self._symbols())
        section = np.array([index[row[1]] for row in rows], np.int64)
        begin, size = np.array([row[2:] for row in rows], np.int64).reshape(-1, 2).T
        return Layout(
            kind=f"wasm {'object' if self.is_object else 'program'}",
            sections=sections,
            names=[row[0] for row in rows],
            section=section,
            begin=begin,
            end=begin + size,
        )

    def function_names(self) -> list[tuple[int, str]]:
        """Functions by their number, with each of their names: in a program those for debuggers, else of exports."""
        if self.is_object:
            return self._linking().functions
        return self._names(_FUNCTION_NAMES) or self._exported_functions()

    def _symbols(self) -> Iterator[tuple[str, int, int, int]]:
        """Name, kind of section, offset and size of functions, and of variables or, in a program, data segments."""
        first, bodies, segments = self._imported_functions(), self._bodies(), self._segments()
        # As llvm-nm sorts them, and with them the names of one function.
        for index, name in sorted(self.function_names(), key=lambda one: one[1]):
            if index >= first:
                yield name, _CODE, *self._place(bodies, index - first)
        if self.is_object:
            variables = self._linking().variables
        else:
            variables = [(index, name, 0, 0) for index, name in self._names(_SEGMENT_NAMES)]
        for index, name, begin, size in variables:
            start, limit = self._place(segments, index)
            if begin + size > limit:
                raise damage_error(self.where, f"{name} within the {limit} bytes of segment {index}", f"{size} bytes")
            yield name, _DATA, start + begin, size or limit

    def _place(self, places: list[tuple[int, int]], index: int) -> tuple[int, int]:
        """Offset and size of a function or a data segment that a symbol names."""
        if index >= len(places):
            raise damage_error(self.where, f"symbols of {len(places)} functions or segments", f"of number {index}")
        return places[index]

    def parts(self) -> Parts:
        """Divide an object into functions, data segments, and what is left of the sections of both.

        Raises:
            InputError: it is no object, or damaged.
        """
        linking = self._linking()
        first = self._imported_functions()
        bodies, segments = ([size for _, size in places] for places in (self._bodies(), self._segments()))
        functions = dict(reversed(linking.functions))
        names = linking.segments[: len(segments)]
        names += [""] * (len(segments) - len(names))
        kind = [TEXT] * len(bodies) + [_segment_kind(name) for name in names] + [TEXT, RODATA]
        size = [*bodies, *segments, self._size(_CODE) - sum(bodies), self._size(_FUNCTION)]
        group = [-1] * len(size)
        for signature, (_, members) in enumerate(linking.comdats):
            for member, index in members:
                place = index - first if member == _COMDAT_FUNCTION else len(bodies) + index
                limit = len(bodies) if member == _COMDAT_FUNCTION else len(bodies) + len(segments)
                if member in (_COMDAT_DATA, _COMDAT_FUNCTION):
                    if not 0 <= place < limit:
                        raise damage_error(self.where, f"members of COMDAT groups among {limit}", f"number {place}")
                    group[place] = signature
        count = np.arange(len(bodies), dtype=np.int64)
        return Parts(
            kind=np.array(kind, np.int64),
            size=np.array(size, np.int64),
            group=np.array(group, np.int64),
            signatures=tuple(name for name, _ in linking.comdats),
            functions=Functions(
                names=tuple(functions.get(first + index, f"function {index}") for index in range(len(bodies))),
                section=count,
                begin=np.zeros(len(bodies), np.int64),
                size=np.array(bodies, np.int64),
            ),
            frames=no_frames(),
            tables=(),
        )

    def references(self, parts: Parts) -> None:
        """Not read: wasm-opt inlines what is called once itself."""

    def strong_definitions(self) -> set[str]:
        """Names of the strong definitions of an object outside of COMDAT groups."""
        linking = self._linking()
        grouped = {member for _, members in linking.comdats for member in members}
        return {name for name, kind, index in linking.strong if (kind, index) not in grouped}

    def function_sizes(self) -> Mapping[str, int]:
        """Bytes of the functions by name, of a file whose names were not stripped."""
        names = dict(reversed(self._linking().functions if self.is_object else self._names(_FUNCTION_NAMES)))
        bodies = enumerate(self._bodies(), self._imported_functions())
        return sum_by_name((names[index], size) for index, (_, size) in bodies if index in names)

    def relocation_bytes(self) -> int:
        """No loader of wasm applies relocations."""
        return 0

    def holds(self, text: bytes) -> bool:
        """Whether the data contains these bytes."""
        sections = ((section.begin, section.size) for section in self.sections if section.kind == _DATA)
        return is_in_sections(text, self.data, sections)

    def _section(self, kind: int, name: str = "") -> _Reader:
        """A reader of a section; of nothing if there is none."""
        found = next((one for one in self.sections if (one.kind, one.name) == (kind, name)), None)
        begin, end = (0, 0) if found is None else (found.begin, found.end)
        return _Reader(where=self.where, data=self.data, place=begin, end=end)

    def _size(self, kind: int) -> int:
        return sum(section.size for section in self.sections if section.kind == kind)

    def _imported_functions(self) -> int:
        """The number of imported functions, which are numbered before the defined ones."""
        reader = self._section(_IMPORT)
        functions = 0
        for _ in range(reader.number() if reader.end else 0):
            reader.skip(reader.number())
            reader.skip(reader.number())
            kind = reader.byte()
            if kind == 0:
                functions += 1
                reader.number()
            elif kind in (1, 2):
                reader.skip(1 if kind == 1 else 0)
                flags = reader.byte()
                for _ in range(1 + (flags & 1) + (flags >> 3 & 1)):
                    reader.number()
            elif kind in (3, 4):
                reader.skip(1)
                reader.number()
            else:
                raise damage_error(self.where, "imports of kinds 0 to 4", f"kind {kind}")
        return functions

    def _exported_functions(self) -> list[tuple[int, str]]:
        reader = self._section(_EXPORT)
        exports = [(reader.text(), reader.byte(), reader.number()) for _ in range(reader.number() if reader.end else 0)]
        return [(index, name) for name, kind, index in exports if kind == 0]

    def _bodies(self) -> list[tuple[int, int]]:
        """Offset and size of each defined function, with the number of bytes that comes first."""
        reader = self._section(_CODE)
        start = reader.place
        places: list[tuple[int, int]] = []
        for _ in range(reader.number() if reader.end else 0):
            begin = reader.place
            reader.part()
            places.append((begin - start, reader.place - begin))
        return places

    def _segments(self) -> list[tuple[int, int]]:
        """Offset and size of each data segment, without where it goes."""
        reader = self._section(_DATA)
        start = reader.place
        places: list[tuple[int, int]] = []
        for _ in range(reader.number() if reader.end else 0):
            flags = reader.number()
            if flags & 2:
                reader.number()
            if not flags & 1:
                _skip_expression(reader)
            contents = reader.part()
            places.append((contents.place - start, contents.end - contents.place))
        return places

    def _names(self, wanted: int) -> list[tuple[int, str]]:
        """Functions or data segments by their number, with their names for debuggers."""
        reader = self._section(_CUSTOM, _NAME)
        while reader.place < reader.end:
            kind, part = reader.byte(), reader.part()
            if kind == wanted:
                return [(part.number(), part.text()) for _ in range(part.number())]
        return []

    def _linking(self) -> _Linking:
        if not self.is_object:
            raise linked_error(self.where, "wasm")
        found = _Linking(functions=[], variables=[], segments=[], comdats=[], strong=[])
        readers: dict[int, Callable[[_Reader, _Linking], None]] = {
            _SEGMENTS: _read_segment_names,
            _COMDATS: _read_comdats,
            _SYMBOLS: _read_symbols,
        }
        reader = self._section(_CUSTOM, _LINKING)
        if (version := reader.number()) != 2:
            raise InputError(
                f"{self.where}: expected a section linking of version 2, found {version}; use another clang"
            )
        while reader.place < reader.end:
            kind, part = reader.byte(), reader.part()
            if (read := readers.get(kind)) is not None:
                read(part, found)
        return found


def read_wasm(data: bytes, where: str) -> WasmObject:
    """Read the sections of a wasm file.

    Raises:
        InputError: it is damaged.
    """
    sections: list[_Section] = []
    reader = _Reader(where=where, data=data, place=len(WASM), end=len(data))
    if int.from_bytes(data[reader.skip(4) : reader.place], "little") != 1:
        raise InputError(f"{where}: expected a wasm module of version 1, found another; give one that clang made")
    while reader.place < reader.end:
        kind, part = reader.byte(), reader.part()
        if kind >= len(_SECTIONS):
            raise damage_error(where, f"sections of kinds 0 to {len(_SECTIONS) - 1}", f"kind {kind}")
        name = part.text() if kind == _CUSTOM else ""
        sections.append(_Section(kind=kind, name=name, begin=part.place, end=part.end))
    return WasmObject(where=where, data=data, sections=tuple(sections))


_OPERANDS: Mapping[int, int] = MappingProxyType({0x43: 4, 0x44: 8})
"""Bytes behind the instructions ``f32.const`` and ``f64.const``."""


def _skip_expression(reader: _Reader) -> None:
    """Behind a constant expression, which ends in 0x0b."""
    while (code := reader.byte()) != 0x0B:
        if code in (0x23, 0x41, 0x42):
            reader.number()
        else:
            reader.skip(_OPERANDS.get(code, 0))


def _segment_kind(name: str) -> int:
    if name.startswith(_ZERO):
        return BSS
    return DATA if name.startswith(_WRITABLE) else RODATA


def _read_segment_names(part: _Reader, found: _Linking) -> None:
    for _ in range(part.number()):
        found.segments.append(part.text())
        part.number()
        part.number()


def _read_comdats(part: _Reader, found: _Linking) -> None:
    for _ in range(part.number()):
        name = part.text()
        part.number()
        found.comdats.append((name, [(part.byte(), part.number()) for _ in range(part.number())]))


def _read_symbols(part: _Reader, found: _Linking) -> None:
    for _ in range(part.number()):
        kind, flags = part.byte(), part.number()
        is_defined, is_strong = not flags & _UNDEFINED, not flags & (_UNDEFINED | _WEAK | _LOCAL)
        if kind == _SYMBOL_DATA:
            name = part.text()
            if is_defined:
                segment, begin, size = part.number(), part.number(), part.number()
                if size and not flags & _ABSOLUTE:
                    found.variables.append((segment, name, begin, size))
                if is_strong:
                    found.strong.append((name, _COMDAT_DATA, segment))
            continue
        index = part.number()
        if kind == _SYMBOL_SECTION or not (is_defined or flags & _EXPLICIT_NAME):
            continue
        name = part.text()
        if kind == _SYMBOL_FUNCTION and is_defined:
            found.functions.append((index, name))
            if is_strong:
                found.strong.append((name, _COMDAT_FUNCTION, index))
