"""Which compilation unit bytes come from, as DWARF tells it; read by the user's ``llvm-dwarfdump``.

Only the first entry of each unit is read: its name, and the ranges of its code. Of an object that has one unit, all
bytes that are loaded are the unit's.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.errors import MlgokitError
from mlgokit.sizes.binary import Binary, Layer, make_layer, signed

_INFO = (".debug_info", "__debug_info", ".zdebug_info")
RANGE = re.compile(r"\s*\[(0x[0-9a-f]+), (0x[0-9a-f]+)\)\)*")
_ATTRIBUTE = re.compile(r'\s+(DW_AT_\w+)\s+\((?:"(.*)"|(.*))\)')
_SPLIT = ("DW_AT_dwo_name", "DW_AT_GNU_dwo_name")
"""With ``-gsplit-dwarf`` the name of the source is in another file, of which the unit has the name."""
_RUST_UNIT = re.compile(r"/@/.*$")


@dataclass(slots=True, kw_only=True)
class Unit:
    """A compilation unit: the member that it is in, its source, and the ranges of its code."""

    member: str
    name: str = ""
    ranges: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    low: int | None = None


def read_sources(path: Path, binary: Binary) -> tuple[Layer, tuple[str, ...]]:
    """The compilation units of a file as owners of its bytes, and sentences about what is not known of them."""
    if not any(one.name in _INFO for one in binary.sections):
        return Layer(), ("No debug information, so sources are not known: compile with -g to have them.",)
    # What starts processes takes longer to import than a small file takes to read.
    from mlgokit.compiler.llvm_tools import member_of_line, run_llvm_tool

    try:
        text = run_llvm_tool("llvm-dwarfdump", "--debug-info", "--recurse-depth=0", file=path)
    except MlgokitError as error:
        return Layer(), (f"Sources are not known: {error}.",)
    units = _units((line, member_of_line(line, path)) for line in text.splitlines())
    found = (_by_address if binary.is_linked else _by_member)(binary, [unit for unit in units if unit.name])
    return found, () if found.owners else ("Sources are not known: the debug information names none for this code.",)


def _units(lines: Iterable[tuple[str, str | None]]) -> list[Unit]:
    """The compilation units in what ``llvm-dwarfdump`` prints; with each line the member that begins there."""
    units: list[Unit] = []
    member = ""
    is_inside = False
    for line, begun in lines:
        if "DW_TAG_" in line:
            is_inside = "DW_TAG_compile_unit" in line or "DW_TAG_skeleton_unit" in line
            if is_inside:
                units.append(Unit(member=member))
        elif begun is not None:
            member, is_inside = begun, False
        elif is_inside:
            _read_attribute(units[-1], line)
    return units


def _read_attribute(unit: Unit, line: str) -> None:
    if found := RANGE.match(line):
        unit.ranges.append((int(found[1], 16), int(found[2], 16)))
    elif found := _ATTRIBUTE.match(line):
        name, words, value = found.groups()
        if name == "DW_AT_name":
            unit.name = _RUST_UNIT.sub("", words or "")
        elif name in _SPLIT:
            unit.name = unit.name or words or ""
        elif name == "DW_AT_low_pc" and value:
            unit.low = int(value.split()[0], 16)
        elif name == "DW_AT_high_pc" and value and unit.low is not None:
            unit.ranges.append((unit.low, int(value.split()[0], 16)))


def _by_address(binary: Binary, units: list[Unit]) -> Layer:
    address = binary.addresses
    limit = address + np.array([one.memory_bytes for one in binary.sections], np.int64)
    loaded = np.flatnonzero((limit > address) & np.array([one.is_code for one in binary.sections]))
    ranges = [(unit.name, begin, end) for unit in units for begin, end in unit.ranges if end > begin]
    if not ranges or not len(loaded):
        return Layer()
    begin, end = signed(begin for _, begin, _ in ranges), signed(end for _, _, end in ranges)
    section = binary.sections_at(begin, loaded)
    # The linker sets the addresses of code that it removed to 0 or to the end of all addresses.
    kept = np.flatnonzero((begin >= address[section]) & (begin < limit[section]))
    section, begin, end = section[kept], begin[kept], end[kept]
    names = [(ranges[one][0],) for one in kept.tolist()]
    return make_layer(names, section, begin - address[section], end - address[section], binary.sections)


def _by_member(binary: Binary, units: list[Unit]) -> Layer:
    """Objects that have one unit each."""
    sources: dict[str, set[str]] = {}
    for unit in units:
        sources.setdefault(unit.member, set()).add(unit.name)
    single = {member: next(iter(names)) for member, names in sources.items() if len(names) == 1}
    sections = [index for index, one in enumerate(binary.sections) if one.memory_bytes and one.member in single]
    chosen = np.array(sections, np.int64)
    return make_layer(
        [(single[binary.sections[index].member],) for index in sections],
        chosen,
        np.zeros(len(sections), np.int64),
        np.array([binary.sections[index].extent for index in sections], np.int64),
        binary.sections,
    )
