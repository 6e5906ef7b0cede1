import hashlib
import json
import os
from pathlib import Path

import pytest

from mlgokit.compiler.describe import ModuleDescription
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus import identity
from mlgokit.corpus.content import CONTENTS_NAME, ModuleContent, append_contents, read_contents
from mlgokit.corpus.identity import (
    Contents,
    describe_corpus,
    drop_copies,
    duplicate_groups,
    kinships,
    known_contents,
    leaks,
)
from mlgokit.files import digest_file
from mlgokit.module import Module

TOOLCHAIN = Toolchain(major=19, version="19.1.7", clang=Path("clang"), clangxx=Path("clang++"))


def module(name: str, folder: Path = Path(), *, held_out: bool = False, sha256: str | None = None) -> Module:
    return Module(
        name=name,
        project=name.split("/", maxsplit=1)[0],
        language="c",
        held_out=held_out,
        bitcode=folder / f"{name}.bc",
        command_line=("-cc1",),
        bitcode_bytes=4,
        bitcode_sha256=sha256,
    )


def content(sha256: str, identity: str, instructions: int = 100, own_functions: tuple[str, ...] = ()) -> ModuleContent:
    return ModuleContent(
        bitcode_sha256=sha256,
        identity=identity,
        functions=2,
        declarations=1,
        call_sites=3,
        decidable_call_sites=2,
        instructions=instructions,
        blocks=4,
        global_bytes=5,
        own_functions=own_functions,
    )


def known(**by_name: ModuleContent) -> Contents:
    names = {name.replace("__", "/"): one for name, one in by_name.items()}
    return Contents(digests={name: one.bitcode_sha256 for name, one in names.items()}, by_name=names)


def test_a_copy_under_another_name_is_passed_over_in_training_and_told():
    modules = [module("p/a"), module("p/b"), module("q/c", held_out=True)]
    contents = known(p__a=content("1", "19:x"), p__b=content("2", "19:y"), q__c=content("3", "19:y"))
    assert [one.name for one in drop_copies(modules, contents)] == ["p/a"]
    assert leaks(modules, contents) == ("p/b",)
    assert duplicate_groups(modules, contents, exact=False) == (("p/b", "q/c"),)
    assert duplicate_groups(modules, contents, exact=True) == ()


def test_without_identities_the_bitcode_decides():
    modules = [module("p/a", sha256="1"), module("q/b", sha256="1", held_out=True), module("p/c"), module("p/d")]
    assert [one.name for one in drop_copies(modules)] == ["p/c", "p/d"]


def test_a_trivial_copy_is_no_leak_but_is_passed_over_too():
    modules = [module("p/a"), module("q/b", held_out=True)]
    contents = known(p__a=content("1", "19:x", instructions=3), q__b=content("2", "19:x", instructions=3))
    assert leaks(modules, contents) == ()
    assert duplicate_groups(modules, contents, exact=False) == ()
    assert drop_copies(modules, contents) == []


def test_projects_that_share_functions_are_told():
    modules = [module("old/a"), module("new/b", held_out=True), module("other/c")]
    functions = tuple(f"{index:012x}" for index in range(0, 400, 4))
    contents = known(
        old__a=content("1", "19:x", own_functions=functions[:10]),
        new__b=content("2", "19:y", own_functions=functions[4:24]),
        other__c=content("3", "19:z", own_functions=functions[22:40]),
    )
    (found,) = kinships(modules, contents)
    assert (found.held_out, found.training, found.shared) == ("new", "old", 0.6)


def test_what_is_remembered_is_read_and_half_a_line_is_passed_over(tmp_path: Path):
    first, second = content("1", "19:x", own_functions=("ab",)), content("2", "22:y")
    append_contents(tmp_path, [first])
    with (tmp_path / CONTENTS_NAME).open("a") as file:
        file.write('{"format_version": 1, "bitcode_sha256": "7"}\n[]\n{"format_version": 9}\n{"format_ver')
    append_contents(tmp_path, [second])
    assert read_contents(tmp_path) == {"1": first, "2": second}
    assert read_contents(tmp_path, major=22) == {"2": second}
    assert known_contents(tmp_path, [module("p/a", sha256="1"), module("p/b")]).by_name == {"p/a": first}


def test_bitcode_is_known_by_itself_and_not_by_what_the_sidecar_says(tmp_path: Path):
    (tmp_path / "a.bc").write_bytes(b"BC one")
    own, promised = digest_file(tmp_path / "a.bc"), content("1", "19:x")
    append_contents(tmp_path, [promised])
    one = module("a", tmp_path, sha256="1")
    assert known_contents(tmp_path, [one]).digests == {"a": own}
    assert not known_contents(tmp_path, [one]).by_name
    append_contents(tmp_path, [content(own, "19:y")])
    assert known_contents(tmp_path, [one]).by_name["a"].identity == "19:y"


