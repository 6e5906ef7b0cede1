"""The command that makes a corpus of a user's build, from every source that a corpus can come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, cast

from mlgokit.basic import Basic
from mlgokit.builds.compilers import WORKERS, SandboxMode, open_sandbox_of_front_ends, room_of
from mlgokit.builds.corpus import ANY_COMMANDS
from mlgokit.commands.options import Databases, option_words
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.build_notes import profile_sentences
from mlgokit.corpus.front_end import ExtractionLimits, Level
from mlgokit.corpus.importers.bitcode_files import import_bitcode, import_local_thinlto
from mlgokit.corpus.importers.compile_commands import read_compile_commands
from mlgokit.corpus.importers.database import CommandFilter, import_commands
from mlgokit.corpus.importers.object_lists import (
    objects_in_aquery,
    objects_in_folder,
    objects_in_parameters,
    objects_of_commands,
)
from mlgokit.corpus.importers.objects import import_objects
from mlgokit.corpus.layout import check_project
from mlgokit.corpus.options.override import LinkOptions, fill_override, link_options, read_link_command
from mlgokit.corpus.writer import Imported
from mlgokit.disk import Room
from mlgokit.errors import UsageError
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """Make a corpus of a build that you have; name exactly one source, the first options here."""

    compile_commands: Annotated[Path | None, Basic.INPUT] = None
    """Compilation database (compile_commands.json) of any build; clang's front end compiles its sources to bitcode."""
    objects: Annotated[Path | None, Basic.INPUT] = None
    """Folder of objects with embedded bitcode (clang -Xclang -fembed-bitcode=all)."""
    params: Path | None = None
    """Linker's parameters file, as Bazel writes one, that names objects with embedded bitcode."""
    aquery: Path | None = None
    """File with what `bazel aquery --output=jsonproto` prints of a link whose objects have embedded bitcode."""
    thinlto: Annotated[Path | None, Basic.INPUT] = None
    """Folder of a local ThinLTO link (-Wl,--save-temps=import -Wl,--thinlto-emit-index-files)."""
    bitcode: Annotated[Path | None, Basic.INPUT] = None
    """Folder of .bc files, which are compiled with --options."""
    corpus: Annotated[Path, Basic.RESULT] = Path("corpus")
    """Folder for the corpus."""
    project: Annotated[str | None, Basic.RESULT] = None
    """Name of the project in the corpus; by default the name of the build's folder."""
    workers: Annotated[int, Basic.MACHINE] = WORKERS
    """Number of compilers, or of readers of files, that run at once."""
    llvm: Annotated[int | None, Basic.MACHINE] = None
    """LLVM major version to use; the newest supported one if not given."""
    sandbox: SandboxMode = "auto"
    """With --compile-commands: sandbox (bubblewrap) of the front ends, without network and write access; auto: if it
    works on this machine."""
    embedded: bool = False
    """With --compile-commands: extract embedded bitcode from the built objects instead of running the front end."""
    level: Annotated[Level | None, Basic.WORK] = None
    """With --compile-commands: optimization level in place of the build's own; a build at -O0 needs one."""
    include: Annotated[str | None, Basic.WORK] = None
    """With --compile-commands: regular expression that must be found in a source's path."""
    exclude: Annotated[str | None, Basic.WORK] = None
    """With --compile-commands: regular expression that must not be found in a source's path."""
    disk_reserve_gib: float | None = None
    """Free space in GiB that the import leaves on the disk; if not given, 1, or 2 % of a smaller disk."""
    disk_limit_gib: float | None = None
    """Size in GiB of the corpus at which the import stops; with --compile-commands, the same command continues it."""
    database: Databases = ANY_COMMANDS
    """Which commands of the database are taken."""
    held_out: bool = False
    """With --compile-commands: keep the modules out of training."""
    module_seconds: float = 120.0
    """With --compile-commands: deadline of the front end for one source, in seconds."""
    object_base: Path | None = None
    """When importing objects: folder to which module names are relative; with --embedded, by default the working
    directory of each command in the database."""
    command_filter: str | None = None
    """When importing objects: regular expression that must be found in one of a module's recorded options."""
    distributed: bool = False
    """When importing objects: also import the ThinLTO index that each module's options name, for a distributed ThinLTO
    build."""
    bitcode_section: str | None = None
    """When importing objects: section that has the bitcode, for Mach-O as segment,section; by default the one that
    clang uses in the object format."""
    command_section: str | None = None
    """When importing objects: section that has the options, for Mach-O as segment,section; by default the one that
    clang uses in the object format."""
    objcopy: Path | None = None
    """When importing objects: llvm-objcopy that extracts the sections, for object formats that mlgokit does not read
    itself; needs --bitcode-section and --command-section."""
    link_command: Path | None = None
    """With --thinlto: file with the build's link command (from `ninja -t commands`), which gives the modules'
    options."""
    options: str | None = None
    """With --bitcode or --thinlto: options of clang for every module, quoted as one argument; they are written into the
    corpus unchanged."""


