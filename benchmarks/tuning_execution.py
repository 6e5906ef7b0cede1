"""What tuning for size costs when the program runs: instructions and memory accesses of real projects' own work."""

import dataclasses
import functools
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Setup, check_names, kept_row, run_benchmark
from results import Cell, Result, Table, percent
from treatments import clean_environment
from tuning_builds import build_project, filled, image_of, source_folder
from tuning_projects import PROJECTS, TunedProject

from mlgokit.bench.callgrind import SLOWER, Callgrind, find_callgrind
from mlgokit.bench.counts import Execution
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError, UsageError
from mlgokit.evaluation.statistics import geometric_mean_change
from mlgokit.files import digest_file
from mlgokit.tables.decisions import read_table, write_table

BUILDS = ("plain", "inlining", "both")
SECONDS = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a project's build is given to do.

    In ``argv`` and ``folder`` the marks ``{source}`` and ``{build}`` stand for those folders.

    Attributes:
        argv: the program, in the build folder, and its arguments.
        folder: where it runs.
        steps: how many of the project's test commands must run before, as they build the program.
        shown: what it does, for readers.
    """

    argv: tuple[str, ...]
    folder: str = "{build}"
    steps: int = 0
    shown: str


WORK = {
    "double-conversion": Work(argv=("test/cctest/cctest", "test-conversions"), shown="cctest test-conversions"),
    "jsoncpp": Work(argv=("jsoncpp_test",), shown="jsoncpp_test"),
    "tinyxml2": Work(argv=("xmltest",), folder="{source}", shown="xmltest"),
    "pugixml": Work(argv=("pugixml-check",), folder="{source}", shown="pugixml-check"),
    "muparser": Work(argv=("t_ParserTest",), shown="t_ParserTest"),
    "ninja": Work(argv=("ninja", "-n"), shown="a dry run on its own build"),
    "gperf": Work(argv=("src/gperf", "{source}/tests/chill.gperf"), shown="the keywords of chill.gperf"),
    "lzip": Work(argv=("lzip", "-9", "-c", "{source}/testsuite/test.txt"), shown="compression of its test.txt"),
    "cppunit": Work(argv=("examples/cppunittest/.libs/cppunittestmain",), steps=1, shown="cppunittestmain"),
    "sqlite": Work(argv=("speedtest1", "--size", "2"), steps=1, shown="speedtest1 --size 2"),
    "expat": Work(argv=("xmlwf/xmlwf", "{source}/doc/reference.html"), shown="xmlwf on its reference"),
    "cmark": Work(argv=("src/cmark", "--to", "html", "{source}/test/spec.txt"), shown="the specification to HTML"),
    "jansson": Work(argv=("bin/json_process", "{source}/test/suites/valid/complex-array"), shown="json_process"),
    "pcre2": Work(argv=(".libs/pcre2test", "-q", "{source}/testdata/testinput1", "/dev/null"), shown="testinput1"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningExecution:
    """Build projects plainly, with the tuned inlining, and with all that was tuned; count what their work takes.

    Needs valgrind, and the folder in which benchmarks/tuning.py has tuned the projects.
    """

    folder: Path = Path("build/tuning")
    """Where benchmarks/tuning.py keeps projects and searches."""
    builds: Path = Path("build/tuning-execution")
    """Where the projects are built, and what was counted is kept."""
    arm: str = "tune from policy"
    """Whose results."""
    projects: tuple[str, ...] = tuple(WORK)
    """Which projects."""
    workers: int = 2
    """Compilers that run at once."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/tuning_execution.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What one program executed.

    Attributes:
        instructions: in the project's own program or library.
        accesses: loads and stores of these.
        everywhere: instructions of the whole process.
        image: bytes of code, read-only data and unwind tables.
    """

    instructions: int
    accesses: int
    everywhere: int
    image: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    config: TuningExecution
    toolchain: Toolchain
    counter: Callgrind


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TuningExecution, measure, arguments)


def measure(config: TuningExecution, setup: Setup) -> Result:
    """Build and run what is asked for.

    Raises:
        UsageError: a project is not known, or was not tuned.
        ToolError: valgrind is missing, or a build or a run fails.
    """
    check_names("projects", config.projects, WORK)
    count = _Count(config=config, toolchain=setup.toolchain(config.llvm), counter=find_callgrind())
    found: dict[str, dict[str, Executed]] = {}
    for number, name in enumerate(config.projects):
        tuned = config.folder / config.arm.replace(" ", "-") / name / "tuned.so"
        if not tuned.exists():
            raise UsageError(f"{tuned}: expected the plugin of a search, found none; run benchmarks/tuning.py first")
        digest = setup.inputs[f"{name}, plugin"] = digest_file(tuned)
        found[name] = {}
        for build in BUILDS:
            setup.report(number, len(config.projects), f"{name}, {build}")
            known = config.builds / name / f"{build} {digest[:16]}.json"
            found[name][build] = Executed(**kept_row(known, functools.partial(_executed, count, name, build, tuned)))
    setup.tools["valgrind"] = count.counter.version
    return summarise(found)


def _executed(count: _Count, name: str, build: str, tuned: Path) -> dict[str, int]:
    project, work = PROJECTS[name], WORK[name]
    place = (count.config.builds / name / build).resolve()
    source = source_folder(project, count.config.folder / "projects")
    place.parent.mkdir(parents=True, exist_ok=True)
    plugin = tuned.resolve()
    if build == "inlining":
        plugin, table = place.with_suffix(".so"), read_table(tuned)
        write_table(place.with_suffix(".decisions"), table.entries, table.summary)
        link_policies(count.toolchain, {"decisions": place.with_suffix(".decisions")}, plugin)
    built = build_project(
        dataclasses.replace(project, tests=project.tests[: work.steps]),
        place,
        source=source,
        toolchain=count.toolchain,
        plugin_flag="" if build == "plain" else f"-fpass-plugin={plugin}",
        workers=count.config.workers,
    )
    return count_work(count.counter, project, place, source=source, image_bytes=built.image.image)


def count_work(
    counter: Callgrind, project: TunedProject, place: Path, *, source: Path, image_bytes: int
) -> dict[str, int]:
    """What a project's work executes in the build at ``place``, as fields of :class:`Executed`.

    Raises:
        ToolError: it could not be counted.
    """
    found = counter.count(execution_of(project, place, source=source), _profiles(place))
    if found.reason or found.own is None:
        shown = shlex.join(WORK[project.name].argv)
        raise ToolError(f"{project.name}: expected `{shown}` to be counted, found: {found.reason}")
    return {
        "instructions": found.own.instructions or 0,
        "accesses": (found.own.loads or 0) + (found.own.stores or 0),
        "everywhere": found.whole.instructions or 0,
        "image": image_bytes,
    }


def execution_of(project: TunedProject, place: Path, *, source: Path) -> Execution:
    """A project's work, done by the build at ``place``."""
    work, image = WORK[project.name], image_of(project, place)
    marks = {"{source}": str(source), "{build}": str(place)}
    (folder,) = filled([work.folder], marks)
    libraries = os.pathsep.join([str(image.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    return Execution(
        argv=[str(place / work.argv[0]), *filled(work.argv[1:], marks)],
        folder=Path(folder),
        environment={**clean_environment(), "LD_LIBRARY_PATH": libraries},
        own=image,
        timeout_seconds=SECONDS / SLOWER,
    )


def _profiles(place: Path) -> Path:
    profiles = place.with_suffix(".profiles")
    profiles.mkdir(exist_ok=True)
    return profiles


def summarise(found: dict[str, dict[str, Executed]]) -> Result:
    """The table, and means over projects of each language."""
    rows: list[tuple[Cell, ...]] = []
    for name, by_build in found.items():
        plain, inlining, both = (by_build[build] for build in BUILDS)
        rows.append(
            (
                name, PROJECTS[name].language, WORK[name].shown, plain.instructions,
                f"{plain.instructions / plain.everywhere:.0%}",
                percent(inlining.image / plain.image - 1), percent(both.image / plain.image - 1),
                percent(inlining.instructions / plain.instructions - 1),
                percent(both.instructions / plain.instructions - 1),
                percent(inlining.accesses / plain.accesses - 1), percent(both.accesses / plain.accesses - 1),
            )
        )  # fmt: skip
    answer: list[str] = []
    for language in ("c++", "c"):
        chosen = [by_build for name, by_build in found.items() if PROJECTS[name].language == language]
        if not chosen:
            continue
        means: list[str] = []
        for build in BUILDS[1:]:
            image, instructions, accesses = (
                geometric_mean_change(
                    [getattr(one["plain"], field) for one in chosen], [getattr(one[build], field) for one in chosen]
                )
                for field in ("image", "instructions", "accesses")
            )
            how = "with the tuned inlining" if build == "inlining" else "with all that was tuned"
            means.append(
                f"{percent(image)} bytes, {percent(instructions)} instructions, {percent(accesses)} loads and stores "
                + how
            )
        answer.append(f"{len(chosen)} {language.upper()} projects, geometric means: {'; '.join(means)}.")
    return Result(
        benchmark="tuning_execution",
        question="What does tuning for size cost when the program runs?",
        answer=" ".join(answer),
        seed=0,
        tables=(
            Table(
                title="Executed, against plain -Oz",
                columns=(
                    "project", "language", "work", "instructions, plain", "of the process", "bytes, inlining",
                    "bytes, both", "instructions, inlining", "instructions, both", "loads and stores, inlining",
                    "loads and stores, both",
                ),
                rows=tuple(rows),
                note="Counted by callgrind in the project's own program or library, not in its tests' or the system's "
                "code; of the process: the part that this is of all instructions, plain. Bytes: .text, .rodata, "
                "exception and unwind tables of that file. Instructions are not time: what fits into a cache better "
                "is not seen.",
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
