"""A connection to a Dask scheduler, and the tasks that its workers run."""

from __future__ import annotations

import atexit
import logging
import math
import shutil
import tempfile
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgokit.cluster.worker import compile_parcel, seats_of
from mlgokit.errors import ToolError
from mlgokit.files import writing

if TYPE_CHECKING:
    import threading

    from mlgokit.cluster.address import ClusterOptions
    from mlgokit.cluster.parcel import Parcel, Reply

CONNECT_SECONDS = 10.0
AHEAD = 0.25
"""Compilations that wait on a worker, as a share of those that it runs; at least one."""
COMPILERS = "compilers"
"""Name of the Dask resource for the compilers that a worker runs at once; it has more threads than that."""
MOST_HERE = 8
"""Up to this many compilers of a local cluster are started by this process; more would wait for its interpreter."""


def open_client(options: ClusterOptions, stopped: threading.Event) -> tuple[Any, Any]:
    """Connect to a scheduler; return the client, and the cluster if it runs in this process.

    Raises:
        CancelledError: ``stopped`` was set.
        ToolError: Dask is not installed, or the scheduler is not reached in time.
    """
    distributed = import_dask()
    silence_dask()
    if count := options.local_workers:
        cluster = _local_cluster(distributed, count)
        return distributed.Client(cluster, set_as_default=False), cluster
    deadline = time.monotonic() + options.patience_seconds
    while not stopped.is_set():
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
            stopped.wait(1.0)
    raise CancelledError


def import_dask() -> Any:
    """Import Dask, without its measurements for a dashboard.

    Raises:
        ToolError: it is not installed.
    """
    try:
        import distributed
    except ImportError as error:
        raise ToolError(
            "--scheduler: expected the Python package Dask, found none; run pip install 'mlgokit[cluster]'"
        ) from error
    turn_off_dashboard()
    return distributed


def threads_for(compilers: int) -> int:
    """Compute the threads of a worker: one for each of the ``compilers`` at once, some more for what comes next.

    Example:
        >>> threads_for(2), threads_for(64)
        (3, 80)
    """
    return compilers + math.ceil(AHEAD * compilers)


def _local_cluster(distributed: Any, compilers: int) -> Any:
    """Start a cluster on this machine that no other user can join.

    A few compilers need no worker process, since compilers are processes of their own; then nothing listens. Worker
    processes listen on the loopback interface, and accept only connections with the key of a certificate that is made
    for this cluster and never written to a file that others can read.
    """
    import dask.config

    from mlgokit.cluster.nodes import Scheduler, Worker

    few = compilers <= MOST_HERE
    use_private_folder()
    # One worker has nobody to take work from.
    dask.config.set({"distributed.scheduler.work-stealing": not few})
    try:
        security = None if few else distributed.Security.temporary()
    except ImportError as error:
        raise ToolError(
            f"--scheduler local:{compilers}: expected the Python package cryptography, found none; pip install "
            "'mlgokit[cluster]'"
        ) from error
    transport = {"protocol": "inproc://"} if few else {"protocol": "tls://", "host": "127.0.0.1", "security": security}
    each = compilers if few else 1
    options = {
        **transport,
        "nthreads": threads_for(each),
        "resources": {COMPILERS: each},
        # This process is no worker to be paused or ended for what it keeps.
        "memory_limit": 0 if few else "auto",
        "silence_logs": logging.WARNING,
    }
    if few:
        worker = {"cls": Worker, "options": options}
    else:
        worker = {"cls": distributed.Nanny, "options": {**options, "worker_class": Worker}}
    return distributed.SpecCluster(
        scheduler={"cls": Scheduler, "options": {**transport, "port": 0}},
        workers=dict.fromkeys(range(1 if few else compilers), worker),
        security=security,
        silence_logs=logging.WARNING,
    )


def use_private_folder() -> None:
    """Let Dask use a new working folder of this user, which is deleted with this process.

    Dask imports modules from its working folder, whose default is shared by all users of a machine.
    """
    import dask.config

    with writing(Path(tempfile.gettempdir())):
        folder = tempfile.mkdtemp(prefix="mlgokit-dask-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    dask.config.set({"temporary-directory": folder})


def silence_dask() -> None:
    """Turn off Dask's messages and tracebacks in this process: we report a lost connection in one sentence."""
    # Dask gives some of its loggers a level of their own, which that of their parent does not change.
    for name in ("distributed", *logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)


def turn_off_dashboard() -> None:
    """Turn off Dask's measurements for its dashboard, in this process and in workers that it starts.

    Workers look at their own stack a hundred times a second, and at their memory ten times, which is of no use where
    all of them wait for compilers.
    """
    import dask.config

    dask.config.set(
        {
            "distributed.worker.profile.enabled": False,
            "distributed.worker.memory.monitor-interval": "1s",
            "distributed.admin.tick.interval": "1s",
            "distributed.admin.system-monitor.interval": "5s",
            "distributed.scheduler.active-memory-manager.start": False,
        }
    )


def security_of(options: ClusterOptions) -> Any:
    """Make Dask's TLS settings; ``None`` without certificates."""
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


def compile_here(parcel: Parcel) -> Reply:
    """Compile a parcel on the Dask worker that runs this task."""
    from distributed import get_worker

    worker = get_worker()
    seats = seats_of(worker.address, int(worker.state.total_resources.get(COMPILERS, worker.state.nthreads)))
    return compile_parcel(parcel, address=worker.address, seats=seats)
