"""What the how-to tells people to type is what it says."""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

pytest.importorskip("distributed")

ROOT = Path(__file__).parents[2]
HOW_TO = (ROOT / "docs/how-to/cluster.md").read_text()
SCHEDULERS = [line for line in HOW_TO.splitlines() if line.startswith("dask scheduler")]
_LOOPBACK = ("0100007F", "0" * 24 + "01000000")


def listening(process: int) -> list[tuple[bool, int]]:
    """Ports on which a process listens, and whether on this machine alone."""
    links = [str(one.readlink()) for one in Path(f"/proc/{process}/fd").iterdir() if one.is_symlink()]
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    found: list[tuple[bool, int]] = []
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            address, port = words[1].split(":")
            if words[3] == "0A" and words[9] in inodes:
                found.append((address in _LOOPBACK, int(port, 16)))
    return found


def wait_until_it_listens(child: subprocess.Popen[bytes], port: int) -> list[tuple[bool, int]]:
    """Its ports, when it has this one."""
    deadline = time.monotonic() + 60
    while child.poll() is None and time.monotonic() < deadline:
        ports = listening(child.pid)
        if any(found == port for _, found in ports):
            return ports
        threading.Event().wait(0.1)
    raise AssertionError(f"expected a process that listens on {port}")


def start(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """A module of Python with words, as a process that leads a group."""
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *words], stdout=output, stderr=output, cwd=folder, start_new_session=True
        )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def started() -> Generator[list[subprocess.Popen[bytes]]]:
    children: list[subprocess.Popen[bytes]] = []
    yield children
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(60)


def test_the_dashboard_of_each_scheduler_in_the_how_to_is_on_loopback():
    assert len(SCHEDULERS) == 2
    assert all("--dashboard-address 127.0.0.1:" in line for line in SCHEDULERS)


@pytest.mark.timeout(120)
def test_nothing_of_the_first_scheduler_listens_beyond_this_machine(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
):
    port, dashboard = free_port(), free_port()
    line = SCHEDULERS[0].replace("--port 8786", f"--port {port}").replace("127.0.0.1:8787", f"127.0.0.1:{dashboard}")
    words = shlex.split(line)[2:]
    started.append(start(["distributed.cli.dask_scheduler", *words], tmp_path))
    ports = wait_until_it_listens(started[0], port)
    assert {port, dashboard} <= {found for _, found in ports}
    assert all(here for here, _ in ports), ports
    (worker,) = re.findall(r"^mlgokit (worker tcp://127\.0\.0\.1:8786)$", HOW_TO, re.MULTILINE)
    started.append(start(["mlgokit", *worker.replace("8786", str(port)).split(), "--threads", "1"], tmp_path))
    deadline, there = time.monotonic() + 60, list[tuple[bool, int]]()
    while not there and time.monotonic() < deadline:
        threading.Event().wait(0.1)
        # The process that works is a child of the one that was started.
        with contextlib.suppress(OSError):
            threads = Path(f"/proc/{started[1].pid}/task").iterdir()
            children = [child for thread in threads for child in (thread / "children").read_text().split()]
            there = [found for child in children for found in listening(int(child))]
    assert there
    assert all(here for here, _ in (*there, *listening(started[1].pid))), there
