"""A recorded build as a compilation database and link commands."""

import json
from pathlib import Path
from typing import Any

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import WrappedCall
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.corpus.importers.recorded import recorded_links, write_database

CLANG = Toolchain(major=22, version="22", clang=Path("/l/clang"), clangxx=Path("/l/clang++"))


def call(kind: str, words: str, *, sources: str = "", outputs: str, **facts: Any) -> WrappedCall:
    values: dict[str, Any] = {
        "kind": kind,
        "name": "cc",
        "folder": Path("/b"),
        "words": tuple(words.split()),
        "inputs": tuple(Path("/b", name) for name in sources.split()),
        "sources": tuple(Path("/b", name) for name in sources.split()),
        "outputs": tuple(Path("/b", name) for name in outputs.split()),
        "files": (),
        "code": 0,
        "errors": "",
        "user_seconds": 0.0,
        "wall_seconds": 0.0,
        "record": None,
        "lto_linker": "",
    }
    return WrappedCall(**(values | facts))


def test_each_object_is_an_entry_of_the_last_compilation_that_made_it(tmp_path: Path):
    path = tmp_path / "commands.json"
    calls = [
        call("compile", "-O2 -c a.c -o a.o", sources="a.c", outputs="a.o"),
        call("compile", "-Oz -c a.c -o a.o", sources="a.c", outputs="a.o"),
        call("compile", "-c b.cc c.cc", sources="b.cc c.cc", outputs="b.o c.o", name="g++-12"),
        call("compile", "-c bad.c -o bad.o", sources="bad.c", outputs="bad.o", code=1),
        call("link", "a.o -o tool", outputs="tool"),
        call("both", "-Oz ./one.c sub/two.c -o whole", sources="one.c sub/two.c", outputs="whole"),
    ]

    assert write_database(calls, path, toolchain=CLANG) == 5
    found = [one for one in read_compile_commands(path) if isinstance(one, CompileCommand)]
    assert [(str(one.file), str(one.output)) for one in found] == [
        ("/b/a.c", "/b/a.o"),
        ("/b/b.cc", "/b/b.o"),
        ("/b/c.cc", "/b/c.o"),
        ("/b/one.c", "/b/whole-one.o"),
        ("/b/sub/two.c", "/b/whole-two.o"),
    ]
    assert found[0].arguments == ("/l/clang", "-Oz", "-c", "a.c", "-o", "a.o")
    assert found[1].arguments[0] == "/l/clang++"
    assert len(json.loads(path.read_text())) == 5


def test_links_are_commands_of_objects():
    calls = [
        call("link", "a.o -o tool", outputs="tool", name="c++"),
        call("link", "a.o 'b -o broken", outputs="broken", code=1),
        call("both", "-Oz ./one.c sub/../two.c x.o -lm -o whole", sources="one.c two.c", outputs="whole"),
    ]
    found = recorded_links(calls, toolchain=CLANG)

    assert {str(path): link.command for path, link in found.items()} == {
        "/b/tool": "/l/clang++ a.o -o tool",
        "/b/whole": "/l/clang -Oz /b/whole-one.o /b/whole-two.o x.o -lm -o whole",
    }
    assert {link.folder for link in found.values()} == {Path("/b")}
