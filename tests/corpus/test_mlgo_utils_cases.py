"""LLVM's own tests of ``llvm/utils/mlgo-utils``, re-expressed: what its files must be, seen from outside.

Each test names the file below ``llvm/utils/mlgo-utils/tests/corpus`` and the case there. Two things differ on purpose:
bitcode files that LLVM's cases make empty have a byte here, because an empty one is a failure for us
(``tests/corpus/test_loose.py``), and what its library gives as object is looked at through the corpus that comes of it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlgokit.corpus.combine import combine_corpora
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.importers.bitcode_files import import_bitcode, import_local_thinlto
from mlgokit.corpus.importers.compile_commands import read_compile_commands
from mlgokit.corpus.importers.object_lists import objects_in_folder, objects_in_parameters, objects_of_commands
from mlgokit.corpus.importers.objects import import_objects
from mlgokit.corpus.layout import DESCRIPTION_NAME, SIDECAR_NAME
from mlgokit.errors import CorpusError

FILTERED = b"-cc1\0x/y/foobar.cpp\0-Oz\0-Ifoo\0-o\0bin/out.o"


@pytest.fixture
def put(tmp_path: Path, made: ModuleType) -> Callable[..., Path]:
    """An object with LLVM's contents of the two sections: a byte each."""

    def put_object(name: str, *, cmd: bytes = b"\xff") -> Path:
        path = tmp_path / "build" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.make_elf({".text": b"\x55", ".llvmbc": b"\x55", ".llvmcmd": cmd}))
        return path

    return put_object


def description(folder: Path) -> Any:
    return json.loads((folder / DESCRIPTION_NAME).read_text())


def files(folder: Path) -> list[str]:
    """What LLVM's layout has: all but our sidecar."""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [name for name in found if name != SIDECAR_NAME]


def write_database(tmp_path: Path, *entries: dict[str, Any]) -> Path:
    path = tmp_path / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


def import_database(tmp_path: Path, database: Path, **options: Any) -> Path:
    commands = objects_of_commands(read_compile_commands(database))
    return import_objects(commands, corpus_folder=tmp_path / "out", project="p", **options).folder


def test_extract_ir_test_one_conversion(tmp_path: Path, put: Callable[..., Path]):
    """extract_ir_test.py: test_one_conversion."""
    put("lib/bar.o", cmd=b"-cc1\0-fthinlto-index=/dev/null\0")
    entry = {
        "directory": str(tmp_path / "build"),
        "command": "-cc1 -c /some/path/lib/foo/bar.cc -o lib/bar.o",
        "file": "/some/path/lib/foo/bar.cc",
    }
    out = import_database(tmp_path, write_database(tmp_path, entry), distributed_thinlto=True)
    assert description(out)["modules"] == ["lib/bar.o"]
    assert files(out) == [DESCRIPTION_NAME, "lib/bar.o.bc", "lib/bar.o.cmd", "lib/bar.o.thinlto.bc"]


def test_extract_ir_test_one_conversion_arguments_style(tmp_path: Path, put: Callable[..., Path]):
    """extract_ir_test.py: test_one_conversion_arguments_style."""
    put("lib/bar.o")
    entry = {
        "directory": str(tmp_path / "build"),
        "arguments": ["-cc1", "-c", "/some/path/lib/foo/bar.cc", "-o", "lib/bar.o"],
        "file": "/some/path/lib/foo/bar.cc",
    }
    out = import_database(tmp_path, write_database(tmp_path, entry))
    assert files(out) == [DESCRIPTION_NAME, "lib/bar.o.bc", "lib/bar.o.cmd"]


def test_extract_ir_test_multiple_conversion(tmp_path: Path, put: Callable[..., Path]):
    """extract_ir_test.py: test_multiple_conversion."""
    names = ("lib/bar.o", "lib/other/baz.o")
    for name in names:
        put(name)
    entries = [
        {"directory": str(tmp_path / "build"), "command": f"-cc1 -c /some/{name}.cc -o {name}", "file": f"{name}.cc"}
        for name in names
    ]
    out = import_database(tmp_path, write_database(tmp_path, *entries))
    assert description(out)["modules"] == list(names)
    assert files(out) == sorted([DESCRIPTION_NAME, *(f"{name}{end}" for name in names for end in (".bc", ".cmd"))])


