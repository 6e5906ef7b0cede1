"""`mlgokit worker`: compile for the commands of other machines, by Dask."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlgokit.builds.compilers import WORKERS
from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.serve import serve
from mlgokit.compiler.limits import GIB
from mlgokit.errors import UsageError
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Join a Dask scheduler and compile for its clients; ends when the scheduler is unreachable for too long."""

    scheduler: Annotated[str, tyro.conf.Positional]
    """Dask scheduler to join, as tls://host:port, tcp://host:port, or the path of the file that the scheduler wrote."""
    threads: int = WORKERS
    """Number of compilers that run at once."""
    memory_limit_gib: float | None = None
    """Memory of the worker and its compilers together, in GiB; the machine's if not given."""
    name: str = ""
    """Name of this worker in Dask's dashboard."""
    insecure: bool = False
    """Join a scheduler without TLS, where whoever reaches it is trusted: on 127.0.0.1 each user of the machine."""
    tls_authority: Path | None = None
    """With tls://: certificate file of the authority that signed the certificates."""
    tls_certificate: Path | None = None
    """With tls://: file with the certificate and private key of this machine."""
    scheduler_patience_seconds: float = 600.0
    """Seconds after which an unreachable scheduler ends the worker."""


def run(config: Worker, *, report: Report = say_nothing) -> dict[str, Any]:
    """Compile for a scheduler until it is unreachable for too long.

    Raises:
        ToolError: the scheduler is unreachable for too long, or Dask is not installed.
        UsageError: the call contradicts itself, or the way there is not safe.
    """
    if config.threads < 1:
        raise UsageError(f"--threads: expected at least one, found {config.threads}; correct it")
    options = cluster_of(config)
    if options.local_workers:
        raise UsageError(
            f"mlgokit worker {config.scheduler}: expected the address of a running scheduler, found local:N, which "
            "starts its own workers; name a scheduler"
        )
    memory = config.memory_limit_gib
    serve(
        options,
        threads=config.threads,
        memory_bytes=None if memory is None else int(memory * GIB),
        name=config.name,
        report=report,
    )
    return dataclasses.asdict(config)


def cluster_of(config: Worker) -> ClusterOptions:
    """The cluster to join, unchecked."""
    return ClusterOptions(
        scheduler=config.scheduler,
        insecure=config.insecure,
        certificate_authority=config.tls_authority,
        certificate=config.tls_certificate,
        patience_seconds=config.scheduler_patience_seconds,
    )
