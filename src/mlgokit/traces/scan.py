"""Finds the observations of a training log in a stream of bytes, a window at a time.

There are three ways to read. :mod:`mlgokit.traces.record` reads item by item, which is needed for the header, for
spellings that LLVM does not use, and for damage. Two fast paths read many observations at once, and stop where a byte
is not as expected: one for contexts of few observations, as in register allocation, and one for long runs at a constant
stride.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from mlgokit.errors import TraceError
from mlgokit.traces.layout import SWEEP_LIMIT, Layout, Offsets, layout_of, number_lines
from mlgokit.traces.record import ContextItem, Cursor, Header, ObservationItem, read_item

WINDOW_BYTES = 2**21
"""Bytes that are read at once: small enough to stay in a processor's second-level cache, where they are read twice."""

_FIRST_RUN = 2**8
"""Observations that are compared at once at the beginning of a run."""
_LARGEST_RUN = 2**14
"""Maximum observations that are compared at once in a run."""
_POOR_SWEEP = 8
"""If the fast paths find fewer observations than this, some items are read singly before they are tried again."""
_LONGEST_PAUSE = 256
"""Maximum items that are read singly before the fast paths are tried again."""
_NEWLINE = np.full((1, 1), ord("\n"), np.uint8)


@dataclass(slots=True, kw_only=True)
class Piece:
    """The observations of one window of a log.

    Attributes:
        data: bytes of the window.
        contexts: name of each context line in the window, with the number of observations in the window before it.
        features_at: offset in ``data`` of each observation's features, in several arrays.
        score_at: offset in ``data`` of each observation's score, -1 if the header declares none; in arrays of the same
            lengths as ``features_at``.
        count: number of observations so far.
        error: damage after the last observation.
    """

    data: bytes
    contexts: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    features_at: list[Offsets] = field(default_factory=list[Offsets])
    score_at: list[Offsets] = field(default_factory=list[Offsets])
    count: int = 0
    error: TraceError | None = None

    def add(self, features_at: Offsets, score_at: Offsets) -> None:
        """Append observations."""
        self.features_at.append(features_at)
        self.score_at.append(score_at)
        self.count += len(features_at)


def scan_windows(stream: BinaryIO, cursor: Cursor) -> Iterator[Piece]:
    """Yield the windows of a log up to its end or the first damage; each is released when the next is requested.

    Raises:
        OSError: the stream cannot be read.
    """
    rest, want, ended = b"", WINDOW_BYTES, False
    seekable = stream.seekable()
    while not ended:
        read = stream.read(want)
        ended = len(read) <= (len(rest) if seekable else 0)
        piece = Piece(data=read if seekable or not rest else rest + read)
        try:
            _scan(piece, cursor, ended=ended)
        except TraceError as error:
            piece.error = error
        rest = piece.data[cursor.position :]
        # An observation may be larger than the window: double what is asked for until it fits.
        want = WINDOW_BYTES if cursor.position else max(WINDOW_BYTES, len(rest))
        if seekable and rest:
            # To read these bytes again is cheaper than to move all others.
            stream.seek(-len(rest), io.SEEK_CUR)
            want += len(rest)
        cursor.base += cursor.position
        cursor.position = 0
        yield piece
        if piece.error is not None:
            return


def _scan(piece: Piece, cursor: Cursor, *, ended: bool) -> None:
    """Find the observations of a window; those before any damage stay in ``piece``.

    Even without any, ``piece`` has an array of offsets afterwards, which may be empty.
    """
    single: list[ObservationItem] = []

    def flush() -> None:
        """Move the observations that were read singly to the piece, so that it has them in the order of the log."""
        at = [item.features_at for item in single]
        scores = [-1 if item.score_at is None else item.score_at for item in single]
        piece.add(np.array(at, np.int64), np.array(scores, np.int64))
        single.clear()

    pause = left = 0
    try:
        while True:
            if left == 0 and cursor.header is not None and cursor.position < len(piece.data):
                flush()
                before = piece.count
                _read_fast(piece, cursor, cursor.header)
                # Where the fast paths find few observations, they are tried less and less often.
                pause = min(2 * pause + 1, _LONGEST_PAUSE) if piece.count - before < _POOR_SWEEP else 0
                left = pause
            left = max(left - 1, 0)
            item = read_item(piece.data, cursor, ended=ended)
            match item:
                case None:
                    return
                case ContextItem(context):
                    piece.contexts.append((context, piece.count + len(single)))
                case ObservationItem():
                    single.append(item)
                case Header():
                    pass
    finally:
        flush()


