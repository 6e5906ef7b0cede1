"""Parser of ``.eh_frame`` as LLVM writes it: one CIE for each personality, FDEs in order, padding after the last FDE.

Formats: LSB core specification, "Exception Frames"; call frame instructions: DWARF 5, section 6.4.2 and 7.24.
"""

from dataclasses import dataclass

import numpy as np

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.elf import Elf, Symbols
from mlgokit.compiler.objects.ownership import Functions, read_frames

_FOUR_BYTES = (0x03, 0x0B)
"""``DW_EH_PE_udata4`` and ``_sdata4``."""
_NO_OPERAND = (0x0A, 0x0B, 0x2D)
_ONE_NUMBER = (0x06, 0x07, 0x08, 0x0D, 0x0E, 0x13, 0x2E)
_TWO_NUMBERS = (0x05, 0x09, 0x0C, 0x11, 0x12, 0x14, 0x15)
_ADVANCE = {0x02: 1, 0x03: 2, 0x04: 4}
_BLOCK, _NUMBER_AND_BLOCK = (0x0F,), (0x10, 0x16)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTable:
    """The D FDEs of an object.

    Attributes:
        cies: size of the CIE of each personality, by its symbol; an empty name for none.
        function: [D] index of the function that each FDE describes.
        size: [D] bytes of each FDE, without the padding of the last one.
        personality: [D] personality in the FDE's CIE.
    """

    cies: dict[str, int]
    function: list[int]
    size: list[int]
    personality: list[str]


def read_frame_table(elf: Elf, symbols: Symbols, code: Functions) -> FrameTable | str:
    """Read the unwind table of an x86-64 object, or return in which way it is not as LLVM writes it.

    Raises:
        InputError: an entry or a relocation reaches beyond the table.
    """
    tables = [index for index, name in enumerate(elf.names) if name == ".eh_frame"]
    if not tables:
        return FrameTable(cies={}, function=[], size=[], personality=[])
    if len(tables) > 1:
        return "it has several unwind tables"
    frames = read_frames(elf, symbols, np.array(tables), code, np.zeros(len(elf.names), bool))
    begin, size = int(elf.sections["offset"][tables[0]]), int(elf.sections["size"][tables[0]])
    entries = _entries(elf.data[begin : begin + size], _personalities(elf, symbols, tables[0]))
    if entries is None:
        return "its unwind table has several descriptions for one personality, or is not in the usual form"
    cies, sizes, personality, padding = entries
    whole = sum(sizes) + sum(cies.values())
    if (
        len(sizes) != len(frames.function)
        or (frames.function < 0).any()
        or whole + padding != size
        or -whole % 8 != padding
    ):
        return "its unwind table has entries for what is no function, or is padded in another way"
    return FrameTable(cies=cies, function=frames.function.tolist(), size=sizes, personality=personality)


def _entries(contents: bytes, names: dict[int, str]) -> tuple[dict[str, int], list[int], list[str], int] | None:
    """Return the sizes of CIEs by personality, the sizes and personalities of FDEs, and the padding of the last one."""
    cies: dict[str, int] = {}
    by_place: dict[int, str] = {}
    sizes: list[int] = []
    personality: list[str] = []
    position = 0
    while position + 20 <= len(contents):
        end = position + 4 + int.from_bytes(contents[position : position + 4], "little")
        back = int.from_bytes(contents[position + 4 : position + 8], "little")
        if back == 0:
            name = next((names[offset] for offset in range(position, end) if offset in names), "")
            if name in cies or not _is_usual(contents[position + 8 : end]):
                return None
            cies[name], by_place[position] = end - position, name
        elif position + 4 - back in by_place:
            sizes.append(end - position)
            personality.append(by_place[position + 4 - back])
        else:
            return None
        position = end
    if not sizes:
        return cies, sizes, personality, 0
    used = _used_bytes(contents[position - sizes[-1] : position])
    if used is None:
        return None
    padding, sizes[-1] = sizes[-1] - used, used
    return cies, sizes, personality, padding


def _personalities(elf: Elf, symbols: Symbols, table: int) -> dict[int, str]:
    """Find the personality symbols, by offset of their relocation."""
    personalities: dict[int, str] = {}
    for source in e.relocation_sections(elf, table):
        relocations = e.read_relocations(elf, source, symbols)
        name = symbols.table["name"][relocations["symbol"]]
        for at, offset in zip(relocations["offset"].tolist(), name.tolist(), strict=True):
            personalities[at] = e.text_at(symbols.strings, offset)
    return personalities


def _is_usual(cie: bytes) -> bool:
    """Whether a CIE, given from its version field on, declares FDEs with 4-byte addresses."""
    text, _, rest = cie[1:].partition(b"\0")
    if cie[:1] != b"\x01" or text not in (b"zR", b"zPLR") or len(rest) < 4:
        return False
    augmentation = rest[4 : 4 + rest[3]]
    return len(augmentation) in (1, 7) and augmentation[-1] & 0x0F in _FOUR_BYTES


def _used_bytes(entry: bytes) -> int | None:
    """Size of an FDE without padding, rounded up to four; ``None`` if it has an unknown instruction."""
    position = 17 + entry[16]
    last = position
    while position < len(entry):
        opcode = entry[position]
        position += 1
        if opcode == 0:
            continue
        if opcode >> 6 == 2:
            position = _skip(entry, position)
        elif opcode >> 6 == 0 and opcode in _ADVANCE:
            position += _ADVANCE[opcode]
        elif opcode >> 6 == 0 and opcode in _ONE_NUMBER:
            position = _skip(entry, position)
        elif opcode >> 6 == 0 and opcode in _TWO_NUMBERS:
            position = _skip(entry, _skip(entry, position))
        elif opcode in _BLOCK or opcode in _NUMBER_AND_BLOCK:
            position = _skip(entry, position) if opcode in _NUMBER_AND_BLOCK else position
            position += 1 + (entry[position] if position < len(entry) else 0)
        elif opcode >> 6 == 0 and opcode not in _NO_OPERAND:
            return None
        last = position
    return -(-last // 4) * 4 if last <= len(entry) else None


def _skip(data: bytes, position: int) -> int:
    """Offset of the byte after the LEB128 number at ``position``."""
    while position < len(data) and data[position] & 0x80:
        position += 1
    return position + 1
