"""The connection to a Dask cluster, which is restored when it breaks; each compilation gets one answer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgokit.cluster.connection import COMPILERS, CONNECT_SECONDS, compile_here, open_client
from mlgokit.cluster.worker import end_compilers, put_files
from mlgokit.compiler import process
from mlgokit.errors import MlgokitError, ToolError

if TYPE_CHECKING:
    from mlgokit.cluster.address import ClusterOptions
    from mlgokit.cluster.parcel import Parcel, Reply
    from mlgokit.progress import Report

LOOK_SECONDS = 2.0
"""Maximum age of the list of workers in seconds."""
MOST_FAILURES = 10
"""Number of failures of one compilation, such as hanging workers, after which the run ends; lost connections to the
scheduler do not count."""
SLICE_SECONDS = 0.5
LIFE_SECONDS = 5.0
"""Interval in seconds for checking that a task's worker is alive."""
HUNG_SECONDS = 30.0
"""Seconds without a heartbeat after which a worker counts as hung; workers send one at least every five seconds."""
SUSPECT_SECONDS = 300.0
"""Seconds for which a hung worker gets no tasks."""
MOST_DEATHS = 5
"""Number of times that all workers of a compilation may die before it counts as their cause."""

FORGOTTEN_AT_ONCE = 16
"""Maximum number of finished tasks whose replies workers keep."""


