"""A Dask cluster on this machine: a scheduler and workers as processes, which tests start and end."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.cluster.address import ClusterOptions
from mlgokit.cluster.compiler import ClusterCompiler, open_cluster
from mlgokit.compiler.compile import ClangCompiler


@dataclass
class Cluster:
    """A scheduler and its workers, as processes."""

    folder: Path
    port: int
    host: str = "127.0.0.1"
    tls: tuple[Path, Path] | None = None
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def scheduler(self) -> str:
        return f"{'tls' if self.tls else 'tcp'}://{self.host}:{self.port}"

    @property
    def options(self) -> ClusterOptions:
        authority, certificate = self.tls or (None, None)
        return ClusterOptions(
            scheduler=self.scheduler,
            insecure=self.tls is None,
            certificate_authority=authority,
            certificate=certificate,
            patience_seconds=60,
        )

    def start(self, *words: str, inside: Sequence[str] = (), **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{len(self.children)}.txt").open("wb") as output:
            child = subprocess.Popen(
                [*inside, sys.executable, *words],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": str(self.folder), **environment},
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        secret = []
        if self.tls:
            authority, certificate = map(str, self.tls)
            secret = ["--tls-ca-file", authority, "--tls-cert", certificate, "--tls-key", certificate]
        words = ("--host", self.scheduler.rpartition(":")[0], "--port", str(self.port), "--no-dashboard")
        # Without a dashboard it serves HTTP all the same.
        return self.start("-m", "distributed.cli.dask_scheduler", *words, "--dashboard-address", "127.0.0.1:0", *secret)

    def start_worker(self, *words: str, inside: Sequence[str] = (), **environment: str) -> subprocess.Popen[bytes]:
        cache = self.folder / f"cache-{len(self.children)}"
        files = ("--tls-authority", str(self.tls[0]), "--tls-certificate", str(self.tls[1])) if self.tls else ()
        command = ("-m", "mlgokit", "worker", self.scheduler, "--threads", "1", "--memory-limit-gib", "4")
        return self.start(
            *command, *words, *(files or ("--insecure",)), inside=inside, XDG_CACHE_HOME=str(cache), **environment
        )

    def end(self, child: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        child.wait(30)


@contextlib.contextmanager
def opened(cluster: Cluster, here: ClangCompiler, told: list[str] | None = None) -> Generator[ClusterCompiler]:
    compiler = open_cluster(
        here, cluster.options, report=lambda _, __, text: None if told is None else told.append(text)
    )
    try:
        yield compiler
    finally:
        compiler.close()
