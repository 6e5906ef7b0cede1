"""How much less do programs execute that `mlgokit tune --objective instructions` tunes with a profile at -O2?"""

import dataclasses
import functools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Setup, call_mlgokit, check_names, kept_row, run_benchmark, tune_words
from promise import measure_each, prepare
from promise_projects import MANIFEST, PromisedProject, promised_projects
from results import Cell, Result, Table, mean_change, percent
from tuning_builds import filled

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.files import digest_file

BAR = -0.04
"""Executed instructions of the runs that the profile was not made of, in the mean of programs."""
WORST, GROWTH = 0.003, 0.01
"""Of one program: executed instructions, and bytes of the image."""
_COMMAND_SECONDS = 3600.0
_TAKEN_BACK = "no plugin was written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a project's programs do.

    Attributes:
        runs: commands that the profile is made of.
        held_out: commands with other inputs or other options.
    """

    runs: tuple[str, ...]
    held_out: tuple[str, ...]


SORTING = (
    "local t = {} for i = 1, 40000 do t[i] = (i * 7919) % 10007 end table.sort(t) local s = 0 "
    "for i, v in ipairs(t) do s = s + v // (i % 7 + 1) end print(s)"
)
COUNTING = (
    'local n = {} for word in ("some words in a line "):rep(2000):gmatch("%a+") do n[word] = (n[word] or 0) + 1 end '
    "local function f(i) return i < 2 and i or f(i - 1) + f(i - 2) end print(n.words, f(18))"
)
WORKLOADS = {
    "lzip": Workload(
        runs=("./lzip -c COPYING", "./lzip -c -d testsuite/test.txt.lz"),
        held_out=("./lzip -9 -c encoder.cc", "./lzip -c -d testsuite/fox.lz"),
    ),
    "gperf": Workload(
        runs=("src/gperf -L ANSI-C tests/chill.gperf", "src/gperf -L C++ tests/java.gperf"),
        held_out=("src/gperf -L ANSI-C tests/gpc.gperf", "src/gperf -m 3 tests/c.gperf"),
    ),
    "cmark": Workload(
        runs=("build/src/cmark test/spec.txt",),
        held_out=("build/src/cmark changelog.txt", "build/src/cmark -t xml README.md"),
    ),
    "bzip2": Workload(
        runs=("./bzip2 -c manual.html", "./bzip2 -d -c sample1.bz2"),
        held_out=("./bzip2 -9 -c sample2.ref", "./bzip2 -d -c sample3.bz2"),
    ),
    "expat": Workload(
        runs=("build/xmlwf/xmlwf doc/reference.html",),
        held_out=("build/xmlwf/xmlwf doc/xmlwf.xml", "build/xmlwf/xmlwf -d . -c doc/reference.html"),
    ),
    "lua": Workload(runs=(f"src/lua -e '{SORTING}'",), held_out=(f"src/lua -e '{COUNTING}'",)),
    "zopfli": Workload(
        runs=("./zopfli --i3 -c README",),
        held_out=("./zopfli --i2 -c COPYING", "./zopfli --i2 --zlib -c src/zopfli/lz77.c"),
    ),
    "mawk": Workload(
        runs=("./mawk '{ n += NF; w[$1]++ } END { for (i in w) if (w[i] > m) m = w[i]; print NR, n, m }' CHANGES",),
        held_out=("./mawk -F: '{ gsub(/[aeiou]+/, \"<&>\"); l += length($0) } END { print l }' configure",),
    ),
}
"""By the name of the project in promise.toml, which is built at -O2 here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Tune programs for executed instructions, and count what they execute in runs that the profile does not know."""

    folder: Path = Path("build/speed")
    """Folder of the sources and searches; a run goes on where the last one stopped."""
    projects: tuple[str, ...] = ()
    """Names of the projects; all if none is named."""
    seconds: int = 90
    """Budget of each search."""
    workers: int = 2
    """Compilers at once."""
    llvm: int | None = None
    """LLVM major."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Speed, measure, arguments)


def measure(config: Speed, setup: Setup) -> Result:
    """Tune each project.

    Raises:
        FetchError: sources are not to be had.
        InputError: the list of projects is wrong.
        UsageError: a project is not known.
    """
    check_names("--projects", config.projects, WORKLOADS)
    known = promised_projects()
    toolchain = setup.toolchain(config.llvm)
    setup.inputs[MANIFEST.name] = digest_file(MANIFEST)
    chosen = [known[name] for name in config.projects or WORKLOADS]
    measure_one = functools.partial(measure_project, config=config, toolchain=toolchain)
    return result_of(measure_each(chosen, measure_one, doing="tune", report=setup.report), seconds=config.seconds)


