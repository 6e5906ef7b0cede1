import json
import shlex
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from mlgokit.corpus.importers.compile_commands import (
    CompileCommand,
    MalformedCommand,
    output_of,
    read_compile_commands,
    split_command,
)
from mlgokit.errors import CorpusError


def database(folder: Path, *entries: Any) -> Path:
    path = folder / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


def read(folder: Path, *entries: Any) -> list[CompileCommand | MalformedCommand]:
    return list(read_compile_commands(database(folder, *entries)))


def test_arguments_and_command_are_read_alike(tmp_path: Path):
    words = ["g++", '-DTEXT="a b"', "-c", "../src/a.cc", "-o", "a.o"]
    entry = {"directory": str(tmp_path / "build"), "file": "../src/a.cc"}
    with_words, with_line = read(tmp_path, {**entry, "arguments": words}, {**entry, "command": shlex.join(words)})
    assert isinstance(with_words, CompileCommand)
    assert isinstance(with_line, CompileCommand)
    assert with_words.arguments == with_line.arguments == tuple(words)
    assert with_words.directory == tmp_path / "build"
    assert with_words.file == tmp_path / "src/a.cc"
    assert with_words.output == tmp_path / "build/a.o"


def test_relative_folders_count_from_the_database(tmp_path: Path):
    (tmp_path / "build").mkdir()
    database(tmp_path / "build", {"directory": ".", "file": "a.c", "command": "cc -c a.c", "output": "x/a.o"})
    (tmp_path / "link.json").symlink_to(tmp_path / "build/compile_commands.json")
    (command,) = read_compile_commands(tmp_path / "link.json")
    assert isinstance(command, CompileCommand)
    assert (command.directory, command.file) == (tmp_path / "build", tmp_path / "build/a.c")
    assert command.output == tmp_path / "build/x/a.o"


@pytest.mark.parametrize(
    ("words", "output"),
    [
        ("cc -o a.o -c a.c -o b.o", "b.o"),
        ("cc -oa.o", "a.o"),
        ("cc -o", None),
        ("cc -c src/a.c", "a.o"),
        ("cc src/a.c", None),
    ],
)
def test_the_last_output_counts_and_else_the_object_is_named_after_the_source(words: str, output: str | None):
    assert output_of(words.split(), Path("src/a.c")) == output


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("cc -c a.c", "expected a JSON object with directory, file and command, found str"),
        ({"file": "a.c", "command": "cc"}, "directory: expected text, found nothing"),
        ({"directory": "/", "file": 1, "command": "cc"}, "file: expected text, found another kind of value"),
        ({"directory": "/", "file": "a.c"}, "command: expected text, found nothing"),
        (
            {"directory": "/", "file": "a.c", "command": "  "},
            "expected a command with at least one word, found an empty one",
        ),
        (
            {"directory": "/", "file": "a.c", "command": "cc 'a"},
            'expected every quotation mark to be closed, found "\'a"',
        ),
        ({"directory": "/", "file": "a.c", "arguments": "cc"}, "arguments: expected a list of strings"),
        ({"directory": "/", "file": "a.c", "arguments": ["cc", 1]}, "arguments: expected a list of strings"),
        (
            {"directory": "/", "file": "a.c", "arguments": ["cc", "a\0b"]},
            "command: expected text that a command line can hold, found 'a\\x00b'",
        ),
    ],
)
def test_a_malformed_entry_is_named_and_stops_nothing(tmp_path: Path, entry: Any, reason: str):
    fine = {"directory": "/", "file": "a.c", "command": "cc -c a.c"}
    bad, good = read(tmp_path, entry, fine)
    assert bad == MalformedCommand(index=0, reason=reason)
    assert isinstance(good, CompileCommand)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON, found between bytes 0 and 0: parse error: premature EOF; write the database again"),
        ('[{"file": "a"}', "expected JSON, found between bytes 0 and 14: parse error: premature EOF"),
        ('[{"file": "a"}}]', "expected JSON, found between bytes 0 and 16: parse error"),
        ("[] []", "trailing garbage"),
        ('["\udcff"]', "lexical error: invalid bytes in UTF8 string"),
        ("{}", "expected a JSON array of commands, found another value"),
        ('"text"', "expected a JSON array of commands, found another value"),
        ("[" * 100_000, "expected entries nested at most 16 levels deep, found more before byte"),
        ('[{"file": ' + "9" * 5000 + ', "a": {}}]', "expected numbers of less than 1000 digits, found a longer one"),
        (" " * 70_000 + "[1" + "0" * 70_000 + "]", "expected numbers of less than 1000 digits, found a longer one"),
    ],
)
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "compile_commands.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CorpusError, match=r"compile_commands\.json: expected ") as caught:
        list(read_compile_commands(path))
    assert message in str(caught.value)


