"""Command lines of others against a real clang: nothing that they name is loaded, started or written.

Each test has the input with which a hostile reader ran code, or wrote where he liked.
"""

import contextlib
import importlib
import json
import re
import shlex
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.options.parse import parse_options
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.importers.database import import_commands
from mlgokit.corpus.layout import encode_command_line
from mlgokit.corpus.options.override import link_options
from mlgokit.corpus.sources.extract import extract_projects
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.errors import CorpusError
from mlgokit.evaluation.program import compare_program

pytestmark = pytest.mark.llvm

SOURCE = "int twice(int x) { for (int i = 0; i < 9; i++) x += i * x; return x; }\n"
CANARY = f"""
#include <fcntl.h>
__attribute__((constructor)) static void loaded(void) {{ open("{"c" * 300}", O_CREAT | O_WRONLY, 0600); }}
"""
"""Its path is put into the library: that is compiled once, and each test has a canary of its own."""
LISTED = """
[[project]]
name = "p"
language = "c"
standard = "c17"
archive = { registry = "pypi", package = "p", version = "1", file = "p-1.tar.gz", sha256 = "DIGEST" }
root = "p-1"
options = OPTIONS
sources = ["*.c"]
license = "MIT"
"""


@contextlib.contextmanager
def forked(toolchain: Toolchain) -> Generator[None]:
    forking = importlib.import_module("forked_clang")
    with forking.forked_clang(toolchain) as run, mock.patch.object(process, "run", run):
        yield


def run(*argv: object) -> None:
    done = process.run([str(word) for word in argv], timeout_seconds=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def library(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library that leaves a canary, where nobody looks for it."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "canary.c").write_text(CANARY)
    run(toolchain.clang, "-shared", "-fPIC", folder / "canary.c", "-o", folder / "evil.so")
    return (folder / "evil.so").read_bytes()


@pytest.fixture
def build(library: bytes, tmp_path: Path) -> Path:
    """A build folder with a library and programs that leave a canary, and something to overwrite."""
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "a.c").write_text(SOURCE)
    assert library.count(b"c" * 300) == 1
    (folder / "evil.so").write_bytes(library.replace(b"c" * 300, bytes(tmp_path / "canary").ljust(300, b"\0")))
    (folder / "evil.so").chmod(0o755)
    for name in ("nvptx-arch", "amdgpu-arch", "offload-arch"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {shlex.quote(str(tmp_path / 'canary'))}\n")
        (folder / name).chmod(0o755)
    (folder / "precious").write_text("precious\n")
    return folder


def untouched(build: Path, *, others: tuple[str, ...] = ()) -> None:
    assert not (build.parent / "canary").exists()
    assert (build / "precious").read_text() == "precious\n"
    names = {"a.c", "evil.so", "precious", "nvptx-arch", "amdgpu-arch", "offload-arch", "compile_commands.json"}
    assert {path.name for path in build.iterdir()} <= names | set(others)


def imported(build: Path, toolchain: Toolchain, options: str) -> dict[str, str]:
    """What is said about a command with these options; a good one stands beside it."""
    entries = [
        {"directory": str(build), "file": "a.c", "command": f"clang {options} -c a.c -o evil.o"},
        {"directory": str(build), "file": "a.c", "command": "clang -O2 -c a.c -o good.o"},
    ]
    (build / "compile_commands.json").write_text(json.dumps(entries))
    folder = build.parent / "corpus"
    import_commands(build / "compile_commands.json", toolchain=toolchain, corpus_folder=folder, project="p")
    corpus = load_corpus(folder)
    for module in corpus.modules:
        assert ClangCompiler(toolchain=toolchain).compile(module).sizes is not None
    return {failure.name: failure.reason for failure in (*corpus.failures, *corpus.missing)}


def test_the_library_leaves_a_canary_where_it_is_loaded(build: Path, toolchain: Toolchain):
    words = [toolchain.clang, f"-fplugin={build / 'evil.so'}", "-c", build / "a.c", "-o", build / "a.o"]
    process.run([str(word) for word in words], timeout_seconds=60)
    assert (build.parent / "canary").exists()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("-O2 -fbogus-x -I -fbogus-x -I -fplugin=./evil.so", "expected a value of -I that does not begin with - or @"),
        ("-O2 -Xclang -diagnostic-log-file -Xclang precious", "found -diagnostic-log-file precious"),
        ("-O2 -Xclang -stack-usage-file -Xclang precious", "found -stack-usage-file precious"),
        ("-O2 -Xclang -dependency-file -Xclang precious -Xclang -MT -Xclang a", "found -dependency-file precious"),
        ("-O2 -Xclang -stats-file=precious", "found -stats-file=precious"),
        ("-O2 -mllvm -polly -mllvm -polly-export", "found -mllvm -polly"),
        ("-O2 -Wp,-dependency-file,precious", "found -dependency-file precious"),
        ("-O2 -Xpreprocessor -diagnostic-log-file -Xpreprocessor precious", "found -diagnostic-log-file precious"),
        ("-O2 -mllvm -load=./evil.so", "found -mllvm -load"),
        ("-O2 -Xclang -I -Xclang -Xclang -Xclang ./evil.so", "found -I -Xclang"),
    ],
)
def test_a_database_runs_and_writes_nothing(build: Path, toolchain: Toolchain, options: str, found: str):
    reasons = imported(build, toolchain, options)
    untouched(build)
    assert list(reasons) == ["p/evil.o"]
    assert found in reasons["p/evil.o"]


