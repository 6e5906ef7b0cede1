"""Import of a compilation database as a corpus without a special build: our clang's front end compiles the sources.

The options are the build's own, so that a module's code is what the build would have got from this compiler. Debug
information is left out: it has the machine's paths, and no decision of the optimizer depends on it.
"""

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mlgokit.compiler.options.parse import Option, parse_options
from mlgokit.compiler.request import Lto
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import BuildOptionCounts, baseline_text, level_of, write_options
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.front_end import (
    ExtractionLimits,
    FrontEndJob,
    Level,
    claim_corpus,
    make_corpus,
)
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.corpus.importers.build_compiler import Baseline
from mlgokit.corpus.importers.build_sources import (
    BuildSource,
    CommandFilter,
    SourceReading,
    SourceRequest,
    read_sources,
    source_request,
    survey,
    why_refused,
)
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.corpus.importers.precompiled import write_macros
from mlgokit.corpus.options.dry_run import NOT_ASKED, BuildOptions, DryRun, driver_path, dry_runs
from mlgokit.corpus.profiles import profile_copier, replace_profiles
from mlgokit.corpus.staleness import ProfileFit, fit_of
from mlgokit.corpus.writer import Imported
from mlgokit.errors import InputError, UsageError
from mlgokit.files import digest_file
from mlgokit.locks import locked
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import counted

