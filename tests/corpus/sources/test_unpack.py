import gzip
import io
import json
import lzma
import stat
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.corpus.sources import unpack
from mlgokit.corpus.sources.unpack import unpack_archive
from mlgokit.errors import FetchError, ReuseError, StorageError


def tar_with(path: Path, *members: tuple[str, bytes | str | None]) -> Path:
    """A tar archive; bytes make a file, text a symbolic link, nothing a folder."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            elif isinstance(content, str):
                member.type = tarfile.SYMTYPE
                member.linkname = content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def files_of(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".mlgokit")
    }


def test_a_tar_is_unpacked(tmp_path: Path):
    archive = tar_with(tmp_path / "p.tar.gz", ("p", None), ("p/a.cc", b"a"), ("./p/sub/b.cc", b"b"))
    folder = unpack_archive(archive, tmp_path / "out" / "p")
    assert folder == tmp_path / "out" / "p"
    assert files_of(folder) == {"p/a.cc": "a", "p/sub/b.cc": "b"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["p"]


def test_a_zip_is_unpacked(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.mkdir("p")
        archive.writestr("p/a.cc", "a")
        link = zipfile.ZipInfo("p/link.cc")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    assert files_of(unpack_archive(tmp_path / "p.zip", tmp_path / "out")) == {"p/a.cc": "a"}


def test_only_the_subtree_is_unpacked_and_texts_are_added(tmp_path: Path):
    archive = tar_with(tmp_path / "p.tar.gz", ("p/a/x.h", b"x"), ("p/ab/y.h", b"y"), ("p/z.h", b"z"))
    folder = unpack_archive(archive, tmp_path / "out", subtree="p/a/", generated={"p/a/config/c.h": "c"})
    assert files_of(folder) == {"p/a/config/c.h": "c", "p/a/x.h": "x"}


def test_what_is_unpacked_is_left_alone(tmp_path: Path):
    archive = tar_with(tmp_path / "p.tar.gz", ("a.cc", b"a"))
    folder = unpack_archive(archive, tmp_path / "out")
    (folder / "mine").write_text("kept")
    unpack_archive(archive, tmp_path / "out")
    assert files_of(folder) == {"a.cc": "a", "mine": "kept"}


def test_another_archive_or_text_takes_the_place(tmp_path: Path):
    first = tar_with(tmp_path / "1.tar.gz", ("a.cc", b"a"))
    second = tar_with(tmp_path / "2.tar.gz", ("b.cc", b"b"))
    folder = unpack_archive(first, tmp_path / "out")
    assert files_of(unpack_archive(second, folder)) == {"b.cc": "b"}
    assert files_of(unpack_archive(second, folder, generated={"c.h": "c"})) == {"b.cc": "b", "c.h": "c"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.tar.gz", "2.tar.gz", "out"]


def test_files_of_somebody_else_are_not_touched(tmp_path: Path):
    archive = tar_with(tmp_path / "p.tar.gz", ("a.cc", b"a"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("x")
    with pytest.raises(ReuseError, match=r"out: expected nothing or an unpacked archive, found other files"):
        unpack_archive(archive, tmp_path / "out")
    assert files_of(tmp_path / "out") == {"thesis.tex": "x"}


def test_links_become_copies(tmp_path: Path):
    path = tar_with(
        tmp_path / "p.tar.gz",
        ("p/to-link.h", "link.h"),
        ("p/link.h", "sub/a.h"),
        ("p/sub/a.h", b"a"),
        ("p/dangling.h", "nothing.h"),
        ("p/round.h", "round.h"),
        ("p/folder", "sub"),
    )
    folder = unpack_archive(path, tmp_path / "out")
    assert files_of(folder) == {"p/link.h": "a", "p/sub/a.h": "a", "p/to-link.h": "a"}
    assert not any(path.is_symlink() for path in folder.rglob("*"))


def test_hard_links_become_copies(tmp_path: Path):
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        member = tarfile.TarInfo("p/a.h")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"a"))
        member = tarfile.TarInfo("p/b.h")
        member.type = tarfile.LNKTYPE
        member.linkname = "p/a.h"
        archive.addfile(member)
    assert files_of(unpack_archive(tmp_path / "p.tar", tmp_path / "out")) == {"p/a.h": "a", "p/b.h": "a"}


def test_devices_and_pipes_are_left_out(tmp_path: Path):
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo("p/special")
            member.type = kind
            archive.addfile(member)
    assert not files_of(unpack_archive(tmp_path / "p.tar", tmp_path / "out"))


@pytest.mark.parametrize(
    "member",
    [
        ("../evil", b"x"),
        ("p/../../evil", b"x"),
        ("/evil", b"x"),
        ("p\\..\\evil", b"x"),
        ("p/link", "../../evil"),
        ("p/link", "/etc/passwd"),
    ],
)
def test_a_path_that_leaves_is_refused(tmp_path: Path, member: tuple[str, bytes | str]):
    archive = tar_with(tmp_path / "p.tar.gz", ("p/a.cc", b"a"), member)
    with pytest.raises(FetchError, match=r"p.tar.gz: expected paths inside the archive, found .*; do not use it"):
        unpack_archive(archive, tmp_path / "in" / "out")
    assert not list((tmp_path / "in").iterdir())
    assert not (tmp_path / "evil").exists()


def test_a_file_through_a_link_cannot_leave(tmp_path: Path):
    archive = tar_with(tmp_path / "p.tar.gz", ("p/up", "sub"), ("p/up/evil", b"x"))
    assert files_of(unpack_archive(archive, tmp_path / "out")) == {"p/up/evil": "x"}


def test_a_zip_path_that_leaves_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("../evil", "x")
    with pytest.raises(FetchError, match=r"expected paths inside the archive"):
        unpack_archive(tmp_path / "p.zip", tmp_path / "out")


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive = tar_with(tmp_path / "p.tar.gz", ("a", b"0" * (1 << 16) * 201))
    with pytest.raises(FetchError, match=r"expected at most 13107200 bytes unpacked, found more"):
        unpack_archive(archive, tmp_path / "out")
    monkeypatch.setattr(unpack, "MAX_FILES", 2)
    archive = tar_with(tmp_path / "q.tar.gz", ("a", b""), ("b", b""), ("c", b""))
    with pytest.raises(FetchError, match=r"q.tar.gz: expected at most 2 files, found more"):
        unpack_archive(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cut", [10, 400])
def test_a_damaged_archive_is_refused(tmp_path: Path, cut: int):
    archive = tar_with(tmp_path / "p.tar.gz", ("a.cc", bytes(range(256)) * 50))
    archive.write_bytes(archive.read_bytes()[:cut])
    with pytest.raises(
        FetchError, match=r"p.tar.gz: expected a sound tar or zip archive, found: .*; delete it to fetch"
    ):
        unpack_archive(archive, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["p.tar.gz"]


def test_a_damaged_zip_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("a.cc", "hello hello")
    data = (tmp_path / "p.zip").read_bytes()
    (tmp_path / "p.zip").write_bytes(data.replace(b"hello hello", b"hello jello"))
    with pytest.raises(FetchError, match=r"expected a sound tar or zip archive, found: Bad CRC"):
        unpack_archive(tmp_path / "p.zip", tmp_path / "out")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path):
    (tmp_path / "page.html").write_text("<html>" * 200)
    with pytest.raises(FetchError, match=r"expected a sound tar or zip archive"):
        unpack_archive(tmp_path / "page.html", tmp_path / "out")


def test_a_damaged_stamp_is_no_stamp(tmp_path: Path):
    archive = tar_with(tmp_path / "p.tar.gz", ("a.cc", b"a"))
    folder = unpack_archive(archive, tmp_path / "out")
    (stamp,) = folder.glob(".mlgokit*")
    assert json.loads(stamp.read_text())["subtree"] == "."
    stamp.write_text("{")
    with pytest.raises(ReuseError):
        unpack_archive(archive, folder)


def test_an_unwritable_place_is_named(tmp_path: Path):
    archive = tar_with(tmp_path / "p.tar.gz", ("a.cc", b"a"))
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file"):
        unpack_archive(archive, tmp_path / "file" / "out")


def test_members_of_every_kind_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unpack, "MAX_FILES", 100)
    archive = tar_with(tmp_path / "p.tar.gz", *((f"d{index}", None) for index in range(101)))
    with pytest.raises(FetchError, match=r"p.tar.gz: expected at most 100 files, found more"):
        unpack_archive(archive, tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as zipped:
        for index in range(101):
            zipped.mkdir(f"d{index}")
    with pytest.raises(FetchError, match=r"p.zip: expected at most 100 files, found more"):
        unpack_archive(tmp_path / "p.zip", tmp_path / "out")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_is_not_as_long_as_it_says(tmp_path: Path, kind: bytes):
    header = tarfile.TarInfo("h")
    header.type, header.size = kind, 1 << 28
    with gzip.open(tmp_path / "p.tar.gz", "wb", compresslevel=1) as file:
        file.write(header.tobuf())
        for _ in range(1 << 8):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    with pytest.raises(FetchError, match=r"expected a sound tar or zip archive, found: a header of 268435456 bytes"):
        unpack_archive(tmp_path / "p.tar.gz", tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def pax(name: str, kind: bytes = tarfile.XHDTYPE, *, size: int = 1 << 19) -> bytes:
    """A header with one value as long as that."""
    member = tarfile.TarInfo("h")
    record = b"%d %s=" % (size, name.encode())
    member.type, member.size = kind, size
    return member.tobuf() + record + b"x" * (size - len(record) - 1) + b"\n"


def pax_tar(path: Path, parts: Iterable[bytes]) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for part in parts:
            file.write(part)
        # Enough that does not compress.
        file.write(tarfile.TarInfo("p/a.c").tobuf() + bytes(1024))
        file.write(np.random.default_rng(1).bytes(1 << 18))
    return path


def test_headers_of_members_are_not_kept(tmp_path: Path):
    """Each has half a MiB before it."""
    member = tarfile.TarInfo("p/b.c").tobuf()
    archive = pax_tar(tmp_path / "p.tar.gz", (pax("comment") + member for _ in range(64)))
    tracemalloc.start()
    assert files_of(unpack_archive(archive, tmp_path / "out")) == {"p/a.c": "", "p/b.c": ""}
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ([pax(f"a{index}") for index in range(8)], r"a header of \d+ bytes, of which at most \d+ are read"),
        ([pax("a", tarfile.GNUTYPE_LONGNAME) for _ in range(8)], r"a header of \d+ bytes, of which at most \d+ are"),
        (
            [pax(f"a{index}", tarfile.XGLTYPE) + tarfile.TarInfo("p/b.c").tobuf() for index in range(8)],
            "global headers that are too long",
        ),
        (
            [pax(f"{index:03}", tarfile.XGLTYPE, size=9) + bytes(503) + tarfile.TarInfo("b").tobuf()
             for index in range(101)],
            "global headers that are too long",
        ),
    ],
)  # fmt: skip
def test_headers_are_bounded_together(tmp_path: Path, parts: list[bytes], found: str):
    archive = pax_tar(tmp_path / "p.tar.gz", parts)
    with pytest.raises(FetchError, match=rf"expected a sound tar or zip archive, found: {found}"):
        unpack_archive(archive, tmp_path / "out")


def test_a_zip_of_very_many_members_is_not_listed(tmp_path: Path):
    """Its directory is looked at before it is read: each of its members takes ten times as much in memory."""
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("a.c", "x")
        archive.writestr(zipfile.ZipInfo("b.c"), b"")
    data = bytearray((tmp_path / "p.zip").read_bytes())
    begin = data.index(b"PK\x01\x02")
    directory = bytes(1) * (33 << 20)
    end = data[data.index(b"PK\x05\x06") :]
    end[12:16] = len(directory).to_bytes(4, "little")
    (tmp_path / "p.zip").write_bytes(bytes(data[:begin]) + directory + bytes(end))
    tracemalloc.start()
    with pytest.raises(FetchError, match=r"found: a header of 34603008 bytes, of which at most 33554432 are read"):
        unpack_archive(tmp_path / "p.zip", tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_dictionary_of_xz_is_bounded(tmp_path: Path):
    """liblzma would take as much as the header asks for, before it has unpacked anything."""
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("a.c"))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress((tmp_path / "p.tar").read_bytes(), filters=filters))
    # The block's header: its size, flags, and LZMA2's number, one byte of properties, which is the dictionary's size.
    assert data[12:16] == b"\x02\0\x21\1"
    data[16] = 40
    data[20:24] = zlib.crc32(data[12:20]).to_bytes(4, "little")
    (tmp_path / "p.tar.xz").write_bytes(data)
    with pytest.raises(FetchError, match=r"expected a sound tar or zip archive, found: Memory usage limit exceeded"):
        unpack_archive(tmp_path / "p.tar.xz", tmp_path / "out")


def test_an_xz_of_several_streams_is_read(tmp_path: Path):
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        member = tarfile.TarInfo("a.c")
        member.size = 200_000
        archive.addfile(member, io.BytesIO(b"int" * 100_000))
        archive.addfile(tarfile.TarInfo("b.c"))
    data = (tmp_path / "p.tar").read_bytes()
    streams = [lzma.compress(data[:700]), bytes(8), lzma.compress(data[700:150_000]), lzma.compress(data[150_000:])]
    (tmp_path / "p.tar.xz").write_bytes(b"".join(streams) + bytes(4))
    found = files_of(unpack_archive(tmp_path / "p.tar.xz", tmp_path / "out"))
    assert (len(found["a.c"]), found["b.c"]) == (200_000, "")
    (tmp_path / "cut.tar.xz").write_bytes(streams[0] + streams[2][:-40])
    with pytest.raises(FetchError, match=r"expected a sound tar or zip archive, found: "):
        unpack_archive(tmp_path / "cut.tar.xz", tmp_path / "cut")
    (tmp_path / "old.tar.lzma").write_bytes(lzma.compress(data, format=lzma.FORMAT_ALONE))
    assert len(files_of(unpack_archive(tmp_path / "old.tar.lzma", tmp_path / "old"))) == 2


def test_a_member_that_is_passed_over_is_not_decompressed_for_ever(tmp_path: Path):
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("elsewhere/big")
        member.size = 64 << 20
        archive.addfile(member, io.BytesIO(bytes(member.size)))
        archive.addfile(tarfile.TarInfo("p/a.c"))
    with pytest.raises(FetchError, match=r"expected a sound tar or zip archive, found: more than \d+ bytes unpacked"):
        unpack_archive(tmp_path / "p.tar.gz", tmp_path / "out", subtree="p")


def test_every_compression_of_a_tar_is_read(tmp_path: Path):
    for suffix in ("", ".gz", ".bz2", ".xz"):
        path = tmp_path / f"p.tar{suffix}"
        mode: Any = f"w:{suffix[1:]}"
        with tarfile.open(path, mode) as archive:
            member = tarfile.TarInfo("a.c")
            member.size = 3
            archive.addfile(member, io.BytesIO(b"int"))
        assert files_of(unpack_archive(path, tmp_path / f"out{suffix}")) == {"a.c": "int"}


def test_a_zip_that_decompresses_without_bounds_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "p.zip", "w", compression=zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.c", "x")
    with pytest.raises(FetchError, match=r"p.zip: expected zip members stored or deflated, found 'a.c' otherwise"):
        unpack_archive(tmp_path / "p.zip", tmp_path / "out")
