"""The only place that starts child processes: own group, a deadline, killed as a group, output bounded."""

import contextlib
import functools
import mmap
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mlgokit.errors import ToolError

TAIL_BYTES = 8192
_SETPRIV = shutil.which("setpriv")
_running: set[int] = set()
_SANITIZERS = (b"__asan_init", b"__msan_init", b"__tsan_init", b"__hwasan_init")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a child and its children may take each; what takes more is ended by the system.

    Attributes:
        file_bytes: size of each file that it writes, its standard error among them.
        memory_bytes: of addresses; a compiler of two GB of memory has no more than three GB of them.
    """

    file_bytes: int
    memory_bytes: int


COMPILER_LIMITS = Limits(
    file_bytes=512 << 20,
    memory_bytes=min(8 << 30, max(2 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))),
)
"""Of ``clang -cc1``: two kilobytes of bitcode can ask for gigabytes of object, one line of assembly for all memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a child process ended.

    Attributes:
        returncode: as :mod:`subprocess` reports it; negative for a signal.
        stdout: all bytes of standard output.
        stderr: the end of standard error, 8 KiB unless more was asked for, decoded leniently.
        timed_out: the deadline passed and the group was killed.
        wall_seconds: elapsed time.
        user_seconds: processor time in user mode of the child and the children it waited for.
        peak_bytes: largest resident set of one process.
        system_seconds: as ``user_seconds``, in system mode, if known.
    """

    returncode: int
    stdout: bytes
    stderr: str
    timed_out: bool
    wall_seconds: float
    user_seconds: float
    peak_bytes: int
    system_seconds: float = 0.0


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group that ``process`` leads, and reap the leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        process.wait()


@contextlib.contextmanager
def awaited(leader: int) -> Generator[None]:
    """Let :func:`kill_running` kill the group of ``leader`` meanwhile."""
    _running.add(leader)
    try:
        yield
    finally:
        _running.discard(leader)


def kill_running() -> None:
    """Kill what :func:`run` waits for in all threads, and what is :func:`awaited`; each gets a child that was killed.

    For a thread that was interrupted and wants the others to end soon.
    """
    for leader in tuple(_running):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def kill_pool(pool: Executor, futures: Collection[Future[Any]]) -> None:
    """Drop what of ``futures`` has not begun, and kill what the others run until they have ended.

    For a thread whose pool is to end early: a thread of the pool may be between two child processes now, so that
    killing once is not enough.
    """
    pool.shutdown(wait=False, cancel_futures=True)
    while unfinished := [future for future in futures if not future.done()]:
        kill_running()
        wait(unfinished, timeout=0.05)


def dying_with_parent(argv: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The command line under ``setpriv --pdeathsig KILL`` (util-linux), so that a killed parent leaves no child.

    A ``preexec_fn`` would do the same, but forces a plain fork of a process that may hold JAX and its threads.
    """
    words = [os.fspath(word) for word in argv]
    return [_SETPRIV, "--pdeathsig", "KILL", "--", *words] if _SETPRIV else words


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
) -> subprocess.Popen[bytes]:
    """Start a program as the leader of a group of its own; whoever calls this must :func:`end` it on every path.

    Without other ``limits`` a compiler, that is whatever is called with ``-cc1``, has :data:`COMPILER_LIMITS`. With
    ``core`` it runs on that processor alone.

    Raises:
        ToolError: the program cannot be started at all.
    """
    program = os.fspath(argv[0])
    if shutil.which(program) is None:
        raise ToolError(f"{program}: expected an executable program, found none; install it or give another path")
    if limits is None and len(argv) > 1 and os.fspath(argv[1]) == "-cc1":
        limits = COMPILER_LIMITS
    try:
        with _pinned(core):
            process = subprocess.Popen(
                dying_with_parent(argv),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
    except OSError as error:
        raise ToolError(f"{program}: cannot be started ({error.strerror}); check the path") from error
    if limits is not None:
        _limit(process.pid, limits, program)
    return process


@contextlib.contextmanager
def _pinned(core: int | None) -> Generator[None]:
    """Keep this thread, and so the children that it starts, on one processor meanwhile."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _limit(pid: int, limits: Limits, program: str) -> None:
    """Limit a child that has just begun; on a busy machine it may run for some milliseconds before that.

    A wrapper that sets limits would cost each compilation 2.5 ms, and a ``preexec_fn`` a plain fork; this takes 25 us.
    """
    # One that has ended already needs none.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
        if not _is_sanitized(shutil.which(program) or program):
            resource.prlimit(pid, resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))


@functools.cache
def _is_sanitized(program: str) -> bool:
    """Whether a compiler was built with a sanitizer, which takes terabytes of addresses for its own use."""
    try:
        with Path(program).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return any(data.find(name) >= 0 for name in _SANITIZERS)
    except (OSError, ValueError):
        return False


def end(process: subprocess.Popen[bytes]) -> tuple[int, resource.struct_rusage]:
    """Kill what is left of the group that ``process`` leads, reap the leader, and give its status and resource usage.

    A leader that has ended but was not reaped keeps its status, and its number cannot have been given to another group.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _, raw, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(raw)
    return process.returncode, usage


def tail(file: IO[bytes], most: int = TAIL_BYTES) -> str:
    """The last bytes of a file that a child wrote, decoded leniently."""
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
) -> Completed:
    r"""Run a program to its end, or to its deadline, and keep the last ``stderr_bytes`` of its standard error.

    See :func:`start` for ``limits`` and ``core``.

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
        process = start(argv, stdin=source, stdout=out, stderr=err, cwd=cwd, env=env, limits=limits, core=core)
        timed_out = False
        _running.add(process.pid)
        try:
            status, usage = _wait(process, deadline=begin + timeout_seconds)
            if status is None:
                timed_out = True
        except BaseException:
            kill_group(process)
            raise
        finally:
            _running.discard(process.pid)
        if status is None:
            status, usage = end(process)
        process.returncode = status
        out.seek(0)
        return Completed(
            returncode=status,
            stdout=out.read(),
            stderr=tail(err, stderr_bytes),
            timed_out=timed_out,
            wall_seconds=time.monotonic() - begin,
            user_seconds=usage.ru_utime,
            system_seconds=usage.ru_stime,
            peak_bytes=usage.ru_maxrss * 1024,
        )


def _wait(process: subprocess.Popen[bytes], *, deadline: float) -> tuple[int | None, resource.struct_rusage]:
    """Wait with a deadline for a child, keeping its resource usage; ``None`` when the deadline passes."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return None, resource.getrusage(resource.RUSAGE_SELF)
            if poller.poll(min(left, 60) * 1000):
                _, raw, usage = os.wait4(process.pid, 0)
                return os.waitstatus_to_exitcode(raw), usage
    finally:
        os.close(descriptor)
