"""Random evictions and priorities in modules of real projects: what goes wrong."""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import Ledger, Setup, open_ledger, run_benchmark
from results import Cell, Result, Table
from treatments import Bench, Ending, draw_treatment, make_bench, treat

from mlgokit.compiler.compile import command
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import Corpus

Record = dict[str, Any]
BAD = ("hang", "crash", "illegal", "bad object")


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzRegisters:
    """Compile modules under random legal evictions and priorities, over the plugin and over LLVM's channels."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus of the newest compiler."""
    older_corpus: Path | None = None
    """A corpus of LLVM 19; a quarter of the compilations is on it."""
    compilations: int = 2000
    """Compilations of modules of the corpus."""
    pipes: float = 0.2
    """Share of these over LLVM's interactive channels; only modules smaller than the median."""
    minutes: float = 60.0
    """After this nothing new is begun, and the result says what is missing; starting again goes on."""
    seed: int = 1
    """Of all draws."""
    timeout_seconds: float = 600.0
    """Deadline of one compilation."""
    records: Path = Path("build/fuzz_registers.jsonl")
    """One line for each thing that is done; what is in it is not done again."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(FuzzRegisters, measure, arguments)


def measure(config: FuzzRegisters, setup: Setup) -> Result:
    """Do what is not done yet, while there is time, and sum everything up."""
    begin = time.monotonic()
    folders = {find_toolchain(None, need_plugin=True).major: config.corpus}
    if config.older_corpus is not None:
        folders = {19: config.older_corpus, **folders}
    corpora = {major: setup.corpus(folder, f"corpus of LLVM {major}") for major, folder in folders.items()}
    ledger = open_ledger(config.records, {"seed": config.seed, "pipes": str(config.pipes), **setup.inputs})
    counts = dict.fromkeys(corpora, config.compilations)
    if len(corpora) == 2:
        counts[19] = config.compilations // 4
        counts[max(corpora)] -= counts[19]
    total = sum(counts.values())
    with tempfile.TemporaryDirectory(prefix="mlgokit-stress-") as scratch:
        benches: dict[int, Bench] = {}
        for major in corpora:
            folder = Path(scratch) / str(major)
            folder.mkdir()
            toolchain = setup.toolchain(major, suffix=f" {major}")
            benches[major] = make_bench(toolchain, folder, np.random.default_rng([config.seed, major]))
        for _ in _compilations(config, corpora, counts, benches, ledger):
            setup.report(len(ledger.known) - 1, total, "modules")
            if time.monotonic() - begin > 60 * config.minutes:
                break
    return summarise(ledger, total=total, seed=config.seed)


def _compilations(
    config: FuzzRegisters, corpora: Mapping[int, Corpus], counts: Mapping[int, int], benches: Mapping[int, Bench],
    ledger: Ledger,
) -> Iterator[None]:  # fmt: skip
    """One step for each compilation that is not done; the majors in turns."""
    for major, index in sorted(
        ((major, index) for major, count in counts.items() for index in range(count)),
        key=lambda item: (item[1] / counts[item[0]], item[0]),
    ):
        key = f"module {major} {index}"
        if key not in ledger.known:
            rng = np.random.default_rng([config.seed, major, index])
            ledger.add(key, _one_module(config, corpora[major], benches[major], rng))
            yield


def _one_module(config: FuzzRegisters, corpus: Corpus, bench: Bench, rng: np.random.Generator) -> Record:
    pipes = bool(rng.random() < config.pipes)
    sizes = np.array([module.bitcode_bytes for module in corpus.modules], dtype=float)
    weights = 1 / (60_000 + sizes)
    if pipes:
        weights *= sizes <= np.median(sizes)
    module = corpus.modules[int(rng.choice(len(sizes), p=weights / weights.sum()))]
    level = str(rng.choice(["-Oz", "-O2"]))
    options = tuple(level if option == "-Oz" else option for option in module.command_line)
    treatment = draw_treatment(bench, rng, pipes=pipes)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mlgokit-stress-") as scratch:
        folder = Path(scratch)
        output = folder / "module.o"
        argv = command(bench.toolchain, replace(module, command_line=options), output, None)
        ended = treat(bench, treatment, argv, output, folder=folder, timeout_seconds=config.timeout_seconds)
        seconds = time.monotonic() - begin
        sentence = ended.sentence
        if ended.outcome != "ok":
            plain = treat(bench, None, argv, output, folder=folder, timeout_seconds=config.timeout_seconds)
            sentence = explain(ended, plain)
    return {
        "major": bench.toolchain.major, "module": module.name, "level": level, **treatment.facts(),
        "outcome": ended.outcome, "sentence": sentence, "decisions": ended.decisions, "seconds": round(seconds, 3),
    }  # fmt: skip


def explain(ended: Ending, plain: Ending) -> str:
    """What went wrong, and whether the compiler does the same without any advisor.

    Example:
        >>> explain(Ending(outcome="error", sentence="no registers"), Ending(outcome="ok"))
        'no registers; without an advisor the module compiles'
    """
    said = "the module compiles" if plain.outcome == "ok" else f"it ends with {plain.outcome}: {plain.sentence}"
    return f"{ended.sentence}; without an advisor {said}"


def summarise(ledger: Ledger, *, total: int, seed: int) -> Result:
    """The tables, and whether nothing hung or crashed."""
    modules = [record for key, record in ledger.known.items() if key.startswith("module ")]
    endings = Counter(record["outcome"] for record in modules)
    failures: list[tuple[Cell, ...]] = [
        (record["major"], record["module"], record["level"], record["channel"], record["problems"], record["outcome"],
         record["sentence"])
        for record in modules if record["outcome"] != "ok"
    ]  # fmt: skip
    unexplained = sum(not row[-1] for row in failures)
    groups = Counter((r["major"], r["channel"], r["problems"], r["advisors"], r["outcome"]) for r in modules)
    tables = [
        Table(
            title="Compilations of modules",
            columns=("LLVM", "channel", "problems", "advisors", "outcome", "compilations"),
            rows=tuple((*group, count) for group, count in sorted(groups.items())),
            note=(
                "A module is drawn with a probability of 1 over its size and 60 kB, so small ones come more often. "
                "Half are compiled at -O2, half at -Oz. Over the pipes only modules smaller than the median are "
                "compiled. "
                f"{len({(r['major'], r['module']) for r in modules})} different modules took part, "
                f"{sum(r['decisions'] for r in modules):,} decisions were looked through and were legal "
                "(all over the pipes, and where the plugin wrote a log)."
            ),
        )
    ]
    if failures:
        columns = ("LLVM", "module", "level", "channel", "problems", "outcome", "why")
        tables.append(Table(title="Everything that did not succeed", columns=columns, rows=tuple(failures)))
    missing = f"; {total - len(modules)} of {total} were not done for want of time" if len(modules) < total else ""
    return Result(
        benchmark="fuzz_registers",
        question="Do compilations hang or crash when evictions and priorities are random but legal?",
        answer=(
            f"of {len(modules)} compilations under random policies {endings['hang']} hung, {endings['crash']} crashed, "
            f"{endings['illegal']} decided illegally, {endings['error']} ended with an error of the compiler{missing}"
        ),
        bar="no hang, no crash, and every failure explained",
        passed=not sum(endings[outcome] for outcome in BAD) and not unexplained and len(modules) >= total,
        seed=seed,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())
