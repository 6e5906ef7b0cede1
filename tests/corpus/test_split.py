import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlgokit.corpus.content import ModuleContent
from mlgokit.corpus.corpus import Corpus, load_corpus, read_sidecar
from mlgokit.corpus.identity import NOTHING_KNOWN, Contents, drop_copies, leaks
from mlgokit.corpus.layout import SIDECAR_NAME
from mlgokit.corpus.split import ProjectsBy, SplitBy, choose_held_out, position, split_corpus
from mlgokit.corpus.writer import corpus_writer, description_fields
from mlgokit.errors import UsageError
from mlgokit.module import Module

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)
SHARES = st.floats(0.01, 0.99)


def corpus_of(folder: Path, *names: str, held_out: tuple[str, ...] = ()) -> Corpus:
    modules = [
        Module(
            name=name,
            project=name.split("/", maxsplit=1)[0],
            language="c",
            held_out=name.split("/", maxsplit=1)[0] in held_out,
            bitcode=folder / f"{name}.bc",
            command_line=("-cc1",),
            bitcode_bytes=4,
        )
        for name in names
    ]
    for one in modules:
        one.bitcode.parent.mkdir(parents=True, exist_ok=True)
        one.bitcode.write_bytes(b"BC\xc0\xde")
        one.bitcode.with_suffix(".cmd").write_bytes(b"-cc1\0")
    with corpus_writer(folder, description_fields(), remedy="add modules") as writer:
        for one in modules:
            writer.add(one)
    return load_corpus(folder)


def contents_of(corpus: Corpus, identities: dict[str, str]) -> Contents:
    by_name = {
        name: ModuleContent(
            bitcode_sha256=name,
            identity=identity,
            functions=1,
            declarations=0,
            call_sites=1,
            decidable_call_sites=1,
            instructions=100,
            blocks=1,
            global_bytes=0,
        )
        for name, identity in identities.items()
    }
    return Contents(digests={module.name: module.name for module in corpus.modules}, by_name=by_name)


def sides(corpus: Corpus) -> dict[str, bool]:
    return {module.name: module.held_out for module in corpus.modules}


@given(old=st.sets(NAMES, min_size=1), new=st.sets(NAMES), share=SHARES, seed=st.integers(0, 9))
def test_projects_that_are_added_move_none(old: set[str], new: set[str], share: float, seed: int):
    first = choose_held_out(old, share=share, seed=seed)
    kept = {name: name in first for name in old}
    second = choose_held_out(old | new, share=share, seed=seed, kept=kept)
    assert second & old == first
    assert (
        all((name in second) == (position(name, seed=seed) < share) for name in new - old)
        or len(old | new) == 1
        or (not first or first == old)
    )


@given(names=st.sets(NAMES, min_size=2), share=SHARES, seed=st.integers(0, 9))
def test_of_several_projects_both_sides_have_one(names: set[str], share: float, seed: int):
    assert 0 < len(choose_held_out(names, share=share, seed=seed)) < len(names)


@given(
    modules=st.dictionaries(
        st.tuples(st.sampled_from("pqrst"), st.integers(0, 5)), st.sampled_from("uvwxyz"), min_size=1
    ),
    flags=st.fixed_dictionaries(dict.fromkeys("pqrst", st.booleans())),
)
def test_no_identity_is_trained_on_and_held_out(modules: dict[tuple[str, int], str], flags: dict[str, bool]):
    listed = [
        Module(
            name=f"{project}/{index}",
            project=project,
            language="c",
            held_out=flags[project],
            bitcode=Path(),
            command_line=(),
            bitcode_bytes=1,
        )
        for project, index in modules
    ]
    corpus = Corpus(folder=Path(), modules=tuple(listed))
    contents = contents_of(corpus, {f"{project}/{index}": one for (project, index), one in modules.items()})
    chosen = drop_copies(listed, contents)
    trained = [contents.by_name[module.name].identity for module in chosen]
    held_out = {contents.by_name[module.name].identity for module in listed if module.held_out}
    assert len(set(trained)) == len(trained)
    assert held_out.isdisjoint(trained)
    assert set(leaks(listed, contents)).isdisjoint(module.name for module in chosen)


def test_the_share_is_met_with_many_projects():
    names = [f"project {index}" for index in range(2000)]
    assert 0.18 < len(choose_held_out(names, share=0.2, seed=1)) / 2000 < 0.22
    assert choose_held_out(names, share=0.2, seed=1) != choose_held_out(names, share=0.2, seed=2)


def test_a_split_is_written_and_stays_when_the_corpus_grows(tmp_path: Path):
    names = [f"{letter}/m.o" for letter in "abcdefgh"]
    result, split = split_corpus(corpus_of(tmp_path, *names), NOTHING_KNOWN, share=0.3)
    before = sides(load_corpus(tmp_path))
    assert sides(split) == before
    assert sum(project.held_out for project in result.projects) == sum(before.values()) > 0
    facts, _ = read_sidecar(tmp_path)
    grown = corpus_of(tmp_path, *names, *(f"new-{index}/m.o" for index in range(8)))
    sidecar = json.loads((tmp_path / "corpus_modules.json").read_text())
    sidecar["modules"] |= facts
    (tmp_path / "corpus_modules.json").write_text(json.dumps(sidecar))
    split_corpus(load_corpus(tmp_path), NOTHING_KNOWN, share=0.3)
    after = sides(load_corpus(tmp_path))
    assert {name: after[name] for name in before} == before
    assert len(after) == len(grown.modules) == 16


