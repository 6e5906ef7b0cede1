"""Mutated command lines of databases, corpora, objects, projects and links, against the real gate and a real clang.

A case is a line of :mod:`gate_cases`, and comes in by one of :mod:`gate_doors`. What the gate lets through is compiled,
as any build or corpus is. A finding is a library that was loaded, a program that was started, a file that changed or
came to be where none should, or an exception that is none of ours.
"""

import contextlib
import functools
import multiprocessing
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import gate_cases
import numpy as np
from forked_clang import forked_clang
from gate_doors import DOORS, Line
from gate_place import Place, changes, inside, prepare, state
from harness import Ledger, Setup, open_ledger, run_benchmark
from results import Result, Table

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import MlgokitError, UsageError

BATCH = 100
"""Command lines of one batch; who is to blame for a finding is found by running its lines one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzGate:
    """Take in mutated command lines with a real clang, and look what it loaded, started or wrote."""

    llvm: int | None = None
    """LLVM major."""
    cases: int = 100_000
    """Command lines."""
    seed: int = 1
    """Of all mutations; a batch is known by seed and number."""
    workers: int = 2
    """Processes, each with compilers of its own."""
    minutes: float = 240.0
    """No batch is begun after so long; the same command goes on."""
    folder: Path = Path("build/fuzz_gate")
    """Where finished batches are noted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(FuzzGate, measure, arguments)


def remembering(run: Callable[..., process.Completed]) -> Callable[..., process.Completed]:
    """The same, but what succeeded is not done twice: most lines lose what is hostile in them, and are alike then."""
    known: dict[tuple[object, ...], tuple[process.Completed, bytes]] = {}

    def remembered(argv: Sequence[str | os.PathLike[str]], **options: Any) -> process.Completed:
        words = [os.fspath(word) for word in argv]
        if words[1:2] != ["-cc1"] or words.count("-o") != 1:
            return run(argv, **options)
        output = Path(words.pop(words.index("-o") + 1))
        inputs = (Path(word).read_bytes() if word.endswith(".bc") and Path(word).is_file() else word for word in words)
        key = (options.get("cwd"), *inputs)
        if key not in known:
            done = run(argv, **options)
            if done.returncode != 0 or not output.is_file():
                return done
            known[key] = done, output.read_bytes()
        done, made = known[key]
        output.write_bytes(made)
        return done

    return remembered


def _put(words: Sequence[str], place: Place) -> Line:
    """The words with the folders' real names."""
    return [word.replace("BUILD", str(place.build)).replace("OUT", str(place.whole / "out")) for word in words]


def drawn(seed: int, number: int, count: int = BATCH, *, door: str | None = None) -> tuple[str, list[Line]]:
    """The door, unless one is named, and the lines of a batch."""
    rng = np.random.default_rng([seed, number])
    shares = np.array([share for _, share, _ in DOORS.values()])
    drawn_door = list(DOORS)[int(rng.choice(len(DOORS), p=shares / shares.sum()))]
    door = door or drawn_door
    return door, [gate_cases.line(rng, cc1=DOORS[door][2]) for _ in range(count)]


def run_lines(
    door: str, lines: Sequence[Line], place: Place, toolchain: Toolchain, *, seed: Sequence[int]
) -> tuple[int, str]:
    """Take the lines in by a door; how many modules were compiled, and what is to be found fault with."""
    for path in place.scratch.iterdir():
        shutil.rmtree(path)
    for name in ("temporary", "database"):
        (place.scratch / name).mkdir()
    before, taken, trouble = state(place), 0, ""
    with inside(place), mock.patch.object(process, "run", remembering(process.run)):
        try:
            placed = [_put(line, place) for line in lines]
            taken = DOORS[door][0](placed, place, toolchain, np.random.default_rng(list(seed)))
        except MlgokitError:
            pass
        except Exception as error:
            trouble = f"{type(error).__name__}: {error!s:.200}"
    return taken, "; ".join(filter(None, (changes(place, before), trouble)))


