"""Builds one real program twice, with plain ``clang -Oz`` and with ``-fpass-plugin``, and compares runs of both."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.images import weigh_image
from mlgokit.compiler import process
from mlgokit.compiler.objects.measure import ObjectSizes, link_weights, measure_object
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.process import Completed
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.front_end import front_end_environment
from mlgokit.corpus.options.driver import may_be_linked
from mlgokit.corpus.sources.extract import project_jobs, project_sources
from mlgokit.corpus.sources.projects import ProgramRun, Project
from mlgokit.errors import CorpusError, ToolError
from mlgokit.evaluation.compare import sum_sizes
from mlgokit.evaluation.records import Sizes
from mlgokit.progress import Report, say_nothing

COMPILE_SECONDS = 180.0
LINK_SECONDS = 180.0
RUN_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramComparison:
    """A real program that was built twice, linked by clang with ``--gc-sections``, and run.

    Attributes:
        runs: number of runs of each build.
        same_behaviour: whether both builds had the same output and exit code in all runs.
        differences: arguments of the runs that differ, at most ten.
    """

    name: str
    before: Sizes
    after: Sizes
    runs: int
    same_behaviour: bool
    differences: tuple[str, ...]


def compare_program(
    project: Project,
    *,
    toolchain: Toolchain,
    sources_folder: Path,
    plugin: Path,
    workers: int,
    report: Report = say_nothing,
) -> ProgramComparison:
    """Build the program of ``project`` twice from source, and compare the sizes and the runs of both builds.

    Raises:
        CorpusError: the project has no program, or a source does not compile.
        ToolError: there is no linker, or linking failed.
    """
    program = project.program
    if program is None:
        raise CorpusError(
            f"project {project.name!r}: expected a project that describes a program to link, found none; name "
            "another project"
        )
    expect_linker(toolchain, "program")
    root, _ = project_sources(project, sources_folder=sources_folder)
    # A list of projects may be a stranger's: its sources are compiled with options that were checked.
    jobs = project_jobs([project], toolchain=toolchain, sources_folder=sources_folder)
    word = next((word for word in program.libraries if not may_be_linked(word)), None)
    if word is not None:
        raise CorpusError(
            f"project {project.name!r}: libraries: expected libraries by their names such as -lm, found {word[:200]!r}"
            "; correct the list of projects"
        )
    with tempfile.TemporaryDirectory(prefix="mlgokit-program-") as scratch:
        folder = Path(scratch)
        tasks = [(build, index) for build in ("before", "after") for index in range(len(jobs))]

        def compile_one(task: tuple[str, int]) -> ObjectSizes:
            build, index = task
            output = folder / f"{index}.{build}.o"
            clang, *options = jobs[index].front_end
            loaded = [f"-fpass-plugin={plugin.resolve()}"] if build == "after" else []
            line = Cc1Line(
                clang, options=options, own=[*loaded, "-emit-obj", "-o", str(output)], source=jobs[index].input
            )
            done = process.run(line, timeout_seconds=COMPILE_SECONDS, cwd=root, env=front_end_environment())
            if done.returncode != 0:
                raise CorpusError(
                    f"program {project.name}: expected {jobs[index].source} to compile, found: "
                    f"{first_error(done.stderr)}; check the policy and the project's options"
                )
            return measure_object(output)

        measured = parallel(compile_one, tasks, workers=workers, report=report, label="build the program")
        objects = {"before": measured[: len(jobs)], "after": measured[len(jobs) :]}
        weights = link_weights(objects["before"])
        sizes: dict[str, Sizes] = {}
        for build, compiled in objects.items():
            files = [folder / f"{index}.{build}.o" for index in range(len(jobs))]
            _link(project, [*files, *program.libraries], toolchain, folder / build)
            sizes[build] = sum_sizes(compiled, [weigh_image(folder / build).row], weights)
        commands = [command for run in program.runs for command in _commands(run, root)]
        differences = _run_both(folder, commands, root, report)
    return ProgramComparison(
        name=program.name,
        before=sizes["before"],
        after=sizes["after"],
        runs=len(commands),
        same_behaviour=not differences,
        differences=tuple(differences[:10]),
    )


def expect_linker(toolchain: Toolchain, what: str) -> None:
    """Check that the toolchain has a linker, which ``what`` needs.

    Raises:
        ToolError: the toolchain has no linker.
    """
    if toolchain.lld is None:
        apt = f"apt-get install lld-{toolchain.major}"
        raise ToolError(f"{what}: expected ld.lld of LLVM {toolchain.major}, found none; run `{apt}`")


def link_program(
    words: Sequence[str | Path],
    output: Path,
    *,
    toolchain: Toolchain,
    is_cxx: bool,
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
) -> Completed:
    """Link a program as a user would: by clang's driver, with ``--gc-sections``.

    ``words`` are options, objects and libraries; ``is_cxx`` says whether the program needs the C++ library.
    """
    driver = toolchain.clangxx if is_cxx else toolchain.clang
    argv = [driver, f"--ld-path={toolchain.lld}", "-Wl,--gc-sections", *words, "-o", output]
    return process.run(argv, timeout_seconds=timeout_seconds, env=env)


def _link(project: Project, words: Sequence[str | Path], toolchain: Toolchain, output: Path) -> None:
    is_cxx = project.language == "c++"
    done = link_program(words, output, toolchain=toolchain, is_cxx=is_cxx, timeout_seconds=LINK_SECONDS)
    if done.returncode != 0:
        driver = toolchain.clangxx if is_cxx else toolchain.clang
        raise ToolError(
            f"program {project.name}: expected {driver} to link it, found: {first_error(done.stderr)}; "
            "check that the C++ library's development files are installed"
        )


def _commands(run: ProgramRun, root: Path) -> list[tuple[tuple[str, ...], bytes]]:
    """List arguments and standard input of each run: a run for each matching file, or one run."""
    files = sorted({path for pattern in run.files for path in root.glob(pattern) if path.is_file()})
    stdin = run.stdin.encode()
    if not run.files:
        return [(run.arguments, stdin)]
    return [((*run.arguments, path.relative_to(root).as_posix()), stdin) for path in files]


def _run_both(folder: Path, commands: Sequence[tuple[tuple[str, ...], bytes]], root: Path, report: Report) -> list[str]:
    """Run both builds with each command; returns the arguments of the commands whose output or exit code differs."""
    different: list[str] = []
    for number, (arguments, stdin) in enumerate(commands):
        outcomes = [
            process.run([folder / build, *arguments], timeout_seconds=RUN_SECONDS, cwd=root, stdin=stdin)
            for build in ("before", "after")
        ]
        facts = {(one.returncode, one.timed_out, one.stdout, one.stderr) for one in outcomes}
        if len(facts) > 1:
            different.append(" ".join(arguments))
        report(number + 1, len(commands), "run both builds")
    return different