def test_copies_within_a_single_project_stay_on_one_side(tmp_path: Path):
    corpus = corpus_of(tmp_path, *(f"p/{index}.o" for index in range(40)))
    contents = contents_of(corpus, {f"p/{index}.o": f"19:{index % 20}" for index in range(40)})
    result, split = split_corpus(corpus, contents)
    flags = sides(split)
    assert all(flags[f"p/{index}.o"] == flags[f"p/{index + 20}.o"] for index in range(20))
    assert 0 < sum(flags.values()) < 40
    assert result.notes == (
        (
            "p: split by module, so results show how a policy does on unseen modules of the same project, "
            "not on other projects."
        ),
    )
    assert [(row.by, row.held_out + row.training + row.copies) for row in result.projects] == [("module", 40)]


def test_a_project_that_was_alone_keeps_its_split_when_others_join(tmp_path: Path):
    names = [f"p/{index}.o" for index in range(10)]
    _, first = split_corpus(corpus_of(tmp_path, *names), NOTHING_KNOWN)
    facts, _ = read_sidecar(tmp_path)
    corpus_of(tmp_path, *names, "q/a.o", "r/a.o")
    sidecar = json.loads((tmp_path / "corpus_modules.json").read_text())
    sidecar["modules"] |= facts
    (tmp_path / "corpus_modules.json").write_text(json.dumps(sidecar))
    result, second = split_corpus(load_corpus(tmp_path), NOTHING_KNOWN)
    assert {name: sides(second)[name] for name in names} == sides(first)
    assert [row.by for row in result.projects] == ["module", "project", "project"]


def test_a_list_wins_and_is_kept(tmp_path: Path):
    corpus = corpus_of(tmp_path, "a/m.o", "b/m.o", "c/m.o", held_out=("a",))
    where = f"{tmp_path}: the corpus already has a split by name ("
    with pytest.raises(UsageError, match=r"\(a by the list of projects") as caught:
        split_corpus(corpus, NOTHING_KNOWN)
    assert str(caught.value).startswith(where)
    result, listed = split_corpus(corpus, NOTHING_KNOWN, held_out=("b", "c"))
    assert sides(listed) == {"a/m.o": False, "b/m.o": True, "c/m.o": True} == sides(load_corpus(tmp_path))
    assert {row.by for row in result.projects} == {"listed"}
    with pytest.raises(UsageError, match=r"\(a by --held-out\); keep it, or replace it with --force"):
        split_corpus(load_corpus(tmp_path), NOTHING_KNOWN)
    result, _ = split_corpus(load_corpus(tmp_path), NOTHING_KNOWN, force=True)
    assert {row.by for row in result.projects} == {"project"}


def test_an_impossible_split_is_refused(tmp_path: Path):
    corpus = corpus_of(tmp_path, "a/m.o", "b/m.o")
    with pytest.raises(UsageError, match=r"split: share: expected a number between 0 and 1, found 1\.5; give another"):
        split_corpus(corpus, NOTHING_KNOWN, share=1.5)
    with pytest.raises(UsageError, match=r"split: expected names of projects in .*, found x; it has a, b"):
        split_corpus(corpus, NOTHING_KNOWN, held_out=("x",))


def test_nothing_to_hold_out_is_said(tmp_path: Path):
    result, _ = split_corpus(corpus_of(tmp_path, "a/m.o"), NOTHING_KNOWN, by=SplitBy.PROJECT, share=0.01)
    assert result.notes == (
        (
            "Nothing is held out: there are too few projects or modules to split, or all were assigned before; see "
            "--force."
        ),
    )
    assert result.to_json()["folder"] == str(tmp_path)


def test_a_module_that_the_sidecar_does_not_know_gets_its_flag(tmp_path: Path):
    corpus_of(tmp_path, "a/m.o", "b/m.o")
    (tmp_path / "corpus_modules.json").unlink()
    _, split = split_corpus(load_corpus(tmp_path), NOTHING_KNOWN)
    assert load_corpus(tmp_path).modules == tuple(replace(module) for module in split.modules)
    assert sum(sides(split).values()) == 1


def test_a_foreign_corpus_of_one_build_is_split_by_module_unless_told_otherwise(tmp_path: Path):
    names = [f"CMakeFiles/lib.dir/{index}.cc.o" for index in range(31)] + [f"util/{index}.o" for index in range(3)]
    corpus_of(tmp_path, *names)
    (tmp_path / SIDECAR_NAME).unlink()
    corpus = load_corpus(tmp_path)
    contents = contents_of(corpus, {name: name for name in names})
    result, split = split_corpus(corpus, contents, share=0.3)
    ((project, by, held_out),) = ((one.name, one.by, one.held_out) for one in result.projects)
    assert (project, by) == (tmp_path.name, "module")
    assert 3 <= held_out <= 18
    assert sides(load_corpus(tmp_path)) == sides(split)
    result, _ = split_corpus(load_corpus(tmp_path), contents, share=0.3, projects_by=ProjectsBy.FOLDER)
    assert {(one.name, one.by) for one in result.projects} == {("CMakeFiles", "project"), ("util", "project")}
    kept, _ = split_corpus(load_corpus(tmp_path), contents, share=0.3)
    assert kept.projects == result.projects
    again, back = split_corpus(load_corpus(tmp_path), contents, share=0.3, projects_by=ProjectsBy.BUILD)
    assert [(one.name, one.by) for one in again.projects] == [(tmp_path.name, "module")]
    assert sides(back) == sides(split)
