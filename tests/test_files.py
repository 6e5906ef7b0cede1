"""Files that are whole or not there, whatever happens while they are written."""

import errno
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlgokit import files
from mlgokit.errors import StorageError
from mlgokit.files import (
    atomic_write,
    check_writable,
    digest_cached,
    digest_file,
    move_into_place,
    remove_leftovers,
    replace_by_link,
    temporary_beside,
    whole_file,
)

# Ends itself at the n-th thing that it does with files, for each n, in a copy of the process.
KILLED = """
import os, signal, sys
from pathlib import Path
from mlgokit.files import atomic_write, move_into_place, whole_file
folder, how = Path(sys.argv[1]), sys.argv[2]
left = [0]
def count(event, _):
    if left[0] and event in ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod"):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
def work():
    if how == "written":
        atomic_write(folder / "file", "newer", durable=True)
    else:
        atomic_write(folder / "made", "newer")
        move_into_place(folder / "made", folder / "file", durable=True)
for number in range(1, 100):
    (folder / "file").write_text("older")
    child = os.fork()
    if not child:
        left[0] = number
        work()
        os._exit(0)
    _, code = os.waitpid(child, 0)
    found = (folder / "file").read_text()
    assert found in ("older", "newer"), found
    if not code:
        assert found == "newer"
        print(number)
        break
"""


@pytest.mark.parametrize("how", ["written", "moved"])
def test_a_kill_at_any_instant_leaves_the_older_file_or_the_newer(tmp_path: Path, how: str):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    words = [sys.executable, "-c", KILLED, str(tmp_path), how]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 2
    left = [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")]
    assert left
    assert remove_leftovers(tmp_path) == len(left)
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "made"}


def test_only_what_the_dead_left_is_removed(tmp_path: Path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(timeout=60)
    ours = temporary_beside(tmp_path / "below" / "x")
    dead = ours.with_name(ours.name.replace(f"-{os.getpid()}-", f"-{child.pid}-"))
    strange = ours.with_name(f".mlgokit-{10**30}-{'0' * 32}.tmp")
    dead.mkdir(parents=True)
    (dead / "file").write_text("")
    for path in (ours, strange, ours.with_name(".other.tmp"), ours.with_name("x")):
        path.write_text("")
    assert remove_leftovers(tmp_path, below=False) == 0
    assert remove_leftovers(tmp_path) == 1
    assert {path.name for path in ours.parent.iterdir()} == {ours.name, strange.name, ".other.tmp", "x"}
    assert remove_leftovers(tmp_path / "nowhere") == 0


def test_a_file_from_another_file_system_is_copied_beside_and_then_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, target, replace = tmp_path / "source", tmp_path / "folder" / "target", Path.replace

    def elsewhere(self: Path, other: Path) -> Path:
        if self.parent != other.parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return replace(self, other)

    monkeypatch.setattr(Path, "replace", elsewhere)
    source.write_text("new")
    source.chmod(0o750)
    atomic_write(target, "old")
    move_into_place(source, target, durable=True)
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert not source.exists()
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_what_is_durable_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        where = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append("folder" if where.is_dir() else (tmp_path / "file").read_text())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    atomic_write(tmp_path / "file", "old")
    assert synced == []
    atomic_write(tmp_path / "file", "new", durable=True)
    assert synced == ["old", "folder"]


def test_names_as_long_as_can_be_are_written(tmp_path: Path):
    atomic_write(tmp_path / ("ä" * 127), "text")
    assert (tmp_path / ("ä" * 127)).read_text() == "text"


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "file").symlink_to(tmp_path / "precious")
    with whole_file(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "file").is_symlink()


def test_what_could_not_be_written_is_refused_and_nothing_is_left(tmp_path: Path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.rglob("*"))
    for path, is_folder, found in (
        (tmp_path / "folder", False, "Is a directory; choose a path that is not a folder"),
        (tmp_path / "file", True, "Not a directory"),
        (tmp_path / "file" / "x", False, "Not a directory"),
        (tmp_path / "file" / "x", True, "Not a directory"),
        (tmp_path / "pipe", False, "a device, a pipe or a socket"),
        (tmp_path / ("x" * 256), False, "File name too long; choose a shorter name"),
        (Path("/proc/x/y"), False, ""),
        (Path("/proc/x"), True, ""),
    ):
        with pytest.raises(StorageError) as caught:
            check_writable(path, is_folder=is_folder)
        assert str(caught.value).startswith(f"{path}: expected to be able to write there, found: {found}")
    for path, is_folder in (("file", False), ("new", False), ("a/b/new", False), ("folder", True), ("a/b", True)):
        check_writable(tmp_path / path, is_folder=is_folder)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "kept"


def test_a_file_for_which_there_is_no_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    # No disk is full here.
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"x: expected to be able to write there, found: No space left on device"):
        check_writable(tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("has_links", [True, False])
def test_a_link_leads_to_the_newer_file(has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not has_links:
        # As file systems without links do.
        monkeypatch.setattr(Path, "symlink_to", refuse)
    for text in ("a", "b"):
        (tmp_path / text).write_text(text)
        replace_by_link(text, tmp_path / "link")
        assert (tmp_path / "link").read_text() == text
    assert (tmp_path / "link").is_symlink() == has_links
    assert len(list(tmp_path.iterdir())) == 3


def test_a_file_is_read_again_when_it_changed_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    read: list[Path] = []
    monkeypatch.setattr(files, "digest_file", lambda path: read.append(path) or digest_file(path))
    path.write_bytes(b"one")
    # Just written: the next change may have the same time stamp.
    assert digest_cached(path) == digest_cached(path) == digest_file(path)
    assert len(read) == 2

    begin = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: begin + 60 * 10**9)
    first = digest_cached(path)
    assert digest_cached(path) == first
    assert len(read) == 3
    status = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert digest_cached(path) == digest_file(path) != first
