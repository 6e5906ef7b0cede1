import dataclasses
import json
import os
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.importers.object_lists import ObjectFile, objects_in_folder
from mlgokit.corpus.importers.objects import import_objects
from mlgokit.corpus.layout import SIDECAR_NAME
from mlgokit.corpus.writer import Imported
from mlgokit.errors import CorpusError, ToolError, UsageError

CMD = b"-cc1\0-Oz\0-std=c++17\0"
BITCODE = b"BC\xc0\xde1234"


@pytest.fixture
def put(tmp_path: Path, made: ModuleType) -> Callable[..., Path]:
    """``put("lib/a.o", cmd=..., bitcode=...)``: an object in ``build``."""

    def put_object(name: str, *, cmd: bytes | None = CMD, bitcode: bytes | None = BITCODE) -> Path:
        path = tmp_path / "build" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = {".text": b"\x90", ".llvmbc": bitcode, ".llvmcmd": cmd}
        path.write_bytes(made.make_elf({key: value for key, value in parts.items() if value is not None}))
        return path

    return put_object


def run(tmp_path: Path, **options: Any) -> Imported:
    objects = objects_in_folder(tmp_path / "build")
    return import_objects(objects, corpus_folder=tmp_path / "corpus", project="p", **options)


def reasons(imported: Imported) -> dict[str, str]:
    return {failure.name: failure.reason for failure in imported.examples}


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("workers", [1, 3])
def test_objects_become_a_corpus(tmp_path: Path, put: Callable[..., Path], workers: int):
    put("lib/bar.o")
    put("foo.cc.o", cmd=b"-cc1\0-O2\0", bitcode=b"BC\xc0\xdeother")
    imported = run(tmp_path, workers=workers)
    assert imported == Imported(folder=tmp_path / "corpus", modules=2, failures=0)
    corpus = load_corpus(tmp_path / "corpus")
    assert [(module.name, module.project, module.language) for module in corpus.modules] == [
        ("foo.cc.o", "p", "c++"),
        ("lib/bar.o", "p", "c++"),
    ]
    assert corpus.modules[1].command_line == ("-cc1", "-Oz", "-std=c++17")
    assert files(tmp_path / "corpus") == [
        "corpus_description.json",
        SIDECAR_NAME,
        "foo.cc.o.bc",
        "foo.cc.o.cmd",
        "lib/bar.o.bc",
        "lib/bar.o.cmd",
    ]
    assert (tmp_path / "corpus/lib/bar.o.bc").read_bytes() == BITCODE
    assert (tmp_path / "corpus/lib/bar.o.cmd").read_bytes() == CMD


def test_what_gives_no_module_is_recorded_and_stops_nothing(tmp_path: Path, put: Callable[..., Path]):
    put("good.o")
    put("asm.o", cmd=None, bitcode=None)
    put("no-options.o", cmd=None)
    put("marker.o", cmd=b"", bitcode=b"")
    put("joined.o", cmd=CMD + CMD)
    (tmp_path / "build/lto.o").write_bytes(BITCODE)
    (tmp_path / "build/empty.o").touch()
    os.mkfifo(tmp_path / "build/pipe.o")
    (tmp_path / "build/gone.o").symlink_to(tmp_path / "nowhere")
    imported = run(tmp_path)
    assert (imported.modules, imported.failures) == (1, 8)
    assert reasons(imported) == {
        "asm.o": "expected a section .llvmcmd, found none (objects of assembly have none); for C and C++ compile with "
        "-Xclang -fembed-bitcode=all",
        "no-options.o": "expected a section .llvmcmd, found none (objects of assembly have none); for C and C++ "
        "compile with -Xclang -fembed-bitcode=all",
        "marker.o": "expected bitcode, found an empty section, as of -fembed-bitcode=marker; compile with "
        "-Xclang -fembed-bitcode=all",
        "joined.o": "expected the options of one module, found those of 2, as after ld -r; import the objects that "
        "were linked into it",
        "lto.o": "expected an object file (ELF, Mach-O or COFF), found bitcode itself, as -flto makes it",
        "empty.o": "expected an object file (ELF, Mach-O or COFF), found an empty file",
        "pipe.o": "expected a file, found a folder or a device",
        "gone.o": "expected an object file, found no such file; build it first",
    }
    assert {failure.name for failure in load_corpus(tmp_path / "corpus").failures} == set(reasons(imported))


