import json
from pathlib import Path
from typing import Any

import pytest

from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.importers.bitcode_files import import_bitcode, import_local_thinlto
from mlgokit.corpus.layout import DESCRIPTION_NAME
from mlgokit.errors import CorpusError


def build(tmp_path: Path, contents: dict[str, bytes]) -> Path:
    for name, data in contents.items():
        path = tmp_path / "build" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "build"


def description(folder: Path) -> Any:
    return json.loads((folder / DESCRIPTION_NAME).read_text())


MODULE, INDEX = b"BC\xc0\xdemodule", b"BC\xc0\xdeindex"


def test_a_local_thinlto_link(tmp_path: Path):
    folder = build(
        tmp_path,
        {
            "a.o.3.import.bc": MODULE,
            "a.o.thinlto.bc": INDEX,
            "lib/b.o.3.import.bc": MODULE,
            "lib/b.o.thinlto.bc": b"",
            "lost.o.3.import.bc": MODULE,
            "empty.o.3.import.bc": b"",
            "empty.o.thinlto.bc": INDEX,
            "bad.o.3.import.bc": MODULE,
            "bad.o.thinlto.bc": b"text",
        },
    )
    imported = import_local_thinlto(folder, corpus_folder=tmp_path / "corpus", project="p")
    assert description(tmp_path / "corpus") == {
        "global_command_override": ["<UNSPECIFIED>"],
        "has_thinlto": True,
        "modules": ["a.o", "lib/b.o"],
    }
    assert (tmp_path / "corpus/a.o.bc").read_bytes() == MODULE
    assert (tmp_path / "corpus/a.o.thinlto.bc").read_bytes() == INDEX
    assert (tmp_path / "corpus/lib/b.o.thinlto.bc").read_bytes() == b""
    assert {failure.name: failure.reason for failure in imported.examples} == {
        "lost.o": "expected the index lost.o.thinlto.bc beside it, found none; link with --thinlto-emit-index-files",
        "empty.o": "expected bitcode in empty.o.3.import.bc, found an empty file",
        "bad.o": "expected a ThinLTO index, which is bitcode, found another kind of file; link again",
    }
    with pytest.raises(CorpusError, match=r"global_command_override: .* found \['<UNSPECIFIED>'\]; fill them in"):
        load_corpus(tmp_path / "corpus")


def test_given_options_make_it_loadable(tmp_path: Path):
    folder = build(tmp_path, {"a.o.3.import.bc": MODULE, "a.o.thinlto.bc": INDEX})
    import_local_thinlto(folder, corpus_folder=tmp_path / "corpus", project="p", override=["-cc1", "-O2"], workers=2)
    module = load_corpus(tmp_path / "corpus").modules[0]
    assert (module.command_line, module.thinlto_index) == (("-cc1", "-O2"), tmp_path / "corpus/a.o.thinlto.bc")


def test_a_folder_of_bitcode_files_is_imported(tmp_path: Path):
    folder = build(tmp_path, {"a.bc": MODULE, "lib/b.bc": b"BC\xc0\xdeother", "lib/empty.bc": b""})
    imported = import_bitcode(folder, corpus_folder=tmp_path / "corpus", project="p", options=["-cc1", "-Oz"])
    assert description(tmp_path / "corpus") == {
        "global_command_override": ["-cc1", "-Oz"],
        "has_thinlto": False,
        "modules": ["a", "lib/b"],
    }
    assert [failure.reason for failure in imported.examples] == ["expected bitcode in empty.bc, found an empty file"]
    modules = load_corpus(tmp_path / "corpus").modules
    assert [(module.name, module.project, module.thinlto_index) for module in modules] == [
        ("a", "p", None),
        ("lib/b", "p", None),
    ]


def test_a_corpus_inside_of_the_folder_is_not_its_own_source(tmp_path: Path):
    folder = build(tmp_path, {"a.bc": MODULE})
    for _ in range(2):
        import_bitcode(folder, corpus_folder=folder / "corpus", project="p", options=["-cc1"])
    assert description(folder / "corpus")["modules"] == ["a"]


def test_a_folder_without_bitcode_is_an_error(tmp_path: Path):
    folder = build(tmp_path, {"a.o": b""})
    with pytest.raises(CorpusError, match=r"found none among 0 entries; .*: give a folder with bitcode, as"):
        import_bitcode(folder, corpus_folder=tmp_path / "corpus", project="p", options=["-cc1"])
    with pytest.raises(CorpusError, match=r"found none among 0 entries; .*: link with -Wl,--save-temps=import and"):
        import_local_thinlto(folder, corpus_folder=tmp_path / "corpus", project="p")
