import json
from pathlib import Path
from typing import Any

import pytest

from mlgokit.corpus.combine import combine_corpora
from mlgokit.corpus.corpus import ModuleFailure, load_corpus
from mlgokit.corpus.layout import DESCRIPTION_NAME, SIDECAR_NAME
from mlgokit.corpus.writer import corpus_writer, description_fields
from mlgokit.errors import CorpusError
from mlgokit.module import Module


def describe(folder: Path, **fields: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DESCRIPTION_NAME).write_text(json.dumps(fields))
    return folder


def part(folder: Path, name: str, **facts: Any) -> Module:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.bc").write_bytes(b"BC\xc0\xde")
    (folder / f"{name}.cmd").write_bytes(b"-cc1\0")
    module = Module(
        name=name, language="c", bitcode=folder / f"{name}.bc", command_line=("-cc1",), bitcode_bytes=4, **facts
    )
    with corpus_writer(folder, description_fields(), remedy="add modules") as writer:
        writer.add(module)
        writer.add(ModuleFailure(name="bad.o", project="q", reason="no"))
    return module


def test_names_get_their_folder_and_sidecars_are_joined(tmp_path: Path):
    part(tmp_path / "one", "lib/a.o", project="q", held_out=True, front_end_seconds=0.5)
    part(tmp_path / "two", "a.o", project="r")
    imported = combine_corpora(tmp_path)
    assert (imported.modules, imported.failures) == (2, 2)
    corpus = load_corpus(tmp_path)
    found = [(module.name, module.project, module.held_out, module.front_end_seconds) for module in corpus.modules]
    assert found == [("one/lib/a.o", "q", True, 0.5), ("two/a.o", "r", False, None)]
    assert corpus.failures[0] == ModuleFailure(name="one/bad.o", project="q", reason="no")


def test_combining_again_gives_the_same(tmp_path: Path):
    part(tmp_path / "one", "a.o", project="q")
    combine_corpora(tmp_path)
    before = (tmp_path / DESCRIPTION_NAME).read_bytes(), (tmp_path / SIDECAR_NAME).read_bytes()
    combine_corpora(tmp_path)
    assert before == ((tmp_path / DESCRIPTION_NAME).read_bytes(), (tmp_path / SIDECAR_NAME).read_bytes())


@pytest.mark.parametrize("target", ["elsewhere", "root/joined"])
def test_another_folder_gets_the_files_as_well(tmp_path: Path, target: str):
    root = tmp_path / "root"
    part(root / "one", "a.o", project="q")
    describe(root / "two", has_thinlto=False, modules=["lost.o", "lost.o"])
    for _ in range(2):
        imported = combine_corpora(root, corpus_folder=tmp_path / target)
    assert [module.name for module in load_corpus(tmp_path / target).modules] == ["one/a.o"]
    assert [failure.reason for failure in imported.examples][-1] == "expected bitcode in lost.o.bc, found no file"
    assert (root / "one/a.o.bc").read_bytes() == b"BC\xc0\xde"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"has_thinlto": True},
            r"two/corpus_description.json: has_thinlto: expected False as in one, found True; comb",
        ),
        ({"has_thinlto": 0}, r"has_thinlto: expected False as in one, found 0; combine only corpora of one kind"),
        ({"has_thinlto": False, "x": 1}, r"x: expected None as in one, found 1"),
        ({}, r"has_thinlto: expected False as in one, found None"),
    ],
)
def test_corpora_that_differ_are_not_combined(tmp_path: Path, fields: dict[str, Any], message: str):
    describe(tmp_path / "one", has_thinlto=False, modules=["a.o"])
    describe(tmp_path / "two", modules=["a.o"], **fields)
    with pytest.raises(CorpusError, match=message):
        combine_corpora(tmp_path)
    assert not (tmp_path / DESCRIPTION_NAME).exists()


