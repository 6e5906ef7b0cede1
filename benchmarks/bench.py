"""What a policy and tuned plugins do to programs that run, and that two plain builds do not differ at all."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, run_benchmark
from results import Cell, Result, Table, percent

from mlgokit.bench.build import units_of
from mlgokit.bench.callgrind import find_callgrind
from mlgokit.bench.compare import changes_over
from mlgokit.bench.counts import EVENTS
from mlgokit.bench.record import Change, Measured, WorkloadResult, load_bench
from mlgokit.bench.workloads import Workload, load_workloads
from mlgokit.cli import run_command
from mlgokit.commands.bench import Bench
from mlgokit.commands.options import CompilerOptions
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.sources.fetch import default_cache_folder, fetch_archive, prepare_sources
from mlgokit.files import atomic_write, digest_file

SAME, POLICY, TUNED = "same", "policy", "tuned"
SHOWN = (*EVENTS, "image")
SAME = "0"
"""What stands where a measure is the same in both builds."""
COLUMNS = ("workload", "kind", "instructions before", *SHOWN, "compile time", "run time", "verdict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Compare plain builds with plain ones, with a policy, and with tuned plugins, on the workloads of `mlgokit bench`.

    Needs valgrind. A call that is interrupted goes on, and one whose bench.json is there is not made again.
    """

    policy: Path = Path("quickstart/train/final.policy")
    """Policy that is judged."""
    tune_seconds: int = 60
    """Budget of `mlgokit tune` for the plugin of each workload."""
    folder: Path = Path("build/bench")
    """Where builds and the results of the arms are."""
    cache: Path | None = None
    """Folder where archives are kept; the user's cache folder if not given."""
    time_seconds: float = 20.0
    """Bound on the time for timing each workload."""
    workers: int = 2
    """Compilers and counters at once."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/bench.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Programs, measure, arguments)


def measure(config: Programs, setup: Setup) -> Result:
    """Run the arms that are not there, and make the tables.

    Raises:
        ToolError: a tool is missing.
    """
    toolchain = setup.toolchain(config.llvm)
    setup.policies([config.policy])
    workloads = load_workloads()
    plugins = {workload.name: _tuned(config, workload, toolchain, setup) for workload in workloads}
    setup.inputs.update({f"plugin {name}": digest_file(path) for name, path in plugins.items()})
    arms = {
        SAME: _rows(config, SAME, Bench(time_seconds=0), setup),
        POLICY: _rows(config, POLICY, Bench(policy=(str(config.policy),), time_seconds=config.time_seconds), setup),
        TUNED: [
            row
            for name, plugin in plugins.items()
            for row in _rows(
                config,
                f"{TUNED}/{name}",
                Bench(plugin=plugin, workloads=(name,), time_seconds=config.time_seconds),
                setup,
            )
        ],
    }
    setup.tools["counter"] = find_callgrind().name
    return summarise(arms[SAME], arms[POLICY], arms[TUNED], tune_seconds=config.tune_seconds)


def _tuned(config: Programs, workload: Workload, toolchain: Toolchain, setup: Setup) -> Path:
    """The plugin that `mlgokit tune` makes of the very compilations of a workload, its driver's too."""
    plugin = config.folder / "plugins" / f"{workload.name}.so"
    if plugin.exists():
        return plugin
    folder = config.folder / "tune" / workload.name
    for project in workload.projects:
        archive = fetch_archive(project.archive, cache_folder=config.cache or default_cache_folder())
        prepare_sources(project, archive_path=archive, sources_folder=folder / "sources")
    units = units_of(workload, toolchain=toolchain, sources=folder / "sources")
    database = [
        {
            "directory": str(unit.folder.resolve()),
            "file": unit.name,
            "arguments": [*unit.words, "-c", "-o", f"{index}.o", *unit.input],
        }
        for index, unit in enumerate(units)
    ]
    atomic_write(folder / "compile_commands.json", json.dumps(database, indent=1))
    call = Tune(
        compile_commands=folder / "compile_commands.json",
        budget=f"{config.tune_seconds}s",
        output=plugin,
        folder=folder / "search",
        compiler=CompilerOptions(llvm=config.llvm, workers=config.workers),
    )
    run_command(call, report=setup.report)
    return plugin


def _rows(config: Programs, name: str, asked: Bench, setup: Setup) -> tuple[WorkloadResult, ...]:
    """What one call gives."""
    folder = config.folder / name
    if not (folder / "bench.json").exists():
        call = dataclasses.replace(
            asked,
            folder=folder,
            cache=config.cache,
            counter="callgrind",
            compiler=CompilerOptions(llvm=config.llvm, workers=config.workers),
        )
        run_command(call, report=setup.report)
    return load_bench(folder / "bench.json").workloads


