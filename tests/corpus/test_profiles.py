"""Profiles on their way into a corpus, and what is said of a build."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from mlgokit.compiler.options.parse import Option, parse_options
from mlgokit.corpus.build_notes import (
    OPTIONS_NAME,
    BuildOptionCounts,
    baseline_of,
    build_notes,
    read_options,
    write_options,
)
from mlgokit.corpus.profiles import counts_by_front_end, profile_copier, profile_of
from mlgokit.errors import CorpusError, InputError
from mlgokit.module import Module

INDEXED = b"\xfflprofi\x81\x0d\0\0\0\0\0\0"
OF_IR, OF_FRONT_END = INDEXED + b"\x01", INDEXED + b"\0"
SAMPLES = b"main:1000:1\n 0: 1\n"


def option(words: str) -> Option:
    return parse_options([words])[0]


def test_a_profile_is_copied_under_its_content_and_once(tmp_path: Path):
    build, corpus = tmp_path / "build", tmp_path / "corpus"
    build.mkdir()
    (build / "a.profdata").write_bytes(OF_IR)
    copies = profile_copier(corpus)
    named = copies(option("-fprofile-instrument-use-path=a.profdata"), build)
    assert named == f"profiles/{hashlib.sha256(OF_IR).hexdigest()}"
    assert (corpus / named).read_bytes() == OF_IR
    assert copies(option(f"-fprofile-instrument-use-path={build / 'a.profdata'}"), tmp_path) == named
    assert [path.name for path in (corpus / "profiles").iterdir()] == [Path(named).name]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("-fprofile-instrument-use-path=", OF_FRONT_END),
        ("-fmemory-profile-use=", OF_IR),
        ("-fprofile-sample-use=", SAMPLES),
        ("-fprofile-sample-use=", b"# comment\n\n[main:3 @ f]:10:1\n"),
        ("-fprofile-sample-use=", bytes.fromhex("ff84c991b4e893a953") + b"rest"),
        ("-fprofile-sample-use=", b"adcg*104"),
        ("-fprofile-remapping-file=", b"name 3foo 3bar\n"),
    ],
)
def test_profiles_of_each_kind_are_taken(name: str, data: bytes, tmp_path: Path):
    (tmp_path / "p").write_bytes(data)
    if data.endswith(b"rest"):
        magic = int.from_bytes(b"SPROF42\xff", "big")
        digits = [magic >> 7 * place & 0x7F for place in range(10)]
        (tmp_path / "p").write_bytes(bytes([*(digit | 0x80 for digit in digits[:9]), digits[9]]))
    assert profile_of(option(f"{name}p"), tmp_path) == str(tmp_path / "p")


@pytest.mark.parametrize("name", ["-fprofile-instrument-use-path=", "-fprofile-sample-use="])
def test_no_other_file_gets_into_a_corpus(name: str, tmp_path: Path):
    (tmp_path / "secret").write_text("root:x:0:0:root:/root:/bin/bash\n")
    with pytest.raises(InputError, match=r"expected a profile that LLVM wrote for .*, found another kind of file in"):
        profile_copier(tmp_path / "corpus")(option(f"{name}secret"), tmp_path)
    with pytest.raises(
        InputError, match=r"expected the profile of .*, found no file .*gone; make it with llvm-profdata"
    ):
        profile_of(option(f"{name}gone"), tmp_path)
    with pytest.raises(InputError, match="found a folder or a device"):
        profile_of(option(f"{name}."), tmp_path)
    assert not (tmp_path / "corpus").exists()


def test_the_header_says_whether_the_front_end_reads_a_profile(tmp_path: Path):
    for data, is_front_ends in ((OF_IR, False), (OF_FRONT_END, True), (SAMPLES, False), (b"", False)):
        (tmp_path / "p").write_bytes(data)
        assert counts_by_front_end(tmp_path / "p") is is_front_ends
    assert not counts_by_front_end(tmp_path / "gone")


def module(mismatched: int | None, missing: int | None) -> Module:
    return Module(
        name="m",
        project="p",
        language="c",
        bitcode=Path("m.bc"),
        command_line=("-cc1",),
        bitcode_bytes=1,
        profile_mismatched=mismatched,
        profile_missing=missing,
    )


def test_the_baseline_names_the_level_or_a_link_which_has_none():
    compiled = dataclasses.replace(module(None, None), command_line=("-cc1", "-Oz"))
    linked = dataclasses.replace(compiled, command_line=("ld.lld", "-o", "app"), link_folder=Path())
    assert baseline_of("22.1.8", [compiled]) == "clang 22.1.8 -Oz"
    assert baseline_of("22.1.8", [linked]) == "clang 22.1.8 -flto"


def test_a_build_without_anything_odd_has_no_notes(tmp_path: Path):
    assert build_notes(tmp_path, [module(None, None), module(0, 0)]) == ()
    write_options(tmp_path, BuildOptionCounts(commands=2))
    assert build_notes(tmp_path, []) == ()


def test_options_and_profiles_are_named_with_numbers(tmp_path: Path):
    counts = BuildOptionCounts(commands=9, left_out={"-flto": 9}, kept={"-fprofile-generate": 1})
    write_options(tmp_path, counts)
    assert read_options(tmp_path) == counts
    notes = build_notes(tmp_path, [module(2, 3), module(0, 0), module(None, None)])
    assert [note.partition(":")[0] for note in notes] == [
        "-flto (9 of 9 commands) is left out",
        "-fprofile-generate (1 of 9 commands) is kept",
        (
            "the profile is stale for 2 functions whose control flow has changed, and lacks 3 functions, in 1 of 2 "
            "modules; these are compiled without counts; renew the profile if there are many"
        ),
    ]


def test_of_a_hundred_options_twenty_are_named(tmp_path: Path):
    write_options(tmp_path, BuildOptionCounts(commands=1, left_out={f"-fodd-{index}": 1 for index in range(100)}))
    notes = build_notes(tmp_path, [])
    assert len(notes) == 21
    assert notes[-1] == f"80 more options of the build are left out or kept; {OPTIONS_NAME} has all of them"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"format_version": 2, "commands": 1, "left_out": {}, "kept": {}},
        {"format_version": 1, "commands": 1, "left_out": [], "kept": {}},
        {"format_version": 1, "commands": 1, "left_out": {"-flto": "all"}, "kept": {}},
    ],
)
def test_damaged_counts_of_options_are_refused(fields: dict[str, object], tmp_path: Path):
    (tmp_path / OPTIONS_NAME).write_text(json.dumps(fields))
    with pytest.raises(CorpusError, match=r"expected .*; import again, or delete the file"):
        build_notes(tmp_path, [])
