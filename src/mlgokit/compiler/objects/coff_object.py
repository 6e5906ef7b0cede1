"""COFF objects and PE images by the protocol of object formats, as of Microsoft's "PE Format".

The sections of one function are told by COMDAT: with ``-ffunction-sections`` each function is in a COMDAT section, and
its ``.pdata``, ``.xdata`` and jump tables are associated with that section. Without, relocations of ``.pdata`` tell.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects.magic import COFF_BIG_OBJECT, COFF_IMAGE, COFF_OBJECTS
from mlgokit.compiler.objects.object_file import (
    BSS,
    DATA,
    EH_FRAME,
    NONE,
    RODATA,
    TEXT,
    FileSection,
    Frames,
    Functions,
    Ints,
    Layout,
    Parts,
    References,
    SectionTotals,
    collect_references,
    damage_error,
    ends_at_next,
    frames_of,
    functions_until_next,
    is_in_sections,
    linked_error,
    no_frames,
    sum_by_name,
    sum_kinds,
)
from mlgokit.errors import InputError

_SECTION = np.dtype(
    [
        ("name", "S8"),
        ("virtual_size", "<u4"),
        ("address", "<u4"),
        ("size", "<u4"),
        ("offset", "<u4"),
        ("relocations", "<u4"),
        ("lines", "<u4"),
        ("relocation_count", "<u2"),
        ("line_count", "<u2"),
        ("flags", "<u4"),
    ]
)
_SYMBOL, _BIG_SYMBOL = (
    np.dtype(
        [
            ("name", "S8"),
            ("value", "<u4"),
            ("section", section),
            ("type", "<u2"),
            ("storage", "u1"),
            ("auxiliary", "u1"),
        ]
    )
    for section in ("<u2", "<i4")
)
_MOST_SECTIONS = 0xFEFF
"""The largest number of a section in 16 bits; those above are negative, and stand for what is in no section."""
_RELOCATION = np.dtype([("address", "<u4"), ("symbol", "<u4"), ("type", "<u2")])
_HEADER, _BIG_HEADER = 20, 56
_BIG_CLASS = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")
"""What tells an object with many sections from others that begin alike."""
_IMAGE_BASE = {b"\x0b\x01": (28, 4), b"\x0b\x02": (24, 8)}
"""Offset and size of an image's base in the optional header, by its first bytes: for 32 and for 64 bits."""
_CODE, _ZERO, _REMOVED, _COMDAT = 0x20, 0x80, 0x800, 0x1000
_MANY_RELOCATIONS, _DISCARDABLE, _EXECUTED, _WRITTEN = 0x01000000, 0x02000000, 0x20000000, 0x80000000
_EXTERNAL, _STATIC = 2, 3
_FUNCTION_TYPE = 0x20
_NO_DUPLICATES, _ASSOCIATIVE = 1, 5
_ENTRY = {b"\x64\x86": 12, b"\x64\xaa": 8}
"""Bytes of an entry of ``.pdata`` by processor; i386 has none."""

