"""LLVM's training log as arrays: a whole file at once, checked to the byte, without a Python object per observation.

docs/formats.md, "Training log", has the bytes. Reading steps from item to item (:mod:`mlgokit.traces.item`) only where
the spacing of the observations can change: at the start of a context, where the number of digits grows, and at damage.
In between it lies at a constant stride and is checked a whole run at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlgokit.errors import StorageError, TraceError, UsageError
from mlgokit.spec import TensorSpec
from mlgokit.traces.item import (
    ContextItem,
    Cursor,
    Header,
    LineForm,
    ObservationItem,
    context_line,
    fail,
    read_item,
)

_STEPS_BEFORE_RUN = 16
_LARGEST_RUN = 2**16
_NEWLINE = np.full((1, 1), ord("\n"), np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSpan:
    """Observations ``start`` up to, not including, ``stop`` of a log belong to context ``name``.

    A context without observations has an empty span; a context that is entered again has several.
    """

    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Log:
    """A training log with T observations.

    Attributes:
        header: what the columns are; has no features only if reading a damaged log found not even a header.
        contexts: in the order of the log, without gaps: the first starts at 0, each at the stop of the one before.
        columns: for every feature an array ``[T, *shape]``; read-only views of one block of memory after reading.
        scores: ``[T, *shape]``, or ``None`` if the header declares no score. An observation without outcome has NaN
            (0 in an integer type).
        scored: ``[T]`` booleans, which observations have an outcome; ``None`` like ``scores``.
        truncated: the sentence about the damage behind the last observation; ``None`` for a log that is whole.
    """

    header: Header
    contexts: tuple[ContextSpan, ...]
    columns: Mapping[str, NDArray[Any]]
    scores: NDArray[Any] | None = None
    scored: NDArray[np.bool_] | None = None
    truncated: str | None = None

    @property
    def observation_count(self) -> int:
        """The T of the arrays' shapes."""
        return self.contexts[-1].stop if self.contexts else 0


