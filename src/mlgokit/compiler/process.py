"""The only place that starts child processes: own group, a deadline, killed as a group, output bounded."""

import contextlib
import errno
import functools
import mmap
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mlgokit.compiler import limits as limiting
from mlgokit.compiler.limits import Limits
from mlgokit.errors import ToolError, UsageError

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

TAIL_BYTES = 8192
STANDARD_ERROR = 2
"""Where a user's build prints to; standard output is reserved for the result."""
_LONG_TAIL_BYTES = 65536
_LOOK_SECONDS = 1.0
_TRIAL_SECONDS = 10.0
_SIGNALLED = 128
_running: set[int] = set()
_kill_callbacks: set[Callable[[], None]] = set()
_SANITIZERS = (b"__asan_init", b"__msan_init", b"__tsan_init", b"__hwasan_init")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a child process ended.

    Attributes:
        returncode: exit status as :mod:`subprocess` reports it; negative for a signal.
        stdout: all bytes of standard output.
        stderr: the end of standard error, 8 KiB unless more was asked for, decoded leniently. If a limit ended the
            child, a line before it says so, because the child may have had no chance to.
        timed_out: the deadline passed and the group was killed.
        wall_seconds: elapsed time.
        user_seconds: processor time in user mode of the child and the children it waited for.
        peak_bytes: largest resident set of one process; on Linux never below that of this process.
        system_seconds: processor time in system mode, if known.
        exceeded: sentence about the limit that ended the child; empty if none did.
    """

    returncode: int
    stdout: bytes
    stderr: str
    timed_out: bool
    wall_seconds: float
    user_seconds: float
    peak_bytes: int
    system_seconds: float = 0.0
    exceeded: str = ""


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that ``process`` leads, and reap the leader, if it was not reaped before."""
    with contextlib.suppress(ChildProcessError):
        reap_group(process)


@contextlib.contextmanager
def track_group(leader: int) -> Generator[None]:
    """Within the block, let :func:`kill_running` also kill the process group of ``leader``."""
    _running.add(leader)
    try:
        yield
    finally:
        _running.discard(leader)


@contextlib.contextmanager
def call_on_kill(callback: Callable[[], None]) -> Generator[None]:
    """Within the block, let :func:`kill_running` call ``callback``, for a thread that waits for no child process."""
    _kill_callbacks.add(callback)
    try:
        yield
    finally:
        _kill_callbacks.discard(callback)


def kill_running() -> None:
    """Kill the children of :func:`run` in all threads, and the groups of :func:`track_group`; their waits then end.

    For a thread that was interrupted and stops the others.
    """
    for callback in tuple(_kill_callbacks):
        callback()
    for leader in tuple(_running):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def kill_pool(pool: "Executor", futures: "Collection[Future[Any]]") -> None:
    """Cancel ``futures`` that have not started, and kill the children of the others until all have ended.

    For stopping a pool early. One round of killing is not enough: a thread may be between two child processes.
    """
    from concurrent.futures import wait

    pool.shutdown(wait=False, cancel_futures=True)
    while unfinished := [future for future in futures if not future.done()]:
        kill_running()
        wait(unfinished, timeout=0.05)


