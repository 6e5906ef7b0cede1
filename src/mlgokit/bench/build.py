"""Makes both builds of a workload in a folder of the same name, so that only the compiler's output differs."""

import contextlib
import os
import shlex
import shutil
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.bench.record import SIDES, BuildCost, Failure, SideName
from mlgokit.bench.side import SideFlags
from mlgokit.bench.workloads import PROGRAM, Workload
from mlgokit.compiler import process
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.sources.extract import OPTIONS, driver_words, input_words, project_jobs, project_sources
from mlgokit.corpus.sources.projects import Project
from mlgokit.errors import CorpusError, InputError
from mlgokit.evaluation.program import expect_linker, link_program
from mlgokit.files import writing
from mlgokit.progress import Report

LINK_SECONDS = 300.0
"""Deadline of a link."""
_BUILD, _RUN, _OBJECTS = "build", "run", "objects"
_PLUGIN = "-fpass-plugin="
_DRIVER_STANDARDS = {".c": ("c", "gnu11"), ".cpp": ("c++", "c++17")}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """The settings that the builds of all workloads share.

    Attributes:
        toolchain: toolchain whose clang compiles.
        sides: flags that each side (baseline and candidate) adds to the compiler.
        sources: folder of unpacked projects.
        workers: number of compilers at once.
        compile_seconds: deadline of one compilation.
        build_seconds: deadline of one command of the user's own build.
    """

    toolchain: Toolchain
    sides: Mapping[SideName, SideFlags]
    sources: Path
    workers: int
    compile_seconds: float
    build_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The folder of a workload during a comparison.

    A build is in the folder ``build`` while it is made and while it runs, and otherwise beside it, in a folder with the
    name of its side. So both builds see the same paths.
    """

    folder: Path

    @property
    def build(self) -> Path:
        """The folder where a build is made and run."""
        return self.folder / _BUILD

    @property
    def run(self) -> Path:
        """The working directory of a program of projects; emptied before each run."""
        return self.folder / _RUN

    @property
    def inputs(self) -> Path:
        """The folder of generated inputs."""
        return self.folder / "inputs"

    @property
    def results(self) -> Path:
        """The file to which a workload writes its results, ``{results}`` in its command."""
        return self.folder / "results.json"

    def clear(self) -> None:
        """Delete and recreate the folder.

        Raises:
            StorageError: that cannot be done.
        """
        with writing(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)

    @contextlib.contextmanager
    def activate(self, side: SideName) -> Generator[None]:
        """Within the block, the build of ``side`` is in the folder ``build``."""
        (self.folder / side).rename(self.build)
        try:
            yield
        finally:
            self.build.rename(self.folder / side)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One build of a workload, or one compilation of it: its cost and the bytes of its program, or why it failed."""

    cost: BuildCost | None = None
    image: int | None = None
    failure: Failure | None = None


def build_sides(
    workload: Workload, workspace: Workspace, context: BuildContext, *, done: Collection[SideName] = (), report: Report
) -> Iterator[tuple[SideName, Built]]:
    """Build both sides of a workload, and yield each side as soon as it is finished.

    Args:
        workload: workload to build.
        workspace: folder of the workload; empty except for the sides that are done.
        context: settings of all builds.
        done: sides that are built already.
        report: receives the progress.

    Raises:
        CorpusError: a project is not unpacked, or has options that do more than decide the code.
        StorageError: the disk is full or not writable.
        ToolError: a program cannot be started.
    """
    if workload.projects:
        yield from _build_projects(workload, workspace, context, report=report).items()
    else:
        for side in SIDES:
            if side not in done:
                yield side, _build_by_commands(workload, workspace, context, side)


def fill_marks(words: Sequence[str], workload: Workload, workspace: Workspace, toolchain: Toolchain) -> list[str]:
    """Replace the marks of a workload's command, such as ``{build}``, by paths; ``{flags}`` is left to the caller."""
    marks = {
        "{build}": workspace.build,
        "{source}": workload.source or workspace.build,
        "{inputs}": workspace.inputs,
        "{drivers}": workload.drivers,
        "{results}": workspace.results,
        "{cc}": toolchain.clang,
        "{cxx}": toolchain.clangxx,
    }
    found: list[str] = []
    for word in words:
        text = word
        for mark, path in marks.items():
            text = text.replace(mark, str(path))
        found.append(text)
    return found


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the plugin's variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}


