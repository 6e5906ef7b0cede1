"""Every command that changes or reads a folder, while another process has it: a sentence, and nothing is changed."""

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from mlgokit.builds.site import BuildCommands
from mlgokit.cli import COMMANDS, run, run_command
from mlgokit.commands.options import COMPILER
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.database import import_commands
from mlgokit.corpus.options.override import fill_override
from mlgokit.errors import BusyError
from mlgokit.locks import LOCK_NAME

BUSY = "expected a folder that no other process uses, found one that is used; wait until it ends, or name another"


@contextlib.contextmanager
def held(place: Path, kind: int = fcntl.LOCK_EX) -> Generator[None]:
    """A lock on a file, as another process would have it."""
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus of one module in ``all/corpus``, and objects and a database beside it."""
    folder = tmp_path / "all" / "corpus"
    folder.mkdir(parents=True)
    (folder / "a.bc").write_bytes(b"BC\xc0\xde")
    (folder / "a.cmd").write_bytes(b"-cc1\0-Oz\0")
    (folder / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": ["a"]}))
    entry = {"directory": str(tmp_path), "file": "a.c", "arguments": ["cc", "-Oz", "-c", "a.c"]}
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    (tmp_path / "a.c").write_text("int a;\n")
    return folder


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


Given = Callable[[Path], dict[str, Any]]
CHANGING: dict[str, Given] = {
    "corpus import --bitcode": lambda corpus: {"bitcode": corpus.parent, "corpus": corpus, "options": "-cc1 -Oz"},
    "corpus import --thinlto": lambda corpus: {"thinlto": corpus.parent, "corpus": corpus},
    "corpus import --objects": lambda corpus: {"objects": corpus.parent, "corpus": corpus},
    "corpus extract": lambda corpus: {"corpus": corpus},
    "corpus fetch": lambda corpus: {"folder": corpus},
    "corpus combine": lambda corpus: {"root": corpus.parent, "corpus": corpus.parent / "joined"},
    "corpus link": lambda corpus: {
        "modules": corpus.parent / "other", "corpus": corpus, "compiler": dataclasses.replace(COMPILER, sandbox="off"),
    },
    "corpus functions": lambda corpus: {"modules": corpus.parent / "other", "corpus": corpus},
    "corpus group": lambda corpus: {"functions": corpus.parent / "other", "corpus": corpus},
    "corpus split": lambda corpus: {"corpus": corpus},
    "trace": lambda corpus: {"corpus": corpus.parent / "other", "output": corpus},
    "train": lambda corpus: {"corpus": corpus.parent / "other", "output": corpus},
    "advise": lambda corpus: {"built": BuildCommands(build=("true",)), "folder": corpus},
    "tune": lambda corpus: {"corpus": corpus.parent / "other", "folder": corpus},
    "tune --build": lambda corpus: {"built": BuildCommands(build=("true",)), "folder": corpus},
    "tune --continue": lambda corpus: {"corpus": corpus.parent / "other", "folder": corpus, "go_on": True},
    "vocab": lambda corpus: {"traces": corpus.parent / "other", "output": corpus},
    "bench": lambda corpus: {"folder": corpus},
    "export llvm": lambda corpus: {"policies": (corpus.parent / "other",), "output": corpus},
    "export tflite": lambda corpus: {"policy": corpus.parent / "other", "output": corpus},
    "export tosa": lambda corpus: {"policy": corpus.parent / "other", "output": corpus},
    "export replay": lambda corpus: {
        "plugin": corpus.parent / "other", "compile_commands": corpus.parent / "other", "output": corpus,
    },
    "quickstart": lambda corpus: {"folder": corpus},
}  # fmt: skip
READING: dict[str, Given] = {
    "corpus info": lambda corpus: {"corpus": corpus},
    "corpus verify": lambda corpus: {"corpus": corpus, "objects": corpus},
    "evaluate": lambda corpus: {"plain": True, "corpus": corpus},
    "explain": lambda corpus: {"module": "a", "policy": (":never",), "corpus": corpus},
    "trace": lambda corpus: {"corpus": corpus, "output": corpus.parent / "trace"},
    "train": lambda corpus: {"corpus": corpus, "output": corpus.parent / "train"},
}


def call(name: str, **given: Any) -> Any:
    """Run the command of a name, which may have an option behind it."""
    return run_command(COMMANDS[name.partition(" --")[0]].configuration(**given))


@pytest.mark.parametrize("name", CHANGING)
def test_a_folder_that_another_process_reads_is_not_changed(name: str, corpus: Path):
    (corpus.parent / "joined").mkdir()
    place = corpus.parent / "joined" if name == "corpus combine" else corpus
    before = files(corpus.parent)
    with held(place / LOCK_NAME, fcntl.LOCK_SH), pytest.raises(BusyError) as caught:
        call(name, **CHANGING[name](corpus))
    assert str(caught.value) == f"{place}: {BUSY}"
    (place / LOCK_NAME).unlink()
    assert files(corpus.parent) == before


@pytest.mark.parametrize("name", READING)
def test_a_corpus_that_another_process_changes_is_not_read(name: str, corpus: Path):
    with held(corpus / LOCK_NAME), pytest.raises(BusyError) as caught:
        call(name, **READING[name](corpus))
    assert str(caught.value) == f"{corpus}: {BUSY}"
    assert sorted(corpus.parent.iterdir()) == [corpus]


def test_corpora_that_are_changed_are_not_joined(corpus: Path):
    with held(corpus / LOCK_NAME), pytest.raises(BusyError, match=BUSY):
        call("corpus combine", root=corpus.parent)
    assert sorted(corpus.parent.iterdir()) == [corpus]


def test_an_import_leaves_alone_what_another_process_uses(corpus: Path):
    toolchain = Toolchain(major=22, version="22", clang=Path("/absent/clang"), clangxx=Path("/absent/clang++"))
    with held(corpus / LOCK_NAME), pytest.raises(BusyError, match=BUSY):
        import_commands(corpus.parents[1] / "compile_commands.json", toolchain=toolchain, corpus_folder=corpus)
    with held(corpus / LOCK_NAME), pytest.raises(BusyError, match=BUSY):
        fill_override(corpus, ["-cc1"], build=corpus)


@pytest.mark.parametrize("name", ["tune", "corpus record"])
def test_one_output_is_made_by_one(name: str, corpus: Path):
    output = corpus.parent / "tuned.so"
    given = {"corpus": corpus, "folder": corpus.parent / "tune"} if name == "tune" else {"command": ("true",)}
    with held(corpus.parent / f".tuned.so{LOCK_NAME}"), pytest.raises(BusyError) as caught:
        call(name, output=output, **given)
    assert str(caught.value) == f"{output}: {BUSY.replace('a folder', 'an output')}"


def test_the_command_line_ends_with_7(corpus: Path, capsys: pytest.CaptureFixture[str]):
    with held(corpus / LOCK_NAME):
        assert run(COMMANDS["corpus info"].configuration(corpus=corpus)) == 7
    assert capsys.readouterr().err == f"mlgokit: {corpus}: {BUSY}\n"


def test_each_command_is_thought_of():
    """What is in none of these lists locks nothing: it writes one file whole, or nothing, or runs the user's build."""
    asked = {name.partition(" --")[0] for name in (*CHANGING, *READING)} | {"corpus record", "corpus override", "check"}
    assert COMMANDS.keys() - asked == {
        "build", "compat", "completion", "doctor", "importance", "export plugin", "export policy", "import-policy",
        "init", "report", "size", "worker",
    }  # fmt: skip
