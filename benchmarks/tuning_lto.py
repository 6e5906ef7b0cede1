"""How much smaller tuning makes programs that are linked with -flto, beside the builds without it.

Each project has builds in a folder of its own, and one file for each row that is done. A search goes on where it
stopped, so a call with more ``--minutes`` continues from the smaller ones, and ``--slice N`` does a part of the work.
"""

import dataclasses
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Setup, check_names, linker_of, run_benchmark
from results import Cell, Result, Table, percent
from tuning_builds import LINKING, build_project, image_of, source_folder
from tuning_command import tune_for
from tuning_projects import PROJECTS, TunedProject

from mlgokit.commands.corpus.record import DATABASE_NAME
from mlgokit.commands.options import CompilerOptions
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import MlgokitError, ToolError, UsageError
from mlgokit.evaluation.statistics import geometric_mean_change
from mlgokit.files import atomic_write
from mlgokit.tune.loop import NOTHING_LEFT

BARS = {"c++": -0.04, "c": -0.02}
THIN_BAR = -0.025
BAR = (
    "tuned -flto 4 % smaller on C++ and 2 % on C than -flto, tuned -flto=thin 2.5 % smaller than -flto=thin, none "
    "larger, all tests pass"
)
BUILDS = ("plain", "tuned", "lto", "tuned lto", "thin", "tuned thin")
_LTO = {build: "-flto=thin" if "thin" in build else "-flto" for build in BUILDS if "thin" in build or "lto" in build}
_FROM = {"tuned": "plain", "tuned lto": "lto", "tuned thin": "thin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningLto:
    """Build real programs with and without -flto, tune both, build them with the results, and run their tests."""

    projects: tuple[str, ...] = (
        "ninja", "muparser", "jsoncpp", "pugixml", "tinyxml2", "double-conversion", "cmark", "expat", "jansson",
    )  # fmt: skip
    """Which projects, of those whose build systems say how they link."""
    builds: tuple[str, ...] = BUILDS
    """Which builds."""
    minutes: float = 15.0
    """Core-minutes of each search."""
    folder: Path = Path("build/tuning-lto")
    """Where projects and searches are kept."""
    slice: int = 0
    """How many missing rows to make in this call; 0 for all, -1 for none but the tables."""
    workers: int = 2
    """Compilers that run at once."""
    seed: int = 1
    """Of the searches."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/tuning_lto.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TuningLto, measure, arguments)


def measure(config: TuningLto, setup: Setup) -> Result:
    """Make what is missing, as far as the slice goes, and the tables of all that is there.

    Raises:
        UsageError: a build or a project is not known, or there is no budget.
    """
    check_names("builds", config.builds, BUILDS)
    check_names("projects", config.projects, PROJECTS)
    if config.minutes <= 0:
        raise UsageError(f"minutes: expected core-minutes above zero, found {config.minutes:g}; correct it")
    toolchain = setup.toolchain(config.llvm)
    failed: dict[str, str] = {}
    made = 0
    for name in config.projects:
        for build in BUILDS:
            path = _path(config, name, build)
            if (
                build not in config.builds
                or path.exists()
                or (config.slice and made >= config.slice)
                or config.slice < 0
            ):
                continue
            made += 1
            setup.report(made, made, f"{name}, {build}")
            try:
                row = _row(config, PROJECTS[name], build, toolchain=toolchain, setup=setup)
            except MlgokitError as error:
                failed[f"{name}, {build}"] = str(error)
                continue
            atomic_write(path, json.dumps(row, indent=1))
    rows = {
        (name, build): json.loads(path.read_bytes())
        for name in config.projects
        for build in BUILDS
        if (path := _path(config, name, build)).exists()
    }
    archives = [(each, PROJECTS[each].archive) for each in config.projects]
    setup.inputs.update({f"{name}, {archive.file}": archive.sha256 for name, archive in archives})
    return summarise(rows, projects=config.projects, failed=failed, minutes=config.minutes, seed=config.seed)


def summarise(
    rows: Mapping[tuple[str, str], Mapping[str, Any]],
    *,
    projects: Sequence[str],
    failed: Mapping[str, str],
    minutes: float,
    seed: int,
) -> Result:
    """The tables of all rows that there are."""

    def size(name: str, build: str) -> float | None:
        row = rows.get((name, build))
        return None if row is None else float(row["image"]["image"])

    def change(name: str, build: str, base: str) -> float | None:
        after, before = size(name, build), size(name, base)
        return None if after is None or before is None else after / before - 1

    def shown(value: float | None) -> Cell:
        return None if value is None else percent(value)

    def mean(names: Sequence[str], build: str, base: str) -> tuple[int, float | None]:
        pairs = [(size(name, base), size(name, build)) for name in names]
        both = np.array([pair for pair in pairs if None not in pair], float).reshape(-1, 2)
        return len(both), geometric_mean_change(*both.T) if len(both) else None

    def tuned_cells(name: str, build: str) -> tuple[Cell, ...]:
        row = rows.get((name, build))
        spent = (None, None, None) if row is None else (_minutes_of(row), row["compilations"], row["tests"])
        text, whole = _text_change(rows, name, build), _judged_change(row)
        return (shown(change(name, build, _FROM[build])), shown(text), shown(whole), *spent)

    searched = ("of that .text", "the image by llvm-size", "core-minutes", "compilations", "tests")
    table = Table(
        title="Programs with -flto",
        columns=(
            "project",
            "language",
            "plain -Oz, bytes",
            "tuned -Oz",
            "-flto",
            "tuned -flto",
            "tuned -flto against -flto",
            *searched,
        ),
        rows=tuple(
            (
                name,
                PROJECTS[name].language,
                size(name, "plain"),
                shown(change(name, "tuned", "plain")),
                shown(change(name, "lto", "plain")),
                shown(change(name, "tuned lto", "plain")),
                *tuned_cells(name, "tuned lto"),
            )
            for name in projects
        ),
        note="Own program or library, .text + .rodata + exception and unwind tables. All with -ffunction-sections, "
        "-fdata-sections, lld, --gc-sections and --icf=all; changes are against plain -Oz, but for those of tuned "
        "-flto against -flto. llvm-size also counts what the dynamic linker reads: what was inlined of a library "
        "before may be called now, by a symbol, an entry of .plt and a relocation.",
    )
    thin = Table(
        title="Programs with -flto=thin",
        columns=("project", "-flto=thin, against plain -Oz", "tuned -flto=thin against -flto=thin", *searched),
        rows=tuple((name, shown(change(name, "thin", "plain")), *tuned_cells(name, "tuned thin")) for name in projects),
    )
    means = {
        language: mean([name for name in projects if PROJECTS[name].language == language], "tuned lto", "lto")
        for language in BARS
    }
    _, thin_mean = mean(projects, "tuned thin", "thin")
    known, thins = (
        [value for name in projects if (value := change(name, f"tuned {kind}", kind)) is not None]
        for kind in ("lto", "thin")
    )
    is_whole = len(known) == len(thins) == len(projects) and not failed
    says = [
        f"{percent(value)} on {count} {language} programs"
        for language, (count, value) in means.items()
        if value is not None
    ]
    answer = f"Tuning -flto builds for {minutes:g} core-minutes: {', '.join(says) or 'nothing measured yet'}"
    answer += f"; {sum(value > 0 for value in known)} of {len(known)} larger"
    larger_thins = sum(value > 0 for value in thins)
    if thin_mean is not None:
        answer += f"; -flto=thin builds {percent(thin_mean)} on {len(thins)} programs, {larger_thins} larger"
    missing = 2 * len(projects) - len(known) - len(thins)
    answer += f"; {missing} of {2 * len(projects)} tuned builds are missing." if missing else "."
    failures = Table(title="Failures", columns=("build", "reason"), rows=tuple(failed.items()))
    passed = None
    if is_whole:
        passed = all((value or 0.0) <= BARS[language] for language, (_, value) in means.items()) and max(known) <= 0
        passed = passed and (thin_mean or 0.0) <= THIN_BAR and not larger_thins
    return Result(
        benchmark="tuning_lto",
        question="How much smaller does tuning make programs that are linked with -flto?",
        answer=answer,
        bar=BAR if is_whole else "",
        passed=passed,
        seed=seed,
        tables=(table, thin, failures) if failed else (table, thin),
    )


def _text_change(rows: Mapping[tuple[str, str], Mapping[str, Any]], name: str, build: str) -> float | None:
    before, after = rows.get((name, _FROM[build])), rows.get((name, build))
    return None if before is None or after is None else after["image"]["text"] / before["image"]["text"] - 1


def _judged_change(row: Mapping[str, Any] | None) -> float | None:
    judged = None if row is None else row.get("judged")
    return None if judged is None else judged[1] / judged[0] - 1


def _minutes_of(row: Mapping[str, Any]) -> Cell:
    spent = f"{row['core_seconds'] / 60:.1f}"
    return f"{spent}, nothing left to try" if row["ended"] == NOTHING_LEFT else spent


def _path(config: TuningLto, name: str, build: str) -> Path:
    tuned = f"-{config.minutes:g}" if build in _FROM else ""
    return config.folder / name / f"{build.replace(' ', '-')}{tuned}.json"


def _row(config: TuningLto, project: TunedProject, build: str, *, toolchain: Toolchain, setup: Setup) -> dict[str, Any]:
    """One build, after its search if it is a tuned one."""
    lld = linker_of(toolchain, "tuning_lto")
    place = (config.folder / project.name).resolve()
    row: dict[str, Any] = {}
    flags, linking = [_LTO[build]] if build in _LTO else [], [*LINKING, "-Wl,--icf=all", f"--ld-path={lld}"]
    if build in _FROM:
        row = _searched(config, project, build, place=place, toolchain=toolchain, setup=setup)
        # In one list of flags, where the build system has no other, either step passes over what is not for it.
        for word in shlex.split(row["flag"]):
            (flags if word.startswith("-fpass-plugin=") else linking).append(word)
    built = build_project(
        project,
        place / build.replace(" ", "-"),
        source=source_folder(project, config.folder),
        toolchain=toolchain,
        # Compile steps are told of the linker too, as some build systems have one list of flags for both.
        plugin_flag=shlex.join([*flags, "-Wno-unused-command-line-argument"]),
        workers=config.workers,
        linking=[*linking, *(flag for flag in flags if flag.startswith("-flto"))],
        runs_tests=build != "thin",
    )
    return {**row, **dataclasses.asdict(built)}


def _searched(
    config: TuningLto, project: TunedProject, build: str, *, place: Path, toolchain: Toolchain, setup: Setup
) -> dict[str, Any]:
    """A search of so many core-minutes."""
    before = place / _FROM[build]
    if not before.is_dir():
        raise UsageError(f"{project.name}: expected the build {_FROM[build]!r} before {build!r}; make it first")
    words, folder = link_of(image_of(project, before), before)
    search = place / f"search-{build.replace(' ', '-')}"
    asked = Tune(
        compile_commands=before / DATABASE_NAME,
        objective="linked",
        link_command=words,
        link_folder=folder,
        folder=search,
        output=search / "tuned.so",
        compiler=CompilerOptions(llvm=toolchain.major, workers=config.workers),
    )
    result = tune_for(asked, seconds=60 * config.minutes, report=setup.report)
    return {
        "flag": result.flag,
        "core_seconds": result.user_seconds,
        "compilations": result.compilations,
        "ended": result.ended,
        "judged": None if result.judged is None else [result.judged.before, result.judged.after],
    }


def link_of(image: Path, build: Path) -> tuple[str, Path]:
    """The link command of an image and its folder, as Ninja or CMake's makefiles have it.

    Raises:
        ToolError: neither says it.
    """
    finders: tuple[Callable[[Path, Path], tuple[str, Path] | None], ...] = (_ninja_link, _makefile_link)
    for find in finders:
        if (found := find(image, build)) is not None:
            return found
    raise ToolError(
        f"{image}: expected Ninja or link.txt to say how it is linked, found neither; leave the project out"
    )


def _ninja_link(image: Path, build: Path) -> tuple[str, Path] | None:
    if not (build / "build.ninja").is_file():
        return None
    argv = ["ninja", "-t", "commands", str(image.relative_to(build))]
    done = process.run(argv, timeout_seconds=60, cwd=build)
    lines = done.stdout.decode().splitlines()
    return (lines[-1], build) if done.returncode == 0 and lines else None


def _makefile_link(image: Path, build: Path) -> tuple[str, Path] | None:
    for path in sorted(build.rglob("link.txt")):
        # An archive has two lines, and a program one.
        text = path.read_text().strip()
        words = shlex.split(text)
        folder = path.parent.parent.parent
        outputs = [folder / words[index + 1] for index, word in enumerate(words[:-1]) if word == "-o"]
        if any(output.resolve() == image.resolve() for output in outputs):
            return text, folder
    return None


if __name__ == "__main__":
    raise SystemExit(main())
