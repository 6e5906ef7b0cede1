"""What policies of several seeds, and options of LLVM, do to what programs execute: results of policy_bench.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from changes import interval_of, mean_change
from harness import Setup, run_benchmark
from joined import change_of, check_seeds, join_tables, read_parts
from results import Cell, Result, Table, Written, percent

from bench import SAME, SHOWN
from mlgokit.errors import UsageError

PROGRAMS = "Programs"
"""Title of the table of `policy_bench.py` that is read."""
MOST_MEAN, MOST_LOADS, MOST = -0.002, -0.005, 0.002
"""What each seed has to reach: instructions and loads in the geometric mean, instructions of one program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSeeds:
    """Put results of policy_bench.py beside each other, and take the mean over seeds."""

    results: tuple[Path, ...]
    """What `policy_bench.py` wrote, as JSON, one for each seed in their order; all of the same programs and options."""
    beside: tuple[Path, ...] = ()
    """Others of these programs, such as of an option of LLVM, that no mean is taken with."""
    json: Path
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(ProgramSeeds, measure, arguments)


def measure(config: ProgramSeeds, setup: Setup) -> Result:
    """Read and compare.

    Raises:
        InputError: a file is no result.
        UsageError: one is of another benchmark, of other programs or of another level.
    """
    parts = read_parts([*config.results, *config.beside], setup)
    return compared(parts[: len(config.results)], parts[len(config.results) :])


def compared(seeds: Sequence[tuple[Path, Written]], beside: Sequence[tuple[Path, Written]] = ()) -> Result:
    """The results beside each other, each a path and what is there.

    Raises:
        UsageError: one is of another benchmark, of other programs or of another level, there are fewer than two seeds,
            or two are of the same policies.
    """
    check_seeds(seeds, "policy_bench")
    parts = [*seeds, *beside]
    for path, part in parts:
        if _plain(part) != _plain(parts[0][1]):
            raise UsageError(
                f"{path}: expected changes against plain {_plain(parts[0][1])}, found {_plain(part)}; leave it out"
            )
    every = [_changes(part) for part in parts]
    programs = list(every[0])
    for (path, _), changes in zip(parts, every, strict=True):
        if changes.keys() != every[0].keys():
            raise UsageError(f"{path}: expected the programs of {parts[0][0]}, found others; measure the same ones")
    together = {
        program: [mean_change([one[program][place] for one in every[: len(seeds)]]) for place in range(len(SHOWN))]
        for program in programs
    }
    labels = [*(f"seed {number}" for number in range(1, len(seeds) + 1)), *(path.stem for path, _ in beside)]
    means = dict(zip(labels, map(_means, every), strict=True)) | {"mean of seeds": _means(together)}
    worst = {name: max(one[program][0] for program in programs) for name, one in zip(labels, every, strict=True)}
    worst["mean of seeds"] = max(one[0] for one in together.values())
    low, high = interval_of([one[0] for one in together.values()], np.random.default_rng(1))
    shown = dict(zip(SHOWN, means["mean of seeds"], strict=True))
    rows: list[tuple[Cell, ...]] = [
        (name, *map(percent, of), percent(worst[name]), sum(one[program][0] > 0 for program in programs))
        for (name, of), one in zip(means.items(), [*every, together], strict=True)
    ]
    return Result(
        benchmark="program_seeds",
        question="What do policies of several seeds do to what programs execute, beside other ways?",
        answer=f"{', '.join(f'{percent(value)} {name}' for name, value in shown.items())} in the mean of "
        f"{len(seeds)} seeds and {len(programs)} programs (instructions {percent(low)} to {percent(high)}); "
        f"of one program at most {percent(worst['mean of seeds'])} in the mean of seeds, "
        f"{percent(max(worst[name] for name in labels[: len(seeds)]))} by one seed",
        bar=f"instructions {percent(MOST_MEAN)} and loads {percent(MOST_LOADS)} or less in each seed's mean, "
        f"no program more than {percent(MOST)} more instructions by any",
        passed=all(
            means[name][0] <= MOST_MEAN and means[name][SHOWN.index("loads")] <= MOST_LOADS and worst[name] <= MOST
            for name in labels[: len(seeds)]
        ),
        seed=1,
        tables=(
            Table(
                title="Geometric means",
                columns=("what", *SHOWN, "the worst program's instructions", "programs with more instructions"),
                rows=tuple(rows),
                note="Over programs, against plain builds; the mean of seeds is the geometric mean program by program.",
            ),
            Table(
                title="Instructions by program",
                columns=("program", *labels, "mean of seeds"),
                rows=tuple(
                    (program, *(percent(one[program][0]) for one in every), percent(together[program][0]))
                    for program in programs
                ),
            ),
            Table(
                title="Results",
                columns=("what", "result", "written", "what it says"),
                rows=tuple(
                    (name, path.name, part.written, part.result.answer)
                    for name, (path, part) in zip(labels, parts, strict=True)
                ),
            ),
        ),
    )


def _changes(part: tuple[Path, Written]) -> dict[str, list[float]]:
    """Changes of all measures by program."""
    table = join_tables(PROGRAMS, [part])
    name, *places = (table.columns.index(one) for one in ("workload", *SHOWN))
    return {
        str(row[name]): [0.0 if row[place] == SAME else change_of(row[place]) for place in places] for row in table.rows
    }


def _plain(part: Written) -> str:
    """The options of the builds that a result compares with."""
    return part.result.question.rpartition("plain ")[2].removesuffix("?")


def _means(changes: dict[str, list[float]]) -> list[float]:
    return [mean_change([one[place] for one in changes.values()]) for place in range(len(SHOWN))]


if __name__ == "__main__":
    raise SystemExit(main())