@pytest.mark.parametrize(
    "options",
    [
        "-O2 -fplugin=./evil.so -fpass-plugin=./evil.so -Xclang -load -Xclang ./evil.so",
        "-O2 -fopenmp -fopenmp-targets=nvptx64 --offload-arch=native",
        "-O2 -fopenmp --offload-arch=native -B.",
        "-O2 --target=amdgcn-amd-amdhsa -mcpu=native --amdgpu-arch-tool=./amdgpu-arch",
        "-O2 -gen-reproducer=always -Xarch_host -fplugin=./evil.so",
        "-O2 -Xclang -fmodules-cache-path=precious -fmodules",
        "-O2 -MD -MF precious -MJ precious -ftime-trace=precious -save-temps",
        "-O2 -- -fplugin=./evil.so",
        "-O2 -Xclang -I -Xclang -load -Xclang ./evil.so",
    ],
)
def test_what_a_database_may_not_have_is_left_out(build: Path, toolchain: Toolchain, options: str):
    """Or the module fails, as one for another kind of device does."""
    imported(build, toolchain, options)
    untouched(build)


def a_corpus(folder: Path, toolchain: Toolchain, lines: dict[str, tuple[str, ...]]) -> None:
    (folder / "a.c").write_text(SOURCE)
    for name, words in lines.items():
        own = ["-O2", "-disable-llvm-passes", "-emit-llvm-bc", "-o", str(folder / f"{name}.bc"), str(folder / "a.c")]
        assert process.run(Cc1Line(toolchain.clang, own=own), timeout_seconds=60).returncode == 0
        (folder / f"{name}.cmd").write_bytes(encode_command_line(("-cc1", "-O2", *words)))
    (folder / "a.c").unlink()
    description = {"has_thinlto": False, "modules": list(lines)}
    (folder / "corpus_description.json").write_text(json.dumps(description))


def compiled(corpus: Corpus, toolchain: Toolchain) -> None:
    for module in corpus.modules:
        assert ClangCompiler(toolchain=toolchain).compile(module).sizes is not None


