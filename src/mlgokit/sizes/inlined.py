"""Into which functions a function was inlined, as DWARF tells it; read by the user's ``llvm-dwarfdump``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.llvm_tools import run_llvm_tool
from mlgokit.sizes.binary import Binary, signed
from mlgokit.sizes.dwarf import RANGE
from mlgokit.sizes.measure import symbols_at

_ENTRY = re.compile(r"0x[0-9a-f]+:( *)DW_TAG_(\w+)")
_ADDRESS = re.compile(r"\s+DW_AT_(low_pc|high_pc)\s+\((0x[0-9a-f]+)\)")
_NAME = re.compile(r'\s+DW_AT_(linkage_name|name|abstract_origin|specification)\s+\((?:0x[0-9a-f]+ )?"(.*)"\)')


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedCopies:
    """The copies of a function within another one.

    Attributes:
        into: the function that has them.
        copies: how many.
        bytes: of all of them together, what was inlined into them included.
    """

    into: str
    copies: int
    bytes: int


@dataclass(slots=True, kw_only=True)
class _Entry:
    tag: str
    depth: int
    name: str = ""
    low: int = 0
    begin: int = -1
    bytes: int = 0


def find_inlined(path: Path, binary: Binary, names: Sequence[str]) -> tuple[InlinedCopies, ...]:
    """Where functions of these names, mangled or not, were inlined; the most bytes first.

    Raises:
        ToolError: there is no LLVM, or it takes too long.
        InputError: it cannot read the file.
    """
    options = [f"--name={name}" for name in names]
    if not binary.is_linked:
        # Addresses of objects are those of their sections, so that only the entries around tell the function.
        options.append("--show-parents")
    text = run_llvm_tool("llvm-dwarfdump", *options, file=path)
    sums: dict[str, list[int]] = {}
    found = _copies(text.splitlines())
    hosts = symbols_at(binary, signed(copy.begin for copy, _ in found))[0] if binary.is_linked else None
    for place, (copy, around) in enumerate(found):
        if copy.bytes:
            host = hosts[place] or "no symbol" if hosts is not None else around
            one = sums.setdefault(host, [0, 0])
            one[0] += 1
            one[1] += copy.bytes
    copies = (InlinedCopies(into=host, copies=one[0], bytes=one[1]) for host, one in sums.items())
    return tuple(sorted(copies, key=lambda one: (-one.bytes, one.into)))


def _copies(lines: Sequence[str]) -> list[tuple[_Entry, str]]:
    """Inlined copies, each with the function around it; a parent that is printed again is the same entry."""
    around: list[_Entry] = []
    found: list[tuple[_Entry, list[_Entry]]] = []
    for line in lines:
        if head := _ENTRY.match(line):
            entry = _Entry(tag=head[2], depth=len(head[1]))
            around = [one for one in around if one.depth < entry.depth]
            if found and entry.tag == "inlined_subroutine" and found[-1][0] in around:
                # The copy before was a parent of this one.
                found.pop()
            around.append(entry)
            if entry.tag == "inlined_subroutine":
                found.append((entry, list(around)))
        elif around:
            _read_line(around[-1], line)
    return [
        (entry, next((one.name for one in reversed(parents) if one.tag == "subprogram"), ""))
        for entry, parents in found
    ]


def _read_line(entry: _Entry, line: str) -> None:
    if span := RANGE.match(line):
        begin, end = int(span[1], 16), int(span[2], 16)
        entry.begin = begin if entry.begin < 0 else entry.begin
        entry.bytes += end - begin
    elif address := _ADDRESS.match(line):
        if address[1] == "low_pc":
            entry.low = int(address[2], 16)
        else:
            entry.begin, entry.bytes = entry.low, int(address[2], 16) - entry.low
    elif (named := _NAME.match(line)) and (not entry.name or named[1] == "linkage_name"):
        entry.name = named[2]
