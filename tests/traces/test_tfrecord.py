import errno
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mlgokit.errors import StorageError, TraceError
from mlgokit.traces import tfrecord
from mlgokit.traces.tfrecord import frame_record, iter_records, open_record_writer

# The checksums are TensorFlow's: of "123456789" CRC-32C is e3069283.
GOLDEN = bytes.fromhex("0900000000000000 37f97139 313233343536373839 e5b08ac7")


def write(path: Path, records: list[bytes]) -> None:
    with open_record_writer(path) as append:
        for record in records:
            append(record)


def test_the_bytes_are_tensorflows():
    assert frame_record(b"") == bytes.fromhex("0000000000000000 29039807 d8ea82a2")
    assert frame_record(b"123456789") == GOLDEN


def test_the_documented_example_is_a_record(tmp_path: Path):
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    dump = text.split("<!-- tfrecord-example -->")[1].split("```")[1].splitlines()[1:]
    (tmp_path / "x").write_bytes(b"".join(bytes.fromhex(line[6:53]) for line in dump))
    assert [record.data for record in iter_records(tmp_path / "x")] == [b"123456789"]


def test_records_are_read_as_they_were_written(tmp_path: Path):
    records = [b"", b"a", b"\n" * 5, bytes(range(256)) * 9000]
    write(tmp_path / "x.tfrecord", records)
    found = list(iter_records(tmp_path / "x.tfrecord"))
    assert [record.data for record in found] == records
    assert [record.offset for record in found] == [12, 28, 45, 66]
    assert [path.name for path in tmp_path.iterdir()] == ["x.tfrecord"]


def test_a_file_without_records(tmp_path: Path):
    write(tmp_path / "x.tfrecord", [])
    assert list(iter_records(tmp_path / "x.tfrecord")) == []


def test_a_file_cut_anywhere_gives_the_records_before_the_cut(tmp_path: Path):
    path = tmp_path / "x.tfrecord"
    write(path, [b"abc", b"", b"defg"])
    data = path.read_bytes()
    ends = [0, 19, 35]
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        records = iter_records(path)
        for _ in range(sum(0 < end <= cut for end in ends)):
            next(records)
        if cut in ends:
            assert list(records) == []
            continue
        with pytest.raises(TraceError, match="before the end; the file is damaged, cut short") as caught:
            next(records)
        assert caught.value.path == path
        assert max(end for end in ends if end < cut) <= caught.value.offset <= cut + 12


def test_every_changed_byte_is_noticed(tmp_path: Path):
    path = tmp_path / "x.tfrecord"
    write(path, [b"abc", b"defg"])
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(TraceError, match=r"byte \d+: expected"):
            list(iter_records(path))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x1f\x8b\x08\x00" * 8, "byte 0: expected the length of a record with its checksum, found 1f 8b 08 00"),
        (frame_record(b"")[:11], "byte 0: expected 12 bytes before a record, found 11 before the end"),
        (
            frame_record(b"") + frame_record(b"abc")[:-1],
            "byte 28: expected 3 bytes of a record and 4 of its checksum, found 6",
        ),
        (frame_record(b"abc")[:-1] + b"?", "byte 12: expected 3 bytes with the checksum that follows them"),
    ],
)
def test_each_defect_has_its_sentence(tmp_path: Path, data: bytes, sentence: str):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(TraceError) as caught:
        list(iter_records(tmp_path / "x"))
    assert f"training set {tmp_path / 'x'}: {sentence}" in str(caught.value)


def test_a_huge_length_is_refused_before_anything_is_read(tmp_path: Path):
    length = (2**62).to_bytes(8, "little")
    checksum = tfrecord.masked_checksum(length).to_bytes(4, "little")
    (tmp_path / "x").write_bytes(length + checksum + b"abc")
    with pytest.raises(
        TraceError, match="byte 0: expected at most 2147483648 bytes in a record, found 4611686018427387904"
    ):
        list(iter_records(tmp_path / "x"))


def test_a_missing_file_is_an_error(tmp_path: Path):
    with pytest.raises(TraceError, match="byte 0: expected a readable file, found No such file"):
        list(iter_records(tmp_path / "x"))


def test_both_ways_need_the_memory_of_one_record(tmp_path: Path):
    record = np.arange(100_000, dtype=np.int64).tobytes()
    tracemalloc.start()
    try:
        with open_record_writer(tmp_path / "x") as append:
            for _ in range(20):
                append(record)
        count = sum(1 for _ in iter_records(tmp_path / "x"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 20
    assert peak < 5 * len(record)


def interrupted(path: Path) -> None:
    with open_record_writer(path) as append:
        append(b"new")
        raise KeyboardInterrupt


def test_an_interrupted_writer_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "x.tfrecord"
    write(path, [b"old"])
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    assert [record.data for record in iter_records(path)] == [b"old"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.tfrecord"]


def test_a_full_disk_is_named_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "x.tfrecord"
    write(path, [b"old"])

    def full(_data: bytes) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tfrecord, "frame_record", full)
    with pytest.raises(StorageError, match=r"x\.tfrecord: .* No space left on device; free some space"):
        write(path, [b"new"])
    assert [record.data for record in iter_records(path)] == [b"old"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.tfrecord"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "a file").touch()
    with pytest.raises(StorageError, match="expected to be able to write there, found: "):
        write(tmp_path / "a file" / "x.tfrecord", [b"a"])
