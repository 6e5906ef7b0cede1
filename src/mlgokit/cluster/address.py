"""The address of a cluster, and checks that the connection to it is safe."""

import contextlib
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from mlgokit.errors import UsageError

LOCAL = re.compile(r"local:([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """A cluster, and how to connect to it.

    Attributes:
        scheduler: ``tls://host:port`` or ``tcp://host:port`` of a Dask scheduler, a file that it wrote, or
            ``local:N`` for N compilers on this machine.
        insecure: whether connections may go without TLS.
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
        """The number of compilers N of ``local:N``; 0 if a scheduler is named.

        Example:
            >>> ClusterOptions(scheduler="local:8").local_workers
            8
        """
        match = LOCAL.fullmatch(self.scheduler)
        return int(match[1]) if match else 0

    @property
    def address(self) -> str:
        """The scheduler's address, read from the scheduler's own file if one is named."""
        if "://" in self.scheduler or not Path(self.scheduler).is_file():
            return self.scheduler
        try:
            return str(json.loads(Path(self.scheduler).read_bytes())["address"])
        except (OSError, ValueError, KeyError, TypeError):
            return self.scheduler

    def check(self) -> None:
        """Refuse an address that is malformed, or a connection that is not safe.

        Raises:
            UsageError: the address is malformed, TLS lacks its files or others can read the key, or there is no TLS
                without ``insecure``.
        """
        if self.local_workers:
            return
        parts = _address_parts(self.address)
        if parts is None:
            raise UsageError(
                f"--scheduler {self.scheduler}: expected tls://host:port, tcp://host:port, the file that a "
                "scheduler wrote, or local:N for N compilers on this machine; correct it"
            )
        if parts.scheme == "tcp":
            if not self.insecure:
                raise UsageError(
                    f"--scheduler {self.scheduler}: expected TLS, since without it everybody who reaches the scheduler "
                    "(on 127.0.0.1 every user of the machine) can run programs as the user who started its "
                    "workers; use tls:// or local:N, or give --insecure if you trust them all"
                )
            if self.certificate is not None:
                raise UsageError(
                    f"--scheduler {self.scheduler}: expected tls:// with --tls-certificate, found tcp://; correct one"
                )
            return
        if self.certificate_authority is None or self.certificate is None:
            raise UsageError(
                f"--scheduler {self.scheduler}: expected the files of the certificates for TLS, found none; give "
                "--tls-authority and --tls-certificate"
            )
        _check_key(self.certificate)


def _address_parts(address: str) -> SplitResult | None:
    """Parse ``tls://host:port`` or ``tcp://host:port``; ``None`` for anything else."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(address)
        if parts.scheme in {"tcp", "tls"} and parts.hostname and parts.port:
            return parts
    return None


def _check_key(certificate: Path) -> None:
    """Refuse a private key that others can read; the group may read a key of another owner, which is deliberate."""
    try:
        status = certificate.stat()
    except OSError as error:
        raise UsageError(
            f"--tls-certificate {certificate}: expected a file with a certificate and its key, found none "
            f"({error.strerror}); correct it"
        ) from error
    if status.st_mode & (0o077 if status.st_uid == os.geteuid() else 0o007):
        raise UsageError(
            f"--tls-certificate {certificate}: other users can read or change the key (mode "
            f"{stat.S_IMODE(status.st_mode):03o}), and whoever has it can join the cluster; run chmod 600 "
            f"{certificate}, and make a new key if others use this machine"
        )