def _read_fast(piece: Piece, cursor: Cursor, header: Header) -> None:
    """Apply both fast paths in turn, as long as one advances."""
    layout = layout_of(header, cursor.observation_form, cursor.outcome_form)
    while (context := _read_contexts(piece, cursor, layout)) is not None:
        while _read_run(piece, cursor, layout, context):
            pass


@dataclass(slots=True, kw_only=True)
class _Stretch:
    """Successive contexts whose lengths fit a number of observations; the numbers in their lines are not checked yet.

    Attributes:
        names: name of each context; the first may be the rest of a context that began before.
        lines_at: offset of each context line; for a continued context, of its observations.
        bodies_at: offset of each context's first observation.
        firsts: number of each context's first observation.
        counts: number of observations of each context.
        end: offset after the last context.
    """

    names: list[str] = field(default_factory=list[str])
    lines_at: list[int] = field(default_factory=list[int])
    bodies_at: list[int] = field(default_factory=list[int])
    firsts: list[int] = field(default_factory=list[int])
    counts: list[int] = field(default_factory=list[int])
    end: int

    def add(self, name: str, body: int, end: int, cursor: Cursor, layout: Layout) -> bool:
        """Append a context with observations from offset ``body`` to ``end``, if the length fits a number of them.

        Returns:
            Whether a further context may follow: this one was appended, and has fewer observations than a pattern can
            match, so that it is complete.
        """
        first = cursor.next_index.get(name, 0)
        count = layout.count(end - body, first)
        if count < 0:
            return False
        self.names.append(name)
        self.lines_at.append(self.end)
        self.bodies_at.append(body)
        self.firsts.append(first)
        self.counts.append(count)
        self.end = end
        cursor.next_index[name] = first + count
        return count < SWEEP_LIMIT

    def truncate(self, kept: int, cursor: Cursor) -> None:
        """Drop all but the first ``kept`` contexts."""
        self.end = self.lines_at[kept]
        for index in range(len(self.names) - 1, kept - 1, -1):
            cursor.next_index[self.names[index]] = self.firsts[index]
        for part in (self.names, self.lines_at, self.bodies_at, self.firsts, self.counts):
            del part[kept:]


def _read_contexts(piece: Piece, cursor: Cursor, layout: Layout) -> str | None:
    """Read the rest of the current context and the contexts after it, each up to ``SWEEP_LIMIT`` observations.

    Returns:
        Name of the last context if it may have more observations, for :func:`_read_run`; otherwise ``None``.
    """
    stretch = _find_contexts(piece.data, cursor, layout)
    if not stretch.names:
        return None
    bodies, firsts, counts = (np.array(part, np.int64) for part in (stretch.bodies_at, stretch.firsts, stretch.counts))
    features_at, score_at, good = _check(piece.data, bodies, firsts, counts, layout)
    damaged = good < len(features_at)
    if damaged:
        # The context with the difference is read item by item, which finds the damaged byte, or an unusual spelling.
        stretch.truncate(int(np.searchsorted(np.cumsum(counts), good, side="right")), cursor)
        if not stretch.names:
            return None
    total = piece.count
    for name, line, body, count in zip(stretch.names, stretch.lines_at, stretch.bodies_at, stretch.counts, strict=True):
        if line != body:
            piece.contexts.append((name, total))
        total += count
    taken = total - piece.count
    piece.add(features_at[:taken], score_at[:taken])
    cursor.context, cursor.position = stretch.names[-1], stretch.end
    return None if damaged or stretch.counts[-1] < SWEEP_LIMIT else cursor.context


def _find_contexts(data: bytes, cursor: Cursor, layout: Layout) -> _Stretch:
    """Find contexts in LLVM's spelling from the cursor on, up to the first with ``SWEEP_LIMIT`` or more observations.

    Only the first ``SWEEP_LIMIT`` observations of that last context are found.
    """
    stretch = _Stretch(end=cursor.position)
    if cursor.context is not None:
        matched = layout.observations.match(data, cursor.position)
        end = matched.end() if matched else cursor.position
        if not stretch.add(cursor.context, cursor.position, end, cursor, layout):
            return stretch
    while (matched := layout.context.match(data, stretch.end)) is not None:
        try:
            name = matched[1].decode()
        except UnicodeDecodeError:
            break
        if not stretch.add(name, matched.start(2), matched.end(), cursor, layout):
            break
    return stretch


