"""Other users of this machine: none of them gets anything run, and nothing listens but what is asked for."""

import contextlib
import ipaddress
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.processes import (
    children_of,
    free_port,
    listening,
    make_certificate,
    start,
    wait_until_it_listens,
)

from mlgokit.cluster import connection
from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.connection import open_client, security_of
from mlgokit.cluster.serve import address_towards

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.timeout(300)

NOBODY = 65534
_INTRUDER = Path(__file__).with_name("intruder.py")
_OPERATIONS = {"scheduler": "run_function", "nanny": "run", "worker": "run"}


def nodes_of(client: Any) -> dict[str, str]:
    """The addresses of the scheduler, of a worker and of its nanny."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    worker = next(iter(workers))
    return {"scheduler": client.scheduler.address, "worker": worker, "nanny": workers[worker]["nanny"]}


def assert_only_the_key_gets_in(nodes: dict[str, str], key: Path, folder: Path) -> None:
    """Another user gets nothing run without TLS, without a certificate or with a foreign one, and does with the key."""
    if os.geteuid() != 0:
        pytest.skip("no other user can be taken; run this test as root")
    folder.mkdir()
    canaries = folder / "canaries"
    canaries.mkdir()
    _, foreign = make_certificate(folder)
    targets = [(address, _OPERATIONS[node], str(canaries / node)) for node, address in nodes.items()]
    given = {"uid": NOBODY, "certificates": [None, str(foreign), str(key)], "targets": targets}
    done = subprocess.run(
        [sys.executable, _INTRUDER], input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.keys() == set(nodes.values())
    for plain, *with_tls in said.values():
        assert plain.startswith("refused: ")
        assert with_tls == [
            "refused: TLSV13_ALERT_CERTIFICATE_REQUIRED",
            "refused: TLSV1_ALERT_UNKNOWN_CA",
            "ran",
        ]
    assert {one.name for one in canaries.iterdir()} == {f"{node}3" for node in nodes}


def test_few_local_compilers_listen_nowhere():
    before = listening(os.getpid())
    client, cluster = open_client(ClusterOptions(scheduler="local:2"), threading.Event())
    try:
        assert client.submit(os.getpid).result() == os.getpid()
        assert listening(os.getpid()) == before
    finally:
        client.close()
        cluster.close()


def test_more_local_compilers_serve_their_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Every worker is a process that imports Dask.
    monkeypatch.setattr(connection, "MOST_HERE", 1)
    count = 2
    before, others = listening(os.getpid()), set(children_of(os.getpid()))
    client, cluster = open_client(ClusterOptions(scheduler=f"local:{count}"), threading.Event())
    try:
        client.wait_for_workers(count, timeout=120)
        workers = client.run(os.getpid).values()
        assert {process for process in children_of(os.getpid()) if listening(process)} - others == set(workers)
        ports = [port for process in workers for port in listening(process)]
        assert len(ports) == count
        # The scheduler, and a nanny for each worker.
        here = [port for port in listening(os.getpid()) if port not in before]
        assert len(here) == 1 + count
        assert all(address.is_loopback for address, _ in (*here, *ports))
        canary = tmp_path / "of-the-owner"
        client.submit(canary.touch).result()
        assert canary.exists()
        key = tmp_path / "key.pem"
        key.write_text(cluster.security.tls_worker_cert + cluster.security.tls_worker_key)
        assert_only_the_key_gets_in(nodes_of(client), key, tmp_path / "canaries")
    finally:
        client.close()
        cluster.close()


def address_here(*, is_loopback: bool) -> str:
    """An address of this machine."""
    with contextlib.suppress(OSError):
        # A host of examples that nobody has; nothing is sent.
        found = address_towards("127.0.0.1" if is_loopback else "198.51.100.1", 9)
        if ipaddress.ip_address(found).is_loopback is is_loopback:
            return found
    pytest.skip("this machine has no network; give it one")


@pytest.mark.parametrize("is_loopback", [True, False])
def test_a_worker_serves_only_who_has_the_key(
    started: list[subprocess.Popen[bytes]], tmp_path: Path, is_loopback: bool
):
    host = address_here(is_loopback=is_loopback)
    authority, certificate = make_certificate(tmp_path)
    port = free_port()
    secret = ["--tls-ca-file", str(authority), "--tls-cert", str(certificate), "--tls-key", str(certificate)]
    words = ["--host", f"tls://{host}", "--port", str(port), "--dashboard-address", "127.0.0.1:0", *secret]
    started.append(start(["distributed.cli.dask_scheduler", *words], tmp_path))
    wait_until_it_listens(started[0], port)
    options = ClusterOptions(scheduler=f"tls://{host}:{port}", certificate_authority=authority, certificate=certificate)
    files = ["--tls-authority", str(authority), "--tls-certificate", str(certificate)]
    started.append(start(["mlgokit", "worker", options.scheduler, "--threads", "1", *files], tmp_path))
    with distributed.Client(options.scheduler, security=security_of(options), set_as_default=False) as client:
        client.wait_for_workers(1, timeout=120)
        (process,) = client.run(os.getpid).values()
        assert [str(address) for one in (started[1].pid, process) for address, _ in listening(one)] == [host, host]
        assert [one for one in children_of(started[1].pid) if listening(one)] == [process]
        canary = tmp_path / "of-the-owner"
        client.submit(canary.touch).result()
        assert canary.exists()
        assert_only_the_key_gets_in(nodes_of(client), certificate, tmp_path / "canaries")


def test_dask_imports_from_no_folder_of_others():
    client, cluster = open_client(ClusterOptions(scheduler="local:2"), threading.Event())
    try:
        folders = [Path(one) for one in sys.path if "dask-scratch-space" in one]
        assert folders
        assert all(any(not above.stat().st_mode & 0o077 for above in one.parents if above.exists()) for one in folders)
    finally:
        client.close()
        cluster.close()
