"""From any compilation database to a corpus, without a special build: only the front end runs, and only our clang.

The options are the build's own, so that a module's code is what the build would have got from this compiler. Debug
information is left out: it has the machine's paths, and no decision of the optimizer depends on it.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mlgokit.compiler.options.parse import Option
from mlgokit.compiler.request import Lto
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import BuildOptionCounts, write_options
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.front_end import (
    ExtractionLimits,
    FrontEndJob,
    Level,
    claim_corpus,
    front_ends,
)
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.corpus.importers.build_sources import (
    BuildSource,
    CommandFilter,
    SourceReading,
    SourceRequest,
    read_sources,
    refusal,
    source_request,
    survey,
)
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.corpus.options.dry_run import DryRun, driver_path, dry_run_key, dry_runs
from mlgokit.corpus.profiles import ProfileCopies, profile_of, with_profiles
from mlgokit.corpus.staleness import ProfileFit, fit_of
from mlgokit.corpus.writer import Imported, corpus_writer, description_fields, write_outcomes
from mlgokit.errors import InputError
from mlgokit.files import digest_file
from mlgokit.locks import locked
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCommands:
    """What came of a compilation database.

    Attributes:
        imported: how many modules and failures the corpus has.
        repeated: commands that the database had before.
        unwanted: commands that the filter left out.
        options: of the build, those that were left out and those that make another program than the shipped one.
        fits: how profiles fit, for each module with one.
    """

    imported: Imported
    repeated: int
    unwanted: int
    options: BuildOptionCounts = field(default_factory=BuildOptionCounts)
    fits: tuple[ProfileFit, ...] = ()

    @property
    def dropped(self) -> Mapping[str, int]:
        """Options that were left out, with the number of commands."""
        return self.options.left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What the compiler says about the commands; ``sources`` is their number.

    ``profile`` says where the profile is that an option of a command that ran in some folder names, counted from
    ``folder``; ``for_link`` is that of :func:`import_commands`.
    """

    toolchain: Toolchain
    answers: Mapping[tuple[object, ...], DryRun]
    sources: int
    held_out: bool
    profile: Callable[[Option, Path], str]
    folder: Path = field(default_factory=Path)
    for_link: bool = False


