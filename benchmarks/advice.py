"""Is what `mlgokit advise` says of a build what the user's own tools make of a fresh copy with these flags?"""

import dataclasses
import functools
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, call_mlgokit, check_names, kept_row, run_benchmark
from promise import as_long_as, llvm_sizes, measure_each, output_of, prepare, recorded_tree, run_in, without_folders
from promise_projects import MANIFEST, PromisedProject, promised_projects
from results import Cell, Result, Table, mean_change, percent
from tuning_builds import filled

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.files import digest_file
from mlgokit.flags.reviewed import FLAGS

BAR = "every program by the user's own tools as advised to the byte: text, data and the whole file; none larger in sum"
SIDES = ("plain", "advised", "shipped")
"""Builds of a project: as it is, with what is advised, and with the policies of the package on top."""
_LINK = re.compile(r"-fuse-ld=lld(?: -Wl,--(?:gc-sections|icf=all))*")
_SIZES = ("text", "data", "file")
_COMMAND_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceByHand:
    """Ask for advice on builds of real projects, build fresh copies by their own tools with it, and weigh both."""

    folder: Path = Path("build/advice")
    """Folder of the sources, trials and builds; a run goes on where the last one stopped."""
    projects: tuple[str, ...] = ()
    """Names of projects of promise.toml; by default all whose links take options and that are no firmware."""
    seconds: int = 600
    """Time for the trials of a project."""
    workers: int = 2
    """Compilers at once."""
    llvm: int | None = None
    """LLVM major."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(AdviceByHand, measure, arguments)


def measure(config: AdviceByHand, setup: Setup) -> Result:
    """Ask, rebuild and weigh each project.

    Raises:
        FetchError: sources are not to be had.
        InputError: the list of projects is wrong.
        UsageError: a project is not known, or has no place for options.
    """
    known = {
        name: as_released(one)
        for name, one in promised_projects().items()
        if one.target == "x86_64"
        and "-flto" not in " ".join(one.build)
        and "{link}" in " ".join(as_released(one).build)
    }
    check_names("--projects", config.projects, known)
    toolchain = setup.toolchain(config.llvm)
    setup.inputs[MANIFEST.name] = digest_file(MANIFEST)
    chosen = [known[name] for name in config.projects or known]
    measure_one = functools.partial(measure_project, config=config, toolchain=toolchain)
    rows = measure_each(chosen, measure_one, doing="advise and rebuild", report=setup.report)
    return result_of(rows, seconds=config.seconds)


def as_released(project: PromisedProject) -> PromisedProject:
    """The project as most people build it, at ``-O2`` by the system's linker, with places for both kinds of options."""
    commands = []
    for command in project.build:
        text = command.replace("LDFLAGS=-fuse-ld=lld", "LDFLAGS='-fuse-ld=lld'")
        text = text.replace("-Oz", "-O2").replace("-Os", "-O2").replace(" -ffunction-sections -fdata-sections", "")
        commands.append(_LINK.sub("{link}", text))
    return dataclasses.replace(project, build=tuple(commands))


def measure_project(project: PromisedProject, *, config: AdviceByHand, toolchain: Toolchain) -> dict[str, Any]:
    """Advise on one project, and build it again by hand.

    Returns:
        ``advised`` and ``built``, by program and side, and whether the programs do the same on all sides.

    Raises:
        FetchError: the sources are not to be had.
        ToolError: the project cannot be built here, or a command fails.
    """
    place = config.folder.resolve() / project.name
    source, marks = prepare(project, place, toolchain=toolchain, workers=config.workers)
    of = {"project": dataclasses.asdict(project), "llvm": toolchain.version}
    ask = functools.partial(_ask, project, source, place, marks, config=config, toolchain=toolchain)
    advice = kept_row(place / "advised.json", ask, of={**of, "seconds": config.seconds})
    build = functools.partial(_build, project, source, place, marks, advice=advice, toolchain=toolchain)
    return advice | kept_row(place / "built.json", build, of={**of, "options": advice["options"]})