_M_PROFILE = re.compile(r"v\d[\d.]*e?m")
_ARM = re.compile(r"(arm|thumb)(eb)?(?P<version>v.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCommands:
    """The result of importing a compilation database, with the numbers of commands that gave no module.

    ``baseline`` describes the compiler of the modules, with its version and optimization levels, and ``fits`` tells how
    the profile fits each module that has one.
    """

    imported: Imported
    repeated: int
    unwanted: int
    without_code: int = 0
    baseline: str = ""
    options: BuildOptionCounts = field(default_factory=BuildOptionCounts)
    fits: tuple[ProfileFit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What all jobs of an import have in common.

    ``profile`` copies the profile that an option names, for a command of a working directory, and returns its path in
    the corpus, whose absolute path is ``folder``.
    """

    toolchain: Toolchain
    answers: Mapping[BuildOptions, DryRun]
    held_out: bool
    target: str
    profile: Callable[[Option, Path], str]
    folder: Path
    for_link: bool


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
    baseline: Baseline = "clang",
    target: str | None = None,
    any_database: bool = False,
    workers: int = 1,
    limits: ExtractionLimits | None = None,
    report: Report = say_nothing,
) -> ImportedCommands:
    """Make a corpus of the sources that a build compiles, with little memory.

    The database is read for precompiled headers, then for the options that differ, then for the sources, one by one.

    Modules that an earlier run finished are reused, unless their source, or what it includes, has another content.

    Names of modules begin with the project, by default the build's folder. The level is in place of the build's own; a
    build at ``-O0`` needs one. The target is a triple or an architecture, by default that of most commands. With the
    baseline ``clang`` commands of any compiler are translated to this clang; ``build`` takes only those of a clang, as
    far as that can be known. ``any_database`` updates a corpus that was made from an earlier state of the database.
    With ``for_link``, modules of sources with ``-flto`` say what the link reads of classes (the type metadata of
    vtables), as the build's bitcode does.

    Raises:
        BusyError: another process uses the corpus.
        CorpusError: the database is malformed, or no module could be made.
        ReuseError: the corpus folder was made in another way.
        StorageError: the disk is full or not writable.
        ToolError: the compiler cannot be started.
        UsageError: a filter or the project's name is not usable, or no command is for the target.
    """
    wanted = wanted or CommandFilter()
    request = source_request(database, project=project, level=level, wanted=wanted, baseline=baseline)
    commands, total = survey(request)
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
                **({} if target is None else {"target": target}),
                **({"baseline": baseline} if baseline == "build" else {}),
            },
            toolchain=toolchain,
            inputs={
                "compile_commands": digest_file(database),
                **({} if wanted.outputs is None else {"outputs": digest_value(sorted(map(str, wanted.outputs)))}),
            },
            any_inputs=any_database,
        )
        answers = dry_runs(toolchain, commands, workers=workers)
        plan = _Plan(
            toolchain=toolchain,
            answers=answers,
            held_out=held_out,
            target=_choose_target(commands, answers, target),
            profile=profile_copier(corpus_folder),
            folder=corpus_folder.absolute(),
            for_link=for_link,
        )
        reading = SourceReading()
        fits: list[ProfileFit] = []
        levels: Counter[str] = Counter()

        def note(module: Module) -> None:
            levels[level_of(module.command_line)] += 1
            if (fit := fit_of(module)) is not None:
                fits.append(fit)

        imported = make_corpus(
            _jobs(request, reading, plan),
            corpus_folder=corpus_folder,
            total=total,
            remedy="correct the database, or give options that this compiler takes",
            workers=workers,
            limits=limits,
            note=note,
            report=report,
        )
        counts = dataclasses.replace(_option_counts(reading), notes=_notes(reading, toolchain))
        write_options(corpus_folder, counts)
        return ImportedCommands(
            imported=imported,
            repeated=reading.repeated,
            unwanted=reading.unwanted,
            without_code=reading.without_code,
            baseline=baseline_text(toolchain.version, levels),
            options=counts,
            fits=tuple(fits),
        )


def module_outputs(database: Path, *, project: str | None = None, level: Level | None = None) -> dict[str, Path]:
    """Find the object that the build makes for each module of :func:`import_commands` with the same arguments."""
    request = source_request(database, project=project, level=level, wanted=CommandFilter())
    return {
        source.name: source.command.output
        for source in read_sources(request, SourceReading())
        if isinstance(source, BuildSource) and source.command.output is not None
    }


def option_counts(database: Path, *, project: str | None = None) -> BuildOptionCounts:
    """Count the options that :func:`import_commands` keeps or leaves out, without asking a compiler."""
    reading = SourceReading()
    request = source_request(database, project=project, level=None, wanted=CommandFilter())
    for source in read_sources(request, reading):
        if isinstance(source, BuildSource):
            _add_option_counts(reading, source, ())
    return _option_counts(reading)


def lto_kinds(database: Path | None) -> dict[Lto, int]:
    """Count the sources of a database by kind of link-time optimization; all zero without a database."""
    counts: dict[Lto, int] = {"": 0, "full": 0, "thin": 0}
    for command in () if database is None else read_compile_commands(database):
        if isinstance(command, CompileCommand):
            counts[lto_of(command.arguments)] += 1
    return counts


def lto_by_module(database: Path, *, project: str | None = None, level: Level | None = None) -> dict[str, Lto]:
    """Find the kind of link-time optimization for each module of :func:`import_commands` with the same arguments."""
    request = source_request(database, project=project, level=level, wanted=CommandFilter())
    return {
        source.name: source.call.lto
        for source in read_sources(request, SourceReading())
        if isinstance(source, BuildSource) and source.call.lto
    }


def _choose_target(
    commands: Mapping[BuildOptions, int], answers: Mapping[BuildOptions, DryRun], wanted: str | None
) -> str:
    """Choose the single target of a corpus: the requested one, else that of most commands."""
    counts: Counter[str] = Counter()
    triples: dict[str, str] = {}
    for options, count in commands.items():
        if answers[options].reason is None:
            triple = target_of(answers[options])
            counts[target_family(triple)] += count
            triples.setdefault(target_family(triple), triple)
    if not counts:
        return ""
    if wanted is None:
        return triples[counts.most_common(1)[0][0]]
    named = target_family(wanted)
    chosen = [family for family in counts if named in {family, family.partition("-")[0]}]
    if not chosen:
        there = ", ".join(f"{triples[family]} ({counted(count, 'command')})" for family, count in counts.most_common())
        raise UsageError(f"--target {wanted}: expected a target of the database, found {there}; name one of these")
    return triples[max(chosen, key=counts.__getitem__)]


def _notes(reading: SourceReading, toolchain: Toolchain) -> tuple[str, ...]:
    notes: list[str] = []
    if reading.without_code:
        named = ", ".join(reading.named_without_code)
        more = reading.without_code - len(reading.named_without_code)
        notes.append(
            f"{counted(reading.without_code, 'command')} of the database without code, and so without a module: {named}"
            f"{f', and {more} more' if more > 0 else ''}"
        )
    for compiler, count in reading.compilers.most_common():
        if compiler.is_clang is None:
            what = "which may be another compiler: PATH has no such program that could be asked"
        elif not compiler.is_clang:
            what = "which is no clang"
        elif compiler.major not in {0, toolchain.major}:
            what = "of another version"
        else:
            continue
        notes.append(
            f"{counted(count, 'command')} of the build {'is' if count == 1 else 'are'} for {compiler.text}, {what}: "
            f"modules and baseline are those of clang {toolchain.version}"
        )
    return tuple(notes)


def _add_option_counts(reading: SourceReading, source: BuildSource, unknown: Sequence[str]) -> None:
    """Count the options of a source's command that are left out or kept; ``unknown`` are those clang does not know."""
    reading.commands += 1
    reading.unknown.update(unknown)
    reading.dropped.update({*source.call.dropped, *unknown})
    reading.foreign.update(set(source.call.foreign))


def _option_counts(reading: SourceReading) -> BuildOptionCounts:
    return BuildOptionCounts(
        commands=reading.commands,
        left_out=dict(reading.dropped.most_common()),
        kept=dict(reading.foreign.most_common()),
        unknown=tuple(sorted(reading.unknown)),
    )


def _jobs(request: SourceRequest, reading: SourceReading, plan: _Plan) -> Generator[FrontEndJob | ModuleFailure]:
    for source in read_sources(request, reading):
        if isinstance(source, ModuleFailure):
            yield source
            continue
        dry = plan.answers.get(source.options, NOT_ASKED)
        unknown = [" ".join(option.words) for option in source.options.essential if option in dry.unknown]
        _add_option_counts(reading, source, unknown)
        words = (*dry.front_end, *source.options.paths)
        reason = why_refused(source, dry)
        if reason is None and target_family(target_of(dry)) != target_family(plan.target):
            reason = (
                f"it is compiled for {target_of(dry)}, but a corpus has one target, here {plan.target}; "
                f"--target {target_of(dry)} imports those commands"
            )
        try:
            job = None if reason is not None else _job(request, source, plan, dry, words)
        except InputError as error:
            job, reason = None, str(error)
        yield job or ModuleFailure(name=source.name, project=request.project, reason=reason or "")


def _job(request: SourceRequest, source: BuildSource, plan: _Plan, dry: DryRun, words: tuple[str, ...]) -> FrontEndJob:
    """Make the front-end job of a source from the ``words`` for its front end; profiles are copied into the corpus."""
    options = source.options
    relative = os.path.relpath(source.command.file, request.root)

    def copy_profile(option: Option) -> str:
        return plan.profile(option, options.directory)

    # A profile by the front end's counters names local functions with the file in front.
    has_counters = any(word.startswith("-fprofile-instrument") for word in words)
    named = ("-main-file-name", source.command.file.name) if has_counters else ()
    units = ("-flto-unit",) if plan.for_link and source.call.lto else ()
    after = ("-include", str(write_macros(source.call.after, plan.folder))) if source.call.after else ()

    return FrontEndJob(
        name=source.name,
        project=request.project,
        language=source.call.language,
        held_out=plan.held_out,
        source="/".join(part for part in PurePosixPath(relative).parts if part != ".."),
        directory=options.directory,
        front_end=(
            driver_path(plan.toolchain, options.driver),
            *replace_profiles(words, lambda option: str(plan.folder / copy_profile(option))),
            *named,
            *units,
            *after,
        ),
        input=("-x", source.call.source_language, source.call.input[-1]),
        command_line=replace_profiles(dry.command_line, copy_profile),
    )


def target_of(dry: DryRun) -> str:
    """Find the target triple that the driver passed to the front end; empty if none."""
    values = [option.values[0] for option in parse_options(dry.front_end) if option.name == "-triple" and option.values]
    return values[-1] if values else ""


def target_family(triple: str) -> str:
    """Drop from a triple or an architecture what may differ within a program: ``-march``, Thumb, the system's version.

    Example:
        >>> target_family("i686-pc-linux-gnu"), target_family("thumbv7-linux-gnueabihf"), target_family("thumbv7em")
        ('i386-pc-linux-gnu', 'arm-linux-gnueabihf', 'armm')
        >>> target_family("arm64-apple-macosx14.0.0")
        'aarch64-apple-macosx'
    """
    architecture, dash, rest = triple.partition("-")
    if architecture.startswith("arm64"):
        architecture = "aarch64"
    elif re.fullmatch(r"i[3-9]86|x86", architecture):
        architecture = "i386"
    elif architecture == "amd64":
        architecture = "x86_64"
    elif (match := _ARM.fullmatch(architecture)) is not None:
        profile = "m" if _M_PROFILE.fullmatch(match["version"] or "") else ""
        architecture = f"arm{match[2] or ''}{profile}"
    return architecture + dash + re.sub(r"(?<=[a-z])[\d.]+(?=-|$)", "", rest)
