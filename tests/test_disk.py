"""What a run may take of the disk."""

import os
import re
from pathlib import Path

import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.cli import main
from mlgokit.disk import Room, folder_bytes, free_bytes
from mlgokit.errors import StorageError


def test_a_reserve_stays_free(tmp_path: Path):
    Room(folder=tmp_path / "not" / "yet", reserve_bytes=1).check()
    with pytest.raises(StorageError, match=r"to stay free on its disk, found .*--disk-reserve-gib.*was finished"):
        Room(folder=tmp_path, reserve_bytes=1 << 60).check()
    with pytest.raises(StorageError, match="to stay free"):
        Room(folder=None, reserve_bytes=1 << 60).check()


def test_the_usual_reserve_is_a_part_of_a_small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def disk(free: int) -> object:
        facts = os.statvfs_result((4096, 4096, 1000, free, free, 0, 0, 0, 0, 255))
        return lambda _path: facts

    monkeypatch.setattr("mlgokit.disk.os.statvfs", disk(21))
    Room(folder=tmp_path).check()
    monkeypatch.setattr("mlgokit.disk.os.statvfs", disk(19))
    with pytest.raises(StorageError, match=r"expected at least 0.1 MiB to stay free on its disk, found 0.1; free"):
        Room(folder=tmp_path).check()


def test_a_folder_has_a_bound(tmp_path: Path):
    room = Room(folder=tmp_path, reserve_bytes=1, most_bytes=1 << 20)
    room.check()
    (tmp_path / "big").write_bytes(os.urandom(2 << 20))
    room.check()  # Looked at a moment ago.
    fresh = Room(folder=tmp_path, reserve_bytes=1, most_bytes=1 << 20)
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"at most 1.0 MiB in this folder, found 2.0; allow more with --disk-limit"
        ):
            fresh.check()


def test_links_do_not_count(tmp_path: Path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "big").write_bytes(os.urandom(2 << 20))
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "big")
    assert folder_bytes(tmp_path / "inside") < 1 << 20
    assert folder_bytes(tmp_path) >= 2 << 20
    assert free_bytes(tmp_path / "nowhere") > 0


def test_an_import_stops_before_the_disk_is_full(tmp_path: Path):
    build = tmp_path / "build"
    build.mkdir()
    for number in range(3):
        (build / f"{number}.bc").write_bytes(b"BC\xc0\xde" + bytes(100))
    words = ["corpus", "import", "--bitcode", str(build), "--corpus", str(tmp_path / "corpus"), "--options=-cc1 -Oz"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--disk-reserve-gib", "1000000"])
    assert ended.value.code == StorageError.exit_code
    assert not (tmp_path / "corpus" / "corpus_description.json").exists()
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0


def test_a_run_says_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.bc").write_bytes(b"BC\xc0\xde" + bytes(100))
    corpus = tmp_path / "corpus"
    with pytest.raises(SystemExit):
        main(["corpus", "import", "--bitcode", str(tmp_path), "--corpus", str(corpus), "--options=-cc1 -Oz"])
    assert re.search(rf"{re.escape(str(corpus))}: \d+\.\d MiB on disk, [\d,]+\.\d GiB free\n$", capsys.readouterr().err)


def test_options_say_it(tmp_path: Path):
    room = CompilerOptions(disk_reserve_gib=2, disk_limit_gib=0.5).room(tmp_path)
    assert (room.reserve_bytes, room.most_bytes) == (2 << 30, 1 << 29)
