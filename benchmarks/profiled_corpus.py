"""A corpus of the workloads of `mlgokit bench`, each compiled with a profile of its own run, to train on."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counted_programs import open_shop, profile_of
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.bench.build import Shop, units_of
from mlgokit.bench.workloads import Workload, choose_workloads
from mlgokit.commands.corpus import combine, import_build
from mlgokit.files import atomic_write


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledCorpus:
    """Build workloads with counters, run them, and import their builds with the profiles; goes on where it stopped."""

    workloads: tuple[str, ...] = ("jsoncpp", "expat", "pugixml", "quickjs", "libpng", "cmark", "sqlite")
    """Workloads of projects that are not held out."""
    options: str = "-O2"
    """Level of the modules, and of the build with counters."""
    folder: Path = Path("build/profiled_corpus")
    """Where sources, profiles and the corpora of single workloads are kept."""
    corpus: Path = Path("corpus-O2-profiled")
    """Folder for the corpus of all of them."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = 2
    """Compilers that run at once."""
    json: Path = Path("build/profiled_corpus.json")
    """Where a list of what is in the corpus goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ProfiledCorpus, measure, arguments)


def measure(config: ProfiledCorpus, setup: Setup) -> Result:
    """Profile, import, and join."""
    toolchain = setup.toolchain(config.llvm)
    workloads = choose_workloads(None, config.workloads)
    shop = open_shop(workloads, config.folder, toolchain=toolchain, workers=config.workers)
    rows: list[tuple[Cell, ...]] = []
    corpora = config.folder / "corpora"
    for workload in workloads:
        done = corpora / f"{workload.name}.json"
        if not done.exists():
            profile = profile_of(workload, (config.options,), shop, config.folder / "builds")
            corpus = corpora / workload.name
            shutil.rmtree(corpus, ignore_errors=True)
            database = _database(config, workload, shop, profile)
            imported = import_build.run(
                import_build.Import(
                    compile_commands=database,
                    corpus=corpus,
                    project=workload.name,
                    llvm=toolchain.major,
                    workers=config.workers,
                ),
                report=setup.report,
            )
            atomic_write(done, json.dumps({"modules": imported["modules"], "profile": profile.stat().st_size}))
        found = json.loads(done.read_bytes())
        rows.append((workload.name, found["modules"], found["profile"]))
    combine.run(combine.Combine(root=corpora, corpus=config.corpus))
    return Result(
        benchmark="profiled_corpus",
        question="Which programs are in a corpus of which each was compiled with a profile of its run?",
        answer=f"{sum(int(row[1] or 0) for row in rows)} modules of {len(rows)} programs",
        bar="",
        passed=True,
        seed=0,
        tables=(Table(title="Programs", columns=("program", "modules", "bytes of its profile"), rows=tuple(rows)),),
    )


def _database(config: ProfiledCorpus, workload: Workload, shop: Shop, profile: Path) -> Path:
    """A compilation database of the workload's build with its profile; its driver is no part of it."""
    entries = [
        {
            "directory": str(unit.folder),
            "arguments": [
                *unit.words, config.options, f"-fprofile-use={profile}", "-c", *unit.input, "-o",
                f"{unit.name.replace('/', '_')}.o",
            ],
            "file": unit.name,
        }
        for unit in units_of(workload, toolchain=shop.toolchain, sources=shop.sources)
        if unit.folder != workload.drivers
    ]  # fmt: skip
    path = config.folder / "builds" / f"{workload.name}.json"
    atomic_write(path, json.dumps(entries))
    return path


if __name__ == "__main__":
    raise SystemExit(main())
