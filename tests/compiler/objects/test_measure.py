"""Objects are written here byte by byte, so that every expected number can be checked by hand."""

import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.objects import elf
from mlgokit.compiler.objects.measure import (
    Objective,
    ObjectSizes,
    function_scores,
    link_weights,
    measure_object,
    project_image_estimate,
    size_score,
)
from mlgokit.errors import InputError

A, W, X, MERGE, GROUPED = elf.SHF_ALLOC, elf.SHF_WRITE, elf.SHF_EXECINSTR, elf.SHF_MERGE, 0x200
PROGBITS, NOBITS = 1, elf.SHT_NOBITS
FUNC, OBJECT, SECTION = elf.STT_FUNC, 1, elf.STT_SECTION
LOCAL, GLOBAL, WEAK = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    name: str
    flags: int = A
    contents: bytes = b""
    type: int = PROGBITS
    size: int | None = None
    link: int = 0
    info: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    name: str
    section: int
    type: int = FUNC
    binding: int = GLOBAL
    value: int = 0
    size: int = 0


def write_object(
    sections: list[Section], symbols: list[Symbol], *, machine: int = 62, kind: int = 1, bits: int = 64
) -> bytes:
    """Section 1 is the string table of sections and symbols, section 2 the symbol table; ``sections`` follow from 3."""
    strings = b"\0" + b"".join(text.name.encode() + b"\0" for text in [*sections, *symbols]) + b".s\0"

    def place(name: str) -> int:
        return strings.index(b"\0" + name.encode() + b"\0") + 1

    def entry(name: int, info: int, section: int, value: int, size: int) -> bytes:
        if bits == 32:
            return struct.pack("<IIIBBH", name, value, size, info, 0, section)
        return struct.pack("<IBBHQQ", name, info, 0, section, value, size)

    table = entry(0, 0, 0, 0, 0) + b"".join(
        entry(place(symbol.name), symbol.binding << 4 | symbol.type, symbol.section, symbol.value, symbol.size)
        for symbol in symbols
    )
    every = [
        Section(name=".s", flags=0, type=elf.SHT_STRTAB, contents=strings),
        Section(name=".s", flags=0, type=elf.SHT_SYMTAB, contents=table, link=1),
        *sections,
    ]
    header, row, rows, body = (52, "<10I", b"", b"") if bits == 32 else (64, "<IIQQQQIIQQ", b"", b"")
    rows += bytes(struct.calcsize(row))
    for section in every:
        size = len(section.contents) if section.size is None else section.size
        at = header + len(body)
        fields = (place(section.name), section.type, section.flags, 0, at, size, section.link, section.info, 1, 0)
        rows += struct.pack(row, *fields)
        body += section.contents
    ident = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9)
    places = (0, 0, header + len(body))
    counts = (0, header, 0, 0, struct.calcsize(row), len(every) + 1, 1)
    head = struct.pack("<HHI3IIHHHHHH" if bits == 32 else "<HHI3QIHHHHHH", kind, machine, 1, *places, *counts)
    return ident + head + body + rows


def frame(kind: int, size: int) -> bytes:
    return struct.pack("<II", size - 4, kind) + bytes(size - 8)


def relocations(*entries: tuple[int, int, int]) -> bytes:
    table = np.array([(offset, 2, symbol, addend) for offset, symbol, addend in entries], elf.RELOCATION)
    return table.tobytes()