def test_no_module_at_all_is_an_error_and_leaves_no_corpus(tmp_path: Path, put: Callable[..., Path]):
    put("asm.o", cmd=None, bitcode=None)
    message = r"expected at least one module, found none among 1 entries \(asm.o: .*, so none is written: compile"
    with pytest.raises(CorpusError, match=message):
        run(tmp_path)
    assert files(tmp_path / "corpus") == []


def test_an_earlier_corpus_stays_when_the_import_fails(tmp_path: Path, put: Callable[..., Path]):
    put("a.o")
    run(tmp_path)
    before = {name: (tmp_path / "corpus" / name).read_bytes() for name in files(tmp_path / "corpus")}
    put("a.o", cmd=None)
    with pytest.raises(CorpusError):
        run(tmp_path)
    assert {name: (tmp_path / "corpus" / name).read_bytes() for name in files(tmp_path / "corpus")} == before


def test_a_filter_leaves_modules_out(tmp_path: Path, put: Callable[..., Path]):
    put("a.o", cmd=b"-cc1\0-Oz\0")
    put("b.o", cmd=b"-cc1\0-O3\0")
    imported = run(tmp_path, cmd_filter="^-Oz$")
    assert reasons(imported) == {"b.o": "left out, as no option matches the command filter '^-Oz$'"}
    assert files(tmp_path / "corpus") == ["a.o.bc", "a.o.cmd", "corpus_description.json", SIDECAR_NAME]
    with pytest.raises(UsageError, match=r"command filter: expected a regular expression, found '\(' \(.*\); correct"):
        run(tmp_path, cmd_filter="(")


def test_a_filter_that_leaves_nothing_says_why_no_corpus_is_written(tmp_path: Path, put: Callable[..., Path]):
    put("a.o", cmd=b"-cc1\0-Oz\0")
    put("b.o", cmd=b"-cc1\0-O3\0")
    sentence = (
        r"found none among 2 entries \(a\.o: left out, as no option matches the command filter '\^-O2\$'\); "
        r"LLVM's tools would write a corpus without modules, which nothing can load, so none is written: "
        r"give another command filter than '\^-O2"
    )
    with pytest.raises(CorpusError, match=sentence):
        run(tmp_path, cmd_filter="^-O2$")
    assert files(tmp_path / "corpus") == []


def test_names_that_meet_are_told(tmp_path: Path, put: Callable[..., Path]):
    path = put("a.o")
    twice = [ObjectFile(name="x/a.o", path=path, base=path.parent)] * 2
    imported = import_objects(twice, corpus_folder=tmp_path / "corpus", project="p")
    assert reasons(imported) == {
        "x/a.o": "expected a name of its own, found an earlier object of that name; give the base folder of all"
    }
    assert imported.modules == 1


