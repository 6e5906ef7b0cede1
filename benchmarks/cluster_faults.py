"""Training on a cluster in which workers, the scheduler, compilers and a disk break; is the policy the same?"""

import contextlib
import json
import math
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_site import Breakage, Site, small_disk
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.compiler.recheck import difference
from mlgokit.compiler.store import load_compilation
from mlgokit.errors import StorageError, UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.learning.run_folder import ROWS_NAME, read_metrics
from mlgokit.problems import INLINE_SIZE

LEAST_KILLS = 0.8
"""Of the kills of workers that ``minutes`` have room for."""
LEAST_SHARE = 0.5
"""Of the compilers that were to be killed and stopped: a draw gives fewer or more, and some end before they are hit."""
MOST_STARTS = 20
BROKEN_NAME = "broken.json"
STOPPED = " After things stopped breaking, both were ended from outside in the midst of a turn, and gone on with."
MOST_COMPILATIONS = 1_000_000_000
MARGIN_MINUTES = 0.5
"""A training that ends after its last turn may begin that a little later than things stop breaking."""
COUNTERS = ("turn", "compilations", "failed")
TIMES = frozenset({"time", "seconds", "seconds_left", "user_seconds"})
"""Numbers of a turn that no two runs have alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFaults:
    """Train with threads, and on a cluster whose parts are killed; compare policies, turns, counts and each record."""

    corpus: Path = Path("quickstart/corpus")
    """What is trained on."""
    compilations: int = 0
    """Of each training, a budget in compilations, which has to last for `minutes` on the cluster; 0 for as many turns
    as there are in `minutes`."""
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
    together: bool = False
    """Train both ways at the same time, which takes less time in all and makes both slower."""
    finish: bool = False
    """Go on with both trainings of a run that was stopped after everything had been broken; nothing is any more."""
    folder: Path = Path("build/cluster-faults")
    """Where both trainings are kept."""
    seed: int = 1
    """Of the training, and of what is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A training, when it was over.

    Attributes:
        code: with which it ended; nothing else is known of one that failed.
        minutes: in which a process of it ran.
        policy: its digest.
        counters: of the whole.
        turns: numbers of each turn but for times: its compilations, failures and rewards, and what the learner says.
        records: compilations in its store, by the key of all that decides them.
    """

    code: int
    minutes: float
    policy: str = ""
    counters: Mapping[str, int] = field(default_factory=dict[str, int])
    turns: tuple[Mapping[str, float], ...] = ()
    records: frozenset[str] = frozenset()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ClusterFaults, measure, arguments)


def measure(config: ClusterFaults, setup: Setup) -> Result:
    """Train both ways and compare.

    Raises:
        UsageError: there is nothing to finish.
    """
    setup.toolchain(None)
    setup.corpus(config.corpus)
    alone, there = Training(config=config, name="threads"), Training(config=config, name="cluster")
    counts = read_broken(config, alone, there) if config.finish else start_anew(config)
    setup.report(0, 2, "trainings")
    with opened(config, counts) as (site, scheduler):
        there.words, there.counts, there.wait_for_room = scheduler, counts, site.wait_for_room
        if not config.finish:
            train_both(config, site, alone, there)
        setup.report(1, 2, "trainings")
        # Whichever made fewer turns in this time goes on; by now nothing is broken any more. A run that was stopped had
        # begun another turn, a part of whose compilations are in its store.
        turns = max(alone.turn, there.turn) + config.finish
        for one in (alone, there):
            if one.code == 0 and (config.finish or one.turn < turns):
                one.run(turns=None if config.compilations else turns)
    ended = alone.ended(), there.ended()
    differing = records_that_differ(config.folder, ended[0].records & ended[1].records)
    return summarise(config, ended[0], ended[1], counts, differing)


def start_anew(config: ClusterFaults) -> Counter[str]:
    """An empty folder, and nothing that was broken."""
    shutil.rmtree(config.folder, ignore_errors=True)
    config.folder.mkdir(parents=True)
    return Counter[str]()


def train_both(config: ClusterFaults, site: Site, alone: "Training", there: "Training") -> None:
    """Train on the cluster while everything breaks, and at the same time, if that is asked for, with threads."""
    until = None if config.compilations else config.minutes + MARGIN_MINUTES
    with ThreadPoolExecutor(1) as beside:
        undisturbed = beside.submit(alone.run, minutes=until) if config.together else None
        site.begin()
        there.run(minutes=until)
        site.stop()
        seconds = {one.name: one.seconds for one in (alone, there)}
        atomic_write(config.folder / BROKEN_NAME, json.dumps({"counts": site.counts, "seconds": seconds}))
        if undisturbed is not None:
            undisturbed.result()


def read_broken(config: ClusterFaults, *trainings: "Training") -> Counter[str]:
    """What was broken in a run that was stopped later, and how long each training had taken.

    Raises:
        UsageError: there was none.
    """
    try:
        broken = json.loads((config.folder / BROKEN_NAME).read_bytes())
    except OSError as error:
        raise UsageError(
            f"{config.folder}: expected what an earlier run has broken, found none; run without --finish"
        ) from error
    for one in trainings:
        one.seconds = broken["seconds"][one.name]
    return Counter(broken["counts"])


@contextlib.contextmanager
def opened(config: ClusterFaults, counts: Counter[str]) -> Generator[tuple[Site, list[str]]]:
    """A cluster that is ended at the end, and the words by which a training uses it."""
    with small_disk((config.folder / "disk").absolute()) as disk:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        site = Site(
            breakage=breakage_of(config),
            workers=config.workers,
            folder=config.folder,
            port=port,
            disk=disk,
            counts=counts,
        )
        try:
            site.open()
            yield site, ["--scheduler", f"tcp://127.0.0.1:{port}", "--insecure"]
        finally:
            site.close()


def breakage_of(config: ClusterFaults) -> Breakage:
    """What is to be broken."""
    return Breakage(
        seconds=60 * config.minutes,
        kill_every=config.kill_every,
        scheduler_kills=config.scheduler_kills,
        killed_share=config.killed_share,
        hung_share=config.hung_share,
        seed=config.seed,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Training:
    """One of both.

    Attributes:
        config: what is trained.
        name: of its folder.
        words: further words of the command.
        counts: how often a full disk ended it goes there.
        wait_for_room: waits until the disk is not full, and says whether that came.
        seconds: in which a process of it ran.
        code: with which the last one ended.
    """

    config: ClusterFaults
    name: str
    words: Sequence[str] = ()
    counts: Counter[str] = field(default_factory=Counter[str])
    wait_for_room: Callable[[], bool] = lambda: False
    seconds: float = 0.0
    code: int = 0

    @property
    def output(self) -> Path:
        """Its folder."""
        return self.config.folder / self.name

    @property
    def turn(self) -> int:
        """How far it is; 0 if it has not begun."""
        return int(read_metrics(self.output)[-1]["turn"]) if (self.output / ROWS_NAME).exists() else 0

    def run(self, *, minutes: float | None = None, turns: int | None = None) -> None:
        """Train until a budget is spent, or go on; where a full disk ends it, start again as soon as there is room.

        Args:
            minutes: of all processes so far, after which no turn begins.
            turns: in all. Without these two, the budget in compilations.
        """
        for _ in range(MOST_STARTS):
            budget = ["--compilations", str(self.config.compilations or MOST_COMPILATIONS)]
            budget = budget if turns is None else ["--iterations", str(turns)]
            budget += [] if minutes is None else ["--minutes", f"{max(0.1, minutes - self.seconds / 60):.2f}"]
            command = [sys.executable, "-m", "mlgokit", "train", "--corpus", str(self.config.corpus)]
            command += ["--output", str(self.output), "--seed", str(self.config.seed), *budget, *self.words]
            begin = time.monotonic()
            with (self.config.folder / f"{self.name}.txt").open("ab") as file:
                done = subprocess.run(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, check=False)
            self.seconds += time.monotonic() - begin
            self.code = done.returncode
            if self.code != StorageError.exit_code:
                return
            self.counts["trainings ended by a full disk"] += 1
            if not self.wait_for_room():
                return

    def ended(self) -> Ended:
        """What became of it."""
        if self.code:
            return Ended(code=self.code, minutes=self.seconds / 60)
        counters = json.loads((self.output / "metrics.json").read_bytes())["counters"]
        store = self.output / "store"
        return Ended(
            code=0,
            minutes=self.seconds / 60,
            policy=digest_file(self.output / "final.policy"),
            counters={key: counters[key] for key in COUNTERS},
            turns=tuple({key: row[key] for key in row.keys() - TIMES} for row in read_metrics(self.output)),
            records=frozenset(str(path.relative_to(store)) for path in store.rglob("*.npz")),
        )


def records_that_differ(folder: Path, names: Iterable[str]) -> int:
    """How many compilations of both stores are not the same but for times."""
    found = 0
    for name in names:
        one, other = (
            load_compilation(folder / which / "store" / name, problem=INLINE_SIZE.name)
            for which in ("threads", "cluster")
        )
        found += one is None or other is None or bool(difference(one, other))
    return found


def same_numbers(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two turns have the same numbers; what was measured in neither is the same.

    Example:
        >>> same_numbers({"reward": math.nan}, {"reward": math.nan}), same_numbers({"reward": 1}, {})
        (True, False)
    """
    return one.keys() == other.keys() and all(
        one[key] == other[key] or (math.isnan(one[key]) and math.isnan(other[key])) for key in one
    )


