import json
from pathlib import Path
from typing import Any

import pytest

from mlgokit.corpus.importers.compile_commands import CompileCommand, MalformedCommand, output_of
from mlgokit.corpus.importers.object_lists import (
    ObjectFile,
    module_name,
    objects_in_aquery,
    objects_in_folder,
    objects_in_parameters,
    objects_of_commands,
)
from mlgokit.errors import CorpusError
from mlgokit.manifest import sign_new

BASE = Path("/some/path")


def command(
    *arguments: str, directory: str = "/b", file: str = "/src/a.cc", output: str | None = None
) -> CompileCommand:
    said = output or output_of(arguments, Path(file))
    return CompileCommand(
        directory=Path(directory),
        file=Path(file),
        arguments=arguments,
        output=Path(directory, said) if said else None,
    )


def names(objects: Any) -> list[str]:
    return [item.name for item in objects]


def test_a_folder_gives_its_objects_in_order(tmp_path: Path):
    for name in ("b/z.o", "b/a.obj", "c.o", "c.txt", "a/x.o.bc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert list(objects_in_folder(tmp_path)) == [
        ObjectFile(name=name, path=tmp_path / name, base=tmp_path) for name in ("c.o", "b/a.obj", "b/z.o")
    ]


@pytest.mark.parametrize(("kind", "found"), [("nowhere", "nothing"), ("file", "a file")])
def test_a_path_that_is_no_folder_is_refused(tmp_path: Path, kind: str, found: str):
    (tmp_path / "file").touch()
    with pytest.raises(CorpusError, match=f"{kind}: expected a folder, found {found}; give the folder of the build"):
        list(objects_in_folder(tmp_path / kind))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["-o", "output/exe", "lib/obj1.o", "somelib.a", "-W,blah", "lib/dir/obj2.o"],
            ["lib/obj1.o", "lib/dir/obj2.o"],
        ),
        (["-o exe.o", "  a.o  ", '"with space.o"', "--output=b.o", "c.obj"], ["a.o", "with space.o", "c.obj"]),
        (["a.o", "b", "-lc", ""], ["a.o", "b"]),
        (["-o"], []),
        (['"unclosed.o', "--output", "x.o"], ['"unclosed.o']),
        (["/some/path/in.o", "../out.o", "-oexe", "--output=e"], ["in.o", "some/out.o"]),
    ],
)
def test_a_linkers_parameters(tmp_path: Path, lines: list[str], expected: list[str]):
    (tmp_path / "exe.params").write_text("\n".join(lines))
    assert names(objects_in_parameters(tmp_path / "exe.params", object_base=BASE)) == expected


def test_parameters_are_read_whatever_their_bytes(tmp_path: Path):
    (tmp_path / "p").write_bytes(b"-o\nx\n\xff\x00.o\n" + b"y" * 3_000_000)
    assert names(objects_in_parameters(tmp_path / "p", object_base=BASE)) == ["\udcff\0.o"]
    with pytest.raises(CorpusError, match="nowhere: expected a file with a linker's parameters, found: No such file"):
        list(objects_in_parameters(tmp_path / "nowhere"))