def test_a_thinlto_index_does_not_meet_another_modules_bitcode(tmp_path: Path, put: Callable[..., Path]):
    path = put("a.o", cmd=b"-cc1\0-fthinlto-index=/dev/null\0")
    both = [ObjectFile(name=name, path=path, base=path.parent) for name in ("a", "a.thinlto")]
    imported = import_objects(both, corpus_folder=tmp_path / "corpus", project="p", distributed_thinlto=True)
    assert (imported.modules, imported.failures) == (1, 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../a.o", "expected a path without backslashes inside the build, found '../a.o'"),
        ("/etc/a.o", "expected a path without backslashes inside the build"),
        ("a\\b.o", "expected a path without backslashes inside the build"),
        ("a\0b.o", "expected a path without backslashes inside the build"),
        ("", "expected a path without backslashes inside the build, found ''"),
        ("x" * 300, "expected a name that a file can have, found: File name too long"),
        ("good.o.bc/a.o", "expected a name that a file can have, found: "),
        ("\ud800", "expected a name that a file can have, found: "),
    ],
)
def test_names_that_no_module_can_have(tmp_path: Path, put: Callable[..., Path], name: str, message: str):
    path = put("good.o")
    names = [ObjectFile(name=each, path=path, base=path.parent) for each in ("good.o", name)]
    imported = import_objects(names, corpus_folder=tmp_path / "corpus", project="p")
    assert [failure.name for failure in imported.examples] == [name]
    assert message in imported.examples[0].reason
    assert [module.name for module in load_corpus(tmp_path / "corpus").modules] == ["good.o"]
    assert files(tmp_path) == sorted([f"corpus/{each}" for each in files(tmp_path / "corpus")] + ["build/good.o"])


def index_option(value: str) -> bytes:
    return b"-cc1\0-fthinlto-index=" + value.encode() + b"\0-Oz\0"


def test_distributed_thinlto_brings_the_index(tmp_path: Path, put: Callable[..., Path]):
    put("a.o", cmd=index_option("idx/a.thinlto.bc"))
    put("alone.o", cmd=index_option("/dev/null"))
    put("empty.o", cmd=index_option("idx/empty.thinlto.bc"))
    put("lost.o", cmd=index_option("idx/lost.thinlto.bc"))
    put("none.o")
    put("secret.o", cmd=index_option("../secret"))
    put("folder.o", cmd=index_option("idx"))
    (tmp_path / "secret").write_text("password")
    (tmp_path / "build/idx").mkdir()
    (tmp_path / "build/idx/a.thinlto.bc").write_bytes(b"BC\xc0\xdeindex")
    (tmp_path / "build/idx/empty.thinlto.bc").touch()
    imported = run(tmp_path, distributed_thinlto=True)
    corpus = load_corpus(tmp_path / "corpus")
    assert corpus.has_thinlto
    found = {module.name: module.thinlto_index for module in corpus.modules}
    assert {name: path.read_bytes() for name, path in found.items() if path is not None} == {
        "a.o": b"BC\xc0\xdeindex",
        "alone.o": b"",
        "empty.o": b"",
    }
    assert reasons(imported) == {
        "lost.o": "expected the ThinLTO index 'idx/lost.thinlto.bc' in the build, found no such file; link again",
        "none.o": "expected an option -fthinlto-index=, found none; import this object without --distributed",
        "secret.o": "expected a ThinLTO index, which is bitcode, found another kind of file; link again",
        "folder.o": "expected a file, found a folder or a device",
    }


