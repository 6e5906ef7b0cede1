"""Builds real projects with their tests under random policies, and runs the tests."""

from dataclasses import dataclass
from pathlib import Path

from stress_programs import Exercise, Trial
from treatments import Bench, Ending, Treatment, clean_environment, treat

from mlgokit.compiler import process
from mlgokit.compiler.outcome import first_error
from mlgokit.corpus.sources.extract import driver_words, input_words, project_sources
from mlgokit.corpus.sources.projects import Project
from mlgokit.errors import ToolError

RUN_SECONDS = 60.0
LINK_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One build of a project and what its tests did.

    Attributes:
        compiled: sources compiled.
        runs: test programs' runs.
        decisions: of the advisors, where they were counted.
        problems: a sentence for each thing that went wrong, with its outcome before it.
        outputs: standard output of the runs that must be equal in all builds.
    """

    compiled: int
    runs: int
    decisions: int
    problems: tuple[tuple[str, str], ...]
    outputs: tuple[bytes, ...]


def build_and_run(  # noqa: C901
    exercise: Exercise,
    project: Project,
    bench: Bench,
    treatment: Treatment | None,
    *,
    level: str,
    sources_folder: Path,
    folder: Path,
    timeout_seconds: float,
) -> Built:
    """Compile the library and all its tests, link them, run them.

    Raises:
        CorpusError: the project's sources are not there.
        ToolError: the linker fails.
    """
    root, names = project_sources(project, sources_folder=sources_folder)
    words = [
        *driver_words(project, bench.toolchain),
        level,
        "-w",
        *(f"-I{root / entry}" for entry in (*project.include, *exercise.include)),
        *(f"-D{define}" for define in (*project.defines, *exercise.defines)),
        *(f"-U{define}" for define in exercise.undefined),
    ]
    problems: list[tuple[str, str]] = []
    decisions = 0
    objects: dict[str, Path] = {}

    def compile_one(name: str, text: str = "") -> None:
        nonlocal decisions
        output = folder / f"{len(objects)}.o"
        path = folder / name if text else Path(name)
        if text:
            path.write_text(text)
        argv = [*words, "-c", *input_words(project, str(path)), "-o", str(output)]
        ended = treat(bench, treatment, argv, output, folder=folder, timeout_seconds=timeout_seconds, cwd=root)
        decisions += ended.decisions
        objects[name] = output
        if ended.outcome != "ok":
            problems.append((ended.outcome, f"{project.name}/{name}: {_explained(ended)}"))

    for name in names:
        compile_one(name)
    library = [objects[name] for name in names]
    for trial in exercise.trials:
        for name in (trial.main, *trial.extra):
            if name not in objects:
                compile_one(name, trial.text if name == trial.main else "")
    compiled = len(objects)
    if problems:
        return Built(compiled=compiled, runs=0, decisions=decisions, problems=tuple(problems), outputs=())
    outputs: list[bytes] = []
    runs = 0
    for trial in exercise.trials:
        parts = [objects[name] for name in (trial.main, *trial.extra)]
        _link(project, bench, [*library, *parts], folder / "program", exercise.libraries)
        for arguments in trial.runs:
            done = run_trial(trial, folder / "program", arguments, root, folder)
            runs += 1
            if trial.same_output:
                outputs.append(done.stdout)
            if done.returncode != 0:
                how = "did not end" if done.timed_out else f"ended with {done.returncode}"
                what = f"{project.name}, {trial.name} {' '.join(arguments)}: expected exit code 0, found that it {how}"
                problems.append(("wrong program", f"{what}: {first_error(done.stderr)}"))
    return Built(compiled=compiled, runs=runs, decisions=decisions, problems=tuple(problems), outputs=tuple(outputs))


def run_trial(trial: Trial, program: Path, arguments: tuple[str, ...], root: Path, folder: Path) -> process.Completed:
    """Run a test program; what it writes goes below ``folder``."""
    environment = clean_environment() | {"TMPDIR": str(folder), "TEST_TMPDIR": str(folder)}
    return process.run([program, *arguments], timeout_seconds=RUN_SECONDS, cwd=root / trial.folder, env=environment)


def _explained(ended: Ending) -> str:
    return f"{ended.outcome}: {ended.sentence}"


def _link(project: Project, bench: Bench, objects: list[Path], output: Path, libraries: tuple[str, ...]) -> None:
    driver = bench.toolchain.clangxx if project.language == "c++" else bench.toolchain.clang
    done = process.run([driver, *objects, *libraries, "-o", output], timeout_seconds=LINK_SECONDS)
    if done.returncode != 0:
        raise ToolError(
            f"program of {project.name}: expected {driver} to link it, found: {first_error(done.stderr)}; "
            "correct the list of programs"
        )