def kill_with_parent(argv: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Prefix a command line with ``setpriv --pdeathsig KILL`` (util-linux), so that a child dies with this process.

    A ``preexec_fn`` would do the same, but requires a plain fork of a process that may have JAX's threads.
    """
    return [*_deadly_words(), *(os.fspath(word) for word in argv)]


@functools.cache
def _deadly_words() -> tuple[str, ...]:
    """Find the words of :func:`kill_with_parent`, if a trial shows that they work; the setpriv of BusyBox has none."""
    program = shutil.which("setpriv")
    if program is None:
        return ()
    words = (program, "--pdeathsig", "KILL", "--")
    try:
        subprocess.run(
            [*words, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return words


def start(
    argv: Sequence[str | os.PathLike[str]],
    *,
    stderr: IO[bytes] | int,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    core: int | None = None,
    inside: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a program as the leader of a group of its own; whoever calls this must :func:`reap_group` it on every path.

    See :func:`choose_limits` for ``limits``. With ``core`` it runs on that processor alone. With ``inside``, words that
    limit it too, it runs in a :class:`~mlgokit.compiler.sandbox.Sandbox`. ``clang -cc1`` is only started for a line
    that was checked as a whole (:class:`~mlgokit.compiler.options.cc1.Cc1Line`).

    Raises:
        ToolError: the program cannot be started at all.
        UsageError: it is a line of ``-cc1`` that was not checked, or that was changed since.
    """
    program = os.fspath(argv[0])
    require_checked_line(argv)
    if shutil.which(program, path=None if env is None else env.get("PATH")) is None:
        raise ToolError(f"{program}: expected an executable program, found none; install it or give another path")
    try:
        with _pin(core):
            process = subprocess.Popen(
                kill_with_parent([*inside, *argv]),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
    except OSError as error:
        raise ToolError(f"{program}: cannot be started ({error.strerror}); check the path") from error
    if not inside:
        limit_child(process.pid, choose_limits(argv, limits), program)
    return process


def kill_children() -> None:
    """Kill the groups that are left of this process's children.

    Where a signal ended a command just when it had started a program, nothing waits for that program yet.
    """
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for leader in map(int, children.read_text().split()):
                if os.getpgid(leader) == leader:
                    os.killpg(leader, signal.SIGKILL)


@contextlib.contextmanager
def _pin(core: int | None) -> Generator[None]:
    """Within the block, pin this thread, and so the children that it starts, to one processor."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def require_checked_line(argv: Sequence[str | os.PathLike[str]]) -> None:
    """Refuse a ``clang -cc1`` command line that is not a checked :class:`Cc1Line`.

    Raises:
        UsageError: the words are a ``-cc1`` command line that was not checked.
    """
    if not _is_cc1(argv):
        return
    # Its table of options is large, and most children are no compilers.
    from mlgokit.compiler.options.cc1 import Cc1Line

    if not isinstance(argv, Cc1Line):
        raise UsageError(
            f"{os.fspath(argv[0])}: a `-cc1` command line must be passed as a Cc1Line, found plain words "
            f"({argv[1]!s}); make a Cc1Line of them, or call the driver"
        )


def _is_cc1(argv: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether clang's driver would take the words for a ``-cc1`` command line."""
    # The driver hands over to a tool of clang's for a first option that begins so (clang/tools/driver/driver.cpp).
    return len(argv) > 1 and os.fspath(argv[1]).startswith("-cc1")


def choose_limits(argv: Sequence[str | os.PathLike[str]], limits: Limits | None) -> Limits:
    """Choose the limits of a child: the given ones, else those of a compiler (called with ``-cc1``) or another tool.

    They are never above those of this process, so that a user's ``ulimit`` also holds for children.
    """
    if limits is None:
        limits = limiting.COMPILER_LIMITS if _is_cc1(argv) else limiting.TOOL_LIMITS
    own = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS)]
    if own == [resource.RLIM_INFINITY] * 2:
        return limits
    file_bytes, memory_bytes = (None if most == resource.RLIM_INFINITY else most for most in own)
    return limiting.take_stricter(limits, file_bytes=file_bytes, memory_bytes=memory_bytes)


def limit_child(pid: int, limits: Limits, program: str) -> None:
    """Limit a child that has just been started; on a busy machine it may run unlimited for some milliseconds.

    A wrapper that sets limits would cost each compilation 2.5 ms, and a ``preexec_fn`` a plain fork; this takes 25 us.
    """
    # A child that has ended already needs no limits.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if limits.file_bytes is not None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
            # A crash of a large compiler would leave gigabytes.
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        if limits.memory_bytes is not None and not _is_sanitized(shutil.which(program) or program):
            resource.prlimit(pid, resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))


def limit_words(limits: Limits, program: str) -> tuple[str, ...]:
    """Make the words (of util-linux) to put before a command line, which limit it from its first instruction on."""
    limits = choose_limits((program,), limits)
    file_bytes, memory_bytes = limits.file_bytes, limits.memory_bytes
    words = [] if file_bytes is None else [f"--fsize={file_bytes}", "--core=0"]
    words += [] if memory_bytes is None or _is_sanitized(shutil.which(program) or program) else [f"--as={memory_bytes}"]
    return ("prlimit", *words, "--") if words else ()


@functools.cache
def _is_sanitized(program: str) -> bool:
    """Whether a compiler was built with a sanitizer, which reserves terabytes of address space."""
    try:
        with Path(program).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return any(data.find(name) >= 0 for name in _SANITIZERS)
    except (OSError, ValueError):
        return False