def missed(config: ClusterFaults, alone: Ended, there: Ended, counts: Mapping[str, int], differing: int) -> list[str]:
    """What is not as it must be, one sentence part each: in the outcome, and in what was broken."""
    known = Counter(counts)
    kills = LEAST_KILLS * 60 * config.minutes / config.kill_every
    seen = known["compilers seen"]
    felt = known["trainings ended by a full disk"] + known["workers' lines about a full disk"]
    lost, more = len(alone.records - there.records), len(there.records - alone.records)
    turns = [same_numbers(*pair) for pair in zip(alone.turns, there.turns, strict=False)]
    bars = {
        f"the training with threads ended with {alone.code}": not alone.code,
        f"the training on the cluster ended with {there.code}": not there.code,
        "the policies differ": alone.policy == there.policy and bool(there.policy),
        "the counters differ": dict(alone.counters) == dict(there.counters),
        f"{turns.count(False)} of {len(alone.turns)} turns differ, and {len(there.turns)} were made": all(turns)
        and len(turns) == len(alone.turns) == len(there.turns) > 0,
        f"{lost} compilations were lost, {more} are too many": not lost and not more and bool(there.records),
        f"{differing} compilations have another outcome": not differing,
        f"the training on the cluster ended after {there.minutes:.1f} of {config.minutes:g} minutes": there.minutes
        >= config.minutes,
        f"{known['workers killed']} workers were killed, of at least {math.ceil(kills)}": known["workers killed"]
        >= kills,
        f"{known['schedulers killed']} of {config.scheduler_kills} schedulers were killed": known["schedulers killed"]
        >= config.scheduler_kills,
        "the disk was not filled": known["disks filled"] >= 1,
        "nobody noticed a full disk": felt >= 1,
        "no compiler was seen": seen > 0,
    }
    for what, share in (("killed", config.killed_share), ("stopped", config.hung_share)):
        found, least = known[f"compilers {what}"], LEAST_SHARE * share * seen
        bars[f"{found} compilers were {what}, of at least {least:.1f}"] = found >= least
    return [sentence for sentence, reached in bars.items() if not reached]


