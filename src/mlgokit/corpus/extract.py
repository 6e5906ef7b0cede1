"""From unpacked sources to a corpus: one front-end run for each source, and nothing done twice.

The bitcode is what clang's optimizer would get: made at ``-Oz``, before any pass. It does not depend on the folders it
was made in: the compiler runs in the project's root with relative paths, without debug information and at time zero.
"""

import contextlib
import os
import shutil
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mlgokit.compiler import process
from mlgokit.compiler.compile import check_room, first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.command_line import options_for_ir, read_dry_run
from mlgokit.corpus.fetch import project_root
from mlgokit.corpus.module import (
    Corpus,
    Module,
    ModuleFailure,
    bitcode_path,
    encode_command_line,
    module_facts,
    read_sidecar,
    write_corpus,
    write_sidecar,
)
from mlgokit.corpus.projects import Project
from mlgokit.errors import CorpusError, StorageError
from mlgokit.manifest import atomic_write, check_manifest, digest_file, digest_value, write_manifest, writing

OPTIONS = ("-Oz", "-ffunction-sections", "-fdata-sections", "-w")
"""Given to the driver for every module, before the project's own options."""

_FRONT_END = ("-c", "-emit-llvm", "-Xclang", "-disable-llvm-passes")
_DRY_RUN_SECONDS = 60.0
_SEARCH_VARIABLES = {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "CCC_OVERRIDE_OPTIONS"}


class Progress(Protocol):
    """Told after every module; ``label`` is the module's name."""

    def __call__(self, done: int, total: int, label: str) -> None:
        """Show it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits:
    """What one module may take; one that takes more is a failure in the corpus.

    Attributes:
        module_seconds: elapsed time of the front end.
        bitcode_bytes: size of the bitcode.
    """

    module_seconds: float = 120.0
    bitcode_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One source on its way to a module."""

    name: str
    source: str
    project: Project
    root: Path
    command_line: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extraction:
    """What all jobs of one call share; ``partial`` is a folder for files that are not whole yet."""

    toolchain: Toolchain
    corpus_folder: Path
    partial: Path
    limits: ExtractionLimits
    known: Mapping[str, Mapping[str, Any]]
    cancelled: threading.Event = field(default_factory=threading.Event)


def extract_projects(
    projects: Sequence[Project],
    *,
    toolchain: Toolchain,
    sources_folder: Path,
    corpus_folder: Path,
    workers: int = 1,
    limits: ExtractionLimits | None = None,
    report: Progress | None = None,
) -> Corpus:
    """Make a corpus of projects whose sources are unpacked; modules that an earlier run finished are reused.

    Interrupted (:class:`KeyboardInterrupt`), it kills the compilers that run and keeps every finished module.

    Args:
        projects: what to extract, see :func:`mlgokit.corpus.projects.load_projects`.
        toolchain: whose clang makes the bitcode.
        sources_folder: see :func:`mlgokit.corpus.fetch.prepare_sources`.
        corpus_folder: where the corpus goes.
        workers: how many compilers run at a time.
        limits: what one module may take.
        report: told after every module.

    Raises:
        CorpusError: a project's sources are not there, a glob matches nothing, or no module came out at all.
        ReuseError: the corpus folder was made from other projects, options or by another compiler.
        StorageError: the disk is full or not writable.
        ToolError: the compiler cannot be started.
    """
    jobs = [job for project in projects for job in _jobs(project, toolchain=toolchain, sources_folder=sources_folder)]
    config = {"options": OPTIONS}
    versions = {key: value for key, value in toolchain.describe().items() if key in {"clang", "target"}}
    inputs = {project.name: _project_digest(project) for project in projects}
    if not check_manifest(corpus_folder, kind="corpus", config=config, toolchain=versions, inputs=inputs):
        write_manifest(corpus_folder, kind="corpus", config=config, toolchain=versions, inputs=inputs)
    extraction = _Extraction(
        toolchain=toolchain,
        corpus_folder=corpus_folder,
        partial=corpus_folder.absolute() / f".{uuid.uuid4().hex}.tmp",
        limits=limits or ExtractionLimits(),
        known=_known_facts(corpus_folder),
    )
    with writing(corpus_folder):
        extraction.partial.mkdir()
    try:
        outcomes = _extract_all(extraction, jobs, workers=workers, report=report)
    finally:
        shutil.rmtree(extraction.partial, ignore_errors=True)
    modules = tuple(outcome for outcome in outcomes if isinstance(outcome, Module))
    failures = tuple(outcome for outcome in outcomes if isinstance(outcome, ModuleFailure))
    if not modules:
        example = f" ({failures[0].name}: {failures[0].reason})" if failures else ""
        raise CorpusError(
            f"{corpus_folder}: expected modules of {len(projects)} projects, found none from {len(jobs)} sources"
            f"{example}; correct the list of projects"
        )
    write_corpus(corpus_folder, modules, failures)
    return Corpus(folder=corpus_folder, modules=modules, failures=failures)


