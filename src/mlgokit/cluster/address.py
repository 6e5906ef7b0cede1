"""Where a cluster is, and whether the way there is safe."""

import ipaddress
import json
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mlgokit.errors import UsageError

LOCAL = re.compile(r"local:([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """A cluster, and how it is reached.

    Attributes:
        scheduler: ``tls://host:port`` or ``tcp://host:port`` of a Dask scheduler, a file that it wrote, or
            ``local:N`` for N compilers on this machine.
        insecure: whether a connection beyond this machine may go without TLS.
        certificate_authority: file of the authority that signed the certificates.
        certificate: file with the certificate and key of this machine.
        patience_seconds: how long to wait for a scheduler, or for a worker, that is not there.
    """

    scheduler: str
    insecure: bool = False
    certificate_authority: Path | None = None
    certificate: Path | None = None
    patience_seconds: float = 600.0

    @property
    def local_workers(self) -> int:
        """The N of ``local:N``; 0 for a scheduler.

        Example:
            >>> ClusterOptions(scheduler="local:8").local_workers
            8
        """
        found = LOCAL.fullmatch(self.scheduler)
        return int(found[1]) if found else 0

    @property
    def address(self) -> str:
        """The scheduler's address, from its file if it is one."""
        if "://" in self.scheduler or not Path(self.scheduler).is_file():
            return self.scheduler
        try:
            return str(json.loads(Path(self.scheduler).read_bytes())["address"])
        except (OSError, ValueError, KeyError, TypeError):
            return self.scheduler

    def check(self) -> None:
        """Refuse what cannot be reached, or is not safe.

        Raises:
            UsageError: the scheduler is none, TLS lacks its files, or there is none beyond this machine.
        """
        if self.local_workers:
            return
        place = urlsplit(self.address)
        if place.scheme not in {"tcp", "tls"} or not place.hostname:
            raise UsageError(
                f"--scheduler {self.scheduler}: expected tls://host:port, tcp://host:port, the file that a "
                "scheduler wrote, or local:N for N compilers on this machine; correct it"
            )
        if place.scheme == "tls" and (self.certificate_authority is None or self.certificate is None):
            raise UsageError(
                f"--scheduler {self.scheduler}: expected the files of the certificates for TLS, found none; give "
                "--tls-authority and --tls-certificate"
            )
        if place.scheme == "tcp" and not is_loopback(place.hostname) and not self.insecure:
            raise UsageError(
                f"--scheduler {self.scheduler}: expected TLS beyond this machine, as whoever reaches a scheduler "
                "without it can run programs on all its workers; use tls://, or give --insecure in a trusted network"
            )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
