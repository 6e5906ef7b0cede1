"""Of an npz file no more is unpacked than is wanted, and no more than such a file may have."""

import dataclasses
import io
import os
import re
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlgokit
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.compiler.arrays import DAMAGE, MOST_ARRAYS, MOST_BYTES, TooLargeError, read_arrays, unpacked_bytes
from mlgokit.compiler.caching import open_caching
from mlgokit.compiler.compilation import Compilation, CompileStatus, InlineDecisions, no_decisions
from mlgokit.compiler.limits import COMPILER_LIMITS
from mlgokit.compiler.request import PLAIN
from mlgokit.compiler.shared_store import open_shared
from mlgokit.compiler.store import load_compilation, save_compilation
from mlgokit.errors import InputError
from mlgokit.learning.pass_trials import ModuleTrials
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source
from mlgokit.tune.spaces.functions.state import FunctionState, load_functions, save_functions
from mlgokit.tune.spaces.inlining.state import Progress, append_effects, load_effects, load_progress, save_progress
from mlgokit.tune.spaces.optimizer.state import load_left_out, save_left_out

DONE = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 7}))
GIB = 1 << 30


def header(descr: str = "|u1", shape: str = "(3,)") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text


def with_zeros(data: bytes, name: str, size: int) -> bytes:
    """An npz file with one more array of so many zeros, or with this one in place of its own; nobody ever has them all.

    The checksum is wrong: who comes as far as that has unpacked everything.
    """
    deflate = zlib.compressobj(wbits=-15)
    begin = header("|u1", f"({size},)")
    chunk = deflate.compress(begin) + deflate.flush(zlib.Z_FULL_FLUSH)
    zeros = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(16)) + deflate.flush(zlib.Z_FULL_FLUSH)
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for member in old.infolist():
            if member.filename != f"{name}.npy":
                new.writestr(member, old.read(member))
        info = zipfile.ZipInfo(f"{name}.npy")
        new.writestr(info, chunk + zeros * (size >> 24) + deflate.flush())
        info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, len(begin) + size
    return file.getvalue()


def written(write: Callable[[Path], object], folder: Path) -> bytes:
    write(folder / "written")
    return (folder / "written").read_bytes()


def effects() -> MeasuredEffects:
    return MeasuredEffects(
        names=("a",), values=np.ones((3, 1), np.int64), sign=np.ones(3, np.float32),
        component=np.zeros(3, np.int64), change=np.ones(1, np.float32), project=np.zeros(1, np.int64),
        projects=("m",),
    )  # fmt: skip


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


TRIALS = ModuleTrials(
    values=np.zeros((0, 0), np.int64), change=np.zeros(0), slowdown=np.zeros(0), size=np.zeros(0), trials=5,
    compilations=1, user_seconds=0.5,
)  # fmt: skip
KEPT: dict[str, tuple[Callable[[Path], object], Callable[[Path], object], str]] = {
    "compilation": (
        lambda path: save_compilation(path, DONE),
        lambda path: load_compilation(path, problem="inline-size"),
        "sizes_rest",
    ),
    "progress": (lambda path: save_progress(path, Progress(decisions={2: True}, tried={})), load_progress, "site"),
    "functions": (
        lambda path: save_functions(path, [FunctionState(key=7, name="f", plain=2.0, score=1.0)]),
        load_functions,
        "key",
    ),
    "left out": (lambda path: save_left_out(path, frozenset({(1, 2, 3)})), load_left_out, "key"),
}
"""What is written to a file of its own: writer, reader, and an array that is wanted."""