def import_commands(
    database: Path,
    *,
    toolchain: Toolchain,
    corpus_folder: Path,
    project: str | None = None,
    level: Level | None = None,
    wanted: CommandFilter | None = None,
    held_out: bool = False,
    for_link: bool = False,
    workers: int = 1,
    limits: ExtractionLimits | None = None,
    report: Report = say_nothing,
) -> ImportedCommands:
    """Make a corpus of the sources that a build compiles, whatever compiler it names; takes little memory.

    The database is read twice, first for the options that differ, then for the sources, one by one.

    Modules that an earlier run finished are reused, unless their source, or what it includes, has another content.

    Args:
        database: ``compile_commands.json``.
        toolchain: whose clang makes the bitcode.
        corpus_folder: where the corpus goes.
        project: first component of the modules' names; the build's folder by default.
        level: in place of the build's own; a build at ``-O0`` needs one.
        wanted: which commands; all by default.
        held_out: keep the modules out of training.
        for_link: modules of sources with ``-flto`` say what the link reads of classes (the type metadata of vtables),
            as the build's bitcode does.
        workers: how many compilers run at a time.
        limits: what one module may take.
        report: told after every module.

    Raises:
        BusyError: another process uses the corpus.
        CorpusError: the database is none, or no module could be made.
        ReuseError: the corpus folder was made in another way.
        StorageError: the disk is full or not writable.
        ToolError: the compiler cannot be started.
        UsageError: a filter or the project's name is not usable.
    """
    wanted = wanted or CommandFilter()
    request = source_request(database, project=project, level=level, wanted=wanted)
    options, sources = survey(request)
    with locked(corpus_folder):
        claim_corpus(
            corpus_folder,
            config={
                "source": "compile_commands",
                "project": request.project,
                "level": level,
                "include": wanted.include,
                "exclude": wanted.exclude,
                **({"for_link": True} if for_link else {}),
            },
            toolchain=toolchain,
            inputs={"compile_commands": digest_file(database)},
        )
        plan = _Plan(
            toolchain=toolchain,
            answers=dry_runs(toolchain, options, workers=workers),
            sources=sources,
            held_out=held_out,
            profile=ProfileCopies(corpus_folder=corpus_folder),
            folder=corpus_folder.absolute(),
            for_link=for_link,
        )
        reading = SourceReading()
        fits: list[ProfileFit] = []
        remedy = "correct the database, or give options that this compiler takes"
        with (
            front_ends(corpus_folder, limits=limits) as make,
            corpus_writer(corpus_folder, description_fields(), remedy=remedy, keep_facts=True) as writer,
        ):

            def outcome(job: FrontEndJob | ModuleFailure) -> Module | ModuleFailure:
                done = job if isinstance(job, ModuleFailure) else make(job)
                if isinstance(done, Module) and (fit := fit_of(done)) is not None:
                    fits.append(fit)
                return done

            jobs = _jobs(request, reading, plan)
            room = None if limits is None else limits.room
            write_outcomes(writer, outcome, jobs, workers=workers, report=report, total=plan.sources, room=room)
        counts = _counted(reading)
        write_options(corpus_folder, counts)
        return ImportedCommands(
            imported=writer.imported(),
            repeated=reading.repeated,
            unwanted=reading.unwanted,
            options=counts,
            fits=tuple(fits),
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
    request = source_request(database, project=project, level=level, wanted=wanted or CommandFilter())
    options, sources = survey(request)
    answers = dry_runs(toolchain, options, workers=workers)
    # What the build made is made anew of what it was made of, and not of copies.
    plan = _Plan(toolchain=toolchain, answers=answers, sources=sources, held_out=False, profile=profile_of)
    return [job for job in _jobs(request, SourceReading(), plan) if isinstance(job, FrontEndJob)]


def module_outputs(database: Path, *, project: str | None = None, level: Level | None = None) -> dict[str, Path]:
    """By module of :func:`import_commands` for the same arguments, the object that the build makes of its source.

    Raises:
        CorpusError: the database is none.
        UsageError: the project's name is not usable.
    """
    request = source_request(database, project=project, level=level, wanted=CommandFilter())
    return {
        source.name: source.output
        for source in read_sources(request, SourceReading())
        if isinstance(source, BuildSource) and source.output is not None
    }


def option_counts(database: Path, *, project: str | None = None) -> BuildOptionCounts:
    """The options of a build that :func:`import_commands` leaves out or keeps, as far as no compiler has to be asked.

    Raises:
        CorpusError: the database is none.
        UsageError: the project's name is not usable.
    """
    reading = SourceReading()
    request = source_request(database, project=project, level=None, wanted=CommandFilter())
    for source in read_sources(request, reading):
        if isinstance(source, BuildSource):
            _count(reading, source, ())
    return _counted(reading)


def lto_kinds(database: Path | None) -> dict[Lto, int]:
    """Kinds of link-time optimization that a database asks for, each with the number of sources; none of no database.

    Raises:
        CorpusError: it is none.
    """
    found: dict[Lto, int] = {"": 0, "full": 0, "thin": 0}
    for command in () if database is None else read_compile_commands(database):
        if isinstance(command, CompileCommand):
            found[lto_of(command.arguments)] += 1
    return found


def lto_by_module(database: Path, *, project: str | None = None, level: Level | None = None) -> dict[str, Lto]:
    """By module of :func:`import_commands` for the same arguments, the link-time optimization of its object, if any.

    Raises:
        CorpusError: the database is none.
        UsageError: the project's name is not usable.
    """
    request = source_request(database, project=project, level=level, wanted=CommandFilter())
    return {
        source.name: source.call.lto
        for source in read_sources(request, SourceReading())
        if isinstance(source, BuildSource) and source.call.lto
    }


def _count(reading: SourceReading, source: BuildSource, unknown: Sequence[str]) -> None:
    reading.commands += 1
    reading.dropped.update({*source.call.dropped, *unknown})
    reading.foreign.update(set(source.call.foreign))


def _counted(reading: SourceReading) -> BuildOptionCounts:
    return BuildOptionCounts(
        commands=reading.commands,
        left_out=dict(reading.dropped.most_common()),
        kept=dict(reading.foreign.most_common()),
    )


def _jobs(request: SourceRequest, reading: SourceReading, plan: _Plan) -> Generator[FrontEndJob | ModuleFailure]:
    """A job for each source that the compiler can be asked about; counts how many commands had which option."""
    for source in read_sources(request, reading):
        if isinstance(source, ModuleFailure):
            yield source
            continue
        dry = plan.answers[dry_run_key(source.options)]
        unknown = [" ".join(option.words) for option in source.options.essential if option in dry.unknown]
        _count(reading, source, unknown)
        words = (*dry.front_end, *source.options.paths)
        reason = refusal(source, dry)
        try:
            job = None if reason is not None else _job(request, source, plan, dry, words)
        except InputError as error:
            job, reason = None, str(error)
        yield job or ModuleFailure(name=source.name, project=request.project, reason=reason or "")


def _job(request: SourceRequest, source: BuildSource, plan: _Plan, dry: DryRun, words: tuple[str, ...]) -> FrontEndJob:
    options = source.options
    relative = os.path.relpath(source.file, request.root)

    def place(option: Option) -> str:
        return plan.profile(option, options.directory)

    def whole(option: Option) -> str:
        return str(plan.folder / place(option))

    # In counters of the front end a local function has the name of its file in front.
    has_counters = any(word.startswith("-fprofile-instrument") for word in words)
    named = ("-main-file-name", source.file.name) if has_counters else ()
    units = ("-flto-unit",) if plan.for_link and source.call.lto else ()

    return FrontEndJob(
        name=source.name,
        project=request.project,
        language=source.call.language,
        held_out=plan.held_out,
        source="/".join(part for part in PurePosixPath(relative).parts if part != ".."),
        directory=options.directory,
        front_end=(driver_path(plan.toolchain, options.driver), *with_profiles(words, whole), *named, *units),
        input=("-x", source.call.source_language, source.call.input[-1]),
        command_line=with_profiles(dry.command_line, place),
    )
