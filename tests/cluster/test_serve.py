"""A worker and a scheduler that does not stay."""

import contextlib
import socket
import threading
from collections.abc import Generator

import pytest

from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.serve import serve
from mlgokit.errors import ToolError

pytest.importorskip("distributed")


@pytest.fixture
def scheduler_that_hangs_up() -> Generator[str]:
    """An address where every connection is closed at once, as by a scheduler that is killed while a worker joins."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(30)


@pytest.mark.timeout(240)
def test_a_worker_waits_for_a_scheduler_that_ends_while_it_joins(scheduler_that_hangs_up: str):
    told: list[str] = []
    options = ClusterOptions(scheduler=scheduler_that_hangs_up, insecure=True, patience_seconds=1)
    with pytest.raises(ToolError, match=r"expected a Dask scheduler within 1 s, found none; start it"):
        serve(options, threads=1, report=lambda _done, _total, text: told.append(text))
    assert told
    assert all("cannot reach" in text for text in told)
