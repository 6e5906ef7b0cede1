"""What a policy, or an option of LLVM, does to programs that run, counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, name_of, run_benchmark
from public_projects import MANIFEST
from results import Result, Table, percent

from bench import COLUMNS, SHOWN, cells, over
from mlgokit.bench.callgrind import find_callgrind
from mlgokit.bench.compare import changes_over
from mlgokit.bench.record import load_bench
from mlgokit.bench.workloads import packaged_workloads
from mlgokit.cli import run_command
from mlgokit.commands.bench import Bench
from mlgokit.commands.options import CompilerOptions
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write
from mlgokit.policy.pretrained import policy_files

_HERE = Path(__file__).parent
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
    guessed: bool = False
    """Programs of guessed_programs.toml, of whose loops LLVM has too low an opinion, in place of those."""
    folder: Path = Path("build/policy_bench")
    """Where builds are; a call whose bench.json is there is not made again."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/pass_policy_bench.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(PolicyBench, measure, arguments)


def measure(config: PolicyBench, setup: Setup) -> Result:
    """Count, and make the tables.

    Raises:
        UsageError: both other lists of programs are asked for.
    """
    if config.unseen and config.guessed:
        raise UsageError("--unseen, --guessed: expected one list of programs, found two; leave one out")
    named = "unseen" if config.unseen else "guessed" if config.guessed else None
    setup.toolchain(config.llvm)
    policies = () if config.knob else (config.policy,)
    setup.policies(policy_files(policies))
    setup.tools["counter"] = find_callgrind().name
    if not (config.folder / "bench.json").exists():
        call = Bench(
            policy=policies,
            options=f"{config.options} -mllvm -{config.knob}".strip() if config.knob else config.options,
            against_options=config.options,
            manifest=listed(config.folder / "list", named) if named else None,
            folder=config.folder,
            counter="callgrind",
            time_seconds=0,
            compiler=CompilerOptions(llvm=config.llvm),
        )
        run_command(call, report=setup.report)
    rows = load_bench(config.folder / "bench.json").workloads
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
                columns=COLUMNS[:-2],
                rows=tuple(cells(one)[:-2] for one in rows),
                note="Counts are of the program's own code, by callgrind. Compile time is processor time of one build.",
            ),
            over("Over the programs", [one for one in changes if one.measure != "time"]),
        ),
    )


def listed(folder: Path, name: str) -> Path:
    """One list of the workloads of ``<name>_programs.toml`` and their projects, with all drivers beside it."""
    drivers = folder / "drivers"
    for path in (packaged_workloads().parent / "drivers" / "input.h", *(_HERE / "drivers").iterdir()):
        atomic_write(drivers / path.name, path.read_bytes())
    found = folder / "workloads.toml"
    # Those of the list of guessed programs stand in it.
    projects = MANIFEST.read_text() if name == "unseen" else ""
    atomic_write(found, projects + (_HERE / f"{name}_programs.toml").read_text())
    return found


if __name__ == "__main__":
    raise SystemExit(main())