SECTIONS = [
    Section(name=".text.f", flags=A | X, contents=bytes(20)),  # 3
    Section(name=".text.g", flags=A | X | GROUPED, contents=bytes(30)),  # 4
    Section(name=".group", flags=0, type=elf.SHT_GROUP, contents=struct.pack("<II", 1, 4), link=2, info=3),  # 5
    Section(name=".gcc_except_table.f", contents=bytes(8)),  # 6
    Section(name=".rodata.f", contents=bytes(16)),  # 7
    Section(name=".rodata.str1.1", flags=A | MERGE, contents=bytes(5)),  # 8
    Section(name=".eh_frame", contents=frame(0, 24) + frame(28, 32) + frame(60, 28) + bytes(4)),  # 9
    Section(  # 10
        name=".rela.eh_frame",
        flags=0,
        type=elf.SHT_RELA,
        contents=relocations((16, 5, 0), (32, 6, 0), (41, 7, 0), (64, 2, 0)),
        link=2,
        info=9,
    ),
    Section(name=".rodata._ZTS1A", flags=A | GROUPED, contents=bytes(7)),  # 11
    Section(name=".data.rel.ro._ZTV1A", flags=A | W | GROUPED, contents=bytes(12)),  # 12
    Section(name=".group", flags=0, type=elf.SHT_GROUP, contents=struct.pack("<III", 1, 11, 12), link=2, info=4),  # 13
    Section(name=".data", flags=A | W, contents=bytes(4)),  # 14
    Section(name=".bss", flags=A | W, type=NOBITS, size=100),  # 15
    Section(name=".comment", flags=0, contents=bytes(9)),  # 16
]
SYMBOLS = [
    Symbol(name="f_alias", section=3, size=18),  # 1
    Symbol(name="g", section=4, size=30, binding=WEAK),  # 2
    Symbol(name="g", section=4, size=30, binding=WEAK),  # 3
    Symbol(name="_ZTV1A", section=12, type=OBJECT, binding=WEAK),  # 4
    Symbol(name="personality", section=0, type=0),  # 5
    Symbol(name="f", section=3, size=18),  # 6
    Symbol(name=".s", section=6, type=SECTION, binding=LOCAL),  # 7
]


@pytest.fixture
def sizes() -> ObjectSizes:
    return measure_object(write_object(SECTIONS, SYMBOLS))


def account(sizes: ObjectSizes) -> int:
    return int(sizes.function_bytes.sum() + sizes.signature_rest.sum() + sizes.rest.sum())


def test_totals_follow_llvm_size(sizes: ObjectSizes):
    totals = sizes.totals
    assert (totals.text, totals.rodata, totals.eh_frame) == (50, 8 + 16 + 5 + 7, 88)
    assert (totals.data, totals.bss, totals.except_table) == (16, 100, 8)
    assert sizes.llvm_size_text == 50 + 36 + 88


def test_a_function_owns_its_section_tables_and_frames(sizes: ObjectSizes):
    assert sizes.function_names == ("f", "g")
    assert sizes.function_text.tolist() == [20, 30]
    assert sizes.function_except_table.tolist() == [8, 0]
    assert sizes.function_rodata.tolist() == [24, 0]
    assert sizes.function_eh_frame.tolist() == [32, 28]


def test_comdat_groups_are_named_by_their_signature(sizes: ObjectSizes):
    assert sizes.signatures == ("g", "_ZTV1A")
    assert sizes.function_signature.tolist() == [-1, 0]
    assert sizes.signature_rest.tolist() == [[0, 0, 0], [0, 7, 0]]
    assert sizes.signature_data.tolist() == [0, 12]


def test_every_byte_is_owned_once(sizes: ObjectSizes):
    assert sizes.rest.tolist() == [0, 5, 24 + 4]
    assert account(sizes) == sizes.llvm_size_text


def test_aarch64_reads_alike(sizes: ObjectSizes):
    other = measure_object(write_object(SECTIONS, SYMBOLS, machine=183))
    assert other.function_bytes.tolist() == sizes.function_bytes.tolist()


def test_32_bits_read_alike(sizes: ObjectSizes):
    table = b"".join(struct.pack("<IIi", *each) for each in ((16, 5 << 8 | 57, 0), (32, 6 << 8 | 57, 0)))
    table += b"".join(struct.pack("<IIi", *each) for each in ((41, 7 << 8 | 57, 0), (64, 2 << 8 | 57, 0)))
    other = measure_object(write_object(with_section(10, contents=table), SYMBOLS, machine=243, bits=32))
    assert other.function_bytes.tolist() == sizes.function_bytes.tolist()
    assert other.rest.tolist() == sizes.rest.tolist()


