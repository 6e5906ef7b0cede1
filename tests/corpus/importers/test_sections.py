import os
from pathlib import Path
from types import ModuleType

import pytest

from mlgokit.corpus.importers.sections import ObjectSections, Piece, find_sections, kind_of
from mlgokit.errors import InputError

PARTS = {".text": b"\x90" * 5, ".llvmbc": b"BC\xc0\xde123", ".llvmcmd": b"-cc1\0-Oz\0"}
APPLE = {"__TEXT,__text": b"\x90" * 5, "__LLVM,__bitcode": b"BC\xc0\xde123", "__LLVM,__cmdline": b"-cc1\0-Oz\0"}


def look(path: Path, data: bytes, **names: str) -> ObjectSections | None:
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return find_sections(descriptor, path.name, **names)
    finally:
        os.close(descriptor)


def contents(data: bytes, pieces: tuple[Piece, ...]) -> list[bytes]:
    return [data[piece.offset : piece.offset + piece.size] for piece in pieces]


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("word", [4, 8])
@pytest.mark.parametrize(("maker", "parts"), [("make_elf", PARTS), ("make_mach_o", APPLE)])
def test_both_sections_are_found(
    tmp_path: Path, made: ModuleType, maker: str, parts: dict[str, bytes], word: int, order: str
):
    data = getattr(made, maker)(parts, word=word, order=order)
    found = look(tmp_path / "a.o", data)
    assert found is not None
    assert contents(data, found.bitcodes) == [b"BC\xc0\xde123"]
    assert contents(data, found.command_lines) == [b"-cc1\0-Oz\0"]


@pytest.mark.parametrize("big", [False, True])
def test_windows_objects_and_long_names(tmp_path: Path, made: ModuleType, big: bool):
    parts = {**PARTS, ".a_long_name": b"other"}
    data = made.make_coff(parts, big=big)
    found = look(tmp_path / "a.obj", data, cmd_section=".a_long_name")
    assert found is not None
    assert found.format == "COFF"
    assert contents(data, found.bitcodes) == [b"BC\xc0\xde123"]
    assert contents(data, found.command_lines) == [b"other"]


def test_other_names_may_be_asked_for(tmp_path: Path, made: ModuleType):
    data = made.make_elf({"cmd": b"-cc1\0", "xcmd": b"no", "bc": b"U", "bc2": b"no"})
    found = look(tmp_path / "a.o", data, cmd_section="cmd", bitcode_section="bc")
    assert found is not None
    assert (contents(data, found.command_lines), contents(data, found.bitcodes)) == ([b"-cc1\0"], [b"U"])


def test_an_object_without_embedded_bitcode_has_none(tmp_path: Path, made: ModuleType):
    found = look(tmp_path / "a.o", made.make_elf({".text": b"\x90", "x.llvmbc": b"no"}))
    assert found == ObjectSections(format="ELF", command_lines=(), bitcodes=())


def test_an_object_without_any_section(tmp_path: Path, made: ModuleType):
    head = bytearray(made.make_elf({})[:64])
    head[40:48] = bytes(8)
    assert look(tmp_path / "a.o", bytes(head)) == ObjectSections(format="ELF", command_lines=(), bitcodes=())


@pytest.mark.parametrize("data", [b"", b"\0asm\1\0\0\0", b"BC\xc0\xde", b"!<arch>\n", b"\x7fEL"])
def test_other_files_are_no_objects(tmp_path: Path, data: bytes):
    assert look(tmp_path / "a.o", data) is None


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", "an empty file"),
        (b"BC\xc0\xde", "bitcode itself, as -flto makes it"),
        (b"!<ar", "an archive"),
        (b"\0asm", "a file that begins with 00 61 73 6d"),
    ],
)
def test_what_a_file_is_instead(head: bytes, kind: str):
    assert kind_of(head) == kind


@pytest.mark.parametrize("maker", ["make_elf", "make_mach_o", "make_coff"])
def test_a_file_that_was_cut_is_damaged_or_has_less(tmp_path: Path, made: ModuleType, maker: str):
    whole = getattr(made, maker)(APPLE if maker == "make_mach_o" else PARTS)
    messages: list[str] = []
    for size in range(16, len(whole)):
        try:
            found = look(tmp_path / "a.o", whole[:size])
        except InputError as error:
            messages.append(str(error))
        else:
            assert found is not None
            assert all(piece.offset + piece.size <= size for piece in (*found.bitcodes, *found.command_lines))
    assert len(messages) > len(whole) / 2
    assert all(text.startswith("a.o: expected ") and text.endswith("; build the object again") for text in messages)


def patched(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (4, b"\3", "expected ELF class and byte order 1 or 2, found 3 and 1"),
        (58, b"\x3f\0", "expected section headers of 64 bytes, found 63"),
        (60, b"\xff\xff", "expected 65535 section headers within"),
        (62, b"\x09\0", "expected the section with names among 5, found number 9"),
        (40, b"\xff" * 8, "expected 64 bytes at 18446744073709551615, found the end of the file"),
    ],
)
def test_wrong_numbers_in_the_header(tmp_path: Path, made: ModuleType, offset: int, value: bytes, message: str):
    with pytest.raises(InputError, match=message):
        look(tmp_path / "a.o", patched(made.make_elf(PARTS), offset, value))


def test_a_compressed_section_is_refused_and_one_without_contents_is_skipped(tmp_path: Path, made: ModuleType):
    data = made.make_elf({".llvmbc": b"U"})
    header = len(data) - 2 * 64
    with pytest.raises(InputError, match=r"a.o: expected section .llvmbc as it is, found it compressed; build the"):
        look(tmp_path / "a.o", patched(data, header + 8, b"\0\x08"))
    found = look(tmp_path / "a.o", patched(data, header + 4, b"\x08"))
    assert found is not None
    assert found.bitcodes == ()


def test_more_sections_than_the_header_can_count(tmp_path: Path, made: ModuleType):
    """gABI: with 65,280 sections or more, section 0 has the number and the index of the names."""
    data = made.make_elf({})
    names = b"\0.llvmbc\0"
    table = bytearray(64 * 66_000)
    table[32:40] = (66_000).to_bytes(8, "little")
    table[40:44] = (65_999).to_bytes(4, "little")
    table[-128 : -128 + 8] = (1).to_bytes(4, "little") + b"\1\0\0\0"
    table[-128 + 32 : -128 + 40] = (3).to_bytes(8, "little")
    table[-64 + 24 : -64 + 40] = (64).to_bytes(8, "little") + len(names).to_bytes(8, "little")
    head = patched(patched(data[:64], 40, (64 + len(names)).to_bytes(8, "little")), 60, b"\0\0\xff\xff")
    found = look(tmp_path / "a.o", head + names + bytes(table))
    assert found is not None
    assert found.bitcodes == (Piece(offset=0, size=3),)


def test_a_table_of_names_beyond_reason_is_not_read(tmp_path: Path, made: ModuleType):
    data = made.make_elf({".llvmbc": b"U"})
    with pytest.raises(InputError, match="expected at most 134217728 bytes of section names, found 1099511627776"):
        look(tmp_path / "a.o", patched(data, len(data) - 64 + 32, (1 << 40).to_bytes(8, "little")))
