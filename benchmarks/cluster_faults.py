"""Training on a cluster in which workers, the scheduler, compilers and a disk break; is the policy the same?"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.errors import MlgokitError, StorageError, UsageError
from mlgokit.files import digest_file

LOOK_SECONDS = 0.02
FULL_SECONDS = 20.0
"""How long the disk stays full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFaults:
    """Train with threads, and on a cluster whose parts are killed; compare the policies and what was counted."""

    corpus: Path = Path("quickstart/corpus")
    """What is trained on."""
    compilations: int = 1500
    """Of each training, a budget in compilations."""
    workers: int = 4
    """Workers of the cluster, of one thread each."""
    kill_every: float = 20.0
    """Seconds between two kills of a worker."""
    scheduler_kills: int = 2
    """How often the scheduler is killed and started again."""
    killed_share: float = 0.02
    """Compilers that are killed."""
    hung_share: float = 0.01
    """Compilers that are stopped, and never go on."""
    minutes: float = 30.0
    """How long everything breaks; the rest of the training is left in peace."""
    folder: Path = Path("build/cluster-faults")
    """Where both trainings are kept."""
    seed: int = 1
    """Of the training, and of what is killed."""
    json: Path = Path("docs/results/cluster_faults.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(slots=True, kw_only=True, eq=False)
class Site:
    """The processes of the cluster, and what is done to them.

    Attributes:
        config: what is to happen.
        port: of the scheduler.
        disk: temporary files of the workers.
        counts: what was done, by name.
    """

    config: ClusterFaults
    port: int
    disk: Path
    counts: Counter[str] = field(default_factory=Counter[str])
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    def start(self, name: str) -> None:
        """Start the scheduler, or a worker."""
        address = f"tcp://127.0.0.1:{self.port}"
        words = ["-m", "mlgokit", "worker", address, "--threads", "1", "--name", name]
        if name == "scheduler":
            words = ["-m", "distributed.cli.dask_scheduler", "--host", "tcp://127.0.0.1", "--port", str(self.port)]
            words += ["--no-dashboard", "--no-show"]
        cache = self.config.folder.absolute() / "caches" / name
        with (self.config.folder / f"{name}.txt").open("ab") as output:
            self._children[name] = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "TMPDIR": str(self.disk), "XDG_CACHE_HOME": str(cache)},
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End it as a power cut would: itself, and what it started."""
        child = self._children.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(60)

    def break_compilers(self, over: threading.Event) -> None:
        """Kill or stop a share of the compilers, as they appear."""
        rng, seen = np.random.default_rng(self.config.seed), set[int]()
        ours = f"TMPDIR={self.disk}".encode()
        while not over.is_set():
            for entry in Path("/proc").iterdir():
                if not entry.name.isdecimal() or (process := int(entry.name)) in seen:
                    continue
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if len(words) < 2 or not words[0].endswith(b"clang") or words[1] != b"-cc1":
                        continue
                    if ours not in (entry / "environ").read_bytes():
                        continue
                    seen.add(process)
                    drawn = rng.random()
                    if drawn < self.config.killed_share:
                        os.kill(process, signal.SIGKILL)
                        self.counts["compilers killed"] += 1
                    elif drawn < self.config.killed_share + self.config.hung_share:
                        os.kill(process, signal.SIGSTOP)
                        self.counts["compilers stopped"] += 1
            self.counts["compilers seen"] = len(seen)
            time.sleep(LOOK_SECONDS)

    def break_machines(self, over: threading.Event) -> None:
        """Kill workers in turn, the scheduler at equal distances, and fill the disk half-way."""
        begin, turn, whole = time.monotonic(), 0, 60 * self.config.minutes
        schedulers = [
            whole * (index + 1) / (self.config.scheduler_kills + 1) for index in range(self.config.scheduler_kills)
        ]
        full = False
        while not over.wait(self.config.kill_every):
            spent = time.monotonic() - begin
            if spent > whole:
                return
            if schedulers and spent > schedulers[0]:
                schedulers.pop(0)
                self.kill("scheduler")
                time.sleep(3)
                self.start("scheduler")
                self.counts["schedulers killed"] += 1
            if not full and spent > whole / 2:
                full = True
                self.fill()
            name = f"worker-{turn % self.config.workers}"
            turn += 1
            self.kill(name)
            self.start(name)
            self.counts["workers killed"] += 1

    def fill(self) -> None:
        """Fill the disk of the workers' temporary files for a while."""
        place = self.disk / "full"
        with contextlib.suppress(OSError), place.open("wb") as file:
            while file.write(bytes(1 << 20)):
                file.flush()
        time.sleep(FULL_SECONDS)
        place.unlink(missing_ok=True)
        self.counts["disks filled"] += 1

    def close(self) -> None:
        """End all processes."""
        for name in list(self._children):
            self.kill(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ClusterFaults, measure, arguments)