@pytest.mark.parametrize(
    "change", [{"functions": "2"}, {"functions": True}, {"own_functions": [1]}, {"identity": None}]
)
def test_a_line_with_a_wrong_type_is_not_believed(change: dict[str, object], tmp_path: Path):
    append_contents(tmp_path, [content("1", "19:x")])
    path = tmp_path / CONTENTS_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert read_contents(tmp_path) == {}


def test_each_bitcode_is_described_once_and_failures_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    modules = [module(f"p/{name}", tmp_path) for name in "abcd"]
    for one, text in zip(modules, (b"1", b"1", b"2"), strict=False):
        one.bitcode.parent.mkdir(exist_ok=True)
        one.bitcode.write_bytes(text)
    asked: list[bytes] = []

    def describe(_: object, __: object, bitcode: Path, **___: object) -> ModuleDescription:
        asked.append(bitcode.read_bytes())
        return ModuleDescription(reason="error: bad") if asked[-1] == b"2" else ModuleDescription(identity="19:x")

    monkeypatch.setattr(identity, "describe_module", describe)
    for repeats in (2, 3):
        told: list[int] = []
        found = describe_corpus(
            tmp_path,
            modules,
            toolchain=TOOLCHAIN,
            plugin=tmp_path,
            workers=3,
            report=lambda done, _, __, told=told: told.append(done),
        )
        assert sorted(asked) == [b"1", *[b"2"] * (repeats - 1)]
        assert {name: one.identity for name, one in found.by_name.items()} == {"p/a": "19:x", "p/b": "19:x"}
        assert [(one.name, one.reason) for one in found.failures] == [
            ("p/c", "error: bad"),
            ("p/d", "cannot be read: No such file or directory"),
        ]
    assert found.digests["p/a"] == hashlib.sha256(b"1").hexdigest()
    assert told == []


def test_an_interrupt_loses_no_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = module("p/a", tmp_path)
    one.bitcode.parent.mkdir()
    one.bitcode.write_bytes(b"1")
    monkeypatch.setattr(identity, "describe_module", lambda *_, **__: ModuleDescription(identity="19:x"))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe_corpus(tmp_path, [one, one], toolchain=TOOLCHAIN, plugin=tmp_path, report=interrupt)
    assert list(read_contents(tmp_path)) == [hashlib.sha256(b"1").hexdigest()]


def test_a_corpus_that_cannot_be_written_to_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = module("p/a", tmp_path)
    one.bitcode.parent.mkdir()
    one.bitcode.write_bytes(b"1")
    monkeypatch.setattr(identity, "describe_module", lambda *_, **__: ModuleDescription(identity="19:x"))
    # Even root writes to no file here.
    (tmp_path / CONTENTS_NAME).mkdir()

    found = describe_corpus(tmp_path, [one], toolchain=TOOLCHAIN, plugin=tmp_path)

    assert found.by_name["p/a"].identity == "19:x"


def test_what_is_remembered_is_never_read_or_written_through_a_link(tmp_path: Path):
    corpus, outside = tmp_path / "corpus", tmp_path / "outside"
    corpus.mkdir()
    append_contents(tmp_path, [content("1", "19:x")])
    (tmp_path / CONTENTS_NAME).rename(outside)
    before = outside.read_bytes()
    path = corpus / CONTENTS_NAME
    for make in (path.symlink_to, path.hardlink_to):
        make(outside)
        assert read_contents(corpus) == {}
        append_contents(corpus, [content("2", "19:y")])
        assert outside.read_bytes() == before
        assert set(read_contents(corpus)) == {"2"}
        append_contents(corpus, [content("3", "19:z")])
        assert set(read_contents(corpus)) == {"2", "3"}
        path.unlink()


def test_what_is_remembered_is_no_pipe_and_no_device(tmp_path: Path):
    path = tmp_path / CONTENTS_NAME
    os.mkfifo(path)
    assert read_contents(tmp_path) == {}
    append_contents(tmp_path, [content("1", "19:x")])
    assert set(read_contents(tmp_path)) == {"1"}
    path.unlink()
    path.symlink_to("/dev/zero")
    assert read_contents(tmp_path) == {}


def test_a_line_without_an_end_is_passed_over(tmp_path: Path):
    (tmp_path / CONTENTS_NAME).write_text("0" * (3 << 20))
    append_contents(tmp_path, [content("1", "19:x")])
    assert set(read_contents(tmp_path)) == {"1"}
