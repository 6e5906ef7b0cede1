import dataclasses
import enum
import errno
import hashlib
import json
from pathlib import Path

import pytest

from mlgokit.errors import ReuseError, StorageError
from mlgokit.files import atomic_write, digest_file, writing
from mlgokit.manifest import MANIFEST_NAME, check_manifest, digest_value, plain_json, write_manifest


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float
    folder: Path
    colours: tuple[Colour, ...]


SIGNATURE = {
    "kind": "corpus",
    "config": {"rate": 0.5, "nested": {"sizes": (1, 2)}, "config": Config(0.1, Path("a/b"), (Colour.RED,))},
    "toolchain": {"clang": "19.1.7"},
    "inputs": {"leveldb": "abc"},
}


def changed(**parts: object) -> dict:
    return {**SIGNATURE, **parts}


def test_an_absent_or_empty_folder_is_free(tmp_path: Path):
    assert not check_manifest(tmp_path / "absent", **SIGNATURE)
    assert not check_manifest(tmp_path, **SIGNATURE)


def test_what_a_killed_write_leaves_behind_does_not_count(tmp_path: Path):
    (tmp_path / ".manifest.json.0123.tmp").write_text("{")
    assert not check_manifest(tmp_path, **SIGNATURE)


def test_the_same_configuration_matches(tmp_path: Path):
    write_manifest(tmp_path / "deep" / "folder", **SIGNATURE)
    assert check_manifest(tmp_path / "deep" / "folder", **SIGNATURE)
    assert [path.name for path in (tmp_path / "deep" / "folder").iterdir()] == [MANIFEST_NAME]


def test_the_version_of_mlgokit_is_recorded_and_not_compared(tmp_path: Path):
    write_manifest(tmp_path, **SIGNATURE)
    record = json.loads((tmp_path / MANIFEST_NAME).read_text())
    assert record["format_version"] == 1
    record["mlgokit_version"] = "99"
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(record))
    assert check_manifest(tmp_path, **SIGNATURE)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"kind": "trace"}, 'kind: expected "trace", found "corpus"'),
        ({"config": {"rate": 0.25}}, "config.rate: expected 0.25, found 0.5"),
        ({"config": {"rate": True}}, "config.rate: expected true, found 0.5"),
        (
            {"config": {**SIGNATURE["config"], "nested": {"sizes": (1, 3)}}},
            r"config.nested.sizes: expected \[1, 3\], found \[1, 2\]",
        ),
        ({"config": {**SIGNATURE["config"], "new": 1}}, "config.new: expected 1, found nothing"),
        ({"toolchain": {"clang": "22.1.8"}}, 'toolchain.clang: expected "22.1.8", found "19.1.7"'),
        ({"toolchain": None}, "toolchain: expected null, found"),
        ({"inputs": {}}, 'inputs.leveldb: expected nothing, found "abc"'),
    ],
)
def test_the_first_difference_is_named(tmp_path: Path, parts: dict, message: str):
    write_manifest(tmp_path, **SIGNATURE)
    with pytest.raises(ReuseError, match=message) as caught:
        check_manifest(tmp_path, **changed(**parts))
    assert str(tmp_path) in str(caught.value)
    assert "choose another folder or delete this one" in str(caught.value)


def test_another_version_of_the_format_is_refused(tmp_path: Path):
    (tmp_path / MANIFEST_NAME).write_text('{"format_version": 7}')
    with pytest.raises(ReuseError, match=r"format_version: expected 1, found 7"):
        check_manifest(tmp_path, **SIGNATURE)


@pytest.mark.parametrize("text", ["", "{", "\xff", "[]", "3", "[" * 100_000, "9" * 5000])
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str):
    (tmp_path / MANIFEST_NAME).write_bytes(text.encode("latin-1"))
    with pytest.raises(ReuseError, match=r"expected"):
        check_manifest(tmp_path, **SIGNATURE)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ReuseError, match=r"expected a folder with manifest.json, or an empty one, found other files"):
        check_manifest(tmp_path, **SIGNATURE)
    with pytest.raises(ReuseError, match=r"expected a folder, found a file"):
        check_manifest(tmp_path / "thesis.tex", **SIGNATURE)


def test_long_values_are_shortened_in_the_message(tmp_path: Path):
    write_manifest(tmp_path, **changed(config={"names": ["x" * 50] * 20}))
    with pytest.raises(ReuseError) as caught:
        check_manifest(tmp_path, **changed(config={"names": ["y" * 50] * 20}))
    assert len(str(caught.value)) < 600


def test_a_value_without_json_form_is_our_mistake(tmp_path: Path):
    with pytest.raises(TypeError, match=r"has no JSON form"):
        write_manifest(tmp_path, **changed(config={"function": print}))
    assert not list(tmp_path.iterdir())


def test_plain_json_of_values():
    assert plain_json(SIGNATURE["config"]["config"]) == {"rate": 0.1, "folder": "a/b", "colours": ["red"]}
    assert plain_json({"set": {"b", "a"}}) == {"set": ["a", "b"]}
    assert digest_value({"set": {"b", "a"}}) == digest_value({"set": ["a", "b"]})


def test_a_write_replaces_the_whole_file(tmp_path: Path):
    target = tmp_path / "new" / "file"
    atomic_write(target, "old and long")
    atomic_write(target, b"new\xff")
    assert target.read_bytes() == b"new\xff"
    assert digest_file(target) == hashlib.sha256(b"new\xff").hexdigest()
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "file"
    atomic_write(target, "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    message = "file: expected to be able to write there, found: No space left on device; free some space"
    with pytest.raises(StorageError, match=message):
        atomic_write(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_path_through_a_file_is_a_storage_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"does not lead through a file|Not a directory|File exists"):
        atomic_write(tmp_path / "file" / "below", "x")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EROFS, "mounted for writing"),
        (errno.EACCES, "that you may write to"),
        (errno.EIO, "check the disk"),
    ],
)
def test_each_reason_has_its_remedy(number: int, remedy: str):
    with pytest.raises(StorageError, match=remedy), writing(Path("place")):
        raise OSError(number, "reason")
