"""Object files made by hand: what a reader of sections needs, and nothing else."""

import struct
from collections.abc import Mapping

ELF_MAGIC = b"\x7fELF"


def make_elf(sections: Mapping[str, bytes], *, word: int = 8, order: str = "little") -> bytes:
    r"""A relocatable ELF file of 4 or 8 bytes a word, whose sections have these contents.

    Example:
        >>> make_elf({".llvmbc": b"U"})[:5]
        b'\x7fELF\x02'
    """
    mark = "<" if order == "little" else ">"
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    header_size, entry_size = (64, 64) if word == 8 else (52, 40)
    offset = header_size
    body = b""
    entries = [(0, 0, 0, 0)]
    place = 1
    for name, contents in (*sections.items(), (".shstrtab", names)):
        entries.append((place, 3 if name == ".shstrtab" else 1, offset + len(body), len(contents)))
        body += contents
        place += len(name.encode()) + 1
    letters = "QQQ" if word == 8 else "III"
    header = ELF_MAGIC + bytes([word // 4, 1 if order == "little" else 2, 1]) + bytes(9)
    header += struct.pack(
        f"{mark}HHI{letters}IHHHHHH",
        1, 62, 1, 0, 0, header_size + len(body), 0, header_size, 0, 0, entry_size, len(entries), len(entries) - 1,
    )  # fmt: skip
    if word == 8:
        table = [
            struct.pack(f"{mark}IIQQQQIIQQ", at, kind, 0, 0, where, size, 0, 0, 1, 0)
            for at, kind, where, size in entries
        ]
    else:
        table = [
            struct.pack(f"{mark}10I", at, kind, 0, 0, where, size, 0, 0, 1, 0) for at, kind, where, size in entries
        ]
    return header + body + b"".join(table)


def make_mach_o(sections: Mapping[str, bytes], *, word: int = 8, order: str = "little") -> bytes:
    """A Mach-O object whose sections, named ``segment,section``, have these contents."""
    mark = "<" if order == "little" else ">"
    magic, kind, header = (0xFEEDFACF, 0x19, 32) if word == 8 else (0xFEEDFACE, 0x1, 28)
    segment_size, entry_size = (72, 80) if word == 8 else (56, 68)
    length = segment_size + entry_size * len(sections)
    offset = header + length
    entries, body = b"", b""
    for name, contents in sections.items():
        segment, _, section = name.partition(",")
        form = "16s16sQQ8I" if word == 8 else "16s16sII7I"
        rest = (0,) * (6 if word == 8 else 5)
        entries += struct.pack(
            mark + form, section.encode(), segment.encode(), 0, len(contents), offset + len(body), 0, *rest
        )
        body += contents
    form = "II16sQQQQIIII" if word == 8 else "II16s8I"
    command = struct.pack(mark + form, kind, length, b"", 0, len(body), offset, len(body), 7, 7, len(sections), 0)
    head = struct.pack(mark + ("8I" if word == 8 else "7I"), magic, 0, 0, 1, 1, length, 0, *((0,) if word == 8 else ()))
    return head + command + entries + body


def make_coff(sections: Mapping[str, bytes], *, big: bool = False) -> bytes:
    """A COFF object for x86-64, in the plain or in the ``/bigobj`` form, with long names in its string table."""
    header = 56 if big else 20
    offset = header + 40 * len(sections)
    strings, entries, body = b"", b"", b""
    for name, contents in sections.items():
        field = name.encode()
        if len(field) > 8:
            strings += field + b"\0"
            field = f"/{4 + len(strings) - len(field) - 1}".encode()
        entries += struct.pack("<8s6I2HI", field, 0, 0, len(contents), offset + len(body), 0, 0, 0, 0, 0)
        body += contents
    symbols = offset + len(body)
    if big:
        head = struct.pack("<4H I16s 4I 3I", 0, 0xFFFF, 2, 0x8664, 0, bytes(16), 0, 0, 0, 0, len(sections), symbols, 0)
    else:
        head = struct.pack("<2H3I2H", 0x8664, len(sections), 0, symbols, 0, 0, 0)
    return head + entries + body + struct.pack("<I", 4 + len(strings)) + strings