def test_the_index_is_relative_to_the_base_of_its_object(tmp_path: Path, put: Callable[..., Path]):
    put("out/a.o", cmd=index_option("a.thinlto.bc"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.thinlto.bc").write_bytes(b"BC\xc0\xdeindex")
    objects = [dataclasses.replace(one, base=tmp_path / "elsewhere") for one in objects_in_folder(tmp_path / "build")]
    import_objects(objects, corpus_folder=tmp_path / "corpus", project="p", distributed_thinlto=True)
    assert (tmp_path / "corpus/out/a.o.thinlto.bc").read_bytes() == b"BC\xc0\xdeindex"


def test_other_section_names(tmp_path: Path, made: ModuleType):
    (tmp_path / "build").mkdir()
    (tmp_path / "build/a.o").write_bytes(made.make_elf({"bc": BITCODE, "cmd": CMD}))
    imported = run(tmp_path, cmd_section="cmd", bitcode_section="bc")
    assert imported.modules == 1


@pytest.fixture
def objcopy(tmp_path: Path) -> Callable[[str], Path]:
    """A stand-in for llvm-objcopy: writes each wanted section's name into the file where it is wanted."""

    def make(body: str) -> Path:
        path = tmp_path / "llvm-objcopy"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return make


def test_other_formats_go_through_llvm_objcopy(tmp_path: Path, objcopy: Callable[[str], Path]):
    tool = objcopy(
        'for word; do case "$word" in --dump-section=*) word=${word#--dump-section=}; '
        'printf "%s" "${word%%=*}" > "${word#*=}";; esac; done'
    )
    (tmp_path / "build").mkdir()
    (tmp_path / "build/a.o").write_bytes(b"\0asm\1\0\0\0")
    assert run(tmp_path, cmd_section="c", bitcode_section="b", llvm_objcopy=tool).modules == 1
    assert (tmp_path / "corpus/a.o.bc").read_bytes() == b"b"
    assert (tmp_path / "corpus/a.o.cmd").read_bytes() == b"c"
    with pytest.raises(
        CorpusError,
        match="expected the names of both sections for llvm-objcopy, found one or none; give --bitcode-section",
    ):
        run(tmp_path, llvm_objcopy=tool)
    tool = objcopy('echo "llvm-objcopy: error: not today" >&2; exit 1')
    with pytest.raises(CorpusError, match="llvm-objcopy: error: not today"):
        run(tmp_path, cmd_section="c", bitcode_section="b", llvm_objcopy=tool)
    with pytest.raises(ToolError):
        run(tmp_path, cmd_section="c", bitcode_section="b", llvm_objcopy=tmp_path / "nowhere")


def test_progress_and_workers(tmp_path: Path, put: Callable[..., Path]):
    put("a.o")
    said: list[tuple[int, int, str]] = []

    def report(done: int, total: int, label: str) -> None:
        said.append((done, total, label))

    run(tmp_path, report=report)
    assert said == [(1, 0, "a.o")]
    with pytest.raises(UsageError, match="workers: expected at least one, found 0"):
        run(tmp_path, workers=0)


def test_an_interrupt_ends_the_workers_and_keeps_the_earlier_corpus(tmp_path: Path, put: Callable[..., Path]):
    path = put("a.o")
    run(tmp_path)
    before = (tmp_path / "corpus/corpus_description.json").read_bytes()

    def objects() -> Any:
        for index in range(100):
            if index == 60:
                raise KeyboardInterrupt
            yield ObjectFile(name=f"x{index}.o", path=path, base=path.parent)

    with pytest.raises(KeyboardInterrupt):
        import_objects(objects(), corpus_folder=tmp_path / "corpus", project="p", workers=4)
    assert (tmp_path / "corpus/corpus_description.json").read_bytes() == before
    assert not list((tmp_path / "corpus").glob(".*"))


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path):
    """What is kept of an entry is a number; docs/results/corpus_extraction.md has the whole process."""
    entries = (
        ObjectFile(name=f"some/folder/of/a/large/project/file{index}.o", path=Path("/nowhere"), base=Path())
        for index in range(20_000)
    )
    tracemalloc.start()
    with pytest.raises(CorpusError, match="found none among 20000 entries"):
        import_objects(entries, corpus_folder=tmp_path / "corpus", project="p")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 << 20


def test_the_sidecar_is_whole_json(tmp_path: Path, put: Callable[..., Path]):
    put('quo"te\n.o')
    put("é/\udcff.o".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"))
    put("asm.o", cmd=None)
    run(tmp_path)
    sidecar: Mapping[str, Any] = json.loads((tmp_path / "corpus" / SIDECAR_NAME).read_text())
    names: Sequence[str] = list(sidecar["modules"])
    assert names == ['quo"te\n.o', "é/\udcff.o"]
    assert [failure["name"] for failure in sidecar["failures"]] == ["asm.o"]
    assert [module.name for module in load_corpus(tmp_path / "corpus").modules] == names
