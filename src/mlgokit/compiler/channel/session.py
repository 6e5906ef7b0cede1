"""A compiler with interactive channels that can be stepped: take an observation, answer it, take the next.

This is the process side: pipes, deadlines, the end of the compiler. The protocol is in
:mod:`mlgokit.compiler.channel.conversation`.
"""

import contextlib
import enum
import os
import select
import signal
import stat
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import IO

from mlgokit.advisors import Advice, Advisor, Observation
from mlgokit.compiler import process
from mlgokit.compiler.channel.conversation import Conversation
from mlgokit.compiler.limits import COMPILER_LIMITS, describe_exceeded_limit
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.errors import StorageError, TraceError, UsageError
from mlgokit.problems import Problem
from mlgokit.traces import Log

_READ_BYTES = 2**16
_LEAST_ROOM = 2**13
"""Bytes; with less free space, a compiler's messages may be lost."""
_LOOK_AFTER_SECONDS = 1.0
"""Interval for checking the pipes while the compiler sends nothing."""


class InteractiveStatus(enum.Enum):
    """How a compilation under an advisor ended."""

    OK = "the compiler finished"
    FAILED = "the compiler failed"
    TRUNCATED = "the compiler closed a channel in the middle of an observation"
    MALFORMED = "a channel carried something other than LLVM's protocol, and the compiler was killed"
    SILENT = "the compiler kept a channel open without further questions, and was killed"
    LOST = "the pipes were removed before the compiler opened them, and it was killed"
    TIMED_OUT = "the compiler was still running at the deadline, and was killed"
    ABANDONED = "the caller asked no further, and the compiler was killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelUse:
    """How a compiler opens one channel, and the advisor that answers.

    Attributes:
        options: words to append to the command line; ``{base}`` in them becomes the channel's path.
        overwritten: as in :class:`mlgokit.problems.Channel`: of these two features the first is missing from what the
            advisor and the log get, because its bytes are those of the second.
        problem: the problem that the channel must be about, which decides what may be answered; if not given,
            determined by the name of the advice.
        advisor: answers each observation; not needed by a caller that answers itself.
    """

    options: tuple[str, ...]
    overwritten: tuple[str, str] | None = None
    problem: Problem | None = None
    advisor: Advisor | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InteractiveResult:
    """A compilation under advisors.

    Attributes:
        status: how the compilation ended.
        detail: why the status is not OK, in one sentence; empty if it is.
        logs: log of the observations by channel, with the answers in a last column, named as the channel's advice.
            ``None`` if the compiler never sent a header: a module in which there is nothing to decide is compiled
            without opening the channel.
        sessions: number of times that the compiler opened each channel; their observations follow each other in the
            log.
        returncode: exit code of the compiler; negative for a signal, ours included.
        stderr: the last 8 KiB of standard error.
        wall_seconds: elapsed time, with that of the advisor.
        user_seconds: processor time of the compiler in user mode.
    """

    status: InteractiveStatus
    detail: str
    logs: Mapping[str, Log | None]
    sessions: Mapping[str, int]
    returncode: int
    stderr: str
    wall_seconds: float
    user_seconds: float

    @property
    def log(self) -> Log | None:
        """The log of the only channel.

        Raises:
            UsageError: there were several.
        """
        if len(self.logs) != 1:
            raise UsageError(
                f"log: expected one channel, found {', '.join(self.logs) or 'none'}; read the attribute logs, "
                "which has all"
            )
        return next(iter(self.logs.values()))