def test_names_that_leave_their_corpus_are_refused(tmp_path: Path):
    describe(tmp_path / "one", modules=["../../a.o"])
    with pytest.raises(CorpusError, match=r"expected names of modules inside the folder, found '../../a.o'"):
        combine_corpora(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON, found: .*; delete corpus_modules.json to combine without it"),
        ('{"format_version": 9}', "format_version: expected 1, found 9; delete"),
        ('{"format_version": 1, "modules": {"a.o": 3}}', "module 'a.o': expected an object, found 3"),
        (
            '{"format_version": 1, "modules": {}, "failures": [{}]}',
            r"failures\[0\]: expected the key 'name', found none",
        ),
    ],
)
def test_a_wrong_sidecar_is_named(tmp_path: Path, text: str, message: str):
    describe(tmp_path / "one", modules=["a.o"])
    (tmp_path / "one" / SIDECAR_NAME).write_text(text)
    with pytest.raises(CorpusError, match=message):
        combine_corpora(tmp_path)


@pytest.mark.parametrize(("name", "found"), [("nowhere", "nothing"), ("file", "a file")])
def test_a_path_that_is_no_folder_of_corpora_is_refused(tmp_path: Path, name: str, found: str):
    (tmp_path / "file").touch()
    with pytest.raises(CorpusError, match=f"expected a folder with corpora, found {found}; give another"):
        combine_corpora(tmp_path / name)


def test_a_root_without_corpora(tmp_path: Path):
    (tmp_path / "x").mkdir()
    with pytest.raises(CorpusError, match=r"expected folders with corpus_description.json, found none; give"):
        combine_corpora(tmp_path)


@pytest.mark.parametrize("suffix", ["bc", "cmd"])
def test_links_do_not_bring_in_what_is_elsewhere(tmp_path: Path, suffix: str):
    parts = tmp_path / "parts"
    part(parts / "one", "a.o", project="q")
    part(parts / "one", "lib/b.o", project="q")
    part(parts / "two", "c.o", project="q")
    describe(parts / "one", has_thinlto=False, modules=["a.o", "lib/b.o"])
    secret = tmp_path / "secret"
    secret.write_text("hidden words")
    (parts / "one" / f"a.o.{suffix}").unlink()
    (parts / "one" / f"a.o.{suffix}").symlink_to(secret)
    (parts / "one" / "lib").rename(tmp_path / "lib")
    (parts / "one" / "lib").symlink_to(tmp_path / "lib")
    combine_corpora(parts, corpus_folder=tmp_path / "joined")
    found = {failure.name: failure.reason for failure in load_corpus(tmp_path / "joined").failures}
    assert f"inside of the corpus, found a.o.{suffix} to be a link to {secret}; copy it" in found["one/a.o"]
    assert f"found b.o.bc to be a link to {tmp_path}/lib/b.o.bc; copy it" in found["one/lib/b.o"]
    assert [module.name for module in load_corpus(tmp_path / "joined").modules] == ["two/c.o"]
    files = [path for path in (tmp_path / "joined").rglob("*") if path.is_file()]
    assert not any(b"hidden words" in path.read_bytes() for path in files)


@pytest.mark.parametrize("target", [None, "joined"])
def test_each_corpus_of_others_becomes_a_project(tmp_path: Path, target: str | None):
    for folder in ("one", "two"):
        for name in ("CMakeFiles/a.o", "util/b.o"):
            path = tmp_path / folder / f"{name}.bc"
            path.parent.mkdir(parents=True)
            path.write_bytes(b"BC\xc0\xde")
            path.with_suffix(".cmd").write_bytes(b"-cc1")
        text = json.dumps({"has_thinlto": False, "modules": ["CMakeFiles/a.o", "util/b.o"]})
        (tmp_path / folder / DESCRIPTION_NAME).write_text(text)
    folder = combine_corpora(tmp_path, corpus_folder=None if target is None else tmp_path / target).folder
    found = {module.name: module.project for module in load_corpus(folder).modules}
    assert found == {f"{part}/{name}": part for part in ("one", "two") for name in ("CMakeFiles/a.o", "util/b.o")}
