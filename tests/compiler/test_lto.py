"""The linker's call in a link command, and what is left of it; drivers and linkers are scripts."""

import dataclasses
from pathlib import Path

import pytest
from tests.scripts import script

from mlgokit.compiler.lto import (
    LinkerCall,
    compose_back_end,
    find_linker_call,
    image_beside,
    image_of,
    link_for_object,
    merge_bitcode,
    take_object,
)
from mlgokit.errors import UsageError
from mlgokit.testing import FAKE_TOOLCHAIN, toy_source


def linker(folder: Path, *, version: str = "LLD 22.1.8 (compatible with GNU linkers)") -> Path:
    return script(
        folder / "ld.lld",
        f'if [ "$1" = --version ]; then echo "{version}"; exit; fi',
        'for word; do last=$word; done; [ -e missing ] && { echo "ld.lld: error: no file" >&2; exit 1; }',
        ': > "$last"; [ -e bitcode ] && : > "$last.0.2.internalize.bc"; exit 0',
    )


def test_a_driver_says_what_it_asks_of_the_linker(tmp_path: Path):
    lld = linker(tmp_path)
    said = f'"{lld}" "-pie" "-o" "app" "-Map" "m" "-Map=x" "--dependency-file" "d" "--save-temps"'
    said += ' "--threads=4" "--trace" "a b.o" "-lm"'
    driver = script(tmp_path / "clang", "echo 'clang version' >&2", f"echo ' {said}' >&2")

    call = find_linker_call([str(driver), "-o", "app"], tmp_path, toolchain=FAKE_TOOLCHAIN, timeout_seconds=20)

    assert call.words == (str(lld), "-pie", "--trace", "a b.o", "-lm")
    assert call.left_out == ("-Map", "m", "-Map=x", "--dependency-file", "d", "--save-temps", "--threads=4")


def test_the_linker_itself_may_be_the_command(tmp_path: Path):
    lld = linker(tmp_path)
    call = find_linker_call([str(lld), "a.o", "-o", "app"], tmp_path, toolchain=FAKE_TOOLCHAIN, timeout_seconds=20)
    assert call.words == (str(lld), "a.o")


@pytest.mark.parametrize(
    ("said", "version", "sentence"),
    [
        ('"/usr/bin/ld" "-o" "app"', "LLD 22.1", "found ld in the output of .*; link with -fuse-ld=lld"),
        ("no job", "LLD 22.1", "found no linker in the output of"),
        ('"{lld}" "-o" "app"', "LLD 19.1.7", "expected the lld of LLVM 22, .* found that of LLVM 19"),
        ('"{lld}" "-o" "app"', "GNU ld 2.40", "found another program"),
        ('"{lld}" "--lto-partitions=8"', "LLD 22.1", "found --lto-partitions=8, .* link without it"),
    ],
)
def test_a_link_that_cannot_be_searched_is_refused(tmp_path: Path, said: str, version: str, sentence: str):
    lld = linker(tmp_path, version=version)
    driver = script(tmp_path / "clang", f"echo ' {said.format(lld=lld)}' >&2")
    with pytest.raises(UsageError, match=f"(?s)--link-command: .*{sentence}"):
        find_linker_call([str(driver)], tmp_path, toolchain=FAKE_TOOLCHAIN, timeout_seconds=20)


def test_what_is_merged_is_kept_and_a_failure_is_a_value(tmp_path: Path):
    call = LinkerCall(words=(str(linker(tmp_path)), "a.o"), folder=tmp_path)
    assert merge_bitcode(call, tmp_path / "one", timeout_seconds=20).bitcode is None
    (tmp_path / "bitcode").touch()
    merged = merge_bitcode(call, tmp_path / "two", timeout_seconds=20)
    assert merged.bitcode == tmp_path / "two" / "image.0.2.internalize.bc"
    (tmp_path / "missing").touch()
    assert merge_bitcode(call, tmp_path / "three", timeout_seconds=20).reason == "ld.lld: error: no file"


def test_a_link_makes_an_object_and_keeps_its_image_beside_it(tmp_path: Path):
    link = toy_source("app", command_line=("ld.lld", "a.o"))
    kept = link_for_object(link, tmp_path / "1.o", plugin=Path("/p.so"), keeps=True)
    only = link_for_object(link, Path("-"), plugin=None, keeps=False)
    path = tmp_path / "1.o"
    assert kept == [
        "ld.lld", "a.o", "--load-pass-plugin=/p.so", "--threads=1", f"--plugin-opt=obj-path={path}", "-o",
        str(image_beside(path)),
    ]  # fmt: skip
    assert only == ["ld.lld", "a.o", "--threads=1", "--plugin-opt=obj-path=-", "-o", "/dev/null"]


def test_a_back_end_writes_a_numbered_object_and_no_image(tmp_path: Path):
    call = LinkerCall(words=("ld.lld", "a.o", "b.o"), folder=tmp_path)
    link = dataclasses.replace(toy_source("a", command_line=compose_back_end(call, "a.o")), link_folder=tmp_path)
    words = link_for_object(link, tmp_path / "1.o", plugin=Path("/p.so"), keeps=True)
    assert words == [
        "ld.lld", "a.o", "b.o", "--thinlto-single-module=a.o", "--load-pass-plugin=/p.so", "--threads=1",
        f"--plugin-opt=obj-path={tmp_path / '1.o'}", "--thinlto-jobs=1",
    ]  # fmt: skip
    (tmp_path / "1.o").write_bytes(b"the index")
    (tmp_path / "1.o1").write_bytes(b"object")
    take_object(link, tmp_path / "1.o")
    assert (tmp_path / "1.o").read_bytes() == b"object"
    take_object(link, tmp_path / "1.o")
    assert [path.name for path in tmp_path.iterdir()] == ["1.o"]


@pytest.mark.parametrize(
    ("words", "image"),
    [
        (("-pie", "-dynamic-linker", "/lib/ld.so"), "program"),
        (("--dynamic-linker=/lib/ld.so",), "program"),
        (("-shared",), "library"),
        (("-shared", "-Bsymbolic-functions"), "program"),
        (("-static",), ""),
        (("-shared", "--thinlto-single-module=a.o"), ""),
    ],
)
def test_calls_are_bound_later_where_there_are_shared_libraries(tmp_path: Path, words: tuple[str, ...], image: str):
    module = dataclasses.replace(toy_source("m", command_line=("ld.lld", *words)), link_folder=tmp_path)
    assert image_of(module) == image
    assert image_of(dataclasses.replace(module, link_folder=None)) == ""