def measure(config: ClusterFaults, setup: Setup) -> Result:
    """Train both ways and compare."""
    setup.toolchain(None)
    setup.corpus(config.corpus)
    shutil.rmtree(config.folder, ignore_errors=True)
    config.folder.mkdir(parents=True)
    setup.report(0, 2, "trainings")
    alone = train(config, "threads", [])
    setup.report(1, 2, "trainings")
    with disk_for(config) as disk:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        site = Site(config=config, port=port, disk=disk)
        over = threading.Event()
        breaking = [
            threading.Thread(target=site.break_compilers, args=(over,)),
            threading.Thread(target=site.break_machines, args=(over,)),
        ]
        try:
            for name in ("scheduler", *(f"worker-{index}" for index in range(config.workers))):
                site.start(name)
            for thread in breaking:
                thread.start()
            there = train(config, "cluster", ["--scheduler", f"tcp://127.0.0.1:{port}"], counts=site.counts)
        finally:
            over.set()
            for thread in breaking:
                if thread.is_alive():
                    thread.join(2 * config.kill_every + FULL_SECONDS)
            site.close()
    return summarise(alone, there, site.counts)


@contextlib.contextmanager
def disk_for(config: ClusterFaults) -> Generator[Path]:
    """A small disk of its own, so that filling it fills no other.

    Raises:
        UsageError: none can be mounted.
    """
    place = (config.folder / "disk").absolute()
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        raise UsageError(
            f"{place}: expected the right to mount a disk, found {done.stderr.decode().strip()}; run it as root"
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=False)


def train(config: ClusterFaults, name: str, words: Sequence[str], counts: Counter[str] | None = None) -> dict[str, Any]:
    """Train, and start again where a full disk ended it, as its sentence says.

    Raises:
        MlgokitError: it ends in another way.
    """
    output = config.folder / name
    command = [sys.executable, "-m", "mlgokit", "train", "--corpus", str(config.corpus), "--output", str(output)]
    command += ["--compilations", str(config.compilations), "--seed", str(config.seed), *words]
    begin = time.monotonic()
    while True:
        with (config.folder / f"{name}.txt").open("ab") as file:
            done = subprocess.run(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, check=False)
        if done.returncode == StorageError.exit_code and counts is not None:
            counts["ended by a full disk"] += 1
            time.sleep(FULL_SECONDS)
            continue
        if done.returncode:
            raise MlgokitError(
                f"{config.folder / name}.txt: expected a training that ends, found {done.returncode}; read it"
            )
        break
    counters = json.loads((output / "metrics.json").read_bytes())["counters"]
    return {
        "policy": digest_file(output / "final.policy"),
        "minutes": (time.monotonic() - begin) / 60,
        **{key: counters[key] for key in ("turn", "compilations", "failed")},
    }


def summarise(alone: dict[str, Any], there: dict[str, Any], counts: Counter[str]) -> Result:
    """Both trainings beside each other, and what was broken."""
    same = [key for key in ("policy", "turn", "compilations", "failed") if alone[key] == there[key]]
    passed = len(same) == 4
    rows: list[tuple[Cell, ...]] = [
        (key, *((value[:16] if isinstance(value := one[key], str) else round(value, 1)) for one in (alone, there)))
        for key in ("policy", "turn", "compilations", "failed", "minutes")
    ]
    return Result(
        benchmark="cluster_faults",
        question="Is a policy that is trained on a cluster in which everything breaks the one that threads train?",
        answer=f"{'the same policy, byte for byte' if 'policy' in same else 'another policy'}, "
        f"{'as many compilations counted' if 'compilations' in same else 'another number of compilations counted'}: "
        f"{counts['workers killed']} workers and {counts['schedulers killed']} schedulers were killed, "
        f"{counts['compilers killed']} compilers killed and {counts['compilers stopped']} stopped, the disk filled "
        f"{counts['disks filled']} times",
        bar="the same policy and the same counts",
        passed=passed,
        seed=1,
        tables=(
            Table(title="Both trainings", columns=("", "threads, undisturbed", "cluster, disturbed"), rows=tuple(rows)),
            Table(
                title="What was broken",
                note="A compiler lives for a tenth of a second, so some end before they are seen.",
                columns=("what", "times"),
                rows=tuple((name, counts[name]) for name in sorted(counts)),
            ),
        ),
    )


if __name__ == "__main__":
    raise SystemExit(main())
