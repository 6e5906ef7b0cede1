"""Host of LLVM's interactive channel: a compiler asks, an advisor answers, decision by decision.

docs/formats.md, "Interactive channel", has the protocol; LLVM's side is ``llvm/Analysis/InteractiveModelRunner.h``.
"""

import contextlib
import enum
import os
import select
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mlgokit.advisors import Advice, Advisor, Observation
from mlgokit.compiler import process
from mlgokit.errors import StorageError, TraceError, UsageError
from mlgokit.spec import TensorSpec
from mlgokit.traces import Header, Log, read_log_bytes
from mlgokit.traces.item import Cursor, ObservationItem, feature_decoder, read_item

_READ_BYTES = 2**16
_STREAM = "interactive channel"


class InteractiveStatus(enum.Enum):
    """How a compilation under an advisor ended."""

    OK = "the compiler finished"
    FAILED = "the compiler failed"
    TRUNCATED = "the compiler closed the channel in the middle of an observation"
    MALFORMED = "the channel carried something other than LLVM's protocol, and the compiler was killed"
    SILENT = "the compiler kept the channel open without asking anything more, and was killed"
    TIMED_OUT = "the compiler was still running at the deadline, and was killed"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InteractiveResult:
    """A compilation under an advisor.

    Attributes:
        status: how it ended.
        detail: the sentence about what was wrong with the channel's bytes; empty if nothing was.
        log: what was asked, with one more column, named as the channel's advice, for the answers; its header is that of
            a log with the column. ``None`` if the compiler never sent a header: a module in which there is nothing to
            decide is compiled without opening the channel.
        returncode: of the compiler; negative for a signal, ours included.
        stderr: the last 8 KiB of standard error.
        wall_seconds: elapsed time, the advisor's included.
        user_seconds: processor time of the compiler in user mode.
    """

    status: InteractiveStatus
    detail: str
    log: Log | None
    returncode: int
    stderr: str
    wall_seconds: float
    user_seconds: float


def clang_words(options: Sequence[str]) -> tuple[str, ...]:
    """LLVM options as clang takes them, driver and ``-cc1`` alike.

    Example:
        >>> clang_words(["-enable-ml-inliner=release"])
        ('-mllvm', '-enable-ml-inliner=release')
    """
    return tuple(word for option in options for word in ("-mllvm", option))