def image_bytes(path: Path) -> int | None:
    """Measure a linked ELF file: bytes of code, read-only data and unwind tables; ``None`` for other files."""
    with contextlib.suppress(InputError, OSError):
        return file_totals(path).llvm_size_text
    return None


def program_of(workload: Workload, workspace: Workspace, toolchain: Toolchain, side: SideName) -> Path:
    """Find the program of a side's build, while that build is in the folder of its side.

    A program that is not in the build folder is not built by the workload, and so the same for both sides.
    """
    program = workspace.build / fill_marks(workload.run[:1], workload, workspace, toolchain)[0]
    inside = program.is_relative_to(workspace.build)
    return workspace.folder / side / program.relative_to(workspace.build) if inside else program


def image_of(workload: Workload, workspace: Workspace, toolchain: Toolchain, side: SideName) -> int | None:
    """Measure the program of a side's build, as :func:`image_bytes` does; ``None`` if it is no ELF file."""
    return image_bytes(program_of(workload, workspace, toolchain, side))


def _failed_build(side: SideName, reason: str) -> Built:
    """Make the result of a build that failed."""
    return Built(failure=Failure(side=side, step="build", reason=reason))


# --- Commands of the user's own ---------------------------------------------------------------------------------------


def _build_by_commands(workload: Workload, workspace: Workspace, context: BuildContext, side: SideName) -> Built:
    """Run the user's own build commands for one side, with its flags in CFLAGS, CXXFLAGS and ``{flags}``."""
    flags = context.sides[side]
    with writing(workspace.build):
        workspace.build.mkdir()
    environment = {**clean_environment(), **flags.environment}
    environment |= {"CC": str(context.toolchain.clang), "CXX": str(context.toolchain.clangxx)}
    for name in ("CFLAGS", "CXXFLAGS"):
        # Options that the build adds itself come later and override these: its own -Oz overrides -O2 of a side.
        environment[name] = " ".join(filter(None, [os.environ.get(name, ""), shlex.join(flags.words)]))
    seconds, peak = 0.0, 0
    try:
        for command in workload.build:
            argv = [
                word.replace("{flags}", shlex.join(flags.words))
                for item in fill_marks(command, workload, workspace, context.toolchain)
                for word in (flags.words if item == "{flags}" else (item,))
            ]
            done = process.run(argv, timeout_seconds=context.build_seconds, cwd=workspace.build, env=environment)
            if done.returncode != 0:
                how = "did not end in time" if done.timed_out else f"ended with {done.returncode}"
                output = done.stderr if done.stderr.strip() else done.stdout[-2000:].decode("utf-8", "replace")
                return _failed_build(side, f"`{shlex.join(command)}` {how}: {first_error(output)}")
            seconds += done.user_seconds + done.system_seconds
            peak = max(peak, done.peak_bytes)
    finally:
        workspace.build.rename(workspace.folder / side)
    cost = BuildCost(seconds=seconds, peak_bytes=peak, compilations=0)
    return Built(cost=cost, image=image_of(workload, workspace, context.toolchain, side))


