"""What a policy, or an option of LLVM, does to programs that run, counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, name_of, run_benchmark, run_mlgokit
from public_projects import MANIFEST
from results import Cell, Result, Table, percent

from mlgokit.bench.callgrind import find_callgrind
from mlgokit.bench.compare import changes_over
from mlgokit.bench.counts import EVENTS
from mlgokit.bench.record import Change, WorkloadResult, load_bench
from mlgokit.bench.workloads import packaged_workloads
from mlgokit.files import atomic_write
from mlgokit.manifest import digest_value
from mlgokit.policy.pretrained import policy_files

_HERE = Path(__file__).parent
SHOWN = (*EVENTS, "image")
COLUMNS = ("workload", "kind", "instructions before", *SHOWN, "compile time")
SAME = "0"
"""What stands where a measure is the same in both builds."""
MOST_SECONDS = 4 * 3600.0
MOST_MEAN, MOST = 0.003, 0.02
"""More instructions than these, in the mean and in one program, are too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBench:
    """Compare plain builds with those by a policy on the workloads of `mlgokit bench`, counts alone; needs valgrind."""

    policy: str = "builtin:passes"
    """The policy."""
    knob: str = ""
    """An option of LLVM without its dash in the policy's place, such as regalloc-csr-first-time-cost=50."""
    options: str = ""
    """Options that are added to both builds, which are at -Oz, such as another level."""
    unseen: bool = False
    """Programs of unseen_programs.toml, by which no policy was chosen, in place of those of `mlgokit bench`."""
    folder: Path = Path("build/policy_bench")
    """Where builds are, in a folder for each policy by content; one with a bench.json is not made again."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(PolicyBench, measure, arguments)


def measure(config: PolicyBench, setup: Setup) -> Result:
    """Count, and make the tables."""
    setup.toolchain(config.llvm)
    policies = () if config.knob else (config.policy,)
    setup.policies(policy_files(policies))
    setup.tools["counter"] = find_callgrind().name
    options = f"{config.options} -mllvm -{config.knob}".strip() if config.knob else config.options
    words = ["bench", f"--options={options}", f"--against-options={config.options}", "--counter", "callgrind"]
    words += ["--time-seconds", "0", *(word for policy in policies for word in ("--policy", policy))]
    words += [] if config.llvm is None else ["--llvm", str(config.llvm)]
    folder = config.folder / digest_value([words, config.unseen, setup.inputs])[:12]
    if not (folder / "bench.json").exists():
        if config.unseen:
            words += ["--manifest", str(unseen_programs(config.folder / "list"))]
        run_mlgokit([*words, "--folder", str(folder)], timeout_seconds=MOST_SECONDS)
    rows = load_bench(folder / "bench.json").workloads
    failed = [one.name for one in rows if one.failures or not one.same_output]
    changes = changes_over(rows, rng=np.random.default_rng(1))
    means = {change.measure: change.mean for change in changes}
    each = [
        after / before - 1
        for one in rows
        if one.name not in failed
        and (before := one.before.counts.instructions)
        and (after := one.after.counts.instructions) is not None
    ]
    told = ", ".join(f"{percent(means[name])} {name}" for name in SHOWN if name in means)
    return Result(
        benchmark="policy_bench",
        question=f"What does {config.knob or name_of(config.policy)} do to what programs execute, against plain "
        f"{config.options or '-Oz'}?",
        answer=f"{told} in the geometric mean of {len(each)} programs; of one at most {percent(max(each))}. "
        + (f"Without a result: {', '.join(failed)}." if failed else "All put out the same."),
        bar=f"instructions at most {percent(MOST_MEAN)} in the mean and {percent(MOST)} in one program",
        passed=not failed and means["instructions"] <= MOST_MEAN and max(each) <= MOST,
        seed=1,
        tables=(
            Table(
                title="Programs",
                columns=COLUMNS,
                rows=tuple(cells(one) for one in rows),
                note="Counts are of the program's own code, by callgrind. Compile time is processor time of one build.",
            ),
            over("Over the programs", [one for one in changes if one.measure != "time"]),
        ),
    )


def unseen_programs(folder: Path) -> Path:
    """The list of ``unseen_programs.toml`` with the projects of its programs, all drivers beside it."""
    drivers = folder / "drivers"
    for path in (packaged_workloads().parent / "drivers" / "input.h", *(_HERE / "drivers").iterdir()):
        atomic_write(drivers / path.name, path.read_bytes())
    found = folder / "workloads.toml"
    atomic_write(found, MANIFEST.read_text() + (_HERE / "unseen_programs.toml").read_text())
    return found


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


def cells(one: WorkloadResult) -> tuple[Cell, ...]:
    """A workload as a row of :data:`COLUMNS`."""
    before, after = one.before.counts.to_json(), one.after.counts.to_json()
    costs = [side.cost.seconds if side.cost else None for side in (one.before, one.after)]
    return (
        one.name, one.kind, before["instructions"], *(_change(before[event], after[event]) for event in EVENTS),
        _change(one.before.image, one.after.image), _change(*costs),
    )  # fmt: skip


def _change(before: float | None, after: float | None) -> str | None:
    if not before or after is None:
        return None
    return SAME if before == after else percent(after / before - 1)


if __name__ == "__main__":
    raise SystemExit(main())