def _check(
    data: bytes, bodies: Offsets, firsts: Offsets, counts: Offsets, layout: Layout
) -> tuple[Offsets, Offsets, int]:
    """Check that the lines of successive observations have the numbers that they must have.

    Args:
        data: bytes of the window.
        bodies: [C] offset of each context's first observation.
        firsts: [C] number of each context's first observation.
        counts: [C] number of observations of each context.
        layout: layout of the log.

    Returns:
        Offsets of the features and of the scores of all observations if every line is right, and how many observations
        are right before the first one that is not.
    """
    own = np.repeat(firsts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()), dtype=np.int64)
    at = np.repeat(bodies - layout.starts(firsts), counts) + layout.starts(own)
    features_at, score_at = np.empty_like(at), np.full_like(at, -1)
    good = len(at)
    largest = int(own.max(initial=0))
    for digits in range(1, len(str(largest)) + 1):
        same = np.flatnonzero((own < 10**digits) & (own >= (10 ** (digits - 1) if digits > 1 else 0)))
        if not len(same):
            continue
        lines = number_lines(layout.observation_form, own[same], digits)
        features_at[same], matching = _check_lines(data, at[same], lines)
        if layout.score_bytes is not None:
            lines = number_lines(layout.outcome_form, own[same], digits)
            score_at[same], outcomes = _check_lines(data, features_at[same] + layout.features_bytes + 1, lines)
            matching = min(matching, outcomes)
        if matching < len(same):
            good = min(good, int(same[matching]))
    return features_at, score_at, good


def _check_lines(data: bytes, at: Offsets, expected: NDArray[np.uint8]) -> tuple[Offsets, int]:
    """Compare the lines at offsets ``at`` [N] with the ``expected`` ones [N, width].

    Returns:
        Offset [N] after each line, and how many lines are equal before the first that differs.
    """
    width = expected.shape[1]
    return at + width, _count_equal_rows(gather(data, at, width).view(np.uint8).reshape(-1, width), expected)


def _read_run(piece: Piece, cursor: Cursor, layout: Layout, context: str) -> bool:
    """Read observations at a constant stride from the cursor on, up to the first whose lines are not as expected.

    Returns:
        Whether all observations were read up to where numbers get one more digit, and so the stride grows.
    """
    index = cursor.next_index[context]
    digits = len(str(index))
    features_offset = len(layout.observation_form.line(index))
    features_end = features_offset + layout.features_bytes
    score_offset = score_end = features_end
    score_bytes = layout.score_bytes
    if score_bytes is not None:
        score_offset += 1 + len(layout.outcome_form.line(index))
        score_end = score_offset + score_bytes
    stride = score_end + 1
    left = min(10**digits - index, (len(piece.data) - cursor.position) // stride)
    size = _FIRST_RUN
    buffer = np.frombuffer(piece.data, np.uint8)
    while left > 0:
        size = min(size, left, _LARGEST_RUN)
        rows = np.ndarray((size, stride), np.uint8, buffer, cursor.position, (stride, 1))
        numbers = np.arange(index, index + size, dtype=np.int64)
        good = min(
            _count_equal_rows(rows[:, :features_offset], number_lines(layout.observation_form, numbers, digits)),
            _count_equal_rows(rows[:, features_end : features_end + 1], _NEWLINE),
        )
        if score_bytes is not None:
            good = min(
                good,
                _count_equal_rows(
                    rows[:, features_end + 1 : score_offset], number_lines(layout.outcome_form, numbers, digits)
                ),
                _count_equal_rows(rows[:, score_end : score_end + 1], _NEWLINE),
            )
        begins = cursor.position + stride * np.arange(good, dtype=np.int64)
        score_at = np.full(good, -1, np.int64) if score_bytes is None else begins + score_offset
        piece.add(begins + features_offset, score_at)
        cursor.position += good * stride
        index += good
        cursor.next_index[context] = index
        if good < size:
            return False
        left -= size
        size *= 4
    return index == 10**digits


def _count_equal_rows(actual: NDArray[np.uint8], expected: NDArray[np.uint8]) -> int:
    """Count the leading rows of ``actual`` that are equal to those of ``expected``."""
    differing = (np.ascontiguousarray(actual) != expected).reshape(-1)
    if not len(differing):
        return len(actual)
    first = int(differing.argmax())
    return first // actual.shape[1] if differing[first] else len(actual)


def gather(data: bytes, offsets: Offsets, size_bytes: int) -> NDArray[np.void]:
    """Copy ``size_bytes`` bytes at each of T offsets into an array [T] of opaque items."""
    if not len(offsets):
        return np.empty(0, f"V{size_bytes}")
    return np.ndarray(len(data) - size_bytes + 1, f"V{size_bytes}", data, strides=1)[offsets]
