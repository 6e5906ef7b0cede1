"""LLVM's training log as arrays: checked to the byte, without a Python object per observation.

docs/formats.md, "Training log", has the bytes; :mod:`mlgokit.traces.scan` finds the observations.
"""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mlgokit.errors import UsageError
from mlgokit.spec import TensorSpec
from mlgokit.traces.layout import Offsets
from mlgokit.traces.record import DAMAGED, Cursor, Header, context_line, trace_error
from mlgokit.traces.scan import Piece, gather, scan_windows

MOST_CONTEXTS = 2**20
"""Maximum contexts in one log, or one batch of it: a context takes ten times as many bytes in memory as in the file."""


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
        header: description of the columns; without features only for a damaged log whose header could not be read.
        contexts: spans of the contexts in the order of the log, without gaps, the first from 0.
        columns: for every feature an array ``[T, *shape]``; read-only views of one block of memory after reading.
        scores: ``[T, *shape]`` score of each observation, or ``None`` if the header declares no score.
        damage: message about the damage after the last observation; ``None`` for a whole log.
    """

    header: Header
    contexts: tuple[ContextSpan, ...]
    columns: Mapping[str, NDArray[Any]]
    scores: NDArray[Any] | None = None
    damage: str | None = None

    @property
    def observation_count(self) -> int:
        """Number of observations T."""
        return self.contexts[-1].stop if self.contexts else 0


def read_log(path: Path, *, partial: bool = False) -> Log:
    """Read a training log.

    Args:
        path: path of the log.
        partial: whether to return the complete observations before the first damage, with the damage in
            :attr:`Log.damage`, instead of raising. An empty file then is a log without features; a missing file
            still is an error.

    Raises:
        TraceError: the log is malformed or cut short, or its header declares a score and an observation has no
            outcome. A log that ends between two observations cannot be told from a whole one.
    """
    return next(_open_logs(path, limit=None, partial=partial))


def read_log_bytes(data: bytes, *, name: Path | str, partial: bool = False) -> Log:
    r"""Read a training log in memory, as :func:`read_log` does; error messages name it ``name``.

    Example:
        >>> header = Header(features=(TensorSpec(name="a", type="int8_t", shape=(1,)),))
        >>> data = header.to_line() + b'{"context":"f"}\n{"observation":0}\n\x07\n{"observation":1}\n\x09\n'
        >>> read_log_bytes(data, name="example").columns["a"].tolist()
        [[7], [9]]
    """
    return next(_logs(io.BytesIO(data), name, size_bytes=len(data), limit=None, partial=partial))


def iter_log(path: Path, *, observations_per_batch: int) -> Iterator[Log]:
    """Read a training log of any size in batches, with one batch in memory at a time.

    Args:
        path: path of the log.
        observations_per_batch: number of observations of every batch but the last.

    Yields:
        The batches, at least one, each a :class:`Log` of its own: its spans begin at 0 again, and a context whose
        observations are split between two batches is in both.

    Raises:
        TraceError: as for :func:`read_log`, after the batches before the damage.
        UsageError: ``observations_per_batch`` is less than one.
    """
    if observations_per_batch < 1:
        raise UsageError(
            f"observations_per_batch: expected at least one, found {observations_per_batch}; give a larger number"
        )
    yield from _open_logs(path, limit=observations_per_batch, partial=False)


def _open_logs(path: Path, *, limit: int | None, partial: bool) -> Iterator[Log]:
    """Open a log file, and yield it in batches as :func:`_logs` does."""
    try:
        # Unbuffered, because a whole window is read at a time.
        with path.open("rb", buffering=0) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            yield from _logs(file, path, size_bytes=size_bytes, limit=limit, partial=partial)
    except OSError as error:
        raise trace_error(path, 0, "a readable file", error.strerror or str(error), "check the path") from error


def _logs(stream: BinaryIO, name: Path | str, *, size_bytes: int, limit: int | None, partial: bool) -> Iterator[Log]:
    """Yield the log in batches of ``limit`` observations; as one batch if ``limit`` is ``None``."""
    cursor = Cursor(name=name)
    batch: _Batch | None = None
    damage: str | None = None
    for piece in scan_windows(stream, cursor):
        header = cursor.header
        if header is not None:
            if batch is None:
                largest = _largest_count(header, size_bytes)
                batch = _new_batch(header, min(limit or largest, largest), ())
            _limit_contexts(batch, piece, cursor)
            begin = 0
            features_at, score_at = np.concatenate(piece.features_at), np.concatenate(piece.score_at)
            contexts = iter([*piece.contexts, (None, piece.count)])
            upcoming = next(contexts)
            while True:
                room = piece.count - begin if limit is None else limit - batch.count
                end = min(begin + room, piece.count)
                while upcoming[0] is not None and upcoming[1] <= end:
                    batch.contexts.append((upcoming[0], batch.count + upcoming[1] - begin))
                    upcoming = next(contexts)
                batch.add(piece, features_at[begin:end], score_at[begin:end])
                begin = end
                if begin == piece.count:
                    break
                following = batch.pop_following()
                yield batch.to_log(None)
                batch = _new_batch(header, batch.capacity, following)
        if piece.error is not None:
            if not partial:
                raise piece.error
            damage = str(piece.error)
    batch = batch or _new_batch(Header(features=()), 0, ())
    yield batch.to_log(damage)


def _limit_contexts(batch: "_Batch", piece: Piece, cursor: Cursor) -> None:
    """Mark a piece as damaged at the first context that is one too many for a batch, and drop it and what follows."""
    room = MOST_CONTEXTS - len(batch.contexts)
    if len(piece.contexts) > room:
        piece.count = piece.contexts[room][1]
        del piece.contexts[room:]
        piece.error = trace_error(cursor.name, cursor.base, f"at most {MOST_CONTEXTS} contexts", "more", DAMAGED)


def _largest_count(header: Header, size_bytes: int) -> int:
    """Bound the number of observations in ``size_bytes`` of a log, from the fewest bytes that one takes; at least 1."""
    least = header.features_bytes + len('{"observation":0}\n\n')
    if header.score is not None:
        least += header.score.size_bytes + len('{"outcome":0}\n\n')
    return size_bytes // least + 1


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Observations that are being collected.

    Attributes:
        header: header of the log.
        contexts: name and first observation of each span.
        payload: [capacity] features of each observation as opaque bytes.
        scores: [capacity, *shape] score of each observation; empty if the header has no score.
        count: number of observations so far.
    """

    header: Header
    contexts: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    payload: NDArray[np.void]
    scores: NDArray[Any]
    count: int = 0

    @property
    def capacity(self) -> int:
        return len(self.payload)

    def add(self, piece: Piece, features_at: Offsets, score_at: Offsets) -> None:
        """Copy the observations of a piece of the log whose features and scores are at these offsets."""
        begin, end = self.count, self.count + len(features_at)
        if end > self.capacity:
            # The file grows while it is read.
            fresh = _new_batch(self.header, 2 * end, ())
            fresh.payload[:begin], fresh.scores[:begin] = self.payload[:begin], self.scores[:begin]
            self.payload, self.scores = fresh.payload, fresh.scores
        self.payload[begin:end] = gather(piece.data, features_at, self.header.features_bytes)
        score = self.header.score
        if score is not None:
            values = gather(piece.data, score_at, score.size_bytes)
            self.scores[begin:end] = values.view(score.dtype).reshape(-1, *score.shape)
        self.count = end

    def pop_following(self) -> list[str]:
        """Remove the contexts that begin after the last observation; return the next batch's: these, or the current."""
        following = [name for name, start in self.contexts if start == self.count]
        del self.contexts[len(self.contexts) - len(following) :]
        return following or [name for name, _ in self.contexts[-1:]]

    def to_log(self, damage: str | None) -> Log:
        """Make the log of the observations so far."""
        columns = _columns(self.payload[: self.count], self.header.features)
        scores = None
        if self.header.score is not None:
            scores = self.scores[: self.count]
            scores.flags.writeable = False
        stops = [start for _, start in self.contexts[1:]] + [self.count]
        spans = (
            ContextSpan(name=context, start=start, stop=stop)
            for (context, start), stop in zip(self.contexts, stops, strict=False)
        )
        return Log(
            header=self.header,
            contexts=tuple(spans),
            columns=columns,
            scores=scores,
            damage=damage,
        )


