"""A split outlives the corpus's being made again, whichever way it was made."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from mlgokit.corpus.combine import combine_corpora
from mlgokit.corpus.corpus import Corpus, load_corpus, read_sidecar
from mlgokit.corpus.freshness import FileDigests, call_digest, note_sources
from mlgokit.corpus.front_end import FrontEndJob, make_corpus
from mlgokit.corpus.identity import NOTHING_KNOWN
from mlgokit.corpus.importers.bitcode_files import import_bitcode
from mlgokit.corpus.importers.object_lists import objects_in_folder
from mlgokit.corpus.importers.objects import import_objects
from mlgokit.corpus.layout import SIDECAR_NAME
from mlgokit.corpus.split import SplitBy, split_corpus
from mlgokit.corpus.split_assignment import NOTHING_ASSIGNED, SplitAssignment, assignments_in, earlier_assignments

BITCODE = b"BC\xc0\xde1234"


def put_objects(folder: Path, made: ModuleType, *names: str) -> None:
    for name in names:
        path = folder / "build" / f"{name}.o"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.make_elf({".text": b"\x90", ".llvmbc": BITCODE, ".llvmcmd": b"-cc1\0-Oz\0"}))
        path.with_suffix(".bc").write_bytes(BITCODE)


def from_objects(folder: Path) -> Corpus:
    import_objects(objects_in_folder(folder / "build"), corpus_folder=folder / "corpus", project="p")
    return load_corpus(folder / "corpus")


def from_bitcode(folder: Path) -> Corpus:
    import_bitcode(folder / "build", corpus_folder=folder / "corpus", project="p", options=["-cc1", "-Oz"])
    return load_corpus(folder / "corpus")


def from_sources(folder: Path) -> Corpus:
    """No compiler runs: the modules are there already."""
    corpus = folder / "corpus"
    jobs: list[FrontEndJob] = []
    for path in sorted((folder / "build").glob("*.bc")):
        name = f"p/{path.stem}.o"
        (corpus / "p").mkdir(parents=True, exist_ok=True)
        (corpus / f"{name}.bc").write_bytes(BITCODE)
        (corpus / f"{name}.cmd").write_bytes(b"-cc1\0-Oz\0")
        note_sources(
            corpus / f"{name}.dep",
            [os.devnull],
            sha256=FileDigests().digest_all([os.devnull], folder) or "",
            call=call_digest(["/no/clang", "-cc1", "a.c"]),
            bitcode_sha256=hashlib.sha256(BITCODE).hexdigest(),
        )
        jobs.append(
            FrontEndJob(
                name=name,
                project="p",
                language="c",
                source=None,
                directory=folder,
                front_end=("/no/clang", "-cc1"),
                input=("a.c",),
                command_line=("-cc1", "-Oz"),
            )
        )
    assert make_corpus(jobs, corpus_folder=corpus, total=len(jobs), remedy="correct it").modules == len(jobs)
    return load_corpus(corpus)


def joined(folder: Path) -> Corpus:
    import_objects(objects_in_folder(folder / "build"), corpus_folder=folder / "parts" / "p", project="p")
    combine_corpora(folder / "parts", corpus_folder=folder / "corpus")
    return load_corpus(folder / "corpus")


MAKERS = [from_objects, from_bitcode, from_sources, joined]


def sides(corpus: Corpus) -> dict[str, tuple[bool, str | None]]:
    return {Path(module.name).stem: (module.held_out, module.split) for module in corpus.modules}


@pytest.mark.parametrize("make", MAKERS)
def test_a_split_by_module_is_kept_and_says_nothing_of_new_modules(
    make: Callable[[Path], Corpus], tmp_path: Path, made: ModuleType
):
    put_objects(tmp_path, made, *"abcdefgh")
    _, split = split_corpus(make(tmp_path), NOTHING_KNOWN, by=SplitBy.MODULE, share=0.5)
    put_objects(tmp_path, made, "new")
    # Beside being the same bitcode, which no split by content takes apart, they are all of one side.
    before = sides(split)
    assert {mark for _, mark in before.values()} == {"module seed=1 share=0.5"}
    again = sides(make(tmp_path))
    assert again == {**before, "new": (False, None)}


@pytest.mark.parametrize("make", MAKERS)
def test_a_project_that_was_held_out_by_name_stays_so_with_its_new_modules(
    make: Callable[[Path], Corpus], tmp_path: Path, made: ModuleType
):
    put_objects(tmp_path, made, "a", "b")
    split_corpus(make(tmp_path), NOTHING_KNOWN, held_out=["p"])
    put_objects(tmp_path, made, "new")
    assert sides(make(tmp_path)) == dict.fromkeys(("a", "b", "new"), (True, "listed"))


def test_what_the_maker_held_out_without_a_split_is_the_makers_again(tmp_path: Path, made: ModuleType):
    put_objects(tmp_path, made, "a", "b")
    from_objects(tmp_path)
    facts, _ = read_sidecar(tmp_path / "corpus")
    facts["a.o"]["held_out"] = True
    (tmp_path / "corpus" / SIDECAR_NAME).write_text(json.dumps({"format_version": 1, "modules": facts}))
    assert sides(from_objects(tmp_path)) == {"a": (True, None), "b": (False, None)}


@pytest.mark.parametrize("text", ["{", '{"modules": [1, {"split": 1}]}', '{"modules": {"a": {"held_out": 1}}}'])
def test_an_invalid_sidecar_assigns_nothing(text: str, tmp_path: Path):
    (tmp_path / SIDECAR_NAME).write_text(text)
    assert earlier_assignments(tmp_path) == NOTHING_ASSIGNED


def test_a_project_with_two_decisions_has_none_for_new_modules():
    facts = [(f"p/{mark}", {"project": "p", "held_out": True, "split": mark}) for mark in ("listed", "project seed=1")]
    found = assignments_in(facts)
    assert found.of("p/new", "p") is None
    assert found.of("p/listed", "p") == SplitAssignment(held_out=True, split="listed")