def _ask(
    project: PromisedProject,
    source: Path,
    place: Path,
    marks: Mapping[str, str],
    *,
    config: AdviceByHand,
    toolchain: Toolchain,
) -> dict[str, Any]:
    """Ask for advice, and read what it promises."""
    words = ["advise", "--llvm", str(toolchain.major), "--seconds", str(config.seconds)]
    words += ["--folder", str(place / "advice"), "--build-folder", str(source)]
    for option, commands in (("--build", project.build), ("--test", project.run)):
        for command in filled(commands, {**marks, "{plugin}": "", "{link}": ""}):
            words += [option, command]
    for program in project.programs:
        words += ["--program", program]
    advice, said = call_mlgokit(words, timeout_seconds=config.seconds + _COMMAND_SECONDS)
    advised = {"compile": advice["compile"], "link": advice["link"]}
    shipped = {
        "compile": [*advice["compile"], *advice["shipped_compile"]],
        "link": [*advice["link"], *advice["shipped_link"]],
    }
    trials = {"plain": advice["plain"], "advised": advice["advised_build"] or advice["plain"]}
    options = {"plain": {"compile": [], "link": []}, "advised": advised}
    if advice["shipped"] is not None and not advice["shipped"]["reason"]:
        trials["shipped"], options["shipped"] = advice["shipped"], shipped
    return {
        "advised": {
            name: {side: _promised(trial, name) for side, trial in trials.items()}
            for name in advice["plain"]["programs"]
        },
        "options": options,
        "flags": advice["advised"],
        "alone": {
            one["name"]: {"state": one["state"], "change": _change(advice["plain"], one["trial"])}
            for one in advice["flags"]
        },
        "tree": recorded_tree(place / "advice", source),
        "notes": advice["notes"],
        "said": said,
    }


def _promised(trial: Mapping[str, Any], name: str) -> dict[str, int]:
    image = trial["programs"][name]
    return {"text": image["image"], "data": image["data"], "file": trial["files"][name]}


def _change(plain: Mapping[str, Any], trial: Mapping[str, Any] | None) -> float | None:
    """Of what is loaded of all programs."""
    if trial is None or not trial["programs"]:
        return None
    before, after = (sum(one["image"] + one["data"] for one in side["programs"].values()) for side in (plain, trial))
    return after / before - 1


def _build(
    project: PromisedProject,
    source: Path,
    place: Path,
    marks: Mapping[str, str],
    *,
    advice: Mapping[str, Any],
    toolchain: Toolchain,
) -> dict[str, Any]:
    """Build fresh copies of the sources by the project's own commands, weigh the programs and run them."""
    built: dict[str, dict[str, dict[str, int]]] = {name: {} for name in advice["advised"]}
    outputs: dict[str, list[bytes]] = {}
    for side, options in advice["options"].items():
        tree = as_long_as(advice["tree"], place / side)
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(source, tree, symlinks=True)
        flags = {"{plugin}": shlex.join(options["compile"]), "{link}": shlex.join(options["link"])}
        for command in filled(project.build, {**marks, **flags}):
            run_in(project, command, tree, seconds=_COMMAND_SECONDS)
        for name, sizes in built.items():
            text, data = llvm_sizes(tree / name, toolchain)
            sizes[side] = {"text": text, "data": data, "file": (tree / name).stat().st_size}
        outputs[side] = [output_of(project, one, tree) for one in filled(project.run, marks)]
    return {
        "built": built,
        "runs": len(project.run),
        "same_output": all(found == outputs["plain"] for found in outputs.values()),
    }


