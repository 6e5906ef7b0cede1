"""LLVM's training log one item at a time: header, context, observation with its outcome.

The same parser reads a whole file (:mod:`mlgokit.traces.log`) and a channel that is still being written
(:mod:`mlgokit.compiler.channel.interactive`); docs/formats.md, "Training log", has the bytes.
"""

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from mlgokit.errors import InputError, TraceError
from mlgokit.spec import TensorSpec

MAX_LINE_BYTES = 2**20
"""Maximum length of a line of text: the header of the largest known problem has 3 KB, a mangled name a few KB."""
MAX_OBSERVATION_BYTES = 2**30
"""Maximum size of an observation; numpy could not hold one of 2 GiB as one item."""

KILLED = "the compiler was probably killed"
_HEADER = "a header line of JSON"
DAMAGED = "the log is damaged or not LLVM's training log, collect it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """First line of a log, which describes the tensors of its observations.

    Attributes:
        features: tensors of an observation, in the order of their bytes.
        score: tensor after each outcome line; ``None`` if the log has no outcomes.
        advice: tensor with the decision that the compiler waits for; only interactive channels declare it.
        features_bytes: bytes of all features of one observation.
    """

    features: tuple[TensorSpec, ...]
    score: TensorSpec | None = None
    advice: TensorSpec | None = None
    features_bytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features_bytes", sum(spec.size_bytes for spec in self.features))

    def to_line(self) -> bytes:
        r"""Format the header line as LLVM writes it: compact JSON and a newline.

        Example:
            >>> Header(features=(TensorSpec(name="a", type="float", shape=(2,)),)).to_line()
            b'{"features":[{"name":"a","type":"float","port":0,"shape":[2]}]}\n'
        """
        value: dict[str, Any] = {"features": [spec.to_json() for spec in self.features]}
        if self.score is not None:
            value["score"] = self.score.to_json()
        if self.advice is not None:
            value["advice"] = self.advice.to_json()
        return _compact(value) + b"\n"


@dataclass(frozen=True, slots=True)
class ContextItem:
    """A context line: the observations after it belong to this context (a function; empty for a whole module)."""

    name: str


@dataclass(frozen=True, slots=True)
class ObservationItem:
    """An observation: its context, its number in the context, and the offsets of its features and score in ``data``."""

    context: str
    index: int
    features_at: int
    score_at: int | None


@dataclass(frozen=True, slots=True)
class LineForm:
    """The text before and after the number in a line, so that other JSON spacings than LLVM's are checked as fast."""

    prefix: bytes
    suffix: bytes

    def line(self, number: int) -> bytes:
        """Format the line for a number, with its newline."""
        return b"%b%d%b\n" % (self.prefix, number, self.suffix)


@dataclass(slots=True, kw_only=True)
class Cursor:
    """The position in a log; :func:`read_item` advances it, unless it raises or needs more bytes.

    Attributes:
        name: path of the file, or a description of the stream, for error messages.
        position: offset in ``data`` at which the next item begins.
        base: offset of ``data`` in the log, for error messages.
        header: the header; ``None`` before the first item.
        features_bytes: bytes of all features of an observation; kept because summing takes longer than reading one.
        context: name of the current context; ``None`` before the first context line.
        next_index: number that the next observation of each context must have.
        observation_form: spelling of the last observation line.
        outcome_form: spelling of the last outcome line.
    """

    name: Path | str
    position: int = 0
    base: int = 0
    header: Header | None = None
    features_bytes: int = 0
    context: str | None = None
    next_index: dict[str, int] = field(default_factory=dict[str, int])
    observation_form: LineForm = LineForm(b'{"observation":', b"}")
    outcome_form: LineForm = LineForm(b'{"outcome":', b"}")


def read_item(data: bytes | bytearray, cursor: Cursor, *, ended: bool) -> Header | ContextItem | ObservationItem | None:
    """Read the item at the cursor, checking every byte that is not a tensor.

    Args:
        data: bytes of the log received so far, from offset ``cursor.base`` on.
        cursor: position of the item; it is advanced past the item.
        ended: whether no more bytes will come, so that an incomplete item is an error.

    Returns:
        The item, or ``None`` if there is none: at the end of the log, or (unless ``ended``) before more bytes arrive.

    Raises:
        TraceError: the item is malformed, or incomplete although the log has ``ended``.
    """
    if cursor.header is None:
        return _read_header(data, cursor, ended=ended)
    begin, context = cursor.position, cursor.context
    if begin == len(data):
        return None
    index = -1 if context is None else cursor.next_index[context]
    line = cursor.observation_form.line(index)
    if context is not None and data.startswith(line, begin):
        return _read_observation(data, cursor, cursor.header, (context, index), begin + len(line), ended=ended)
    expected = "a context line" if context is None else f'{{"observation":{index}}} or a context line'
    text = _read_line(data, cursor, begin, expected, ended=ended)
    if text is None:
        return None
    value = _parse_object(text, cursor, begin, expected)
    name = value.get("context")
    if isinstance(name, str):
        cursor.context = name
        cursor.next_index.setdefault(name, 0)
        cursor.position = begin + len(text) + 1
        return ContextItem(name)
    if context is None or not _is_number(value.get("observation"), index):
        _damage(cursor, begin, expected, quote(text), DAMAGED)
    cursor.observation_form = _form_of(text, index, cursor.observation_form)
    return _read_observation(data, cursor, cursor.header, (context, index), begin + len(text) + 1, ended=ended)


