"""Training on a cluster in which workers, the scheduler, compilers and a disk break; is the policy the same?"""

import json
import math
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_site import Breakage, Site, small_disk
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.compiler.recheck import difference
from mlgokit.compiler.store import load_compilation
from mlgokit.errors import StorageError
from mlgokit.files import digest_file
from mlgokit.learning.metrics import read_metrics
from mlgokit.problems import INLINE_SIZE

LEAST_KILLS = 0.8
"""Of the kills of workers that ``minutes`` have room for."""
LEAST_SHARE = 0.5
"""Of the compilers that were to be killed and stopped: a draw gives fewer or more, and some end before they are hit."""
MOST_STARTS = 20
COUNTERS = ("turn", "compilations", "failed")
TIMES = frozenset({"time", "seconds", "seconds_left", "user_seconds"})
"""Numbers of a turn that no two runs have alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFaults:
    """Train with threads, and on a cluster whose parts are killed; compare policies, turns, counts and each record."""

    corpus: Path = Path("quickstart/corpus")
    """What is trained on."""
    compilations: int = 1500
    """Of each training, a budget in compilations; enough for the training on the cluster to take `minutes`."""
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
    folder: Path = Path("build/cluster-faults")
    """Where both trainings are kept."""
    seed: int = 1
    """Of the training, and of what is killed."""
    json: Path = Path("docs/results/cluster_faults.json")
    """Where the result goes; the Markdown goes beside it."""


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
    """Train both ways and compare."""
    setup.toolchain(None)
    setup.corpus(config.corpus)
    shutil.rmtree(config.folder, ignore_errors=True)
    config.folder.mkdir(parents=True)
    setup.report(0, 2, "trainings")
    with ThreadPoolExecutor(1) as beside:
        undisturbed = beside.submit(train, config, "threads", [])
        if not config.together:
            undisturbed.result()
            setup.report(1, 2, "trainings")
        there, counts = disturbed(config)
        alone = undisturbed.result()
    differing = records_that_differ(config.folder, alone.records & there.records)
    return summarise(config, alone, there, counts, differing)


def disturbed(config: ClusterFaults) -> tuple[Ended, Counter[str]]:
    """Train on the cluster while everything breaks; the training, and what was done."""
    with small_disk((config.folder / "disk").absolute()) as disk:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        site = Site(breakage=breakage_of(config), workers=config.workers, folder=config.folder, port=port, disk=disk)
        try:
            site.open()
            site.begin()
            scheduler = ["--scheduler", f"tcp://127.0.0.1:{port}"]
            there = train(config, "cluster", scheduler, counts=site.counts, wait_for_room=site.wait_for_room)
        finally:
            site.close()
    return there, site.counts


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


def train(
    config: ClusterFaults,
    name: str,
    words: Sequence[str],
    *,
    counts: Counter[str] | None = None,
    wait_for_room: Callable[[], bool] = lambda: False,
) -> Ended:
    """Train, and start again as soon as there is room where a full disk ended it, as its sentence says."""
    output = config.folder / name
    command = [sys.executable, "-m", "mlgokit", "train", "--corpus", str(config.corpus), "--output", str(output)]
    command += ["--compilations", str(config.compilations), "--seed", str(config.seed), *words]
    counts, seconds = Counter[str]() if counts is None else counts, 0.0
    while True:
        begin = time.monotonic()
        with (config.folder / f"{name}.txt").open("ab") as file:
            done = subprocess.run(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, check=False)
        seconds += time.monotonic() - begin
        if done.returncode != StorageError.exit_code:
            break
        counts["trainings ended by a full disk"] += 1
        if counts["trainings ended by a full disk"] >= MOST_STARTS or not wait_for_room():
            break
    if done.returncode:
        return Ended(code=done.returncode, minutes=seconds / 60)
    counters = json.loads((output / "metrics.json").read_bytes())["counters"]
    return Ended(
        code=0,
        minutes=seconds / 60,
        policy=digest_file(output / "final.policy"),
        counters={key: counters[key] for key in COUNTERS},
        turns=tuple({key: row[key] for key in row.keys() - TIMES} for row in read_metrics(output)),
        records=frozenset(str(path.relative_to(output / "store")) for path in (output / "store").rglob("*.npz")),
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
                + ("Both ran at the same time." if config.together else "One ran after the other."),
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
