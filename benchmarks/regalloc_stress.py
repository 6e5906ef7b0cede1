"""What compilers survive: compilations whose evictions and priorities are random, and the programs they make."""

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
from stress_builds import build_and_run
from stress_programs import EXERCISES
from treatments import Bench, Ending, draw_treatment, make_bench, treat

from mlgokit.compiler.compile import command
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import Corpus
from mlgokit.corpus.sources.projects import load_projects

Record = dict[str, Any]
BAD = ("hang", "crash", "illegal", "bad object", "wrong program")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegallocStress:
    """Compile under random legal evictions and priorities, over the plugin and the pipes; build projects, run tests."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus of the newest compiler."""
    older_corpus: Path | None = None
    """A corpus of LLVM 19; a quarter of the compilations is on it."""
    sources: Path = Path("quickstart/sources")
    """Where `corpus fetch` put the sources of the projects that are built and run."""
    compilations: int = 2000
    """Compilations of modules of the corpus."""
    pipes: float = 0.2
    """Share of these over LLVM's interactive channels; only modules smaller than the median."""
    builds: int = 4
    """Builds of each project and compiler under random policies, the last over the pipes; heavy projects get two."""
    minutes: float = 60.0
    """After this nothing new is begun, and the result says what is missing; starting again goes on."""
    seed: int = 1
    """Of all draws."""
    timeout_seconds: float = 600.0
    """Deadline of one compilation."""
    records: Path = Path("quickstart/regalloc_stress.jsonl")
    """One line for each thing that is done; what is in it is not done again."""
    json: Path = Path("docs/results/regalloc_stress.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(RegallocStress, measure, arguments)


def measure(config: RegallocStress, setup: Setup) -> Result:
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
    built = sum(1 + exercise.builds(config.builds) for exercise in EXERCISES)
    total = sum(counts.values()) + len(corpora) * built
    with tempfile.TemporaryDirectory(prefix="mlgokit-stress-") as scratch:
        benches: dict[int, Bench] = {}
        for major in corpora:
            folder = Path(scratch) / str(major)
            folder.mkdir()
            toolchain = setup.toolchain(major, suffix=f" {major}")
            benches[major] = make_bench(toolchain, folder, np.random.default_rng([config.seed, major]))
        for work in (_compilations(config, corpora, counts, benches, ledger), _programs(config, benches, ledger)):
            for _ in work:
                setup.report(len(ledger.known) - 1, total, "stress")
                if time.monotonic() - begin > 60 * config.minutes:
                    break
    return summarise(ledger, total=total, seed=config.seed)


def _compilations(
    config: RegallocStress, corpora: Mapping[int, Corpus], counts: Mapping[int, int], benches: Mapping[int, Bench],
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


def _one_module(config: RegallocStress, corpus: Corpus, bench: Bench, rng: np.random.Generator) -> Record:
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


def _programs(config: RegallocStress, benches: Mapping[int, Bench], ledger: Ledger) -> Iterator[None]:
    """One step for each build that is not done; the plain build first, which the others are compared with."""
    projects = {project.name: project for project in load_projects()}
    for number, exercise in enumerate(EXERCISES):
        for build in range(config.builds + 1):
            for major, bench in benches.items():
                key, plain_key = (f"program {major} {exercise.project} {which}" for which in (build, 0))
                builds = exercise.builds(config.builds)
                if build > builds or key in ledger.known:
                    continue
                rng = np.random.default_rng([config.seed, major, number, build])
                level = "-O2" if build % 2 or build == 0 else "-Oz"
                treatment = draw_treatment(bench, rng, pipes=build == builds) if build else None
                begin = time.monotonic()
                with tempfile.TemporaryDirectory(prefix="mlgokit-stress-") as scratch:
                    built = build_and_run(
                        exercise, projects[exercise.project], bench, treatment, level=level,
                        sources_folder=config.sources, folder=Path(scratch), timeout_seconds=config.timeout_seconds,
                    )  # fmt: skip
                outputs = [output.decode("utf-8", "replace") for output in built.outputs]
                problems = list(built.problems)
                if not problems and build and outputs != ledger.known[plain_key]["outputs"]:
                    problems.append(("wrong program", f"{exercise.project}: its output is not that of the plain build"))
                facts = treatment.facts() if treatment else {"problems": "", "advisors": "", "channel": "plain"}
                ledger.add(
                    key,
                    {
                        "major": major, "project": exercise.project, "level": level, **facts,
                        "outcome": problems[0][0] if problems else "ok",
                        "sentence": "; ".join(sentence for _, sentence in problems),
                        "compiled": built.compiled, "runs": built.runs, "decisions": built.decisions,
                        "outputs": outputs, "seconds": round(time.monotonic() - begin, 3),
                    },
                )  # fmt: skip
                yield


def summarise(ledger: Ledger, *, total: int, seed: int) -> Result:
    """The tables, and whether nothing hung, crashed or went wrong."""
    modules = [record for key, record in ledger.known.items() if key.startswith("module ")]
    programs = [record for key, record in ledger.known.items() if key.startswith("program ")]
    treated = [record for record in programs if record["channel"] != "plain"]
    endings = Counter(record["outcome"] for record in (*modules, *programs))
    bad = sum(endings[outcome] for outcome in BAD)
    failures: list[tuple[Cell, ...]] = [
        (record["major"], record.get("module") or record["project"], record["level"], record["channel"],
         record["problems"], record["outcome"], record["sentence"])
        for record in (*modules, *programs) if record["outcome"] != "ok"
    ]  # fmt: skip
    unexplained = sum(not row[-1] for row in failures)
    groups = Counter((r["major"], r["channel"], r["problems"], r["advisors"], r["outcome"]) for r in modules)
    builds: dict[tuple[Cell, ...], list[Record]] = {}
    for record in programs:
        builds.setdefault((record["project"], record["major"], record["channel"]), []).append(record)
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
        ),
        Table(
            title="Programs",
            columns=("project", "LLVM", "channel", "builds", "sources compiled", "test runs", "not as expected"),
            rows=tuple(
                (*group, len(rows), sum(r["compiled"] for r in rows), sum(r["runs"] for r in rows),
                 sum(r["outcome"] != "ok" for r in rows))
                for group, rows in sorted(builds.items(), key=str)
            ),
            note=(
                "Library and tests are compiled under the policy. Lua's, marisa's and leveldb's tests are their "
                "authors'; zlib, brotli and zstd pack and unpack 400 kB at several levels, and print a digest of what "
                "was packed, which has to be that of the plain build."
            ),
        ),
    ]  # fmt: skip
    if failures:
        columns = ("LLVM", "what", "level", "channel", "problems", "outcome", "why")
        tables.append(Table(title="Everything that did not succeed", columns=columns, rows=tuple(failures)))
    done = len(modules) + len(programs)
    missing = f"; {total - done} of {total} steps were not done for want of time" if done < total else ""
    return Result(
        benchmark="regalloc_stress",
        question=(
            "Does any compilation hang or crash, or any program go wrong, when evictions and priorities are random but "
            "legal?"
        ),
        answer=(
            f"{len(modules)} compilations of modules and {sum(r['compiled'] for r in treated)} of programs under "
            f"random policies, {sum(r['runs'] for r in treated)} runs of their tests: {endings['hang']} hung, "
            f"{endings['crash']} crashed, {endings['illegal']} decided illegally, {endings['wrong program']} builds "
            f"gave a wrong program, {endings['error']} ended with an error of the compiler{missing}"
        ),
        bar="no hang, no crash, no wrong program, and every failure explained",
        passed=bad == 0 and not unexplained and done >= total,
        seed=seed,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())
