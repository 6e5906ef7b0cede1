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
from mlgokit.commands.advise import Advise
from mlgokit.commands.bench import Bench
from mlgokit.commands.build import Build
from mlgokit.commands.check import Check
from mlgokit.commands.compat import Compat
from mlgokit.commands.completion import Completion
from mlgokit.commands.corpus.combine import Combine
from mlgokit.commands.corpus.extract import Extract
from mlgokit.commands.corpus.fetch import Fetch
from mlgokit.commands.corpus.functions import Functions
from mlgokit.commands.corpus.group import GroupFunctions
from mlgokit.commands.corpus.import_build import Import
from mlgokit.commands.corpus.info import Info
from mlgokit.commands.corpus.link import Link
from mlgokit.commands.corpus.override import Override
from mlgokit.commands.corpus.record import Record
from mlgokit.commands.corpus.split import Split
from mlgokit.commands.corpus.verify import Verify
from mlgokit.commands.doctor import Doctor
from mlgokit.commands.evaluate import Evaluate
from mlgokit.commands.explain import Explain
from mlgokit.commands.export import Export
from mlgokit.commands.export_llvm import ExportLlvm
from mlgokit.commands.export_policy import ExportPolicy
from mlgokit.commands.export_replay import ExportReplay
from mlgokit.commands.export_tflite import ExportTflite
from mlgokit.commands.export_tosa import ExportTosa
from mlgokit.commands.import_policy import ImportPolicy
from mlgokit.commands.importance import Importance
from mlgokit.commands.init import Init
from mlgokit.commands.options import COMPILER
from mlgokit.commands.quickstart import Quickstart
from mlgokit.commands.report import MakeReport
from mlgokit.commands.size import Size
from mlgokit.commands.trace import Trace
from mlgokit.commands.train import Train
from mlgokit.commands.tune_options import Tune
from mlgokit.commands.vocab import Vocab
from mlgokit.commands.worker import Worker
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


CHANGING: dict[str, Callable[[Path], Any]] = {
    "corpus import --bitcode": lambda corpus: Import(bitcode=corpus.parent, corpus=corpus, options="-cc1 -Oz"),
    "corpus import --thinlto": lambda corpus: Import(thinlto=corpus.parent, corpus=corpus),
    "corpus import --objects": lambda corpus: Import(objects=corpus.parent, corpus=corpus),
    "corpus extract": lambda corpus: Extract(corpus=corpus),
    "corpus fetch": lambda corpus: Fetch(folder=corpus),
    "corpus combine": lambda corpus: Combine(root=corpus.parent, corpus=corpus.parent / "joined"),
    "corpus link": lambda corpus: Link(
        modules=corpus.parent / "other", corpus=corpus, compiler=dataclasses.replace(COMPILER, sandbox="off")
    ),
    "corpus functions": lambda corpus: Functions(modules=corpus.parent / "other", corpus=corpus),
    "corpus group": lambda corpus: GroupFunctions(functions=corpus.parent / "other", corpus=corpus),
    "corpus split": lambda corpus: Split(corpus=corpus),
    "trace": lambda corpus: Trace(corpus=corpus.parent / "other", output=corpus),
    "train": lambda corpus: Train(corpus=corpus.parent / "other", output=corpus),
    "advise": lambda corpus: Advise(built=BuildCommands(build=("true",)), folder=corpus),
    "tune": lambda corpus: Tune(corpus=corpus.parent / "other", folder=corpus),
    "tune --build": lambda corpus: Tune(built=BuildCommands(build=("true",)), folder=corpus),
    "tune --continue": lambda corpus: Tune(corpus=corpus.parent / "other", folder=corpus, go_on=True),
    "vocab": lambda corpus: Vocab(traces=corpus.parent / "other", output=corpus),
    "bench": lambda corpus: Bench(folder=corpus),
    "export llvm": lambda corpus: ExportLlvm(policies=(corpus.parent / "other",), output=corpus),
    "export tflite": lambda corpus: ExportTflite(policy=corpus.parent / "other", output=corpus),
    "export tosa": lambda corpus: ExportTosa(policy=corpus.parent / "other", output=corpus),
    "export replay": lambda corpus: ExportReplay(
        plugin=corpus.parent / "other", compile_commands=corpus.parent / "other", output=corpus
    ),
    "quickstart": lambda corpus: Quickstart(folder=corpus),
}
READING: dict[str, Callable[[Path], Any]] = {
    "corpus info": lambda corpus: Info(corpus=corpus),
    "corpus verify": lambda corpus: Verify(corpus=corpus, objects=corpus),
    "evaluate": lambda corpus: Evaluate(plain=True, corpus=corpus),
    "explain": lambda corpus: Explain(module="a", policy=(":never",), corpus=corpus),
    "trace": lambda corpus: Trace(corpus=corpus, output=corpus.parent / "trace"),
    "train": lambda corpus: Train(corpus=corpus, output=corpus.parent / "train"),
}


@pytest.mark.parametrize("name", CHANGING)
def test_a_folder_that_another_process_reads_is_not_changed(name: str, corpus: Path):
    (corpus.parent / "joined").mkdir()
    place = corpus.parent / "joined" if name == "corpus combine" else corpus
    before = files(corpus.parent)
    with held(place / LOCK_NAME, fcntl.LOCK_SH), pytest.raises(BusyError) as caught:
        run_command(CHANGING[name](corpus))
    assert str(caught.value) == f"{place}: {BUSY}"
    (place / LOCK_NAME).unlink()
    assert files(corpus.parent) == before


@pytest.mark.parametrize("name", READING)
def test_a_corpus_that_another_process_changes_is_not_read(name: str, corpus: Path):
    with held(corpus / LOCK_NAME), pytest.raises(BusyError) as caught:
        run_command(READING[name](corpus))
    assert str(caught.value) == f"{corpus}: {BUSY}"
    assert sorted(corpus.parent.iterdir()) == [corpus]


def test_corpora_that_are_changed_are_not_joined(corpus: Path):
    with held(corpus / LOCK_NAME), pytest.raises(BusyError, match=BUSY):
        run_command(Combine(root=corpus.parent))
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
    tune = Tune(corpus=corpus, folder=corpus.parent / "tune", output=output)
    configuration = tune if name == "tune" else Record(command=("true",), output=output)
    with held(corpus.parent / f".tuned.so{LOCK_NAME}"), pytest.raises(BusyError) as caught:
        run_command(configuration)
    assert str(caught.value) == f"{output}: {BUSY.replace('a folder', 'an output')}"


def test_the_command_line_ends_with_7(corpus: Path, capsys: pytest.CaptureFixture[str]):
    with held(corpus / LOCK_NAME):
        assert run(Info(corpus=corpus)) == 7
    assert capsys.readouterr().err == f"mlgokit: {corpus}: {BUSY}\n"


def test_each_command_is_thought_of():
    """What is in none of these lists locks nothing: it writes one file whole, or nothing, or runs the user's build."""
    asked = {type(make(Path())) for make in (*CHANGING.values(), *READING.values())} | {Record, Override, Check}
    assert {command.configuration for command in COMMANDS.values()} - asked == {
        Build,
        Compat,
        Completion,
        Doctor,
        Importance,
        Export,
        ExportPolicy,
        ImportPolicy,
        Init,
        MakeReport,
        Size,
        Worker,
    }
