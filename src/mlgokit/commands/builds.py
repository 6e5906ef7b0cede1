"""The stages that make corpora of users' builds: every source that a corpus can come from, and recording a build."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, cast

import tyro

from mlgokit.compiler.record import record_build
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.combine import combine_corpora
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.front_end import ExtractionLimits
from mlgokit.corpus.importers.bitcode_files import import_bitcode, import_local_thinlto
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.corpus.importers.database import CommandFilter, Level, check_project, import_commands
from mlgokit.corpus.importers.object_lists import (
    objects_in_aquery,
    objects_in_folder,
    objects_in_parameters,
    objects_of_commands,
)
from mlgokit.corpus.importers.objects import import_objects
from mlgokit.corpus.options.override import LinkOptions, link_options, read_link_command
from mlgokit.corpus.writer import Imported
from mlgokit.errors import CorpusError, UsageError
from mlgokit.progress import Report, say_nothing

WORKERS = os.cpu_count() or 1
DATABASE_NAME = "compile_commands.json"
_EXAMPLES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """Make a corpus of a build that you have; name exactly one source, the first options here."""

    compile_commands: Path | None = None
    """A compile_commands.json of any build: the front end alone is run again over its sources."""
    objects: Path | None = None
    """A folder of objects with embedded bitcode (clang -Xclang -fembed-bitcode=all)."""
    params: Path | None = None
    """A linker's parameters file, which names such objects."""
    aquery: Path | None = None
    """What `bazel aquery --output=jsonproto` prints of a link of such objects."""
    thinlto: Path | None = None
    """A folder of a local ThinLTO link (-Wl,--save-temps=import -Wl,--thinlto-emit-index-files)."""
    bitcode: Path | None = None
    """A folder of .bc files; needs --options."""
    corpus: Path = Path("corpus")
    """Where the corpus goes."""
    project: str | None = None
    """Whose the modules are; by default the name of the folder with the build."""
    workers: int = WORKERS
    """Compilers, or readers of files, that run at once."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    embedded: bool = False
    """With --compile-commands: take embedded bitcode out of the objects that were built, and run no front end."""
    level: Level | None = None
    """With --compile-commands: optimization level in place of the build's own; a build at -O0 needs one."""
    include: str | None = None
    """With --compile-commands: only sources whose path this regular expression is found in."""
    exclude: str | None = None
    """With --compile-commands: no sources whose path this regular expression is found in."""
    held_out: bool = False
    """With --compile-commands: keep the modules out of training."""
    module_seconds: float = 120.0
    """With --compile-commands: deadline of the front end for one source."""
    object_base: Path | None = None
    """With objects: the folder that their paths are relative to."""
    command_filter: str | None = None
    """With objects: only modules one of whose recorded options this regular expression is found in."""
    distributed: bool = False
    """With objects: they come from a distributed ThinLTO build; take the indices that their options name along."""
    bitcode_section: str | None = None
    """With objects: section with the bitcode, for Mach-O as segment,section; by default the format's own."""
    command_section: str | None = None
    """With objects: section with the options, likewise."""
    objcopy: Path | None = None
    """With objects: an llvm-objcopy for formats that are not read here; needs both names of sections."""
    link_command: Path | None = None
    """With --thinlto: a file with the link's command (`ninja -t commands`); gives the modules' options."""
    options: str | None = None
    """With --bitcode or --thinlto: the options of clang -cc1 for every module, as one word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """Join the corpora in the folders of a folder."""

    root: Annotated[Path, tyro.conf.Positional]
    """The folder with the corpora."""
    corpus: Path | None = None
    """Where the joined corpus goes; by default its description is written into the folder, and no file is moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Run a build, and write down what it compiles: record -- make -j2."""

    command: Annotated[tuple[str, ...], tyro.conf.Positional]
    """The build, after --; it must compile everything, so clean up first."""
    output: Path = Path(DATABASE_NAME)
    """The compilation database to write."""
    corpus: Path | None = None
    """Import the build into this corpus at once."""
    level: Level | None = None
    """With --corpus: optimization level in place of the build's own."""
    timeout_minutes: float = 240.0
    """Deadline of the build."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = WORKERS
    """Compilers that run at once when the build is imported."""


_SOURCES = ("compile_commands", "objects", "params", "aquery", "thinlto", "bitcode")
_OBJECTS = frozenset({"objects", "params", "aquery", "embedded"})
_FRONT_END = frozenset({"compile_commands"})
_ONLY_WITH: Mapping[str, frozenset[str]] = {
    "embedded": frozenset({"embedded"}),
    **dict.fromkeys(("level", "include", "exclude", "held_out", "module_seconds", "llvm"), _FRONT_END),
    "object_base": _OBJECTS - {"objects"},
    **dict.fromkeys(("command_filter", "distributed", "bitcode_section", "command_section", "objcopy"), _OBJECTS),
    "link_command": frozenset({"thinlto"}),
    "options": frozenset({"thinlto", "bitcode"}),
}
"""Which settings mean something with which source; ``embedded`` is ``compile_commands`` with that flag."""


def import_build(config: Import, *, report: Report = say_nothing) -> dict[str, Any]:
    """Make the corpus; says what it has, what failed and why, and what was left out.

    Raises:
        UsageError: not exactly one source is named, or a setting has no meaning for it.
    """
    source = _source(config)
    match source:
        case "compile_commands":
            return _import_commands(config, report)
        case "thinlto":
            return _import_thinlto(config, report)
        case "bitcode":
            options = shlex.split(config.options or "")
            if options[:1] != ["-cc1"]:
                raise UsageError(
                    f"options: expected the options of clang for the bitcode, -cc1 first, found {config.options!r}; "
                    "give them as one word, as in --options '-cc1 -triple x86_64-pc-linux-gnu -Oz'"
                )
            folder = cast("Path", config.bitcode)
            imported = import_bitcode(
                folder,
                corpus_folder=config.corpus,
                project=check_project(config.project, folder),
                options=options,
                workers=config.workers,
                report=_relabelled(report, "bitcode"),
            )
            return _counts(imported)
        case _:
            return _import_objects(config, source, report)


def check_given(command: str, *, compile_commands: Path | None, corpus: Path | None) -> None:
    """Refuse a command that is not told where its modules are, or told twice.

    Raises:
        UsageError: it is.
    """
    if (compile_commands is None) == (corpus is None):
        raise UsageError(f"{command}: expected either --compile-commands or --corpus, found both or neither; name one")


def given_corpus(
    *,
    compile_commands: Path | None,
    corpus: Path | None,
    folder: Path,
    level: Level | None,
    llvm: int,
    workers: int,
    report: Report,
) -> Path:
    """The corpus that was named, or the one that is imported into ``folder`` if a database was."""
    if compile_commands is None:
        return corpus or folder
    build = Import(compile_commands=compile_commands, corpus=folder, level=level, llvm=llvm, workers=workers)
    import_build(build, report=report)
    return folder


def combine(config: Combine) -> dict[str, Any]:
    """Join corpora."""
    return _counts(combine_corpora(config.root, corpus_folder=config.corpus))


def record(config: Record, *, report: Report = say_nothing) -> dict[str, Any]:
    """Record the build, and import it if a corpus is named.

    Raises:
        CorpusError: the build failed, or compiled nothing.
        ToolError: Bear is not there.
        UsageError: there is no such build.
    """
    database = config.output.absolute()
    build = record_build(config.command, database=database, timeout_seconds=60 * config.timeout_minutes)
    shown = shlex.join(config.command)
    commands = sum(isinstance(item, CompileCommand) for item in read_compile_commands(database))
    if build.timed_out or build.returncode != 0:
        found = "it not to end in time" if build.timed_out else f"exit code {build.returncode}"
        raise CorpusError(
            f"{shown}: expected the build to succeed, found {found} after {commands} commands; correct the build"
        )
    if not commands:
        raise CorpusError(
            f"{shown}: expected a build that compiles, found that it called no compiler; clean the build folder first"
        )
    result: dict[str, Any] = {"database": str(config.output), "commands": commands}
    if config.corpus is None:
        next_words = ["mlgokit", "corpus", "import", "--compile-commands", str(config.output), "--corpus", "corpus"]
        return {**result, "next": shlex.join(next_words)}
    imported = Import(
        compile_commands=database,
        corpus=config.corpus,
        level=config.level,
        llvm=config.llvm,
        workers=config.workers,
    )
    return {**result, **import_build(imported, report=report)}


def _source(config: Import) -> str:
    """The one source that is named; ``embedded`` stands for objects that a database names.

    Raises:
        UsageError: not exactly one source is named, or a setting has no meaning for it.
    """
    named = [name for name in _SOURCES if getattr(config, name) is not None]
    if len(named) != 1:
        found = " and ".join(map(_flag, named)) or "none"
        wanted = ", ".join(map(_flag, _SOURCES))
        raise UsageError(f"import: expected exactly one source ({wanted}), found {found}; name one")
    source = "embedded" if config.embedded and named == ["compile_commands"] else named[0]
    for item in fields(config):
        allowed = _ONLY_WITH.get(item.name)
        if item.name == "llvm" and config.link_command is not None:
            continue
        if allowed is not None and source not in allowed and getattr(config, item.name) != item.default:
            flags = " or ".join(sorted(map(_shown, allowed)))
            raise UsageError(
                f"import: expected {_flag(item.name)} only with {flags}, found it with {_shown(source)}; leave it out"
            )
    return source


def _relabelled(report: Report, title: str) -> Report:
    def told(done: int, total: int, label: str) -> None:  # noqa: ARG001  (the protocol names it)
        report(done, total, title)

    return told


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shown(source: str) -> str:
    return "--compile-commands --embedded" if source == "embedded" else _flag(source)


def _import_commands(config: Import, report: Report) -> dict[str, Any]:
    imported = import_commands(
        cast("Path", config.compile_commands),
        toolchain=find_toolchain(config.llvm),
        corpus_folder=config.corpus,
        project=config.project,
        level=config.level,
        wanted=CommandFilter(include=config.include, exclude=config.exclude),
        held_out=config.held_out,
        workers=config.workers,
        limits=ExtractionLimits(module_seconds=config.module_seconds),
        report=_relabelled(report, "front end"),
    )
    return {
        **_counts(imported.imported),
        "repeated_commands": imported.repeated,
        "unwanted_commands": imported.unwanted,
        "dropped_options": dict(imported.dropped),
    }


def _import_objects(config: Import, source: str, report: Report) -> dict[str, Any]:
    base = config.object_base
    if source == "objects":
        path = cast("Path", config.objects)
        found, folder = objects_in_folder(path), path
    elif source == "embedded":
        path = cast("Path", config.compile_commands)
        # Objects of one name in several folders stay apart when their names count from the build's folder.
        folder = path.resolve().parent
        found = objects_of_commands(read_compile_commands(path), object_base=base or folder)
    else:
        path = cast("Path", config.params or config.aquery)
        folder = base or Path()
        found = (objects_in_parameters if source == "params" else objects_in_aquery)(path, object_base=folder)
    imported = import_objects(
        found,
        corpus_folder=config.corpus,
        project=check_project(config.project, folder),
        cmd_filter=config.command_filter,
        distributed_thinlto=config.distributed,
        cmd_section=config.command_section,
        bitcode_section=config.bitcode_section,
        llvm_objcopy=config.objcopy,
        workers=config.workers,
        report=_relabelled(report, "objects"),
    )
    return _counts(imported)


def _import_thinlto(config: Import, report: Report) -> dict[str, Any]:
    """A local ThinLTO link; its options come from the link's command, or from the user, now or later."""
    folder = cast("Path", config.thinlto)
    if config.options is not None and config.link_command is not None:
        raise UsageError("import: expected --options or --link-command, found both; leave one out")
    understood: LinkOptions | None = None
    override: Sequence[str] = shlex.split(config.options or "")
    if config.link_command is not None:
        words = read_link_command(config.link_command)
        understood = link_options(words, toolchain=find_toolchain(config.llvm), folder=folder)
        override = understood.options
    imported = import_local_thinlto(
        folder,
        corpus_folder=config.corpus,
        project=check_project(config.project, folder),
        override=override,
        workers=config.workers,
        report=_relabelled(report, "ThinLTO modules"),
    )
    told = {} if understood is None else {"link_command": understood.to_json()}
    if not override:
        told = {"next": "give the options with --options or --link-command: the corpus has none yet"}
    return {**_counts(imported), **told}


def _counts(imported: Imported) -> dict[str, Any]:
    return {
        "corpus": str(imported.folder),
        "modules": imported.modules,
        "failures": imported.failures,
        "reasons": _reasons(imported.examples),
    }


def _reasons(failures: Sequence[ModuleFailure]) -> dict[str, str]:
    """The first few failures, each with its reason."""
    return {failure.name: failure.reason for failure in failures[:_EXAMPLES]}
