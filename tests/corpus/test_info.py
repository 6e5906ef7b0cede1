import hashlib
import json
from pathlib import Path

from mlgokit.corpus.info import corpus_info
from mlgokit.corpus.module import Corpus, Module, ModuleFailure

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


def test_json_has_all_of_it(tmp_path: Path):
    info = corpus_info(Corpus(folder=tmp_path, modules=(module(tmp_path, "p/a", MAGIC),)))
    value = json.loads(json.dumps(info.to_json()))
    assert value["folder"] == str(tmp_path)
    assert value["projects"][0]["languages"] == ["c++"]
    assert set(value) == set(info.__dataclass_fields__)
