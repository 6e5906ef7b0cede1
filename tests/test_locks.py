"""Locks between real processes: a second Python holds one until it is told to go, or killed."""

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.errors import BusyError, StorageError
from mlgokit.locks import LOCK_NAME, locked, locked_output, reading
from mlgokit.manifest import check_manifest

HOLD = """
import sys
from pathlib import Path
from mlgokit import locks
with getattr(locks, sys.argv[1])(Path(sys.argv[2])):
    print("holds", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holder(kind: str, place: Path) -> Generator[subprocess.Popen[str]]:
    """A process that holds a lock while the block lasts."""
    words = [sys.executable, "-c", HOLD, kind, str(place)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "holds\n"
        try:
            yield child
        finally:
            child.stdin.close()


def test_a_second_process_is_told_who_works_in_the_folder(tmp_path: Path):
    folder = tmp_path / "tune"
    with holder("locked", folder) as child:
        with pytest.raises(BusyError) as caught, locked(folder):
            pass
        assert re.fullmatch(
            rf"{folder}: expected a folder that no other process uses, found `-c locked {folder}` \(process "
            rf"{child.pid} on \S+, since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\S*\); wait until it ends, or name another",
            str(caught.value),
        )
        with pytest.raises(BusyError, match=str(child.pid)), reading(folder):
            pass
    with locked(folder):
        pass
    assert not folder.exists() or list(folder.iterdir()) == []


def test_readers_share_a_lock_that_excludes_writers(tmp_path: Path):
    with holder("reading", tmp_path), holder("reading", tmp_path) as second, reading(tmp_path):
        with pytest.raises(BusyError, match=r"process \d+ on .* and `-c reading"), locked(tmp_path):
            pass
        assert str(second.pid) in (tmp_path / LOCK_NAME).read_text()
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_kill_lets_go(tmp_path: Path):
    with holder("locked", tmp_path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=20)
        assert (tmp_path / LOCK_NAME).exists()
        with locked(tmp_path):
            assert json.loads((tmp_path / LOCK_NAME).read_text())["process"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_stays_holds_nothing(tmp_path: Path):
    with locked(tmp_path):
        child = process.start(["sleep", "60"], stderr=subprocess.DEVNULL)
    try:
        with locked(tmp_path):
            assert child.poll() is None
    finally:
        process.reap_group(child)


def test_another_thread_is_another_holder(tmp_path: Path):
    found: list[str] = []

    def work() -> None:
        try:
            with locked(tmp_path):
                found.append("both")
        except BusyError as error:
            found.append(str(error))

    with locked(tmp_path):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(timeout=20)
    assert len(found) == 1
    assert f"process {os.getpid()}" in found[0]


def test_a_command_may_lock_what_it_has_locked(tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder")
    with locked(tmp_path / "folder"):
        with locked(link), reading(tmp_path / "folder"):
            pass
        assert (tmp_path / "folder" / LOCK_NAME).exists()


def test_an_output_is_made_by_one_and_others_beside_it(tmp_path: Path):
    with holder("locked_output", tmp_path / "a.so") as child, locked_output(tmp_path / "b.so"):
        message = rf"a.so: expected an output that .*\(process {child.pid} .*, or name another$"
        with pytest.raises(BusyError, match=message), locked_output(tmp_path / "a.so"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_only_locked_counts_as_empty(tmp_path: Path):
    with locked(tmp_path):
        assert not check_manifest(tmp_path, kind="corpus", config={}, toolchain=None, inputs={})


def test_a_call_that_fails_leaves_no_folder(tmp_path: Path):
    with pytest.raises(ValueError, match="wrong"), locked(tmp_path / "a" / "b"):
        raise ValueError("wrong")
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "absent", make=False):
        assert not (tmp_path / "absent").exists()


def test_a_folder_that_cannot_be_written_is_read_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def read_only(path: object, flags: int, *_: object) -> int:
        raise OSError(errno.EROFS if flags & os.O_CREAT else errno.ENOENT, "Read-only file system", path)

    monkeypatch.setattr("mlgokit.locks.os.open", read_only)
    with reading(tmp_path):
        pass
    with pytest.raises(StorageError, match=f"{tmp_path}: expected to be able to write there"), locked(tmp_path):
        pass


def test_a_file_system_without_locks_works_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with locked(tmp_path), reading(tmp_path / "other"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo"])
def test_what_a_stranger_put_in_the_place_of_a_lock_is_not_written(kind: str, tmp_path: Path):
    corpus, secret = tmp_path / "corpus", tmp_path / "secret"
    corpus.mkdir()
    secret.write_text("as it was")
    place = corpus / LOCK_NAME
    {"link": place.symlink_to, "hard link": place.hardlink_to, "fifo": lambda _: os.mkfifo(place)}[kind](secret)
    with reading(corpus):
        pass
    with pytest.raises(StorageError), locked(corpus):
        pass
    assert secret.read_text() == "as it was"


def test_a_line_that_a_stranger_wrote_is_shown_as_plain_text(tmp_path: Path):
    place = tmp_path / LOCK_NAME
    with place.open("w") as file:
        fields = {"command": "\x1b[2J" + "x" * 999, "process": 1, "host": "else\nwhere", "since": "now"}
        file.write("[[[\n5\n" + json.dumps(fields) + "\n")
    descriptor = os.open(place, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(BusyError) as caught, locked(tmp_path):
        pass
    os.close(descriptor)
    assert "found `?[2Jxxx" in str(caught.value)
    assert "on else?where, since now" in str(caught.value)
    assert len(str(caught.value)) < 600