_SOURCES = ("compile_commands", "objects", "params", "aquery", "thinlto", "bitcode")
_OBJECTS = frozenset({"objects", "params", "aquery", "embedded"})
_FRONT_END = frozenset({"compile_commands"})
_ONLY_WITH: Mapping[str, frozenset[str]] = {
    "embedded": frozenset({"embedded"}),
    **dict.fromkeys(
        ("level", "database", "include", "exclude", "held_out", "module_seconds", "llvm", "sandbox"), _FRONT_END
    ),
    "object_base": _OBJECTS - {"objects"},
    **dict.fromkeys(("command_filter", "distributed", "bitcode_section", "command_section", "objcopy"), _OBJECTS),
    "link_command": frozenset({"thinlto"}),
    "options": frozenset({"thinlto", "bitcode"}),
}
"""Which settings mean something with which source; ``embedded`` is ``compile_commands`` with that flag."""


def run(config: Import, *, report: Report = say_nothing) -> dict[str, Any]:
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
            options = option_words(config.options or "", "--options")
            folder = cast("Path", config.bitcode)
            imported = import_bitcode(
                folder,
                corpus_folder=config.corpus,
                project=check_project(config.project, folder),
                options=options,
                workers=config.workers,
                room=_room(config),
                report=_relabel(report, "bitcode"),
            )
            return {**counts(imported), **_next_step(options, "give the options with --options")}
        case _:
            return _import_objects(config, source, report)


def _source(config: Import) -> str:
    """Name of the one option that says what to import.

    It is ``embedded`` if a compilation database is imported through the bitcode that is embedded in its objects.

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
            name = _flag(item.name)
            if item.name == "database":
                name = next(option for option, is_given in config.database.given.items() if is_given)
            raise UsageError(f"import: expected {name} only with {flags}, found it with {_shown(source)}; leave it out")
    return source


def _room(config: Import) -> Room:
    return room_of(config.corpus, reserve_gib=config.disk_reserve_gib, limit_gib=config.disk_limit_gib)


def _relabel(report: Report, title: str) -> Report:
    def report_relabelled(done: int, total: int, label: str) -> None:  # noqa: ARG001  (the protocol names it)
        report(done, total, title)

    return report_relabelled


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shown(source: str) -> str:
    return "--compile-commands --embedded" if source == "embedded" else _flag(source)


def _import_commands(config: Import, report: Report) -> dict[str, Any]:
    toolchain = find_toolchain(config.llvm)
    imported = import_commands(
        cast("Path", config.compile_commands),
        toolchain=toolchain,
        corpus_folder=config.corpus,
        project=config.project,
        level=config.level,
        wanted=CommandFilter(include=config.include, exclude=config.exclude),
        held_out=config.held_out,
        baseline=config.database.baseline,
        target=config.database.target,
        workers=config.workers,
        limits=ExtractionLimits(
            module_seconds=config.module_seconds,
            room=_room(config),
            sandbox=open_sandbox_of_front_ends(config.sandbox, toolchain),
        ),
        report=_relabel(report, "front end"),
    )
    return {
        **counts(imported.imported),
        "repeated_commands": imported.repeated,
        "unwanted_commands": imported.unwanted,
        "commands_without_code": imported.without_code,
        "baseline": imported.baseline,
        "dropped_options": dict(imported.options.left_out),
        "notes": [*imported.options.sentences(), *profile_sentences(imported.fits)],
    }


def _import_objects(config: Import, source: str, report: Report) -> dict[str, Any]:
    base = config.object_base
    if source == "objects":
        path = cast("Path", config.objects)
        found, folder = objects_in_folder(path), path
    elif source == "embedded":
        path = cast("Path", config.compile_commands)
        folder = path.resolve().parent
        found = objects_of_commands(read_compile_commands(path), object_base=base, build_folder=folder)
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
        room=_room(config),
        report=_relabel(report, "objects"),
    )
    return counts(imported)


def _import_thinlto(config: Import, report: Report) -> dict[str, Any]:
    """A local ThinLTO link; its options come from the link's command, or from the user, now or later."""
    folder = cast("Path", config.thinlto)
    if config.options is not None and config.link_command is not None:
        raise UsageError("import: expected --options or --link-command, found both; leave one out")
    understood: LinkOptions | None = None
    override = option_words(config.options or "", "--options")
    if config.link_command is not None:
        words = read_link_command(config.link_command)
        understood = link_options(words, toolchain=find_toolchain(config.llvm), folder=folder)
    imported = import_local_thinlto(
        folder,
        corpus_folder=config.corpus,
        project=check_project(config.project, folder),
        override=override,
        workers=config.workers,
        room=_room(config),
        report=_relabel(report, "ThinLTO modules"),
    )
    if understood is not None:
        fill_override(config.corpus, understood.options, build=folder)
        return {**counts(imported), "link_command": understood.to_json()}
    return {**counts(imported), **_next_step(override, "give the options with --options or --link-command")}


def _next_step(options: Sequence[str], remedy: str) -> dict[str, str]:
    """What is left to do if no options were given."""
    return {} if options else {"next": f"{remedy}: the corpus has none yet"}


def counts(imported: Imported) -> dict[str, Any]:
    """What the command line shows of a corpus that was made."""
    return {
        "corpus": str(imported.folder),
        "modules": imported.modules,
        "failures": imported.failures,
        "reasons": {failure.name: failure.reason for failure in imported.examples},
    }