@dataclass(slots=True, kw_only=True, eq=False)
class _Pipes:
    """The two pipes of a channel, and its protocol state."""

    name: str
    base: str
    conversation: Conversation
    answers: int
    questions: int
    is_open: bool = False
    has_ended: bool = False

    def is_lost(self) -> bool:
        """Whether the compiler could no longer open the pipes."""
        for suffix in (".in", ".out"):
            try:
                if not stat.S_ISFIFO(Path(self.base + suffix).stat().st_mode):
                    return True
            except OSError:
                return True
        return False


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """A running compiler; :func:`open_session` makes one.

    Attributes:
        program: name of the compiler, for messages.
        channel: name of the channel that the last observation came from.
    """

    program: str
    channel: str = ""
    _lines: Mapping[str, _Pipes]
    _child: Popen[bytes]
    _ended: int
    _poller: select.poll
    _stderr: IO[bytes]
    _begin: float
    _timeout_seconds: float
    _answer_timeout_seconds: float
    _active: float = 0.0
    _asking: _Pipes | None = None
    _is_over: bool = False
    _stopped: tuple[InteractiveStatus, str] | None = None
    _damage: str = ""
    _result: InteractiveResult | None = None

    def next(self) -> Observation | None:
        """Wait for the next observation of any channel; ``None`` if there will be none, and :meth:`result` says why.

        Raises:
            UsageError: the last one was not answered.
        """
        if self._asking is not None:
            raise UsageError(
                f"channel {self.channel}: expected an answer to its last observation, found a call of next; call "
                "answer first"
            )
        while self._stopped is None:
            for line in self._lines.values():
                try:
                    observation = line.conversation.next()
                except TraceError as error:
                    self._stopped = InteractiveStatus.MALFORMED, str(error)
                    return None
                if observation is not None:
                    self._asking, self.channel = line, line.name
                    return observation
                if line.has_ended:
                    self._await_next_session(line)
            if self._is_over:
                return None
            self._wait()
        return None

    def answer(self, advice: Advice) -> None:
        """Answer the observation that :meth:`next` gave.

        Raises:
            UsageError: no observation waits, or the answer is not legal; then the observation can be answered again.
        """
        line = self._asking
        if line is None:
            raise UsageError("session: expected an observation that waits for an answer, found none; call next first")
        data = line.conversation.answer(advice)
        self._asking = None
        try:
            os.write(line.answers, data)
        except BlockingIOError:
            where = f"trace {line.conversation.name}"
            trouble = "expected a compiler that reads its answers, found the pipe full; it is not LLVM"
            self._stopped = InteractiveStatus.MALFORMED, f"{where}: {trouble}"
        self._active = time.monotonic()

    def close(self) -> InteractiveResult:
        """Kill the compiler if it is still running, and reap it; the result contains the conversation so far."""
        if self._result is not None:
            return self._result
        if self._stopped is None and not self._is_over:
            self._stopped = (
                InteractiveStatus.ABANDONED,
                (f"{self.program}: the caller stopped before the compilation ended; read all observations"),
            )
        returncode, usage = process.reap_group(self._child)
        for line in self._lines.values():
            self._damage = self._damage or line.conversation.close()
        status, detail = self._stopped or (InteractiveStatus.OK, "")
        stderr = process.read_tail(self._stderr)
        if self._stopped is None and returncode != 0:
            status, detail = InteractiveStatus.FAILED, self._failure(returncode, stderr)
        elif self._stopped is None and self._damage:
            status, detail = InteractiveStatus.TRUNCATED, self._damage
        self._result = InteractiveResult(
            status=status,
            detail=detail,
            logs={name: line.conversation.log() for name, line in self._lines.items()},
            sessions={name: line.conversation.sessions for name, line in self._lines.items()},
            returncode=returncode,
            stderr=stderr,
            wall_seconds=time.monotonic() - self._begin,
            user_seconds=usage.ru_utime,
        )
        return self._result

    def result(self) -> InteractiveResult:
        """Return the result, after killing the compiler if it is still running."""
        return self._result or self.close()

    def _failure(self, returncode: int, stderr: str) -> str:
        """Describe the failure of a compiler that ended by itself."""
        if sentence := describe_exceeded_limit(COMPILER_LIMITS, returncode=returncode, complaint=stderr):
            return f"{self.program}: expected exit code 0, found that {sentence}"
        how = f"exit code {returncode}" if returncode > 0 else f"signal {signal.Signals(-returncode).name}"
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        silence = "it said nothing"
        disk = os.fstatvfs(self._stderr.fileno())
        if disk.f_bavail * disk.f_frsize < _LEAST_ROOM:
            silence = "its message was lost, because the disk with temporary files is full; free some space"
        complaint = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else silence)
        rest = [self._damage] if self._damage else []
        rest += [f"channel {line.name}: its pipes were removed" for line in self._lines.values() if line.is_lost()]
        return "; ".join([f"{self.program}: expected exit code 0, found {how}: {complaint}", *rest])

    def _wait(self) -> None:
        """Read the compiler's next bytes, or detect that no more will come."""
        is_open = any(line.is_open for line in self._lines.values())
        deadline = self._begin + self._timeout_seconds
        quiet_after = self._active + self._answer_timeout_seconds if is_open else deadline
        left = min(deadline, quiet_after) - time.monotonic()
        if left <= 0:
            silent = quiet_after < deadline
            limit = self._answer_timeout_seconds if silent else self._timeout_seconds
            what = "a question or the end of the channel" if silent else "the compiler's end"
            self._stopped = (
                InteractiveStatus.SILENT if silent else InteractiveStatus.TIMED_OUT,
                f"{self.program}: expected {what} within {limit:g} s, found neither; it was killed, give it more time",
            )
            return
        ready = {descriptor for descriptor, _ in self._poller.poll(min(left, _LOOK_AFTER_SECONDS) * 1000 + 1)}
        if not ready:
            self._stop_without_pipes()
            return
        has_ended = self._ended in ready
        received = False
        for line in self._lines.values():
            if line.questions in ready or has_ended:
                received |= self._read(line)
        self._is_over = has_ended and not received

    def _read(self, line: _Pipes) -> bool:
        """Read what a channel has; return whether there were bytes, and note whether the channel was closed."""
        received = False
        with contextlib.suppress(BlockingIOError):
            # The second look finds the end of a session that was over before its pipe was opened for it.
            for _ in range(2):
                data = os.read(line.questions, _READ_BYTES)
                if not data:
                    line.has_ended = True
                    break
                line.conversation.receive(data)
                line.is_open = received = True
                self._active = time.monotonic()
        return received

    def _await_next_session(self, line: _Pipes) -> None:
        """Prepare for the compiler to open a channel again after closing it."""
        line.is_open = line.has_ended = False
        # LLVM reads every answer; what another program left must not answer the first question of the next session.
        with contextlib.suppress(BlockingIOError):
            while os.read(line.answers, _READ_BYTES):
                pass
        self._damage = self._damage or line.conversation.close()
        # Another description of the pipe does not report the end of the last writer (Linux: fifo(7)), so that waiting
        # for the next one costs nothing. The old one stays open meanwhile, and with it the bytes of a new writer.
        old = line.questions
        self._poller.unregister(old)
        with contextlib.suppress(OSError):
            fresh = os.open(f"/proc/self/fd/{old}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.dup2(fresh, old, inheritable=False)
            os.close(fresh)
            self._poller.register(old, select.POLLIN)

    def _stop_without_pipes(self) -> None:
        """Stop the session if pipes that the compiler has not opened yet were deleted."""
        for line in self._lines.values():
            if line.conversation.sessions == 0 and not line.is_open and line.is_lost():
                trouble = "expected the two pipes that the compiler was to open, found them gone"
                self._stopped = (
                    InteractiveStatus.LOST,
                    f"channel {line.name} in {line.base}: {trouble}; leave them there",
                )


@contextlib.contextmanager
def open_session(
    argv: Sequence[str | os.PathLike[str]],
    *,
    channels: Mapping[str, ChannelUse],
    timeout_seconds: float,
    answer_timeout_seconds: float,
    folder: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Generator[Session]:
    """Start a compiler that asks for decisions over channels; it is ended when the context is left.

    Args:
        argv: the command line without the channels.
        channels: the channels by names that the caller chooses.
        timeout_seconds: deadline of the whole run; the caller's time counts, but a caller is never interrupted.
        answer_timeout_seconds: longest time that the compiler may send nothing while a channel is open, which is from
            its first byte on. Before that, and after closing all channels, only the deadline counts.
        folder: where the private folder of the pipes is made and removed; the system's folder for temporary files if
            not given.
        cwd: working directory of the compiler.
        env: environment of the compiler; that of this process if not given.

    Raises:
        ToolError: the compiler cannot be started.
        StorageError: the pipes cannot be made.
    """
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        lines: dict[str, _Pipes] = {}
        try:
            scratch = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="mlgokit-channel-", dir=folder, ignore_cleanup_errors=True)
            )
            for number, (name, use) in enumerate(channels.items()):
                base = f"{scratch}/{number}"
                os.mkfifo(base + ".in", 0o600)
                os.mkfifo(base + ".out", 0o600)
                # LLVM opens .in for reading, then .out for writing, and each call waits for the other end. Both ends
                # are here before LLVM starts, so neither side ever waits. Holding .in for reading as well (Linux:
                # fifo(7)) makes that possible without waiting, and the compiler, which spins at the end of .in, cannot
                # see that end while this process lives.
                answers = os.open(base + ".in", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                stack.callback(os.close, answers)
                questions = os.open(base + ".out", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                stack.callback(os.close, questions)
                label = "interactive channel" if len(channels) == 1 else f"interactive channel {name}"
                conversation = Conversation(name=label, overwritten=use.overwritten, problem=use.problem)
                lines[name] = _Pipes(
                    name=name, base=base, conversation=conversation, answers=answers, questions=questions
                )
            stderr = stack.enter_context(tempfile.TemporaryFile(dir=folder))
        except OSError as error:
            raise StorageError(
                f"interactive channel in {folder or tempfile.gettempdir()}: expected to make two pipes, "
                f"found {error.strerror}; free space or choose another folder"
            ) from error
        words = [word.replace("{base}", lines[name].base) for name, use in channels.items() for word in use.options]
        if not isinstance(argv, Cc1Line) and list(argv[1:2]) == ["-cc1"]:
            # A caller of the library wrote these words; command lines of modules come as checked lines.
            argv = Cc1Line(argv[0], own=[os.fspath(word) for word in argv[2:]])
        line = argv.append_words(words) if isinstance(argv, Cc1Line) else [*argv, *words]
        child = process.start(line, stderr=stderr, cwd=cwd, env=env)
        ended = process.open_end(child.pid)
        stack.callback(os.close, ended)
        poller = select.poll()
        for descriptor in (ended, *(line.questions for line in lines.values())):
            poller.register(descriptor, select.POLLIN)
        session = Session(
            program=Path(argv[0]).name,
            _lines=lines,
            _child=child,
            _ended=ended,
            _poller=poller,
            _stderr=stderr,
            _begin=begin,
            _timeout_seconds=timeout_seconds,
            _answer_timeout_seconds=answer_timeout_seconds,
        )
        try:
            yield session
        finally:
            session.close()
