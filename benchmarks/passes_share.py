"""What a share of the budget for passes gives, in bytes and executed instructions, to programs tuned with it."""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, kept_row, run_benchmark
from results import Cell, Result, Table, percent
from tuning_command import tune_for

from mlgokit.commands import bench
from mlgokit.commands.options import COMPILER
from mlgokit.commands.tune_options import PASS_SHARE, Tune
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.evaluation.statistics import geometric_mean_change
from mlgokit.progress import Report

MOST_MORE = 0.003
"""Instructions that programs may execute more, in the geometric mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassesShare:
    """Tune each project of a corpus with and without a share for passes, and run the workload of its name."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    projects: tuple[str, ...] = ("snappy", "double-conversion", "lua", "zstd")
    """Projects of the corpus that are workloads of `mlgokit bench`, too."""
    minutes: float = 5.0
    """Core-minutes of each tuning."""
    pass_share: float = PASS_SHARE
    """Of the budget, where passes are searched."""
    slowdown: float = 0.0
    """Bound on the estimate of instructions."""
    folder: Path = Path("build/passes-share")
    """Where tunings and builds are kept."""
    workers: int = 2
    """Compilers that run at once."""
    llvm: int | None = None
    """LLVM major; the newest supported one if not given."""
    json: Path = Path("docs/results/passes_share.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(PassesShare, measure, arguments)


def measure(config: PassesShare, setup: Setup) -> Result:
    """Tune and run what is not done yet, and sum everything up."""
    toolchain = setup.toolchain(config.llvm)
    setup.corpus(config.corpus)
    rows: list[dict[str, Any]] = []
    for index, project in enumerate(config.projects):

        def make(project: str = project) -> dict[str, Any]:
            return {
                name: one_arm(config, toolchain, project, name, share, report=setup.report)
                for name, share in (("without", 0.0), ("with", config.pass_share))
            }

        rows.append({"project": project} | kept_row(config.folder / f"{project}.json", make, of=setup.inputs))
        setup.report(index + 1, len(config.projects), "projects")
    return summarise(rows, config)


def one_arm(
    config: PassesShare, toolchain: Toolchain, project: str, name: str, share: float, *, report: Report
) -> dict[str, Any]:
    """One tuning, and what its plugin does to the workload."""
    folder = config.folder / project / name
    compiler = dataclasses.replace(COMPILER, llvm=toolchain.major, workers=config.workers)
    found = tune_for(
        Tune(
            corpus=config.corpus,
            project=project,
            output=folder / "tuned.so",
            folder=folder / "tune",
            pass_share=share,
            slowdown=config.slowdown,
            compiler=compiler,
        ),
        seconds=60 * config.minutes,
        report=report,
    )
    ran = bench.run(
        bench.Bench(
            plugin=folder / "tuned.so",
            workloads=(project,),
            counter="callgrind",
            time_seconds=0,
            folder=folder / "bench",
            compiler=compiler,
        )
    )
    (one,) = ran.workloads
    sides: dict[str, Any] = {}
    for side, result in (("plain", one.before), ("tuned", one.after)):
        counts = result.counts
        sides[side] = {"image": result.image, "instructions": None if counts is None else counts.instructions}
    parts = {
        part: None
        if (value := getattr(found, part)) is None
        else [value.before_bytes, value.after_bytes, value.changed]
        for part in ("optimizer_passes", "passes", "allocated")
    }
    return {
        "objects": [found.plain_bytes, found.tuned_bytes],
        "same_output": one.same_output,
        "failures": [f"{each.side}: {each.step}: {each.reason}" for each in one.failures],
        **sides,
        **parts,
    }


def change(before: float | None, after: float | None) -> float | None:
    """Relative; nothing where one is not known."""
    return after / before - 1 if before and after else None


def shown(value: float | None) -> Cell:
    """A change."""
    return None if value is None else percent(value)


def summarise(rows: Sequence[dict[str, Any]], config: PassesShare) -> Result:
    """The table."""
    table: list[tuple[Cell, ...]] = []
    pairs: list[tuple[float, float]] = []
    for row in rows:
        cells: list[Cell] = [row["project"]]
        for measure_of in (
            lambda arm: change(*arm["objects"]),
            lambda arm: change(arm["plain"]["image"], arm["tuned"]["image"]),
            lambda arm: change(arm["plain"]["instructions"], arm["tuned"]["instructions"]),
        ):
            cells += [shown(measure_of(row[arm])) for arm in ("without", "with")]
        parts = [row["with"][part] for part in ("optimizer_passes", "passes")]
        cells += [shown(change(*part[:2])) if part else None for part in parts]
        table.append((*cells, "yes" if row["with"]["same_output"] else "no"))
        counts = [row[arm]["tuned"]["instructions"] for arm in ("without", "with")]
        if all(counts):
            pairs.append((counts[0], counts[1]))
    more = geometric_mean_change(*map(list, zip(*pairs, strict=True))) if pairs else None
    images = [(row["without"]["tuned"]["image"], row["with"]["tuned"]["image"]) for row in rows]
    images = [pair for pair in images if all(pair)]
    smaller = geometric_mean_change(*map(list, zip(*images, strict=True))) if images else None
    same = all(row["with"]["same_output"] for row in rows)
    return Result(
        benchmark="passes_share",
        question="What does a share of the budget for passes give, in bytes and in executed instructions?",
        answer=f"geometric mean over {len(rows)} programs, with the share against without: "
        f"{shown(smaller)} bytes of the image, {shown(more)} instructions"
        f"{'' if same else '; some put out something else'}",
        bar=f"at most {percent(MOST_MORE)} instructions, and the same output",
        passed=None if more is None else more <= MOST_MORE and same,
        seed=1,
        tables=(
            Table(
                title="Against plain -Oz",
                columns=(
                    "program", "objects, without", "objects, with", "image, without", "image, with",
                    "instructions, without", "instructions, with", "of objects by the optimizer's passes",
                    "by the code generator's", "same output",
                ),
                rows=tuple(table),
                note=f"Each tuned for {config.minutes:g} core-minutes, {config.pass_share:g} of it for passes in the "
                f"one case, the bound on the estimate {config.slowdown:g}. Instructions by callgrind, in the program's "
                "own files.",
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
