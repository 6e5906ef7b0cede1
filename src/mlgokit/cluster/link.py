"""The way to a Dask cluster and back: whatever breaks on it, each parcel is answered once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgokit.cluster.worker import compile_parcel, end_compilers, put_files
from mlgokit.errors import MlgokitError, ToolError

if TYPE_CHECKING:
    from mlgokit.cluster.address import ClusterOptions
    from mlgokit.cluster.parcel import Parcel, Reply
    from mlgokit.progress import Report

LOOK_SECONDS = 2.0
"""How old the list of workers may be."""
CONNECT_SECONDS = 10.0
SLICE_SECONDS = 5.0
HUNG_SECONDS = 30.0
"""A worker that gave no sign of life for so long is taken for hung; workers give one at least every five seconds."""
SUSPECT_SECONDS = 300.0
"""How long such a worker gets nothing."""
MOST_DEATHS = 5
"""So many times a parcel is given out again after all workers that had it died, as one that kills them would go on."""


class WorkersDiedError(Exception):
    """A parcel ended its workers again and again."""


@dataclass(slots=True, kw_only=True)
class _Workers:
    """What is known of the workers.

    Attributes:
        threads: of each, by address.
        looked: when.
    """

    threads: dict[str, int] = field(default_factory=dict[str, int])
    looked: float = float("-inf")


@dataclass(slots=True, kw_only=True, eq=False)
class Link:
    """A connection to a cluster that is made again when it breaks. Threads may share it.

    Attributes:
        options: where the cluster is.
        report: told what happens to it.
        shelf: folder of the workers' files; theirs by default.
        refused: why a worker gets nothing, by address.
    """

    options: ClusterOptions
    report: Report
    shelf: Path | None = None
    refused: dict[str, str] = field(default_factory=dict[str, str])
    _client: Any = None
    _cluster: Any = None
    _workers: _Workers = field(default_factory=_Workers)
    _suspects: dict[str, float] = field(default_factory=dict[str, float])
    _running: Counter[str] = field(default_factory=Counter[str])
    _last: dict[str, str] = field(default_factory=dict[str, str])
    _sending: dict[str, threading.Lock] = field(default_factory=dict[str, threading.Lock])
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def threads(self) -> int:
        """How many compilations the workers make at once; waits for the first worker.

        Raises:
            ToolError: there is no scheduler, or no worker that fits, for longer than patience allows.
        """
        return sum(self._fitting().values())

    def answer(self, parcel: Parcel) -> Reply:
        """The reply of a worker.

        Raises:
            MlgokitError: what the compilation raises.
            ToolError: there is no scheduler, or no worker that fits, for longer than patience allows.
            WorkersDiedError: the parcel ends its workers.
        """
        deaths = 0
        worker = ""
        while True:
            workers = self._fitting()
            if worker not in workers:
                worker = self._usual_worker(parcel, workers)
            reply = None
            try:
                reply = self._ask(parcel, worker)
            except MlgokitError:
                raise
            except (Exception, asyncio.CancelledError) as error:
                deaths += is_death(error)
                if deaths >= MOST_DEATHS:
                    raise WorkersDiedError from error
                self._broken(error)
            if reply is None:
                worker = ""
            elif reply.refused:
                self._refuse(reply.worker, reply.refused)
                worker = ""
            elif reply.missing:
                worker = reply.worker
                self._send(worker, parcel, reply.missing)
            else:
                with self._lock:
                    self._last[parcel.module.name] = reply.worker
                return reply

    def close(self) -> None:
        """End compilers that stay on the workers, and the connection; it is made again when it is needed."""
        with self._lock:
            client, cluster = self._client, self._cluster
            self._client = self._cluster = None
            self._workers = _Workers()
        if client is not None:
            with contextlib.suppress(Exception):
                client.run(end_compilers, on_error="ignore")
            with contextlib.suppress(Exception):
                client.close(timeout=CONNECT_SECONDS)
        if cluster is not None:
            with contextlib.suppress(Exception):
                cluster.close(timeout=CONNECT_SECONDS)

    def _ask(self, parcel: Parcel, worker: str) -> Reply:
        """One attempt.

        Raises:
            Exception: whatever broke.
        """
        client = self._connected()
        key = f"compile-{parcel.module.name}-{uuid.uuid4().hex}"
        with self._lock:
            avoided = {*self.refused, *self._hung()}
            chosen = [worker] if worker else [one for one in self._workers.threads if one not in avoided]
            self._running[worker] += 1
        future = client.submit(
            compile_here,
            parcel,
            None if self.shelf is None else str(self.shelf),
            key=key,
            pure=False,
            # A preference alone: a task that may run on nobody else would wait for a worker that died.
            workers=chosen if worker or avoided else None,
            allow_other_workers=bool(chosen and (worker or avoided)),
        )
        try:
            return self._wait(client, key, future)
        finally:
            with self._lock:
                self._running[worker] -= 1
            with contextlib.suppress(Exception):
                future.release() if future.done() else future.cancel()

    def _wait(self, client: Any, key: str, future: Any) -> Reply:
        """The reply of a task, unless its worker hangs or there is none.

        A compilation has a deadline on its worker, so a task may take any time, as long as its worker lives and there
        is one: others may be before it.

        Raises:
            TimeoutError: the worker does not say that it lives.
        """
        since, signs = time.monotonic(), ("", 0.0)
        while True:
            with contextlib.suppress(TimeoutError):
                return future.result(timeout=SLICE_SECONDS)
            if client.status != "running":
                raise OSError("the connection is lost")
            signs_now = _signs_of_life(client, key)
            if signs_now != signs:
                since, signs = time.monotonic(), signs_now
            silent = time.monotonic() - since
            if signs[0] and silent > HUNG_SECONDS:
                with self._lock:
                    self._suspects[signs[0]] = time.monotonic()
                self.report(0, 1, f"worker {signs[0]} does not answer, and gets nothing for {SUSPECT_SECONDS:.0f} s")
                raise TimeoutError
            if silent > self.options.patience_seconds:
                raise self._nobody()

    def _hung(self) -> set[str]:
        """Workers that get nothing for a while."""
        now = time.monotonic()
        return {worker for worker, since in self._suspects.items() if now - since < SUSPECT_SECONDS}

    def _send(self, worker: str, parcel: Parcel, digests: tuple[str, ...]) -> None:
        """Send files to a worker, unless another thread is just doing that; the next attempt shows what is missing."""
        with self._lock:
            sending = self._sending.setdefault(worker, threading.Lock())
        with sending:
            files: dict[str, tuple[tuple[str, ...], bytes]] = {}
            for path, digest in parcel.files.items():
                if digest in digests:
                    names, _ = files.get(digest, ((), b""))
                    files[digest] = (tuple(dict.fromkeys((*names, Path(path).name))), Path(path).read_bytes())
            try:
                self._connected().run(put_files_here, files, self.shelf and str(self.shelf), workers=[worker])
            except MlgokitError:
                raise
            except Exception as error:
                self._broken(error)

    def _usual_worker(self, parcel: Parcel, workers: dict[str, int]) -> str:
        """The worker that last had the module, where its compiler stays, if it is not busy; empty for any."""
        with self._lock:
            last = self._last.get(parcel.module.name, "")
            idle = last in workers and self._running[last] < workers[last]
        return last if parcel.request.reuse and idle else ""

    def _refuse(self, worker: str, why: str) -> None:
        with self._lock:
            if worker not in self.refused:
                self.refused[worker] = why
                self.report(0, 1, f"worker {worker} gets nothing: {why}")

    def _fitting(self) -> dict[str, int]:
        """Threads of the workers that are there, by address; waits for one.

        Raises:
            ToolError: for longer than patience allows.
        """
        begin = time.monotonic()
        told = False
        while True:
            known = self._look()
            with self._lock:
                avoided = {*self.refused, *self._hung()}
                fitting = {address: threads for address, threads in known.items() if address not in avoided}
            if fitting:
                return fitting
            if known and all(address in self.refused for address in known):
                raise ToolError(
                    f"--scheduler {self.options.scheduler}: no worker fits: {next(iter(self.refused.values()))}"
                )
            if time.monotonic() - begin > self.options.patience_seconds:
                raise self._nobody()
            if not told:
                self.report(0, 1, f"waiting for a worker of {self.options.scheduler}")
                told = True
            time.sleep(0.5)

    def _nobody(self) -> ToolError:
        return ToolError(
            f"--scheduler {self.options.scheduler}: expected a worker within {self.options.patience_seconds:.0f} s, "
            "found none; start workers with mlgokit worker, or see that they reach the scheduler, then run the same "
            "command again: what was finished is kept"
        )

    def _look(self) -> dict[str, int]:
        """Threads of all workers, by address, not older than some seconds."""
        with self._lock:
            if time.monotonic() - self._workers.looked < LOOK_SECONDS:
                return self._workers.threads
            try:
                info = self._connected().scheduler_info(n_workers=-1)
                threads = {address: int(one["nthreads"]) for address, one in info["workers"].items()}
            except ToolError:
                raise
            except Exception as error:
                self._broken(error)
                return {}
            self._workers = _Workers(threads=threads, looked=time.monotonic())
            return threads

    def _broken(self, error: BaseException) -> None:
        """Forget the connection if it is lost; whoever asks next makes it again."""
        with self._lock:
            self._workers = _Workers()
            client = self._client
            if client is None or client.status == "running":
                return
            self._client = None
        self.report(0, 1, f"the scheduler is lost ({type(error).__name__}), and is waited for")
        with contextlib.suppress(Exception):
            client.close(timeout=1)

    def _connected(self) -> Any:
        """The client.

        Raises:
            ToolError: the scheduler cannot be reached for longer than patience allows.
        """
        with self._lock:
            if self._client is not None and self._client.status == "running":
                return self._client
            self._client, self._cluster = open_client(self.options)
            return self._client


def _signs_of_life(client: Any, key: str) -> tuple[str, float]:
    """The worker that has a task, empty for none, and when the scheduler last heard of it, by its own clock."""
    worker = next((address for address, keys in client.processing().items() if key in keys), "")
    if not worker:
        return "", 0.0
    info = client.scheduler_info(n_workers=-1)["workers"].get(worker, {})
    return worker, float(info.get("last_seen", 0.0))


def is_death(error: BaseException) -> bool:
    """Whether all workers that had a task died with it."""
    return type(error).__name__ == "KilledWorker"


def open_client(options: ClusterOptions) -> tuple[Any, Any]:
    """A client, and the cluster if it is one of this process.

    Raises:
        ToolError: Dask is not installed, or the scheduler is not reached in time.
    """
    try:
        import distributed
    except ImportError as error:
        raise ToolError(
            "--scheduler: expected Dask, found that it is not installed; pip install 'mlgokit[cluster]'"
        ) from error
    # What it has to say of a lost connection is said by us, in one sentence.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    be_quiet()
    if count := options.local_workers:
        cluster = distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit="auto"
        )
        return distributed.Client(cluster, set_as_default=False), cluster
    deadline = time.monotonic() + options.patience_seconds
    while True:
        try:
            return distributed.Client(
                options.address, timeout=CONNECT_SECONDS, security=security_of(options), set_as_default=False
            ), None
        except (OSError, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise ToolError(
                    f"--scheduler {options.scheduler}: expected a Dask scheduler, found none within "
                    f"{options.patience_seconds:.0f} s ({error}); start one, or correct the address"
                ) from error
            time.sleep(1.0)


def be_quiet() -> None:
    """Turn off what Dask does for its dashboard, in this process and in the workers that it starts.

    Workers look at their own stack a hundred times a second, which is of no use where all of them wait for compilers.
    """
    import dask.config

    dask.config.set({"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"})


def security_of(options: ClusterOptions) -> Any:
    """Dask's TLS settings; nothing without certificates."""
    from distributed.security import Security

    if options.certificate is None:
        return None
    authority, certificate = str(options.certificate_authority), str(options.certificate)
    return Security(
        require_encryption=True,
        tls_ca_file=authority,
        tls_client_cert=certificate,
        tls_client_key=certificate,
        tls_worker_cert=certificate,
        tls_worker_key=certificate,
    )


def compile_here(parcel: Parcel, shelf: str | None) -> Reply:
    """A task: compile on the worker that runs this."""
    from distributed import get_worker

    return compile_parcel(parcel, shelf=None if shelf is None else Path(shelf), address=get_worker().address)


def put_files_here(files: dict[str, tuple[tuple[str, ...], bytes]], shelf: str | None) -> None:
    """Run on a worker: keep files there."""
    put_files(files, shelf=None if shelf is None else Path(shelf))
