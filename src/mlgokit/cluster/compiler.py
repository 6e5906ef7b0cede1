"""A compiler that compiles on the workers of a cluster."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.connection import threads_for
from mlgokit.cluster.link import Link, WorkersDiedError
from mlgokit.cluster.parcel import Parcel, Reply, Setup, pack, setup_of, travels
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.request import PLAIN, CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing

MOST_KILLS = 6
"""Number of kills by signal 9 after which "killed" is accepted as the result of a compilation."""
MOST_TIMEOUTS = 3
"""The same number for timeouts, which is lower because each takes a whole deadline."""
_KILLED = Compilation(
    status=CompileStatus.CRASHED,
    reason="every worker that compiled it was killed, perhaps because memory ran out",
    killed=True,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterCompiler:
    """The workers of a cluster as one compiler; made by :func:`open_cluster`.

    A compilation is the one that the client's own clang would make: files travel by content, and a worker with another
    clang gets nothing. What cannot travel, such as links, is compiled here.

    Attributes:
        here: the client's own clang, with the settings of the run.
        link: the way to the cluster.
        setup: what workers must be.
    """

    here: ClangCompiler
    link: Link
    setup: Setup
    _seats: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(os.cpu_count() or 1))

    @property
    def toolchain(self) -> Toolchain:
        """The toolchain of the client's compiler."""
        return self.here.toolchain

    @property
    def plugin(self) -> Path | None:
        """The plugin of requests that name none."""
        return self.here.plugin

    @property
    def workers(self) -> int:
        """How many compilations are best asked for at once: some more than all workers run compilers, now.

        So a worker has its next one when it is done, without waiting for the client.
        """
        return sum(map(threads_for, self.link.compilers()))

    @property
    def loaded(self) -> Loaded:
        """Digests of the client's compiler; see :attr:`ClangCompiler.loaded`."""
        return self.here.loaded

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compile a module on some worker.

        Raises:
            StaleError: what a worker reuses made another object than a compiler alone.
            StorageError: a disk is full, here or there.
            ToolError: there is no scheduler or worker that fits.
            UsageError: the request uses a plugin, and there is none.
        """
        if not travels(module):
            with self._seats:
                return self.here.compile(module, request)
        if self.here.room is not None:
            self.here.room.check()
        try:
            parcel = pack(self.here, self.setup, module, request)
        except OSError:
            # The compiler says what is missing.
            return self.here.compile(module, request)
        reply = self._answer(parcel)
        if reply.costs is not None:
            self.here.limits.put(module.name, reply.costs)
        if request.keep_object is not None and reply.object is not None:
            atomic_write(request.keep_object, reply.object)
        for problem, data in reply.logs.items():
            atomic_write(request.keep_logs[problem], data)
        return reply.done

    def _answer(self, parcel: Parcel) -> Reply:
        try:
            return answer_with_retries(lambda: self.link.answer(parcel))
        except WorkersDiedError:
            return Reply(done=_KILLED)

    def close(self) -> None:
        """End resident compilers, here and on workers, and the connection."""
        self.here.close()
        self.link.close()


def answer_with_retries(answer: Callable[[], Reply]) -> Reply:
    """Get a worker's reply; retry if the compiler was killed or timed out, which may be the worker's fault."""
    kills = timeouts = 0
    while True:
        reply = answer()
        is_killed, is_late = reply.done.killed, reply.done.status is CompileStatus.TIMED_OUT
        kills += is_killed
        timeouts += is_late
        if not (is_killed or is_late) or kills >= MOST_KILLS or timeouts >= MOST_TIMEOUTS:
            return reply


def open_cluster(
    here: ClangCompiler, options: ClusterOptions, *, report: Report = say_nothing, shelf: Path | None = None
) -> ClusterCompiler:
    """Let a cluster make the compilations of ``here``.

    Args:
        here: the client's own clang.
        options: where the cluster is.
        report: called with what happens to the cluster.
        shelf: folder of the workers' files; theirs by default.

    Raises:
        ToolError: the client's clang cannot be started.
        UsageError: the scheduler's address is malformed, or the connection would not be safe.
    """
    options.check()
    return ClusterCompiler(here=here, link=Link(options=options, report=report, shelf=shelf), setup=setup_of(here))
