"""A connection to a Dask scheduler, and the tasks that its workers run."""

from __future__ import annotations

import logging
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgokit.cluster.worker import compile_parcel, put_files
from mlgokit.errors import ToolError

if TYPE_CHECKING:
    import threading

    from mlgokit.cluster.address import ClusterOptions
    from mlgokit.cluster.parcel import Parcel, Reply

CONNECT_SECONDS = 10.0


def open_client(options: ClusterOptions, stopped: threading.Event) -> tuple[Any, Any]:
    """A client, and the cluster if it is one of this process.

    Raises:
        CancelledError: it is not wanted any more.
        ToolError: Dask is not installed, or the scheduler is not reached in time.
    """
    try:
        import distributed
    except ImportError as error:
        raise ToolError(
            "--scheduler: expected Dask, found that it is not installed; pip install 'mlgokit[cluster]'"
        ) from error
    say_nothing_of_connections()
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
            if stopped.wait(1.0):
                raise CancelledError from error


def say_nothing_of_connections() -> None:
    """Turn off Dask's messages and traces in this process: a lost connection is told by us, in one sentence."""
    # Dask gives some of its loggers a level of their own, which that of their parent does not change.
    for name in ("distributed", *logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)


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
