"""A cluster of this machine whose workers are processes of their own, as those of ``mlgokit worker`` are."""

import contextlib
from collections.abc import Generator
from typing import Any

import distributed

from mlgokit.cluster.connection import COMPILERS, be_quiet, threads_for


@contextlib.contextmanager
def worker_processes(count: int, *, compilers: int) -> Generator[str]:
    """The address of a scheduler in this process with ``count`` workers, which run so many compilers each.

    A local cluster of few compilers has no such processes (:mod:`mlgokit.cluster.connection`).
    """
    be_quiet()
    made: Any = distributed.LocalCluster(
        n_workers=count,
        threads_per_worker=threads_for(compilers),
        resources={COMPILERS: compilers},
        processes=True,
        dashboard_address="127.0.0.1:0",
    )
    with made as cluster:
        yield cluster.scheduler_address
