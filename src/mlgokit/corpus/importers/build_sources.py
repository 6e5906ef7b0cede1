"""The sources of a compilation database, entry by entry, with their front-end calls and module names."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mlgokit.compiler.options.parse import spell_options
from mlgokit.compiler.options.safety import check_front_end
from mlgokit.compiler.source import SourceCall
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.front_end import Level
from mlgokit.corpus.importers.build_command import FrontEndCall, front_end_call
from mlgokit.corpus.importers.build_compiler import Baseline, BuildCompiler, build_compiler
from mlgokit.corpus.importers.compile_commands import CompileCommand, MalformedCommand, read_compile_commands
from mlgokit.corpus.importers.no_code import why_no_code
from mlgokit.corpus.importers.object_lists import compile_filter
from mlgokit.corpus.importers.precompiled import Headers, find_header_commands
from mlgokit.corpus.layout import check_project
from mlgokit.corpus.options.dry_run import NOT_ASKED, BuildOptions, DryRun, dry_runs
from mlgokit.corpus.profiles import replace_profiles
from mlgokit.corpus.writer import EXAMPLES
from mlgokit.errors import CorpusError
from mlgokit.manifest import has_copies

_OTHER_COMPILER = "build with clang (CC=clang CXX=clang++), or give --baseline clang to compare with clang's own code"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFilter:
    """A filter of commands, by regular expressions that must, and must not, be found in the path of the source.

    ``outputs`` are absolute paths of objects, one of which the command must make.
    """

    include: str | None = None
    exclude: str | None = None
    outputs: frozenset[Path] | None = None

    def predicate(self) -> Callable[[CompileCommand], bool]:
        """Make a predicate for commands.

        Raises:
            UsageError: an expression is malformed.
        """
        include, exclude = compile_filter("include", self.include), compile_filter("exclude", self.exclude)

        def is_wanted(command: CompileCommand) -> bool:
            path = str(command.file)
            if self.outputs is not None and command.output not in self.outputs:
                return False
            return (include is None or include.search(path) is not None) and (
                exclude is None or exclude.search(path) is None
            )

        return is_wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSource:
    """The source of one command, which is a ``call`` of our clang's front end.

    ``name`` is that of the module, and ``options`` decide the driver's answer.
    """

    name: str
    command: CompileCommand
    call: FrontEndCall
    options: BuildOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest:
    """A database to read, and how; with the baseline ``build``, commands of other compilers than clang are refused.

    Names of modules are relative to the ``root``, the folder of the database, after the project.
    """

    database: Path
    project: str
    root: Path
    level: Level | None
    is_wanted: Callable[[CompileCommand], bool]
    headers: Headers
    baseline: Baseline = "clang"


@dataclass(slots=True, kw_only=True)
class SourceReading:
    """The counts of one pass over the database; names and commands are kept as hashes of 64 bits.

    Attributes:
        failures: number of entries that give no module.
        unwanted: number of commands that the filter left out.
        named_without_code: the first few commands without code, as text.
        refused: number of commands by compiler that is no clang, where only clang is wanted.
        commands: number of commands whose options were counted in ``dropped``, ``unknown`` and ``foreign``.
        copies: by source folder, the folder around it that has mlgokit's copies of sources; ``None`` for none.
    """

    names: Counter[int] = field(default_factory=Counter[int])
    seen: set[int] = field(default_factory=set[int])
    failures: int = 0
    first_failure: ModuleFailure | None = None
    repeated: int = 0
    unwanted: int = 0
    without_code: int = 0
    named_without_code: list[str] = field(default_factory=list[str])
    compilers: Counter[BuildCompiler] = field(default_factory=Counter["BuildCompiler"])
    refused: Counter[BuildCompiler] = field(default_factory=Counter["BuildCompiler"])
    commands: int = 0
    dropped: Counter[str] = field(default_factory=Counter[str])
    unknown: set[str] = field(default_factory=set[str])
    foreign: Counter[str] = field(default_factory=Counter[str])
    copies: dict[Path, Path | None] = field(default_factory=dict[Path, Path | None])


def source_calls(
    database: Path, *, toolchain: Toolchain, level: Level | None = None, workers: int = 1
) -> tuple[list[SourceCall], dict[str, str]]:
    """Make driver commands that compile the sources of a build to objects, without debug information.

    Returns:
        The calls, named as the modules of :func:`import_commands`; and the reasons why other sources are left out, by
        their names.
    """
    request = source_request(database, project=None, level=level, wanted=CommandFilter())
    answers = dry_runs(toolchain, survey(request)[0], workers=workers)
    calls: list[SourceCall] = []
    left_out: dict[str, str] = {}
    for source in read_sources(request, SourceReading()):
        if isinstance(source, ModuleFailure):
            left_out[source.name] = source.reason
            continue
        dry = answers.get(source.options, NOT_ASKED)
        if (reason := why_refused(source, dry)) is not None:
            left_out[source.name] = reason
        elif source.call.after:
            left_out[source.name] = "it defines macros only after its precompiled header is read"
        elif source.call.lto:
            left_out[source.name] = "it is compiled with -flto, so its code is generated in the link"
        else:
            units = (unit for unit in source.call.units if unit not in dry.unknown and not unit.name.startswith("-g"))
            calls.append(
                SourceCall(
                    name=source.name,
                    driver=source.call.driver,
                    words=(*spell_options(units), *source.call.input),
                    directory=source.options.directory,
                )
            )
    return calls, left_out


def source_request(
    database: Path,
    *,
    project: str | None,
    level: Level | None,
    wanted: CommandFilter,
    baseline: Baseline = "clang",
) -> SourceRequest:
    """Make a request for a database, which is read once for its precompiled headers."""
    root = database.resolve().parent
    return SourceRequest(
        database=database,
        project=check_project(project, root),
        root=root,
        level=level,
        is_wanted=wanted.predicate(),
        headers=find_header_commands(read_compile_commands(database)),
        baseline=baseline,
    )


def survey(request: SourceRequest) -> tuple[Counter[BuildOptions], int]:
    """Count the sources by the options about which the driver must be asked, and all sources and failures.

    Raises:
        CorpusError: no command of the database compiles C or C++.
    """
    reading = SourceReading()
    commands: Counter[BuildOptions] = Counter()
    count = 0
    for source in read_sources(request, reading):
        count += 1
        if isinstance(source, BuildSource):
            commands[source.options] += 1
    if not commands:
        raise _no_source_error(request.database, reading)
    return commands, count


def read_sources(request: SourceRequest, reading: SourceReading) -> Generator[BuildSource | ModuleFailure]:
    """Yield a source, or a failure, for each entry of the database that is wanted, makes code, and is not repeated."""
    for item in read_compile_commands(request.database):
        if isinstance(item, CompileCommand) and (what := why_no_code(item)) is not None and request.is_wanted(item):
            reading.without_code += 1
            if len(reading.named_without_code) < EXAMPLES:
                reading.named_without_code.append(f"{os.path.relpath(item.file, request.root)}: {what}")
            continue
        source = _read_entry(request, reading, item)
        if isinstance(source, ModuleFailure):
            reading.failures += 1
            reading.first_failure = reading.first_failure or source
        if source is not None:
            yield source


def why_refused(source: BuildSource, dry: DryRun) -> str | None:
    """Say why a source is not compiled, by a check of the whole front-end command line; ``None`` if it is."""
    words = (*dry.front_end, *source.options.paths)
    return dry.reason or check_front_end(replace_profiles(words, lambda _: None))


def _no_source_error(database: Path, reading: SourceReading) -> CorpusError:
    if reading.refused and reading.refused.total() == reading.failures:
        named = ", ".join(f"{count} of {compiler.text}" for compiler, count in reading.refused.most_common())
        return CorpusError(
            f"{database}: expected commands of clang, found {named}: it loads no plugin of clang, and sizes would not "
            f"be compared with its code; {_OTHER_COMPILER}"
        )
    counts = f"{reading.failures} entries that do not"
    if reading.first_failure is not None:
        counts += f" ({reading.first_failure.name}: {reading.first_failure.reason})"
    if reading.without_code:
        counts += f", {reading.without_code} that make no code ({reading.named_without_code[0]})"
    if reading.unwanted:
        counts += f", and {reading.unwanted} that the filter leaves out"
    return CorpusError(
        f"{database}: expected at least one command that compiles C or C++, found {counts}; "
        "check the database and the filter"
    )


def _read_entry(
    request: SourceRequest, reading: SourceReading, item: CompileCommand | MalformedCommand
) -> BuildSource | ModuleFailure | None:
    """Make a source or a failure from an entry; ``None`` for an unwanted or repeated one, which is only counted."""
    if isinstance(item, MalformedCommand):
        name = f"{request.project}/entry-{item.index}"
        return ModuleFailure(name=name, project=request.project, reason=item.reason)
    if not request.is_wanted(item):
        reading.unwanted += 1
        return None
    name = _module_name(item, request)
    if (copies := _copies_around(item.file, request, reading)) is not None:
        reason = f"mlgokit copied it into {copies} in an earlier run; delete that folder, and configure the build again"
        return ModuleFailure(name=name, project=request.project, reason=reason)
    try:
        call = front_end_call(item, level=request.level, headers=request.headers)
        compiler = build_compiler(item.arguments)
        if request.baseline == "build" and compiler.is_clang is False:
            reading.refused[compiler] += 1
            raise ValueError(  # noqa: TRY301  (a reason like those of the call)
                f"expected a command of clang, found one of {compiler.text}; {_OTHER_COMPILER}"
            )
    except ValueError as error:
        return ModuleFailure(name=name, project=request.project, reason=str(error))
    options = BuildOptions(
        directory=item.directory,
        driver=call.driver,
        # Ten thousand commands have a few hundred distinct words.
        paths=tuple(map(sys.intern, call.paths)),
        essential=call.essential,
        language=call.language,
        named=call.input[:-1],
    )
    key = hash((options, options.paths, str(item.file), str(item.output)))
    if key in reading.seen:
        reading.repeated += 1
        return None
    reading.seen.add(key)
    reading.names[hash(name)] += 1
    if (count := reading.names[hash(name)]) > 1:
        name = f"{name}-{count}"
    reading.compilers[compiler] += 1
    return BuildSource(name=name, command=item, call=call, options=options)


def _copies_around(source: Path, request: SourceRequest, reading: SourceReading) -> Path | None:
    """Find the folder to which an earlier run of mlgokit copied a source, unless the database is in there too."""
    folder = source.parent
    if folder not in reading.copies:
        around = (parent for parent in folder.parents if not request.root.is_relative_to(parent))
        reading.copies[folder] = next((parent for parent in around if has_copies(parent)), None)
    return reading.copies[folder]


def _module_name(command: CompileCommand, request: SourceRequest) -> str:
    """Name a module by its output's path below the build folder, or its source's with ``.o``, after the project."""
    path = command.output or command.file.with_name(f"{command.file.name}.o")
    relative = os.path.relpath(path, request.root)
    name = "/".join(part for part in PurePosixPath(relative).parts if part not in {"..", "/", "."})
    if relative.startswith(".."):
        name = name.removeprefix(f"{request.project}/")
    name = re.sub(r"[\x00-\x1f\x7f\\]", "_", name.encode("utf-8", "replace").decode())
    return f"{request.project}/{name}{'' if PurePosixPath(name).suffix in {'.o', '.obj'} else '.o'}"
