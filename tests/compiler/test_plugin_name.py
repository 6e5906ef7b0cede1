"""Where finished plugins go, and under which names."""

import hashlib
import os
from pathlib import Path

import pytest

from mlgokit.compiler.plugin_name import check_plugin_output, publish_plugin, versioned_path
from mlgokit.errors import StorageError, UsageError


def made(folder: Path, text: str) -> Path:
    (folder / "new").write_text(text)
    return folder / "new"


@pytest.mark.parametrize("name", ["tuned.so", "tuned", "tuned.plugin"])
def test_a_plugin_has_a_name_with_its_digest_and_the_one_that_was_asked_for(name: str, tmp_path: Path):
    output, digest = tmp_path / "out" / name, hashlib.sha256(b"one").hexdigest()
    expected = versioned_path(output, made(tmp_path, "one"))
    assert publish_plugin(tmp_path / "new", output) == expected == tmp_path / "out" / f"tuned-{digest[:12]}.plugin"
    assert output.resolve() == expected
    assert output.read_text() == "one"
    assert os.access(output, os.X_OK)
    assert not (tmp_path / "new").exists()


def test_the_previous_plugin_is_kept_and_older_ones_are_deleted(tmp_path: Path):
    output = tmp_path / "tuned.so"
    # Neither is an older version.
    others = [tmp_path / name for name in ("tuned-0123456789ab.plugin", "tuned-x-0123456789ab.plugin")]
    for path in others:
        path.write_text("not what its name says")
    output.write_text("by an earlier version of mlgokit")
    first, second, third = (publish_plugin(made(tmp_path, text), output) for text in ("one", "two", "three"))
    assert output.resolve() == third
    assert sorted(tmp_path.iterdir()) == sorted([output, second, third, *others])
    assert publish_plugin(made(tmp_path, "three"), output) == third
    assert second.exists()
    assert not first.exists()


def test_an_output_that_is_not_ours_or_cannot_be_written_is_refused(tmp_path: Path):
    output = tmp_path / "tuned.so"
    check_plugin_output(output)
    for data in (b"", b"\x7fELF ... mlgokit ..."):
        output.write_bytes(data)
        check_plugin_output(output)
    for data in (b"int main() {}", b"\x7fELF ...", b"mlgokit"):
        output.write_bytes(data)
        with pytest.raises(UsageError, match=r"tuned\.so: expected a plugin that mlgokit made, or no file, found ano"):
            check_plugin_output(output)
        assert output.read_bytes() == data
    for path in (tmp_path, tmp_path / ("x" * 250)):
        with pytest.raises(StorageError, match=r"expected to be able to write there, found: (Is a dir|File name too)"):
            check_plugin_output(path)