def aquery(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "aquery.json"
    path.write_text(json.dumps(value))
    return path


def test_bazels_last_link_counts(tmp_path: Path):
    actions = [
        {"mnemonic": "CppCompile", "arguments": ["-o", "c.o"]},
        {"mnemonic": "CppLink", "arguments": ["-o", "first", "no.o"]},
        {"mnemonic": "CppLink", "arguments": ["clang", "-o", "bin/exe", "pkg/_objs/a.pic.o", "lib.a", "pkg/b.o"]},
        {"mnemonic": "CppArchive", "arguments": ["x.o"]},
    ]
    found = objects_in_aquery(aquery(tmp_path, {"artifacts": [], "actions": actions}), object_base=BASE)
    assert names(found) == ["pkg/_objs/a.pic.o", "pkg/b.o"]


def test_bazels_parameter_files_are_looked_into(tmp_path: Path):
    link = {
        "mnemonic": "CppLink",
        "arguments": ["clang", "@bin/exe-2.params"],
        "paramFiles": [{"execPath": "bin/exe-2.params", "arguments": ["-o", "bin/exe", "a.o"]}],
    }
    assert names(objects_in_aquery(aquery(tmp_path, {"actions": [link]}), object_base=BASE)) == ["a.o"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "expected an action of kind CppLink, found none; query the target of a program, as JSON"),
        ({"actions": [3, {"mnemonic": "CppLink", "arguments": 3}]}, "expected arguments that are a list of strings"),
        ({"actions": [{"mnemonic": "CppLink", "paramFiles": [3]}]}, "expected arguments that are a list of strings"),
    ],
)
def test_other_json_is_no_aquery(tmp_path: Path, value: Any, message: str):
    with pytest.raises(CorpusError, match=message):
        list(objects_in_aquery(aquery(tmp_path, value)))


@pytest.mark.parametrize("text", ["", "{", '{"actions": [', "\xff", "[" * 100_000, '{"actions": [1e999999999, }]'])
def test_text_that_is_no_json(tmp_path: Path, text: str):
    (tmp_path / "a").write_text(text, encoding="latin-1")
    with pytest.raises(CorpusError, match=f"{tmp_path}/a: expected "):
        list(objects_in_aquery(tmp_path / "a"))


def test_commands_say_where_their_objects_are():
    found = list(
        objects_of_commands(
            [
                command("cc", "-c", "a.cc", "-o", "lib/bar.o"),
                command("cc", "-c", "a.cc", "-olib/joined.o"),
                command("cc", "-c", "a.cc", "-o", "/b/absolute.o"),
                command("cc", "-c", "a.cc", "-o", "../other/up.o"),
                command("cc", "-c", "a.cc"),
                command("cc", "a.cc", output="/b/said.o"),
            ]
        )
    )
    assert names(found) == ["lib/bar.o", "lib/joined.o", "absolute.o", "other/up.o", "a.o", "said.o"]
    assert found[0] == ObjectFile(name="lib/bar.o", path=Path("/b/lib/bar.o"), base=Path("/b"))


def test_commands_without_an_object_are_in_trouble():
    found = list(
        objects_of_commands([command("cc", "-E", "a.cc"), MalformedCommand(index=7, reason="expected a directory")])
    )
    assert [(item.name, item.trouble) for item in found] == [
        ("src/a.cc", "expected a command with -o or -c, found one that makes no object"),
        ("entry 7", "expected a directory"),
    ]


def test_one_base_keeps_objects_of_several_folders_apart():
    commands = [command("cc", "-c", "-o", "a.o", directory=f"/top/{folder}") for folder in ("x", "y")]
    assert names(objects_of_commands(commands)) == ["a.o", "a.o"]
    assert names(objects_of_commands(commands, object_base=Path("/top"))) == ["x/a.o", "y/a.o"]
    commands += [command("cc", "-c", "-o", "b.o", directory="/top/y"), commands[0]]
    # The last one is no other object, which is told where modules are made.
    assert names(objects_of_commands(commands, build_folder=Path("/top"))) == ["a.o", "y/a.o", "b.o", "a.o"]


@pytest.mark.parametrize("path", ["../../../../etc/passwd", "/etc/passwd", "a/../../../x", "..", "/", "//x", "./../x"])
@pytest.mark.parametrize("base", ["/b/c", "/", "b", ""])
def test_no_name_leaves_the_corpus(path: str, base: str):
    name = module_name(path, base)
    assert not name.startswith("/")
    assert ".." not in name.split("/")


def test_what_mlgokit_made_is_no_part_of_a_build(tmp_path: Path):
    sign_new(tmp_path / "tune", "tuning")
    for name in ("tune/proof/a.o", "lib/b.o"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"")
    assert [one.name for one in objects_in_folder(tmp_path)] == ["lib/b.o"]
    assert [one.name for one in objects_in_folder(tmp_path / "tune")] == ["proof/a.o"]