@pytest.mark.parametrize("given", [True, False])
def test_extract_ir_test_command_extraction(
    tmp_path: Path, put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, given: bool
):
    """extract_ir_test.py: test_command_extraction and test_command_extraction_no_basedir.

    LLVM checks the words for llvm-objcopy; here sections are read in process, so that what is written is checked.
    """
    put("lib/obj_file.o", cmd=b"-cc1\0-Oz\0")
    (tmp_path / "list").write_text("lib/obj_file.o\n")
    monkeypatch.chdir(tmp_path / "build")
    base = {"object_base": tmp_path / "build"} if given else {}
    out = tmp_path / "out"
    import_objects(objects_in_parameters(tmp_path / "list", **base), corpus_folder=out, project="p")
    assert (out / "lib/obj_file.o.cmd").read_bytes() == b"-cc1\0-Oz\0"
    assert (out / "lib/obj_file.o.bc").read_bytes() == b"\x55"


def test_extract_ir_test_lld_params(tmp_path: Path, put: Callable[..., Path]):
    """extract_ir_test.py: test_lld_params."""
    put("lib/obj1.o")
    put("lib/dir/obj2.o")
    words = ["-o", "output/dir/exe", "lib/obj1.o", "somelib.a", "-W,blah", "lib/dir/obj2.o"]
    (tmp_path / "params").write_text("\n".join(words))
    objects = objects_in_parameters(tmp_path / "params", object_base=tmp_path / "build")
    imported = import_objects(objects, corpus_folder=tmp_path / "out", project="p")
    assert (imported.modules, imported.failures) == (2, 0)
    assert description(tmp_path / "out")["modules"] == ["lib/obj1.o", "lib/dir/obj2.o"]


def test_extract_ir_test_load_from_directory(tmp_path: Path, put: Callable[..., Path]):
    """extract_ir_test.py: test_load_from_directory; extract_ir_script.test: two objects made by yaml2obj."""
    put("subdir/test1.o")
    put("subdir/test2.o")
    objects = objects_in_folder(tmp_path / "build")
    import_objects(objects, corpus_folder=tmp_path / "out", project="p")
    assert description(tmp_path / "out") == {"has_thinlto": False, "modules": ["subdir/test1.o", "subdir/test2.o"]}
    assert files(tmp_path / "out") == [
        DESCRIPTION_NAME,
        "subdir/test1.o.bc",
        "subdir/test1.o.cmd",
        "subdir/test2.o.bc",
        "subdir/test2.o.cmd",
    ]
    assert (tmp_path / "out/subdir/test1.o.bc").read_bytes() == b"\x55"
    assert (tmp_path / "out/subdir/test1.o.cmd").read_bytes() == b"\xff"


@pytest.mark.parametrize("nest", ["", "nest/"])
def test_extract_ir_test_lld_thinlto(tmp_path: Path, nest: str):
    """extract_ir_test.py: test_lld_thinlto_discovery, its nested form, and test_lld_thinlto_extraction."""
    (tmp_path / "build" / nest).mkdir(parents=True)
    for name in "123":
        (tmp_path / f"build/{nest}{name}.3.import.bc").write_bytes(b"\x55")
        (tmp_path / f"build/{nest}{name}.thinlto.bc").touch()
    import_local_thinlto(tmp_path / "build", corpus_folder=tmp_path / "out", project="p")
    names = [f"{nest}{name}" for name in "123"]
    assert (tmp_path / "out" / DESCRIPTION_NAME).read_text() == json.dumps(
        {"global_command_override": ["<UNSPECIFIED>"], "has_thinlto": True, "modules": names}, indent=2
    ) + "\n"
    assert files(tmp_path / "out") == sorted(
        [DESCRIPTION_NAME, *(f"{name}{end}" for name in names for end in (".bc", ".thinlto.bc"))]
    )


