"""TensorFlow's ``SequenceExample``, to and from arrays, without TensorFlow. docs/formats.md, "TFRecord", has the bytes.

The message definitions are in ``tensorflow/core/example/example.proto`` and ``feature.proto``. Two are declared
differently here, with the same bytes: a map is a list of entries, so that its order and the bytes of each value are
known; and ``Merged`` has one feature where ``FeatureList`` has many. Protobuf concatenates the lists of a field that is
repeated, so ``Merged`` has the values of all steps as one array, without a Python object for each step.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from mlgokit.errors import TraceError, UsageError
from mlgokit.traces.messages import message_classes

_CLASSES = message_classes(
    "mlgokit.sequence_example",
    {
        "BytesList": {1: "repeated bytes value"},
        "FloatList": {1: "repeated float value"},
        "Int64List": {1: "repeated int64 value"},
        "Feature": {1: "optional BytesList bytes", 2: "optional FloatList float", 3: "optional Int64List int64"},
        "FeatureList": {1: "repeated Feature feature"},
        "Merged": {1: "optional Feature feature"},
        "Steps": {1: "repeated bytes feature"},
        "Entry": {1: "optional bytes key", 2: "optional bytes value"},
        "Map": {1: "repeated Entry entry"},
        "SequenceExample": {1: "optional Map context", 2: "optional Map feature_lists"},
    },
)
_Feature, _FeatureList, _Merged, _Steps, _Message = (
    _CLASSES[name] for name in ("Feature", "FeatureList", "Merged", "Steps", "SequenceExample")
)
_DTYPES = {"float": np.float32, "int64": np.int64}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceExample:
    """One sequence of T steps.

    Attributes:
        columns: for every feature list float32 or int64 ``[T, n]``; lists without values or of bytes are left out.
        labels: features of the whole sequence that are one text, such as its name.
    """

    columns: Mapping[str, NDArray[Any]]
    labels: Mapping[str, str]


def encode_sequence(columns: Mapping[str, NDArray[Any]], *, labels: Mapping[str, str] | None = None) -> bytes:
    """Encode columns of T steps as a message; integers become int64 lists, floats become float lists.

    Names are sorted, so that equal columns give equal bytes.

    Args:
        columns: ``[T, *shape]`` values of each feature, flattened in each step.
        labels: texts about the whole sequence, by name.

    Raises:
        UsageError: a column has another number of steps than the others, or holds neither integers nor floats.

    Example:
        >>> encode_sequence({"a": np.array([[1], [300]])}).hex(" ")
        '12 16 0a 14 0a 01 61 12 0f 0a 05 1a 03 0a 01 01 0a 06 1a 04 0a 02 ac 02'
    """
    message = _Message()
    for name, text in sorted((labels or {}).items()):
        feature = _Feature(bytes={"value": [text.encode("utf-8", "backslashreplace")]})
        message.context.entry.add(key=name.encode(), value=feature.SerializeToString())
    message.feature_lists.SetInParent()
    count = len(next(iter(columns.values()))) if columns else 0
    for name in sorted(columns):
        column = columns[name]
        if len(column) != count or column.dtype.kind not in "iuf":
            raise UsageError(
                f"sequence: feature {name!r}: expected {count} steps of integers or floats, found {len(column)} of "
                f"{column.dtype}; give every feature the same number of steps"
            )
        kind = "float" if column.dtype.kind == "f" else "int64"
        steps = _FeatureList()
        for row in column.astype(_DTYPES[kind]).reshape(count, math.prod(column.shape[1:])).tolist():
            getattr(steps.feature.add(), kind).value.extend(row)
        message.feature_lists.entry.add(key=name.encode(), value=steps.SerializeToString())
    return message.SerializeToString()


def decode_sequence(data: bytes, *, path: Path | str, offset: int = 0) -> SequenceExample:
    """Decode a ``SequenceExample``.

    Args:
        data: bytes of the message.
        path: path of the file, for errors.
        offset: offset of ``data`` in the file, for errors.

    Raises:
        TraceError: the message is malformed, or the steps of a feature have different numbers of values.
    """
    what = "a SequenceExample"
    columns: dict[str, NDArray[Any]] = {}
    labels: dict[str, str] = {}
    try:
        message = _Message.FromString(data)
        for entry in message.context.entry:
            what = "the name of a feature in UTF-8"
            name = entry.key.decode()
            what = f"the feature {name!r}"
            texts = _Feature.FromString(entry.value).bytes.value
            if len(texts) == 1:
                labels[name] = texts[0].decode("utf-8", "replace")
        for entry in message.feature_lists.entry:
            what = "the name of a feature list in UTF-8"
            name = entry.key.decode()
            what = f"the feature list {name!r}"
            column = _column(name, entry.value)
            if column is not None:
                columns[name] = column
    except DecodeError:
        _fail(path, offset, f"{what} in protobuf's encoding", "other bytes")
    except UnicodeDecodeError as error:
        _fail(path, offset, what, repr(error.object[:60]))
    except _Uneven as error:
        _fail(path, offset, *error.args)
    return SequenceExample(columns=columns, labels=labels)


class _Uneven(Exception):  # noqa: N818  (never leaves this file)
    """A feature list whose steps differ in length: what was expected, and what was found."""


def _fail(path: Path | str, offset: int, expected: str, found: str) -> NoReturn:
    """Raise the TraceError for a defect of a record."""
    advice = "the record is damaged or no SequenceExample: write it again"
    message = f"training set {path}: byte {offset}: expected {expected}, found {found}; {advice}"
    raise TraceError(message, path=path, offset=offset)


def _column(name: str, data: bytes) -> NDArray[Any] | None:
    """Decode the values [T, n] of a feature list; ``None`` if it has no numbers."""
    merged = _Merged.FromString(data).feature
    kinds = [kind for kind in ("bytes", "float", "int64") if merged.HasField(kind)]
    if kinds in ([], ["bytes"]):
        return None
    if len(kinds) > 1:
        raise _Uneven(f"one kind of values in feature {name!r}", " and ".join(kinds))
    (kind,) = kinds
    values = np.array(getattr(merged, kind).value, _DTYPES[kind])
    steps: list[bytes] = list(_Steps.FromString(data).feature)
    width, rest = divmod(len(values), len(steps))
    if rest or not width or not _has_equal_widths(steps, width, kind):
        counts = {len(getattr(feature, kind).value) for feature in _FeatureList.FromString(data).feature}
        if len(counts) > 1 or not width:
            lengths = " and ".join(str(count) for count in sorted(counts)[:9])
            raise _Uneven(f"as many values in each step of feature {name!r}", lengths)
    return values.reshape(len(steps), width)


def _has_equal_widths(steps: Sequence[bytes], width: int, kind: str) -> bool:
    """Whether each step has ``width`` values, given that the mean is ``width``; may be ``False`` although it is so.

    Each step is compared with the shortest encoding of ``width`` values, one packed list. More values always take more
    bytes, and have more varints, whose last bytes are below 0x80 (the list itself has four such bytes). So if no step
    has more than that, none has more values than ``width``, and because of the mean none has fewer.
    """
    if kind == "float":
        shortest = _Feature(float={"value": [0.0] * width}).ByteSize()
        return max(map(len, steps)) <= shortest
    sizes = np.fromiter(map(len, steps), np.int64, len(steps))
    lasts = np.concatenate([[0], np.cumsum(np.frombuffer(b"".join(steps), np.int8) >= 0)])
    return bool(np.diff(lasts[np.cumsum(sizes)], prepend=0).max() <= 4 + width)
