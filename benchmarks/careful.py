"""What policies add to builds of people who already use the flags that are free, for each such build."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import public
from harness import Setup, check_names, linker_of, run_benchmark, shown_command
from public_projects import public_projects, split_of
from public_tables import (
    LANGUAGES,
    change,
    check_look,
    failures_said,
    read_looks,
    write_look,
)
from results import Cell, Result, Table, mean_change, percent

from mlgokit.builds.variant import make_variant
from mlgokit.errors import UsageError

_WITHOUT_TABLES = ("-fno-unwind-tables", "-fno-asynchronous-unwind-tables")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A build that the policies come on top of.

    Attributes:
        title: what it is called in the table.
        link: key of the image in a row of ``public.py``.
        target: triple of the processor; that of the compiler if not given.
        options: options of the compiler beside ``-Oz -ffunction-sections -fdata-sections``.
        bars: by language, the change of the image that is asked for.
    """

    title: str
    link: str
    target: str | None = None
    options: tuple[str, ...] = ()
    bars: Mapping[str, float]


BASELINES = {
    "plain": Baseline(title="gc-sections", link="gc-sections", bars={"c++": -0.09, "c": -0.03}),
    "folded": Baseline(title="gc-sections, icf=all", link="icf=all", bars={"c++": -0.06, "c": -0.03}),
    "no-tables": Baseline(
        title="the same, merged functions, no unwind tables",
        link="icf=all",
        options=(*_WITHOUT_TABLES, "-Xclang", "-fmerge-functions"),
        bars={"c++": -0.04, "c": -0.035},
    ),
    "thumb": Baseline(
        title="Thumb v7-M, gc-sections, icf=all, no unwind tables",
        link="icf=all",
        target="thumbv7m-linux-gnueabi",
        options=_WITHOUT_TABLES,
        bars={"c++": -0.02, "c": -0.025},
    ),
    "thumbv6m": Baseline(
        title="Thumb v6-M, the same",
        link="icf=all",
        target="thumbv6m-linux-gnueabi",
        options=_WITHOUT_TABLES,
        bars={"c++": -0.02, "c": -0.025},
    ),
    "riscv32": Baseline(
        title="riscv32, the same",
        link="icf=all",
        target="riscv32-linux-gnu",
        options=("-march=rv32imac", "-mabi=ilp32", *_WITHOUT_TABLES),
        bars={"c++": -0.015, "c": -0.02},
    ),
    "riscv64": Baseline(
        title="riscv64, gc-sections, icf=all",
        link="icf=all",
        target="riscv64-linux-gnu",
        bars={"c++": -0.015, "c": -0.02},
    ),
    "aarch64": Baseline(
        title="AArch64, gc-sections, icf=all",
        link="icf=all",
        target="aarch64-linux-gnu",
        bars={"c++": -0.06, "c": -0.03},
    ),
}
"""Bars are those of issue 60; AArch64 has that of x86-64, Thumb v6-M that of v7-M, riscv64 that of riscv32."""
HARM = 0.001
"""By which no project may be larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Careful:
    """Score policies on top of builds that already use the flags that are free."""

    baselines: tuple[str, ...] = tuple(BASELINES)
    """Names of the builds."""
    policies: tuple[str, ...] = ("builtin:Oz",)
    """Policies that are scored together."""
    split: Literal["validation", "test"] = "validation"
    """Projects to score on. Each look at the test is written down for each build."""
    projects: tuple[str, ...] = ()
    """Names of the projects, all of the split if none is given; the test is looked at whole."""
    again: bool = False
    """Another look at the test by policies that had one."""
    folder: Path = Path("build/public")
    """Where sources, bitcode, plain objects and rows are kept."""
    looks: Path = Path("docs/data/public_looks.json")
    """Where looks at the test are written down, with a page of its own."""
    workers: int = 2
    """Compilers that run at once."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Careful, measure, arguments)


