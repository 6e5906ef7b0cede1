"""The files of a replay: what the plugin writes is read strictly, and what LLVM reads has one decision in a line."""

from pathlib import Path

import pytest

from mlgokit.errors import InputError, UsageError
from mlgokit.export.replay import ReplayLine, config_lines, parse_replay_lines, remove_replay, write_replay

INLINED = b"mlgokit: '_ZN1a1bEv' inlined into 'main' at callsite _ZN1c1dEv:2:5.1 @ main:12:3;\n"
NOT = b"mlgokit: 'f' will not be inlined into '-[A b:c]' at callsite -[A b:c]:4294967295:1;\n"


def test_lines_are_read_as_they_are_written():
    found = parse_replay_lines(INLINED + NOT, "a.o")
    assert found == [
        ReplayLine("_ZN1a1bEv", "main", "_ZN1c1dEv:2:5.1 @ main:12:3", inlined=True),
        ReplayLine("f", "-[A b:c]", "-[A b:c]:4294967295:1", inlined=False),
    ]
    assert b"".join(f"{line.text}\n".encode() for line in found) == INLINED + NOT
    assert found[0].functions == {"_ZN1a1bEv", "_ZN1c1dEv", "main"}


def test_names_that_are_no_text_and_characters_that_end_lines_elsewhere_stay_as_they_are(tmp_path: Path):
    data = b"mlgokit: 'f\xff\x85\xe2\x80\xa8' inlined into 'g' at callsite g:1:1;\n"
    lines = parse_replay_lines(data, "a.o")
    assert write_replay(tmp_path, lines).lines.read_bytes() == data


@pytest.mark.parametrize("damage", [INLINED[:40], b"a.c:1:1: remark\n", INLINED.replace(b"@", b";"), b"\n\x00\n"])
def test_malformed_replay_lines_are_refused(damage: bytes):
    with pytest.raises(InputError, match=r"a\.o: expected an inlining decision in line \d"):
        parse_replay_lines(damage, "a.o")


def test_the_configuration_file_names_the_list_by_its_whole_path(tmp_path: Path):
    folder = tmp_path / 'with "quotes" and \\ spaces'
    files = write_replay(folder, [])
    assert files.lines.read_bytes() == b""
    text = files.config.read_text().splitlines()
    assert text == config_lines(folder / "replay.txt")
    assert 'with \\"quotes\\" and \\\\ spaces/replay.txt"' in text[3]


def test_a_folder_that_would_end_a_line_of_the_configuration_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="expected a path without control characters"):
        write_replay(tmp_path / "a\nb", [])
    assert not (tmp_path / "a\nb").exists()


def test_rustc_reads_arguments_from_a_file_and_splits_them_at_spaces(tmp_path: Path):
    lines = parse_replay_lines(INLINED, "a.o")
    files = write_replay(tmp_path / "list", lines, rust=True)
    assert files.config.read_text().splitlines() == [
        "-Csymbol-mangling-version=v0",
        f"-Cllvm-args=-cgscc-inline-replay={files.lines}",
        "-Cllvm-args=-cgscc-inline-replay-scope=Module",
        "-Cllvm-args=-cgscc-inline-replay-fallback=Original",
    ]
    assert remove_replay(tmp_path / "list", rust=True) == files
    assert not list((tmp_path / "list").iterdir())
    with pytest.raises(UsageError, match="expected a folder without spaces in its path, at which rustc"):
        write_replay(tmp_path / "a list", lines, rust=True)
