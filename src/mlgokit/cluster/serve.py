"""A long-lived worker, which joins a scheduler, and rejoins when the scheduler comes back."""

import asyncio
import contextlib
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.connection import COMPILERS, import_dask, security_of, threads_for, use_private_folder
from mlgokit.errors import ToolError
from mlgokit.progress import Report, say_nothing

PAUSE_SECONDS = 2.0
JOIN_SECONDS = 30.0


def serve(
    options: ClusterOptions,
    *,
    threads: int,
    memory_bytes: int | None = None,
    name: str = "",
    report: Report = say_nothing,
) -> None:
    """Work for a scheduler until it is unreachable for ``patience_seconds``.

    A process beside this one does the work, and is started again if it dies.

    Args:
        options: address of the scheduler, and how to connect to it.
        threads: number of simultaneous compilations.
        memory_bytes: memory of the worker and its compilers; the machine's if not given.
        name: name of the worker in Dask's dashboard.
        report: called when a scheduler is joined or lost.

    Raises:
        ToolError: Dask is not installed, or the scheduler did not come back in time.
        UsageError: the scheduler's address is malformed, or the connection would not be safe.
    """
    options.check()
    distributed = import_dask()
    use_private_folder()
    lost = time.monotonic()
    while True:
        try:
            asyncio.run(
                _serve_once(distributed, options, threads=threads, memory=memory_bytes, name=name, report=report)
            )
            joined = True
        # A nanny that fails to start raises a RuntimeError, whose cause is what it met: a scheduler that ended.
        except (OSError, TimeoutError, RuntimeError, asyncio.CancelledError) as error:
            joined = False
            report(0, 1, f"cannot reach {options.scheduler} ({type(error.__cause__ or error).__name__})")
        if joined:
            lost = time.monotonic()
            report(0, 1, f"lost the connection to {options.scheduler}; waiting for it")
        if time.monotonic() - lost > options.patience_seconds:
            raise ToolError(
                f"--scheduler {options.scheduler}: expected a Dask scheduler within {options.patience_seconds:.0f} s, "
                "found none; start it, or correct the address"
            )
        time.sleep(PAUSE_SECONDS)


async def _serve_once(
    distributed: Any, options: ClusterOptions, *, threads: int, memory: int | None, name: str, report: Report
) -> None:
    """Join the scheduler and work until the connection is lost; raise if joining fails."""
    from mlgokit.cluster.nodes import Worker

    scheduler = urlsplit(options.address)
    nanny = distributed.Nanny(
        options.address,
        # A worker listens on all networks, unless it is told.
        host=f"{scheduler.scheme}://{address_towards(scheduler.hostname or '', scheduler.port)}",
        nthreads=threads_for(threads),
        resources={COMPILERS: threads},
        memory_limit="auto" if memory is None else memory,
        name=name or None,
        security=security_of(options),
        worker_class=Worker,
    )
    try:
        await asyncio.wait_for(nanny, JOIN_SECONDS)
        report(1, 1, f"joined {options.scheduler} with {threads} parallel compilers")
        await nanny.finished()
    finally:
        with contextlib.suppress(Exception):
            await nanny.close(timeout=5)


def address_towards(host: str, port: int | None) -> str:
    """Find the address of this machine on the network path to another, formatted for a URL.

    Raises:
        OSError: the host has no address, or cannot be reached.

    Example:
        >>> address_towards("127.0.0.1", 8786)
        '127.0.0.1'
    """
    family, kind, protocol, _, destination = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as way:
        # Nothing is sent.
        way.connect(destination)
        own = str(way.getsockname()[0])
    return f"[{own}]" if family == socket.AF_INET6 else own