def measure(config: Careful, setup: Setup) -> Result:
    """Build the projects of the split in each way, on both sides.

    Raises:
        ToolError: there is no linker.
        UsageError: a name is not known, or the policies had their look at the test.
    """
    known = public_projects()
    in_split = [name for name in known if split_of(name) == config.split]
    check_names("projects", config.projects, in_split)
    check_names("baselines", config.baselines, BASELINES)
    if config.split == "test" and config.projects:
        raise UsageError("--projects: expected none with --split test, which is looked at whole; leave them out")
    toolchain = setup.toolchain(config.llvm)
    linker_of(toolchain, "careful")
    chosen = [known[name] for name in config.projects or in_split]
    after = make_variant(config.policies)
    digests = public.policy_digests(after)
    setup.inputs.update({f"policy {name}": digest for name, digest in digests.items()})
    looks = read_looks(config.looks)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    failed: list[str] = []
    for name in config.baselines:
        baseline = BASELINES[name]
        of = digests if name == "plain" else {f"{one} on {name}": f"{name}:{of}" for one, of in digests.items()}
        if config.split == "test":
            check_look(looks, of, again=config.again)
        one = public.Public(
            policies=config.policies,
            split=config.split,
            target=baseline.target,
            option=baseline.options,
            folder=config.folder,
            workers=config.workers,
        )
        found[name], missing = public.project_rows(chosen, after, one, setup, toolchain)
        failed += [f"{baseline.title}: {text}" for text in missing]
        if config.split == "test" and found[name]:
            words = ["--split", "test", "--baselines", name, "--policies", *config.policies]
            command = shown_command("careful", words, cwd=Path.cwd())
            looks = write_look(
                looks,
                found[name],
                missing,
                of,
                config.looks,
                llvm=toolchain.major,
                again=config.again,
                command=command,
            )
    return summarise(found, failed, config.policies, config.split, complete=not config.projects)


def summarise(
    found: Mapping[str, Mapping[str, Mapping[str, Any]]],
    failed: Sequence[str],
    policies: Sequence[str],
    split: str,
    *,
    complete: bool,
) -> Result:
    """The tables, and whether the bars were reached."""
    means: list[tuple[Cell, ...]] = []
    reached: list[bool] = []
    grown: list[str] = []
    largest = 0.0
    judged = {
        name: {project: with_memory(row, BASELINES[name].link) for project, row in rows.items()}
        for name, rows in found.items()
    }
    for name, rows in judged.items():
        baseline = BASELINES[name]
        for project, row in rows.items():
            before, after = row["images"][baseline.link]
            grown += [f"{project} on {name}"] if after["ram"] > before["ram"] else []
        for language in LANGUAGES:
            mine = [project for project, row in rows.items() if row["language"] == language]
            if not mine:
                continue
            changes = {project: change(rows[project], baseline.link, "flash") for project in mine}
            worst = max(changes, key=lambda project: changes[project])
            largest = max(largest, changes[worst])
            mean, bar = mean_change(list(changes.values())), baseline.bars[language]
            reached.append(mean <= bar)
            means.append(
                (
                    baseline.title, language, len(mine), percent(mean),
                    *(percent(mean_change([change(rows[project], baseline.link, part) for project in mine]))
                      for part in ("image", "text")),
                    f"{percent(changes[worst])}, {worst}", percent(bar), "yes" if reached[-1] else "no",
                )
            )  # fmt: skip
    broken = sum(row["failures"] for rows in found.values() for row in rows.values())
    return Result(
        benchmark="careful",
        question=f"What do {' and '.join(policies)} give on top of builds that use the flags that are free, on the "
        f"{split} projects of the public benchmark?",
        answer="; ".join(f"{row[0]}: {str(row[1]).upper()} {row[3]}" for row in means)
        + f"; {sum(reached)} of {len(reached)} bars reached; the largest change {percent(largest)}; data grows in "
        f"{len(grown)}; {broken} modules fail",
        bar=f"the column of that name in each row, no project more than {percent(HARM)} larger" if complete else "",
        passed=all(reached) and largest <= HARM and not failed and not broken if complete else None,
        seed=0,
        tables=(
            Table(
                title="Geometric means",
                columns=("build", "language", "projects", "flash", "image", "of that .text", "largest flash", "bar",
                         "reached"),
                rows=tuple(means),
                note="Against the same build without policies, -Oz with -ffunction-sections and -fdata-sections "
                "everywhere. An image is code, constants and unwind tables; flash is that with the initial values of "
                "data. "
                + (f"Data grows in {', '.join(grown)}. " if grown else "")
                + failures_said(failed),
            ),
            Table(
                title="Projects",
                columns=("build", "project", "language", "modules", "flash", "image", "of that .text",
                         "modules not larger", "fail under the policies"),
                rows=tuple(
                    (BASELINES[name].title, project, row["language"], row["modules"],
                     *(percent(change(row, link, part)) for part in ("flash", "image", "text")),
                     row["modules"] - row["larger_modules"], row["failures"])
                    for name, rows in judged.items()
                    for link in (BASELINES[name].link,)
                    for project, row in rows.items()
                ),
            ),
        ),
    )  # fmt: skip


def with_memory(row: Mapping[str, Any], link: str) -> dict[str, Any]:
    """A row whose image has two measures more, what it takes of read-only and of writable memory."""
    sides = [
        {**side, "flash": side["image"] + side["data"], "ram": side["data"] + side["bss"]}
        for side in row["images"][link]
    ]
    return {**row, "images": {link: sides}}


if __name__ == "__main__":
    raise SystemExit(main())
