"""Processes of a cluster: started, looked at, and what they need to join."""

import contextlib
import ipaddress
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def listening(process: int) -> list[tuple[Address, int]]:
    """Addresses and ports on which a process listens for TCP."""
    links: list[str] = []
    # It may be gone, or close a file meanwhile.
    with contextlib.suppress(FileNotFoundError):
        for one in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                links.append(str(one.readlink()))
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    found: list[tuple[Address, int]] = []
    if not inodes:
        return found
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            address, port = words[1].split(":")
            if words[3] == "0A" and words[9] in inodes:
                # Words of four bytes in the order of the processor, which has the lowest first where this runs.
                packed = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
                found.append((ipaddress.ip_address(packed), int(port, 16)))
    return found


def children_of(process: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError):
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def wait_until(there: Callable[[], bool], what: str) -> None:
    """Look again and again, for two minutes at most."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if there():
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"expected {what} within two minutes")


def wait_until_it_listens(child: subprocess.Popen[bytes], port: int) -> list[tuple[Address, int]]:
    """Where it listens, when this port is among it."""
    wait_until(lambda: any(found == port for _, found in listening(child.pid)), f"a process that listens on {port}")
    return listening(child.pid)


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


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """The files of an authority, and of a certificate with its key."""
    from distributed.security import Security

    made = Security.temporary()
    authority, certificate = folder / "authority.pem", folder / "certificate.pem"
    authority.write_text(made.tls_ca_file)
    with os.fdopen(os.open(certificate, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(made.tls_worker_cert + made.tls_worker_key)
    return authority, certificate
