"""COFF, Mach-O and wasm files as sections and symbols, read by the user's ``llvm-readobj`` and ``llvm-nm``.

COFF and Mach-O have no sizes of symbols: a symbol ends where the next one in its section begins.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler.llvm_tools import run_llvm_tool
from mlgokit.errors import InputError
from mlgokit.sizes.binary import Binary, Layer, Outside, Section, make_layer, outside_of

_OPENS = re.compile(r"\s*(\w+) ([\[{])(?: \(0x[0-9A-Fa-f]+\))?")
_FORMAT = re.compile(r"(COFF|Mach-O|WASM)")
_HEX_OF_NAME = re.compile(r" \((?:[0-9A-F]{2}(?: |(?=\))))+\)$")
_NUMBER_BEHIND = re.compile(r" \((-?(?:0x[0-9A-Fa-f]+|\d+))\)$")
_LINE_TABLE_LABEL = re.compile(r"ltmp\d+")
"""What the assembler for Mach-O puts at the begin of each section."""
_BETWEEN = "headers, symbol tables and between sections"
_MEM_DISCARDABLE, _LNK_REMOVE = "IMAGE_SCN_MEM_DISCARDABLE", "IMAGE_SCN_LNK_REMOVE"
_UNINITIALIZED, _EXECUTES = "IMAGE_SCN_CNT_UNINITIALIZED_DATA", "IMAGE_SCN_MEM_EXECUTE"

Parts = list[tuple[tuple[str, ...], int, int, int]]
"""Names, section, begin and end of each symbol."""


@dataclass(slots=True, kw_only=True)
class Node:
    """One block that ``llvm-readobj`` prints.

    Attributes:
        values: what stands before and behind a colon.
        words: lines without a colon, and names of flags.
        blocks: the blocks inside, with their heads.
    """

    values: dict[str, str] = field(default_factory=dict[str, str])
    words: set[str] = field(default_factory=set[str])
    blocks: list[tuple[str, "Node"]] = field(default_factory=list["tuple[str, Node]"])

    def all(self, head: str) -> Iterator["Node"]:
        """The blocks inside with this head."""
        return (node for name, node in self.blocks if name == head)

    def number(self, name: str) -> int:
        """A value as a number, decimal or hexadecimal; 0 if it is not there."""
        return int(self.values.get(name, "0").split()[0], 0)

    def has_flag(self, flag: str) -> bool:
        """Whether a flag is among those of the section."""
        return any(word.split()[0] == flag for _, block in self.blocks for word in block.words if word)


def parse_blocks(text: str) -> Node:
    """The tree of what ``llvm-readobj`` prints."""
    top = Node()
    open_nodes = [top]
    for line in text.splitlines():
        if opened := _OPENS.fullmatch(line):
            node = Node()
            open_nodes[-1].blocks.append((opened[1], node))
            open_nodes.append(node)
        elif line.strip() in {"]", "}"}:
            if len(open_nodes) > 1:
                open_nodes.pop()
        else:
            name, colon, value = line.strip().partition(": ")
            if colon:
                open_nodes[-1].values.setdefault(name, value)
            else:
                open_nodes[-1].words.add(name)
    return top


def read_by_llvm(path: Path, data: bytes, where: str) -> Binary:
    """Read a COFF, Mach-O or wasm file.

    Args:
        path: a file with the data alone.
        data: its bytes.
        where: its name in messages.

    Raises:
        ToolError: there is no LLVM.
        InputError: it is damaged.
    """
    top = parse_blocks(run_llvm_tool("llvm-readobj", "--sections", "--symbols", path, where=where))
    found = _FORMAT.match(top.values.get("Format", ""))
    if found is None:
        raise InputError(
            f"{where}: expected a single COFF, Mach-O or wasm file, found another; extract one object or "
            "architecture, and give that"
        )
    nodes = [node for group in top.all("Sections") for node in group.all("Section")]
    symbols = [node for group in top.all("Symbols") for node in group.all("Symbol")]
    arch = top.values.get("Arch", "")
    if found[1] == "COFF":
        return _coff(nodes, symbols, arch, data)
    if found[1] == "Mach-O":
        return _mach_o(nodes, symbols, arch, data)
    return _wasm(nodes, symbols, path, data)


def _binary(
    kind: str, sections: Sequence[Section], offsets: Sequence[int], parts: Parts, data: bytes, *, linked: bool
) -> Binary:
    sizes = [one.file_bytes for one in sections]
    own, rest = outside_of(len(data), list(zip(offsets, sizes, strict=True)))
    if own != sizes:
        raise InputError(
            f"{kind}: expected sections inside the file of {len(data)} bytes, found some outside; build the file again"
        )
    return Binary(
        kind=kind,
        is_linked=linked,
        sections=tuple(sections),
        symbols=_layer(parts, sections),
        outside=(Outside(name=_BETWEEN, file_bytes=rest),),
    )


def _layer(parts: Parts, sections: Sequence[Section]) -> Layer:
    columns = np.array([part[1:] for part in parts], np.int64).reshape(-1, 3).T
    return make_layer([part[0] for part in parts], columns[0], columns[1], columns[2], sections)


def _coff(nodes: Sequence[Node], symbols: Sequence[Node], arch: str, data: bytes) -> Binary:
    is_image = data[:2] == b"MZ"
    sections: list[Section] = []
    for node in nodes:
        raw, virtual = node.number("RawDataSize"), node.number("VirtualSize")
        is_loaded = is_image or not (node.has_flag(_MEM_DISCARDABLE) or node.has_flag(_LNK_REMOVE))
        has_bytes = node.number("PointerToRawData") and not (node.has_flag(_UNINITIALIZED) and not is_image)
        sections.append(
            Section(
                name=_HEX_OF_NAME.sub("", node.values.get("Name", "")),
                address=node.number("VirtualAddress"),
                size=min(raw, virtual) if is_image else raw,
                file_bytes=raw if has_bytes else 0,
                memory_bytes=(virtual if is_image else raw) if is_loaded else 0,
                is_code=node.has_flag(_EXECUTES),
            )
        )
    starts: list[tuple[str, int, int]] = []
    for node in symbols:
        place = _NUMBER_BEHIND.search(node.values.get("Section", ""))
        if place is not None and int(place[1], 0) > 0 and not any(node.all("AuxSectionDef")):
            starts.append((node.values.get("Name", ""), int(place[1], 0) - 1, node.number("Value")))
    offsets = [node.number("PointerToRawData") for node in nodes]
    role = "program or library" if is_image else "object"
    return _binary(f"COFF {arch} {role}", sections, offsets, _until_next(starts, sections), data, linked=is_image)


def _mach_o(nodes: Sequence[Node], symbols: Sequence[Node], arch: str, data: bytes) -> Binary:
    sections: list[Section] = []
    for node in nodes:
        size = node.number("Size")
        is_debug = node.values.get("Segment", "").startswith("__DWARF")
        sections.append(
            Section(
                name=_HEX_OF_NAME.sub("", node.values.get("Name", "")),
                address=node.number("Address"),
                size=size,
                file_bytes=0 if "ZeroFill" in node.values.get("Type", "") else size,
                memory_bytes=0 if is_debug else size,
                is_code=node.has_flag("PureInstructions"),
            )
        )
    starts: list[tuple[str, int, int]] = []
    for node in symbols:
        name = _NUMBER_BEHIND.sub("", node.values.get("Name", ""))
        place = _NUMBER_BEHIND.search(node.values.get("Section", ""))
        is_defined = node.values.get("Type", "").startswith("Section ") and place is not None
        if is_defined and place is not None and not _LINE_TABLE_LABEL.fullmatch(name):
            section = int(place[1], 0) - 1
            if 0 <= section < len(sections):
                starts.append((name, section, node.number("Value") - sections[section].address))
    is_object = int.from_bytes(data[12:16], "little") == 1
    offsets = [node.number("Offset") for node in nodes]
    role = "object" if is_object else "program or library"
    return _binary(
        f"Mach-O {arch} {role}", sections, offsets, _until_next(starts, sections), data, linked=not is_object
    )


def _until_next(starts: Sequence[tuple[str, int, int]], sections: Sequence[Section]) -> Parts:
    """Symbols that each end where the next one in their section begins."""
    names: dict[tuple[int, int], list[str]] = {}
    for name, section, begin in starts:
        if section < len(sections) and begin < sections[section].extent:
            names.setdefault((section, begin), []).append(name)
    keys = sorted(names)
    parts: Parts = []
    for one, (section, begin) in enumerate(keys):
        after = keys[one + 1] if one + 1 < len(keys) else (-1, 0)
        end = after[1] if after[0] == section else sections[section].memory_bytes or sections[section].extent
        parts.append((tuple(names[section, begin]), section, begin, end))
    return parts


def _wasm(nodes: Sequence[Node], symbols: Sequence[Node], path: Path, data: bytes) -> Binary:
    sections: list[Section] = []
    for node in nodes:
        kind = node.values.get("Type", "").split()[0]
        size = node.number("Size")
        sections.append(
            Section(
                name=node.values.get("Name", kind) if kind == "CUSTOM" else kind,
                address=0,
                size=size,
                file_bytes=size,
                memory_bytes=0 if kind == "CUSTOM" else size,
                is_code=kind == "CODE",
            )
        )
    offsets = [node.number("Offset") for node in nodes]
    index = {section.name: number for number, section in enumerate(sections)}
    is_object = "linking" in index
    parts: Parts = []
    if (code := index.get("CODE")) is not None:
        functions = {node.values.get("Name", "") for node in symbols if node.values.get("Type", "")[:8] == "FUNCTION"}
        base = 0 if is_object else offsets[code]
        parts += [
            ((name,), code, begin - base, begin - base + size)
            for name, begin, size in _sized_by_nm(path)
            if name in functions and size
        ]
    if (held := index.get("DATA")) is not None:
        contents = data[offsets[held] : offsets[held] + sections[held].size]
        places = _segment_places(contents, [node.number("Size") for node in _segments(nodes[held])])
        for node in symbols:
            segment, begin, size = (node.number(name) for name in ("Segment", "Offset", "Size"))
            if node.values.get("Type", "")[:4] == "DATA" and size and segment < len(places):
                first = places[segment] + begin
                parts.append(((node.values.get("Name", ""),), held, first, first + size))
    return _binary(f"wasm {'object' if is_object else 'program'}", sections, offsets, parts, data, linked=not is_object)


def _segments(node: Node) -> list[Node]:
    return [segment for group in node.all("Segments") for segment in group.all("Segment")]


def _sized_by_nm(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, begin and size of the symbols of a wasm file."""
    for line in run_llvm_tool("llvm-nm", "--format=posix", path, where=str(path)).splitlines():
        words = line.rsplit(" ", 3)
        if len(words) == 4 and words[3]:
            yield words[0], int(words[2] or "0", 16), int(words[3], 16)


def _segment_places(contents: bytes, sizes: Sequence[int]) -> list[int]:
    """Where the bytes of each data segment begin in the section; empty if that cannot be told.

    A segment is its kind, where it goes (an expression that ends in 0x0b), its size and its bytes.
    """
    places: list[int] = []
    position = _skip_number(contents, 0)
    for size in sizes:
        kind = contents[position : position + 1]
        position += 1
        if kind == b"\2":
            position = _skip_number(contents, position)
        if kind != b"\1":
            while contents[position : position + 1] not in {b"\x0b", b""}:
                takes_number = contents[position] in b"\x41\x42\x23"
                position += 1
                if takes_number:
                    position = _skip_number(contents, position)
            position += 1
        position = _skip_number(contents, position)
        places.append(position)
        position += size
    return places if position == len(contents) else []


def _skip_number(contents: bytes, position: int) -> int:
    """Behind a LEB128 number."""
    while contents[position : position + 1] and contents[position] & 0x80:
        position += 1
    return position + 1
