"""A disk that is full stops a stage, and nothing that was finished is lost."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.llvm.stages.tiny import HELD_OUT, MODULE_NAMES, Mlgokit, TinyProjects, files

pytestmark = pytest.mark.llvm


def test_a_full_disk_stops_extraction_and_loses_nothing(
    newest_corpus: Path, tiny_projects: TinyProjects, small_disk: Callable[[str], Path], mlgokit: Mlgokit
):
    corpus = small_disk("80k") / "corpus"
    projects = ("--manifest", tiny_projects.manifest, "--projects", "beta", HELD_OUT)
    words = ("corpus", "extract", *projects, "--sources", newest_corpus.with_name("sources"), "--corpus", corpus)
    found = mlgokit(*words, "--workers", 1)

    assert found.code == 6
    assert ": expected " in found.sentence
    assert "free some space" in found.sentence
    finished = files(corpus, "*.bc")
    assert 0 < len(finished) < 4
    assert files(corpus, "*.tmp") == {}

    small_disk("8m")
    assert mlgokit(*words).code == 0
    assert finished.items() <= files(corpus, "*.bc").items()
    assert len(files(corpus, "*.bc")) == 4


@pytest.mark.parametrize("full", ["store", "scratch"])
def test_a_full_disk_stops_a_trace_and_loses_nothing(
    tmp_path: Path,
    newest_corpus: Path,
    small_disk: Callable[[str], Path],
    mlgokit: Mlgokit,
    monkeypatch: pytest.MonkeyPatch,
    full: str,
):
    disk = small_disk("48k")
    store = (disk if full == "store" else tmp_path) / "store"
    if full == "scratch":
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        monkeypatch.setenv("TMPDIR", str(disk))
    words = ("trace", "--corpus", newest_corpus, "--output", tmp_path / "trace", "--store", store)
    found = mlgokit(*words, "--workers", 1)

    assert found.code == 6
    assert "free some space" in found.sentence
    finished = files(store, "*.npz")
    assert len(finished) < len(MODULE_NAMES)

    small_disk("8m")
    ended = mlgokit(*words, "--json")
    assert (ended.code, ended.json["failed"]) == (0, [])
    assert finished.items() <= files(store, "*.npz").items()
