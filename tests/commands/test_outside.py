"""Folders in the user's cache, for what would be in the way among the user's sources."""

from pathlib import Path

import pytest

from mlgokit.builds.outside import make_outside_folder, outside_path


def test_a_folder_has_one_outside_which_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    assert not outside_path(one).exists()
    place = make_outside_folder(one)
    (place / "kept").write_text("")
    monkeypatch.chdir(one)
    assert make_outside_folder(Path()) == place == outside_path(one)
    assert place.is_relative_to(tmp_path / "cache")
    make_outside_folder(other)
    assert (place / "kept").exists()
    assert not list(make_outside_folder(one, anew=True).glob("kept"))
    (place / "kept").write_text("")
    one.rmdir()
    make_outside_folder(other)
    assert not place.exists()
    assert outside_path(other).exists()
