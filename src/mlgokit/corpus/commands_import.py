"""From any compilation database to a corpus, without a special build: only the front end runs, and only our clang.

The options are the build's own, so that a module's code is what the build would have got from this compiler. Debug
information is left out: it has the machine's paths, and no decision of the optimizer depends on it.
"""

import functools
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from mlgokit.compiler import process
from mlgokit.compiler.compile import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_command import FrontEndCall, front_end_call
from mlgokit.corpus.command_line import options_for_ir, read_dry_run
from mlgokit.corpus.compile_commands import CompileCommand, MalformedCommand, read_compile_commands
from mlgokit.corpus.front_end import (
    DRY_RUN_SECONDS,
    ExtractionLimits,
    FrontEndJob,
    Progress,
    claim_corpus,
    front_end_environment,
    make_corpus,
)
from mlgokit.corpus.module import Corpus, ModuleFailure
from mlgokit.corpus.safety import check_command_line
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.manifest import digest_file

Level = Literal["O1", "O2", "O3", "Os", "Oz"]

_UNKNOWN = re.compile(r"error: (?:unknown argument:?|unsupported option) '([^']*)'")
_UNFIT = re.compile(r"error: unsupported argument '([^']*)' to option '([^']*)'")
_ATTEMPTS = 4
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_BUILD_FOLDERS = re.compile(
    r"(cmake-)?(build|out|output|release|debug|obj|bin|_build|builddir)([-_.].*)?", re.IGNORECASE
)
# Options of -cc1 that write beside the output or load other programs: what asks for them is not given to the driver.
_REFUSED = re.compile(
    r"-(load|plugin|add-plugin|fpass-plugin=.*|dependency-file|dependency-dot|serialize-diagnostic-file|stats-file=.*|"
    r"opt-record-file|ftime-trace.*|header-include-file|module-dependency-dir|coverage-(notes|data)-file.*|"
    r"fmodule-output.*|split-dwarf-output|ast-dump.*|rewrite-.*|emit-pch|emit-module.*|E|Eonly|fsyntax-only)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFilter:
    """Which commands of a database are wanted, by regular expressions that are searched for in the source's path.

    Attributes:
        include: what must be found; everything if left out.
        exclude: what must not be found.
    """

    include: str | None = None
    exclude: str | None = None

    def predicate(self) -> Callable[[CompileCommand], bool]:
        """Whether a command is wanted.

        Raises:
            UsageError: an expression is none.
        """
        include, exclude = _pattern("include", self.include), _pattern("exclude", self.exclude)

        def wanted(command: CompileCommand) -> bool:
            path = str(command.file)
            return (include is None or include.search(path) is not None) and (
                exclude is None or exclude.search(path) is None
            )

        return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCommands:
    """What came of a compilation database.

    Attributes:
        corpus: the corpus, with its failures.
        repeated: commands that the database had before.
        unwanted: commands that the filter left out.
        dropped: options of the build that clang does not know, or that were not wanted, with the number of commands.
    """

    corpus: Corpus
    repeated: int
    unwanted: int
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What commands have in common that differ only in their sources; ``essential`` is the key of a dry run."""

    directory: Path
    driver: str
    words: tuple[str, ...]
    essential: tuple[str, ...]
    language: str
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A command on its way to a job."""

    name: str
    call: FrontEndCall
    options: _Options
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _DryRun:
    """The options for the bitcode, what clang did not know, and why there are none, if so."""

    command_line: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class _Reading:
    """What reading the database has found so far."""

    project: str
    root: Path
    sources: list[_Source] = field(default_factory=list[_Source])
    failures: list[ModuleFailure] = field(default_factory=list[ModuleFailure])
    names: Counter[str] = field(default_factory=Counter[str])
    seen: set[tuple[object, ...]] = field(default_factory=set[tuple[object, ...]])
    sets: dict[_Options, _Options] = field(default_factory=dict[_Options, _Options])
    repeated: int = 0
    unwanted: int = 0


def import_commands(
    database: Path,
    *,
    toolchain: Toolchain,
    corpus_folder: Path,
    project: str | None = None,
    level: Level | None = None,
    wanted: CommandFilter | None = None,
    held_out: bool = False,
    workers: int = 1,
    limits: ExtractionLimits | None = None,
    report: Progress | None = None,
) -> ImportedCommands:
    """Make a corpus of the sources that a build compiles, whatever compiler it names.

    Modules that an earlier run finished are reused, unless their source is newer; a changed header is not noticed.

    Args:
        database: ``compile_commands.json``.
        toolchain: whose clang makes the bitcode.
        corpus_folder: where the corpus goes.
        project: first component of the modules' names; the build's folder by default.
        level: in place of the build's own; a build at ``-O0`` needs one.
        wanted: which commands; all by default.
        held_out: keep the modules out of training.
        workers: how many compilers run at a time.
        limits: what one module may take.
        report: told after every module.

    Raises:
        CorpusError: the database is none, or no module came out at all.
        ReuseError: the corpus folder was made in another way.
        StorageError: the disk is full or not writable.
        ToolError: the compiler cannot be started.
        UsageError: a filter or the project's name is not usable.
    """
    wanted = wanted or CommandFilter()
    reading = _read(database, project=project, level=level, wanted=wanted)
    claim_corpus(
        corpus_folder,
        config={
            "source": "compile_commands",
            "project": reading.project,
            "level": level,
            "include": wanted.include,
            "exclude": wanted.exclude,
        },
        toolchain=toolchain,
        inputs={"compile_commands": digest_file(database)},
    )
    jobs, dropped = _plan(reading, toolchain=toolchain, held_out=held_out, workers=workers)
    corpus = make_corpus(
        jobs,
        corpus_folder=corpus_folder,
        failures=reading.failures,
        wanted=f"modules of the commands in {database}",
        remedy="correct the database, or give options that this compiler takes",
        workers=workers,
        limits=limits,
        report=report,
    )
    return ImportedCommands(
        corpus=corpus, repeated=reading.repeated, unwanted=reading.unwanted, dropped=dict(dropped.most_common())
    )


def command_jobs(
    database: Path,
    *,
    toolchain: Toolchain,
    project: str | None = None,
    level: Level | None = None,
    wanted: CommandFilter | None = None,
    workers: int = 1,
) -> list[FrontEndJob]:
    """What :func:`import_commands` would run for the same arguments, without running it.

    Raises:
        CorpusError: the database is none.
        ToolError: the compiler cannot be started.
        UsageError: a filter or the project's name is not usable.
    """
    reading = _read(database, project=project, level=level, wanted=wanted or CommandFilter())
    return _plan(reading, toolchain=toolchain, held_out=False, workers=workers)[0]


def _read(database: Path, *, project: str | None, level: Level | None, wanted: CommandFilter) -> _Reading:
    is_wanted = wanted.predicate()
    root = database.resolve().parent
    reading = _Reading(project=check_project(project, root), root=root)
    for item in read_compile_commands(database):
        _take(reading, item, is_wanted=is_wanted, level=level)
    if not reading.sources:
        raise _nothing(database, reading)
    return reading


def _plan(
    reading: _Reading, *, toolchain: Toolchain, held_out: bool, workers: int
) -> tuple[list[FrontEndJob], Counter[str]]:
    """A job for each source that the compiler can be asked about, and how many commands lost which option."""
    dry_runs = _dry_runs(toolchain, [source.options for source in reading.sources], workers=workers)
    jobs: list[FrontEndJob] = []
    dropped: Counter[str] = Counter()
    for source in reading.sources:
        dry = dry_runs[_key(source.options)]
        dropped.update(source.call.dropped)
        dropped.update(word for word in source.options.words if word in dry.unknown)
        if dry.reason is not None:
            reading.failures.append(ModuleFailure(name=source.name, project=reading.project, reason=dry.reason))
            continue
        jobs.append(_job(toolchain, source, dry, reading=reading, held_out=held_out))
    return jobs, dropped


def _pattern(name: str, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise UsageError(f"{name}: expected a regular expression, found {text!r} ({error}); correct it") from error


def default_project(folder: Path) -> str:
    """The name of a project after the folder that it is built in, or the one above if that is called ``build``.

    Example:
        >>> default_project(Path("/src/zlib/build-release")), default_project(Path("/src/My Project"))
        ('zlib', 'My-Project')
    """
    root = folder.resolve()
    if _BUILD_FOLDERS.fullmatch(root.name) and root.parent.name:
        root = root.parent
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", root.name).lstrip("._+-") or "project"


def check_project(project: str | None, folder: Path) -> str:
    """A name that was given, or the folder's.

    Raises:
        UsageError: the name cannot be the first component of a module's.
    """
    if project is not None and not _PROJECT.fullmatch(project):
        raise UsageError(f"project: expected a name of letters, digits and ._+-, found {project!r}; choose another")
    return project or default_project(folder)


def _nothing(database: Path, reading: _Reading) -> CorpusError:
    found = f"{len(reading.failures)} entries that are none"
    if reading.failures:
        found += f" ({reading.failures[0].name}: {reading.failures[0].reason})"
    if reading.unwanted:
        found += f", and {reading.unwanted} that the filter leaves out"
    return CorpusError(
        f"{database}: expected at least one command that compiles C or C++, found {found}; "
        "check the database and the filter"
    )


def _take(
    reading: _Reading,
    item: CompileCommand | MalformedCommand,
    *,
    is_wanted: Callable[[CompileCommand], bool],
    level: Level | None,
) -> None:
    """Make a source of one entry, or a failure, or count it."""
    if isinstance(item, MalformedCommand):
        name = f"{reading.project}/entry-{item.index}"
        reading.failures.append(ModuleFailure(name=name, project=reading.project, reason=item.reason))
        return
    if not is_wanted(item):
        reading.unwanted += 1
        return
    name = _module_name(item, reading)
    try:
        call = front_end_call(item, level=level)
    except ValueError as error:
        reading.failures.append(ModuleFailure(name=name, project=reading.project, reason=str(error)))
        return
    options = _Options(
        directory=item.directory,
        driver=call.driver,
        words=_interned(call.options),
        essential=_interned(call.essential),
        language=call.language,
        named=call.input[:-1],
    )
    options = reading.sets.setdefault(options, options)
    key = (id(options), str(item.file), str(item.output))
    if key in reading.seen:
        reading.repeated += 1
        return
    reading.seen.add(key)
    reading.names[name] += 1
    if (count := reading.names[name]) > 1:
        name = f"{name}-{count}"
    reading.sources.append(_Source(name=name, call=call, options=options, file=item.file))


def _interned(words: Iterable[str]) -> tuple[str, ...]:
    """Ten thousand commands have a few hundred different words."""
    return tuple(sys.intern(word) for word in words)


def _module_name(command: CompileCommand, reading: _Reading) -> str:
    """The output's path below the build folder, or the source's, with an ``.o``."""
    path = command.output or command.file.with_name(f"{command.file.name}.o")
    relative = os.path.relpath(path, reading.root)
    parts = [part for part in PurePosixPath(relative).parts if part not in {"..", "/", "."}]
    name = re.sub(r"[\x00-\x1f\x7f\\]", "_", "/".join(parts).encode("utf-8", "replace").decode())
    return (
        f"{reading.project}/{name}" if PurePosixPath(name).suffix in {".o", ".obj"} else f"{reading.project}/{name}.o"
    )


def _key(options: _Options) -> tuple[object, ...]:
    return options.directory, options.driver, options.essential, options.language, options.named


def _dry_runs(toolchain: Toolchain, options: Sequence[_Options], *, workers: int) -> dict[tuple[object, ...], _DryRun]:
    """One dry run for each set of options that compiles bitcode in its own way."""
    distinct = {_key(item): item for item in options}
    with ThreadPoolExecutor(max(1, workers), thread_name_prefix="dry-run") as pool:
        results = pool.map(functools.partial(_dry_run, toolchain), distinct.values())
        return dict(zip(distinct, results, strict=True))


def _driver(toolchain: Toolchain, name: str) -> str:
    return str(toolchain.clangxx if name == "clang++" else toolchain.clang)


def _dry_run(toolchain: Toolchain, options: _Options) -> _DryRun:
    """Ask the driver for the ``-cc1`` line, again without the options that it does not know."""
    unknown: set[str] = set()
    reason = "no message"
    source = [*(options.named or ("-x", options.language)), "-"]
    if not options.directory.is_dir():
        return _DryRun(reason=f"expected the folder {options.directory} of the command, found none")
    for _ in range(_ATTEMPTS):
        words = [word for word in options.essential if word not in unknown]
        argv = [_driver(toolchain, options.driver), *words, "-###", "-c", "-o", "module.o", *source]
        done = process.run(argv, timeout_seconds=DRY_RUN_SECONDS, cwd=options.directory, env=front_end_environment())
        if done.returncode == 0:
            return _checked(done.stderr, frozenset(unknown))
        found = _not_known(done.stderr, words)
        if not found:
            reason = "the driver did not finish in time" if done.timed_out else first_error(done.stderr)
            break
        unknown |= found
    return _DryRun(reason=reason)


def _not_known(stderr: str, words: Sequence[str]) -> set[str]:
    """The words that the driver complains about."""
    found = {word for word in _UNKNOWN.findall(stderr) if word in words}
    for value, option in _UNFIT.findall(stderr):
        found |= {word for word in words if word.startswith(option) and word.endswith(value)}
    return found


def _checked(stderr: str, unknown: frozenset[str]) -> _DryRun:
    """What a dry run says, unless it asks for something that extraction does not do."""
    try:
        words = read_dry_run(stderr)
    except ToolError as error:
        return _DryRun(reason=str(error))
    if refused := next((word for word in words if _REFUSED.fullmatch(word)), None):
        return _DryRun(reason=f"expected options that decide the code, found {refused}, which extraction does not do")
    command_line = options_for_ir(words)
    if (trouble := check_command_line(command_line)) is not None:
        return _DryRun(reason=trouble)
    if "-O0" in command_line and "-disable-O0-optnone" not in command_line:
        return _DryRun(
            reason="expected an optimization level, found -O0, at which clang marks functions not to be optimized; "
            "give one (--level Oz), or build with optimization"
        )
    return _DryRun(command_line=command_line, unknown=unknown)


def _job(toolchain: Toolchain, source: _Source, dry: _DryRun, *, reading: _Reading, held_out: bool) -> FrontEndJob:
    options = source.options
    words = (word for word in options.words if word not in dry.unknown)
    relative = os.path.relpath(source.file, reading.root)
    return FrontEndJob(
        name=source.name,
        project=reading.project,
        language=source.call.language,
        held_out=held_out,
        source="/".join(part for part in PurePosixPath(relative).parts if part != ".."),
        directory=options.directory,
        driver=(_driver(toolchain, options.driver), *words),
        input=source.call.input,
        command_line=dry.command_line,
        made_from=source.file,
    )
