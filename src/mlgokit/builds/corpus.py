"""A project as a corpus: its modules, imported from a compilation database if need be, and what is left out of it."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.build import CandidatePlugin, Proof
from mlgokit.builds.compilers import CompilerOptions, open_sandbox_of_front_ends
from mlgokit.builds.measurement import Measure
from mlgokit.builds.variant import PluginPlace
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import build_notes
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.front_end import ExtractionLimits, Level
from mlgokit.corpus.importers.build_compiler import Baseline
from mlgokit.corpus.importers.build_sources import CommandFilter
from mlgokit.corpus.importers.database import import_commands, module_outputs
from mlgokit.corpus.profiles import profiles_in
from mlgokit.errors import CorpusError, UsageError
from mlgokit.files import digest_file
from mlgokit.module import Module
from mlgokit.progress import Report

_SUMMARY = b"ProfileFormat"
"""A name in the summary of a profile, as bitcode has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSelection:
    """Modules of one project to work on, reasons by name for what is left out, and notes for the user."""

    modules: tuple[Module, ...]
    left_out: dict[str, str]
    notes: tuple[str, ...] = ()

    def tell(self, report: Report) -> None:
        """Report the notes, and how many sources are left out."""
        for note in self.notes:
            report(1, 1, note)
        if self.left_out:
            name, reason = next(iter(self.left_out.items()))
            count = len(self.modules)
            report(count, count + len(self.left_out), f"sources to work on; left out {name}: {reason}")


def modules_of_project(folder: Path, project: str | None) -> ModuleSelection:
    """Select the modules of one project.

    Raises:
        UsageError: the corpus has several projects and none was named, or none of this name.
    """
    corpus = load_corpus(folder)
    projects = sorted({module.project for module in corpus.modules})
    if project is None and len(projects) > 1:
        raise UsageError(f"{folder}: expected one project, found {', '.join(projects)}; name one with --project")
    if project is not None and project not in projects:
        raise UsageError(f"{folder}: expected the project {project}, found {', '.join(projects)}; correct the name")
    failed = (*corpus.failures, *corpus.missing)
    modules = tuple(module for module in corpus.modules if project in (None, module.project))
    return ModuleSelection(
        modules=modules,
        notes=build_notes(folder, modules),
        left_out={one.name: one.reason for one in failed if project in (None, one.project)},
    )


def modules_for_size(folder: Path, project: str | None) -> ModuleSelection:
    """Select the modules of one project that are compiled for size.

    Raises:
        UsageError: as :func:`modules_of_project`.
        CorpusError: none of the project's modules is compiled for size.
    """
    whole = modules_of_project(folder, project)
    found = tuple(module for module in whole.modules if module.is_for_size)
    if not found:
        raise CorpusError(
            f"{folder}: expected modules compiled with -Oz or -Os, found none of {len(whole.modules)}; "
            "build for size, or give --level Oz and then build with -Oz as well"
        )
    others = (module.name for module in whole.modules if not module.is_for_size)
    return ModuleSelection(
        modules=found,
        left_out=whole.left_out | dict.fromkeys(others, "it is not compiled with -Oz or -Os"),
        notes=build_notes(folder, found),
    )


def note_hot_functions(chosen: ModuleSelection, percent: float) -> ModuleSelection:
    """Add a note on the functions in the most executed ``percent`` of the profile, which stay as LLVM has them.

    Raises:
        UsageError: no module is compiled with a profile that could say which functions are hot.
    """
    if not percent:
        return chosen
    profiled = sum(map(_has_profile, chosen.modules))
    if not profiled:
        raise UsageError(
            f"--keep-hot {percent:g}: expected a build with a profile, such as -fprofile-use=a.profdata, found "
            f"none in {len(chosen.modules)} modules; build with one, or leave --keep-hot out"
        )
    note = (
        f"functions in the hottest {percent:g} % of the profile are left to LLVM, in {profiled} of "
        f"{len(chosen.modules)} modules"
    )
    return dataclasses.replace(chosen, notes=(*chosen.notes, note))


def _has_profile(module: Module) -> bool:
    """Whether a module is compiled with a profile; bitcode of a link has the summary of its compile steps' profile."""
    if module.link_folder is None:
        return bool(profiles_in(module.command_line))
    return _SUMMARY in module.bitcode.read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """Which commands of a compilation database are taken."""

    baseline: Baseline = "build"
    """With --compile-commands: the baseline. build: the build's own compiler, which must be a clang; clang: this clang
    at the build's optimization level, whatever compiler the build uses."""
    target: str | None = None
    """With --compile-commands: target triple or architecture of the commands to use, since a corpus has one target; by
    default the most frequent one."""

    @property
    def given(self) -> dict[str, bool]:
        """Whether the value of each option differs from its default, by option."""
        return {"--baseline": self.baseline != "build", "--target": self.target is not None}


ANY_COMMANDS = DatabaseOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A compilation database, and how modules are made of it.

    Attributes:
        path: path of ``compile_commands.json``.
        project: first component of the modules' names; named after the build's folder if not given.
        level: optimization level in place of the build's own.
        choice: options that choose among its commands.
    """

    path: Path
    project: str | None = None
    level: Level | None = None
    choice: DatabaseOptions = ANY_COMMANDS

    @property
    def folder(self) -> Path:
        """The folder of the build."""
        return self.path.resolve().parent

    def outputs(self) -> dict[str, Path]:
        """Find the object that the build makes of each module, by the module's name."""
        return module_outputs(self.path, project=self.project, level=self.level)


def import_database(
    database: Database,
    folder: Path,
    *,
    toolchain: Toolchain,
    compiler: CompilerOptions,
    for_link: bool = False,
    go_on: bool = False,
    outputs: Collection[Path] | None = None,
    report: Report,
) -> Path:
    """Make a corpus from a database in ``folder``, with front ends in a sandbox if the machine has one.

    Only commands that make one of the ``outputs`` are taken, if these are given.
    ``for_link`` and the errors are those of :func:`mlgokit.corpus.importers.database.import_commands`. With ``go_on``
    the folder may have a corpus of an earlier state of the database; modules that changed are made again.
    """
    import_commands(
        database.path,
        toolchain=toolchain,
        corpus_folder=folder,
        project=database.project,
        level=database.level,
        wanted=CommandFilter(outputs=None if outputs is None else frozenset(outputs)),
        for_link=for_link,
        baseline=database.choice.baseline,
        target=database.choice.target,
        any_database=go_on,
        workers=compiler.workers,
        limits=ExtractionLimits(
            module_seconds=compiler.deadline(ExtractionLimits().module_seconds),
            compiler=compiler.limits().default,
            room=compiler.room(folder),
            sandbox=open_sandbox_of_front_ends(compiler.sandbox, toolchain),
        ),
        report=lambda done, total, _: report(done, total, "front end"),
    )
    return folder


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CorpusBuild:
    """The modules of one project of a corpus, from ``folder``, as a :class:`~mlgokit.builds.build.Build`."""

    folder: Path
    modules: Sequence[Module]
    left_out: Mapping[str, str]
    notes: tuple[str, ...] = ()
    measure: Measure | None = None
    plugin_place: PluginPlace = "compile"

    @property
    def inputs(self) -> dict[str, str]:
        """Digests of the files that a search depends on."""
        return {"corpus": digest_file(self.folder / "corpus_description.json")}

    def prove(self, candidate: CandidatePlugin, folder: Path) -> Proof:  # noqa: ARG002  (of the protocol)
        """Do nothing: the objects were compiled with the plugin when it was verified."""
        return Proof()
