"""Which object or archive member bytes come from, as a linker's map tells it: that of lld, or of GNU ld and gold."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mlgokit.compiler.objects.object_file import LARGEST_SECTION
from mlgokit.errors import InputError
from mlgokit.files import read_bounded
from mlgokit.sizes.binary import Binary, Layer, make_layer

LARGEST_MAP = 1 << 30
_LLD_HEAD = re.compile(r"\s*VMA\s+LMA\s+Size\s+Align\s+Out\s+In\s+Symbol")
_LLD_LINE = re.compile(r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+ ( *)(\S.*)")
_LLD_INPUT = re.compile(r"(.+):\(([^()]*)\)")
_GNU_HEAD = "Linker script and memory map"
_GNU_GOLD_HEAD = "Memory map"
_GNU_OUTPUT = re.compile(r"([._A-Za-z][^\s*]*)(?:\s+0x[0-9a-f]+\s+0x[0-9a-f]+.*)?")
_GNU_INPUT = re.compile(r" +(?:[^\s0*][^\s]*)?\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+(\S.*)")

Contribution = tuple[str, int, int, str]
"""Section of the output, address, size, and the file that the bytes are of."""


def read_map(path: Path, binary: Binary) -> Layer:
    """The files of a link as owners of a program's bytes.

    Raises:
        InputError: it is no map, or the map of another program.
    """
    remedy = "have the linker write it with -Wl,-Map=FILE"
    try:
        text = read_bounded(path, LARGEST_MAP).decode("utf-8", "backslashreplace")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected a linker's map, found: {error}; {remedy}") from error
    lines = text.splitlines()
    if lines and _LLD_HEAD.match(lines[0]):
        found = list(_lld(lines))
    elif (
        start := next((at for at, line in enumerate(lines) if line in {_GNU_HEAD, _GNU_GOLD_HEAD}), None)
    ) is not None:
        found = list(_gnu(lines[start + 1 :]))
    else:
        raise InputError(f"{path}: expected a map of lld, GNU ld or gold, found another file; {remedy}")
    index = {one.name: place for place, one in enumerate(binary.sections)}
    chosen: list[tuple[int, int, int, str]] = []
    for output, address, size, file in found:
        section = index.get(output)
        if section is None:
            continue
        begin = address - binary.sections[section].address
        if begin >= 0 and begin + size <= binary.sections[section].extent:
            chosen.append((section, begin, size, file))
    if not chosen:
        raise InputError(f"{path}: expected the map of this program, found that of another; {remedy}")
    section, begin, size = (np.array([one[column] for one in chosen], np.int64) for column in range(3))
    names = [(one[3],) for one in chosen]
    return make_layer(names, section, begin, np.minimum(begin + size, LARGEST_SECTION), binary.sections)


def _lld(lines: list[str]) -> Iterator[Contribution]:
    output = ""
    for line in lines:
        found = _LLD_LINE.fullmatch(line)
        if found is None:
            continue
        margin, name = len(found[3]), found[4]
        if margin == 0:
            output = name
        elif margin == 8 and (file := _LLD_INPUT.fullmatch(name)):
            yield output, int(found[1], 16), int(found[2], 16), file[1]


def _gnu(lines: list[str]) -> Iterator[Contribution]:
    output, name = "", ""
    for line in lines:
        if line[:1] not in {" ", ""}:
            found = _GNU_OUTPUT.fullmatch(line.rstrip())
            output, name = (found[1] if found else ""), ""
        elif re.fullmatch(r" [^\s*]\S*", line):
            # A long name of an input section stands on a line of its own.
            name = line
        else:
            if found := _GNU_INPUT.fullmatch(name + line):
                size = int(found[2], 16)
                if size and output:
                    yield output, int(found[1], 16), size, found[3]
            name = ""