ARM_SECTIONS = [
    Section(name=".text.f", flags=A | X, contents=bytes(20)),  # 3
    Section(name=".text", flags=A | X, contents=bytes(30)),  # 4
    Section(name=".ARM.extab.text.f", contents=bytes(12)),  # 5
    # An address has 31 bits here, and so has its addend.
    Section(name=".ARM.exidx.text.f", type=0x70000001, contents=struct.pack("<II", 0, 0x80000004)),  # 6
    Section(  # 7
        name=".rel.ARM.exidx.text.f",
        flags=0,
        type=elf.SHT_REL,
        contents=struct.pack("<6I", 0, 5 << 8 | 0, 0, 3 << 8 | 42, 4, 4 << 8 | 42),
        link=2,
        info=6,
    ),
    Section(name=".ARM.exidx", type=0x70000001, contents=struct.pack("<IIII", 0, 1, 12, 1)),  # 8
    Section(  # 9
        name=".rel.ARM.exidx",
        flags=0,
        type=elf.SHT_REL,
        contents=struct.pack("<4I", 0, 6 << 8 | 42, 8, 6 << 8 | 42),
        link=2,
        info=8,
    ),
]
ARM_SYMBOLS = [
    Symbol(name="f", section=3, value=1, size=20),  # 1, as Thumb
    Symbol(name="g", section=4, value=1, size=12),  # 2
    Symbol(name=".s", section=3, type=SECTION, binding=LOCAL),  # 3
    Symbol(name=".s", section=5, type=SECTION, binding=LOCAL),  # 4
    Symbol(name="__aeabi_unwind_cpp_pr0", section=0, type=0),  # 5
    Symbol(name=".s", section=4, type=SECTION, binding=LOCAL),  # 6
    Symbol(name="h", section=4, value=12, size=18),  # 7
]


def test_arms_unwind_tables_belong_to_their_functions():
    sizes = measure_object(write_object(ARM_SECTIONS, ARM_SYMBOLS, machine=40, bits=32))
    assert sizes.function_names == ("f", "g", "h")
    assert sizes.function_text.tolist() == [20, 12, 18]
    assert sizes.function_eh_frame.tolist() == [8, 8, 8]
    assert sizes.function_except_table.tolist() == [8, 0, 0]
    assert (sizes.totals.text, sizes.totals.rodata, sizes.totals.eh_frame) == (50, 12, 24)
    assert sizes.rest.tolist() == [0, 4, 0]
    assert account(sizes) == sizes.llvm_size_text


def test_what_is_wrong_in_places_of_addends_is_said():
    for changes, message in (
        ({"contents": struct.pack("<II", 8, 3 << 8 | 42)}, "places within 8 bytes, found one at byte 8"),
        ({"contents": struct.pack("<II", 0, 99 << 8 | 42)}, "one of 8 symbols, found symbol 99"),
        ({"link": 1}, "relocations by the symbol table"),
    ):
        sections = [*ARM_SECTIONS[:4], replace(ARM_SECTIONS[4], **changes), *ARM_SECTIONS[5:]]
        with pytest.raises(InputError, match=message):
            measure_object(write_object(sections, ARM_SYMBOLS, machine=40, bits=32))


def test_addends_that_stand_in_nothing_are_an_error():
    sections = with_section(9, type=NOBITS, contents=b"", size=96)
    sections[7] = replace(sections[7], type=elf.SHT_REL, contents=struct.pack("<II", 0, 1 << 8 | 1))
    with pytest.raises(InputError, match=r"\.eh_frame"):
        measure_object(write_object(sections, SYMBOLS, machine=3, bits=32))


def test_functions_that_share_a_section_leave_the_padding_to_the_rest():
    sections = [Section(name=".text", flags=A | X, contents=bytes(48)), Section(name=".rodata.a", contents=bytes(4))]
    symbols = [
        Symbol(name="b", section=3, value=16, size=10),
        Symbol(name="a", section=3, value=0, size=9),
        Symbol(name="overlaps", section=3, value=20, size=28),
        Symbol(name="label", section=3, value=8, size=0),
    ]
    sizes = measure_object(write_object(sections, symbols))
    assert dict(zip(sizes.function_names, sizes.function_text.tolist(), strict=True)) == {
        "a": 8,
        "label": 0,
        "b": 4,
        "overlaps": 28,
    }
    assert sizes.rest.tolist() == [8, 0, 0]
    assert sizes.function_rodata.tolist() == [4, 0, 0, 0]