@pytest.fixture
def traced() -> Generator[Callable[[], int]]:
    """Says how much memory was taken at most; what zlib takes inside is a few pages."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.mark.parametrize("kind", KEPT)
def test_an_array_that_nobody_wants_is_not_unpacked(tmp_path: Path, kind: str, traced: Callable[[], int]):
    write, read, _ = KEPT[kind]
    data = with_zeros(written(write, tmp_path), "more", 2 * GIB)
    (tmp_path / "hostile").write_bytes(data)
    expected = read(tmp_path / "written")
    before = traced()
    assert expected
    assert repr(read(tmp_path / "hostile")) == repr(expected)
    assert len(data) < 4 << 20
    assert traced() < before + (8 << 20)


@pytest.mark.parametrize("kind", KEPT)
def test_a_wanted_array_that_is_too_large_is_a_sentence(tmp_path: Path, kind: str, traced: Callable[[], int]):
    write, read, wanted = KEPT[kind]
    (tmp_path / "hostile").write_bytes(with_zeros(written(write, tmp_path), wanted, 2 * GIB))
    before = traced()
    with pytest.raises(
        InputError, match=r"hostile: expected .* found .*2 GiB of arrays, of which at most .* delete (this file|it)"
    ):
        read(tmp_path / "hostile")
    assert traced() < before + (8 << 20)


def test_a_record_of_effects_is_bounded_as_all_of_them_are(tmp_path: Path, traced: Callable[[], int]):
    path = tmp_path / "effects"
    append_effects(path, effects())
    record = path.read_bytes()
    path.write_bytes(record + framed(with_zeros(record[4:], "more", 2 * GIB)))
    assert [part.projects for part in load_effects(path)] == [("m",), ("m",)]
    path.write_bytes(record + framed(with_zeros(record[4:], "sign", 2 * GIB)))
    with pytest.raises(InputError, match=r"effects: expected at most 1 GiB of measured effects, found 2 GiB"):
        load_effects(path)
    assert traced() < 16 << 20


def test_trials_with_too_much_are_made_again(traced: Callable[[], int]):
    data = TRIALS.to_bytes()
    found = ModuleTrials.from_bytes(with_zeros(data, "more", 2 * GIB))
    assert found is not None
    assert found.trials == 5
    assert ModuleTrials.from_bytes(with_zeros(data, "size", 2 * GIB)) is None
    assert traced() < 16 << 20


@pytest.mark.parametrize(("name", "sentence"), [("facts", "2 GiB of arrays, of which at most 32 MiB"), ("more", "")])
def test_a_shared_store_hands_over_no_more(tmp_path: Path, name: str, sentence: str, traced: Callable[[], int]):
    pytest.importorskip("fsspec")
    (tmp_path / "m.bc").write_bytes(b"BC")
    module, url = toy_source("m", bitcode=tmp_path / "m.bc"), str(tmp_path / "shared")
    fakes = [FakeCompiler(answer=lambda *_: DONE) for _ in range(2)]
    one, two = (
        open_caching(fake, tmp_path / who, shared=open_shared(url)) for fake, who in zip(fakes, "ab", strict=True)
    )
    one.compile(module, PLAIN)
    (shared,) = Path(url).rglob("*.npz")
    shared.write_bytes(with_zeros(shared.read_bytes(), name, 2 * GIB))
    before = traced()
    if sentence:
        with pytest.raises(InputError, match=rf"shared/version-3/.*npz: .*{sentence} are read; delete this file, and"):
            two.compile(module, PLAIN)
        assert not list((tmp_path / "b").rglob("*.npz"))
    else:
        assert two.compile(module, PLAIN).measured.totals == DONE.measured.totals
        assert not fakes[1].asked
    assert traced() < before + (16 << 20)


def test_a_record_in_a_shared_store_that_is_too_long_is_not_fetched(tmp_path: Path, traced: Callable[[], int]):
    pytest.importorskip("fsspec")
    (tmp_path / "a.npz").touch()
    with (tmp_path / "a.npz").open("r+b") as file:
        file.truncate(GIB)
    with pytest.raises(InputError, match=r"expected at most 512 MiB of a\.npz, found 1 GiB; delete it there, and"):
        open_shared(str(tmp_path)).fetch("a.npz", most_bytes=512 << 20)
    assert traced() < 16 << 20


def test_what_would_not_be_read_is_not_kept(tmp_path: Path):
    save_compilation(tmp_path / "a.npz", DONE)
    few = np.zeros(0, np.int64)
    # Memory that nobody touches is none.
    decisions = InlineDecisions(caller=np.zeros(65 << 20, np.int64), callee=few, inlined=few != 0, flipped=few != 0)
    assert not save_compilation(tmp_path / "a.npz", dataclasses.replace(DONE, decisions=decisions))
    assert not (tmp_path / "a.npz").exists()


@pytest.mark.parametrize(
    "decisions",
    [
        dataclasses.replace(no_decisions(), caller=np.arange(2)),
        dataclasses.replace(no_decisions(), caller=np.zeros((1, 1), np.int64)),
        dataclasses.replace(no_decisions(), caller=np.array([0.5])),
        dataclasses.replace(no_decisions(), names=("a",), values=np.zeros((1, 1), np.int64)),
        dataclasses.replace(no_decisions(), names=("a",), values=np.zeros((1, 2), np.int64), rows=np.zeros(1, int)),
        dataclasses.replace(no_decisions(), names=("a",), values=np.zeros((1, 1), np.int64), rows=np.ones(1, int)),
    ],
)
def test_decisions_that_do_not_belong_together_are_damage(tmp_path: Path, decisions: InlineDecisions):
    save_compilation(tmp_path / "a.npz", dataclasses.replace(DONE, decisions=decisions))
    assert load_compilation(tmp_path / "a.npz", problem="inline-size") is None


@pytest.mark.parametrize(
    "sizes",
    [
        dataclasses.replace(DONE.measured, rest=np.zeros(2, np.int64)),
        dataclasses.replace(DONE.measured, function_text=np.zeros(3, np.int64)),
        dataclasses.replace(DONE.measured, function_signature=np.zeros(1, np.int64)),
        dataclasses.replace(DONE.measured, signature_rest=np.zeros((0, 2), np.int64)),
    ],
)
def test_sizes_that_do_not_belong_together_are_damage(tmp_path: Path, sizes: Any):
    save_compilation(tmp_path / "a.npz", dataclasses.replace(DONE, sizes=sizes))
    assert load_compilation(tmp_path / "a.npz", problem="inline-size") is None


def test_arrays_of_every_kind_come_back():
    given = {
        "number": np.array(3), "none": np.zeros((0, 5)), "text": np.array(["a", "größe"]), "flag": np.array([True]),
        "columns": np.arange(6, dtype=np.float32).reshape(2, 3).T, "keys": np.arange(300_000, dtype=np.uint64),
    }  # fmt: skip
    file = io.BytesIO()
    np.savez(file, **given)
    found = read_arrays(file.getvalue(), given)
    assert list(found) == list(given)
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array)
        assert (found[name].dtype, found[name].flags.writeable) == (array.dtype, True)
    with zipfile.ZipFile(file) as archive:
        assert sum(member.file_size for member in archive.infolist()) <= unpacked_bytes(given)
    assert read_arrays(file.getvalue(), {"number", "other"}, most_bytes=200) == {"number": 3}
    with pytest.raises(TooLargeError, match="264 bytes of arrays, of which at most 200 bytes are read"):
        read_arrays(file.getvalue(), {"number", "none", "text"} - {"text"}, most_bytes=200)


WHOLE = ("a.npy", header() + b"abc")


def npz_of(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "members",
    [
        [("a.npy", header(shape="(4,)") + b"abc")],
        [("a.npy", header(shape="(2,)") + b"abc")],
        [("a.npy", header("<f8", shape=f"({1 << 61},)"))],
        [("a.npy", header("<f8", shape=f"({1 << 32}, {1 << 32}, 2)"))],
        [("a.npy", header(shape=f"(0, {1 << 63})"))],
        [("a.npy", header(shape="(-3,)") + b"abc")],
        [("a.npy", header(shape="(True,)") + b"a")],
        [("a.npy", header("<U999999999", shape="()"))],
        [("a.npy", header("|O") + bytes(24))],
        [("a.npy", header("|V1") + b"abc")],
        [("a.npy", header("<f3", shape="(1,)") + b"abc")],
        [("a.npy", header("<M8", shape="(1,)") + bytes(8))],
        [("a.npy", b"abc")],
        [("a.npy", b"")],
        [("a.npy", b"\x93NUMPY\x01\0\xff\xff" + b"(" * 65535)],
        [WHOLE, WHOLE],
        [WHOLE, ("a", WHOLE[1])],
        [WHOLE, *((f"b{index}", b"") for index in range(MOST_ARRAYS))],
        [WHOLE, *((f"{index:0999}", b"") for index in range(2000))],
    ],
)
def test_claims_that_are_not_true_are_damage(members: list[tuple[str, bytes]], traced: Callable[[], int]):
    with pytest.raises(DAMAGE):
        read_arrays(npz_of(*members), {"a"})
    assert traced() < 24 << 20


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_is_unpacked_without_a_bound_is_refused(method: int):
    with pytest.raises(ValueError, match="a: expected an array stored or deflated"):
        read_arrays(npz_of(WHOLE, method=method), {"a"})


@pytest.mark.parametrize("claimed", [0, 70, 4 << 20, 0xFFFFFFFE])
def test_a_size_in_the_directory_that_is_not_true_is_damage(claimed: int, traced: Callable[[], int]):
    """Both where the truth is more, of which nothing is unpacked, and where it is less."""
    data = bytearray(npz_of(("a.npy", header(shape=f"({3 << 20},)") + bytes(3 << 20))))
    place = data.index(b"PK\x01\x02") + 24
    data[place : place + 4] = struct.pack("<I", claimed)
    with pytest.raises(DAMAGE):
        read_arrays(bytes(data), {"a"})
    assert traced() < 16 << 20


def test_a_pipe_is_not_read_as_a_record(tmp_path: Path):
    os.mkfifo(tmp_path / "a.npz")
    assert load_compilation(tmp_path / "a.npz", problem="inline-size") is None
    with pytest.raises(InputError, match="found: no regular file; restore a copy"):
        load_progress(tmp_path / "a.npz")


def test_the_bound_is_what_a_compiler_may_write():
    assert COMPILER_LIMITS.file_bytes == MOST_BYTES


def test_nothing_is_unpacked_past_the_bounds():
    """Compressed data has its readers in two files, and what runs code when it is read has none."""
    readers = re.compile(
        r"np\.load\(|pickle\.load|marshal\.load|ZipFile\(|TarFile\(|tarfile\.open|(gzip|bz2|lzma)\.(open|decompress|\w+File)"
        r"|zlib\.decompress|decompressobj|shutil\.unpack_archive|LZMADecompressor"
    )
    package = Path(mlgokit.__file__).parent
    found = {path.name for path in package.rglob("*.py") if readers.search(path.read_text(encoding="utf-8"))}
    assert found == {"unpacking.py", "unpack.py"}
