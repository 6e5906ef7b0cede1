"""``mlgokit corpus import`` of a linker's parameters and of a bazel build's actions, as a user calls it."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlgokit.cli import main
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError

OPTIONS = b"-cc1\0-triple\0x86_64-pc-linux-gnu\0-O2\0"


@pytest.fixture
def build(tmp_path: Path, made: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An execution root with three objects, one of them without bitcode."""
    for name in ("lib/a.o", "lib/b.o", "lib/asm.o"):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = {".text": b"\x90", ".llvmbc": b"BC\xc0\xde" + name.encode(), ".llvmcmd": OPTIONS}
        path.write_bytes(made.make_elf({".text": b"\x90"} if "asm" in name else parts))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as ended:
        main(["--json", "corpus", "import", *words, "--object-base", "root", "--corpus", "corpus", "--project", "p"])
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    return json.loads(out)


def put(name: str, value: object) -> None:
    Path(name).write_text(value if isinstance(value, str) else json.dumps(value))


def names(folder: Path) -> list[str]:
    return [module.name for module in load_corpus(folder / "corpus").modules]


def test_a_linkers_parameters(build: Path, capsys: pytest.CaptureFixture[str]):
    put("link.params", "-o\nbin/prog\n-Wl,-z,now\nlib/a.o\nlib/asm.o\n-lm\nlib/b.o\nlib/gone.o\n")

    found = imported(capsys, "--params", "link.params")

    assert (found["modules"], found["failures"]) == (2, 2)
    assert "found none (objects of assembly have none)" in found["reasons"]["lib/asm.o"]
    assert found["reasons"]["lib/gone.o"] == "expected an object file, found no such file; build it first"
    assert names(build) == ["lib/a.o", "lib/b.o"]


def test_a_bazel_builds_actions(build: Path, capsys: pytest.CaptureFixture[str]):
    link = {
        "mnemonic": "CppLink",
        "arguments": ["clang++", "@bin/prog-2.params"],
        "paramFiles": [{"execPath": "bin/prog-2.params", "arguments": ["-o", "bin/prog", "lib/b.o", "lib/a.o", "-lm"]}],
    }
    compile_action = {"mnemonic": "CppCompile", "arguments": ["clang++", "-c", "lib/a.cc", "-o", "lib/a.o"]}
    put("actions.json", {"artifacts": [{"id": 1}], "actions": [compile_action, link], "targets": []})

    found = imported(capsys, "--aquery", "actions.json")

    assert (found["modules"], found["failures"]) == (2, 0)
    assert sorted(names(build)) == ["lib/a.o", "lib/b.o"]
    filtered = imported(capsys, "--aquery", "actions.json", "--command-filter", "^-O2$")
    assert filtered["modules"] == 2


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--aquery", "{", "expected JSON"),
        ("--aquery", '{"actions": []}', "list: expected an action of kind CppLink, found none"),
        ("--params", "-o\nprog\n", "expected at least one module, found none among 0 entries"),
    ],
)
def test_an_invalid_list_is_one_sentence(
    build: Path, option: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
):
    put("list", text)
    with pytest.raises(SystemExit) as ended:
        main(["corpus", "import", option, "list", "--object-base", "root", "--corpus", "corpus"])
    assert ended.value.code == 4
    assert message in capsys.readouterr().err
    assert not (build / "corpus" / "corpus_description.json").exists()


@pytest.mark.parametrize(
    ("options", "override", "compiled"),
    [
        (["--options=-O3 -c"], ["-O3", "-c"], ("-cc1", "-O3", "-vectorize-loops")),
        (["--options=-Oz"], ["-Oz"], ("-cc1", "-Oz")),
        ([], [], None),
    ],
)
def test_the_options_of_bitcode_are_written_as_make_corpus_does(
    build: Path,
    options: list[str],
    override: list[str],
    compiled: tuple[str, ...] | None,
    capsys: pytest.CaptureFixture[str],
):
    (build / "bitcode/nested").mkdir(parents=True)
    (build / "bitcode/nested/a.bc").write_bytes(b"BC\xc0\xde")
    with pytest.raises(SystemExit) as ended:
        main(["--json", "corpus", "import", "--bitcode", "bitcode", "--corpus", "corpus", *options])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert ("next" in found) == (compiled is None)
    assert json.loads((build / "corpus/corpus_description.json").read_text()) == {
        "global_command_override": override,
        "has_thinlto": False,
        "modules": ["nested/a"],
    }
    if compiled is None:
        with pytest.raises(CorpusError, match=r"expected the options for clang -cc1, found \[\]; fill them in"):
            load_corpus(build / "corpus")
    else:
        assert load_corpus(build / "corpus").modules[0].command_line[: len(compiled)] == compiled


def test_objects_of_a_makefiles_build_have_the_names_of_extract_ir(
    build: Path, made: ModuleType, capsys: pytest.CaptureFixture[str]
):
    entries: list[dict[str, str]] = []
    for folder, name in (("", "lib.dir/a.o"), ("util", "tool.dir/b.o"), ("test", "tool.dir/b.o")):
        path = build / "root" / folder / "CMakeFiles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.make_elf({".llvmbc": b"BC\xc0\xde" + folder.encode(), ".llvmcmd": OPTIONS}))
        directory = str(build / "root" / folder)
        entries.append({"directory": directory, "file": "x.c", "command": f"cc -c x.c -o CMakeFiles/{name}"})
    put("root/compile_commands.json", entries)
    with pytest.raises(SystemExit) as ended:
        main(["corpus", "import", "--compile-commands", "root/compile_commands.json", "--embedded"])
    assert ended.value.code == 0, capsys.readouterr().err
    found = load_corpus(build / "corpus").modules
    own = ["CMakeFiles/lib.dir/a.o", "CMakeFiles/tool.dir/b.o"]
    assert [module.name for module in found] == [*own, "test/CMakeFiles/tool.dir/b.o"]
    assert {module.project for module in found} == {"root"}