def _project_digest(project: Project) -> str:
    """Digest of all that decides the bitcode of a project's modules."""
    value = asdict(project)
    for key in ("held_out", "license", "program"):
        del value[key]
    value["archive"] = project.archive.sha256
    return digest_value(value)


def _known_facts(corpus_folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """What an earlier run noted; it saves nothing but the measured times, so that a bad sidecar is just replaced."""
    with contextlib.suppress(CorpusError):
        return read_sidecar(corpus_folder)[0]
    return {}


def project_sources(project: Project, *, sources_folder: Path) -> tuple[Path, list[str]]:
    """The folder that the project's paths are relative to, and its sources there, in order.

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
        found = {path for path in _glob(root, pattern, project) if path.is_file()}
        if not found:
            raise CorpusError(
                f"project {project.name!r}: sources: expected files that match {pattern!r} in {root}, found none; "
                "correct the list of projects"
            )
        sources |= found - excluded
    names = sorted(path.relative_to(root).as_posix() for path in sources)
    if not names:
        raise CorpusError(f"project {project.name!r}: expected sources, found all of them excluded; correct exclude")
    return root, names


def _jobs(project: Project, *, toolchain: Toolchain, sources_folder: Path) -> list[_Job]:
    root, names = project_sources(project, sources_folder=sources_folder)
    command_line = _command_line(project, toolchain=toolchain, root=root, source=names[0])
    return [
        _Job(name=f"{project.name}/{name}.o", source=name, project=project, root=root, command_line=command_line)
        for name in names
    ]


def _glob(root: Path, pattern: str, project: Project) -> set[Path]:
    try:
        return set(root.glob(pattern))
    except (ValueError, NotImplementedError) as error:
        raise CorpusError(
            f"project {project.name!r}: expected a glob, found {pattern!r} ({error}); correct the list of projects"
        ) from error


def driver_words(project: Project, toolchain: Toolchain) -> list[str]:
    """The compiler driver and the options that say what code is made; no ``-I``, no ``-D``."""
    program = toolchain.clangxx if project.language == "c++" else toolchain.clang
    return [str(program), *OPTIONS, f"-std={project.standard}", *project.options]


def input_words(project: Project, source: str) -> list[str]:
    """The input; a name that would be taken for an option or a response file gets a folder."""
    return ["-x", project.language, f"./{source}" if source.startswith(("-", "@")) else source]


def _environment() -> dict[str, str]:
    """Ours without what changes clang's search, in English, and at the epoch for ``__DATE__`` and ``__TIME__``."""
    kept = {name: value for name, value in os.environ.items() if name not in _SEARCH_VARIABLES}
    return {**kept, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}


def _command_line(project: Project, *, toolchain: Toolchain, root: Path, source: str) -> tuple[str, ...]:
    """The ``-cc1`` options of every module of the project, without ``-I`` and ``-D``, which compiling IR ignores."""
    argv = [*driver_words(project, toolchain), "-###", "-c", "-o", "module.o", *input_words(project, source)]
    done = process.run(argv, timeout_seconds=_DRY_RUN_SECONDS, cwd=root, env=_environment())
    if done.returncode != 0:
        raise CorpusError(
            f"project {project.name!r}: expected options that {argv[0]} takes, found: {first_error(done.stderr)}; "
            "correct the list of projects"
        )
    return options_for_ir(read_dry_run(done.stderr))


def _extract_all(
    extraction: _Extraction, jobs: Sequence[_Job], *, workers: int, report: Progress | None
) -> list[Module | ModuleFailure]:
    """One outcome for each job, in the order of the jobs."""
    outcomes: dict[str, Module | ModuleFailure] = {}
    futures: dict[Future[Module | ModuleFailure], str] = {}
    pool = ThreadPoolExecutor(max(1, workers), thread_name_prefix="extract")
    try:
        for job in jobs:
            futures[pool.submit(_extract, extraction, job)] = job.name
        for done, future in enumerate(as_completed(futures), 1):
            name = futures[future]
            outcomes[name] = future.result()
            if report is not None:
                report(done, len(jobs), name)
    except BaseException:
        extraction.cancelled.set()
        pool.shutdown(wait=False, cancel_futures=True)
        while unfinished := [future for future in futures if not future.done()]:
            process.kill_running()
            wait(unfinished, timeout=0.05)
        finished = {name: module_facts(item) for name, item in outcomes.items() if isinstance(item, Module)}
        with contextlib.suppress(StorageError):
            write_sidecar(extraction.corpus_folder, {**extraction.known, **finished}, ())
        raise
    pool.shutdown()
    return [outcomes[job.name] for job in jobs]


def _extract(extraction: _Extraction, job: _Job) -> Module | ModuleFailure:
    """Make one module, or find it made."""
    bitcode = bitcode_path(extraction.corpus_folder, job.name)
    cmd = extraction.corpus_folder / f"{job.name}.cmd"
    cmd_bytes = encode_command_line(job.command_line)
    known = extraction.known.get(job.name, {})
    if bitcode.is_file() and cmd.is_file() and cmd.read_bytes() == cmd_bytes:
        module = _module(job, bitcode, seconds=known.get("front_end_seconds"))
        if known.get("bitcode_sha256", module.bitcode_sha256) == module.bitcode_sha256:
            return module
    fresh = extraction.partial / f"{uuid.uuid4().hex}.bc"
    try:
        seconds, reason = _run_front_end(extraction, job, fresh)
        if reason is not None:
            return ModuleFailure(name=job.name, project=job.project.name, reason=reason)
        atomic_write(cmd, cmd_bytes)
        with writing(bitcode):
            fresh.replace(bitcode)
    finally:
        fresh.unlink(missing_ok=True)
    return _module(job, bitcode, seconds=seconds)


def _run_front_end(extraction: _Extraction, job: _Job, output: Path) -> tuple[float, str | None]:
    """Run clang once; its user time, and why there is no usable bitcode, if there is none."""
    project = job.project
    argv = [
        *driver_words(project, extraction.toolchain),
        f"-ffile-prefix-map={job.root}=.",
        *(f"-I{folder}" for folder in project.include),
        *(f"-D{macro}" for macro in project.defines),
        *_FRONT_END,
        "-o",
        str(output),
        *input_words(project, job.source),
    ]
    if extraction.cancelled.is_set():
        raise CancelledError
    limits = extraction.limits
    done = process.run(argv, timeout_seconds=limits.module_seconds, cwd=job.root, env=_environment())
    if extraction.cancelled.is_set() and done.returncode != 0:
        raise CancelledError
    if done.returncode != 0:
        check_room(extraction.corpus_folder, done.stderr)
    reason = None
    if done.timed_out:
        reason = f"the front end did not finish in {limits.module_seconds:g} seconds"
    elif done.returncode < 0:
        reason = f"the front end was ended by signal {-done.returncode}"
    elif done.returncode != 0:
        reason = first_error(done.stderr)
    elif output.stat().st_size > limits.bitcode_bytes:
        reason = f"expected at most {limits.bitcode_bytes} bytes of bitcode, found {output.stat().st_size}"
    return done.user_seconds, reason


def _module(job: _Job, bitcode: Path, *, seconds: float | None) -> Module:
    return Module(
        name=job.name,
        project=job.project.name,
        language=job.project.language,
        held_out=job.project.held_out,
        bitcode=bitcode,
        command_line=job.command_line,
        source=job.source,
        bitcode_bytes=bitcode.stat().st_size,
        bitcode_sha256=digest_file(bitcode),
        front_end_seconds=seconds,
    )
