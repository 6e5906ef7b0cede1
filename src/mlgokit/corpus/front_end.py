"""Front-end runs for corpora that are made from sources, one for each source; up-to-date modules are reused.

A run can be interrupted: compilers are killed, finished modules are kept, and the next run continues.
"""

import contextlib
import functools
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mlgokit.compiler import process
from mlgokit.compiler.limits import COMPILER_LIMITS, Limits
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.options.parse import parse_options
from mlgokit.compiler.outcome import check_room, first_error
from mlgokit.compiler.sandbox import Sandbox, expose_to_front_end, inside_environment
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.files import explain_write_errors
from mlgokit.corpus.freshness import (
    DEPENDENCIES,
    SUFFIX,
    FileDigests,
    await_tick,
    call_digest,
    is_current,
    note_sources,
    now,
    read_dependencies,
)
from mlgokit.corpus.json_stream import iter_members
from mlgokit.corpus.layout import DESCRIPTION_NAME, SIDECAR_NAME, bitcode_path, encode_command_line
from mlgokit.corpus.origin import note_made_here
from mlgokit.corpus.staleness import front_end_words, profile_fit
from mlgokit.corpus.writer import Imported, corpus_writer, description_fields, write_outcomes
from mlgokit.decode import decode
from mlgokit.disk import Room
from mlgokit.errors import CorpusError, InputError
from mlgokit.files import digest_file, temporary_beside, whole_file, writing
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing

