"""A compiler that compiles on the workers of a cluster."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.connection import threads_for
from mlgokit.cluster.link import Link, WorkersDiedError
from mlgokit.cluster.parcel import Parcel, Reply, Setup, is_portable, pack, setup_of
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.limits import PROCESSORS
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.request import PLAIN, CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing

MOST_KILLS = 6
"""Number of kills by signal 9 after which "killed" is accepted as the result of a compilation."""
MOST_TIMEOUTS = 3
"""Number of timeouts after which one is accepted as the result of a compilation; each takes a whole deadline."""
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
        link: the connection to the cluster.
        setup: requirements on the workers, and the settings of the run.
    """

    here: ClangCompiler
    link: Link
    setup: Setup
    _seats: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(PROCESSORS))

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
        """The best number of simultaneous compilations: somewhat more than the compilers that all workers run now.

        So a worker has its next compilation when one ends, without waiting for the client.
        """
        return sum(map(threads_for, self.link.compilers()))

    @property
    def loaded(self) -> Loaded:
        """Digests of the client's compiler; see :attr:`ClangCompiler.loaded`."""
        return self.here.loaded

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compile a module on some worker.

        Raises:
            StaleError: a compilation with reuse on a worker gave another object than one without.
            StorageError: a disk is full, here or on a worker.
            ToolError: there is no scheduler, or no worker that fits.
            UsageError: the request uses a plugin, and there is none.
        """
        if not is_portable(module):
            with self._seats:
                return self.here.compile(module, request)
        if self.here.room is not None:
            self.here.room.check()
        try:
            parcel = pack(self.here, self.setup, module, request)
        except OSError:
            # A file is missing; compiling here reports which.
            return self.here.compile(module, request)
        reply = self._ask_workers(parcel)
        if reply.costs is not None:
            self.here.limits.put(module.name, reply.costs)
        if request.keep_object is not None and reply.object is not None:
            atomic_write(request.keep_object, reply.object)
        for problem, data in reply.logs.items():
            atomic_write(request.keep_logs[problem], data)
        return reply.done

    def _ask_workers(self, parcel: Parcel) -> Reply:
        """Get a worker's reply to a parcel; if every worker that had it died, a killed compilation."""
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


def open_cluster(here: ClangCompiler, options: ClusterOptions, *, report: Report = say_nothing) -> ClusterCompiler:
    """Open a compiler whose compilations are made on a cluster, as ``here`` would make them.

    Args:
        here: the client's own clang.
        options: address of the cluster, and how to connect to it.
        report: called with notes on the connection and the workers.

    Raises:
        ToolError: the client's clang cannot be started.
        UsageError: the scheduler's address is malformed, or the connection would not be safe.
    """
    options.check()
    return ClusterCompiler(here=here, link=Link(options=options, report=report), setup=setup_of(here))