Table = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class CoffObject:
    """A COFF file by the protocol :class:`~mlgokit.compiler.objects.object_file.ObjectFile`.

    Attributes:
        where: name of the file in messages.
        data: the whole file.
        is_object: whether it is to be linked.
        machine: its processor, as the two bytes of the header.
        base: where an image is loaded, which addresses of its sections count from.
        sections: [N] of the sections.
        symbols: [S] of the symbol table, auxiliary entries among them.
        strings: the string table, with its length in front.
    """

    where: str
    data: bytes
    is_object: bool
    machine: bytes
    base: int
    sections: Table
    symbols: Table
    strings: bytes

    is_bare = False

    @property
    def is_image(self) -> bool:
        """Whether it is a program or a shared library."""
        return not self.is_object

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """[N] names of the sections."""
        return tuple(self._section_name(name) for name in self.sections["name"].tolist())

    @functools.cached_property
    def _sizes(self) -> Ints:
        """[N] bytes of the sections, as llvm-size counts them."""
        size, virtual = (self.sections[name].astype(np.int64) for name in ("size", "virtual_size"))
        is_zero = (self.sections["flags"] & _ZERO) != 0
        return size if self.is_object else np.where(is_zero, virtual, np.minimum(size, virtual))

    @functools.cached_property
    def _kinds(self) -> Ints:
        """[N] kinds of the sections."""
        flags = self.sections["flags"]
        kind = np.full(len(flags), RODATA, np.int64)
        kind[(flags & _WRITTEN) != 0] = DATA
        kind[(flags & _ZERO) != 0] = BSS
        kind[(flags & (_CODE | _EXECUTED)) != 0] = TEXT
        kind[(flags & _REMOVED) != 0] = NONE
        for index, name in enumerate(self.names):
            if name.startswith(".pdata"):
                kind[index] = EH_FRAME
            elif name.startswith((".debug", "/")) or (int(flags[index]) & _DISCARDABLE and name != ".reloc"):
                kind[index] = NONE
        return kind

    def totals(self) -> SectionTotals:
        """Sum the sections by kind; ``.xdata`` has the unwind codes and the exception tables of functions."""
        return sum_kinds(self._kinds, self._sizes, self._named(".xdata"))

    def layout(self) -> Layout:
        """Tell where the bytes of the file are.

        Raises:
            InputError: it is damaged.
        """
        sections: list[FileSection] = []
        for name, row in zip(self.names, self.sections, strict=True):
            flags, size, virtual = int(row["flags"]), int(row["size"]), int(row["virtual_size"])
            has_bytes = row["offset"] and (self.is_image or not flags & _ZERO)
            is_loaded = self.is_image or not flags & (_DISCARDABLE | _REMOVED)
            sections.append(
                FileSection(
                    name=name,
                    address=self.base + int(row["address"]),
                    size=min(size, virtual) if self.is_image else size,
                    offset=int(row["offset"]),
                    file_bytes=size if has_bytes else 0,
                    memory_bytes=(virtual if self.is_image else size) if is_loaded else 0,
                    is_code=bool(flags & _EXECUTED),
                )
            )
        # A static symbol with an auxiliary entry stands for a section.
        symbols = [
            one for one in self._main_symbols if one["section"] > 0 and not (one["storage"] == _STATIC and one["more"])
        ]
        section = np.array([one["section"] - 1 for one in symbols], np.int64)
        begin = np.array([one["value"] for one in symbols], np.int64)
        limit = np.array([one.memory_bytes or one.file_bytes for one in sections], np.int64)
        role = "object" if self.is_object else "program or library"
        return Layout(
            kind=f"COFF {COFF_OBJECTS.get(self.machine, 'unknown')} {role}",
            sections=tuple(sections),
            names=[self._text(one["name"]) for one in symbols],
            section=section,
            begin=begin,
            end=ends_at_next(section, begin, limit),
        )

    def parts(self) -> Parts:
        """Divide an object into sections with their owners.

        Raises:
            InputError: it is no object, or damaged.
        """
        if not self.is_object:
            raise linked_error(self.where, "COFF")
        kind, size = self._kinds, self._sizes
        group, parent, signatures = self._comdats()
        functions = self._functions()
        of_section = dict(zip(functions.section.tolist(), range(len(functions.names)), strict=True))
        alone = np.bincount(functions.section, minlength=len(kind))[functions.section] == 1
        xdata = self._named(".xdata")
        tables = [
            (index, of_section[place])
            for index, place in parent.items()
            if kind[index] == RODATA and not xdata[index] and place in of_section and alone[of_section[place]]
        ]
        return Parts(
            kind=kind,
            size=size,
            group=group,
            signatures=signatures,
            functions=functions,
            frames=self._frames(functions, xdata),
            tables=tables,
        )

    def references(self, parts: Parts) -> References:
        """What refers to the functions, by their symbols."""
        code = parts.functions
        describes = (parts.kind == EH_FRAME) | (parts.kind == NONE) | self._named(".xdata")
        sections, tables = [np.empty(0, np.int64)], [np.empty(0, _RELOCATION)]
        for section in np.flatnonzero(~describes).tolist():
            tables.append(self._relocations(section))
            sections.append(np.full(len(tables[-1]), section, np.int64))
        place, table = np.concatenate(sections), np.concatenate(tables)
        symbol = table["symbol"].astype(np.int64)
        if len(symbol) and int(symbol.max()) >= len(self.symbols):
            raise damage_error(self.where, f"one of {len(self.symbols)} symbols", f"symbol {int(symbol.max())}")
        of_symbol = code.at(self._section_of - 1, self.symbols["value"].astype(np.int64))
        return collect_references(
            parts,
            place,
            code.at(place, table["address"].astype(np.int64)),
            symbol,
            of_symbol[symbol],
            always_live=set(),
            name_of=lambda number: self._text(self.symbols["name"][number].item()),
        )

    def strong_definitions(self) -> set[str]:
        """Names of the strong definitions of an object outside of COMDAT groups."""
        group, _, _ = self._comdats()
        return {
            self._text(symbol["name"])
            for symbol in self._main_symbols
            if symbol["storage"] == _EXTERNAL and symbol["section"] > 0 and group[symbol["section"] - 1] < 0
        }

    def function_sizes(self) -> Mapping[str, int]:
        """Bytes of the functions by name, of a file whose symbols were not stripped."""
        functions = self._functions()
        return sum_by_name(zip(functions.names, functions.size.tolist(), strict=True))

    def relocation_bytes(self) -> int:
        """Bytes of the base relocations."""
        return int(self._sizes[np.array([name == ".reloc" for name in self.names], bool)].sum())

    def holds(self, text: bytes) -> bool:
        """Whether a loaded section contains these bytes."""
        loaded = (self._kinds != NONE) & (self._kinds != BSS)
        return is_in_sections(text, self.data, self.sections[["offset", "size"]][loaded].tolist())

    def _named(self, name: str) -> npt.NDArray[np.bool_]:
        """Whether each section [N] has this name, or begins with it before a function's."""
        return np.array([one == name or one.startswith(f"{name}$") for one in self.names], bool)

    def _section_name(self, name: bytes) -> str:
        """The name of a section, which may be a place in the string table: decimal, or six digits of base 64."""
        text = name.decode("latin-1")
        if not text.startswith("/") or not self.strings:
            return text
        try:
            place = _base64(text[2:]) if text.startswith("//") else int(text[1:])
        except ValueError:
            return text
        return self._string(place)

    def _string(self, place: int) -> str:
        end = self.strings.find(b"\0", place)
        if not 4 <= place < len(self.strings) or end < 0:
            raise damage_error(self.where, f"names within {len(self.strings)} bytes", f"one at byte {place}")
        return self.strings[place:end].decode("utf-8", "backslashreplace")

    def _text(self, name: bytes) -> str:
        """The name of a symbol, of which numpy left out zero bytes at the end."""
        if name[:4] in (b"", b"\0\0\0\0"):
            return self._string(int.from_bytes(name[4:], "little")) if name else ""
        return name.decode("utf-8", "backslashreplace")

    @functools.cached_property
    def _section_of(self) -> Ints:
        """[S] number of the section that each symbol is in, from 1 on, or none of these."""
        number = self.symbols["section"].astype(np.int64)
        return np.where(number > _MOST_SECTIONS, 0, number) if self.symbols.dtype == _SYMBOL else number

    @functools.cached_property
    def _main_symbols(self) -> list[dict[str, Any]]:
        """The symbols without auxiliary entries, each with the first auxiliary entry as bytes, and its place."""
        found: list[dict[str, Any]] = []
        place, names = 0, self.symbols.dtype.names or ()
        rows, section_of = self.symbols.tolist(), self._section_of.tolist()
        while place < len(rows):
            row = dict(zip(names, rows[place], strict=True))
            more, row["section"] = row["auxiliary"], section_of[place]
            if row["section"] > len(self.sections):
                raise damage_error(self.where, f"symbols in {len(self.sections)} sections", f"in {row['section']}")
            row["more"] = self.symbols[place + 1].tobytes() if more and place + 1 < len(rows) else b""
            row["place"] = place
            found.append(row)
            place += 1 + more
        return found

    def _comdats(self) -> tuple[Ints, dict[int, int], tuple[str, ...]]:
        """The signature of each section [N] or -1, the section with which each is associated, and all signatures."""
        comdat = (self.sections["flags"] & _COMDAT) != 0
        selection, parent = dict[int, int](), dict[int, int]()
        names: dict[int, str] = {}
        for symbol in self._main_symbols:
            section = symbol["section"] - 1
            if section < 0 or not comdat[section]:
                continue
            if section not in selection and symbol["storage"] == _STATIC and symbol["more"]:
                # The auxiliary entry of a section: its length, relocations, lines, checksum, number, selection.
                high = symbol["more"][16:18] if self.symbols.dtype == _BIG_SYMBOL else b""
                number = int.from_bytes(symbol["more"][12:14] + high, "little")
                selection[section] = symbol["more"][14]
                if selection[section] == _ASSOCIATIVE:
                    parent[section] = number - 1
            elif section in selection:
                names.setdefault(section, self._text(symbol["name"]))
        parent |= self._associated_by_name(selection)
        signature: dict[int, int] = {}
        signatures: list[str] = []
        for section, kind in selection.items():
            if kind not in (_NO_DUPLICATES, _ASSOCIATIVE) and section not in parent:
                signature[section] = len(signatures)
                signatures.append(names.get(section, self.names[section]))
        group = np.full(len(self.sections), -1, np.int64)
        for section in selection:
            place, steps = section, 0
            while place in parent and steps <= len(parent):
                place, steps = parent[place], steps + 1
            group[section] = signature.get(place, -1)
        return group, parent, tuple(signatures)

    def _associated_by_name(self, comdats: Collection[int]) -> dict[int, int]:
        """The code of each unwind table of MinGW's, for which GNU's linker goes by the rest of the name."""
        code = {name.removeprefix(".text$"): index for index, name in enumerate(self.names) if index in comdats}
        rests = {index: self.names[index].partition("$") for index in comdats}
        return {
            index: code[rest]
            for index, (begin, _, rest) in rests.items()
            if begin in (".pdata", ".xdata") and rest in code
        }

    def _functions(self) -> Functions:
        """The functions; where there is no COMDAT, labels of other things in code are not told from functions."""
        starts: list[tuple[int, int, bool, str]] = []
        for symbol in self._main_symbols:
            section = symbol["section"] - 1
            if section >= 0 and self._kinds[section] == TEXT and symbol["type"] == _FUNCTION_TYPE:
                begin = symbol["value"]
                if begin < self._sizes[section]:
                    starts.append((section, begin, symbol["storage"] != _EXTERNAL, self._text(symbol["name"])))
        return functions_until_next(starts, self._sizes)

    def _frames(self, functions: Functions, xdata: npt.NDArray[np.bool_]) -> Frames:
        """The entries of ``.pdata``: where a function begins and, last, its place in ``.xdata``, by relocations."""
        entry = _ENTRY.get(self.machine)
        if entry is None:
            return no_frames()
        tables: list[tuple[Ints, ...]] = []
        value, place_of = self.symbols["value"].astype(np.int64), self._section_of - 1
        for table in np.flatnonzero(self._kinds == EH_FRAME).tolist():
            count = int(self._sizes[table]) // entry
            begins, unwinds = np.full((count, 2), -1, np.int64), np.full((count, 2), -1, np.int64)
            contents = self._contents(table)
            for address, symbol, _ in self._relocations(table).tolist():
                row = address // entry
                if row >= count or symbol >= len(self.symbols):
                    raise damage_error(self.where, f"relocations of {count} entries", f"one at byte {address}")
                added = int.from_bytes(contents[address : address + 4], "little")
                target = (int(place_of[symbol]), int(value[symbol]) + added)
                if address % entry == 0:
                    begins[row] = target
                elif address % entry == entry - 4:
                    unwinds[row] = target
            function = functions.at(begins[:, 0], begins[:, 1])
            has_table = (unwinds[:, 0] >= 0) & (function >= 0)
            has_table[has_table] = xdata[unwinds[has_table, 0]]
            unwinds[~has_table] = -1
            places, sizes = np.full(count, table, np.int64), np.full(count, entry, np.int64)
            tables.append((places, sizes, begins[:, 0], function, unwinds[:, 0], unwinds[:, 1]))
        return frames_of(tables)

    def _contents(self, section: int) -> bytes:
        begin, size = int(self.sections["offset"][section]), int(self.sections["size"][section])
        return self.data[begin : begin + size]

    def _relocations(self, section: int) -> Table:
        row = self.sections[section]
        count, begin = int(row["relocation_count"]), int(row["relocations"])
        if count == 0xFFFF and int(row["flags"]) & _MANY_RELOCATIONS:
            # The first entry has the number of all, itself included.
            count = int(_table(self.data, self.where, _RELOCATION, begin, 1)["address"][0])
            return _table(self.data, self.where, _RELOCATION, begin, count)[1:]
        return _table(self.data, self.where, _RELOCATION, begin, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """The header of a file.

    Attributes:
        machine: its processor, as two bytes.
        sections: place of the section table.
        count: number of sections.
        table: place of the symbol table; 0 for none.
        symbols: number of its entries.
        symbol: what an entry is made of.
        base: where an image is loaded.
    """

    machine: bytes
    sections: int
    count: int
    table: int
    symbols: int
    symbol: np.dtype[Any] = _SYMBOL
    base: int = 0


def _table(data: bytes, where: str, dtype: np.dtype[Any], begin: int, count: int) -> Table:
    if begin + count * dtype.itemsize > len(data):
        raise damage_error(
            where, f"a table of {count * dtype.itemsize} bytes at {begin}", f"a file of {len(data)} bytes"
        )
    return np.frombuffer(data, dtype, count, begin) if count else np.empty(0, dtype)


def read_coff(data: bytes, where: str) -> CoffObject:
    """Read the tables of a COFF object or a PE image.

    Raises:
        InputError: it is damaged, or an MS-DOS program.
    """
    if data.startswith(COFF_BIG_OBJECT):
        header = _read_big_header(data, where)
    else:
        header = _read_header(
            data, where, int.from_bytes(data[60:64], "little") + 4 if data.startswith(COFF_IMAGE) else 0
        )
    sections = _table(data, where, _SECTION, header.sections, header.count)
    kept = (sections["flags"] & _ZERO) == 0
    outside = kept & (sections["offset"].astype(np.int64) + sections["size"] > len(data))
    if outside.any():
        raise damage_error(
            f"{where}: section {int(np.flatnonzero(outside)[0])}",
            f"contents within {len(data)} bytes",
            "some beyond them",
        )
    strings = b""
    if header.table:
        place = header.table + header.symbols * header.symbol.itemsize
        strings = data[place : place + int.from_bytes(data[place : place + 4], "little")]
    return CoffObject(
        where=where,
        data=data,
        is_object=not data.startswith(COFF_IMAGE),
        machine=header.machine,
        base=header.base,
        sections=sections,
        symbols=_table(data, where, header.symbol, header.table, header.symbols if header.table else 0),
        strings=strings,
    )


def _read_header(data: bytes, where: str, begin: int) -> _Header:
    """Read the header of an object, or of an image, where it is behind the header of MS-DOS."""
    if begin and data[begin - 4 : begin] != b"PE\0\0":
        raise InputError(f"{where}: expected a program for Windows, found one for MS-DOS; give another file")
    header = data[begin : begin + _HEADER]
    if len(header) < _HEADER:
        raise damage_error(where, f"a COFF header of {_HEADER} bytes at {begin}", f"{len(header)}")
    count, table, symbols, optional = (
        int.from_bytes(header[first:last], "little") for first, last in ((2, 4), (8, 12), (12, 16), (16, 18))
    )
    more = data[begin + _HEADER : begin + _HEADER + optional] if begin else b""
    base, size = _IMAGE_BASE.get(more[:2], (0, 0))
    return _Header(
        machine=header[:2],
        sections=begin + _HEADER + optional,
        count=count,
        table=table,
        symbols=symbols,
        base=int.from_bytes(more[base : base + size], "little"),
    )


def _read_big_header(data: bytes, where: str) -> _Header:
    """Read the header of an object whose sections have numbers of 32 bits."""
    header = data[:_BIG_HEADER]
    if len(header) < _BIG_HEADER or header[12:28] != _BIG_CLASS:
        raise InputError(
            f"{where}: expected a COFF object, found what begins like one with many sections and is none, such as "
            "an object of Microsoft's /GL; give an object as clang -c writes it"
        )
    count, table, symbols = (int.from_bytes(header[place : place + 4], "little") for place in (44, 48, 52))
    return _Header(
        machine=header[6:8], sections=_BIG_HEADER, count=count, table=table, symbols=symbols, symbol=_BIG_SYMBOL
    )


def _base64(text: str) -> int:
    """The number of six digits of base 64, the highest first."""
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return functools.reduce(lambda value, digit: value * 64 + digits.index(digit), text, 0)
