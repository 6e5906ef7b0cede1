"""Maps of lld and of GNU ld say which object bytes come from."""

from pathlib import Path

import pytest

from mlgokit.compiler.objects.object_file import FileSection
from mlgokit.errors import InputError
from mlgokit.sizes.binary import Binary, Layer
from mlgokit.sizes.link_map import read_map

LLD = """\
             VMA              LMA     Size Align Out     In      Symbol
            1000             1000       40    16 .text
            1000             1000       10    16         lib/libfoo.a(bar.o):(.text.f)
            1000             1000       10     1                 f
            1010             1010       30    16         main.o:(.text)
            2000             2000        8     8 .data
            2000             2000        8     8         <internal>:(.data)
"""
GNU = """\
Archive member included to satisfy reference by file (symbol)

Discarded input sections

 .text.gone     0x0000000000000000       0x10 gone.o

Memory Configuration

Linker script and memory map

LOAD main.o

.text           0x0000000000001000       0x40
 *(.text.unlikely)
 .text          0x0000000000001000       0x10 lib/libfoo.a(bar.o)
                0x0000000000001000                f
 .text.a_name_that_is_long
                0x0000000000001010       0x30 main.o
 *fill*         0x0000000000001040        0x0

.data           0x0000000000002000        0x8
 .data          0x0000000000002000        0x8 main.o

.debug_info     0x0000000000000000      0x100
 .debug_info    0x0000000000000000      0x100 main.o
"""


def program() -> Binary:
    sizes = {".text": (0x1000, 0x40), ".data": (0x2000, 0x8)}
    sections = tuple(
        FileSection(name=name, address=address, size=size, file_bytes=size, memory_bytes=size)
        for name, (address, size) in sizes.items()
    )
    return Binary(kind="", is_linked=True, sections=sections, symbols=Layer(), outside=())


@pytest.mark.parametrize(("text", "last"), [(LLD, "<internal>"), (GNU, "main.o")], ids=["lld", "gnu"])
def test_inputs_own_what_they_brought(tmp_path: Path, text: str, last: str) -> None:
    path = tmp_path / "program.map"
    path.write_text(text)
    found = read_map(path, program())
    assert [
        (found.owners[owner][0], section, begin, end)
        for owner, section, begin, end in zip(
            *(column.tolist() for column in (found.owner, found.section, found.begin, found.end)), strict=True
        )
    ] == [("lib/libfoo.a(bar.o)", 0, 0, 0x10), ("main.o", 0, 0x10, 0x40), (last, 1, 0, 8)]


def test_other_files_and_maps_of_other_programs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "program.map"
    path.write_text("hello\n")
    with pytest.raises(InputError, match=r"expected a map of lld, GNU ld or gold, found another file; have the linker"):
        read_map(path, program())
    path.write_text(LLD.replace("  1000  ", "  9000  ").replace("  1010  ", "  9010  ").replace("2000", "8000"))
    with pytest.raises(InputError, match="expected the map of this program, found that of another"):
        read_map(path, program())
    with pytest.raises(InputError, match="No such file"):
        read_map(tmp_path / "missing.map", program())
