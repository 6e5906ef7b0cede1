"""Which bytes of an object belong to which function: its symbol, its FDEs in ``.eh_frame``, its exception table.

The unwind format is that of the LSB core specification, chapter "Exception Frames" (``.eh_frame``); on 32-bit ARM that
of "Exception Handling ABI for the Arm Architecture": an entry of ``.ARM.exidx`` is what an FDE is elsewhere, and its
entry of ``.ARM.extab``, if it has one, the exception table. Which function it describes and where that table lies is
read from the relocations, so it holds with one section per function and without.
"""

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.elf import Elf, Ints, Symbols
from mlgokit.compiler.objects.object_file import Frames, Functions, damage_error, frames_of

_INDEX_ENTRY = 8
"""Bytes for a function in ``.ARM.exidx``."""


def find_functions(elf: Elf, symbols: Symbols, executable: npt.NDArray[np.bool_]) -> Functions:
    """Find the defined functions, one for each address; one that overlaps the next is cut off at its start."""
    types = symbols.type
    chosen = np.flatnonzero(np.isin(types, e.FUNCTIONS) & (symbols.section >= 0))
    chosen = chosen[executable[symbols.section[chosen]]]
    table, section = symbols.table[chosen], symbols.section[chosen]
    limit = elf.sections["size"][section]
    outside = (table["value"] > limit) | (table["size"] > limit - np.minimum(table["value"], limit))
    if outside.any():
        name = e.text_at(symbols.strings, int(table["name"][outside][0]))
        raise damage_error(f"{elf.where}: symbol {name}", "a function within its section", "one that reaches beyond it")
    begin, size, limit = (column.astype(np.int64) for column in (table["value"], table["size"], limit))
    is_local = table["info"] >> 4 == e.STB_LOCAL
    order = np.lexsort((is_local, begin, section))
    section, begin, size, limit = section[order], begin[order], size[order], limit[order]
    offsets = table["name"][order].tolist()
    fresh = np.ones(len(order), bool)
    fresh[1:] = (section[1:] != section[:-1]) | (begin[1:] != begin[:-1])
    first = np.flatnonzero(fresh)
    if not len(first):
        nothing = np.empty(0, np.int64)
        return Functions(names=(), section=nothing, begin=nothing, size=nothing)
    names = [e.text_at(symbols.strings, offsets[index]) for index in first.tolist()]
    for function in np.flatnonzero(np.diff(np.append(first, len(order))) > 1).tolist():
        stop = first[function + 1] if function + 1 < len(first) else len(order)
        aliases = (e.text_at(symbols.strings, offset) for offset in offsets[first[function] : stop])
        suffix = elf.names[int(section[first[function]])]
        names[function] = next((name for name in aliases if suffix.endswith("." + name)), names[function])
    size, section, begin, limit = np.maximum.reduceat(size, first), section[first], begin[first], limit[first]
    last = np.append(section[1:] != section[:-1], True)
    end = np.where(last, limit, np.append(begin[1:], 0))
    alone = last & np.append(True, section[1:] != section[:-1]) & (begin == 0)
    size = np.where(alone, limit, np.minimum(size, end - begin))
    return Functions(names=tuple(names), section=section, begin=begin, size=size)


def read_frames(elf: Elf, symbols: Symbols, sections: Ints, code: Functions, excepts: npt.NDArray[np.bool_]) -> Frames:
    """Read the unwind tables; their relocations tell which function each FDE describes.

    An FDE's first relocation is its ``pc_begin``; a later one into an exception table is its LSDA pointer.

    Args:
        elf: the object.
        symbols: its symbols.
        sections: indices of its unwind tables.
        code: its functions.
        excepts: [N] whether a section holds exception tables.

    Raises:
        InputError: an entry or a relocation reaches beyond its table.
    """
    return frames_of(_read_frame_table(elf, symbols, index, code, excepts) for index in sections.tolist())


def _read_frame_table(
    elf: Elf, symbols: Symbols, index: int, code: Functions, excepts: npt.NDArray[np.bool_]
) -> tuple[Ints, ...]:
    """The columns of ``Frames`` for one unwind table."""
    starts, ends = _walk_frames(elf, index)
    count = len(starts)
    section, function, table_section = (np.full(count, -1, np.int64) for _ in range(3))
    table_begin = np.zeros(count, np.int64)
    for source in e.relocation_sections(elf, index):
        relocations = e.read_relocations(elf, source, symbols)
        relocations = relocations[relocations["type"] != e.R_NONE]
        relocations = relocations[np.argsort(relocations["offset"], kind="stable")]
        offset = np.minimum(relocations["offset"], e.LARGEST_SECTION).astype(np.int64)
        entry = np.searchsorted(starts, offset, side="right") - 1
        inside = entry >= 0
        inside[inside] = offset[inside] < ends[entry[inside]]
        entry, relocations = entry[inside], relocations[inside]
        target = symbols.section[relocations["symbol"]]
        value = symbols.table["value"][relocations["symbol"]].astype(np.int64)
        address = value + np.clip(relocations["addend"], -e.LARGEST_SECTION, e.LARGEST_SECTION)
        described, first = np.unique(entry, return_index=True)
        section[described] = target[first]
        function[described] = code.at(target[first], address[first])
        later = np.ones(len(entry), bool)
        later[first] = False
        later[later] = (target[later] >= 0) & excepts[target[later]]
        table_section[entry[later]] = target[later]
        table_begin[entry[later]] = address[later]
    table_section[function < 0] = -1
    return np.full(count, index, np.int64), ends - starts, section, function, table_section, table_begin


def _walk_frames(elf: Elf, index: int) -> tuple[Ints, Ints]:
    """Begin and end [D] of each FDE, without CIEs and the terminator."""
    begin, size = int(elf.sections["offset"][index]), int(elf.sections["size"][index])
    if elf.is_index_table(index):
        entries = np.arange(0, size - size % _INDEX_ENTRY, _INDEX_ENTRY)
        return entries, entries + _INDEX_ENTRY
    if elf.sections["type"][index] == e.SHT_NOBITS:
        size = 0
    contents = memoryview(elf.data)[begin : begin + size]
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    while position + 4 <= size:
        length, header = int.from_bytes(contents[position : position + 4], "little"), 4
        if length == 0xFFFFFFFF:
            length, header = int.from_bytes(contents[position + 4 : position + 12], "little"), 12
        if length == 0:
            break
        end = position + header + length
        if length < 4 or end > size:
            where = f"{elf.where}: .eh_frame"
            raise damage_error(where, f"entries within {size} bytes", f"one of {length} bytes at {position}")
        if int.from_bytes(contents[position + header : position + header + 4], "little"):
            starts.append(position)
            ends.append(end)
        position = end
    return np.array(starts, np.int64), np.array(ends, np.int64)