def test_a_module_named_like_an_option_is_refused(build: Path, toolchain: Toolchain, tmp_path: Path):
    corpus = tmp_path / "corpus"
    (corpus / "-fpass-plugin=.").mkdir(parents=True)
    (corpus / "x.so.bc").write_bytes((build / "evil.so").read_bytes())
    a_corpus(corpus, toolchain, {"-fpass-plugin=./x.so": (), "good": ()})
    with contextlib.chdir(corpus):
        with pytest.raises(CorpusError, match="expected names of modules that clang cannot take for options"):
            compiled(load_corpus(Path()), toolchain)
        a_corpus(corpus, toolchain, {"good": ()})
        compiled(load_corpus(Path()), toolchain)
    untouched(build)


def test_a_corpus_writes_nothing_through_polly(toolchain: Toolchain, tmp_path: Path):
    corpus, here = tmp_path / "corpus", tmp_path / "here"
    corpus.mkdir()
    here.mkdir()
    lines = {
        "evil": ("-mllvm", "-polly", "-mllvm", "-polly-export", "-mllvm", "-polly-process-unprofitable"),
        "good": (),
    }
    a_corpus(corpus, toolchain, lines)
    with contextlib.chdir(here):
        loaded = load_corpus(corpus)
        compiled(loaded, toolchain)
    assert [failure.name for failure in loaded.missing] == ["evil"]
    assert "found -mllvm -polly; delete or replace it with --delete-options" in loaded.missing[0].reason
    assert not list(here.iterdir())


def test_an_option_without_its_value_takes_none_of_ours(toolchain: Toolchain, tmp_path: Path):
    ends = {"cpu": ("-target-cpu",), "llvm": ("-mllvm",), "number": ("-mllvm", "-inline-threshold")}
    a_corpus(tmp_path, toolchain, {**ends, "good": ()})
    loaded = load_corpus(tmp_path)
    assert {failure.name: failure.reason.partition(";")[0] for failure in loaded.missing} == {
        name: f"expected options that only decide the code, found {' '.join(words)}" for name, words in ends.items()
    }


@pytest.mark.parametrize(
    "options",
    [
        ["-Xclang", "-dependency-file", "-Xclang", "precious", "-Xclang", "-MT", "-Xclang", "a"],
        ["-Xclang", "-diagnostic-log-file", "-Xclang", "precious"],
        ["-Xclang", "-load", "-Xclang", "./evil.so"],
        ["-fplugin=./evil.so"],
        ["--offload-arch=native", "-fopenmp"],
        ["-gen-reproducer=always"],
        ["-mllvm", "-polly"],
        ["-fproc-stat-report=precious"],
        ["-fproc-stat-report"],
        ["-fcrash-diagnostics-dir=."],
        ["-fuse-ld=./evil"],
        ["--ld-path=./evil"],
        ["-B."],
        ["-specs=evil.specs"],
        ["-ftime-trace=precious"],
        ["-fsave-optimization-record=yaml"],
        ["-fstack-usage"],
        ["-fno-integrated-as"],
        ["-fno-integrated-cc1"],
        ["-save-temps"],
        ["-Wl,-Map=precious"],
        ["-Xclang", "-target-cpu", "-Xclang", ""],
        ["-fno-rtti", ""],
    ],
)
def test_a_list_of_projects_runs_and_writes_nothing(
    build: Path, toolchain: Toolchain, tmp_path: Path, options: list[str]
):
    root = tmp_path / "sources" / "p"
    root.mkdir(parents=True)
    build = build.rename(root / "p-1")
    (tmp_path / "list.toml").write_text(LISTED.replace("OPTIONS", json.dumps(options)).replace("DIGEST", "0" * 64))
    with pytest.raises(
        CorpusError, match=r"project 'p': options: expected .*options .*found .*(-|'').*; (correct|remove)"
    ):
        extract_projects(
            load_projects(tmp_path / "list.toml"),
            toolchain=toolchain,
            sources_folder=tmp_path / "sources",
            corpus_folder=tmp_path / "corpus",
        )
    assert not (tmp_path / "canary").exists()
    assert (build / "precious").read_text() == "precious\n"