def test_tables_in_a_shared_section_are_divided_at_the_pointers():
    sections = [
        Section(name=".text", flags=A | X, contents=bytes(20)),
        Section(name=".gcc_except_table", contents=bytes(50)),
        Section(name=".eh_frame", contents=frame(0, 16) + frame(20, 24) + frame(44, 24)),
        Section(
            name=".rela.eh_frame",
            flags=0,
            type=elf.SHT_RELA,
            contents=relocations((24, 3, 0), (36, 4, 4), (48, 3, 10), (60, 4, 32)),
            link=2,
            info=5,
        ),
    ]
    symbols = [
        Symbol(name="a", section=3, size=10),
        Symbol(name="b", section=3, value=10, size=10),
        Symbol(name=".s", section=3, type=SECTION, binding=LOCAL),
        Symbol(name=".s", section=4, type=SECTION, binding=LOCAL),
    ]
    sizes = measure_object(write_object(sections, symbols))
    assert sizes.function_except_table.tolist() == [28, 18]
    assert sizes.rest.tolist() == [0, 4, 16]


def test_a_frame_without_a_known_function_goes_to_its_group():
    sizes = measure_object(write_object(SECTIONS, [replace(symbol, type=0) for symbol in SYMBOLS]))
    assert sizes.function_names == ()
    assert sizes.signature_rest.tolist() == [[30, 0, 28], [0, 7, 0]]
    assert sizes.rest.tolist() == [20, 8 + 16 + 5, 24 + 32 + 4]
    assert size_score(sizes, {}) == sizes.llvm_size_text


def test_an_empty_object_weighs_nothing():
    sizes = measure_object(write_object([], []))
    assert (sizes.llvm_size_text, account(sizes), size_score(sizes, {})) == (0, 0, 0.0)


def test_a_signature_counts_one_over_k(sizes: ObjectSizes):
    weights = link_weights([sizes, sizes, sizes])
    assert weights == {"g": 3, "_ZTV1A": 3}
    assert size_score(sizes, weights) == pytest.approx(20 + 24 + 32 + (5 + 28) + (30 + 28 + 7) / 3)


def test_an_unknown_signature_counts_whole(sizes: ObjectSizes):
    assert size_score(sizes, {}) == sizes.llvm_size_text


@pytest.mark.parametrize(
    ("objective", "expected"),
    [(Objective.LINK_AWARE, 109 + 65 / 2), (Objective.LINK_AWARE_TEXT, 20 + 30 / 2), (Objective.OBJECT_TEXT, 174)],
)
def test_objectives_choose_the_bytes(sizes: ObjectSizes, objective: Objective, expected: float):
    weights = {"g": 2, "_ZTV1A": 2}
    assert size_score(sizes, weights, objective=objective) == pytest.approx(expected)
    names, scores, rest = function_scores(sizes, weights, objective=objective)
    assert (names, scores.shape) == (("f", "g"), (2,))
    assert scores.sum() + rest == pytest.approx(expected)


def test_function_scores_resolve_the_score(sizes: ObjectSizes):
    _, scores, rest = function_scores(sizes, {"g": 2})
    assert scores.tolist() == [20 + 24 + 32, (30 + 28) / 2]
    assert rest == 33 + 7


def test_the_image_has_one_copy_of_a_signature(sizes: ObjectSizes):
    assert project_image_estimate([sizes]) == 174
    assert project_image_estimate([sizes, sizes]) == 2 * 174 - 65
    assert project_image_estimate([sizes, sizes], objective=Objective.LINK_AWARE_TEXT) == 2 * 50 - 30
    assert project_image_estimate([sizes, sizes], objective=Objective.OBJECT_TEXT) == 2 * 174
    weights = link_weights([sizes, sizes])
    assert sum(size_score(each, weights) for each in (sizes, sizes)) == 2 * 174 - 65


def test_a_path_is_read(tmp_path: Path, sizes: ObjectSizes):
    path = tmp_path / "module.o"
    path.write_bytes(write_object(SECTIONS, SYMBOLS))
    assert measure_object(path).totals == sizes.totals


