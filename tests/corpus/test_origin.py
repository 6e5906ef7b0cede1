"""Which corpora were made here."""

import shutil
from pathlib import Path

import pytest

from mlgokit.corpus.origin import is_made_here, note_made_here
from mlgokit.manifest import write_manifest


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder for notes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "mlgokit" / "corpora"


def make(folder: Path) -> Path:
    write_manifest(folder, kind="corpus", config={}, toolchain=None, inputs={})
    note_made_here(folder)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus that was made here."""
    return make(tmp_path / "corpus")


def test_what_is_noted_is_known(corpus: Path, tmp_path: Path):
    assert is_made_here(corpus)
    (tmp_path / "link").symlink_to(corpus)
    assert is_made_here(tmp_path / "link")


def test_all_others_are_from_elsewhere(corpus: Path, tmp_path: Path):
    (tmp_path / "other").mkdir()
    assert not is_made_here(tmp_path / "other")
    assert not is_made_here(tmp_path / "nowhere")
    shutil.copytree(corpus, tmp_path / "copy")
    assert not is_made_here(tmp_path / "copy")


def test_another_folder_at_the_same_place_is_another(corpus: Path, tmp_path: Path):
    shutil.copytree(corpus, tmp_path / "copy")
    corpus.rename(tmp_path / "moved")
    (tmp_path / "copy").rename(corpus)
    assert not is_made_here(corpus)
    assert not is_made_here(tmp_path / "moved")


def test_another_manifest_in_the_same_folder_is_another(corpus: Path):
    # What unpacking over it would do.
    text = (corpus / "manifest.json").read_text()
    (corpus / "manifest.json").unlink()
    (corpus / "manifest.json").write_text(text)
    assert not is_made_here(corpus)


def test_deleted_notes_leave_a_corpus_untrusted(corpus: Path, state: Path):
    for note in state.iterdir():
        note.unlink()
    assert not is_made_here(corpus)


def test_notes_of_corpora_that_are_gone_go(corpus: Path, tmp_path: Path, state: Path):
    shutil.rmtree(corpus)
    make(tmp_path / "second")
    assert len(list(state.iterdir())) == 1


def test_what_cannot_be_noted_is_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    make(tmp_path / "corpus")
    assert not is_made_here(tmp_path / "corpus")


def test_what_other_processes_do_to_their_notes_stops_no_other(state: Path, tmp_path: Path):
    make(tmp_path / "first")
    # One is being written, and one goes between two looks.
    (state / ".note.0.tmp").write_text("/no/such")
    (state / "gone").symlink_to(tmp_path / "nowhere")
    assert is_made_here(make(tmp_path / "second"))
    assert is_made_here(tmp_path / "first")
    assert (state / ".note.0.tmp").exists()