def summarise(
    same: Sequence[WorkloadResult],
    judged: Sequence[WorkloadResult],
    tuned: Sequence[WorkloadResult],
    *,
    tune_seconds: int,
) -> Result:
    """The tables of all arms."""
    sound = [one for one in same if not one.failures and one.same_output]
    largest = max((difference(one) for one in sound), default=0)
    failed = [one.name for one in (*same, *judged, *tuned) if one.failures or not one.same_output]
    by_policy, by_plugins = (changes_over(rows, rng=np.random.default_rng(1)) for rows in (judged, tuned))
    return Result(
        benchmark="bench",
        question="What do a policy and tuned plugins do to programs that run? Do two plain builds differ?",
        answer=(
            f"Two plain builds of {len(sound)} programs differ by {largest} in what they execute. With the policy "
            f"{len(judged)} programs have {_told(by_policy)}; with plugins tuned for {tune_seconds} seconds each, "
            f"{len(tuned)} have {_told(by_plugins)} (geometric means). "
            + (f"Without a result: {', '.join(failed)}." if failed else "All put out the same.")
        ),
        bar="plain against plain, every count of every workload is the same",
        passed=largest == 0 and len(sound) == len(same),
        seed=1,
        tables=(
            Table(
                title="With the policy",
                columns=COLUMNS,
                rows=tuple(cells(one) for one in judged),
                note="Changes against plain -Oz. Counts are of the program's own code, by callgrind. Compile time is "
                "processor time of one build on a busy machine; the mean over all workloads says more. Run time is "
                "processor time in pairs of runs on one processor, with its 95 % interval and what that decides. One "
                "of 20 equal programs is called different by chance: so is one whose counts all differ by 0.",
            ),
            Table(
                title=f"With plugins tuned for {tune_seconds} seconds, each on its own program",
                columns=COLUMNS,
                rows=tuple(cells(one) for one in tuned),
                note=f"{tune_seconds} seconds of wall time on a busy machine with `mlgokit tune --compile-commands`, "
                "for size, without a policy: the program's own compilations, its driver's too.",
            ),
            over("Over the workloads, with the policy", by_policy),
            over("Over the workloads, with tuned plugins", by_plugins),
            Table(
                title="Plain against plain",
                columns=("workload", "instructions", "largest difference of a count", "same output"),
                rows=tuple(
                    (one.name, one.before.counts.instructions, difference(one), str(one.same_output)) for one in same
                ),
                note="Instructions, loads, stores and branches, in the program and in the whole process.",
            ),
        ),
    )  # fmt: skip


def _told(changes: Sequence[Change]) -> str:
    means = {change.measure: change.mean for change in changes}
    return ", ".join(f"{percent(means[measure])} {measure}" for measure in SHOWN if measure in means)


def over(title: str, changes: Sequence[Change]) -> Table:
    """Changes over all workloads."""
    return Table(
        title=title,
        columns=("measure", "change", "from", "to (95 %)", "workloads"),
        rows=tuple(
            (
                one.measure, percent(one.mean), None if one.low is None else percent(one.low),
                None if one.high is None else percent(one.high), one.workloads,
            )
            for one in changes
        ),
        note="Geometric means over workloads, and intervals over workloads (bias-corrected bootstrap).",
    )  # fmt: skip


def difference(one: WorkloadResult) -> int:
    """The largest difference of a count between the two builds."""
    largest = 0
    for before, after in ((one.before.own, one.after.own), (one.before.whole, one.after.whole)):
        if before is not None and after is not None:
            pairs = zip(before.to_json().values(), after.to_json().values(), strict=True)
            largest = max(largest, *(abs((first or 0) - (second or 0)) for first, second in pairs))
    return largest


def cells(one: WorkloadResult) -> tuple[Cell, ...]:
    """A workload as a row of :data:`COLUMNS`."""
    before, after = one.before.counts.to_json(), one.after.counts.to_json()
    costs = [side.cost.seconds if side.cost else None for side in (one.before, one.after)]
    reasons = "; ".join(f"{failure.side}, {failure.step}" for failure in one.failures)
    return (
        one.name, one.kind, before["instructions"], *(_change(before[event], after[event]) for event in EVENTS),
        _change(one.before.image, one.after.image), _change(*costs),
        _change(one.time.before, one.time.after) if one.time else None,
        _verdict(one.time) if one.time else reasons or one.untimed or None,
    )  # fmt: skip


def _verdict(time: Measured) -> str:
    if time.low is None or time.high is None:
        return f"{time.verdict} ({time.runs} pairs, no interval)"
    return f"{time.verdict} ({percent(time.low)} to {percent(time.high)}, {time.runs} pairs)"


def _change(before: float | None, after: float | None) -> str | None:
    if not before or after is None:
        return None
    return SAME if before == after else percent(after / before - 1)


if __name__ == "__main__":
    raise SystemExit(main())
