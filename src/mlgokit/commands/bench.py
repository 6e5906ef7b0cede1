"""The command that compares what programs do that were built in two ways."""

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from mlgokit.basic import Basic
from mlgokit.bench.build import BuildContext
from mlgokit.bench.compare import CounterName, changes_over, choose_counter, compare_workloads
from mlgokit.bench.kept import forget
from mlgokit.bench.page import bench_page
from mlgokit.bench.record import Bench as BenchRecord, WorkloadResult
from mlgokit.bench.results import compare_results, read_results
from mlgokit.bench.running import LEAST_PAIRS, LOOKS, Timing
from mlgokit.bench.side import open_side
from mlgokit.bench.workloads import Format, Workload, choose_workloads
from mlgokit.builds.compilers import toolchain_of_build
from mlgokit.builds.outside import make_outside_folder
from mlgokit.builds.variant import VariantRecord, make_variant
from mlgokit.commands.options import COMPILER, Compiling, Texts, option_words
from mlgokit.corpus.sources.fetch import default_cache_folder, fetch_archive, prepare_sources
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.locks import locked
from mlgokit.manifest import package_version
from mlgokit.pages.html import check_json_name, write_page
from mlgokit.progress import Report, say_nothing

COMMAND_NAME = "command"
"""The workload that --build and --run make."""
_SOURCES, _WORK = "sources", "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Build programs in two ways, run them, and compare what they execute, how long they take, and their output."""

    policy: Annotated[Texts, Basic.INPUT] = ()
    """Policy file of the candidate, or a rule such as :never, at most one for each problem."""
    plugin: Annotated[Path | None, Basic.INPUT] = None
    """Plugin of the candidate, made by `mlgokit tune` or `mlgokit export plugin`."""
    options: Annotated[str, Basic.INPUT] = ""
    """Options that are added to the candidate's compiler, as in --options="-O2 -fno-plt"."""
    against_policy: Texts = ()
    """Policy file or rule of the baseline, which is plain clang by default."""
    against_plugin: Annotated[Path | None, Basic.INPUT] = None
    """Plugin of the baseline, in place of plain clang."""
    against_options: str = ""
    """Options that are added to the baseline's compiler."""
    workloads: Annotated[tuple[str, ...], Basic.WORK] = ()
    """Names of the workloads to run, of those in --manifest; all if none is given."""
    manifest: Path | None = None
    """TOML file that lists the workloads; the list that comes with mlgokit if not given."""
    build: Annotated[Texts, Basic.WORK] = ()
    """Command that builds your own workload in an empty folder; CC, CXX, CFLAGS and CXXFLAGS are set, and {source},
    {cc}, {cxx} and {flags} are replaced."""
    run: Annotated[str, Basic.WORK] = ""
    """Command that runs what --build made; {source} and {results} (a file that it may write) are replaced."""
    source: Annotated[Path | None, Basic.WORK] = None
    """Folder that replaces {source} in --build and --run."""
    run_format: Format = "command"
    """Format of what --run prints, or writes to {results}: command (any text), or the JSON of Google Benchmark or
    lit."""
    results: tuple[Path, ...] = ()
    """Result files of the candidate, written by lit or Google Benchmark; nothing is built or run then."""
    against_results: tuple[Path, ...] = ()
    """Result files of the baseline, to compare --results with."""
    counter: Annotated[CounterName, Basic.WORK] = "auto"
    """Counter of executed instructions; by default hardware counters if they work here, otherwise callgrind."""
    time_seconds: float = 20.0
    """Time limit for timing each workload in seconds; 0 disables timing."""
    time_pairs: int = LOOKS[-1]
    """Maximum number of pairs of runs, one of the baseline and one of the candidate, for timing each workload."""
    run_seconds: float = 60.0
    """Deadline of one run in seconds; callgrind gets 150 times that."""
    build_seconds: float = 3600.0
    """Deadline of each command of --build in seconds."""
    folder: Annotated[Path, Basic.RESULT] = Path("bench")
    """Folder for the result. Sources and builds are in the user's cache folder, and are removed once this folder is
    gone."""
    cache: Path | None = None
    """Folder where downloaded source archives are kept; the user's cache folder if not given."""
    output: Annotated[Path | None, Basic.RESULT] = None
    """JSON file for the result, with the report beside it as HTML and Markdown; bench.json in the folder if not
    given."""
    seed: int = 1
    """Random seed of the bootstrap intervals."""
    compiler: Compiling = COMPILER
    """The clang that compiles the workloads."""


def run(config: Bench, *, report: Report = say_nothing) -> BenchRecord:
    """Compare, and leave ``bench.json``, ``bench.html`` and ``bench.md``.

    Raises:
        UsageError: the call contradicts itself.
        BusyError: another process works in the folder.
        CorpusError: the list of workloads is not as expected.
        ToolError: a tool is missing.
    """
    output = config.output or config.folder / "bench.json"
    check_json_name(output)
    with locked(config.folder):
        result = _of_files(config) if config.results or config.against_results else _of_builds(config, report=report)
        result = dataclasses.replace(
            result,
            seed=config.seed,
            command=shlex.join(["mlgokit", *sys.argv[1:]]),
            mlgokit_version=package_version(),
        )
        atomic_write(output, json.dumps(result.to_json(), indent=1) + "\n")
        write_page(bench_page(result), output)
        if built := [one.name for one in result.workloads if one.name]:
            forget(make_outside_folder(config.folder) / _WORK, built)
    return result


