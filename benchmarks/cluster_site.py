"""The processes of a cluster on this machine, and what is done to them while a training uses them."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.errors import UsageError

LOOK_SECONDS = 0.02
AWAY_SECONDS = 3.0
"""How long the scheduler stays away."""
FULL_SECONDS = 45.0
"""How long the disk stays full, unless everything breaks for a few minutes only."""
DISK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """What is broken, how often, and for how long.

    Attributes:
        seconds: from the beginning of the training, in which things break.
        kill_every: seconds between two kills of a worker.
        scheduler_kills: how often the scheduler is killed, at equal distances.
        killed_share: compilers that are killed.
        hung_share: compilers that are stopped, and never go on.
        seed: of the draws.
    """

    seconds: float
    kill_every: float
    scheduler_kills: int
    killed_share: float
    hung_share: float
    seed: int


def plan(breakage: Breakage) -> list[tuple[float, str]]:
    """What happens to machines and to the disk, and after how many seconds, in order.

    The disk is filled at a random time in the middle third.

    Example:
        >>> few = Breakage(seconds=90, kill_every=20, scheduler_kills=1, killed_share=0, hung_share=0, seed=1)
        >>> found = plan(few)
        >>> [what for _, what in found].count("worker"), (45.0, "scheduler away") in found
        (4, True)
        >>> (full,) = [second for second, what in found if what == "disk full"]
        >>> 30 <= full <= 60
        True
    """
    whole = breakage.seconds
    full = float(np.random.default_rng([breakage.seed, 1]).uniform(whole / 3, 2 * whole / 3))
    kills = int(whole / breakage.kill_every)
    away = [whole * (index + 1) / (breakage.scheduler_kills + 1) for index in range(breakage.scheduler_kills)]
    planned: list[tuple[float, str]] = [((index + 1) * breakage.kill_every, "worker") for index in range(kills)]
    planned += [(second, "scheduler away") for second in away]
    planned += [(second + AWAY_SECONDS, "scheduler back") for second in away]
    planned += [(full, "disk full"), (full + min(FULL_SECONDS, whole / 6), "disk free")]
    return sorted(planned)


@dataclass(slots=True, kw_only=True, eq=False)
class Site:
    """A scheduler, workers of one thread each, and what is done to them.

    Attributes:
        breakage: what is to happen.
        workers: how many.
        folder: where their output and their caches go.
        port: of the scheduler.
        disk: temporary files of the workers.
        counts: what was done, by name.
    """

    breakage: Breakage
    workers: int
    folder: Path
    port: int
    disk: Path
    counts: Counter[str] = field(default_factory=Counter[str])
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])
    _over: threading.Event = field(default_factory=threading.Event)
    _is_free: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def open(self) -> None:
        """Start all processes."""
        self._is_free.set()
        for name in ("scheduler", *(f"worker-{index}" for index in range(self.workers))):
            self.start(name)

    def begin(self) -> None:
        """Break things from now on, on time, whatever else happens."""
        for work in (self._break_compilers, self._break_machines):
            self._threads.append(threading.Thread(target=work))
            self._threads[-1].start()

    def wait_for_room(self) -> bool:
        """Wait until the disk is not full, if it is; whether that came."""
        return self._is_free.wait(10 * FULL_SECONDS)

    def start(self, name: str) -> None:
        """Start the scheduler, or a worker."""
        address = f"tcp://127.0.0.1:{self.port}"
        words = ["-m", "mlgokit", "worker", address, "--insecure", "--threads", "1", "--name", name]
        if name == "scheduler":
            words = ["-m", "distributed.cli.dask_scheduler", "--host", "tcp://127.0.0.1", "--port", str(self.port)]
            words += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        with self._output(name).open("ab") as output:
            self._children[name] = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "TMPDIR": str(self.disk),
                    "XDG_CACHE_HOME": str(self.folder.absolute() / "caches" / name),
                },
                start_new_session=True,
            )

    def kill(self, name: str) -> bool:
        """End it as a power cut would: itself, and what it started; whether it was still there."""
        child = self._children.pop(name)
        alive = child.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(60)
        return alive

    def stop(self) -> None:
        """Stop breaking, and count what the workers have said of the disk."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        if self._threads:
            said = [path.read_text(errors="replace") for path in self.folder.glob("worker-*.txt")]
            lines = sum(text.count("No space left on device") for text in said)
            self.counts["workers' lines about a full disk"] = lines
            self._threads.clear()

    def close(self) -> None:
        """Stop breaking, and end all processes."""
        self.stop()
        for name in list(self._children):
            self.kill(name)

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    def _break_machines(self) -> None:
        begin, turn = time.monotonic(), 0
        try:
            for second, what in plan(self.breakage):
                if self._over.wait(max(0.0, begin + second - time.monotonic())):
                    return
                if what == "worker":
                    self._renew(f"worker-{turn % self.workers}", "workers")
                    turn += 1
                elif what == "scheduler away":
                    self._kill_counted("scheduler", "schedulers")
                elif what == "scheduler back":
                    self.start("scheduler")
                elif what == "disk full":
                    self._fill()
                else:
                    self._empty()
        finally:
            self._empty()

    def _renew(self, name: str, kind: str) -> None:
        self._kill_counted(name, kind)
        self.start(name)

    def _kill_counted(self, name: str, kind: str) -> None:
        """Kill, and count it, or that it had ended by itself."""
        full = "" if self._is_free.is_set() else ", while the disk was full"
        self.counts[f"{kind} killed" if self.kill(name) else f"{kind} that had ended by themselves{full}"] += 1

    def _fill(self) -> None:
        self._is_free.clear()
        with contextlib.suppress(OSError), (self.disk / "full").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        if os.statvfs(self.disk).f_bavail * os.statvfs(self.disk).f_frsize < DISK_BYTES // 100:
            self.counts["disks filled"] += 1

    def _empty(self) -> None:
        (self.disk / "full").unlink(missing_ok=True)
        self._is_free.set()

    def _break_compilers(self) -> None:
        """Kill or stop a share of the compilers, as they appear."""
        rng, seen = np.random.default_rng(self.breakage.seed), set[tuple[int, str]]()
        ours, end = f"TMPDIR={self.disk}".encode(), time.monotonic() + self.breakage.seconds
        killed, hung = self.breakage.killed_share, self.breakage.hung_share
        while time.monotonic() < end and not self._over.wait(LOOK_SECONDS):
            for entry in Path("/proc").iterdir():
                if not entry.name.isdecimal():
                    continue
                # It may end at any time.
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if len(words) < 2 or not words[0].endswith(b"clang") or words[1] != b"-cc1":
                        continue
                    process = int(entry.name), began(entry)
                    if process in seen or ours not in (entry / "environ").read_bytes():
                        continue
                    seen.add(process)
                    self.counts["compilers seen"] += 1
                    drawn = rng.random()
                    if drawn < killed:
                        os.kill(process[0], signal.SIGKILL)
                        self.counts["compilers killed"] += 1
                    elif drawn < killed + hung:
                        os.kill(process[0], signal.SIGSTOP)
                        self.counts["compilers stopped"] += 1


def began(process: Path) -> str:
    """When a process began, in ticks since the machine did: numbers of processes come again."""
    return (process / "stat").read_text().rpartition(")")[2].split()[19]


@contextlib.contextmanager
def small_disk(place: Path) -> Generator[Path]:
    """A disk of its own, so that filling it fills no other.

    Raises:
        UsageError: none can be mounted.
    """
    place.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        raise UsageError(
            f"{place}: expected the right to mount a disk, found {done.stderr.decode().strip()}; run it as root"
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=False)
