"""Every byte of a file has one section, and at most one owner of each kind; other files are refused in a sentence."""

import dataclasses
import io
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rich.console import Console
from tests.compiler.objects.test_measure import NOBITS, A, Section as Written, Symbol, W, X, write_object

from mlgokit.compiler.objects.archive import MAGIC
from mlgokit.compiler.objects.object_file import FileSection
from mlgokit.errors import InputError
from mlgokit.pages.terminal import print_page
from mlgokit.sizes.binary import Binary, Layer, make_layer, outside_of
from mlgokit.sizes.measure import cut_sections, find_owners, measure_file, sum_sizes
from mlgokit.sizes.page import size_page
from mlgokit.sizes.record import OutsideSize, Sizes, size_limit_json

SIZES = (40, 0, 25)
OBJECT = 1


def sections(sizes: Sequence[int] = SIZES) -> tuple[FileSection, ...]:
    """The last one is in memory alone but for ten bytes."""
    return tuple(
        FileSection(
            name=f"s{index}",
            address=0,
            size=size,
            file_bytes=min(size, 10) if index + 1 == len(sizes) else size,
            memory_bytes=size,
        )
        for index, size in enumerate(sizes)
    )


def layer(ranges: Sequence[tuple[str, int, int, int]]) -> Layer:
    columns = np.array([one[1:] for one in ranges], np.int64).reshape(-1, 3).T
    return make_layer([(one[0],) for one in ranges], columns[0], columns[1], columns[2], sections())


def owners_of(found: Layer) -> list[list[str]]:
    """The owner of each byte, by marking them one by one."""
    bytes_of = [[""] * one.extent for one in sections()]
    for owner, section, begin, end in zip(
        *(column.tolist() for column in (found.owner, found.section, found.begin, found.end)), strict=True
    ):
        for place in range(begin, end):
            assert not bytes_of[section][place], "two owners"
            bytes_of[section][place] = found.owners[owner][0]
    return bytes_of


ranges_of = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-3, 45), st.integers(0, 30)), max_size=12, unique_by=lambda one: one[:2]
).map(lambda found: [(f"f{index}", one[0], one[1], one[1] + one[2]) for index, one in enumerate(found)])


@given(ranges_of)
def test_the_range_that_begins_last_has_a_byte(ranges: list[tuple[str, int, int, int]]) -> None:
    expected = [[""] * one.extent for one in sections()]
    clipped = [(max(begin, 0), min(end, SIZES[section]), section, name) for name, section, begin, end in ranges]
    first: dict[tuple[int, int], str] = {}
    for begin, end, section, name in clipped:
        if begin < end:
            first.setdefault((section, begin), name)
    for begin, end, section, _ in sorted(clipped):
        for place in range(begin, end):
            expected[section][place] = first[section, begin]
    assert owners_of(layer(ranges)) == expected


@given(ranges_of, ranges_of)
def test_pieces_add_up_to_the_sections(
    symbols: list[tuple[str, int, int, int]], sources: list[tuple[str, int, int, int]]
) -> None:
    layers = (layer(symbols), layer(sources))
    binary = Binary(kind="", is_linked=True, sections=sections(), symbols=layers[0], outside=())
    pieces = cut_sections(binary, layers)
    for values, name in ((pieces.file, "file_bytes"), (pieces.memory, "memory_bytes")):
        sums = np.bincount(pieces.section, values, minlength=len(SIZES)).astype(int).tolist()
        assert sums == [getattr(one, name) for one in sections()]
    for owned, one in zip(pieces.owners, layers, strict=True):
        owned_bytes = int(pieces.memory[owned >= 0].sum())
        assert owned_bytes == int((one.end - one.begin).sum())


def test_bytes_that_two_parts_of_a_file_have_count_once() -> None:
    own, rest = outside_of(100, [(10, 50), (40, 30), (0, 4), (95, 20), (12, 5)])
    assert own == [50, 10, 4, 5, 0]
    assert sum(own) + rest == 100


def write(path: Path, *symbols: Symbol, kind: int = OBJECT) -> Path:
    path.write_bytes(
        write_object(
            [
                Written(name=".text", flags=A | X, contents=bytes(64)),
                Written(name=".data", flags=A | W, contents=bytes(16)),
                Written(name=".bss", flags=A | W, type=NOBITS, size=32),
            ],
            list(symbols),
            kind=kind,
        )
    )
    return path


def totals(sizes: Sizes) -> tuple[int, int]:
    """Bytes in the file and in memory, added up from symbols and from what no symbol has."""
    return (
        sum(one.file for one in sizes.symbols)
        + sum(one.no_symbol_file for one in sizes.sections)
        + sum(one.file for one in sizes.outside),
        sum(one.memory for one in sizes.symbols) + sum(one.no_symbol_memory for one in sizes.sections),
    )


def test_a_symbol_counts_once_with_all_its_names(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.o",
        Symbol(name="local", section=3, binding=0, value=8, size=20),
        Symbol(name="folded", section=3, value=8, size=20),
        Symbol(name="inner", section=3, value=40, size=4),
        Symbol(name="outer", section=3, value=36, size=16),
        Symbol(name="table", section=4, type=1, value=4, size=12),
        Symbol(name="zeros", section=5, type=1, size=32),
        Symbol(name="empty", section=3, value=2),
    )
    found = measure_file(path)
    assert [(one.names, one.file, one.memory) for one in found.symbols] == [
        (("zeros",), 0, 32),
        (("folded", "local"), 20, 20),
        (("outer",), 12, 12),
        (("table",), 12, 12),
        (("inner",), 4, 4),
    ]
    assert found.file_bytes == path.stat().st_size
    assert totals(found) == (found.file_bytes, found.memory_bytes)
    text = next(one for one in found.sections if one.name == ".text")
    assert (text.size, text.file, text.memory, text.no_symbol_file) == (64, 64, 64, 64 - 36)
    assert found.notes
    assert "-g" in found.notes[0]