def result_of(rows: Sequence[tuple[PromisedProject, Mapping[str, Any]]], *, seconds: int) -> Result:
    """The result of the projects' rows."""
    programs: list[tuple[Cell, ...]] = []
    projects: list[tuple[Cell, ...]] = []
    alone: list[tuple[Cell, ...]] = []
    failures = [(project.name, row["failure"]) for project, row in rows if "failure" in row]
    unequal = strays = grown = 0
    changes: list[float] = []
    over: list[float] = []
    for project, row in rows:
        if "advised" not in row:
            continue
        sums = dict.fromkeys(SIDES, 0)
        for name, sides in row["advised"].items():
            built = row["built"][name]
            wrong = {
                side: sum(abs(built[side][size] - promised[size]) for size in _SIZES)
                for side, promised in sides.items()
            }
            unequal += any(wrong.values())
            for side in sides:
                sums[side] += built[side]["text"] + built[side]["data"]
            loaded = [built[side]["text"] + built[side]["data"] if side in built else None for side in SIDES]
            programs.append((
                project.name, name, *loaded, built["plain"]["file"], built["advised"]["file"],
                *(wrong.get(side) for side in SIDES),
            ))  # fmt: skip
        grown += sums["advised"] > sums["plain"]
        strays += not row["same_output"]
        changes.append(sums["advised"] / sums["plain"] - 1)
        if sums["shipped"]:
            over.append(sums["shipped"] / sums["advised"] - 1)
        options = row["options"]["advised"]
        projects.append((
            project.name, project.language, project.system, ", ".join(row["flags"]) or "none", percent(changes[-1]),
            percent(over[-1]) if sums["shipped"] else "-",
            "not run" if not row["runs"] else "yes" if row["same_output"] else "no",
            shlex.join(options["compile"]), shlex.join(options["link"]),
            "; ".join(without_folders(note) for note in row["notes"]),
        ))  # fmt: skip
        alone.append((project.name, *(_alone(row["alone"][flag.name]) for flag in FLAGS)))
    answer = (
        f"{len(projects)} of {len(rows)} projects, {len(programs)} programs: {unequal} not as advised; {grown} "
        f"projects are larger, {strays} behave differently"
    )
    if changes:
        answer += f"; advised {percent(mean_change(changes))}"
    if over:
        answer += f", and builtin:Oz on top {percent(mean_change(over))}"
    return Result(
        benchmark="advice",
        question="Is what `mlgokit advise --build` says of each program what the user's own tools make of a fresh copy "
        f"of the sources with the flags that it names, after trials of at most {seconds} seconds?",
        answer=answer,
        bar=BAR,
        passed=not (failures or unequal or grown or strays),
        seed=1,
        tables=(
            Table(
                title="Projects",
                columns=(
                    "project", "language", "build system", "advised", "change", "builtin:Oz on top", "same output",
                    "options of compilations", "options of links", "notes of `advise`",
                ),
                rows=tuple(projects),
                note="All projects are built at `-O2` by the linker of the system, as their own files have it or as "
                "most people build them. The change is of what is loaded (text and data of `llvm-size`) of all "
                "programs. Same output: the commands of the project's list print the same with all three builds.",
            ),
            Table(
                title="Each flag alone",
                columns=("project", *(flag.name for flag in FLAGS)),
                rows=tuple(alone),
                note="Change of what is loaded, of all programs together. `=`: the build has it already. `x`: it does "
                "not build, or fails the tests. `-`: not tried.",
            ),
            Table(
                title="Programs",
                columns=(
                    "project", "program", "plain, loaded", "advised, loaded", "builtin:Oz on top, loaded",
                    "plain, file", "advised, file", "plain, wrong bytes", "advised, wrong bytes",
                    "on top, wrong bytes",
                ),
                rows=tuple(programs),
                note="Bytes of the programs that the user's own tools made without mlgokit, in copies at paths as long "
                "as that where `advise` built. Wrong bytes: the absolute differences of text, data and the whole file "
                "from what `advise` named, added up.",
            ),
            *([Table(title="Not built", columns=("project", "reason"), rows=tuple(failures))] if failures else []),
        ),
    )  # fmt: skip


def _alone(one: Mapping[str, Any]) -> str:
    if one["state"] == "already there":
        return "="
    if one["state"] in {"does not build", "fails the tests"}:
        return "x"
    return "-" if one["change"] is None else percent(one["change"])


if __name__ == "__main__":
    sys.exit(main())
