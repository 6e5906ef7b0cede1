"""Is what `mlgokit tune --build` promises what the user's own tools make of a fresh copy of the sources?"""

import dataclasses
import functools
import json
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, call_mlgokit, check_names, export_shipped, kept_row, run_benchmark, tune_words
from promise_projects import BOARDS, MANIFEST, PromisedProject, promised_projects
from results import Cell, Result, Table, mean_change, percent
from tuning_builds import filled, run_command, unpacked

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.files import digest_file
from mlgokit.policy.pretrained import SHIPPED
from mlgokit.progress import Report

BAR = "every program by the user's own tools as promised to the byte, and none larger than plain or with builtin:Oz"
SIDES = ("plain", "shipped", "tuned")
"""Builds of a project: without a plugin, with the policies of the package, and with what was tuned."""
TOLERANCE = 0.25
"""Of the time that was announced."""
_COMMAND_SECONDS = 1800.0
_RUN_SECONDS = 120.0
_SHOWN = 300
_ANNOUNCED = re.compile(r"^about (\d+(?:\.\d+)?) (min|s): ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Tune builds of real projects, build fresh copies of them by their own tools, and weigh both."""

    folder: Path = Path("build/promise")
    """Folder of the sources, searches and builds; a run goes on where the last one stopped."""
    projects: tuple[str, ...] = ()
    """Names of the projects; all of promise.toml if none is named."""
    seconds: int = 45
    """Budget of each search."""
    workers: int = 2
    """Compilers at once."""
    llvm: int | None = None
    """LLVM major."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Promise, measure, arguments)


def measure(config: Promise, setup: Setup) -> Result:
    """Tune, rebuild and weigh each project.

    Raises:
        FetchError: sources are not to be had.
        InputError: the list of projects is wrong.
        UsageError: a project is not known.
    """
    known = promised_projects()
    check_names("--projects", config.projects, known)
    toolchain = setup.toolchain(config.llvm)
    setup.inputs[MANIFEST.name] = digest_file(MANIFEST)
    chosen = [known[name] for name in config.projects or known]
    measure_one = functools.partial(measure_project, config=config, toolchain=toolchain)
    rows = measure_each(chosen, measure_one, doing="tune and rebuild", report=setup.report)
    return result_of(rows, seconds=config.seconds, workers=config.workers)


def measure_each(
    projects: Sequence[PromisedProject],
    measure_one: Callable[[PromisedProject], dict[str, Any]],
    *,
    doing: str,
    report: Report,
) -> list[tuple[PromisedProject, dict[str, Any]]]:
    """The row of each project; of one that cannot be built, or whose commands fail, why."""
    rows: list[tuple[PromisedProject, dict[str, Any]]] = []
    for index, project in enumerate(projects):
        report(index, len(projects), f"{doing} {project.name}")
        try:
            row = measure_one(project)
        except ToolError as error:
            row = {"failure": str(error)[-_SHOWN:]}
            report(index, len(projects), f"{project.name} failed: {error}")
        rows.append((project, row))
    return rows


def measure_project(project: PromisedProject, *, config: Promise, toolchain: Toolchain) -> dict[str, Any]:
    """Tune one project and build it again, plainly, with the package's policies and with what was tuned.

    Returns:
        ``promised`` and ``built``, by program and side; seconds; and whether the programs do the same on all sides.

    Raises:
        FetchError: the sources are not to be had.
        ToolError: the project cannot be built here, or a command fails.
    """
    place = config.folder.resolve() / project.name
    source, marks = prepare(project, place, toolchain=toolchain, workers=config.workers)
    of = {"project": dataclasses.asdict(project), "seconds": config.seconds, "llvm": toolchain.version}
    tune = functools.partial(_tune, project, source, place, marks, config=config, toolchain=toolchain)
    promise = kept_row(place / "promise.json", tune, of=of)
    build = functools.partial(_build, project, source, place, marks, promise=promise, toolchain=toolchain)
    return promise | kept_row(place / "built.json", build, of={**of, "flag": promise["flag"]})


def prepare(
    project: PromisedProject, place: Path, *, toolchain: Toolchain, workers: int
) -> tuple[Path, dict[str, str]]:
    """The project's sources in ``place`` with our own files, and what stands for the marks in its commands.

    Raises:
        FetchError: the sources are not to be had.
        ToolError: the project cannot be built here.
    """
    for need in project.needs:
        if not (Path(need).exists() or shutil.which(need)):
            raise ToolError(f"expected {need}, found none; install it")
    place.mkdir(parents=True, exist_ok=True)
    source = project_source(project, place)
    for path, name in project.files.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(BOARDS / name, source / path)
    return source, {
        "{cc}": str(toolchain.clang), "{cxx}": str(toolchain.clangxx), "{llvm}": str(toolchain.clang.parent),
        "{jobs}": str(workers), "{meson}": meson_of(project, place),
    }  # fmt: skip


def _tune(
    project: PromisedProject,
    source: Path,
    place: Path,
    marks: Mapping[str, str],
    *,
    config: Promise,
    toolchain: Toolchain,
) -> dict[str, Any]:
    """Tune, and read what the result promises."""
    shutil.rmtree(place / "tune", ignore_errors=True)
    words = tune_words(place, toolchain=toolchain, budget=f"{config.seconds}s", workers=config.workers)
    words += ["--link-folder" if project.is_cargo else "--build-folder", str(source)]
    for command in filled(project.build, {**marks, "{plugin}": "", "{link}": ""}):
        words += ["--cargo" if project.is_cargo else "--build", command]
    for program in () if project.is_cargo else project.programs:
        words += ["--program", program]
    begin = time.monotonic()
    tuned, said = call_mlgokit(words, timeout_seconds=20 * config.seconds + _COMMAND_SECONDS)
    return {
        "promised": promises_of(tuned, project),
        "flag": tuned["flag"],
        "announced_seconds": announced_seconds(said),
        "taken_seconds": time.monotonic() - begin,
        "tree": recorded_tree(place / "tune", source),
        "notes": [*tuned["notes"], *(tuned["built"] or {"notes": []})["notes"]],
        "said": said,
    }


def _build(
    project: PromisedProject,
    source: Path,
    place: Path,
    marks: Mapping[str, str],
    *,
    promise: Mapping[str, Any],
    toolchain: Toolchain,
) -> dict[str, Any]:
    """Build fresh copies of the sources by the project's own commands, weigh the programs and run them."""
    flags = {"plain": "", "tuned": str(promise["flag"])}
    if any(sides["shipped"] is not None for sides in promise["promised"].values()):
        policies = place / "policies.so"
        flags["shipped"] = export_shipped(policies, toolchain=toolchain, timeout_seconds=_COMMAND_SECONDS)
    built: dict[str, dict[str, int]] = {}
    outputs: dict[str, list[bytes]] = {}
    for side, flag in flags.items():
        tree = as_long_as(promise["tree"], place / side)
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(source, tree, symlinks=True)
        side_marks = {**marks, **({} if project.is_cargo else plugin_marks(project, flag))}
        # Of Rust what is told is the whole command.
        by_cargo = project.is_cargo and flag
        for command in [f"sh -c {shlex.quote(flag)}"] if by_cargo else filled(project.build, side_marks):
            run_in(project, command, tree, seconds=_COMMAND_SECONDS)
        built[side] = {name: llvm_sizes(tree / name, toolchain)[0] for name in promise["promised"]}
        outputs[side] = [output_of(project, one, tree) for one in filled(project.run, side_marks)]
    return {
        "built": {name: {side: sizes[name] for side, sizes in built.items()} for name in promise["promised"]},
        "runs": len(project.run),
        "same_output": all(found == outputs["plain"] for found in outputs.values()),
    }


def as_long_as(path: str, shorter: Path) -> Path:
    """A path that begins with ``shorter``, and has as many characters as ``path`` if that has more.

    Programs may have the path of their folder inside, so that they are as large as promised in one of the same length.

    Example:
        >>> as_long_as("/cache/tree/a", Path("/b/tuned")).as_posix(), as_long_as("/a", Path("/b")).as_posix()
        ('/b/tuned-----', '/b')
    """
    return shorter.with_name(shorter.name + "-" * (len(path) - len(str(shorter))))


def recorded_tree(folder: Path, source: Path) -> str:
    """Where the build that a folder records ran; ``source`` if it records none."""
    recorded = folder / "build" / "recorded.json"
    return json.loads(recorded.read_bytes())["build"]["tree"] if recorded.exists() else str(source)


def run_in(project: PromisedProject, command: str, tree: Path, *, seconds: float) -> bytes:
    """Run a command of the project in a tree; gives its output and what it says on standard error, as QEMU does."""
    program, *words = shlex.split(command)
    argv = [str(tree / program) if "/" in program else program, *words]
    done = run_command(project.name, argv, tree, seconds=seconds)
    return done.stdout + done.stderr.encode()


def output_of(project: PromisedProject, command: str, tree: Path) -> bytes:
    """What a command of the project prints, with the path of its folder removed.

    Raises:
        ToolError: the command fails, or prints nothing that could be compared.
    """
    printed = run_in(project, command, tree, seconds=_RUN_SECONDS)
    if not printed.strip():
        raise ToolError(f"{project.name}: expected `{command}` to print something, found nothing; correct the list")
    return printed.replace(bytes(tree), b"")


def promises_of(tuned: Mapping[str, Any], project: PromisedProject) -> dict[str, dict[str, int | None]]:
    """By program and side, the bytes that a result of `tune` names; of the policies only where they were linked."""
    if project.is_cargo:
        return {
            path: {"plain": plain, "shipped": None, "tuned": after}
            for name, (plain, after) in tuned["cargo_programs"].items()
            for path in project.programs
            if Path(path).name == name.rpartition("/")[2]
        }
    judged = (tuned["shipped"] or {}).get("judged") or {}
    shipped = {name: after for name, (_, after) in judged.get("programs", {}).items()}
    return {
        one["program"]: {
            "plain": one["plain"]["image"],
            "shipped": shipped.get(one["program"]),
            "tuned": one["tuned"]["image"],
        }
        for one in tuned["built"]["programs"]
    }


def plugin_marks(project: PromisedProject, flag: str) -> dict[str, str]:
    """What stands for ``{plugin}`` and ``{link}`` where a build gets these flags.

    Raises:
        ToolError: the build has no place for some of them.
    """
    words = shlex.split(flag)
    compiling = [word for word in words if word.startswith("-fpass-plugin=")]
    marks = {"{plugin}": shlex.join(compiling), "{link}": shlex.join(set(words) - set(compiling))}
    for mark, text in marks.items():
        if text and not any(mark in command for command in project.build):
            raise ToolError(f"{project.name}: expected {mark} in its commands for {text}, found none; correct the list")
    return marks


def announced_seconds(said: str) -> float:
    """Seconds that a tuning said to need in all; 0 if it did not say.

    Example:
        >>> announced_seconds("about 5 min: 30 s so far, the search 60 s, first policies and verifications 4 min")
        300.0
    """
    found = _ANNOUNCED.search(said)
    return 0.0 if found is None else float(found[1]) * (60.0 if found[2] == "min" else 1.0)


def llvm_sizes(path: Path, toolchain: Toolchain) -> tuple[int, int]:
    """What llvm-size calls text, and data."""
    done = run_command(
        path.name, [str(toolchain.clang.parent / "llvm-size"), str(path)], path.parent, seconds=_RUN_SECONDS
    )
    text, data = done.stdout.splitlines()[1].split()[:2]
    return int(text), int(data)


def project_source(project: PromisedProject, place: Path) -> Path:
    """The project's sources, unpacked or copied from where a package has installed them."""
    if project.archive is not None:
        return unpacked(project.archive, place / "archive") / project.root
    copy = place / "archive" / Path(project.root).name
    if not copy.exists():
        shutil.copytree(project.root, copy)
    return copy


def meson_of(project: PromisedProject, place: Path) -> str:
    """The Meson of a version, in an environment of its own."""
    if not project.meson:
        return "meson"
    folder = place.parent / f"meson-{project.meson}"
    if not folder.exists():
        python = [sys.executable, "-m", "venv", str(folder)]
        run_command(project.name, python, place.parent, seconds=_COMMAND_SECONDS)
        words = [str(folder / "bin" / "pip"), "install", "--quiet", f"meson=={project.meson}"]
        run_command(project.name, words, place.parent, seconds=_COMMAND_SECONDS)
    return str(folder / "bin" / "meson")


def result_of(rows: Sequence[tuple[PromisedProject, Mapping[str, Any]]], *, seconds: int, workers: int) -> Result:
    """The result of the projects' rows."""
    programs: list[tuple[Cell, ...]] = []
    differences: list[tuple[Cell, ...]] = []
    failures = [(project.name, row["failure"]) for project, row in rows if "failure" in row]
    unequal = behind = grown = 0
    changes: list[float] = []
    over_shipped: list[float] = []
    by_kind: dict[str, list[tuple[float, float | None]]] = {}
    for project, row in rows:
        for name, promised in row.get("promised", {}).items():
            built = row["built"][name]
            wrong = {side: built[side] - promised[side] for side in SIDES if promised[side] is not None}
            unequal += any(wrong.values())
            behind += built["tuned"] > built.get("shipped", built["tuned"])
            grown += built["tuned"] > built["plain"]
            changes.append(built["tuned"] / built["plain"] - 1)
            against = built["tuned"] / built["shipped"] - 1 if "shipped" in built else None
            over_shipped += [] if against is None else [against]
            by_kind.setdefault(kind_of(project), []).append((changes[-1], against))
            programs.append((
                project.name, name, built["plain"], built.get("shipped"), built["tuned"], percent(changes[-1]),
                "-" if against is None else percent(against), *(_difference(wrong.get(side)) for side in SIDES),
            ))  # fmt: skip
        if "promised" in row:
            late = row["taken_seconds"] / row["announced_seconds"] - 1
            behaves = "not run" if not row["runs"] else "yes" if row["same_output"] else "no"
            differences.append((
                project.name, round(row["announced_seconds"]), round(row["taken_seconds"]), percent(late), behaves,
                "; ".join(without_folders(note) for note in row["notes"]),
            ))  # fmt: skip
    strays = sum("promised" in row and not row["same_output"] for _, row in rows)
    late = sum(
        abs(row["taken_seconds"] / row["announced_seconds"] - 1) > TOLERANCE for _, row in rows if "promised" in row
    )
    answer = (
        f"{len(rows) - len(failures)} of {len(rows)} projects, {len(programs)} programs: {unequal} not as promised, "
        f"{grown} larger than plain, {behind} larger than with {SHIPPED}; {strays} projects behave differently; "
        f"{late} took a quarter more or less than was announced"
    )
    if changes:
        answer += f"; tuned {percent(mean_change(changes))}"
    if over_shipped:
        answer += f", and {percent(mean_change(over_shipped))} against {SHIPPED}"
    return Result(
        benchmark="promise",
        question="Is what `mlgokit tune --build` promises of each program what the user's own tools make of a fresh "
        f"copy of the sources, after a search of {seconds} seconds with {workers} compilers at once?",
        answer=answer,
        bar=BAR,
        passed=not (failures or unequal or behind or grown or strays),
        seed=1,
        tables=(
            Table(
                title="Programs",
                columns=(
                    "project", "program", "plain, bytes", f"{SHIPPED}, bytes", "tuned, bytes", "change",
                    f"against {SHIPPED}", "plain, built less promised",
                    f"{SHIPPED}, built less promised", "tuned, built less promised",
                ),
                rows=tuple(programs),
                note="Bytes are what `llvm-size` calls text, of the program that the user's own tools made without "
                "mlgokit, in copies at paths as long as that where `tune` built: a program may have it inside. The "
                "last columns are these bytes less those that `tune` named. A dash: `tune` named none.",
            ),
            Table(
                title="Geometric means",
                columns=("build", "programs", "tuned, change", f"tuned against {SHIPPED}"),
                rows=tuple(mean_row(kind, listed) for kind, listed in by_kind.items()),
            ),
            Table(
                title="Projects",
                columns=("project", "language", "build system", "target", "build"),
                rows=tuple((one.name, one.language, one.system, one.target, one.about) for one, _ in rows),
            ),
            Table(
                title="Time and behaviour",
                columns=(
                    "project", "announced, s", "taken, s", "taken against announced", "same output", "notes of `tune`",
                ),
                rows=tuple(differences),
                note="Announced: the budget, and what `tune` says to need in addition. Taken: the whole command.",
            ),
            *([Table(title="Not tuned", columns=("project", "reason"), rows=tuple(failures))] if failures else []),
        ),
    )  # fmt: skip


def kind_of(project: PromisedProject) -> str:
    """The kind of a project by which means are taken."""
    lto = "with -flto" if project.name.endswith("-lto") else ""
    return f"{'this machine' if project.target == 'x86_64' else 'firmware'} {lto}".strip()


def mean_row(kind: str, changes: Sequence[tuple[float, float | None]]) -> tuple[Cell, ...]:
    """The mean changes of one kind, against plain and against the shipped policies."""
    against = [one for _, one in changes if one is not None]
    mean = percent(mean_change([one for one, _ in changes]))
    return kind, len(changes), mean, percent(mean_change(against)) if against else "-"


def without_folders(note: str) -> str:
    """A note with the files of this machine by their last parts."""
    return re.sub(r"(?<![\w.])/[^\s'\",;]*/", ".../", note)


def _difference(bytes_: int | None) -> Cell:
    return "-" if bytes_ is None else f"{bytes_:+d}" if bytes_ else "0"


if __name__ == "__main__":
    sys.exit(main())
