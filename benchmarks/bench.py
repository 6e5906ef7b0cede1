"""What a policy and tuned plugins do to programs that run, and that two plain builds do not differ at all."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, run_benchmark
from results import Cell, Result, Table, percent

from mlgokit.bench.callgrind import find_callgrind
from mlgokit.bench.compare import changes_over
from mlgokit.bench.counts import EVENTS
from mlgokit.bench.record import WorkloadResult, load_bench
from mlgokit.bench.workloads import load_workloads
from mlgokit.cli import run_command
from mlgokit.commands.bench import Bench
from mlgokit.commands.options import CompilerOptions
from mlgokit.errors import UsageError
from mlgokit.files import digest_file

SAME, POLICY, TUNED = "same", "policy", "tuned"
SHOWN = (*EVENTS, "image")
COLUMNS = ("workload", "kind", "instructions before", *SHOWN, "compile time", "run time", "verdict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Compare plain builds with plain ones, with a policy, and with tuned plugins, on the workloads of `mlgokit bench`.

    Needs valgrind. Each workload of each arm is a call of its own, which is not made again if its bench.json is there.
    """

    policy: Path = Path("quickstart/train/final.policy")
    """Policy that is judged."""
    tuned: Path = Path("build/bench/plugins")
    """Folder of tuned plugins, each named after the workload whose project was tuned."""
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
        UsageError: there is no plugin.
        ToolError: a tool is missing.
    """
    plugins = sorted(config.tuned.glob("*.so"))
    if not plugins:
        raise UsageError(f"{config.tuned}: expected tuned plugins, found none; make them with `mlgokit tune`")
    setup.toolchain(config.llvm)
    setup.policies([config.policy])
    setup.inputs.update({f"plugin {path.stem}": digest_file(path) for path in plugins})
    names = [workload.name for workload in load_workloads()]
    arms = {
        SAME: [_row(config, SAME, name, Bench(time_seconds=0), setup) for name in names],
        POLICY: [
            _row(config, POLICY, name, Bench(policy=(str(config.policy),), time_seconds=config.time_seconds), setup)
            for name in names
        ],
        TUNED: [
            _row(config, TUNED, path.stem, Bench(plugin=path, time_seconds=config.time_seconds), setup)
            for path in plugins
        ],
    }
    setup.tools["counter"] = find_callgrind().name
    return summarise(arms[SAME], arms[POLICY], arms[TUNED])


def _row(config: Programs, arm: str, name: str, asked: Bench, setup: Setup) -> WorkloadResult:
    """What one workload gives in one arm."""
    folder = config.folder / arm / name
    if not (folder / "bench.json").exists():
        call = dataclasses.replace(
            asked,
            workloads=(name,),
            folder=folder,
            cache=config.cache,
            counter="callgrind",
            compiler=CompilerOptions(llvm=config.llvm, workers=config.workers),
        )
        run_command(call, report=setup.report)
    return load_bench(folder / "bench.json").workloads[0]


def summarise(
    same: Sequence[WorkloadResult], judged: Sequence[WorkloadResult], tuned: Sequence[WorkloadResult]
) -> Result:
    """The tables of all arms."""
    sound = [one for one in same if not one.failures and one.same_output]
    largest = max((difference(one) for one in sound), default=0)
    failed = [one.name for one in (*same, *judged, *tuned) if one.failures or not one.same_output]
    changes = changes_over(judged, rng=np.random.default_rng(1))
    means = {change.measure: change for change in changes}
    told = ", ".join(f"{percent(means[measure].mean)} {measure}" for measure in SHOWN if measure in means)
    return Result(
        benchmark="bench",
        question="What do a policy and tuned plugins do to programs that run? Do two plain builds differ?",
        answer=(
            f"Two plain builds of {len(sound)} programs differ by {largest} in what they execute. With the policy "
            f"{len(judged)} programs have {told} (geometric means). "
            + (f"Without a result: {', '.join(failed)}." if failed else "All put out the same.")
        ),
        bar="plain against plain, every count of every workload is the same",
        passed=largest == 0 and len(sound) == len(same),
        seed=1,
        tables=(
            Table(
                title="With the policy",
                columns=COLUMNS,
                rows=tuple(_cells(one) for one in judged),
                note="Changes against plain -Oz. Counts are of the program's own code, by callgrind. Compile time is "
                "processor time of one build on a busy machine; the mean over all workloads says more. Run time is of "
                "pairs of runs on one processor, and the verdict what its 95 % interval says.",
            ),
            Table(
                title="With plugins tuned for 60 seconds, each on its own project",
                columns=COLUMNS,
                rows=tuple(_cells(one) for one in tuned),
                note="60 seconds on a busy machine, from plain -Oz, without a policy; C++ and C alike.",
            ),
            Table(
                title="Over the workloads, with the policy",
                columns=("measure", "change", "from", "to (95 %)", "workloads"),
                rows=tuple(
                    (
                        one.measure, percent(one.mean), None if one.low is None else percent(one.low),
                        None if one.high is None else percent(one.high), one.workloads,
                    )
                    for one in changes
                ),
                note="Geometric means over workloads, and intervals over workloads (bias-corrected bootstrap).",
            ),
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


def difference(one: WorkloadResult) -> int:
    """The largest difference of a count between the two builds."""
    largest = 0
    for before, after in ((one.before.own, one.after.own), (one.before.whole, one.after.whole)):
        if before is not None and after is not None:
            pairs = zip(before.to_json().values(), after.to_json().values(), strict=True)
            largest = max(largest, *(abs((first or 0) - (second or 0)) for first, second in pairs))
    return largest


def _cells(one: WorkloadResult) -> tuple[Cell, ...]:
    before, after = one.before.counts.to_json(), one.after.counts.to_json()
    costs = [side.cost.seconds if side.cost else None for side in (one.before, one.after)]
    reasons = "; ".join(f"{failure.side}, {failure.step}" for failure in one.failures)
    return (
        one.name, one.kind, before["instructions"], *(_change(before[event], after[event]) for event in EVENTS),
        _change(one.before.image, one.after.image), _change(*costs),
        _change(one.time.before, one.time.after) if one.time else None,
        one.time.verdict if one.time else reasons or one.untimed or None,
    )  # fmt: skip


def _change(before: float | None, after: float | None) -> str | None:
    if not before or after is None:
        return None
    return "0" if before == after else percent(after / before - 1)


if __name__ == "__main__":
    raise SystemExit(main())