def read_log(path: Path, *, partial: bool = False) -> Log:
    """Read a training log.

    Args:
        path: the file.
        partial: give the complete observations before the first damage, and the damage in :attr:`Log.truncated`,
            instead of raising. Then even an empty file is a log, one without features; but no file is still an error.

    Raises:
        TraceError: the log is malformed or cut short. A log that ends between two observations cannot be told from a
            whole one, nor one that ends before the outcome of its last observation: LLVM itself may leave that out.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        fail(path, 0, "a readable file", error.strerror or str(error), "check the path")
    return read_log_bytes(data, name=path, partial=partial)


def read_log_bytes(data: bytes, *, name: Path | str, partial: bool = False) -> Log:
    r"""Read a training log that is in memory; ``name`` stands for it in messages. Otherwise as :func:`read_log`.

    Example:
        >>> header = Header(features=(TensorSpec(name="a", type="int8_t", shape=(1,)),))
        >>> data = header.to_line() + b'{"context":"f"}\n{"observation":0}\n\x07\n{"observation":1}\n\x09\n'
        >>> read_log_bytes(data, name="example").columns["a"].tolist()
        [[7], [9]]
    """
    cursor = Cursor(name=name)
    found = _Found(contexts=[], features_at=[], score_at=[], count=0)
    truncated = None
    try:
        _scan(data, cursor, found)
    except TraceError as error:
        if not partial:
            raise
        truncated = str(error)
    header = cursor.header or Header(features=())
    features_at = np.concatenate([np.empty(0, np.int64), *found.features_at])
    payload = _gather(data, features_at, header.features_bytes)
    columns: dict[str, NDArray[Any]] = {}
    offset = 0
    for spec in header.features:
        columns[spec.name] = _typed(payload[:, offset : offset + spec.size_bytes], spec)
        offset += spec.size_bytes
    scores = scored = None
    if header.score is not None:
        score_at = np.concatenate([np.empty(0, np.int64), *found.score_at])
        scored = score_at >= 0
        missing = np.full((), np.nan if header.score.dtype.kind == "f" else 0, header.score.dtype)
        scores = np.full((found.count, *header.score.shape), missing)
        scores[scored] = _typed(_gather(data, score_at[scored], header.score.size_bytes), header.score)
        scores.flags.writeable = scored.flags.writeable = False
    stops = [start for _, start in found.contexts[1:]] + [found.count]
    spans = (
        ContextSpan(name=context, start=start, stop=stop)
        for (context, start), stop in zip(found.contexts, stops, strict=False)
    )
    return Log(header=header, contexts=tuple(spans), columns=columns, scores=scores, scored=scored, truncated=truncated)


def render_log(log: Log) -> bytes:
    """The bytes of a log as LLVM writes them; ``log.truncated`` is not among them.

    Raises:
        UsageError: columns, scores and contexts do not fit the header or each other.
    """
    count = log.observation_count
    features = [_bytes_of(log.columns.get(spec.name), spec, count) for spec in log.header.features]
    rows = [row.tobytes() for row in np.concatenate([np.empty((count, 0), np.uint8), *features], axis=1)]
    outcomes: list[bytes] = [b""] * count
    score = log.header.score
    if score is not None:
        scored = np.ones(count, np.bool_) if log.scored is None else log.scored
        values = _bytes_of(log.scores, score, count)
        outcomes = [value.tobytes() if present else b"" for value, present in zip(values, scored, strict=True)]
    cursor = Cursor(name="")
    parts = [log.header.to_line()]
    position = 0
    for span in log.contexts:
        if span.start != position or span.stop < span.start:
            raise UsageError(
                f"log: context {span.name!r}: expected a span that starts at {position}, "
                f"found {span.start} to {span.stop}; let the spans follow each other without gaps"
            )
        parts.append(context_line(span.name))
        first = cursor.next_index.get(span.name, 0)
        for number, row in enumerate(range(span.start, span.stop), first):
            parts += [cursor.observation_form.line(number), rows[row], b"\n"]
            if outcomes[row]:
                parts += [cursor.outcome_form.line(number), outcomes[row], b"\n"]
        cursor.next_index[span.name] = first + span.stop - span.start
        position = span.stop
    return b"".join(parts)


def write_log(path: Path, log: Log) -> None:
    """Write a log byte for byte as LLVM would.

    Raises:
        UsageError: as :func:`render_log`.
        StorageError: the file cannot be written.
    """
    data = render_log(log)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StorageError(
            f"trace {path}: expected to write {len(data)} bytes, found {error.strerror}; "
            "free space or choose another place"
        ) from error


@dataclass(slots=True, kw_only=True)
class _Found:
    """Offsets that a scan has collected, in pieces: ``score_at`` is -1 for an observation without outcome."""

    contexts: list[tuple[str, int]]
    features_at: list[NDArray[np.int64]]
    score_at: list[NDArray[np.int64]]
    count: int

    def add(self, features_at: NDArray[np.int64], score_at: NDArray[np.int64]) -> None:
        self.features_at.append(features_at)
        self.score_at.append(score_at)
        self.count += len(features_at)


def _scan(data: bytes, cursor: Cursor, found: _Found) -> None:
    """Find all observations; what was found before damage stays in ``found``."""
    buffer = np.frombuffer(data, np.uint8)
    stepped: list[ObservationItem] = []

    def flush() -> None:
        at = [item.features_at for item in stepped]
        scores = [-1 if item.score_at is None else item.score_at for item in stepped]
        found.add(np.array(at, np.int64), np.array(scores, np.int64))
        stepped.clear()

    in_a_row = 0
    try:
        while (item := read_item(data, cursor, ended=True)) is not None:
            match item:
                case ContextItem(context):
                    found.contexts.append((context, found.count + len(stepped)))
                    in_a_row = 0
                case ObservationItem():
                    stepped.append(item)
                    in_a_row += 1
                case Header():
                    pass
            if in_a_row == _STEPS_BEFORE_RUN and cursor.header is not None and cursor.context is not None:
                flush()
                _skip_run(buffer, cursor, cursor.header, cursor.context, found)
                in_a_row = 0
    finally:
        flush()


def _skip_run(buffer: NDArray[np.uint8], cursor: Cursor, header: Header, context: str, found: _Found) -> None:
    """Take the observations that lie at one stride from the cursor on, up to the first that is not exactly there."""
    score = header.score
    index = cursor.next_index[context]
    digits = len(str(index))
    features_offset = len(cursor.observation_form.line(index))
    features_end = features_offset + cursor.features_bytes
    score_offset = score_end = features_end
    if score is not None:
        score_offset += 1 + len(cursor.outcome_form.line(index))
        score_end = score_offset + score.size_bytes
    stride = score_end + 1
    left = min(10**digits - index, (len(buffer) - cursor.position) // stride)
    size = 4 * _STEPS_BEFORE_RUN
    while left > 0:
        size = min(4 * size, left, _LARGEST_RUN)
        rows = np.ndarray((size, stride), np.uint8, buffer, cursor.position, (stride, 1))
        good = min(
            _matching(rows[:, :features_offset], _numbered(cursor.observation_form, index, size, digits)),
            _matching(rows[:, features_end : features_end + 1], _NEWLINE),
        )
        if score is not None:
            good = min(
                good,
                _matching(
                    rows[:, features_end + 1 : score_offset], _numbered(cursor.outcome_form, index, size, digits)
                ),
                _matching(rows[:, score_end : score_end + 1], _NEWLINE),
            )
        begins = cursor.position + stride * np.arange(good, dtype=np.int64)
        found.add(begins + features_offset, begins + score_offset if score else np.full(good, -1, np.int64))
        cursor.position += good * stride
        index += good
        cursor.next_index[context] = index
        if good < size:
            return
        left -= size


def _numbered(form: LineForm, first: int, count: int, digits: int) -> NDArray[np.uint8]:
    """The lines for ``count`` numbers of ``digits`` digits from ``first`` on, as ``[count, length]`` bytes."""
    template = np.frombuffer(form.line(first), np.uint8)
    lines = np.empty((count, len(template)), np.uint8)
    lines[:] = template
    numbers = np.arange(first, first + count, dtype=np.uint64)
    for place in range(digits):
        column = len(form.prefix) + digits - 1 - place
        lines[:, column] = numbers % np.uint64(10) + np.uint64(ord("0"))
        numbers //= np.uint64(10)
    return lines


def _matching(found: NDArray[np.uint8], expected: NDArray[np.uint8]) -> int:
    """How many leading rows are equal."""
    differing = (np.ascontiguousarray(found) != expected).reshape(-1)
    first = int(differing.argmax())
    return first // found.shape[1] if differing[first] else len(found)


def _gather(data: bytes, offsets: NDArray[np.int64], size_bytes: int) -> NDArray[np.uint8]:
    """``size_bytes`` bytes from each offset, as read-only ``[T, size_bytes]``."""
    if not len(offsets):
        return np.empty((0, size_bytes), np.uint8)
    windows = np.ndarray(len(data) - size_bytes + 1, f"V{size_bytes}", data, strides=1)
    block = windows[offsets]
    block.flags.writeable = False
    return block.view(np.uint8).reshape(len(offsets), size_bytes)


def _typed(block: NDArray[np.uint8], spec: TensorSpec) -> NDArray[Any]:
    return block.view(spec.dtype).reshape(len(block), *spec.shape)


def _bytes_of(column: NDArray[Any] | None, spec: TensorSpec, count: int) -> NDArray[np.uint8]:
    shape = (count, *spec.shape)
    if column is None or column.dtype != spec.dtype or column.shape != shape:
        found = "none" if column is None else f"{column.dtype} of shape {list(column.shape)}"
        raise UsageError(
            f"log: tensor {spec.name!r}: expected {spec.dtype} of shape {list(shape)}, found {found}; "
            "give every tensor of the header with the number of observations that the contexts span"
        )
    return np.ascontiguousarray(column).reshape(count, -1).view(np.uint8) if count else np.empty((0, 0), np.uint8)
