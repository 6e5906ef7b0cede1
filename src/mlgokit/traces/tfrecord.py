"""TFRecord files: records of any bytes, each with two checksums. docs/formats.md, "TFRecord", has the bytes."""

import contextlib
import os
import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

import google_crc32c

from mlgokit.errors import TraceError
from mlgokit.files import whole_file, writing

MAX_RECORD_BYTES = 2**31
"""Maximum size of a record: protobuf's limit of a message."""

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_BEFORE = _LENGTH.size + _CHECKSUM.size
_AFTER = _CHECKSUM.size
_BUFFER_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Record:
    """One record: its bytes, and their offset in the file."""

    data: bytes
    offset: int


def masked_checksum(data: bytes) -> int:
    """Compute TFRecord's masked CRC-32C: rotated, plus a constant, so that data may contain checksums itself.

    Example:
        >>> hex(masked_checksum(b"123456789"))
        '0xc78ab0e5'
    """
    checksum = cast("Callable[[bytes], int]", google_crc32c.value)  # pyright: ignore[reportUnknownMemberType]
    value = checksum(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame_record(data: bytes) -> bytes:
    r"""Encode a record with its length and checksums.

    Example:
        >>> frame_record(b"").hex()
        '000000000000000029039807d8ea82a2'
    """
    length = _LENGTH.pack(len(data))
    checksums = (_CHECKSUM.pack(masked_checksum(part)) for part in (length, data))
    return b"".join((length, next(checksums), data, next(checksums)))


def iter_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file, one in memory at a time.

    Raises:
        TraceError: the file cannot be read, or is damaged or cut short; raised after the records before the damage.
    """
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            offset = 0
            while before := file.read(_BEFORE):
                length = _length(path, offset, before, size_bytes)
                data = file.read(length)
                after = file.read(_AFTER)
                begin = offset + _BEFORE
                if len(data) + len(after) != length + _AFTER:
                    remaining = f"{len(data) + len(after)} before the end"
                    _fail(path, begin, f"{length} bytes of a record and {_AFTER} of its checksum", remaining)
                if _CHECKSUM.pack(masked_checksum(data)) != after:
                    _fail(path, begin, f"{length} bytes with the checksum that follows them", "others")
                yield Record(data, begin)
                offset = begin + length + _AFTER
    except OSError as error:
        _fail(path, 0, "a readable file", error.strerror or str(error), "check the path")


def _length(path: Path, offset: int, before: bytes, size_bytes: int) -> int:
    """Decode the length of the record at ``offset``, and check it against its checksum, the limit and the file."""
    if len(before) != _BEFORE:
        _fail(path, offset, f"{_BEFORE} bytes before a record", f"{len(before)} before the end")
    length: int = _LENGTH.unpack_from(before)[0]
    if _CHECKSUM.pack(masked_checksum(before[: _LENGTH.size])) != before[_LENGTH.size :]:
        _fail(path, offset, "the length of a record with its checksum", before.hex(" "))
    if length > MAX_RECORD_BYTES:
        _fail(path, offset, f"at most {MAX_RECORD_BYTES} bytes in a record", str(length))
    left = size_bytes - offset - _BEFORE
    if size_bytes and length + _AFTER > left:
        expected = f"{length} bytes of a record and {_AFTER} of its checksum"
        _fail(path, offset + _BEFORE, expected, f"{max(left, 0)} before the end")
    return length


def _fail(path: Path, offset: int, expected: str, found: str, advice: str = "") -> NoReturn:
    """Raise the TraceError for a defect at byte ``offset`` of the file."""
    advice = advice or "the file is damaged, cut short, compressed or no TFRecord file: write it again"
    message = f"training set {path}: byte {offset}: expected {expected}, found {found}; {advice}"
    raise TraceError(message, path=path, offset=offset)


@contextlib.contextmanager
def open_record_writer(path: Path) -> Generator[Callable[[bytes], None]]:
    """Open a record file that appears at ``path`` if the block succeeds, and not at all otherwise.

    Yields:
        The function that appends a record.
    """
    with contextlib.ExitStack() as stack:
        with writing(path):
            file = stack.enter_context(whole_file(path, buffering=_BUFFER_BYTES))

        def append(data: bytes) -> None:
            with writing(path):
                file.write(frame_record(data))

        yield append
        with writing(path):
            stack.close()