def drive(
    argv: Sequence[str | os.PathLike[str]],
    *,
    channel_options: Sequence[str],
    overwritten: tuple[str, str] | None = None,
    advisor: Advisor,
    timeout_seconds: float,
    answer_timeout_seconds: float,
    folder: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> InteractiveResult:
    """Run a compiler that asks an advisor.

    Args:
        argv: the command line without the channel.
        channel_options: words to append that make the compiler ask; ``{base}`` in them becomes the channel's path.
        overwritten: as in :class:`mlgokit.problems.Channel`: of these two features the first is missing from what the
            advisor and the log get, because its bytes are those of the second.
        advisor: asked in this process, once for each observation, in the compiler's order.
        timeout_seconds: for the whole run; the advisor's time counts, but an advisor is never interrupted.
        answer_timeout_seconds: the longest that an open channel may stay without a byte from the compiler, from its
            first byte on. What the compiler does before that, and after closing the channel, has only the deadline.
        folder: where the private folder of the channel is made and removed; the system's folder for temporary files if
            not given.
        cwd: where the compiler runs.
        env: the compiler's environment; this process's if not given.

    Raises:
        ToolError: the compiler cannot be started.
        StorageError: the channel's folder cannot be made.
        UsageError: the advisor's answer does not fit the channel's advice.
    """
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="mlgokit-channel-", dir=folder))
            base = f"{place}/channel"
            os.mkfifo(base + ".in", 0o600)
            os.mkfifo(base + ".out", 0o600)
            # LLVM opens .in for reading, then .out for writing, and each call waits for the other end. Both ends are
            # here before LLVM starts, so neither side ever waits. Holding .in for reading as well (Linux: fifo(7))
            # makes that possible without waiting, and the compiler, which spins at the end of .in, cannot see that end
            # while this process lives.
            answers = os.open(base + ".in", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, answers)
            questions = os.open(base + ".out", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, questions)
            stderr = stack.enter_context(tempfile.TemporaryFile(dir=folder))
        except OSError as error:
            raise StorageError(
                f"interactive channel in {folder or tempfile.gettempdir()}: expected to make two pipes, "
                f"found {error.strerror}; free space or choose another folder"
            ) from error
        conversation = _Conversation(advisor=advisor, answers=answers, overwritten=overwritten)
        words = [*argv, *(word.replace("{base}", base) for word in channel_options)]
        child = process.start(words, stderr=stderr, cwd=cwd, env=env)
        try:
            killed = _converse(
                conversation,
                child_pid=child.pid,
                questions=questions,
                deadline=begin + timeout_seconds,
                answer_timeout_seconds=answer_timeout_seconds,
            )
        finally:
            returncode, usage = process.end(child)
        return _result(
            conversation,
            killed=killed,
            returncode=returncode,
            stderr=stderr,
            wall_seconds=time.monotonic() - begin,
            user_seconds=usage.ru_utime,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """What the channel's header says.

    Attributes:
        decode: from the bytes of an observation to its tensors, as they were sent.
        told: the header, as an advisor sees it.
        advice: what an answer must be.
    """

    decode: Callable[[bytes], Mapping[str, NDArray[Any]]]
    told: Header
    advice: TensorSpec


@dataclass(slots=True, kw_only=True)
class _Conversation:
    """What has been said so far.

    Attributes:
        advisor: gives the answers.
        answers: descriptor to write them to.
        stream: every byte from the compiler.
        cursor: behind the last item that was understood.
        overwritten: as in :func:`drive`.
        terms: known after a header that fits.
        decisions: one for each observation.
        damage: the sentence about the byte at which LLVM's protocol was left.
    """

    advisor: Advisor
    answers: int
    overwritten: tuple[str, str] | None
    stream: bytearray = field(default_factory=bytearray)
    cursor: Cursor = field(default_factory=lambda: Cursor(name=_STREAM))
    terms: _Terms | None = None
    decisions: list[Advice] = field(default_factory=list[Advice])
    damage: str = ""

    def hear(self, data: bytes) -> None:
        """Take more bytes, and answer every observation that they complete.

        Raises:
            TraceError: the bytes are not LLVM's protocol.
            UsageError: the advisor's answer does not fit.
        """
        self.stream += data
        while (item := read_item(self.stream, self.cursor, ended=False)) is not None:
            match item, self.terms:
                case Header(), _:
                    self.terms = _terms_of(item, self.overwritten)
                case ObservationItem(), _Terms():
                    self._answer(item, self.terms)
                case _:
                    pass

    def _answer(self, item: ObservationItem, terms: _Terms) -> None:
        payload = bytes(self.stream[item.features_at : item.features_at + self.cursor.features_bytes])
        values = _put_right(terms.decode(payload), self.overwritten)
        decision = self.advisor.advise(
            Observation(header=terms.told, values=values, context=item.context, index=item.index)
        )
        data = encode_advice(terms.advice, decision)
        self.decisions.append(decision)
        try:
            os.write(self.answers, data)
        except BlockingIOError:
            where = f"trace {_STREAM}: byte {self.cursor.position}"
            message = f"{where}: expected a compiler that reads its answers, found the pipe full; it is not LLVM"
            raise TraceError(message, path=_STREAM, offset=self.cursor.position) from None


def encode_advice(spec: TensorSpec, advice: Advice) -> bytes:
    r"""The bytes of an answer.

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


def _terms_of(header: Header, overwritten: tuple[str, str] | None) -> _Terms:
    """Accept the header.

    Raises:
        TraceError: it is not that of a channel.
    """
    advice = header.advice
    kinds = {spec.name: (spec.type, spec.shape) for spec in header.features}
    if advice is None or advice.size_bytes != advice.dtype.itemsize:
        found = "none" if advice is None else f"shape {list(advice.shape)}"
        expected = f'an "advice" of one element in the header, found {found}'
    elif header.score is not None:
        expected = 'a header without "score", found one with it'
    elif advice.name in kinds:
        expected = f"features of other names than the advice, found {advice.name!r} as both"
    elif overwritten is not None and (
        overwritten[0] not in kinds or len({kinds.get(name) for name in overwritten}) > 1
    ):
        expected = f"features {' and '.join(overwritten)} of one type and shape, found {', '.join(kinds)}"
    else:
        told = tuple(spec for spec in header.features if overwritten is None or spec.name != overwritten[0])
        return _Terms(decode=feature_decoder(header), told=replace(header, features=told), advice=advice)
    message = f"trace {_STREAM}: byte 0: expected {expected}; this compiler speaks another protocol"
    raise TraceError(message, path=_STREAM, offset=0)


def _put_right(values: Mapping[str, NDArray[Any]], overwritten: tuple[str, str] | None) -> Mapping[str, NDArray[Any]]:
    """Give tensors that were sent in the place of others their own name; see :func:`drive`."""
    if overwritten is None:
        return values
    place, owner = overwritten
    return {name: values[place] if name == owner else value for name, value in values.items() if name != place}


def _converse(
    conversation: _Conversation,
    *,
    child_pid: int,
    questions: int,
    deadline: float,
    answer_timeout_seconds: float,
) -> InteractiveStatus | None:
    """Answer until the compiler ends; otherwise say why it has to be killed."""
    with contextlib.ExitStack() as stack:
        ended = os.pidfd_open(child_pid)
        stack.callback(os.close, ended)
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(questions, select.POLLIN)
        quiet_after = deadline
        channel_open = True
        while True:
            left = min(deadline, quiet_after) - time.monotonic()
            if left <= 0:
                return InteractiveStatus.TIMED_OUT if quiet_after >= deadline else InteractiveStatus.SILENT
            ready = {descriptor for descriptor, _ in poller.poll(min(left, 60.0) * 1000 + 1)}
            if questions in ready or (ended in ready and channel_open):
                try:
                    data = os.read(questions, _READ_BYTES)
                except BlockingIOError:
                    data = b""
                if data:
                    try:
                        conversation.hear(data)
                    except TraceError as error:
                        conversation.damage = str(error)
                        return InteractiveStatus.MALFORMED
                    quiet_after = time.monotonic() + answer_timeout_seconds
                    continue
                poller.unregister(questions)
                channel_open = False
                quiet_after = deadline
            if ended in ready:
                return None


def _result(
    conversation: _Conversation,
    *,
    killed: InteractiveStatus | None,
    returncode: int,
    stderr: IO[bytes],
    wall_seconds: float,
    user_seconds: float,
) -> InteractiveResult:
    """Turn what was said, and how the compiler ended, into a value."""
    detail = conversation.damage
    log = None
    if conversation.stream and not detail:
        try:
            read_item(conversation.stream, conversation.cursor, ended=True)
        except TraceError as error:
            detail = str(error)
    if conversation.terms is not None:
        log = read_log_bytes(bytes(conversation.stream), name=_STREAM, partial=True)
        log = _with_decisions(log, conversation.terms, conversation)
    status = killed or (
        InteractiveStatus.FAILED if returncode != 0 else InteractiveStatus.TRUNCATED if detail else InteractiveStatus.OK
    )
    return InteractiveResult(
        status=status,
        detail=detail,
        log=log,
        returncode=returncode,
        stderr=process.tail(stderr),
        wall_seconds=wall_seconds,
        user_seconds=user_seconds,
    )


def _with_decisions(log: Log, terms: _Terms, conversation: _Conversation) -> Log:
    """The log that LLVM's development mode would have written: the decision as last feature, and no advice."""
    advice = terms.advice
    column = np.array(conversation.decisions, advice.dtype).reshape(-1, *advice.shape)
    column.flags.writeable = False
    columns = _put_right(log.columns, conversation.overwritten)
    header = Header(features=(*terms.told.features, advice))
    return replace(log, header=header, columns={**columns, advice.name: column})
