"""What a policy and tuned plugins do to programs that run, and that two plain builds do not differ at all."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, run_benchmark
from results import Cell, Result, Table, percent

from mlgokit.bench.counts import EVENTS
from mlgokit.cli import run_command
from mlgokit.commands.bench import Bench
from mlgokit.commands.options import CompilerOptions
from mlgokit.errors import UsageError
from mlgokit.files import digest_file

SAME, POLICY, TUNED = "same", "policy", "tuned"
SHOWN = ("instructions", "loads", "stores", "branches", "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Compare plain builds with plain ones, with a policy, and with tuned plugins, on the workloads of `mlgokit bench`.

    Needs valgrind. An arm whose bench.json is in the folder is not run again.
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
    same = _arm(config, SAME, Bench(time_seconds=0), setup)
    judged = _arm(config, POLICY, Bench(policy=(str(config.policy),), time_seconds=config.time_seconds), setup)
    tuned = [
        _arm(
            config,
            f"{TUNED}-{path.stem}",
            Bench(plugin=path, workloads=(path.stem,), time_seconds=config.time_seconds),
            setup,
        )
        for path in plugins
    ]
    setup.tools["counter"] = same["counter"]
    return summarise(same, judged, tuned)


def _arm(config: Programs, name: str, asked: Bench, setup: Setup) -> dict[str, Any]:
    output = config.folder / name / "bench.json"
    if not output.exists():
        arm = dataclasses.replace(
            asked,
            folder=config.folder / name,
            cache=config.cache,
            counter="callgrind",
            compiler=CompilerOptions(llvm=config.llvm, workers=config.workers),
        )
        run_command(arm, report=setup.report)
    return json.loads(output.read_bytes())


def summarise(same: dict[str, Any], judged: dict[str, Any], tuned: Sequence[dict[str, Any]]) -> Result:
    """The tables of all arms."""
    zero = [(one, _differences(one)) for one in same["workloads"]]
    sound = [one for one, _ in zero if not one["failures"] and one["same_output"]]
    largest = max((difference for one, difference in zero if one in sound), default=0)
    tuned_rows = [one for arm in tuned for one in arm["workloads"]]
    every = [*judged["workloads"], *tuned_rows]
    failed = [one["name"] for one in (*same["workloads"], *every) if one["failures"] or not one["same_output"]]
    means = {change["measure"]: change for change in judged["changes"]}
    told = ", ".join(f"{percent(means[measure]['mean'])} {measure}" for measure in SHOWN if measure in means)
    return Result(
        benchmark="bench",
        question="What do a policy and tuned plugins do to programs that run? Do two plain builds differ?",
        answer=(
            f"Two plain builds of {len(sound)} programs differ by {largest} in what they execute. With the policy "
            f"{len(judged['workloads'])} programs have {told} (geometric means). "
            + (f"Without a result: {', '.join(failed)}." if failed else "All put out the same.")
        ),
        bar="plain against plain, every count of every workload is the same",
        passed=largest == 0 and len(sound) == len(same["workloads"]),
        seed=1,
        tables=(
            Table(
                title="With the policy",
                columns=(
                    "workload", "kind", "instructions before", *SHOWN, "compile time", "run time", "verdict",
                ),
                rows=tuple(_row(one) for one in judged["workloads"]),
                note="Changes against plain -Oz. Counts are of the program's own code, by callgrind. Compile time is "
                "processor time of one build on a busy machine; the mean over all workloads says more. Run time is of "
                "pairs of runs on one processor, and the verdict what its 95 % interval says.",
            ),
            Table(
                title="With plugins tuned for 60 seconds, each on its own project",
                columns=(
                    "workload", "kind", "instructions before", *SHOWN, "compile time", "run time", "verdict",
                ),
                rows=tuple(_row(one) for one in tuned_rows),
            ),
            Table(
                title="Over the workloads, with the policy",
                columns=("measure", "change", "from", "to (95 %)", "workloads"),
                rows=tuple(
                    (
                        one["measure"], percent(one["mean"]),
                        None if one["low"] is None else percent(one["low"]),
                        None if one["high"] is None else percent(one["high"]), one["workloads"],
                    )
                    for one in judged["changes"]
                ),
                note="Geometric means over workloads, and intervals over workloads (bias-corrected bootstrap).",
            ),
            Table(
                title="Plain against plain",
                columns=("workload", "instructions", "largest difference of a count", "same output"),
                rows=tuple(
                    (one["name"], _counts(one, "before")["instructions"], difference, str(one["same_output"]))
                    for one, difference in zero
                ),
                note="Instructions, loads, stores and branches, in the program and in the whole process.",
            ),
        ),
    )  # fmt: skip


def _counts(one: dict[str, Any], side: str) -> dict[str, Any]:
    return one[side]["own"] or one[side]["whole"] or dict.fromkeys(EVENTS)


def _differences(one: dict[str, Any]) -> int:
    """The largest difference of a count between the two builds."""
    pairs = [
        (one["before"][part][event], one["after"][part][event])
        for part in ("own", "whole")
        for event in EVENTS
        if one["before"][part] and one["after"][part]
    ]
    return max((abs(before - after) for before, after in pairs), default=0)


def _row(one: dict[str, Any]) -> tuple[Cell, ...]:
    before, after = _counts(one, "before"), _counts(one, "after")
    changes = [_change(before[event], after[event]) for event in EVENTS]
    costs = [one[side]["cost"] or {} for side in ("before", "after")]
    timed = one["time"]
    reasons = "; ".join(f"{failure['side']}, {failure['step']}" for failure in one["failures"])
    return (
        one["name"], one["kind"], before["instructions"], *changes,
        _change(one["before"]["image"], one["after"]["image"]),
        _change(costs[0].get("seconds"), costs[1].get("seconds")),
        _change(timed["before"], timed["after"]) if timed else None,
        timed["verdict"] if timed else reasons or one["untimed"] or None,
    )  # fmt: skip


def _change(before: float | None, after: float | None) -> str | None:
    if not before or after is None:
        return None
    return "0" if before == after else percent(after / before - 1)


if __name__ == "__main__":
    raise SystemExit(main())
