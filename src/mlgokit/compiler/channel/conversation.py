"""The protocol of one interactive channel: bytes from the compiler become observations, advice becomes bytes. No I/O.

docs/formats.md, "Interactive channel", has the protocol. One channel may carry several *sessions*, one after the other:
LLVM opens its pipes once for each pass manager that asks, and begins with a header each time.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlgokit.advisors import Advice, Observation, check_advice
from mlgokit.errors import TraceError, UsageError
from mlgokit.problems import PROBLEMS, Problem, header_defect
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header, Log, read_log_bytes
from mlgokit.traces.record import Cursor, ObservationItem, feature_decoder, read_item

_HEADER_BEGINS = b'{"features":'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """How a session is read and answered, by its header.

    Attributes:
        decode: decodes the bytes of an observation to its tensors, under the names that the compiler sent.
        header: the header as the advisor sees it.
        advice: tensor of the expected answer.
        problem: the kind of decision, if the name of the advice is known.
    """

    decode: Callable[[bytes], Mapping[str, NDArray[Any]]]
    header: Header
    advice: TensorSpec
    problem: Problem | None


@dataclass(slots=True, kw_only=True)
class Conversation:
    """The protocol state of one channel during a compilation.

    Attributes:
        name: name of the channel in messages.
        overwritten: of these two features the first is missing from observations and logs, because its bytes are
            those of the second (:class:`mlgokit.problems.Channel`).
        problem: the problem that the channel must be about; if not given, determined by the name of the advice.
        sessions: number of sessions so far.
    """

    name: str
    overwritten: tuple[str, str] | None = None
    problem: Problem | None = None
    sessions: int = 0
    _stream: bytearray = field(default_factory=bytearray)
    _cursor: Cursor = field(default_factory=lambda: Cursor(name=""))
    _terms: _Terms | None = None
    _first: Header | None = None
    _decisions: list[Advice] = field(default_factory=list[Advice])
    _asked: Observation | None = None
    _asked_at: int = 0
    _logs: list[Log] = field(default_factory=list[Log])

    def __post_init__(self) -> None:
        """Initialize the cursor of the first session."""
        self._cursor = Cursor(name=self.name)

    def receive(self, data: bytes) -> None:
        """Append bytes that the compiler sent."""
        self._stream += data

    def next(self) -> Observation | None:
        """Return the observation that waits for an answer; ``None`` if it is not complete yet.

        Raises:
            TraceError: the bytes are not LLVM's protocol, or do not fit the problem.
        """
        while self._asked is None:
            position = self._cursor.position
            if self._terms is not None and self._stream.startswith(_HEADER_BEGINS, position):
                following = self._stream[position:]
                del self._stream[position:]
                self._end_session(following)
            item = self._read_item(ended=False)
            match item, self._terms:
                case None, _:
                    return None
                case Header(), _:
                    self._terms = self._read_header(item)
                    self._first = self._first or item
                    self.sessions += 1
                case ObservationItem(), _Terms():
                    begin = item.features_at
                    payload = bytes(self._stream[begin : begin + self._cursor.features_bytes])
                    self._asked_at = position
                    self._asked = Observation(
                        header=self._terms.header,
                        values=_restore_names(self._terms.decode(payload), self.overwritten),
                        context=item.context,
                        index=item.index,
                    )
                case _:
                    pass
        return self._asked

    def answer(self, advice: Advice) -> bytes:
        """Encode the answer to the observation that waits.

        Raises:
            UsageError: the answer is not legal, or no observation waits. An observation goes on waiting then.
        """
        if self._asked is None or self._terms is None:
            raise UsageError(
                f"{self.name}: expected an observation that waits for an answer, found none; read the next "
                "observation first"
            )
        data = encode_advice(self._terms.advice, advice)
        if self._terms.problem is not None:
            check_advice(self._terms.problem, self._asked, advice)
        self._decisions.append(advice)
        self._asked = None
        return data

    def close(self) -> str:
        """Handle the end of the channel; return an error sentence if the last item is incomplete, else nothing."""
        damage = ""
        if self._stream and self._asked is None:
            try:
                self._read_item(ended=True)
            except TraceError as error:
                damage = str(error)
        self._end_session(bytearray())
        return damage

    def log(self) -> Log | None:
        """Join observations and answers of all sessions, the answers as last feature; ``None`` without a header."""
        self._end_session(bytearray())
        return _join(self._logs)

    def _end_session(self, following: bytearray) -> None:
        """End the current session and keep its log; ``following`` are the first bytes of the next one."""
        if self._terms is not None:
            position = self._cursor.position if self._asked is None else self._asked_at
            log = read_log_bytes(bytes(self._stream), name=self.name, partial=True)
            if log.observation_count != len(self._decisions):
                log = read_log_bytes(bytes(self._stream[:position]), name=self.name, partial=True)
            self._logs.append(_add_decisions(log, self._terms, self._decisions, self.overwritten))
        self._stream = following
        self._cursor = Cursor(name=self.name)
        self._terms = self._asked = None
        self._decisions = []

    def _read_item(self, *, ended: bool) -> Any:
        """Read the next item of the session; ``ended`` tells whether the channel was closed."""
        try:
            return read_item(self._stream, self._cursor, ended=ended)
        except TraceError as error:
            if self.sessions < 2:
                raise
            message = f"{error}; the compiler opened the channel {self.sessions} times, perhaps at once: use one thread"
            raise TraceError(message, path=error.path, offset=error.offset) from None

    def _read_header(self, header: Header) -> _Terms:
        """Check a header, and derive from it how the session is read."""
        advice = header.advice
        kinds = {spec.name: (spec.type, spec.shape) for spec in header.features}
        if advice is None or advice.size_bytes != advice.dtype.itemsize:
            shape = "none" if advice is None else f"shape {list(advice.shape)}"
            expected = f'an "advice" of one element in the header, found {shape}'
        elif header.score is not None:
            expected = 'a header without "score", found one with it'
        elif advice.name in kinds:
            expected = f"features of other names than the advice, found {advice.name!r} as both"
        elif self._first is not None and header != self._first:
            expected = (
                f"the header of the first session again, found one with {len(kinds)} features for {advice.name!r}"
            )
        elif self.overwritten is not None and (
            self.overwritten[0] not in kinds or len({kinds.get(name) for name in self.overwritten}) > 1
        ):
            expected = f"features {' and '.join(self.overwritten)} of one type and shape, found {', '.join(kinds)}"
        else:
            replaced = None if self.overwritten is None else self.overwritten[0]
            shown = replace(header, features=tuple(spec for spec in header.features if spec.name != replaced))
            problem = self.problem or next((it for it in PROBLEMS.values() if it.decision == advice.name), None)
            defect = None if problem is None else header_defect(problem, header.features, advice=advice)
            if defect is None:
                return _Terms(decode=feature_decoder(header), header=shown, advice=advice, problem=problem)
            raise TraceError(f"trace {self.name}: byte 0: {defect}", path=self.name, offset=0)
        message = f"trace {self.name}: byte 0: expected {expected}; this compiler speaks another protocol"
        raise TraceError(message, path=self.name, offset=0)


def encode_advice(spec: TensorSpec, advice: Advice) -> bytes:
    r"""Encode an answer.

    Raises:
        UsageError: the element type cannot hold the answer.

    Example:
        >>> encode_advice(TensorSpec(name="inlining_decision", type="int64_t", shape=(1,)), 1)
        b'\x01\x00\x00\x00\x00\x00\x00\x00'
    """
    value = None
    with contextlib.suppress(OverflowError, ValueError, TypeError):
        if spec.dtype.kind != "f":
            value = np.array(int(advice), spec.dtype) if int(advice) == advice else None
        elif abs(advice) <= float(np.finfo(spec.dtype).max):
            value = np.array(advice, spec.dtype)
    if value is None:
        raise UsageError(
            f"advice {spec.name!r}: expected a value of type {spec.type}, found {advice!r}; "
            "use an advisor that is made for this problem"
        )
    return value.tobytes()


def _restore_names(
    values: Mapping[str, NDArray[Any]], overwritten: tuple[str, str] | None
) -> Mapping[str, NDArray[Any]]:
    """Rename tensors that the compiler sent under another feature's name."""
    if overwritten is None:
        return values
    replaced, owner = overwritten
    return {name: values[replaced] if name == owner else value for name, value in values.items() if name != replaced}