def reap_group(process: subprocess.Popen[bytes]) -> tuple[int, resource.struct_rusage]:
    """Kill the rest of the group that ``process`` leads, reap the leader, and return its status and resource usage.

    A leader that has ended but was not reaped keeps its status, and its number cannot have been given to another group.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _, raw, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(raw)
    return process.returncode, usage


def read_tail(file: IO[bytes], most: int = TAIL_BYTES) -> str:
    """Read the last bytes of a child's output file, decoded leniently."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - most))
    return file.read().decode("utf-8", "replace")


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout_seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    stderr_bytes: int = TAIL_BYTES,
    limits: Limits | None = None,
    core: int | None = None,
    inside: Sequence[str] = (),
    output: IO[bytes] | int | None = None,
) -> Completed:
    r"""Run a program to its end, or to its deadline, and keep the last ``stderr_bytes`` of its standard error.

    What is left of its group when it ends is killed. See :func:`choose_limits` for ``limits``, and :func:`start` for
    ``core`` and ``inside``. With ``output``, a file, all that it prints goes there as it comes, and nothing is kept.

    Raises:
        ToolError: the program cannot be started at all.

    Example:
        >>> run(["echo", "hello"], timeout_seconds=5).stdout
        b'hello\n'
    """
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        process = start(
            argv,
            stdin=source,
            stdout=out if output is None else output,
            stderr=err if output is None else output,
            cwd=cwd,
            env=env,
            limits=limits,
            core=core,
            inside=inside,
        )
        limits = choose_limits(argv, limits)
        streams = (out, err) if output is None or isinstance(output, int) else (output,)
        _running.add(process.pid)
        try:
            is_over = _wait(
                process,
                deadline=begin + timeout_seconds,
                is_too_much=lambda: _printed_bytes(*streams) > limits.printed_bytes,
            )
        except BaseException:
            kill_group(process)
            raise
        finally:
            _running.discard(process.pid)
        status, usage = reap_group(process)
        if inside and status > _SIGNALLED:
            # Like a shell, bubblewrap reports a signal as 128 plus its number.
            status = _SIGNALLED - status
        printed_bytes = _printed_bytes(*streams)
        timed_out = not is_over and printed_bytes <= limits.printed_bytes
        complaint = "" if status == 0 or timed_out else _read_complaint(err)
        sentence = limiting.describe_exceeded_limit(
            limits, returncode=status, complaint=complaint, printed_bytes=printed_bytes
        )
        prefix = f"error: {Path(os.fspath(argv[0])).name}: {sentence}\n" if sentence else ""
        out.seek(0)
        return Completed(
            returncode=status,
            stdout=out.read(limits.printed_bytes),
            stderr=prefix + read_tail(err, stderr_bytes),
            timed_out=timed_out,
            wall_seconds=time.monotonic() - begin,
            user_seconds=usage.ru_utime,
            system_seconds=usage.ru_stime,
            peak_bytes=usage.ru_maxrss * 1024,
            exceeded=sentence,
        )


def _printed_bytes(*files: IO[bytes]) -> int:
    """Measure the largest output file, in bytes."""
    return max(os.fstat(file.fileno()).st_size for file in files)


def _read_complaint(file: IO[bytes]) -> str:
    """Read the first and the last bytes of standard error: a child names its error before or after its dump."""
    file.seek(0)
    return file.read(TAIL_BYTES).decode("utf-8", "replace") + read_tail(file, _LONG_TAIL_BYTES)


def open_end(pid: int) -> int:
    """Open a descriptor that is ready to be polled once a child has ended, which is not reaped yet."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        # Linux before 5.3 does not know the call, and containers may refuse it.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    reading, writing = os.pipe2(os.O_CLOEXEC)

    def close_at_end() -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(writing)

    threading.Thread(target=close_at_end, daemon=True).start()
    return reading


def _wait(process: subprocess.Popen[bytes], *, deadline: float, is_too_much: Callable[[], bool]) -> bool:
    """Wait for a child without reaping it; return whether it ended before the deadline and within its output limit."""
    descriptor = open_end(process.pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or is_too_much():
                return False
            if poller.poll(min(left, _LOOK_SECONDS) * 1000):
                return True
    finally:
        os.close(descriptor)
