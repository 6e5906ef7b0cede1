from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from mlgokit.compiler.options.parse import LLVM_KINDS, option_table, parse_options, spell_options
from mlgokit.corpus.options.edits import NO_EDITS, command_line_edits, command_line_to_compile, edit_command_line
from mlgokit.errors import UsageError

CLANG_WORDS = sorted(word for word, kind in option_table().kinds.items() if kind not in LLVM_KINDS)

LINE = (
    "-cc1",
    "-triple",
    "x86_64",
    "-fdata-sections",
    "-Oz",
    "-split-dwarf-file",
    "a.dwo",
    "-mllvm",
    "-inline-threshold=5",
)


@pytest.mark.parametrize(
    ("delete", "gone"),
    [
        ("-fdata-sections", {"-fdata-sections"}),
        ("-split-dwarf-file", {"-split-dwarf-file", "a.dwo"}),
        ("-split-dwarf-file=a.dwo", {"-split-dwarf-file", "a.dwo"}),
        ("-triple=x86_64", {"-triple", "x86_64"}),
        ("-triple", {"-triple", "x86_64"}),
        ("-O", {"-Oz"}),
        ("-Oz", {"-Oz"}),
        ("-O2", set[str]()),
        ("-mllvm -inline-threshold", {"-mllvm", "-inline-threshold=5"}),
        ("-mllvm --inline-threshold=5", {"-mllvm", "-inline-threshold=5"}),
        ("-mllvm -inline-threshold=6", set[str]()),
        ("-fno-such-option", set[str]()),
    ],
)
def test_a_deleted_option_takes_its_value_and_nothing_else(delete: str, gone: set[str]):
    left = edit_command_line(LINE, command_line_edits(delete=[delete]), where="a.o")
    assert left == tuple(word for word in LINE if word not in gone)


@pytest.mark.parametrize(
    ("words", "replace", "expected"),
    [
        (["-fprofile-instrument-use-path=a"], "-fprofile-instrument-use-path=/b", ["-fprofile-instrument-use-path=/b"]),
        (["-fprofile-sample-use=a", "-w"], "-fprofile-sample-use /b", ["-fprofile-sample-use=/b", "-w"]),
        (["-split-dwarf-file", "a", "-w"], "-split-dwarf-file=b", ["-split-dwarf-file", "b", "-w"]),
        (["-Oz", "-Os"], "-O2", ["-O2", "-O2"]),
        (
            ["-mllvm", "-inline-threshold", "-mllvm", "5"],
            "-mllvm -inline-threshold=7",
            ["-mllvm", "-inline-threshold=7"],
        ),
    ],
)
def test_a_value_is_replaced_however_it_is_spelled(words: list[str], replace: str, expected: list[str]):
    assert list(edit_command_line(words, command_line_edits(replace=[replace]), where="a.o")) == expected


@given(st.lists(st.sampled_from(CLANG_WORDS), min_size=1, max_size=8), st.integers(min_value=0))
def test_a_flag_goes_alone_wherever_it_stands(words: list[str], position: int):
    options = parse_options(words)
    gone = options[position % len(options)]
    assume(gone.kind == "flag")
    left = edit_command_line(words, command_line_edits(delete=[gone.words[0]]), where="a.o")
    assert left == spell_options(option for option in options if option.name != gone.name)


def test_additions_come_last():
    edits = command_line_edits(add=["-mllvm -stats", "-target-feature +avx"])
    assert edit_command_line(["-cc1", "-w"], edits, where="a.o")[2:] == ("-mllvm", "-stats", "-target-feature", "+avx")
    assert edits.words == {"add": ["-mllvm", "-stats", "-target-feature", "+avx"]}


def test_one_value_is_exchanged_by_deleting_and_adding():
    edits = command_line_edits(add=["-target-feature +avx"], delete=["-target-feature -avx"])
    line = ("-target-feature", "+sse", "-target-feature", "-avx")
    assert edit_command_line(line, edits, where="a.o") == ("-target-feature", "+sse", "-target-feature", "+avx")


def test_there_must_be_something_to_replace():
    edits = command_line_edits(replace=["-fprofile-sample-use=/b"])
    sentence = r"lib/a\.o: replace options: expected an option -fprofile-sample-use= in its command line, found none"
    with pytest.raises(UsageError, match=sentence):
        edit_command_line(LINE, edits, where="lib/a.o")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"add": ["-O2"], "replace": ["-O3"]}, "add and replace options: .*found -O in both"),
        ({"delete": ["-O"], "replace": ["-O3"]}, "delete and replace options: .*found -O in both"),
        ({"add": ["-O2"], "delete": ["-O"]}, "add and delete options: .*found -O in both"),
        ({"add": ["-w"], "delete": ["-w"]}, "add and delete options: .*found -w in both"),
        ({"replace": ["-fdata-sections"]}, "replace options: expected options with their new value"),
        ({"add": ["foo.c"]}, "add options: expected options of clang -cc1 .*found 'foo.c'"),
        ({"add": ["-target-feature"]}, "add options: expected options of clang -cc1"),
        ({"add": ["-mllvm"]}, "add options: expected options of clang -cc1"),
        ({"add": ["'"]}, "add options: expected options as on a command line"),
        ({"delete": [""]}, "delete options: expected options of clang -cc1"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, list[str]], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        command_line_edits(**changes)


def test_what_the_user_writes_is_not_questioned(tmp_path: Path):
    line = ("-cc1", "-Oz", "-fprofile-instrument-use-path=a", "-split-dwarf-output", "a.dwo", "-Ifoo", "-emit-obj")
    words, reason = command_line_to_compile(line, NO_EDITS, folder=tmp_path, where="a.o")
    assert words == ("-cc1", "-Oz", f"-fprofile-instrument-use-path={tmp_path / 'a'}")
    assert reason is not None
    assert "found -fprofile-instrument-use-path=a (expected a profile in a, found no file); delete or" in reason
    edits = command_line_edits(replace=["-fprofile-instrument-use-path=/b"], add=["-fpass-plugin=/p.so"])
    words, reason = command_line_to_compile(line, edits, folder=tmp_path, where="a.o")
    assert (words, reason) == (("-cc1", "-Oz", "-fprofile-instrument-use-path=/b", "-fpass-plugin=/p.so"), None)