def feature_decoder(header: Header) -> Callable[[bytes], dict[str, NDArray[Any]]]:
    """Make a function that decodes the bytes of one observation to its tensors, as read-only views."""
    names = [spec.name for spec in header.features]
    kinds = {(spec.dtype, spec.shape) for spec in header.features}
    if len(kinds) == 1:
        # All tensors at once: a compiler waits meanwhile, and an array per name takes ten times as long.
        ((dtype, shape),) = kinds
        block_shape = (len(names), *shape, 1)
        return lambda payload: dict(
            zip(names, (row[..., 0] for row in np.frombuffer(payload, dtype).reshape(block_shape)), strict=True)
        )
    places: list[tuple[str, np.dtype[Any], int, int, tuple[int, ...]]] = []
    offset = 0
    for spec in header.features:
        places.append((spec.name, spec.dtype, math.prod(spec.shape), offset, spec.shape))
        offset += spec.size_bytes
    return lambda payload: {
        name: np.frombuffer(payload, dtype, count, begin).reshape(shape) for name, dtype, count, begin, shape in places
    }


def context_line(name: str) -> bytes:
    r"""Format the line that begins a context.

    Example:
        >>> context_line("main")
        b'{"context":"main"}\n'
    """
    return _compact({"context": name}) + b"\n"


def trace_error(name: Path | str, offset: int, expected: str, found: str, advice: str) -> TraceError:
    """Make the error for a defect at byte ``offset`` of the log ``name``."""
    message = f"trace {name}: byte {offset}: expected {expected}, found {found}; {advice}"
    return TraceError(message, path=name, offset=offset)


def _damage(cursor: Cursor, position: int, expected: str, found: str, advice: str) -> NoReturn:
    """Raise the TraceError for a defect at ``position`` of the cursor's data."""
    raise trace_error(cursor.name, cursor.base + position, expected, found, advice)


def quote(text: bytes) -> str:
    """Format bytes for a message: short, printable, on one line."""
    return ascii(text[:60].decode("utf-8", "backslashreplace")) + ("..." if len(text) > 60 else "")