page = bench_page


def exit_code(_config: Bench, result: BenchRecord) -> int:
    """1 if a workload failed or put out something else."""
    return 0 if result.is_whole else 1


# --- Result files -----------------------------------------------------------------------------------------------------


def _of_files(config: Bench) -> BenchRecord:
    """Compare the result files that other tools wrote."""
    if not config.results or not config.against_results:
        raise UsageError("bench: expected --results and --against-results, found one of them; give both")
    given = [config.policy, config.plugin, config.options, config.workloads, config.manifest, config.build, config.run]
    if any(given):
        raise UsageError("bench: expected result files or something to build, found both; leave one out")
    before, after = ([read_results(path) for path in paths] for paths in (config.against_results, config.results))
    measured, failures = compare_results(before, after)
    workloads = (WorkloadResult(name="", kind="", failures=failures, results=measured),)
    labels = (", ".join(path.name for path in paths) for paths in (config.against_results, config.results))
    old, new = (VariantRecord(label=label) for label in labels)
    return BenchRecord(
        before=old,
        after=new,
        counter="",
        exact=False,
        uncounted="",
        toolchain={},
        workloads=workloads,
        changes=changes_over(workloads, rng=np.random.default_rng(config.seed)),
    )


# --- Builds -----------------------------------------------------------------------------------------------------------


def _of_builds(config: Bench, *, report: Report) -> BenchRecord:
    """Build, run and compare."""
    after = make_variant(config.policy, plugin=config.plugin, options=option_words(config.options, "--options")).record
    before = make_variant(
        config.against_policy,
        plugin=config.against_plugin,
        options=option_words(config.against_options, "--against-options"),
    ).record
    workloads = _workloads(config)
    if config.time_pairs < LEAST_PAIRS:
        raise UsageError(f"--time-pairs: expected at least {LEAST_PAIRS}, found {config.time_pairs}; correct it")
    if config.run_seconds <= 0 or config.build_seconds <= 0 or config.time_seconds < 0:
        raise UsageError(
            "bench: expected --run-seconds and --build-seconds above 0 and --time-seconds of at least 0; correct them"
        )
    needs_plugin = any(side.policies or side.plugin for side in (before, after))
    commands = [shlex.join(words) for workload in workloads for words in workload.build]
    toolchain = toolchain_of_build(config.compiler, database=None, commands=commands, need_plugin=needs_plugin)
    counter, uncounted = choose_counter(config.counter)
    place = make_outside_folder(config.folder)
    sides = {
        "before": open_side(before, toolchain, place / "before.so"),
        "after": open_side(after, toolchain, place / "after.so"),
    }
    _fetch(config, workloads, place / _SOURCES, report=report)
    found = compare_workloads(
        workloads,
        context=BuildContext(
            toolchain=toolchain,
            sides=sides,
            sources=place / _SOURCES,
            workers=config.compiler.workers,
            compile_seconds=config.compiler.deadline(300.0),
            build_seconds=config.build_seconds,
        ),
        folder=place / _WORK,
        without=config.folder,
        counter=counter,
        run_seconds=config.run_seconds,
        timing=Timing(seconds=config.time_seconds, pairs=config.time_pairs),
        report=report,
    )
    return BenchRecord(
        before=before,
        after=after,
        counter="" if counter is None else counter.name,
        exact=counter is not None and counter.exact,
        uncounted=uncounted,
        toolchain=toolchain.describe(),
        workloads=found,
        changes=changes_over(found, rng=np.random.default_rng(config.seed)),
    )


def _workloads(config: Bench) -> tuple[Workload, ...]:
    """Return the workloads to run: the named ones of the list, or the one of --build and --run."""
    if not config.build and not config.run:
        return choose_workloads(config.manifest, config.workloads)
    if not (config.build and config.run) or config.manifest or config.workloads:
        raise UsageError(
            "bench: expected --build and --run together and without --workloads or --manifest; give both, or "
            "describe the workload in a list and name it with --manifest"
        )
    return (
        Workload(
            name=COMMAND_NAME,
            source=config.source.absolute() if config.source else Path.cwd(),
            build=tuple(option_words(command, "--build") for command in config.build),
            run=option_words(config.run, "--run"),
            format=config.run_format,
        ),
    )


def _fetch(config: Bench, workloads: Sequence[Workload], sources: Path, *, report: Report) -> None:
    """Have the projects' sources unpacked; archives that are there are not fetched again."""
    projects = {project.name: project for workload in workloads for project in workload.projects}
    cache = config.cache or default_cache_folder()
    for index, project in enumerate(projects.values()):
        report(index, len(projects), "fetch")
        archive = fetch_archive(project.archive, cache_folder=cache)
        prepare_sources(project, archive_path=archive, sources_folder=sources)