def test_a_database_that_is_not_there(tmp_path: Path):
    with pytest.raises(CorpusError, match="expected a compilation database, found: No such file or directory; check"):
        list(read_compile_commands(tmp_path / "none.json"))


def test_an_entry_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mlgokit.corpus.importers.compile_commands.ENTRY_BYTES", 1 << 17)
    fine = {"directory": "/", "file": "a.c", "command": "cc " + "x" * 1000}
    assert len(read(tmp_path, *[fine] * 1000)) == 1000
    long = {"directory": "/", "file": "a.c", "command": "cc " + "x" * (1 << 20)}
    with pytest.raises(CorpusError, match="expected entries of at most 131072 bytes, found a longer one at byte "):
        read(tmp_path, fine, long)


def test_memory_does_not_grow_with_the_file(tmp_path: Path):
    path = tmp_path / "compile_commands.json"
    words = "-Isome/folder/of/a/large/project/with/headers/and/sources/in/it " * 65
    entry = json.dumps({"directory": "/", "file": "a.c", "command": f"cc {words}"})
    with path.open("w") as file:
        file.write("[" + ",".join([entry] * 2500) + "]")
    tracemalloc.start()
    count = sum(1 for _ in read_compile_commands(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 2500
    assert path.stat().st_size > 10 << 20
    assert peak < 4 << 20


def test_response_files_of_the_build_are_expanded(tmp_path: Path):
    (tmp_path / "all.rsp").write_text("-DA='x y'\n@inner.rsp -c")
    (tmp_path / "inner.rsp").write_text("-Iinclude a.c -o a.o")
    (command,) = read(tmp_path, {"directory": ".", "file": "a.c", "command": "cc @all.rsp -O2"})
    assert isinstance(command, CompileCommand)
    assert command.arguments == ("cc", "-DA=x y", "-Iinclude", "a.c", "-o", "a.o", "-c", "-O2")
    assert command.output == tmp_path / "a.o"


def test_other_response_files_are_not_opened(tmp_path: Path):
    build = tmp_path / "build"
    build.mkdir()
    (tmp_path / "secret").write_text("-Dsecret")
    (build / "link.rsp").symlink_to(tmp_path / "secret")
    (build / "self.rsp").write_text("@self.rsp")
    names = ("@../secret", f"@{tmp_path}/secret", "@link.rsp", "@none.rsp", "@self.rsp")
    reasons = [
        item.reason
        for item in read(build, *({"directory": ".", "file": "a.c", "command": f"cc {name}"} for name in names))
        if isinstance(item, MalformedCommand)
    ]
    inside = f"expected a response file inside the build folder {build}, found {tmp_path}/secret"
    assert reasons[:3] == [f"{name}: {inside}" for name in names[:3]]
    assert (
        "@none.rsp: expected a response file, found: No such file or directory; Ninja deletes response files"
        in reasons[3]
    )
    assert reasons[4] == "@self.rsp: expected response files nested at most 8 deep, found more"


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1))
def test_splitting_undoes_quoting(words: list[str]):
    assert split_command(shlex.join(words)) == words


@settings(max_examples=60, deadline=None)
@example("\\\n")
@example("a\\\nb \\\n '' \\\n''")
@given(st.text(st.sampled_from("ab \t\n\"'\\-=:"), max_size=30))
def test_words_are_the_shells(text: str):
    done = subprocess.run(["sh", "-c", f"printf '%s\\0' end {text}"], capture_output=True, check=False)
    a_single_command = "\n" not in text.replace("\\\n", "")
    if done.returncode == 0 and a_single_command and not text.endswith("\\"):
        assert split_command(text) == done.stdout.decode().split("\0")[1:-1]