def _compact(value: Mapping[str, Any]) -> bytes:
    """Encode JSON without spaces, as LLVM does."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class _RefusedError(Exception):
    """A header that is refused: what was expected, and what was found."""


def _read_header(data: bytes | bytearray, cursor: Cursor, *, ended: bool) -> Header | None:
    """Read the header line; ``None`` if it is incomplete and more bytes will come."""
    text = _read_line(data, cursor, cursor.position, _HEADER, ended=ended)
    if text is None:
        return None
    try:
        header = _header_of(bytes(text))
    except _RefusedError as refused:
        expected, found = refused.args
        _damage(cursor, cursor.position, expected, found, DAMAGED)
    cursor.header = header
    cursor.features_bytes = header.features_bytes
    cursor.position += len(text) + 1
    return header


@functools.lru_cache(maxsize=64)
def _header_of(text: bytes) -> Header:
    """Parse a header line; cached, because the thousands of logs of a run share one."""
    value = _object_in(text)
    if value is None:
        raise _RefusedError(_HEADER, quote(text))

    def specs(items: list[object]) -> list[TensorSpec]:
        try:
            return [TensorSpec.from_json(item) for item in items]
        except (InputError, TypeError) as error:
            raise _RefusedError("tensor specifications", str(error)) from error

    listed: Any = value.get("features")
    if not isinstance(listed, list) or not listed:
        raise _RefusedError('a list "features" in the header', quote(text))
    features = specs(cast("list[object]", listed))
    names = [spec.name for spec in features]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError("features of different names", f"{twice!r} twice")
    score, advice = (specs([value[key]])[0] if value.get(key) is not None else None for key in ("score", "advice"))
    header = Header(features=tuple(features), score=score, advice=advice)
    for spec_bytes in (header.features_bytes, score.size_bytes if score else 0, advice.size_bytes if advice else 0):
        if spec_bytes > MAX_OBSERVATION_BYTES:
            raise _RefusedError(
                f"at most {MAX_OBSERVATION_BYTES} bytes per observation", f"shapes that make {spec_bytes}"
            )
    return header


def _read_observation(
    data: bytes | bytearray, cursor: Cursor, header: Header, key: tuple[str, int], features_at: int, *, ended: bool
) -> ObservationItem | None:
    """Read the features after an observation line, and the outcome if the header declares a score.

    Args:
        data: bytes of the log from offset ``cursor.base`` on.
        cursor: position of the observation line; it is advanced past the observation.
        header: header of the log.
        key: context of the observation, and its number there.
        features_at: offset of the features in ``data``.
        ended: whether no more bytes will come.
    """
    context, index = key
    end = _check_tensor(
        data, cursor, features_at, cursor.features_bytes, f"features for observation {index}", ended=ended
    )
    if end is None:
        return None
    score_at = None
    if header.score is not None:
        body = _read_outcome_line(data, cursor, index, end, ended=ended)
        if body is None:
            return None
        score_at = body
        end = _check_tensor(data, cursor, body, header.score.size_bytes, f"score for observation {index}", ended=ended)
        if end is None:
            return None
    cursor.next_index[context] = index + 1
    cursor.position = end
    return ObservationItem(context, index, features_at, score_at)


def _read_outcome_line(data: bytes | bytearray, cursor: Cursor, index: int, begin: int, *, ended: bool) -> int | None:
    """Read the outcome line at ``begin``; returns the offset of the score after it, ``None`` if it is incomplete."""
    line = cursor.outcome_form.line(index)
    if data.startswith(line, begin):
        return begin + len(line)
    expected = f'{{"outcome":{index}}}'
    text = _read_line(data, cursor, begin, expected, ended=ended)
    if text is None:
        return None
    value = _parse_object(text, cursor, begin, expected)
    if not _is_number(value.get("outcome"), index):
        _damage(cursor, begin, expected, quote(text), DAMAGED)
    cursor.outcome_form = _form_of(text, index, cursor.outcome_form)
    return begin + len(text) + 1


def _check_tensor(
    data: bytes | bytearray, cursor: Cursor, begin: int, size_bytes: int, what: str, *, ended: bool
) -> int | None:
    """Check that ``size_bytes`` of tensors and a newline begin at ``begin``; returns the offset after the newline.

    ``None`` is returned if they are incomplete and more bytes will come.
    """
    end = begin + size_bytes
    if end < len(data):
        if data[end] != ord("\n"):
            _damage(cursor, end, f"a newline after the {what}", quote(bytes(data[end : end + 1])), DAMAGED)
        return end + 1
    if not ended:
        return None
    if end == len(data):
        _damage(cursor, end, f"a newline after the {what}", "the end", KILLED)
    _damage(cursor, begin, f"{size_bytes} bytes of {what}", str(len(data) - begin), KILLED)


def _read_line(data: bytes | bytearray, cursor: Cursor, begin: int, expected: str, *, ended: bool) -> bytes | None:
    """Read the line at ``begin``, without its newline; ``None`` if it is incomplete and more bytes will come."""
    end = data.find(b"\n", begin, begin + MAX_LINE_BYTES)
    if end >= 0:
        return bytes(data[begin:end])
    if len(data) - begin >= MAX_LINE_BYTES:
        _damage(cursor, begin, expected, f"no newline in {MAX_LINE_BYTES} bytes", DAMAGED)
    if not ended:
        return None
    if begin == len(data):
        _damage(cursor, begin, expected, "the end", KILLED)
    _damage(cursor, begin, expected, f"{quote(bytes(data[begin:]))} without a newline", KILLED)


def _parse_object(text: bytes, cursor: Cursor, offset: int, expected: str) -> dict[str, Any]:
    """Parse the JSON object in a line; raise the TraceError if it is none."""
    value = _object_in(text)
    if value is None:
        _damage(cursor, offset, expected, quote(text), DAMAGED)
    return value


def _object_in(text: bytes) -> dict[str, Any] | None:
    """Parse the JSON object in a line; ``None`` if it is not one."""
    try:
        value: Any = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _is_number(value: object, number: int) -> bool:
    """Whether a JSON value is this integer; ``True`` and ``1.0`` are not 1."""
    return type(value) is int and value == number


def _form_of(text: bytes, number: int, otherwise: LineForm) -> LineForm:
    """Split a line at its number into a form; ``otherwise`` if the number is spelled in another way."""
    prefix, digits, suffix = text.partition(b"%d" % number)
    return LineForm(prefix, suffix) if digits else otherwise