@pytest.mark.parametrize(("pattern", "kept"), [(None, True), (".*", True), ("^-Oz$", True), ("^-O3$", False)])
def test_extract_ir_test_filtering(tmp_path: Path, put: Callable[..., Path], pattern: str | None, kept: bool):
    """extract_ir_test.py: test_filtering; of a module that is left out no file stays."""
    put("a.o", cmd=FILTERED)
    put("z.o", cmd=b"-O3")
    objects = objects_in_folder(tmp_path / "build")
    import_objects(objects, corpus_folder=tmp_path / "out", project="p", cmd_filter=pattern)
    assert ("a.o" in description(tmp_path / "out")["modules"]) == kept
    assert ("a.o.cmd" in files(tmp_path / "out")) == kept


def test_extract_ir_test_thinlto_index_extractor(tmp_path: Path, put: Callable[..., Path]):
    """extract_ir_test.py: test_thinlto_index_extractor."""
    put("a.o", cmd=FILTERED + b"\0-fthinlto-index=foo/bar.thinlto.bc")
    (tmp_path / "build/foo").mkdir()
    (tmp_path / "build/foo/bar.thinlto.bc").write_bytes(b"BC\xc0\xdeindex")
    objects = objects_in_folder(tmp_path / "build")
    import_objects(objects, corpus_folder=tmp_path / "out", project="p", distributed_thinlto=True)
    assert (tmp_path / "out/a.o.thinlto.bc").read_bytes() == b"BC\xc0\xdeindex"


def test_make_corpus(tmp_path: Path):
    """make_corpus_test.py: all three cases; make_corpus_script.test."""
    for name in ("nested/test1.bc", "nested/test2.bc"):
        (tmp_path / "build" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "build" / name).write_bytes(b"\x55")
    import_bitcode(tmp_path / "build", corpus_folder=tmp_path / "out", project="p", options=["-O3", "-c"])
    expected = {
        "global_command_override": ["-O3", "-c"],
        "has_thinlto": False,
        "modules": ["nested/test1", "nested/test2"],
    }
    assert (tmp_path / "out" / DESCRIPTION_NAME).read_text() == json.dumps(expected, indent=2) + "\n"
    assert files(tmp_path / "out") == [DESCRIPTION_NAME, "nested/test1.bc", "nested/test2.bc"]
    # What follows -O3 is what lld's options would say; -c is the driver's.
    assert load_corpus(tmp_path / "out").modules[0].command_line[:3] == ("-cc1", "-O3", "-vectorize-loops")


def describe(folder: Path, **fields: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DESCRIPTION_NAME).write_text(json.dumps(fields))


def test_combine_training_corpus_test_combine_corpus(tmp_path: Path):
    """combine_training_corpus_test.py: test_combine_corpus; combine_training_corpus_script.test."""
    describe(tmp_path / "subcorpus1", has_thinlto=False, modules=["test1.o", "test2.o"])
    describe(tmp_path / "subcorpus2", has_thinlto=False, modules=["test3.o", "test4.o"])
    combine_corpora(tmp_path)
    names = ["subcorpus1/test1.o", "subcorpus1/test2.o", "subcorpus2/test3.o", "subcorpus2/test4.o"]
    assert description(tmp_path) == {"has_thinlto": False, "modules": names}
    assert not (tmp_path / SIDECAR_NAME).exists()


@pytest.mark.parametrize("other", ["empty_dir", "empty.log"])
def test_combine_training_corpus_test_empty_folder_and_ignore_extra_file(tmp_path: Path, other: str):
    """combine_training_corpus_test.py: test_empty_folder, test_ignore_extra_file."""
    describe(tmp_path / "subcorpus1", modules=["test1.o", "test2.o"])
    (tmp_path / other).touch() if "." in other else (tmp_path / other).mkdir()
    combine_corpora(tmp_path)
    assert description(tmp_path) == {"modules": ["subcorpus1/test1.o", "subcorpus1/test2.o"]}


def test_combine_training_corpus_test_different_corpora(tmp_path: Path):
    """combine_training_corpus_test.py: test_different_corpora."""
    describe(tmp_path / "subcorpus1", has_thinlto=False, modules=["test1.o"])
    describe(tmp_path / "subcorpus2", has_thinlto=True, modules=["test2.o"])
    with pytest.raises(CorpusError, match="has_thinlto: expected False as in subcorpus1, found True"):
        combine_corpora(tmp_path)
