"""The client's side of Dask: a cluster of its own, and what Dask says there."""

import logging
import os
import threading
from concurrent.futures import CancelledError

import pytest

from mlgokit.cluster import connection
from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.connection import COMPILERS, open_client, silence_dask


@pytest.mark.parametrize(("count", "is_here"), [(2, True), (3, False)])
def test_few_local_compilers_need_no_worker_process(count: int, is_here: bool, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("distributed")
    # Every worker is a process that imports Dask.
    monkeypatch.setattr(connection, "MOST_HERE", 2)
    client, cluster = open_client(ClusterOptions(scheduler=f"local:{count}"), threading.Event())
    try:
        client.wait_for_workers(1 if is_here else count, timeout=120)
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert sum(worker["resources"][COMPILERS] for worker in workers) == count
        assert all(worker["nthreads"] > worker["resources"][COMPILERS] for worker in workers)
        processes = set(client.run(os.getpid).values())
        assert (processes == {os.getpid()}) is is_here
        assert len(processes) == (1 if is_here else count)
    finally:
        client.close()
        cluster.close()


def test_who_was_stopped_does_not_try_to_connect(monkeypatch: pytest.MonkeyPatch):
    distributed = pytest.importorskip("distributed")
    # All threads of a run wait for one connection, and each would try for ten seconds before it saw the interrupt.
    monkeypatch.setattr(distributed, "Client", lambda *_, **__: pytest.fail("it tried"))
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(CancelledError):
        open_client(ClusterOptions(scheduler="tcp://127.0.0.1:9", insecure=True), stopped)


def test_dask_says_nothing_of_lost_connections():
    pytest.importorskip("distributed")
    before = {name: logging.getLogger(name).level for name in ("distributed", "distributed.client")}
    try:
        silence_dask()
        assert not logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)
        assert not logging.getLogger("distributed.utils").isEnabledFor(logging.ERROR)
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
