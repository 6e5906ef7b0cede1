"""Resident compilers: each has read its module and run the passes before the inliner; forks of it do the rest.

What comes before the inliner is the same in every compilation of a module. The plugin stops there
(``plugin/reuse/Resident.cpp``), waits for requests on its standard input (``docs/formats.md``, "Resident compilers"),
and forks a child for each, which goes on as any compiler would. A compiler has one thread and no clock or random number
in it, so the child's object is that of a compiler of its own, byte for byte.
"""

import contextlib
import os
import socket
import struct
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from mlgokit.compiler import process
from mlgokit.compiler.limits import MACHINE_BYTES, Limits
from mlgokit.compiler.process import Completed

MOST_RESIDENTS = 64
_REPLY = struct.Struct("<6Q")
_NOT_STARTED = 2**64 - 1
_GRACE_SECONDS = 5.0
"""Time for a resident to kill its child after the deadline."""
_ABORT = b"!"


@dataclass(slots=True, kw_only=True, eq=False)
class _Resident:
    """A resident compiler with its command line, the digest of the files that it read, and its costs so far."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    key: tuple[str, ...] = ()
    content: str = ""
    own_seconds: float = 0.0
    charged_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Residents:
    """Compilers that wait for requests, the least recently used first. Threads may share it.

    A module has as many residents as compiled it at the same time.

    They end with :meth:`close`, with the object, and with the process, however that ends.

    Attributes:
        most: maximum number of idle residents.
        memory_bytes: maximum memory of all idle residents together, pages of shared libraries counted in each.
        declined: reasons by command line why a module has no resident and is compiled from the beginning each time.
    """

    most: int = MOST_RESIDENTS
    memory_bytes: int = MACHINE_BYTES // 4
    declined: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    _idle: list[_Resident] = field(default_factory=list["_Resident"])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # A child dies with the thread that started it, so all are started by one that lives as long as they may.
    _starter: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        weakref.finalize(self, _end_all, self._idle)

    def run(
        self,
        argv: Sequence[str],
        *,
        content: str = "",
        environment: Mapping[str, str],
        request: Mapping[str, str],
        output: Path,
        timeout_seconds: float,
        limits: Limits | None = None,
        inside: Sequence[str] = (),
        folder: Path | None = None,
        cwd: Path | None = None,
    ) -> Completed | None:
        """Let the resident of ``argv`` compile; start one if there is none.

        Args:
            argv: command line of ``clang -cc1`` or a linker with the plugin, which writes its object to standard
                output.
            content: digest of the files that it reads; a resident that has read others ends.
            environment: environment of the resident.
            request: further environment variables of the child.
            output: where the object goes.
            timeout_seconds: deadline of the resident's start, and of the child.
            limits: limits of a resident that is started, and so of all its children.
            inside: words that start it in a sandbox.
            folder: the folder that its child may write to, in a sandbox.
            cwd: working directory; that of this process by default.

        Returns:
            How the child ended, with the processor time of both since the last request; ``None`` if there is no
            resident for ``argv``, and then :attr:`declined` says why.
        """
        key = tuple(argv)
        if key in self.declined:
            return None
        with self._lock:
            resident = next((idle for idle in reversed(self._idle) if idle.key == key), None)
            if resident is not None:
                self._idle.remove(resident)
        begin = time.monotonic()
        if resident is not None and resident.content != content:
            _end(resident)
            resident = None
        if resident is None:
            started = self._start(argv, environment, timeout_seconds, limits=limits, inside=inside, cwd=cwd)
            if isinstance(started, str):
                self.decline(key, started)
                return None
            resident = started
            resident.key, resident.content = key, content
        with tempfile.NamedTemporaryFile(prefix="mlgokit-messages-", dir=folder) as messages:
            variables = {**request, "MLGOKIT_OBJECT": str(output), "MLGOKIT_MESSAGES": messages.name}
            try:
                done = _ask(resident, variables, messages, begin=begin, timeout_seconds=timeout_seconds)
            except BaseException:
                _end(resident)
                raise
        if done is None or done.timed_out:
            _end(resident)
            if done is None:
                self.decline(key, "the resident compiler ended, or did not kill its child in time")
            return done
        self._return_to_pool(resident)
        return done

    def decline(self, argv: Sequence[str], sentence: str) -> None:
        """Do not start a resident for this command line again."""
        with self._lock:
            self.declined[tuple(argv)] = sentence
            useless = [idle for idle in self._idle if idle.key == tuple(argv)]
            self._idle[:] = [idle for idle in self._idle if idle.key != tuple(argv)]
        for idle in useless:
            _end(idle)

    def close(self) -> None:
        """End all idle residents; later requests start new ones."""
        with self._lock:
            starter, self._starter = self._starter, None
            _end_all(self._idle)
        if starter is not None:
            starter.shutdown()

    def _start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        timeout_seconds: float,
        *,
        limits: Limits | None,
        inside: Sequence[str],
        cwd: Path | None,
    ) -> _Resident | str:
        """Start a resident and wait until it has come to the inliner; or return why it did not."""
        ours, theirs = socket.socketpair()
        with self._lock:
            if self._starter is None:
                self._starter = ThreadPoolExecutor(1, thread_name_prefix="residents")
            starter = self._starter
        with tempfile.TemporaryFile() as messages:
            try:
                child = starter.submit(
                    process.start,
                    argv,
                    stdin=theirs.fileno(),
                    stderr=messages,
                    env={"MLGOKIT_RESIDENT": "1", **environment},
                    cwd=cwd,
                    limits=limits,
                    inside=inside,
                ).result()
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            resident = _Resident(process=child, channel=ours)
            try:
                ready = _receive(resident, deadline=time.monotonic() + timeout_seconds)
            except BaseException:
                _end(resident)
                raise
            if ready is None:
                _end(resident)
                said = process.read_tail(messages).strip().splitlines()
                return f"it did not reach the inliner ({said[-1] if said else 'no message'})"
            return resident

    def _return_to_pool(self, resident: _Resident) -> None:
        """Return a resident to the pool; end others if there are too many."""
        ended: list[_Resident] = []
        with self._lock:
            if resident.key in self.declined:
                ended.append(resident)
            else:
                self._idle.append(resident)
            while len(self._idle) > self.most or (
                len(self._idle) > 1 and sum(idle.peak_bytes for idle in self._idle) > self.memory_bytes
            ):
                ended.append(self._idle.pop(0))
        for idle in ended:
            _end(idle)


def _ask(
    resident: _Resident, variables: Mapping[str, str], messages: IO[bytes], *, begin: float, timeout_seconds: float
) -> Completed | None:
    """Send a request and wait for its end; ``None`` if the resident has ended."""
    payload = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())
    deadline = time.monotonic() + timeout_seconds
    timed_out = False
    try:
        resident.channel.settimeout(timeout_seconds)
        resident.channel.sendall(struct.pack("<I", len(payload)) + payload)
        reply = _receive(resident, deadline=deadline)
        if reply is None and time.monotonic() >= deadline:
            timed_out = True
            resident.channel.sendall(_ABORT)
            reply = _receive(resident, deadline=time.monotonic() + _GRACE_SECONDS)
    except OSError:
        reply = None
    if reply is None or reply[0] == _NOT_STARTED:
        return None
    status, user, _, peak, _, _ = reply
    own = resident.own_seconds - resident.charged_seconds
    resident.charged_seconds = resident.own_seconds
    return Completed(
        returncode=os.waitstatus_to_exitcode(status),
        stdout=b"",
        stderr=process.read_tail(messages),
        timed_out=timed_out,
        wall_seconds=time.monotonic() - begin,
        user_seconds=1e-6 * user + own,
        peak_bytes=1024 * peak,
    )


def _receive(resident: _Resident, *, deadline: float) -> tuple[int, ...] | None:
    """Read the next reply; ``None`` at the deadline, or if the resident has ended."""
    data = b""
    with process.track_group(resident.process.pid):
        while len(data) < _REPLY.size:
            resident.channel.settimeout(max(1e-3, deadline - time.monotonic()))
            try:
                part = resident.channel.recv(_REPLY.size - len(data))
            except OSError:
                return None
            if not part:
                return None
            data += part
    reply = _REPLY.unpack(data)
    resident.own_seconds = 1e-6 * reply[4]
    resident.peak_bytes = max(resident.peak_bytes, 1024 * reply[3])
    return reply


def _end(resident: _Resident) -> None:
    """Kill a resident, and reap it."""
    with contextlib.suppress(OSError):
        resident.channel.close()
    process.kill_group(resident.process)


def _end_all(residents: list[_Resident]) -> None:
    while residents:
        _end(residents.pop())
