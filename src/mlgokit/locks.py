"""Locks on folders and files: one process writes, or several read. A lock file names its holders.

The lock is ``flock`` on a small file, which a killed process may leave behind without harm. No child process inherits
the descriptor, so a compiler that outlives this process holds no lock. On a file system without ``flock`` there are no
locks, and users must not run two processes in one folder.
"""

import contextlib
import contextvars
import errno
import fcntl
import itertools
import json
import os
import shlex
import socket
import stat
import sys
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from mlgokit.errors import BusyError, StorageError
from mlgokit.files import writing

LOCK_NAME = ".mlgokit.lock"
"""Name of the lock file in a folder; the last holder deletes it."""

GRACE_SECONDS = 0.3
"""Time to retry: a process that ends, or a child between fork and exec, may hold the lock a moment longer."""

_PAUSE_SECONDS = 0.01
_MOST_BYTES = 1 << 16
_LONGEST = 160
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF}
_held: contextvars.ContextVar[frozenset[Path]] = contextvars.ContextVar("held", default=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The holder of a lock.

    Attributes:
        command: command line of the process.
        process: process id.
        host: name of the machine.
        since: local time of locking, in ISO 8601.
    """

    command: str
    process: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"`{self.command}` (process {self.process} on {self.host}, since {self.since})"


@contextlib.contextmanager
def locked(folder: Path, *, make: bool = True) -> Generator[None]:
    """Lock a folder exclusively for the block; a nested lock of the same folder does nothing.

    Args:
        folder: folder to lock.
        make: whether to make a missing folder; otherwise a missing folder is not locked.

    Raises:
        BusyError: another process uses the folder; the message names it.
        StorageError: the folder is not writable.
    """
    if not make and not folder.is_dir():
        yield
        return
    # Unlike pathlib's, this function does not raise for a path without permission; locking it then says why.
    made = list(itertools.takewhile(lambda path: not os.path.exists(path), (folder, *folder.parents)))  # noqa: PTH110
    try:
        with _exclusive(folder.resolve() / LOCK_NAME, folder, "a folder"):
            yield
    finally:
        # Folders made by a call that failed are removed; folders with files stay, as rmdir refuses them.
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir()


@contextlib.contextmanager
def locked_output(path: Path) -> Generator[None]:
    """Lock an output file for the block; a nested lock of the same file does nothing.

    Raises:
        BusyError: another process uses the file; the message names it.
        StorageError: the folder of the file is not writable.
    """
    with _exclusive(path.parent.resolve() / f".{path.name[:200]}{LOCK_NAME}", path, "an output"):
        yield


@contextlib.contextmanager
def reading(folder: Path) -> Generator[None]:
    """Lock a folder for reading during the block; a folder in which no file can be made is not locked.

    Raises:
        BusyError: another process changes the folder; the message names it.
    """
    lock = folder.resolve() / LOCK_NAME
    descriptor = None
    if lock not in _held.get() and folder.is_dir():
        with contextlib.suppress(StorageError):
            descriptor = _hold(lock, folder, "a folder", shared=True)
    try:
        yield
    finally:
        if descriptor is not None:
            _release(descriptor, lock, shared=True)


@contextlib.contextmanager
def _exclusive(lock: Path, shown: Path, kind: str) -> Generator[None]:
    """Hold an exclusive lock during the block, unless this context holds it already."""
    held = _held.get()
    if lock in held:
        yield
        return
    descriptor = _hold(lock, shown, kind, shared=False)
    token = _held.set(held | {lock})
    try:
        yield
    finally:
        _held.reset(token)
        _release(descriptor, lock, shared=False)


def _hold(lock: Path, shown: Path, kind: str, *, shared: bool) -> int:
    """Acquire the lock; return the descriptor of its file, which holds it if the file system has locks."""
    end = time.monotonic() + GRACE_SECONDS
    with writing(shown):
        while True:
            if not shared:
                lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _open_lock(lock)
            kept = is_free = False
            try:
                is_free = _try_lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
                # Whoever held it may have deleted the file between our two calls.
                kept = is_free and _is_current(descriptor, lock)
                holders = [] if is_free else _holders(descriptor)
            finally:
                if not kept:
                    os.close(descriptor)
            if kept:
                _sign(descriptor, alone=not shared)
                return descriptor
            if not is_free and time.monotonic() >= end:
                owners = " and ".join(map(str, holders[:2])) or "one that is used"
                raise BusyError(
                    f"{shown}: expected {kind} that no other process uses, found {owners}; wait until it ends, "
                    "or name another"
                )
            time.sleep(0 if is_free else _PAUSE_SECONDS)


def _try_lock(descriptor: int, kind: int) -> bool:
    """Try to acquire a lock; on a file system without locks, it always succeeds."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
    return True


def _open_lock(lock: Path) -> int:
    """Open or make the lock file; in a folder of another user, anything may be in its place."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(lock, flags | os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    except PermissionError as error:
        # Left behind by a killed process of another user: it can be held all the same.
        try:
            descriptor = os.open(lock, flags | os.O_RDONLY)
        except OSError:
            raise error from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise StorageError(f"{lock}: expected a file for the lock, found a link or a device; delete it")
    return descriptor


def _is_current(descriptor: int, lock: Path) -> bool:
    """Whether the open lock file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(descriptor), lock.lstat())
    except FileNotFoundError:
        return False


def _sign(descriptor: int, *, alone: bool) -> None:
    """Write the holder into the lock file; readers append a line to those of other readers."""
    program, *words = sys.argv or [""]
    name = "mlgokit" if Path(program).parts[-2:] == ("mlgokit", "__main__.py") else Path(program).name
    holder = Holder(
        command=shlex.join([name or "python", *words])[:_LONGEST],
        process=os.getpid(),
        host=socket.gethostname(),
        since=datetime.now().astimezone().isoformat(timespec="seconds"),
    )
    # A full disk, or a file of another user: the lock holds, and nobody learns whose it is.
    with contextlib.suppress(OSError):
        if alone:
            os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(asdict(holder)).encode() + b"\n")


def _holders(descriptor: int) -> list[Holder]:
    """Read the holders from the lock file that are still running, as far as that can be known."""
    holders: list[Holder] = []
    for line in os.pread(descriptor, _MOST_BYTES, 0).splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
            fields = cast("dict[str, Any]", json.loads(line))
            holder = Holder(
                command=_printable(fields["command"]),
                process=int(fields["process"]),
                host=_printable(fields["host"]),
                since=_printable(fields["since"]),
            )
            if holder.host != socket.gethostname() or _runs(holder.process):
                holders.append(holder)
    return holders


def _printable(text: object) -> str:
    """Shorten a text from a lock file, and replace characters that are not printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:_LONGEST])


def _runs(process: int) -> bool:
    """Whether a process of this id runs on this machine."""
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return process > 0


def _release(descriptor: int, lock: Path, *, shared: bool) -> None:
    """Release the lock; the last holder deletes its file."""
    with contextlib.suppress(OSError):
        if shared:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_current(descriptor, lock):
            lock.unlink()
    os.close(descriptor)
