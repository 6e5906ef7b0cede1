"""What is left when `tune`, `tune --continue` and `train` are killed: signal 9 at drawn instants, again and again."""

import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Ledger, Setup, open_ledger, run_benchmark
from kill_rounds import Known, Place, defects, finish, kill_once
from results import Cell, Result, Table

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.layout import bitcode_path
from mlgokit.corpus.writer import corpus_writer, description_fields
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.module import Module

KINDS = ("tune", "tune", "tune", "tune for spill cost", "train")
"""Of the chains, in turns."""
WRITES = 100
"""Of each kind, for what they cost."""
SMALLEST = 7_000
"""Bytes of bitcode; smaller modules of the project have hardly a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """Kill `tune`, `tune --continue` and `train` at drawn instants, and look what each kill left."""

    corpus: Path = Path("quickstart/corpus")
    """Corpus of LLVM's newest supported major with the project."""
    project: str = "zlib"
    """What is tuned, and trained on."""
    modules: int = 4
    """The smallest of its modules beyond 7,000 bytes of bitcode, so that a round takes seconds."""
    kills: int = 500
    """Commands to kill."""
    chain: int = 10
    """Kills in a row on one folder, every other time after a run to its end; then the command is run to its end."""
    budget: str = "1s"
    """Of each tuning."""
    at_once: int = 1
    """Chains that run at once, where others have most of the machine."""
    minutes: float = 60.0
    """After this no chain is begun, and the result says what is missing; starting again goes on."""
    llvm: int | None = None
    """LLVM major."""
    seed: int = 1
    """Of all draws."""
    folder: Path = Path("build/kills")
    """Where it is done, with one line for each chain; what is there is not done again."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Kills, measure, arguments)


def measure(config: Kills, setup: Setup) -> Result:
    """Run the chains that are missing, while there is time."""
    begin = time.monotonic()
    toolchain = setup.toolchain(config.llvm)
    modules = small_corpus(config, setup.corpus(config.corpus).modules)
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), workers=2)
    setting: dict[str, str | int] = {"seed": config.seed, "chain": config.chain, "modules": config.modules}
    ledger = open_ledger(config.folder / "kills.jsonl", {**setting, "budget": config.budget, **setup.inputs})
    numbers, lock = iter(range(config.kills)), threading.Lock()

    def work(_: int) -> None:
        while done(ledger) < config.kills and time.monotonic() - begin < 60 * config.minutes:
            with lock:
                chain = next(one for one in numbers if f"chain {one}" not in ledger.known)
            row = run_chain(config, chain, modules, compiler)
            with lock:
                ledger.add(f"chain {chain}", row)
                setup.report(done(ledger), config.kills, "kill")

    with ThreadPoolExecutor(config.at_once) as pool:
        for _ in pool.map(work, range(config.at_once)):
            pass
    return summarise(ledger, config)


def done(ledger: Ledger) -> int:
    """Kills so far of commands that still ran."""
    known = list(ledger.known.items())
    return sum(one["killed"] for name, row in known if name != "setting" for one in row["rounds"])


def small_corpus(config: Kills, modules: Sequence[Module]) -> list[Module]:
    """Some modules of the project in a corpus of their own.

    Raises:
        UsageError: the corpus has too few.
    """
    own = [one for one in modules if one.project == config.project and one.bitcode.stat().st_size > SMALLEST]
    chosen = sorted(own, key=lambda one: one.bitcode.stat().st_size)[: config.modules]
    if len(chosen) < config.modules:
        raise UsageError(
            f"{config.corpus}: expected {config.modules} modules of {config.project}, found {len(chosen)}; extract it"
        )
    folder = config.folder / "corpus"
    if not (folder / "corpus_description.json").exists():
        for one in chosen:
            target = bitcode_path(folder, one.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(one.bitcode, target)
            shutil.copyfile(one.bitcode.with_suffix(".cmd"), target.with_suffix(".cmd"))
        with corpus_writer(folder, description_fields(), remedy="add modules") as writer:
            for one in chosen:
                writer.add(one)
    return list(load_corpus(folder).modules)


def make_place(config: Kills, kind: str, number: int) -> Place:
    """An empty place for a chain."""
    folder = config.folder.resolve() / f"chain{number}"
    shutil.rmtree(folder, ignore_errors=True)
    work, temporary = folder / "work", folder / "temporary"
    shared = ["--corpus", str(config.folder.resolve() / "corpus"), "--workers", "2"]
    shared += [] if config.llvm is None else ["--llvm", str(config.llvm)]
    if kind == "train":
        words = ["train", "--output", str(work), "--algorithm", "local-search", "--iterations", "6", *shared]
        return Place(
            folder=work, output=work / "final.policy", temporary=temporary, words=tuple(words), is_tuning=False
        )
    output = folder / "out" / "tuned.so"
    words = ["tune", "--folder", str(work), "--output", str(output), "--budget", config.budget, "--continue", *shared]
    words += ["--objective", "spill-cost"] if kind != "tune" else []
    return Place(folder=work, output=output, temporary=temporary, words=tuple(words), is_tuning=True)


def run_chain(config: Kills, number: int, modules: Sequence[Module], compiler: ClangCompiler) -> dict[str, Any]:
    """Kill one command so many times on one folder, then let it end."""
    rng = np.random.default_rng([config.seed, number])
    kind = KINDS[number % len(KINDS)]
    place, known = make_place(config, kind, number), Known()
    rounds: list[dict[str, Any]] = []
    begun = finish(place) if number % 2 else ""
    for _ in range(config.chain):
        row = kill_once(place, rng)
        row["findings"] = defects(place, known, modules, compiler)
        row["findings"] += [f"left running: {', '.join(row['left'])}"] if row["left"] else []
        if not row["killed"] and row["code"]:
            said = (place.temporary.parent / "said").read_text(errors="replace")
            row["findings"].append(f"exit code {row['code']}: {said[-500:]}")
        row["had_output"] = place.output.exists()
        rounds.append(row)
    end = finish(place)
    last = [one for one in (begun, end) if one] or defects(place, known, modules, compiler)
    if not place.output.exists():
        last.append("no result at the end")
    if not last:
        shutil.rmtree(place.temporary.parent, ignore_errors=True)
    return {"kind": kind, "rounds": rounds, "end": last, "digest": sorted(known.checked)[:9]}


def disk_costs(folder: Path) -> tuple[tuple[Cell, ...], ...]:
    """Median milliseconds of writing a file, and of waiting for the disk too, by its size."""
    rows: list[tuple[Cell, ...]] = []
    for size in (10_000, 400_000):
        data = np.random.default_rng(size).bytes(size)
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(WRITES):
            for durable, seconds in times.items():
                begin = time.perf_counter()
                atomic_write(folder / "written", data, durable=durable)
                seconds.append(1000 * (time.perf_counter() - begin))
        rows.append((size, float(np.median(times[False])), float(np.median(times[True]))))
    (folder / "written").unlink()
    return tuple(rows)


def summarise(ledger: Ledger, config: Kills) -> Result:
    """The tables."""
    chains = [row for name, row in ledger.known.items() if name != "setting"]
    kills: Counter[tuple[str, str]] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    alone: Counter[tuple[str, str]] = Counter()
    outputs: Counter[tuple[str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    findings: list[tuple[Cell, ...]] = []
    for chain in chains:
        for place, one in enumerate(chain["rounds"]):
            again = " again" if chain["kind"] == "train" else " --continue"
            key = f"{chain['kind']}{again if place else ''}", one["phase"]
            kills[key] += one["killed"]
            ended[key] += not one["killed"]
            alone[key] += one["killed"] and not one["group"]
            outputs[key] += one["killed"] and one["had_output"]
            wrong[key] += bool(one["findings"])
            findings += [(*key, finding) for finding in one["findings"]]
        findings += [(chain["kind"], "run to its end", finding) for finding in chain["end"]]
    total, missing = sum(kills.values()), max(0, config.kills - sum(kills.values()))
    rows = tuple((*key, kills[key], alone[key], outputs[key], ended[key], wrong[key]) for key in sorted(kills | ended))
    wrongs = Table(title="Findings", columns=("command", "killed in", "finding"), rows=tuple(findings))
    left = f"; {missing} of the {config.kills} kills asked for are still to be done" if missing else ""
    return Result(
        benchmark="kills",
        question="Does a kill at any instant of `tune`, `tune --continue` or `train` leave what was finished, a proved "
        "plugin or a policy that decides, and nothing else?",
        answer=f"{total} commands were killed in {len(chains)} folders: {len(findings)} findings{left}",
        bar="no finding in 500 kills",
        passed=not findings and not missing,
        seed=config.seed,
        tables=(
            Table(
                title="Kills",
                columns=(
                    "command", "killed in", "kills", "of these main process alone", "output was there",
                    "ended before", "rounds with findings",
                ),
                rows=rows,
                note=NOTE,
            ),
            Table(
                title="What waiting for the disk costs",
                columns=("bytes", "written, ms", "written and on disk, ms"),
                rows=disk_costs(config.folder),
                note="A step of a search writes some kilobytes and waits; a plugin has 400. Stored compilations do not "
                "wait. Medians, with whatever else the machine did.",
            ),
            *([wrongs] if findings else []),
        ),
    )  # fmt: skip


NOTE = """A chain is one folder: the command is killed `--chain` times, each time started again as a user would, and
then run to its end; in every other chain it was run to its end before too. A phase begins when the command changes
its first file; the kill comes at a drawn time after that. It is signal 9 for the process group, or for the main
process alone. After each kill: no process runs on; temporary files are those of the last command at most;
compilations, turns, measured effects and files of modules are not fewer, the score is no worse; the plugin is
absent, if none was finished before, or everything compiles with it, nothing is worse, and what `mlgokit check` does
gives the change that it promises; tuned.json, or the one that waits to take its place, has the plugin's digest; a
policy loads, and clang decides by it. The run to the end has exit code 0, a result, and leaves no temporary file.
Processes are looked for by their session.""".replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
