"""Which ways to a cluster are taken."""

from pathlib import Path

import pytest

from mlgokit.cluster.address import ClusterOptions
from mlgokit.commands import worker
from mlgokit.errors import UsageError


@pytest.mark.parametrize("scheduler", ["tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786", "local:4"])
def test_this_machine_needs_no_tls(scheduler: str):
    ClusterOptions(scheduler=scheduler).check()


def test_the_file_of_a_scheduler_is_taken(tmp_path: Path):
    file = tmp_path / "scheduler.json"
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    ClusterOptions(scheduler=str(file)).check()
    file.write_text('{"address": "tcp://10.0.0.1:8786"}')
    with pytest.raises(UsageError, match="expected TLS beyond this machine"):
        ClusterOptions(scheduler=str(file)).check()
    file.write_text("damaged")
    with pytest.raises(UsageError, match="the file that a scheduler wrote"):
        ClusterOptions(scheduler=str(file)).check()


@pytest.mark.parametrize(
    ("scheduler", "sentence"),
    [
        ("tcp://10.0.0.1:8786", "expected TLS beyond this machine"),
        ("tcp://build.example.org:8786", "expected TLS beyond this machine"),
        ("tls://10.0.0.1:8786", "--tls-authority"),
        ("http://10.0.0.1:8786", "tcp://host:port"),
        ("local:0", "local:N"),
        ("nowhere", "local:N"),
    ],
)
def test_anything_else_is_refused(scheduler: str, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        ClusterOptions(scheduler=scheduler).check()


def test_who_asks_for_it_goes_without_tls():
    ClusterOptions(scheduler="tcp://10.0.0.1:8786", insecure=True).check()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (worker.Worker(scheduler="tcp://127.0.0.1:1", threads=0), "--threads"),
        (worker.Worker(scheduler="local:2"), "expected a scheduler to join"),
        (worker.Worker(scheduler="tcp://10.0.0.1:1"), "TLS"),
    ],
)
def test_a_worker_refuses_the_same(config: worker.Worker, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        worker.run(config)