def _new_batch(header: Header, capacity: int, contexts: Sequence[str]) -> _Batch:
    """Make an empty batch for ``capacity`` observations, which belong to the last of ``contexts``."""
    score = header.score
    return _Batch(
        header=header,
        contexts=[(name, 0) for name in contexts],
        payload=np.empty(capacity, f"V{header.features_bytes}"),
        scores=np.empty((0,) if score is None else (capacity, *score.shape), None if score is None else score.dtype),
    )


def render_log(log: Log) -> bytes:
    """Encode a log as LLVM writes it; ``log.damage`` is not written.

    Raises:
        UsageError: columns, scores and contexts do not fit the header or each other.
    """
    _check_declared(log)
    count = log.observation_count
    features = [_bytes_of(log.columns.get(spec.name), spec, count) for spec in log.header.features]
    rows = [row.tobytes() for row in np.concatenate([np.empty((count, 0), np.uint8), *features], axis=1)]
    outcomes: list[bytes] = [b""] * count
    score = log.header.score
    if score is not None:
        outcomes = [value.tobytes() for value in _bytes_of(log.scores, score, count)]
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


def _check_declared(log: Log) -> None:
    """Raise a UsageError for columns and scores that the header does not declare, which would not be written."""
    extra = sorted(log.columns.keys() - {spec.name for spec in log.header.features})
    found = [f"a column {extra[0]!r}"] if extra else []
    found += ["scores"] if log.scores is not None and log.header.score is None else []
    if found:
        raise UsageError(
            f"log: expected columns and scores that the header declares, found {' and '.join(found)} that it does not; "
            "declare or remove them"
        )


def _columns(payload: NDArray[np.void], features: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """Make a view of each feature, by name, in an array of opaque observations."""
    if not features:
        return {}
    # LLVM allows any name, numpy not.
    table = payload.view([(f"f{index}", spec.dtype, spec.shape) for index, spec in enumerate(features)])
    table.flags.writeable = False
    return {spec.name: table[f"f{index}"] for index, spec in enumerate(features)}


def _bytes_of(column: NDArray[Any] | None, spec: TensorSpec, count: int) -> NDArray[np.uint8]:
    """View a column as the bytes [count, size] of its observations; raise a UsageError if it does not fit ``spec``."""
    shape = (count, *spec.shape)
    if column is None or column.dtype != spec.dtype or column.shape != shape:
        type_text = "none" if column is None else f"{column.dtype} of shape {list(column.shape)}"
        raise UsageError(
            f"log: tensor {spec.name!r}: expected {spec.dtype} of shape {list(shape)}, found {type_text}; "
            "give every tensor of the header with the number of observations that the contexts span"
        )
    return np.ascontiguousarray(column).reshape(count, -1).view(np.uint8) if count else np.empty((0, 0), np.uint8)