@pytest.mark.parametrize(
    "word",
    [
        "",
        "evil.so",
        "@evil.rsp",
        "-o",
        "-B.",
        "-L.",
        "-l./evil",
        "-l:evil.so",
        "-Tevil.ld",
        "-Xlinker",
        "-Wl,-Map=precious",
        "-Wl,--as-needed,-Map=precious",
        "--ld-path=./evil",
        "-fuse-ld=./evil",
        "-fproc-stat-report=precious",
    ],
)
def test_what_a_list_links_is_libraries_by_their_names(build: Path, toolchain: Toolchain, tmp_path: Path, word: str):
    root = tmp_path / "sources" / "p"
    root.mkdir(parents=True)
    build = build.rename(root / "p-1")
    program = f'[project.program]\nname = "p"\nlibraries = {json.dumps(["-lm", word])}\n'
    text = LISTED.replace("OPTIONS", "[]").replace("DIGEST", "0" * 64)
    (tmp_path / "list.toml").write_text(text + program)
    (project,) = load_projects(tmp_path / "list.toml")
    found = re.escape(f"project 'p': libraries: expected libraries by their names such as -lm, found {word!r}; correct")
    with pytest.raises(CorpusError, match=found):
        compare_program(
            project,
            toolchain=toolchain,
            sources_folder=tmp_path / "sources",
            plugin=tmp_path / "none.so",
            workers=1,
        )
    assert not (tmp_path / "canary").exists()
    assert (build / "precious").read_text() == "precious\n"


def test_an_importer_refuses_what_it_would_read_otherwise(build: Path, toolchain: Toolchain):
    entries = [
        {"directory": str(build), "file": "a.c", "arguments": ["clang", "-O2", *words, "-c", "a.c", "-o", f"{name}.o"]}
        for name, words in {
            "cpu": ["-Xclang", "-target-cpu", "-Xclang", "", "-Xclang", "-target-feature", "-Xclang", "-load"],
            "word": ["", "-DA"],
            "passed": ["-Wp,-target-feature,-w,-target-feature,-fpass-plugin=./evil.so"],
            "good": ["-Xclang", "-target-feature", "-DA", "-Xclang", "+sse3"],
        }.items()
    ]
    (build / "compile_commands.json").write_text(json.dumps(entries))
    folder = build.parent / "corpus"
    import_commands(build / "compile_commands.json", toolchain=toolchain, corpus_folder=folder, project="p")
    corpus = load_corpus(folder)
    untouched(build)
    assert [module.name for module in corpus.modules] == ["p/good.o"]
    options = parse_options(corpus.modules[0].command_line)
    assert ("-target-feature", ("+sse3",)) in [(option.name, option.values) for option in options]
    reasons = {failure.name: failure.reason for failure in corpus.failures}
    assert "found an empty word after -Xclang" in reasons["p/cpu.o"]
    assert "found an empty word after -O2" in reasons["p/word.o"]
    assert "found -target-feature -fpass-plugin=./evil.so" in reasons["p/passed.o"]


def test_a_link_command_is_only_asked_about(build: Path, toolchain: Toolchain):
    (build / "more.rsp").write_text("-- a.c -o precious")
    words = [
        "clang",
        "-flto=thin",
        "-gen-reproducer=always",
        "-fplugin=./evil.so",
        "--offload-arch=native",
        "@more.rsp",
    ]
    link_options([*words, "-fopenmp", "-fopenmp-targets=nvptx64", "-B."], toolchain=toolchain, folder=build)
    untouched(build, others=("more.rsp",))


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("fuzz_gate")


def test_words_that_are_left_out_of_a_corpus_make_no_other_option(build: Path, toolchain: Toolchain, tmp_path: Path):
    evil = f"-fpass-plugin={build}/evil.so"
    lines = {
        "empty": ("-target-cpu", "", "-target-feature", evil),
        "quiet": ("-target-feature", "-w", "-target-feature", evil),
        "index": ("-target-feature", "-fthinlto-index=", "-target-feature", evil),
        "good": ("-target-cpu", "x86-64", "-target-feature", "+sse3"),
    }
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    a_corpus(corpus, toolchain, lines)
    loaded = load_corpus(corpus)
    assert [module.name for module in loaded.modules] == ["good"]
    compiled(loaded, toolchain)
    untouched(build)


