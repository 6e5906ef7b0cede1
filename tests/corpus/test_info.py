import hashlib
import json
from pathlib import Path

from mlgokit.corpus.content import ModuleContent
from mlgokit.corpus.corpus import Corpus, ModuleFailure
from mlgokit.corpus.identity import Contents
from mlgokit.corpus.info import corpus_info, group_reasons
from mlgokit.module import Module

MAGIC = b"BC\xc0\xde"


def module(folder: Path, name: str, content: bytes, **parts: object) -> Module:
    path = folder / f"{name}.bc"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    values = {
        "name": name,
        "project": name.split("/", maxsplit=1)[0],
        "language": "c++",
        "bitcode": path,
        "command_line": ("-cc1",),
        "bitcode_bytes": len(content),
        "bitcode_sha256": hashlib.sha256(content).hexdigest(),
        "front_end_seconds": 0.5,
    }
    return Module(**{**values, **parts})


def test_projects_are_counted(tmp_path: Path):
    corpus = Corpus(
        folder=tmp_path,
        modules=(
            module(tmp_path, "p/a", MAGIC + b"1", held_out=True),
            module(tmp_path, "q/b", MAGIC + b"22", language="c", front_end_seconds=None),
            module(tmp_path, "p/c", MAGIC + b"333", held_out=True),
        ),
        failures=(ModuleFailure(name="r/d", project="r", reason="error: no"),),
        missing=(ModuleFailure(name="p/e", project="p", reason="no file"),),
    )
    info = corpus_info(corpus)
    assert (info.modules, info.bitcode_bytes) == (3, 18)
    rows = [
        (row.name, row.languages, row.held_out, row.modules, row.bitcode_bytes, row.front_end_seconds, row.failures)
        for row in info.projects
    ]
    assert rows == [
        ("p", ("c++",), True, 2, 12, 1.0, 1),
        ("q", ("c",), False, 1, 6, 0.0, 0),
        ("r", (), False, 0, 0, 0.0, 1),
    ]
    assert (info.failures, info.missing) == (corpus.failures, corpus.missing)
    assert (info.damaged, info.duplicates) == ((), ())


def test_damaged_bitcode_is_named(tmp_path: Path):
    corpus = Corpus(
        folder=tmp_path,
        modules=(
            module(tmp_path, "p/text", b"; ModuleID"),
            module(tmp_path, "p/changed", MAGIC, bitcode_sha256="ab"),
            module(tmp_path, "p/wrapped", b"\xde\xc0\x17\x0b", bitcode_sha256=None),
            module(tmp_path, "p/gone", MAGIC),
        ),
    )
    (tmp_path / "p/gone.bc").unlink()
    reasons = {failure.name: failure.reason for failure in corpus_info(corpus).damaged}
    assert reasons == {
        "p/text": "expected bitcode, which begins with 42 43 c0 de, found 3b 20 4d 6f",
        "p/changed": f"expected SHA-256 ab, found {hashlib.sha256(MAGIC).hexdigest()}",
        "p/gone": "cannot be read: No such file or directory",
    }


def test_the_same_bitcode_twice_is_named(tmp_path: Path):
    modules = tuple(
        module(tmp_path, f"p/{name}", MAGIC + content) for name, content in (("a", b""), ("b", b"1"), ("c", b""))
    )
    assert corpus_info(Corpus(folder=tmp_path, modules=modules)).duplicates == (("p/a", "p/c"),)


def test_json_has_every_field(tmp_path: Path):
    info = corpus_info(Corpus(folder=tmp_path, modules=(module(tmp_path, "p/a", MAGIC),)))
    value = json.loads(json.dumps(info.to_json()))
    assert value["folder"] == str(tmp_path)
    assert value["projects"][0]["languages"] == ["c++"]
    assert set(value) == set(info.__dataclass_fields__)


def test_reasons_are_grouped_without_their_particulars():
    reasons = (
        "src/a.c:1:10: fatal error: 'x.h' file not found",
        'error: unknown type name "T"',
        "b.c:22:1: fatal error: 'sys/y.h' file not found",
        "the front end did not finish in 120 seconds",
        "the front end did not finish in 60.5 seconds",
        "c.c:3: fatal error: 'z.h' file not found",
        "d.c:4: fatal error: 'z.h' file not found",
    )
    groups = group_reasons(ModuleFailure(name=f"p/{n}", project="p", reason=text) for n, text in enumerate(reasons))
    assert [(group.reason, group.count) for group in groups] == [
        ("fatal error: '...' file not found", 4),
        ("the front end did not finish in N seconds", 2),
        ("error: unknown type name '...'", 1),
    ]
    assert [example.name for example in groups[0].examples] == ["p/0", "p/2", "p/5"]


def content(identity: str, digest: str) -> ModuleContent:
    return ModuleContent(
        bitcode_sha256=digest,
        identity=identity,
        functions=2,
        declarations=1,
        call_sites=5,
        decidable_call_sites=3,
        instructions=100,
        blocks=7,
        global_bytes=8,
    )


def full(folder: Path) -> Corpus:
    modules = (
        module(folder, "p/a", MAGIC + b"1", bitcode_sha256=None, text_bytes=70),
        module(folder, "q/b", MAGIC + b"2", bitcode_sha256=None, held_out=True),
        module(folder, "q/c", MAGIC + b"3", bitcode_sha256=None, held_out=True, language="c"),
    )
    failures = (ModuleFailure(name="p/d", project="p", reason="d.c:1: error: 'x' is not declared"),)
    return Corpus(folder=folder, modules=modules, failures=failures, has_thinlto=True, override=("-cc1",))


def looked_into(corpus: Corpus) -> Contents:
    return Contents(
        digests={one.name: one.name for one in corpus.modules},
        by_name={name: content("22:same", name) for name in ("p/a", "q/b")},
        failures=(ModuleFailure(name="q/c", project="q", reason="error: Unknown attribute kind (102)"),),
    )


def test_contents_copies_and_the_split_are_counted(tmp_path: Path):
    corpus = full(tmp_path)
    info = corpus_info(corpus, looked_into(corpus))
    assert (info.described, info.functions, info.call_sites, info.decidable_call_sites) == (2, 4, 10, 6)
    assert (info.instructions, info.languages, info.has_thinlto, info.has_override) == (
        200,
        {"c++": 2, "c": 1},
        True,
        True,
    )
    assert (info.same_content, info.leaks, info.duplicates) == ((("p/a", "q/b"),), ("p/a",), ())
    assert [(row.held_out_modules, row.copies, row.text_bytes) for row in info.projects] == [(0, 1, 70), (2, 0, 0)]
    assert [one.name for one in info.undescribed] == ["q/c"]
    assert info.damaged == ()
    assert {group.reason for group in info.skipped} == {
        "error: '...' is not declared",
        "error: Unknown attribute kind (N)",
    }