def with_section(index: int, **changes: object) -> list[Section]:
    return [replace(section, **changes) if index == at else section for at, section in enumerate(SECTIONS, 3)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected an ELF file, found 0 bytes that begin with nothing; give an object"),
        (b"abcd" + bytes(100), "expected an ELF file, found 104 bytes that begin with 61626364"),
        (b"BC\xc0\xde" + bytes(100), "expected an ELF file, found LLVM bitcode; give"),
        (b"\0asm\1\0\0\0", "expected a wasm object, found a linked file; give"),
        (b"\x64\x86\5\0" + bytes(100), "expected a table of 200 bytes at 20, found a file of 104 bytes"),
        (
            b"\xcf\xfa\xed\xfe" + bytes(100),
            "expected Mach-O for x86_64, arm64, i386, armv7, arm64_32, found processor 0x0",
        ),
        (
            write_object(SECTIONS, SYMBOLS, machine=8),
            "expected little-endian ELF for i386, ARM, x86-64, AArch64, RISC-V",
        ),
        (write_object(SECTIONS, SYMBOLS, kind=2), "expected a relocatable object .ELF type 1., found ELF type 2"),
        (write_object(with_section(3, size=10**6), SYMBOLS), "section 3: expected contents within the file's"),
        (write_object(with_section(15, size=2**60), SYMBOLS), "section 15: expected contents within"),
        (write_object(with_section(5, info=99), SYMBOLS), "expected a signature among 8 symbols, found symbol 99"),
        (write_object(with_section(5, contents=struct.pack("<II", 1, 77)), SYMBOLS), "found section 77"),
        (write_object(with_section(5, contents=struct.pack("<II", 1, 11)), SYMBOLS), "members of its own"),
        (write_object(with_section(5, contents=b"\1"), SYMBOLS), "expected a flag word and section indices"),
        (write_object(with_section(9, contents=frame(0, 24)[:20]), SYMBOLS), "entries within 20 bytes"),
        (write_object(with_section(10, contents=bytes(25)), SYMBOLS), "entries of 24 bytes, found 25 bytes"),
        (write_object(with_section(10, contents=relocations((0, 50, 0))), SYMBOLS), "found symbol 50"),
        (write_object(with_section(10, type=0x40000014), SYMBOLS), "found SHT_CREL; compile without -Wa,--crel"),
        (write_object(with_section(10, info=99), SYMBOLS, machine=243), "one of 17 sections, found of section 99"),
        (
            write_object(SECTIONS, [*SYMBOLS, Symbol(name="h", section=3, size=21)]),
            "symbol h: expected a function within",
        ),
        (
            write_object(SECTIONS, [*SYMBOLS, Symbol(name="h", section=99)]),
            "symbols in 17 sections, found one in section 99",
        ),
    ],
)
def test_a_malformed_object_is_refused_with_its_defect(data: bytes, message: str):
    with pytest.raises(InputError, match=message):
        measure_object(data)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"absent\.o: expected a readable object file, found No such file"):
        measure_object(tmp_path / "absent.o")


WHOLE = [write_object(SECTIONS, SYMBOLS), write_object(ARM_SECTIONS, ARM_SYMBOLS, machine=40, bits=32)]


@pytest.mark.parametrize("data", WHOLE, ids=["64", "32"])
def test_every_truncation_is_found(data: bytes):
    for length in range(len(data)):
        with pytest.raises(InputError):
            measure_object(data[:length])


@pytest.mark.parametrize("good", WHOLE, ids=["64", "32"])
def test_damage_is_an_input_error_or_a_sound_account(good: bytes):
    rng = np.random.default_rng(2)
    refused = 0
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.integers(1, 9)):
            data[rng.integers(len(data))] = rng.choice([0, 1, 127, 128, 255])
        try:
            sizes = measure_object(bytes(data))
        except InputError:
            refused += 1
            continue
        assert account(sizes) == sizes.llvm_size_text
        assert sizes.function_bytes.min(initial=0) >= 0
        assert sizes.rest.min() >= 0
    assert 500 < refused < 3000
