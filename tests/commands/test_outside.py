"""Folders in the user's cache, for what would be in the way among the user's sources."""

from pathlib import Path

import pytest

from mlgokit.builds.outside import outside, outside_of


def test_a_folder_has_one_outside_which_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    assert not outside_of(one).exists()
    place = outside(one)
    (place / "kept").write_text("")
    monkeypatch.chdir(one)
    assert outside(Path()) == place == outside_of(one)
    assert place.is_relative_to(tmp_path / "cache")
    outside(other)
    assert (place / "kept").exists()
    assert not list(outside(one, anew=True).glob("kept"))
    (place / "kept").write_text("")
    one.rmdir()
    outside(other)
    assert not place.exists()
    assert outside_of(other).exists()