Level = Literal["O1", "O2", "O3", "Os", "Oz"]
"""Optimization levels of modules."""
FRONT_END = ("-disable-llvm-passes", "-emit-llvm-bc", "-emit-llvm-uselists")
"""Options for the output: bitcode before any pass, with its use-list order preserved."""
_SEARCH_VARIABLES = {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "CCC_OVERRIDE_OPTIONS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits:
    """Resource limits of one module's front end; a module beyond them is a failure in the corpus.

    Attributes:
        compiler: memory of the front end's process, and the size of each file that it writes.
        room: disk space that the whole corpus may take; the default limit if ``None``.
        sandbox: sandbox of the front ends, see :func:`mlgokit.compiler.sandbox.open_front_end_sandbox`; ``None`` for
            none.
    """

    module_seconds: float = 120.0
    bitcode_bytes: int = 64 << 20
    compiler: Limits = COMPILER_LIMITS
    room: Room | None = None
    sandbox: Sandbox | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndJob:
    """One source to be compiled to a module in C or C++.

    Attributes:
        source: path of the source below the project's root, if it is there.
        directory: working directory of the compiler.
        front_end: clang and its options from ``-cc1`` on, checked; no action, no input, no output.
        input: the last words of the call, which name the source's language and the source.
        command_line: options that compile the bitcode.
    """

    name: str
    project: str
    language: str
    held_out: bool = False
    source: str | None
    directory: Path
    front_end: tuple[str, ...]
    input: tuple[str, ...]
    command_line: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What an earlier run found out about a module, by the sidecar's names."""

    front_end_seconds: float | None = None
    bitcode_sha256: str | None = None
    profile_mismatched: int | None = None
    profile_missing: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """The state shared by all jobs of one call; ``partial`` is a folder for incomplete files."""

    corpus_folder: Path
    partial: Path
    limits: ExtractionLimits
    known: Mapping[str, _Known]
    digests: FileDigests = field(default_factory=FileDigests)
    cancelled: threading.Event = field(default_factory=threading.Event)


def claim_corpus(
    folder: Path,
    *,
    config: Mapping[str, Any],
    toolchain: Toolchain,
    inputs: Mapping[str, str],
    any_inputs: bool = False,
) -> None:
    """Write the manifest of a corpus folder, or refuse a folder that was made with other settings.

    With ``any_inputs`` a folder that was made from other inputs is accepted, and its manifest gets the new ones.
    """
    is_new = not (folder / DESCRIPTION_NAME).exists() and next(folder.rglob("*.bc"), None) is None
    versions = {key: value for key, value in toolchain.describe().items() if key in {"clang", "target"}}
    compared = None if any_inputs else inputs
    if not check_manifest(folder, kind="corpus", config=config, toolchain=versions, inputs=compared) or any_inputs:
        write_manifest(folder, kind="corpus", config=config, toolchain=versions, inputs=inputs)
        if is_new:
            note_made_here(folder)


def make_corpus(
    jobs: Iterable[FrontEndJob | ModuleFailure],
    *,
    corpus_folder: Path,
    total: int,
    remedy: str,
    workers: int = 1,
    limits: ExtractionLimits | None = None,
    note: Callable[[Module], None] | None = None,
    report: Report = say_nothing,
) -> Imported:
    """Run the front ends and write the corpus; up-to-date modules are reused, and an earlier split is kept.

    The folder was claimed by :func:`claim_corpus`. Failures among the ``total`` jobs are passed on. If no module could
    be made, the error says the ``remedy``. ``note`` is called with each module, in the order of the jobs.

    Raises:
        CorpusError: no module could be made.
        StorageError: the disk is full or not writable.
        ToolError: the compiler cannot be started.
    """
    making = _Making(
        corpus_folder=corpus_folder,
        partial=temporary_beside(corpus_folder.absolute() / "modules"),
        limits=limits or ExtractionLimits(),
        known=_read_known(corpus_folder),
    )
    with writing(corpus_folder):
        making.partial.mkdir()
    await_tick()
    make = functools.partial(_make_module, making)
    try:
        with corpus_writer(corpus_folder, description_fields(), remedy=remedy, keep_facts=True) as writer:
            write_outcomes(
                writer, make, jobs, workers=workers, total=total, room=making.limits.room, note=note, report=report
            )
    except BaseException:
        making.cancelled.set()
        raise
    finally:
        shutil.rmtree(making.partial, ignore_errors=True)
    return writer.summarize()


def _read_known(corpus_folder: Path) -> dict[str, _Known]:
    """Read what is known of modules by the sidecar of an earlier run, as far as that is sound."""
    known: dict[str, _Known] = {}
    with contextlib.suppress(CorpusError):
        for name, facts in iter_members(corpus_folder / SIDECAR_NAME, "modules", remedy="import again"):
            with contextlib.suppress(InputError):
                known[name] = decode(_Known, facts, name)
    return known


def front_end_environment() -> dict[str, str]:
    """Make the front end's environment: no variables of clang's search paths, English, a fixed ``__DATE__``."""
    kept = {name: value for name, value in os.environ.items() if name not in _SEARCH_VARIABLES}
    return {**kept, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "LLVM_DISABLE_SYMBOLIZATION": "1"}


def _make_module(making: _Making, job: FrontEndJob | ModuleFailure) -> Module | ModuleFailure:
    if isinstance(job, ModuleFailure):
        return job
    try:
        with explain_write_errors(job.name, making.corpus_folder):
            return _make_or_reuse(making, job)
    except InputError as error:
        return ModuleFailure(name=job.name, project=job.project, reason=str(error))


def _make_or_reuse(making: _Making, job: FrontEndJob) -> Module | ModuleFailure:
    bitcode = bitcode_path(making.corpus_folder, job.name)
    cmd = making.corpus_folder / f"{job.name}.cmd"
    cmd_bytes = encode_command_line(job.command_line)
    known = making.known.get(job.name, _Known())
    noted, call = making.corpus_folder / f"{job.name}{SUFFIX}", call_digest((*job.front_end, *job.input))
    if bitcode.is_file() and cmd.is_file() and cmd.read_bytes() == cmd_bytes:
        digest = digest_file(bitcode)
        if known.bitcode_sha256 in {None, digest} and is_current(
            noted, making.digests, folder=job.directory, call=call, bitcode_sha256=digest
        ):
            return _module_of_job(job, bitcode, replace(known, bitcode_sha256=digest))
    fresh = making.partial / f"{uuid.uuid4().hex}.bc"
    dependencies = fresh.with_suffix(".d")
    try:
        begin = now()
        done, reason = _run_front_end(making, job, fresh, dependencies)
        if reason is not None:
            return ModuleFailure(name=job.name, project=job.project, reason=reason)
        fit = profile_fit(
            job.front_end[0],
            job.command_line,
            fresh,
            folder=making.corpus_folder.absolute(),
            stderr=done.stderr,
            run=functools.partial(_run, making, job),
        )
        files = read_dependencies(dependencies)
        sha256 = making.digests.digest_all(files, job.directory, before=begin)
        with whole_file(cmd) as file:
            file.write(cmd_bytes)
        fresh.replace(bitcode)
    finally:
        for path in (fresh, dependencies):
            path.unlink(missing_ok=True)
    digest = digest_file(bitcode)
    if sha256 is not None:
        note_sources(noted, files, sha256=sha256, call=call, bitcode_sha256=digest)
    found = _Known(
        front_end_seconds=done.user_seconds,
        bitcode_sha256=digest,
        profile_mismatched=None if fit is None else fit.mismatched,
        profile_missing=None if fit is None else fit.missing,
    )
    return _module_of_job(job, bitcode, found)


def _run_front_end(
    making: _Making, job: FrontEndJob, output: Path, dependencies: Path
) -> tuple[process.Completed, str | None]:
    """Run clang once; return its result, and the reason if there is no usable bitcode."""
    # Compiled modules go to a folder that goes away: the driver's is in the user's home.
    modules = [f"-fmodules-cache-path={making.partial / 'modules'}"] if "-fmodules" in job.front_end else []
    clang, *options = job.front_end
    words, warnings = front_end_words(options)
    own = [*warnings, *modules, *FRONT_END, *DEPENDENCIES, str(dependencies), "-o", str(output)]
    argv = Cc1Line(clang, options=words, own=own, source=job.input)
    if making.cancelled.is_set():
        raise CancelledError
    limits, done = making.limits, _run(making, job, argv)
    if making.cancelled.is_set() and done.returncode != 0:
        raise CancelledError
    if done.returncode != 0:
        check_room(making.corpus_folder, done.stderr)
    reason = None
    if done.timed_out:
        reason = f"the front end did not finish in {limits.module_seconds:g} seconds"
    elif done.exceeded:
        reason = f"the front end: {done.exceeded}"
    elif done.returncode < 0:
        reason = f"the front end was ended by signal {-done.returncode}"
    elif done.returncode != 0:
        reason = first_error(done.stderr)
    elif output.stat().st_size > limits.bitcode_bytes:
        reason = f"expected at most {limits.bitcode_bytes} bytes of bitcode, found {output.stat().st_size}"
    return done, reason


def _run(making: _Making, job: FrontEndJob, argv: Cc1Line) -> process.Completed:
    """Run the compiler of a job, in the sandbox if there is one."""
    limits, inside, environment = making.limits, (), front_end_environment()
    if limits.sandbox is not None:
        environment = inside_environment(environment)
        inside = limits.sandbox(
            limits.compiler,
            program=job.front_end[0],
            writable=making.partial,
            readable=expose_to_front_end(_files_read(job)),
            folder=job.directory,
        )
    return process.run(
        argv,
        timeout_seconds=limits.module_seconds,
        cwd=job.directory,
        env=environment,
        limits=limits.compiler,
        inside=inside,
    )


def _files_read(job: FrontEndJob) -> Generator[Path]:
    """List the compiler, and the files and folders that a front end's command line names."""
    clang, *words = job.front_end
    yield Path(clang)
    for value in (job.input[-1], *(value for option in parse_options(words) for value in option.values)):
        yield Path(os.path.normpath(job.directory / value))
    yield job.directory


def _module_of_job(job: FrontEndJob, bitcode: Path, found: _Known) -> Module:
    return Module(
        name=job.name,
        project=job.project,
        language=job.language,
        held_out=job.held_out,
        bitcode=bitcode,
        command_line=job.command_line,
        source=job.source,
        bitcode_bytes=bitcode.stat().st_size,
        **asdict(found),
    )