def _add_decisions(log: Log, terms: _Terms, decisions: Sequence[Advice], overwritten: tuple[str, str] | None) -> Log:
    """Convert to the log that LLVM's development mode would have written: the decision is the last feature."""
    column = np.array(decisions, terms.advice.dtype).reshape(-1, *terms.advice.shape)
    column.flags.writeable = False
    columns = {**_restore_names(log.columns, overwritten), terms.advice.name: column}
    return replace(log, header=Header(features=(*terms.header.features, terms.advice)), columns=columns)


def _join(logs: Sequence[Log]) -> Log | None:
    """Concatenate logs with equal headers; a context that occurs in two of them is one that was entered again."""
    if len(logs) < 2:
        return logs[0] if logs else None
    contexts: list[ContextSpan] = []
    start = 0
    for log in logs:
        contexts += (
            ContextSpan(name=span.name, start=span.start + start, stop=span.stop + start) for span in log.contexts
        )
        start += log.observation_count
    columns = {name: np.concatenate([log.columns[name] for log in logs]) for name in logs[0].columns}
    for column in columns.values():
        column.flags.writeable = False
    damage = next((log.damage for log in logs if log.damage is not None), None)
    return Log(header=logs[0].header, contexts=tuple(contexts), columns=columns, damage=damage)
