"""Static libraries, as ar writes them and as nobody should."""

import os
import tracemalloc
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.objects.archive import is_archive, read_members, write_archive
from mlgokit.errors import InputError

AR = Path("/usr/bin/ar")
needs_ar = pytest.mark.skipif(not AR.exists(), reason="needs ar")


def put_files(folder: Path, *names: str) -> list[Path]:
    paths = [folder / str(index) / name for index, name in enumerate(names)]
    for index, path in enumerate(paths):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"%d" % index * (index + 3))
    return paths


@needs_ar
def test_what_ar_packs_is_read_again_with_long_and_with_repeated_names(tmp_path: Path):
    paths = put_files(tmp_path, "a.o", "a_name_of_more_than_sixteen_letters.cpp.o", "a.o")
    assert not write_archive(AR, tmp_path / "all.a", paths, timeout_seconds=30)
    assert is_archive(tmp_path / "all.a")
    members = read_members(tmp_path / "all.a")
    assert [(one.name, one.data()) for one in members] == [(path.name, path.read_bytes()) for path in paths]


@needs_ar
def test_a_thin_library_names_files(tmp_path: Path):
    paths = put_files(tmp_path, "a.o", "b.o")
    done = process.run([AR, "qcT", "thin.a", "0/a.o", "1/b.o"], timeout_seconds=30, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [one.data() for one in read_members(tmp_path / "thin.a")] == [path.read_bytes() for path in paths]
    paths[1].unlink()
    with pytest.raises(InputError, match=r"expected the object 1/b\.o, found: No such file"):
        read_members(tmp_path / "thin.a")[1].data()


def member(name: bytes, data: bytes) -> bytes:
    return b"%-16s%-32s%-10d`\n" % (name, b"", len(data)) + data + b"\n" * (len(data) % 2)


def test_a_size_in_a_thin_library_is_not_believed(tmp_path: Path):
    (tmp_path / "a.o").write_bytes(b"four")
    header = b"%-16s%-32s%-10d`\n" % (b"a.o/", b"", 9_999_999_999)
    bsd = b"%-16s%-32s%-10d`\n" % (b"#1/9999999999", b"", 9_999_999_999)
    (tmp_path / "thin.a").write_bytes(b"!<thin>\n" + header + bsd)
    tracemalloc.start()
    members = read_members(tmp_path / "thin.a")
    assert members[0].data() == b"four"
    assert [one.name for one in members] == ["a.o", ""]
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_names_in_the_manner_of_bsd(tmp_path: Path):
    (tmp_path / "bsd.a").write_bytes(b"!<arch>\n" + member(b"__.SYMDEF", b"x") + member(b"#1/8", b"long.o\0\0code"))
    assert [(one.name, one.data()) for one in read_members(tmp_path / "bsd.a")] == [("long.o", b"code")]


def test_long_names_end_in_zeros_where_microsofts_linker_reads_them(tmp_path: Path):
    names = member(b"//", b"one_long_name.obj\0another_one.obj\0")
    parts = member(b"/", b"x") + member(b"/", b"y") + names + member(b"/18", b"code") + member(b"/0", b"more")
    (tmp_path / "any.lib").write_bytes(b"!<arch>\n" + parts)
    found = [(one.name, one.data()) for one in read_members(tmp_path / "any.lib")]
    assert found == [("another_one.obj", b"code"), ("one_long_name.obj", b"more")]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"!<arch>\n" + member(b"a.o/", b"four")[:-1], "expected 4 bytes of a.o/ at byte 68, found less"),
        (b"!<arch>\nshort", "expected a member's header at byte 8, found none"),
        (b"!<arch>\n" + b"x" * 60, "expected a member's header at byte 8, found none"),
        (b"\x7fELF", "expected a static library, found another file"),
    ],
)
def test_a_damaged_library_is_refused(tmp_path: Path, data: bytes, sentence: str):
    (tmp_path / "bad.a").write_bytes(data)
    with pytest.raises(InputError, match=sentence):
        read_members(tmp_path / "bad.a")


def test_odd_members_are_one_sentence(tmp_path: Path):
    path = tmp_path / "lib.a"
    path.write_bytes(b"!<arch>\n" + member(b"/\xb2", b"") + member(b"#1/\xb2", b""))
    assert [one.name for one in read_members(path)] == ["/\u00b2", ""]
    path.write_bytes(b"!<thin>\n" + member(b"a\0b.o/", b""))
    with pytest.raises(InputError, match=r"expected the object a.b.o, found: .*embedded null .*; build it again"):
        read_members(path)[0].data()
    os.mkfifo(tmp_path / "pipe.o")
    path.write_bytes(b"!<thin>\n" + member(b"pipe.o/", b""))
    with pytest.raises(InputError, match=r"expected the object pipe.o, found: no regular file; build it again"):
        read_members(path)[0].data()
    with pytest.raises(InputError, match=r"pipe.o: expected a static library, found: no regular file"):
        read_members(tmp_path / "pipe.o")
    assert not is_archive(tmp_path / "pipe.o")