def summarise(config: ClusterFaults, alone: Ended, there: Ended, counts: Mapping[str, int], differing: int) -> Result:
    """Both trainings beside each other, and what was broken."""
    known, both = Counter(counts), (alone, there)
    failures = missed(config, alone, there, counts, differing)
    rows: list[tuple[Cell, ...]] = [
        ("policy", *(one.policy[:16] for one in both)),
        *((key, *(one.counters.get(key) for one in both)) for key in COUNTERS),
        ("compilations in the store", *(len(one.records) for one in both)),
        ("minutes", *(round(one.minutes, 1) for one in both)),
    ]
    length = max(len(one.turns) for one in both)
    turns: list[tuple[Cell, ...]] = [
        (index + 1, *(number(one, index, key) for key in ("compilations", "reward") for one in both))
        for index in range(length)
    ]
    outcome = "the same policy, byte for byte" if alone.policy == there.policy != "" else "another policy, or none"
    return Result(
        benchmark="cluster_faults",
        question="Is a policy that is trained on a cluster in which everything breaks the one that threads train?",
        answer=f"{outcome}, after {there.minutes:.1f} minutes in which {known['workers killed']} workers and "
        f"{known['schedulers killed']} schedulers were killed, {known['compilers killed']} of "
        f"{known['compilers seen']} compilers killed and {known['compilers stopped']} stopped, the disk filled "
        f"{known['disks filled']} times; " + (f"missed: {'; '.join(failures)}" if failures else "nothing was missed"),
        bar=f"the same policy, counts, turns and compilations, after {config.minutes:g} minutes with at least "
        f"{LEAST_KILLS:.0%} of the kills of workers that they have room for, {config.scheduler_kills} of the "
        f"scheduler, a full disk that is noticed, {LEAST_SHARE:.0%} of the {config.killed_share:.0%} of compilers to "
        f"kill and {config.hung_share:.0%} to stop",
        passed=not failures,
        seed=config.seed,
        tables=(
            Table(
                title="Both trainings",
                note="Compilations in the store have a key of all that decides their outcome: "
                f"{len(alone.records - there.records)} are in the first store alone, "
                f"{len(there.records - alone.records)} in the second alone, {differing} of both have another outcome. "
                + ("Both ran at the same time." if config.together or config.finish else "One ran after the other.")
                + (STOPPED if config.finish else ""),
                columns=("", "threads, undisturbed", "cluster, disturbed"),
                rows=tuple(rows),
            ),
            Table(
                title="Turns",
                note="Compilations so far, and the mean reward. All other numbers of a turn are compared too.",
                columns=(
                    "turn",
                    *(f"{what}, {where}" for what in ("compilations", "reward") for where in ("threads", "cluster")),
                ),
                rows=tuple(turns),
            ),
            Table(
                title="What was broken",
                note="A compiler lives for a tenth of a second, so some end before they are seen.",
                columns=("what", "times"),
                rows=tuple((name, known[name]) for name in sorted(known)),
            ),
        ),
    )


def number(one: Ended, turn: int, key: str) -> Cell:
    """A number of a turn, if there is one."""
    value: Any = one.turns[turn].get(key) if turn < len(one.turns) else None
    return None if value is None or math.isnan(value) else value


if __name__ == "__main__":
    raise SystemExit(main())