@pytest.mark.parametrize("largest", range(8))
def test_the_largest_symbols_are_the_first_of_all(tmp_path: Path, largest: int) -> None:
    # Names decide between symbols of one size, and the table of the file has them in another order.
    sizes = {"b": 4, "d": 8, "c": 8, "a": 4, "e": 8}
    places = itertools.count(0, 8)
    path = write(
        tmp_path / "a.o", *(Symbol(name=name, section=3, value=next(places), size=size) for name, size in sizes.items())
    )
    measured = find_owners(path)
    whole, told = sum_sizes(measured), sum_sizes(measured, largest=largest)

    assert [one.names[0] for one in whole.symbols] == ["c", "d", "e", "a", "b"]
    assert told.symbols == whole.symbols[:largest]
    assert measured.symbols == len(whole.symbols)
    assert measured.loaded_bytes == whole.loaded_bytes
    assert dataclasses.replace(told, symbols=whole.symbols) == whole


@pytest.mark.parametrize("top", [1, 3, 40])
def test_the_terminal_shows_the_same_of_the_largest_as_of_all(tmp_path: Path, top: int) -> None:
    symbols = [Symbol(name=f"f{index}", section=3, value=4 * index, size=1 + index % 4) for index in range(12)]
    measured = find_owners(write(tmp_path / "a.o", *symbols))
    whole = size_page(sum_sizes(measured), top=top, width=30)
    told = size_page(sum_sizes(measured, largest=top), top=top, width=30, symbols=measured.symbols)

    shown = [io.StringIO(), io.StringIO()]
    for page, file in zip((whole, told), shown, strict=True):
        print_page(page, Console(file=file, width=100))
    assert shown[0].getvalue() == shown[1].getvalue()
    assert ("9 more; --json has all" in shown[1].getvalue()) == (top == 3)


def test_a_record_is_read_again(tmp_path: Path) -> None:
    found = measure_file(write(tmp_path / "a.o", Symbol(name="f", section=3, size=20)))
    assert Sizes.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert size_limit_json(found) == [{"name": "a.o", "size": found.file_bytes}]


def archive_of(*members: tuple[str, bytes]) -> bytes:
    made = [MAGIC]
    for name, data in members:
        made.append(
            f"{name + '/':16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        )
    return b"".join(made)


def test_members_of_a_library_add_up_to_the_file(tmp_path: Path) -> None:
    objects = [
        write(tmp_path / f"{name}.o", Symbol(name=name, section=3, size=size)) for name, size in (("f", 20), ("g", 30))
    ]
    library = tmp_path / "lib.a"
    library.write_bytes(archive_of(*((path.name, path.read_bytes()) for path in objects), ("notes.txt", b"no object")))
    found = measure_file(library)
    assert [(one.readable, one.member, one.library, one.file) for one in found.symbols] == [
        ("g", "g.o", "g.o", 30),
        ("f", "f.o", "f.o", 20),
    ]
    assert totals(found) == (library.stat().st_size, found.memory_bytes)
    assert {one.name: one.file for one in found.outside}["members that are no objects"] == 9
    assert sum(one.file for one in found.libraries) + sum(one.file for one in found.outside) == found.file_bytes


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "an empty file; give one"),
        (b"hello", "5 bytes that begin with 68656c6c; give one"),
        (b"#!/bin/sh\n", "a script; give the program that it starts"),
        (b"BC\xc0\xde....", "LLVM bitcode, which has no sizes yet; link it, or compile it without -flto"),
        (b"\xca\xfe\xba\xbe....", "a universal Mach-O file; give one of its parts, which `llvm-lipo -thin` takes out"),
    ],
)
def test_what_is_no_object_is_named(tmp_path: Path, data: bytes, found: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        measure_file(path)
    expected = "an ELF, COFF, Mach-O or wasm program, shared library, static library or object"
    assert str(caught.value) == f"{path}: expected {expected}, found {found}"


def test_a_file_that_is_not_there_and_a_library_without_objects_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory; give one"):
        measure_file(tmp_path / "missing")
    library = tmp_path / "lib.a"
    library.write_bytes(archive_of(("notes.txt", b"no object")))
    with pytest.raises(InputError, match="expected a static library of objects, found no object among its 1 members"):
        measure_file(library)


def test_every_cut_of_an_object_is_refused_or_adds_up(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.o", Symbol(name="f", section=3, size=20)).read_bytes()
    path = tmp_path / "cut.o"
    refused = 0
    for length in itertools.islice(range(len(whole)), 0, None, 7):
        path.write_bytes(whole[:length])
        try:
            found = measure_file(path)
        except InputError:
            refused += 1
        else:
            assert totals(found) == (length, found.memory_bytes)
    assert refused > 10


def test_outside_is_what_is_left() -> None:
    binary = Binary(
        kind="", is_linked=False, sections=sections(), symbols=Layer(), outside=(OutsideSize(name="x", file=7),)
    )
    assert binary.file_bytes == 40 + 10 + 7
