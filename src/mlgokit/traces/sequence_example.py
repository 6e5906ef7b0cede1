"""TensorFlow's ``SequenceExample``, to and from arrays, without TensorFlow. docs/formats.md, "TFRecord", has the bytes.

The message definitions are in ``tensorflow/core/example/example.proto`` and ``feature.proto``; the encoding is
protobuf's. What is usual is decoded a column at a time, everything else that protobuf allows a value at a time.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mlgokit.errors import TraceError, UsageError

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_LONGEST_VARINT = 10
_SHORT_HEAD = 6
_SHORT_FEATURE = re.compile(
    b"|".join(
        b"\\x0a\\x%02x\\x1a\\x%02x\\x0a\\x%02x.{%d}" % (size + 4, size + 2, size, size) for size in range(1, 124)
    ),
    re.DOTALL,
)
"""A feature of one packed list of integers with lengths of one byte each: all that one step usually has."""
_KIND_NAMES = {_BYTES_LIST: "bytes", _FLOAT_LIST: "float", _INT64_LIST: "int64"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceExample:
    """One sequence of T steps.

    Attributes:
        columns: for every feature list float32 or int64 ``[T, n]``; lists of no or of byte features are left out.
        labels: features of the whole sequence that are one text, such as its name.
    """

    columns: Mapping[str, NDArray[Any]]
    labels: Mapping[str, str]


def encode_sequence(columns: Mapping[str, NDArray[Any]], *, labels: Mapping[str, str] | None = None) -> bytes:
    """The message for columns of as many steps; integers become int64 lists, floats become float lists.

    Names are sorted, so that equal columns give equal bytes.

    Args:
        columns: ``[T, *shape]``, flattened in each step.
        labels: texts about the whole sequence.

    Raises:
        UsageError: a column has another number of steps than the others, or holds neither integers nor floats.

    Example:
        >>> encode_sequence({"a": np.array([[1], [300]])}).hex(" ")
        '12 16 0a 14 0a 01 61 12 0f 0a 05 1a 03 0a 01 01 0a 06 1a 04 0a 02 ac 02'
    """
    count = len(next(iter(columns.values()))) if columns else 0
    lists: list[bytes] = []
    for name in sorted(columns):
        column = columns[name]
        if len(column) != count or column.dtype.kind not in "iuf":
            raise UsageError(
                f"sequence: feature {name!r}: expected {count} steps of integers or floats, "
                f"found {len(column)} of {column.dtype}; give every feature the same steps"
            )
        lists.append(
            encode_field(
                1,
                encode_field(1, name.encode())
                + encode_field(2, _feature_list(column.reshape(count, math.prod(column.shape[1:])))),
            )
        )
    texts = [
        encode_field(
            1,
            encode_field(1, name.encode()) + encode_field(2, encode_field(_BYTES_LIST, encode_field(1, text.encode()))),
        )
        for name, text in sorted((labels or {}).items())
    ]
    return (encode_field(1, b"".join(texts)) if texts else b"") + encode_field(2, b"".join(lists))


def _feature_list(column: NDArray[Any]) -> bytes:
    """``[T, n]`` as features of one packed list each."""
    if not len(column):
        return b""
    if column.dtype.kind == "f":
        payload = np.ascontiguousarray(column, "<f4").view(np.uint8).reshape(len(column), -1)
        lengths = np.full(len(column), payload.shape[1])
        flat, kind = payload.reshape(-1), _FLOAT_LIST
    else:
        flat, lengths = _encode_varints(column.astype(np.int64).view(np.uint64))
        kind = _INT64_LIST
    sizes = {int(length): _feature_head(int(length), kind) for length in np.unique(lengths)}
    if len(sizes) == 1:
        ((length, head),) = sizes.items()
        rows = np.empty((len(column), len(head) + length), np.uint8)
        rows[:, : len(head)] = np.frombuffer(head, np.uint8)
        rows[:, len(head) :] = flat.reshape(len(column), length)
        return rows.tobytes()
    data = flat.tobytes()
    parts: list[bytes] = []
    begin = 0
    for length in lengths.tolist():
        parts += (sizes[length], data[begin : begin + length])
        begin += length
    return b"".join(parts)


def _feature_head(length: int, kind: int) -> bytes:
    """What stands before ``length`` bytes of packed values."""
    values = b"\x0a" + encode_varint(length)
    of_kind = bytes([kind << 3 | _BYTES]) + encode_varint(len(values) + length)
    return b"\x0a" + encode_varint(len(of_kind) + len(values) + length) + of_kind + values


def _encode_varints(values: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of all values of ``[T, n]``, and how many bytes each step has."""
    sizes = np.ones(values.shape, np.int64)
    for place in range(1, _LONGEST_VARINT):
        sizes += values >= np.uint64(1 << 7 * place)
    widest = int(sizes.max(initial=1))
    groups = np.empty((*values.shape, widest), np.uint8)
    for place in range(widest):
        more = np.where(sizes > place + 1, np.uint8(0x80), np.uint8(0))
        groups[..., place] = (values >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(0x7F) | more
    kept = np.arange(widest) < sizes[..., np.newaxis]
    return groups[kept], sizes.sum(axis=1)


def encode_field(number: int, payload: bytes) -> bytes:
    """Field ``number`` (below 16) of a protobuf message: bytes, a text, or a message."""
    return bytes([number << 3 | _BYTES]) + encode_varint(len(payload)) + payload


def encode_varint(value: int) -> bytes:
    """A number that is not negative, as protobuf writes it."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def decode_sequence(data: bytes, *, path: Path | str, offset: int = 0) -> SequenceExample:
    """Read a message.

    Args:
        data: its bytes.
        path: of the file, for messages.
        offset: where ``data`` begins there, for messages.

    Raises:
        TraceError: it is no such message, or the steps of a feature have different numbers of values.
    """

    def fail(position: int, expected: str, found: str) -> NoReturn:
        advice = "the record is damaged or no SequenceExample: write it again"
        message = f"training set {path}: byte {offset + position}: expected {expected}, found {found}; {advice}"
        raise TraceError(message, path=path, offset=offset + position)

    columns: dict[str, NDArray[Any]] = {}
    labels: dict[str, str] = {}
    for number, begin, end in _messages(data, 0, len(data), fail):
        if number not in {1, 2}:
            continue
        for entry, entry_begin, entry_end in _messages(data, begin, end, fail):
            if entry != 1:
                continue
            name, value_begin, value_end = _map_entry(data, entry_begin, entry_end, fail)
            if number == 2:
                column = _decode_feature_list(data, value_begin, value_end, name, fail)
                if column is not None:
                    columns[name] = column
            elif (text := _decode_text(data, value_begin, value_end, fail)) is not None:
                labels[name] = text
    return SequenceExample(columns=columns, labels=labels)


_Fail = Callable[[int, str, str], NoReturn]


def _messages(data: bytes, begin: int, end: int, fail: _Fail) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of the fields that have a length; all others are passed over."""
    while begin < end:
        tag, position = _read_varint(data, begin, end, fail)
        number, wire_type = tag >> 3, tag & 7
        match wire_type:
            case 0:
                _, position = _read_varint(data, position, end, fail)
            case 1:
                position += 8
            case 2:
                length, position = _read_varint(data, position, end, fail)
                if length > end - position:
                    fail(position, f"{length} bytes of field {number}", f"{end - position} before the message ends")
                yield number, position, position + length
                position += length
            case 5:
                position += 4
            case _:
                fail(begin, "a field of protobuf", f"the wire type {wire_type}")
        if position > end or number == 0:
            fail(begin, "a whole field with a number", f"number {number}, {end - begin} bytes before the message ends")
        begin = position


def _read_varint(data: bytes, begin: int, end: int, fail: _Fail) -> tuple[int, int]:
    limit, position = min(begin + _LONGEST_VARINT, end), begin
    while position < limit and data[position] >= 0x80:
        position += 1
    if position >= limit:
        fail(begin, "a number of at most ten bytes", data[begin:limit].hex(" ") or "the end")
    value = 0
    for byte in reversed(data[begin : position + 1]):
        value = value << 7 | byte & 0x7F
    return value & 0xFFFFFFFFFFFFFFFF, position + 1


def _map_entry(data: bytes, begin: int, end: int, fail: _Fail) -> tuple[str, int, int]:
    """Key of a map's entry, begin and end of its value; both are empty unless they are there."""
    key, value = b"", (end, end)
    for number, field_begin, field_end in _messages(data, begin, end, fail):
        if number == 1:
            key = data[field_begin:field_end]
        elif number == 2:
            value = (field_begin, field_end)
    try:
        return key.decode(), *value
    except UnicodeDecodeError:
        fail(begin, "a feature's name in UTF-8", repr(key[:60]))


def _decode_text(data: bytes, begin: int, end: int, fail: _Fail) -> str | None:
    """The one byte string of a feature, or ``None`` if it is something else."""
    texts: list[bytes] = []
    for kind, list_begin, list_end in _messages(data, begin, end, fail):
        if kind == _BYTES_LIST:
            texts += (data[first:last] for _, first, last in _messages(data, list_begin, list_end, fail))
    return texts[0].decode("utf-8", "replace") if len(texts) == 1 else None


def _decode_feature_list(data: bytes, begin: int, end: int, name: str, fail: _Fail) -> NDArray[Any] | None:
    """``[T, n]`` of a feature list; ``None`` if it holds no numbers at all."""
    column = _decode_constant_stride(data, begin, end)
    if column is not None:
        return column
    values, counts, kinds = _short_features(data, begin, end) or _any_features(data, begin, end, fail)
    if not kinds or kinds == {_BYTES_LIST}:
        return None
    if len(kinds) > 1:
        found = " and ".join(_KIND_NAMES[kind] for kind in sorted(kinds))
        fail(begin, f"one kind of values in feature {name!r}", found)
    if kinds == {_FLOAT_LIST}:
        return _even(values.view("<f4").astype(np.float32), counts // 4, begin, name, fail)
    numbers, ends = _decode_varints(values, begin, fail)
    bounds = np.cumsum(np.concatenate([[0], counts]))
    # How many numbers end before the bytes of each step; the last byte of a step must end one.
    before = np.searchsorted(ends, bounds, side="left")
    if not np.isin(bounds[bounds > 0] - 1, ends).all():
        fail(begin, f"whole numbers in each step of feature {name!r}", "one that the step's end cuts in two")
    return _even(numbers, np.diff(before), begin, name, fail)


_Packed = tuple[NDArray[np.uint8], NDArray[np.int64], set[int]]
"""The packed values of all steps, how many bytes each step has, and the kinds of lists."""


def _short_features(data: bytes, begin: int, end: int) -> _Packed | None:
    """All features at once, if each is short and holds integers."""
    found = _SHORT_FEATURE.findall(data, begin, end)
    sizes = np.fromiter(map(len, found), np.int64, len(found))
    if not len(sizes) or sizes.sum() != end - begin:
        return None
    kept = np.ones(end - begin, np.bool_)
    starts = np.cumsum(sizes) - sizes
    kept[(starts[:, np.newaxis] + np.arange(_SHORT_HEAD)).reshape(-1)] = False
    return np.frombuffer(data, np.uint8, end - begin, begin)[kept], sizes - _SHORT_HEAD, {_INT64_LIST}


def _any_features(data: bytes, begin: int, end: int, fail: _Fail) -> _Packed:
    """All features, whatever their spelling."""
    kinds: set[int] = set()
    payload: list[bytes] = []
    for number, feature_begin, feature_end in _messages(data, begin, end, fail):
        if number != 1:
            continue
        values, kind = _packed_values(data, feature_begin, feature_end, fail)
        if kind is not None:
            kinds.add(kind)
        payload.append(values)
    sizes = np.array([len(part) for part in payload], np.int64)
    return np.frombuffer(b"".join(payload), np.uint8), sizes, kinds


def _even(values: NDArray[Any], counts: NDArray[Any], begin: int, name: str, fail: _Fail) -> NDArray[Any]:
    """``[T, n]`` from values of which each step has ``counts``."""
    sizes = np.unique(counts).tolist()
    if len(sizes) != 1 or sizes[0] == 0:
        fail(begin, f"as many values in each step of feature {name!r}", " and ".join(str(size) for size in sizes[:9]))
    return values.reshape(len(counts), sizes[0])


def _decode_constant_stride(data: bytes, begin: int, end: int) -> NDArray[Any] | None:
    """The usual: every feature has the same number of bytes and one packed list; ``None`` if it is not so."""
    head = data[begin : begin + 16]
    # The three lengths, at most three bytes each, tell how long a feature is.
    lengths: list[int] = []
    position = 0
    for tag in (0x0A, None, 0x0A):
        if position >= len(head) or (tag is not None and head[position] != tag):
            return None
        value = shift = 0
        while (position := position + 1) < len(head):
            value |= (head[position] & 0x7F) << shift
            shift += 7
            if head[position] < 0x80:
                break
        position += 1
        lengths.append(value)
    length = lengths[2]
    kind = _FLOAT_LIST if _feature_head(length, _FLOAT_LIST) == head[:position] else _INT64_LIST
    stride = position + length
    if not length or (end - begin) % stride or _feature_head(length, kind) != head[:position]:
        return None
    rows = np.frombuffer(data, np.uint8, end - begin, begin).reshape(-1, stride)
    if not (rows[:, :position] == np.frombuffer(head, np.uint8, position)).all():
        return None
    payload = np.ascontiguousarray(rows[:, position:])
    if kind == _FLOAT_LIST:
        return payload.view("<f4").astype(np.float32) if length % 4 == 0 else None
    # Bytes below 0x80 are whole numbers.
    return payload.astype(np.int64) if not (payload & 0x80).any() else None


def _packed_values(data: bytes, begin: int, end: int, fail: _Fail) -> tuple[bytes, int | None]:
    """The values of one feature as they are when packed, and of which kind they are."""
    parts: list[bytes] = []
    kind = None
    for number, list_begin, list_end in _messages(data, begin, end, fail):
        if number not in _KIND_NAMES:
            continue
        kind = number
        wanted = {_FLOAT_LIST: _FOUR_BYTES, _INT64_LIST: _VARINT}.get(kind)
        position = list_begin
        while position < list_end and wanted is not None:
            tag, value_begin = _read_varint(data, position, list_end, fail)
            if tag == (1 << 3 | _BYTES):
                length, value_begin = _read_varint(data, value_begin, list_end, fail)
                position = value_begin + length
            elif tag == (1 << 3 | wanted):
                position = value_begin + 4
                if wanted == _VARINT:
                    _, position = _read_varint(data, value_begin, list_end, fail)
            else:
                fail(position, f"values of a list of {_KIND_NAMES[kind]}", f"the tag {tag}")
            if position > list_end:
                fail(value_begin, f"{position - value_begin} bytes of values", f"{list_end - value_begin}")
            parts.append(data[value_begin:position])
    values = b"".join(parts)
    if kind == _FLOAT_LIST and len(values) % 4:
        fail(begin, "floats of four bytes", f"{len(values)} bytes")
    return values, kind


def _decode_varints(array: NDArray[np.uint8], begin: int, fail: _Fail) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All numbers in ``array``, and the position of the last byte of each."""
    ends = np.flatnonzero(array < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    sizes = ends - starts + 1
    widest = int(sizes.max(initial=0))
    if widest > _LONGEST_VARINT or (len(array) and not (len(ends) and ends[-1] == len(array) - 1)):
        fail(begin, "numbers of at most ten bytes", "a longer one or the end of the list")
    values = np.zeros(len(ends), np.uint64)
    for place in range(widest):
        those = sizes > place
        group = (array[starts[those] + place] & np.uint8(0x7F)).astype(np.uint64)
        values[those] |= group << np.uint64(7 * place)
    return values.view(np.int64), ends.astype(np.int64)