class WorkersDiedError(Exception):
    """The workers of a compilation died again and again."""


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """A connection to a cluster that reconnects when it breaks. Threads may share it.

    Attributes:
        options: address of the cluster, and how to connect to it.
        report: called with notes on the connection and the workers.
        refused: reasons why workers get no compilations, by address.

    The compilers that each worker runs at once are by its address, as the scheduler said at the time of the last look.
    """

    options: ClusterOptions
    report: Report
    refused: dict[str, str] = field(default_factory=dict[str, str])
    _client: Any = None
    _cluster: Any = None
    _compilers: dict[str, int] = field(default_factory=dict[str, int])
    _looked: float = float("-inf")
    _suspects: dict[str, float] = field(default_factory=dict[str, float])
    _running: Counter[str] = field(default_factory=Counter[str])
    _last: dict[str, str] = field(default_factory=dict[str, str])
    _sending: dict[str, threading.Lock] = field(default_factory=dict[str, threading.Lock])
    _ended: list[Any] = field(default_factory=list[Any])
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def compilers(self) -> tuple[int, ...]:
        """Wait for a worker, and count the compilers that each one runs at once.

        Raises:
            ToolError: there is no scheduler, or no worker that fits, for ``patience_seconds``.
        """
        return tuple(self._wait_for_workers(threading.Event()).values())

    def answer(self, parcel: Parcel) -> Reply:
        """Let a worker compile a parcel, on other workers again if one fails; return the reply.

        Raises:
            CancelledError: the run was interrupted in another thread.
            MlgokitError: any error that the compilation raises.
            ToolError: there is no scheduler, or no worker that fits, for ``patience_seconds``.
            WorkersDiedError: all workers that had the parcel died.
        """
        stopped = threading.Event()
        with process.call_on_kill(stopped.set):
            return self._answer_parcel(parcel, stopped)

    def _answer_parcel(self, parcel: Parcel, stopped: threading.Event) -> Reply:
        """Submit a parcel until a worker has compiled it, sending the files that the worker lacks."""
        counts, worker = Counter[str](), ""
        while True:
            workers = self._wait_for_workers(stopped)
            if worker not in workers:
                worker = self._usual_worker(parcel, workers)
            try:
                reply = self._submit(parcel, worker, stopped)
                if reply.missing:
                    self._send_files(reply.worker, parcel, reply.missing, stopped)
            except MlgokitError:
                raise
            except (Exception, asyncio.CancelledError) as error:
                if stopped.is_set():
                    raise
                self._count_failure(error, counts, parcel)
                worker = ""
                continue
            if reply.refused:
                self._refuse(reply.worker, reply.refused)
                worker = ""
            elif reply.missing:
                worker = reply.worker
            else:
                with self._lock:
                    self._last[parcel.module.name] = reply.worker
                return reply

    def _count_failure(self, error: BaseException, counts: Counter[str], parcel: Parcel) -> None:
        """Count a failure, and raise after too many of its kind."""
        counts["deaths"] += type(error).__name__ == "KilledWorker"
        if counts["deaths"] >= MOST_DEATHS:
            raise WorkersDiedError from error
        # A lost scheduler comes back or the wait for it ends; a failure while it is there may repeat for ever.
        counts["failures"] += not self._drop_if_lost(error)
        if counts["failures"] >= MOST_FAILURES:
            raise ToolError(
                f"--scheduler {self.options.scheduler}: compiling {parcel.module.name} on the workers failed "
                f"{counts['failures']} times with {type(error).__name__} ({error}); see the logs of the workers"
            ) from error

    def close(self) -> None:
        """End the workers' resident compilers, and the connection; it is made again when needed."""
        with self._lock:
            client, cluster = self._client, self._cluster
            self._client = self._cluster = None
            self._compilers, self._looked = {}, float("-inf")
            self._ended.clear()
        if client is not None:
            with contextlib.suppress(Exception):
                client.run(end_compilers, on_error="ignore")
            with contextlib.suppress(Exception):
                client.close(timeout=CONNECT_SECONDS)
        if cluster is not None:
            with contextlib.suppress(Exception):
                cluster.close(timeout=CONNECT_SECONDS)

    def _submit(self, parcel: Parcel, worker: str, stopped: threading.Event) -> Reply:
        """Submit a parcel once, to ``worker`` if it is not empty, and wait for the reply."""
        client = self._connect(stopped)
        key = f"compile-{parcel.module.name}-{uuid.uuid4().hex}"
        with self._lock:
            avoided = {*self.refused, *self._hung_workers()}
            chosen = [worker] if worker else [address for address in self._compilers if address not in avoided]
            self._running[worker] += 1
        future = client.submit(
            compile_here,
            parcel,
            key=key,
            pure=False,
            # Only a preference: a task that may run on no other worker would wait for one that died.
            workers=chosen if worker or avoided else None,
            allow_other_workers=bool(chosen and (worker or avoided)),
        )
        try:
            return self._wait(client, key, future, stopped)
        finally:
            with self._lock:
                self._running[worker] -= 1
            with contextlib.suppress(Exception):
                self._forget(future)

    def _forget(self, future: Any) -> None:
        """Release a task's result; finished ones in batches, as each message costs."""
        if not future.done():
            future.cancel()
            return
        with self._lock:
            self._ended.append(future)
            if len(self._ended) < FORGOTTEN_AT_ONCE:
                return
            ended = self._ended.copy()
            self._ended.clear()
        for finished in ended:
            finished.release()

    def _wait(self, client: Any, key: str, future: Any, stopped: threading.Event) -> Reply:
        """Wait for the reply of a task; raise if its worker hangs or there is no worker.

        The compilation has a deadline on its worker, so a task may take any time as long as there is a live worker:
        others may come before it.
        """
        since, signs = time.monotonic(), ("", 0.0)
        looked = since
        answer = asyncio.run_coroutine_threadsafe(_await_result(future), client.loop.asyncio_loop)
        while True:
            try:
                return answer.result(timeout=SLICE_SECONDS)
            except TimeoutError:
                if answer.done():
                    raise
            if stopped.is_set():
                raise CancelledError
            if client.status != "running":
                raise OSError("the connection to the scheduler is lost")
            if time.monotonic() - looked < LIFE_SECONDS:
                continue
            looked = time.monotonic()
            signs_now = _find_heartbeat(client, key)
            if signs_now != signs:
                since, signs = time.monotonic(), signs_now
            silent = time.monotonic() - since
            if signs[0] and silent > HUNG_SECONDS:
                with self._lock:
                    self._suspects[signs[0]] = time.monotonic()
                self.report(0, 1, f"worker {signs[0]} does not answer and gets no work for {SUSPECT_SECONDS:.0f} s")
                raise TimeoutError
            if silent > self.options.patience_seconds:
                raise self._no_worker_error()

    def _hung_workers(self) -> set[str]:
        """Find the workers that hung within the last :data:`SUSPECT_SECONDS`, which get no tasks."""
        now = time.monotonic()
        return {worker for worker, since in self._suspects.items() if now - since < SUSPECT_SECONDS}

    def _send_files(self, worker: str, parcel: Parcel, digests: tuple[str, ...], stopped: threading.Event) -> None:
        """Send files to a worker, one thread at a time."""
        with self._lock:
            sending = self._sending.setdefault(worker, threading.Lock())
        with sending:
            files: dict[str, tuple[tuple[str, ...], bytes]] = {}
            for path, digest in parcel.files.items():
                if digest in digests:
                    names, _ = files.get(digest, ((), b""))
                    files[digest] = (tuple(dict.fromkeys((*names, Path(path).name))), Path(path).read_bytes())
            self._connect(stopped).run(put_files, files, workers=[worker])

    def _usual_worker(self, parcel: Parcel, workers: dict[str, int]) -> str:
        """Find the worker that last compiled the module, where its compiler is resident; empty if it is busy."""
        with self._lock:
            last = self._last.get(parcel.module.name, "")
            idle = last in workers and self._running[last] < workers[last]
        return last if parcel.request.reuse and idle else ""

    def _refuse(self, worker: str, why: str) -> None:
        """Give a worker no more compilations, and report why."""
        with self._lock:
            if worker not in self.refused:
                self.refused[worker] = why
                self.report(0, 1, f"worker {worker} gets nothing: {why}")

    def _wait_for_workers(self, stopped: threading.Event) -> dict[str, int]:
        """Wait for at least one usable worker; return the number of compilers of each, by address."""
        begin = time.monotonic()
        reported = False
        while True:
            known = self._count_compilers(stopped)
            with self._lock:
                avoided = {*self.refused, *self._hung_workers()}
                fitting = {address: count for address, count in known.items() if address not in avoided}
            if fitting:
                return fitting
            if known and all(address in self.refused for address in known):
                raise ToolError(
                    f"--scheduler {self.options.scheduler}: expected a worker that can compile for this run, found "
                    f"none: {next(iter(self.refused.values()))}"
                )
            if time.monotonic() - begin > self.options.patience_seconds:
                raise self._no_worker_error()
            if not reported:
                self.report(0, 1, f"waiting for a worker of {self.options.scheduler}")
                reported = True
            if stopped.wait(0.5):
                raise CancelledError

    def _no_worker_error(self) -> ToolError:
        return ToolError(
            f"--scheduler {self.options.scheduler}: expected a worker within {self.options.patience_seconds:.0f} s, "
            "found none; start workers with mlgokit worker, or see that they reach the scheduler, then run the same "
            "command again: what was finished is kept"
        )

    def _count_compilers(self, stopped: threading.Event) -> dict[str, int]:
        """Count the compilers of each worker, by address; a count is used again for :data:`LOOK_SECONDS`."""
        with self._lock:
            if time.monotonic() - self._looked < LOOK_SECONDS:
                return self._compilers
            try:
                info = self._connect(stopped).scheduler_info(n_workers=-1)
                self._compilers = {
                    address: int(worker["resources"].get(COMPILERS, worker["nthreads"]))
                    for address, worker in info["workers"].items()
                }
            except ToolError:
                raise
            except Exception as error:
                self._drop_if_lost(error)
                return {}
            self._looked = time.monotonic()
            return self._compilers

    def _drop_if_lost(self, error: BaseException) -> bool:
        """Drop the connection if it is lost, and return whether it was; the next request connects again."""
        with self._lock:
            self._compilers, self._looked = {}, float("-inf")
            client = self._client
            if client is None:
                return True
            if client.status == "running":
                return False
            self._client = None
        self.report(0, 1, f"lost the connection to the scheduler ({type(error).__name__}); waiting for it")
        with contextlib.suppress(Exception):
            client.close(timeout=1)
        return True

    def _connect(self, stopped: threading.Event) -> Any:
        """Return the client, after connecting if necessary."""
        with self._lock:
            if self._client is not None and self._client.status == "running":
                return self._client
            self._client, self._cluster = open_client(self.options, stopped)
            return self._client


async def _await_result(future: Any) -> Any:
    """Wait for the result of a task.

    ``future.result(timeout=...)`` would cancel the fetch at its timeout, and with it the fetches of other threads:
    Dask fetches all results together.
    """
    return await future


def _find_heartbeat(client: Any, key: str) -> tuple[str, float]:
    """Find the worker that has a task, empty for none, and the time of its last heartbeat by the scheduler's clock."""
    worker = next((address for address, keys in client.processing().items() if key in keys), "")
    if not worker:
        return "", 0.0
    info = client.scheduler_info(n_workers=-1)["workers"].get(worker, {})
    return worker, float(info.get("last_seen", 0.0))
