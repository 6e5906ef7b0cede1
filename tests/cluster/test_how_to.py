"""What the how-to tells people to type is what it says."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cluster.processes import Address, children_of, free_port, listening, start, wait_until, wait_until_it_listens

pytest.importorskip("distributed")

ROOT = Path(__file__).parents[2]
HOW_TO = (ROOT / "docs/how-to/cluster.md").read_text()
SCHEDULERS = [line for line in HOW_TO.splitlines() if line.startswith("dask scheduler")]


def test_the_schedulers_of_the_how_to_ask_for_certificates_and_have_the_dashboard_on_loopback():
    assert len(SCHEDULERS) == 2
    assert all("--dashboard-address 127.0.0.1:" in line for line in SCHEDULERS)
    assert all("--host tls://" in line and "--tls-ca-file" in line for line in SCHEDULERS)


@pytest.mark.timeout(300)
def test_nothing_of_the_first_scheduler_listens_beyond_this_machine(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there; install it")
    (commands,) = re.findall(r"^umask 077\n(?:openssl|cat) .*\n(?:openssl|cat) .*$", HOW_TO, re.MULTILINE)
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert [one.name for one in tmp_path.iterdir() if one.stat().st_mode & 0o077] == []
    port, dashboard = free_port(), free_port()
    line = SCHEDULERS[0].replace("--port 8786", f"--port {port}").replace("127.0.0.1:8787", f"127.0.0.1:{dashboard}")
    words = shlex.split(line)[2:]
    started.append(start(["distributed.cli.dask_scheduler", *words], tmp_path))
    ports = wait_until_it_listens(started[0], port)
    assert {port, dashboard} <= {found for _, found in ports}
    assert all(address.is_loopback for address, _ in ports), ports
    (worker,) = re.findall(r"^mlgokit (worker tls://127\.0\.0\.1:8786 .*)$", HOW_TO, re.MULTILINE)
    started.append(start(["mlgokit", *worker.replace("8786", str(port)).split(), "--threads", "1"], tmp_path))

    def at_work() -> list[tuple[Address, int]]:
        # The process that works is a child of the one that was started.
        pids = [started[1].pid, *children_of(started[1].pid)]
        return [found for pid in pids for found in listening(pid)]

    wait_until(lambda: len(at_work()) == 2, "a worker and its nanny that listen")
    there = at_work()
    assert all(address.is_loopback for address, _ in there), there
    assert len(there) == 2
