"""What Dask says in the client's own process."""

import logging

import pytest

from mlgokit.cluster.connection import say_nothing_of_connections


def test_dask_says_nothing_of_lost_connections():
    pytest.importorskip("distributed")
    before = {name: logging.getLogger(name).level for name in ("distributed", "distributed.client")}
    try:
        say_nothing_of_connections()
        assert not logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)
        assert not logging.getLogger("distributed.utils").isEnabledFor(logging.ERROR)
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
