"""A recorded build as a compilation database and link commands."""

import dataclasses
import functools
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from mlgokit.compiler.project_calls import LeftOut
from mlgokit.compiler.wrapping import SourceText, WrappedCall, file_state
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.corpus.importers.recorded import recorded_links, write_database
from mlgokit.errors import ReuseError


def call(folder: Path, kind: str, words: str, *, sources: str = "", outputs: str, **facts: Any) -> WrappedCall:
    for name in sources.split():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    values: dict[str, Any] = {
        "kind": kind,
        "name": "cc",
        "program": Path("/l/clang"),
        "folder": folder,
        "words": tuple(words.split()),
        "inputs": tuple(folder / name for name in sources.split()),
        "sources": tuple(folder / name for name in sources.split()),
        "languages": ("c",) * len(sources.split()),
        "outputs": tuple(folder / name for name in outputs.split()),
        "contents": (),
        "texts": (),
        "code": 0,
        "errors": "",
        "user_seconds": 0.0,
        "wall_seconds": 0.0,
        "record": None,
        "lto_linker": "",
    }
    return WrappedCall(**(values | facts))


def test_each_source_is_an_entry_with_its_object(tmp_path: Path):
    path, made = tmp_path / "commands.json", functools.partial(call, tmp_path)
    calls = [
        made("compile", "-Oz -c a.c -o a.o", sources="a.c", outputs="a.o"),
        made("compile", "-c b.cc c.cc", sources="b.cc c.cc", outputs="b.o c.o", program=Path("/l/clang++")),
        made("compile", "-c bad.c -o bad.o", sources="bad.c", outputs="bad.o", code=1, errors="bad.c:1: error: no"),
        made("link", "a.o -o tool", outputs="tool"),
        made("both", "-Oz ./a.c sub/a.c -o whole", sources="a.c sub/a.c", outputs="whole"),
    ]

    written = write_database(calls, path)
    assert (written.entries, written.kept) == (5, 0)
    assert written.left_out == (LeftOut(name="bad.c", reason="it failed: bad.c:1: error: no"),)
    found = [one for one in read_compile_commands(path) if isinstance(one, CompileCommand)]
    assert [(str(one.file), str(one.output)) for one in found] == [
        (f"{tmp_path}/{source}", f"{tmp_path}/{output}")
        for source, output in {
            "a.c": "a.o",
            "b.cc": "b.o",
            "c.cc": "c.o",
        }.items()
    ] + [(f"{tmp_path}/a.c", f"{tmp_path}/whole-a.o"), (f"{tmp_path}/sub/a.c", f"{tmp_path}/whole-a-2.o")]
    assert found[0].arguments == ("/l/clang", "-Oz", "-c", "a.c", "-o", "a.o")
    assert found[1].arguments[0] == "/l/clang++"
    assert len(json.loads(path.read_text())) == 5


def text_of(folder: Path, name: str, *, text: bytes | None, reason: str = "", files: str = "") -> SourceText:
    packed = None if text is None else folder / f"{name}.packed"
    if packed is not None and text is not None:
        packed.write_bytes(zlib.compress(text))
    states = {folder / file: file_state(folder / file) for file in files.split()}
    return SourceText(text=packed, reason=reason, language="c++-cpp-output", is_piped=name == "in", files=states)


def test_what_a_build_removes_or_changes_is_an_entry_with_the_text_that_was_kept(tmp_path: Path):
    path, kept, made = tmp_path / "commands.json", tmp_path / "kept", functools.partial(call, tmp_path)
    names = ("same", "gone", "other", "header", "lost")
    (tmp_path / "gen.h").touch()
    calls = [
        made("compile", f"-Oz -DX -I inc -c {name}.cc -o {name}.o", sources=f"{name}.cc", outputs=f"{name}.o")
        for name in names
    ]
    calls.append(made("compile", "-x c++ -c - -o in.o", outputs="in.o"))
    calls[-1] = dataclasses.replace(calls[-1], sources=(tmp_path / "-",))
    texts = [
        text_of(tmp_path, name, text=name.encode(), files=f"{name}.cc gen.h" if name == "header" else f"{name}.cc")
        for name in names[:4]
    ]
    texts.append(text_of(tmp_path, "lost", text=None, reason="it is read from a pipe", files="lost.cc"))
    texts.append(text_of(tmp_path, "in", text=b"int x;", files="same.cc"))
    calls = [dataclasses.replace(one, texts=(text,)) for one, text in zip(calls, texts, strict=True)]
    for name in ("gone.cc", "gen.h", "lost.cc"):
        (tmp_path / name).unlink()
    (tmp_path / "other.cc").write_text("another one")

    written = write_database(calls, path, kept=kept)
    assert (written.entries, written.kept) == (5, 4)
    reason = "the build has removed it after it was compiled, and its text was not kept: it is read from a pipe"
    assert written.left_out == (LeftOut(name="lost.cc", reason=reason),)
    found = [one for one in read_compile_commands(path) if isinstance(one, CompileCommand)]
    assert [one.file.name for one in found] == ["same.cc", "gone.ii", "other.ii", "header.ii", "in.ii"]
    assert [path.read_text() for path in sorted(kept.glob("*.ii"))] == ["gone", "header", "int x;", "other"]
    assert found[1].arguments == (
        *["/l/clang", "-Oz", "-c", "-x", "c++-cpp-output"], str(kept / "gone.ii"), "-o", str(tmp_path / "gone.o")
    )  # fmt: skip
    # Nothing of an earlier recording stays, and nothing of others goes.
    assert write_database(calls[:1], path, kept=kept).kept == 0
    assert not kept.exists()
    kept.mkdir()
    with pytest.raises(
        ReuseError, match="kept: expected the folder where mlgokit keeps copies of sources, found another"
    ):
        write_database(calls, path, kept=kept)


def test_links_are_commands_of_objects(tmp_path: Path):
    made = functools.partial(call, tmp_path)
    calls = [
        made("link", "a.o -o tool", outputs="tool", program=Path("/l/clang++")),
        made("link", "a.o 'b -o broken", outputs="broken", code=1),
        made("both", "-Oz ./one.c sub/../two.c x.o -lm -o whole", sources="one.c two.c", outputs="whole"),
        made("both", "-x c - -o piped", outputs="piped"),
    ]
    calls[-1] = dataclasses.replace(calls[-1], sources=(tmp_path / "-",))
    found = recorded_links(calls)

    assert {str(path): link.command for path, link in found.items()} == {
        f"{tmp_path}/tool": "/l/clang++ a.o -o tool",
        f"{tmp_path}/whole": f"/l/clang -Oz {tmp_path}/whole-one.o {tmp_path}/whole-two.o x.o -lm -o whole",
        f"{tmp_path}/piped": f"/l/clang {tmp_path}/piped--.o -o piped",
    }
    assert {link.folder for link in found.values()} == {tmp_path}