def measure_project(project: PromisedProject, *, config: Speed, toolchain: Toolchain) -> dict[str, Any]:
    """Tune one project.

    Returns:
        ``runs`` and ``programs`` as `tune` tells them; ``taken_back`` says why nothing was published, or is empty.

    Raises:
        FetchError: the sources are not to be had.
        ToolError: the project cannot be built here, or a command fails.
    """
    place, workload = config.folder.resolve() / project.name, WORKLOADS[project.name]
    source, marks = prepare(project, place, toolchain=toolchain, workers=config.workers)
    words = tune_words(place, toolchain=toolchain, budget=f"{config.seconds}s", workers=config.workers)
    words += ["--objective", "instructions", "--build-folder", str(source)]
    for command in filled(project.build, {**marks, "{plugin}": "", "{link}": ""}):
        words += ["--build", command.replace("-Oz", "-O2")]
    for option, commands in {"--run": workload.runs, "--held-out": workload.held_out}.items():
        words += [word for command in commands for word in (option, command)]
    for program in project.programs:
        words += ["--program", program]

    def tune() -> dict[str, Any]:
        shutil.rmtree(place / "tune", ignore_errors=True)
        try:
            tuned, _ = call_mlgokit(words, timeout_seconds=20 * config.seconds + _COMMAND_SECONDS)
        except ToolError as error:
            if _TAKEN_BACK not in str(error):
                raise
            return {"runs": [], "programs": [], "taken_back": str(error)[-300:], "user_seconds": 0.0, "notes": []}
        programs = tuned["built"]["programs"]
        return {
            "runs": tuned["runs"],
            "programs": [(one["program"], one["plain"]["image"], one["tuned"]["image"]) for one in programs],
            "taken_back": "",
            "user_seconds": tuned["user_seconds"],
            "notes": tuned["notes"],
        }

    return kept_row(place / "speed.json", tune, of={"words": words, "project": dataclasses.asdict(project)})


def result_of(rows: Sequence[tuple[PromisedProject, dict[str, Any]]], *, seconds: int) -> Result:
    """The result of the projects' rows; a project that nothing was published of stays as it was."""
    failures = tuple((project.name, row["failure"]) for project, row in rows if "failure" in row)
    programs: list[tuple[Cell, ...]] = []
    commands: list[tuple[Cell, ...]] = []
    changes: dict[bool, list[float]] = {True: [], False: []}
    images: list[float] = []
    for project, row in rows:
        if "failure" in row:
            continue
        change = {held_out: _change_of(row["runs"], held_out=held_out) for held_out in changes}
        before, after = (sum(one[side] for one in row["programs"]) for side in (1, 2))
        images.append(after / before - 1 if before else 0.0)
        for held_out, one in change.items():
            changes[held_out].append(one)
        programs.append((
            project.name, project.language, percent(change[False]), percent(change[True]), before, after,
            percent(images[-1]), round(row["user_seconds"]), _reason_of(row["taken_back"]),
        ))  # fmt: skip
        commands += [
            (
                project.name, one["command"], "no" if one["held_out"] else "yes", one["plain"], one["tuned"],
                percent(one["tuned"] / one["plain"] - 1),
            )
            for one in row["runs"]
        ]  # fmt: skip
    mean = {held_out: mean_change(np.array(found)) for held_out, found in changes.items()}
    worst = max(changes[True], default=0.0)
    reached = mean[True] <= BAR and worst <= WORST and max(images, default=0.0) <= GROWTH
    return Result(
        benchmark="speed",
        question="How much less do programs execute that are tuned for executed instructions with a profile, at -O2?",
        answer=f"{percent(mean[True])} executed instructions in runs that the profile does not know, "
        f"{percent(mean[False])} in those that it was made of, in the geometric mean of {len(programs)} programs; the "
        f"worst {percent(worst)}; image {percent(mean_change(np.array(images)))}; budget {seconds} s each",
        bar=f"at most {percent(BAR)} in runs that the profile does not know, no program above {percent(WORST)}, and no "
        f"image more than {percent(GROWTH)} larger",
        passed=reached,
        seed=1,
        tables=(
            Table(
                title="Programs",
                columns=(
                    "project", "language", "executed, profiled runs", "executed, held out", "image, plain (bytes)",
                    "image, tuned (bytes)", "image", "processor seconds", "why nothing was published",
                ),
                rows=tuple(programs),
                note="Plain is -O2 with the same profile. A change is the geometric mean over the commands of a "
                "program. Processor seconds are those of all compilations.",
            ),
            Table(
                title="Commands",
                columns=("project", "command", "in the profile", "plain", "tuned", "change"),
                rows=tuple(commands),
                note="Instructions counted by callgrind in the programs of the build and the libraries that they load.",
            ),
            *([Table(title="Not measured", columns=("project", "why"), rows=failures)] if failures else []),
        ),
    )  # fmt: skip


def _reason_of(taken_back: str) -> str:
    """What counting found, of the error of a tuning that published nothing.

    Example:
        >>> _reason_of("expected fewer, found that no run executed fewer; no plugin was written")
        'no run executed fewer'
    """
    return taken_back.rpartition("found that ")[2].partition(";")[0]


def _change_of(runs: Sequence[dict[str, Any]], *, held_out: bool) -> float:
    """Geometric mean of the changes of a program's commands; 0 without any."""
    found = [one["tuned"] / one["plain"] - 1 for one in runs if one["held_out"] is held_out]
    return mean_change(np.array(found)) if found else 0.0


if __name__ == "__main__":
    raise SystemExit(main())