def test_mutated_commands_load_start_and_write_nothing(fuzz: ModuleType, toolchain: Toolchain):
    """A few cases of ``benchmarks/fuzz_gate.py``, of every door."""
    with forked(toolchain):
        rows = [
            fuzz.run_batch(number, toolchain, seed=7, count=30, door=door) for number, door in enumerate(fuzz.DOORS)
        ]
    assert [row["findings"] for row in rows] == [[]] * len(fuzz.DOORS)
    assert all(row["taken"] for row in rows)


def test_clang_cuts_what_the_gate_lets_through_as_the_gate_did(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch):
    """A few lines of ``benchmarks/fuzz_cuts.py``, and one of which the gate would have been told another table."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    cutting = importlib.import_module("fuzz_cuts")
    lines = list(cutting.judged(np.random.default_rng(7), 500))
    wrong = Cc1Line("clang", own=["-target-cpu", "-fpass-plugin=/p.so", "a.c"])
    *cuts, last = cutting.cut_by_clang([*lines, wrong], toolchain)
    assert len(lines) > 20
    assert [text for line, cut in zip(lines, cuts, strict=True) if (text := cutting.difference(line, cut))] == []
    assert last == ["0", "2"]
    assert cutting.difference(wrong, ["0", "1", "2"]).endswith("clang cuts at 0 1 2")


def test_the_fuzzer_of_the_gate_notices_an_open_door(
    fuzz: ModuleType, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A door that gives lines to the compiler as they are."""

    def open_door(lines: list[list[str]], place: Any, toolchain: Toolchain, _: object) -> int:
        for line in lines:
            is_cc1 = line[0] == "-cc1"
            argv = Cc1Line(toolchain.clang, own=line[1:]) if is_cc1 else [toolchain.clang, *line]
            process.run(argv, timeout_seconds=60)
        return len(lines)

    monkeypatch.setitem(fuzz.DOORS, "open", (open_door, 0.0, False))
    emit = ["-cc1", "-O2", "-emit-obj", "-o"]

    def found(name: str, *lines: list[str]) -> str:
        with forked(toolchain):
            place = fuzz.prepare(tmp_path / name, toolchain)
            return fuzz.run_lines("open", lines, place, toolchain, seed=[1])[1]

    loading = [*emit, "/dev/null", "-load", str(tmp_path / "loads" / "build" / "evil.so"), "a.c"]
    assert found("loads", loading) == "canary"
    assert found("writes", [*emit, "precious", "a.c"]) == "build/precious"
    assert found("makes", [*emit, str(tmp_path / "makes" / "out" / "new"), "a.c"]) == "out/new"
    assert found("starts", ["-fno-integrated-as", "-c", "a.c", "-o", "/dev/null"]).startswith("canary")
    assert found("is good", [*emit, "/dev/null", "a.c"]) == ""


def test_a_forked_compiler_is_the_same_compiler(fuzz: ModuleType, toolchain: Toolchain, tmp_path: Path):
    (tmp_path / "a.c").write_text(SOURCE)
    own = ["-O2", "-triple", toolchain.target, "-emit-obj", "-o", "a.o"]
    lines = [Cc1Line(toolchain.clang, own=[*own, source]) for source in ("a.c", "none.c")]
    for words in (*lines, [toolchain.clang, "-###", "-c", "a.c"]):
        plain = process.run(words, timeout_seconds=60, cwd=tmp_path)
        made = (tmp_path / "a.o").read_bytes()
        with forked(toolchain):
            again = process.run(words, timeout_seconds=60, cwd=tmp_path)
        assert (again.returncode, again.stdout, again.stderr) == (plain.returncode, plain.stdout, plain.stderr)
        assert (tmp_path / "a.o").read_bytes() == made
