"""Compilation of unpacked sources to a corpus: one front-end run for each source, without repeating any.

The bitcode is what clang's optimizer would get: made at one level, before any pass. It does not depend on the folders
it was made in: the compiler runs in the project's root with relative paths, without debug information and at time zero.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from mlgokit.compiler.options.safety import check_command_line, check_front_end
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.front_end import (
    ExtractionLimits,
    FrontEndJob,
    Level,
    claim_corpus,
    front_end_environment,
    make_corpus,
)
from mlgokit.corpus.options.command_line import ask_driver, options_for_ir, options_for_source, read_dry_run
from mlgokit.corpus.options.driver import driver_units, is_accelerator, may_be_run
from mlgokit.corpus.sources.fetch import project_root
from mlgokit.corpus.sources.projects import Project
from mlgokit.errors import CorpusError, UsageError
from mlgokit.locks import locked
from mlgokit.manifest import digest_value
from mlgokit.progress import Report, say_nothing

OPTIONS = ("-Oz", "-ffunction-sections", "-fdata-sections", "-w")
"""Driver options for every module at ``Oz``, before the project's own options."""
_TARGET = "--target="
_TRIPLE = re.compile(r"[a-z0-9][a-z0-9_.]*(-[a-z0-9_.]+){1,3}")


def options_of(level: Level, target: str | None = None, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Make the options of all projects: :data:`OPTIONS` at a level, further options, and the triple of another target.

    Raises:
        UsageError: the target is no triple that a corpus can have, or an option does more than to decide the code.

    Example:
        >>> options_of("O2")[:2], options_of("Oz", "aarch64-linux-gnu")[-1]
        (('-O2', '-ffunction-sections'), '--target=aarch64-linux-gnu')
        >>> options_of("Oz", "thumbv7-linux-gnueabihf", ["-mfloat-abi=soft"])[-3:]
        ('-mthumb', '-mfloat-abi=soft', '--target=thumbv7-linux-gnueabihf')
    """
    if (wrong := _unusable_option(options)) is not None:
        raise UsageError(
            f"option: expected an option that decides the code alone, such as -fno-exceptions, found {wrong!r}; leave "
            "it out"
        )
    if target is None:
        return (f"-{level}", *OPTIONS[1:], *options)
    if _TRIPLE.fullmatch(target) is None or is_accelerator(target):
        raise UsageError(f"target: expected a triple such as aarch64-linux-gnu, found {target!r}; correct it")
    # Where both instruction sets are to be had, the driver takes the longer one whatever the triple says.
    short = ("-mthumb",) if target.startswith("thumb") else ()
    return (f"-{level}", *OPTIONS[1:], *short, *options, f"{_TARGET}{target}")


def _unusable_option(options: Sequence[str]) -> str | None:
    """Return the first option that a corpus may not be made with: an input, or what may run programs or write files."""
    units = driver_units(options)
    return next((" ".join(unit.words) for unit in units if not unit.name or not may_be_run(unit)), None)


def recognize_options(recorded: Sequence[str]) -> tuple[str, ...] | None:
    """Return the options in a corpus's manifest if :func:`options_of` makes them for a level and target, or ``None``.

    Example:
        >>> recognize_options(options_of("O2", "riscv64-linux-gnu")) == options_of("O2", "riscv64-linux-gnu")
        True
        >>> recognize_options(["-O2", "-fplugin=x"]) is None
        True
    """
    last = recorded[-1] if recorded else ""
    target = last.removeprefix(_TARGET) if last.startswith(_TARGET) else None
    if target is not None and _TRIPLE.fullmatch(target) is None:
        return None
    for level in get_args(Level):
        usual = options_of(level, target)
        own = recorded[len(usual) - (target is not None) : len(recorded) - (target is not None)]
        if _unusable_option(own) is None and options_of(level, target, own) == tuple(recorded):
            return tuple(recorded)
    return None


def extract_projects(
    projects: Sequence[Project],
    *,
    toolchain: Toolchain,
    sources_folder: Path,
    corpus_folder: Path,
    level: Level = "Oz",
    target: str | None = None,
    options: Sequence[str] = (),
    workers: int = 1,
    limits: ExtractionLimits | None = None,
    report: Report = say_nothing,
) -> Corpus:
    """Make a corpus of projects whose sources are unpacked; modules that an earlier run finished are reused.

    Interrupted (:class:`KeyboardInterrupt`), it kills the compilers that run and keeps every finished module.

    :func:`mlgokit.corpus.sources.fetch.prepare_sources` unpacked the sources. Without a ``target``, a triple whose
    headers are installed, modules are for the compiler's own. Further ``options`` of the driver decide the code alone.

    Raises:
        BusyError: another process uses the corpus.
        CorpusError: a project's sources are not there, a glob matches nothing, or no module could be made.
        ReuseError: the corpus folder was made from other projects, options or by another compiler.
        StorageError: the disk is full or not writable.
        ToolError: the compiler cannot be started.
        UsageError: the target is no triple, or an option does more than to decide the code.
    """
    words = options_of(level, target, options)
    jobs = project_jobs(projects, toolchain=toolchain, sources_folder=sources_folder, options=words)
    inputs = {project.name: _project_digest(project) for project in projects}
    with locked(corpus_folder):
        claim_corpus(corpus_folder, config={"options": words}, toolchain=toolchain, inputs=inputs)
        make_corpus(
            jobs,
            corpus_folder=corpus_folder,
            total=len(jobs),
            remedy="correct the list of projects",
            workers=workers,
            limits=limits,
            report=report,
        )
        return load_corpus(corpus_folder)


def _project_digest(project: Project) -> str:
    value = asdict(project)
    for key in ("held_out", "license", "program"):
        del value[key]
    value["archive"] = project.archive.sha256
    return digest_value(value)


def project_sources(project: Project, *, sources_folder: Path) -> tuple[Path, list[str]]:
    """Find the folder that the project's paths are relative to, and list its sources there, in order.

    Raises:
        CorpusError: the sources are not unpacked, or a glob matches nothing.
    """
    root = project_root(project, sources_folder=sources_folder).absolute()
    if not root.is_dir():
        raise CorpusError(
            f"project {project.name!r}: expected its sources in {root}, found no such folder; "
            "run `mlgokit corpus fetch` first"
        )
    excluded = {path for pattern in project.exclude for path in _glob(root, pattern, project)}
    sources: set[Path] = set()
    for pattern in project.sources:
        matches = {path for path in _glob(root, pattern, project) if path.is_file()}
        if not matches:
            raise CorpusError(
                f"project {project.name!r}: sources: expected files that match {pattern!r} in {root}, found none; "
                "correct the list of projects"
            )
        sources |= matches - excluded
    names = sorted(path.relative_to(root).as_posix() for path in sources)
    if not names:
        raise CorpusError(
            f"project {project.name!r}: expected sources, found all of them excluded; correct exclude in the list "
            "of projects"
        )
    return root, names


def project_jobs(
    projects: Sequence[Project], *, toolchain: Toolchain, sources_folder: Path, options: Sequence[str] = OPTIONS
) -> list[FrontEndJob]:
    """Make the front-end jobs of :func:`extract_projects`.

    Raises:
        CorpusError: a project's sources are not there, or a glob matches nothing.
        ToolError: the compiler cannot be started.
    """
    jobs: list[FrontEndJob] = []
    for project in projects:
        root, names = project_sources(project, sources_folder=sources_folder)
        command_line, front_end = _command_lines(project, toolchain, options, root=root, source=names[0])
        program = driver_words(project, toolchain)[0]
        jobs += (
            FrontEndJob(
                name=f"{project.name}/{name}.o",
                project=project.name,
                language=project.language,
                held_out=project.held_out,
                source=name,
                directory=root,
                front_end=(program, *front_end),
                input=tuple(input_words(project, name)),
                command_line=command_line,
            )
            for name in names
        )
    return jobs


def _glob(root: Path, pattern: str, project: Project) -> set[Path]:
    # `x**` is refused here, as Python 3.13 does not: it takes it for `x*`.
    reason: object = "** is a whole part of a path"
    if all(part == "**" or "**" not in part for part in pattern.split("/")):
        try:
            return set(root.glob(pattern))
        except (ValueError, NotImplementedError) as error:
            reason = error
    raise CorpusError(
        f"project {project.name!r}: expected a glob, found {pattern!r} ({reason}); correct the list of projects"
    )


def driver_words(project: Project, toolchain: Toolchain, options: Sequence[str] = OPTIONS) -> list[str]:
    """Make the words of the compiler driver with the options that affect the code, without ``-I`` and ``-D``."""
    program = toolchain.clangxx if project.language == "c++" else toolchain.clang
    return [str(program), *options, f"-std={project.standard}", *project.options]


def input_words(project: Project, source: str) -> list[str]:
    """Make the words of the input; a name that looks like an option or a response file gets its folder in front."""
    return ["-x", project.language, f"./{source}" if source.startswith(("-", "@")) else source]


def _command_lines(
    project: Project, toolchain: Toolchain, options: Sequence[str], *, root: Path, source: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make the ``-cc1`` options of all modules of a project: those that compile bitcode, and those of the front end.

    The driver is asked once, for ``source``; ``options`` come before those of the project.
    """
    if unit := next((unit for unit in driver_units(project.options) if not may_be_run(unit)), None):
        raise CorpusError(
            f"project {project.name!r}: options: expected options that only decide the code, found "
            f"{' '.join(word or 'an empty word' for word in unit.words)[:200]}; remove this option from the "
            "project's options in the list of projects, as with it the driver could run programs or write files"
        )
    driver, *words = driver_words(project, toolchain, options)
    words += [f"-ffile-prefix-map={root}=.", "-c", "-o", "module.o", *input_words(project, source)]
    done = ask_driver(driver, words, folder=root, env=front_end_environment())
    if done.returncode != 0:
        raise CorpusError(
            f"project {project.name!r}: expected options that {driver} takes, found: {first_error(done.stderr)}; "
            "correct the list of projects"
        )
    answer = read_dry_run(done.stderr)
    command_line = options_for_ir(answer)
    front_end = (
        *options_for_source(answer),
        *(word for folder in project.include for word in ("-I", folder)),
        *(word for macro in project.defines for word in ("-D", macro)),
    )
    if (trouble := check_command_line(command_line) or check_front_end(front_end)) is not None:
        raise CorpusError(
            f"project {project.name!r}: options: {trouble.partition(';')[0]}; correct the list of projects"
        )
    return command_line, front_end
