"""Which ways to a cluster are taken."""

import os
from pathlib import Path

import pytest

from mlgokit.cluster.address import ClusterOptions
from mlgokit.commands import worker
from mlgokit.errors import UsageError


def test_a_cluster_of_ones_own_needs_no_tls():
    ClusterOptions(scheduler="local:4").check()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file that only its owner can read."""
    file = tmp_path / "certificate.pem"
    file.touch(0o600)
    return file


def test_the_file_of_a_scheduler_is_taken(certificate: Path, tmp_path: Path):
    file = tmp_path / "scheduler.json"
    file.write_text('{"address": "tls://127.0.0.1:8786"}')
    ClusterOptions(scheduler=str(file), certificate_authority=certificate, certificate=certificate).check()
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    with pytest.raises(UsageError, match="expected TLS, since without it everybody who reaches the scheduler"):
        ClusterOptions(scheduler=str(file)).check()
    file.write_text("damaged")
    with pytest.raises(UsageError, match="the file that a scheduler wrote"):
        ClusterOptions(scheduler=str(file)).check()


@pytest.mark.parametrize(
    ("scheduler", "sentence"),
    [
        ("tcp://10.0.0.1:8786", "expected TLS, since without it everybody who reaches the scheduler"),
        ("tcp://build.example.org:8786", "expected TLS, since without it everybody who reaches the scheduler"),
        ("tcp://127.0.0.1:8786", r"every user of the machine\) can run programs as the user who started its workers"),
        ("tcp://localhost:8786", "local:N, or give --insecure"),
        ("tcp://[::1]:8786", "expected TLS"),
        ("tcp://10.0.0.1", "tcp://host:port"),
        ("tls://10.0.0.1:100000", "tls://host:port"),
        ("tls://[::1:8786", "tls://host:port"),
        ("tls://10.0.0.1:8786", "--tls-authority"),
        ("http://10.0.0.1:8786", "tcp://host:port"),
        ("local:0", "local:N"),
        ("nowhere", "local:N"),
    ],
)
def test_an_invalid_scheduler_address_is_refused(scheduler: str, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        ClusterOptions(scheduler=scheduler).check()


@pytest.mark.parametrize("host", ["10.0.0.1", "127.0.0.1"])
def test_insecure_allows_a_scheduler_without_tls(host: str):
    ClusterOptions(scheduler=f"tcp://{host}:8786", insecure=True).check()


def test_a_certificate_is_for_tls(certificate: Path):
    options = ClusterOptions(scheduler="tcp://10.0.0.1:8786", insecure=True, certificate=certificate)
    with pytest.raises(UsageError, match="expected tls:// with --tls-certificate, found tcp://"):
        options.check()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_key_that_others_can_read_is_refused(certificate: Path, mode: int):
    options = ClusterOptions(
        scheduler="tls://127.0.0.1:8786", certificate_authority=certificate, certificate=certificate
    )
    options.check()
    certificate.chmod(mode)
    with pytest.raises(UsageError, match=rf"other users can read or change the key \(mode {mode:o}\).*run chmod 600"):
        options.check()


def test_a_group_may_read_a_key_that_is_not_ones_own(certificate: Path):
    if os.geteuid() != 0:
        pytest.skip("a file cannot be given to another user; run this test as root")
    os.chown(certificate, 65534, -1)
    certificate.chmod(0o640)
    options = ClusterOptions(
        scheduler="tls://127.0.0.1:8786", certificate_authority=certificate, certificate=certificate
    )
    options.check()
    certificate.chmod(0o644)
    with pytest.raises(UsageError, match=r"the key \(mode 644\)"):
        options.check()


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path):
    missing = tmp_path / "missing.pem"
    options = ClusterOptions(scheduler="tls://127.0.0.1:8786", certificate_authority=missing, certificate=missing)
    with pytest.raises(UsageError, match=r"missing\.pem: expected a file with a certificate and its key, found none"):
        options.check()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (worker.Worker(scheduler="tcp://127.0.0.1:1", threads=0), "--threads"),
        (worker.Worker(scheduler="local:2"), "expected the address of a running scheduler, found local:N"),
        (worker.Worker(scheduler="tcp://10.0.0.1:1"), "TLS"),
    ],
)
def test_a_worker_refuses_the_same_addresses(config: worker.Worker, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        worker.run(config)