def run_batch(
    number: int, toolchain: Toolchain, *, seed: int, count: int = BATCH, door: str | None = None
) -> dict[str, Any]:
    """One batch: its door, how many lines it had and how many modules were compiled, and its findings."""
    door, lines = drawn(seed, number, count, door=door)
    begin = time.monotonic()
    findings: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mlgokit-gate-") as scratch:
        run = functools.partial(run_lines, toolchain=toolchain, seed=[seed, number, 1])
        taken, found = run(door, lines, prepare(Path(scratch, "all"), toolchain))
        if found:
            for index, line in enumerate(lines):
                _, alone = run(door, [line], prepare(Path(scratch, str(index)), toolchain))
                if alone:
                    findings.append(f"line {index}: {shlex.join(line)}: {alone}")
            findings = findings or [f"all lines together: {found}"]
    return {
        "batch": number, "door": door, "lines": len(lines), "taken": taken, "seconds": time.monotonic() - begin,
        "findings": [f"batch {number}, {door}, {finding}".encode("utf-8", "replace").decode() for finding in findings],
    }  # fmt: skip


_open = contextlib.ExitStack()


def _open_compilers(toolchain: Toolchain) -> None:
    _open.enter_context(mock.patch.object(process, "run", _open.enter_context(forked_clang(toolchain))))


def run_cases(
    count: int,
    toolchain: Toolchain,
    *,
    seed: int,
    batch: int = BATCH,
    workers: int = 1,
    until: float = float("inf"),
    ledger: Ledger | None = None,
    setup: Setup | None = None,
) -> list[dict[str, Any]]:
    """The rows of all batches that are finished; each line of a compiler's is run in a copy of one that was loaded."""
    known = {} if ledger is None else ledger.known
    numbers = range(-(-count // batch))
    todo = [number for number in numbers if str(number) not in known]
    rows = {number: known[str(number)] for number in numbers if str(number) in known}
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawned, initializer=_open_compilers, initargs=(toolchain,)) as pool:
        work = functools.partial(_run_in_time, toolchain=toolchain, seed=seed, until=until)
        sizes = [min(batch, count - number * batch) for number in todo]
        for row in pool.map(work, todo, sizes):
            if row is not None:
                rows[row["batch"]] = row
                if ledger is not None:
                    ledger.add(str(row["batch"]), row)
            if setup is not None:
                setup.report(min(count, len(rows) * batch), count, "lines")
    return [row for _, row in sorted(rows.items())]


def _run_in_time(number: int, count: int, *, toolchain: Toolchain, seed: int, until: float) -> dict[str, Any] | None:
    # The clock is the same in all processes.
    return None if time.monotonic() > until else run_batch(number, toolchain, seed=seed, count=count)


def measure(config: FuzzGate, setup: Setup) -> Result:
    """Run all cases.

    Raises:
        UsageError: there is no case.
    """
    if config.cases < 1:
        raise UsageError(f"cases: expected at least 1, found {config.cases}; give more")
    toolchain = setup.toolchain(config.llvm)
    path = config.folder / f"llvm-{toolchain.major}-seed-{config.seed}.jsonl"
    ledger = open_ledger(path, {"seed": config.seed, "llvm": toolchain.major, "batch": BATCH})
    until = time.monotonic() + 60 * config.minutes
    rows = run_cases(
        config.cases, toolchain, seed=config.seed, workers=config.workers, until=until, ledger=ledger, setup=setup
    )
    findings = [finding for row in rows for finding in row["findings"]]
    ran, taken = (sum(row[key] for row in rows) for key in ("lines", "taken"))
    doors = [(door, [row for row in rows if row["door"] == door]) for door in DOORS]
    tables = [
        Table(
            title="Lines",
            columns=("where they come from", "lines", "modules compiled", "findings", "elapsed (s)"),
            rows=tuple(
                (
                    door,
                    sum(row["lines"] for row in found),
                    sum(row["taken"] for row in found),
                    sum(len(row["findings"]) for row in found),
                    sum(row["seconds"] for row in found),
                )
                for door, found in doors
            ),
            note="A finding is a library that was loaded, a program that was started, a file that changed or came to "
            "be outside of the corpus, or an exception that is none of ours.",
        )
    ]
    if findings:
        tables.append(Table(title="Findings", columns=("finding",), rows=tuple((text,) for text in findings[:200])))
    return Result(
        benchmark="fuzz_gate",
        question="Does any mutated command line load, start or write something that it should not?",
        answer=f"{len(findings)} findings in {ran} command lines, of which {taken} modules were made and compiled",
        bar=f"no finding in {config.cases} command lines",
        passed=not findings and ran >= config.cases,
        seed=config.seed,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())