# --- Projects and a driver --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One compilation of a workload of projects.

    Attributes:
        words: compiler and options, without the flags of a side, and without the object.
        input: words that name the source.
        folder: working directory of the compiler.
        name: path of the source below the folder.
    """

    words: tuple[str, ...]
    input: tuple[str, ...]
    folder: Path
    name: str


def _build_projects(
    workload: Workload, workspace: Workspace, context: BuildContext, *, report: Report
) -> dict[SideName, Built]:
    """Compile and link the projects and the driver of a workload, for both sides."""
    expect_linker(context.toolchain, "bench")
    units = list(_units_of(workload, toolchain=context.toolchain, sources=context.sources))
    for side in SIDES:
        with writing(workspace.folder):
            (workspace.folder / _OBJECTS / side).mkdir(parents=True)

    def compile_unit(index: int) -> dict[SideName, Built]:
        # The order alternates, so that a busy machine slows both sides alike.
        order = SIDES if index % 2 == 0 else SIDES[::-1]
        return {
            side: _compile(units[index], workspace.folder / _OBJECTS / side / f"{index}.o", context, side)
            for side in order
        }

    compiled = parallel(
        compile_unit, range(len(units)), workers=context.workers, report=report, label=f"build {workload.name}"
    )
    is_cxx = any("c++" in unit.input for unit in units)
    found: dict[SideName, Built] = {}
    for side in SIDES:
        with writing(workspace.build):
            workspace.build.mkdir()
        found[side] = _link([one[side] for one in compiled], workload, workspace, context, side=side, is_cxx=is_cxx)
        workspace.build.rename(workspace.folder / side)
    return found


def _units_of(workload: Workload, *, toolchain: Toolchain, sources: Path) -> Iterator[Unit]:
    """List the compilations of a workload of projects: of the projects' sources and of the driver.

    Raises:
        CorpusError: a project is not unpacked, has options that do more than decide the code, or the driver is missing.
    """
    # The same gate as for a corpus: a list of projects may be a stranger's.
    project_jobs(workload.projects, toolchain=toolchain, sources_folder=sources)
    roots = {project.name: project_sources(project, sources_folder=sources) for project in workload.projects}

    def words_of(project: Project) -> Iterator[str]:
        for one in workload.projects:
            yield from (f"-I{(roots[one.name][0] / folder).resolve()}" for folder in one.include)
        yield from (f"-D{define}" for define in project.defines)

    for project in workload.projects:
        root, names = roots[project.name]
        words = (*driver_words(project, toolchain), *words_of(project))
        for name in names:
            yield Unit(words=words, input=tuple(input_words(project, name)), folder=root, name=name)
    if workload.driver:
        file = workload.drivers / workload.driver
        if not file.is_file():
            raise CorpusError(
                f"workload {workload.name!r}: driver: expected the file {file}, found none; correct the list of "
                "workloads"
            )
        language, standard = _DRIVER_STANDARDS[file.suffix]
        program = toolchain.clangxx if language == "c++" else toolchain.clang
        yield Unit(
            words=(str(program), *OPTIONS, f"-std={standard}", *words_of(workload.projects[0])),
            input=("-x", language, workload.driver),
            folder=workload.drivers,
            name=workload.driver,
        )


def _compile(unit: Unit, output: Path, context: BuildContext, side: SideName) -> Built:
    """Compile one source with the flags of a side."""
    flags = context.sides[side]
    done = process.run(
        [*unit.words, *flags.words, "-c", "-o", str(output), *unit.input],
        timeout_seconds=context.compile_seconds,
        cwd=unit.folder,
        env={**clean_environment(), **flags.environment},
    )
    if done.timed_out:
        return _failed_build(side, f"{unit.name} did not compile within {context.compile_seconds:.0f} s")
    if done.returncode != 0:
        return _failed_build(side, f"{unit.name} does not compile: {first_error(done.stderr)}")
    seconds = done.user_seconds + done.system_seconds
    return Built(cost=BuildCost(seconds=seconds, peak_bytes=done.peak_bytes, compilations=1))


def _link(
    compiled: Sequence[Built],
    workload: Workload,
    workspace: Workspace,
    context: BuildContext,
    *,
    side: SideName,
    is_cxx: bool,
) -> Built:
    """Link the objects of a side to the program, if all of them compiled."""
    if failed := next((one for one in compiled if one.failure is not None), None):
        return failed
    objects = [str(workspace.folder / _OBJECTS / side / f"{index}.o") for index in range(len(compiled))]
    # A link with bitcode generates code, so it needs the options too; the plugin is for the compilers.
    options = [word for word in context.sides[side].words if not word.startswith(_PLUGIN)]
    done = link_program(
        [*options, *objects, *workload.libraries],
        workspace.build / PROGRAM,
        toolchain=context.toolchain,
        is_cxx=is_cxx,
        timeout_seconds=LINK_SECONDS,
        env=clean_environment(),
    )
    if done.returncode != 0:
        how = f"did not link within {LINK_SECONDS:.0f} s" if done.timed_out else "does not link"
        return _failed_build(side, f"{workload.name} {how}: {first_error(done.stderr)}")
    costs = [one.cost for one in compiled if one.cost is not None]
    cost = BuildCost(
        seconds=sum(one.seconds for one in costs),
        peak_bytes=max(one.peak_bytes for one in costs),
        compilations=len(costs),
    )
    return Built(cost=cost, image=image_bytes(workspace.build / PROGRAM))
