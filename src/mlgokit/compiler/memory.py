"""Admission control by memory: a compiler starts when its expected memory is free.

Threads of a process wait for each other in :class:`MemoryGate`, processes of one user in :class:`HostMemory`, which
holds ``flock`` on a small file for each compilation, so that a killed process releases its memory. If no such file can
be written, or a stopped process holds the list, compilations start without waiting.
"""

import contextlib
import fcntl
import os
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.limits import MACHINE_BYTES

SHARE = 0.8
"""Share of the machine's memory for compilers."""

_PAUSE_SECONDS = 0.05
_LIST_SECONDS = 5.0
"""Deadline for locking the list of entries."""
LONGEST_SECONDS = 600.0
"""Maximum wait of a compilation; a process that holds memory for longer was stopped, and does not use it."""
_LIST = "list"
_WAITS, _RUNS = "waits", "runs"


def host_folder() -> Path:
    """Return the folder where this user's processes register the memory that they use; on a tmpfs, if there is one."""
    memory = Path("/dev/shm")  # noqa: S108  (others may write there, but not into our folder: that is checked)
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return parent / f"mlgokit-{os.getuid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Memory that processes of one user acquire and release, in the order in which they ask.

    Attributes:
        bytes: memory that all requests share; a request for more runs alone.
        folder: folder with one file for each request, by default :func:`host_folder`.
    """

    bytes: int = int(SHARE * MACHINE_BYTES)
    folder: Path = field(default_factory=host_folder)

    @contextlib.contextmanager
    def acquire(self, wanted: int) -> Generator[None]:
        """Within the block, reserve ``wanted`` bytes of the machine's memory, after waiting until they are free.

        The block runs without a reservation if the run is interrupted, after :data:`LONGEST_SECONDS`, or if the folder
        cannot be used.
        """
        stopped = threading.Event()
        with contextlib.ExitStack() as entry:
            has_turn = False
            with contextlib.suppress(OSError), process.call_on_kill(stopped.set):
                has_turn = self._wait(entry, min(wanted, self.bytes), stopped)
            if not has_turn:
                entry.close()
            yield

    def _wait(self, entry: contextlib.ExitStack, wanted: int, stopped: threading.Event) -> bool:
        """Enter the queue and wait for our turn; closing ``entry`` leaves it. Returns whether the turn came in time."""
        with self._lock_list():
            numbers = [number for number, *_ in self._entries()]
            name = f"{max(numbers, default=0) + 1:012d}-{wanted}"
            mine = self.folder / f"{name}-{_WAITS}"
            descriptor = os.open(mine, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            entry.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            entry.callback(lambda: mine.unlink(missing_ok=True))
        deadline = time.monotonic() + LONGEST_SECONDS
        while True:
            with self._lock_list():
                if self._is_turn(mine, wanted):
                    mine = mine.rename(self.folder / f"{name}-{_RUNS}")
                    return True
            if time.monotonic() >= deadline or stopped.wait(_PAUSE_SECONDS):
                return False

    def _is_turn(self, mine: Path, wanted: int) -> bool:
        """Whether our request is the first that waits, and enough memory is left for it."""
        taken = 0
        for _, name, size, state in self._entries():
            if state == _RUNS:
                taken += size
            elif name != mine.name:
                return False
            else:
                return taken + wanted <= self.bytes
        return True

    def _entries(self) -> list[tuple[int, str, int, str]]:
        """List number, file name, bytes and state of each request: the running ones, then the waiting ones in order.

        Requests of dead processes are deleted.
        """
        entries: list[tuple[int, str, int, str]] = []
        for path in self.folder.iterdir():
            parts = (name := path.name).split("-")
            if len(parts) == 3 and parts[0].isdecimal() and parts[1].isdecimal() and self._is_alive(name):
                entries.append((int(parts[0]), name, int(parts[1]), parts[2]))
        return sorted(entries, key=lambda entry: (entry[3] != _RUNS, entry[0]))

    def _is_alive(self, name: str) -> bool:
        """Whether the process of a request still holds its file's lock; otherwise the file is deleted."""
        try:
            descriptor = os.open(self.folder / name, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            (self.folder / name).unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _lock_list(self) -> Generator[None]:
        """Within the block, lock the list of requests."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        about = self.folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            raise PermissionError(f"{self.folder} belongs to another user, or is not a folder")
        descriptor = os.open(self.folder / _LIST, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            deadline = time.monotonic() + _LIST_SECONDS
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_PAUSE_SECONDS / 50)
            yield
        finally:
            os.close(descriptor)


@dataclass(slots=True, kw_only=True, eq=False)
class MemoryGate:
    """Memory that threads acquire and release, in the order in which they ask.

    Attributes:
        bytes: memory that all requests share; a request for more runs alone.
        host: memory shared by all processes of the user; ``None`` to share with no other process.
    """

    bytes: int = int(SHARE * MACHINE_BYTES)
    host: HostMemory | None = None
    _taken: int = 0
    _waiting: deque[object] = field(default_factory=deque[object])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextlib.contextmanager
    def acquire(self, wanted: int) -> Generator[None]:
        """Within the block, reserve ``wanted`` bytes for a compiler, after waiting until they are free.

        The deadlines of the compilers before it bound the wait.
        """
        mine = min(wanted, self.bytes)
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self._taken + mine <= self.bytes)
                self._taken += mine
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            with contextlib.nullcontext() if self.host is None else self.host.acquire(wanted):
                yield
        finally:
            with self._changed:
                self._taken -= mine
                self._changed.notify_all()
