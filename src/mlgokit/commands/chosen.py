"""Which modules of a corpus are tuned or checked, and why the others are not."""

from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.compilers import DatabaseOptions, SandboxMode
from mlgokit.commands.corpus import import_build
from mlgokit.commands.options import ANY_CLANG
from mlgokit.corpus.build_notes import build_notes
from mlgokit.corpus.corpus import load_measurable
from mlgokit.corpus.front_end import Level
from mlgokit.errors import CorpusError, UsageError
from mlgokit.module import Module
from mlgokit.progress import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSelection:
    """Modules of one project.

    Attributes:
        modules: those to work on.
        left_out: the project's other sources and modules, with the reason.
        notes: what is to be said of the build before work with them begins.
    """

    modules: tuple[Module, ...]
    left_out: dict[str, str]
    notes: tuple[str, ...] = ()

    def tell(self, report: Report) -> None:
        """Say before long work that it is not for all of the project, or not for what is shipped."""
        for note in self.notes:
            report(1, 1, note)
        if self.left_out:
            name, reason = next(iter(self.left_out.items()))
            count = len(self.modules)
            report(count, count + len(self.left_out), f"sources to work on; left out {name}: {reason}")


def modules_of_project(folder: Path, project: str | None) -> ModuleSelection:
    """The modules of one project.

    Raises:
        UsageError: the corpus has several projects and none was named, or has no such one.
    """
    corpus = load_measurable(folder)
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
    """The modules of one project that are compiled for size.

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
    names = {module.name for module in found}
    others = (module.name for module in whole.modules if module.name not in names)
    return ModuleSelection(
        modules=found,
        left_out=whole.left_out | dict.fromkeys(others, "it is not compiled with -Oz or -Os"),
        notes=build_notes(folder, found),
    )


def check_given(
    command: str,
    *,
    compile_commands: Path | None,
    corpus: Path | None,
    others: str = "",
    database: DatabaseOptions = ANY_CLANG,
) -> None:
    """Refuse a command that is not told where its modules are, or told twice, or told of a database that it has not.

    Args:
        command: its name.
        compile_commands: a compilation database.
        corpus: a corpus.
        others: the options by which the command takes a build otherwise, for the message.
        database: which commands of a database are asked for.

    Raises:
        UsageError: it is.
    """
    if (compile_commands is None) == (corpus is None):
        found = "none of them" if corpus is None else "both --compile-commands and --corpus"
        raise UsageError(f"{command}: expected one of {others}--compile-commands or --corpus, found {found}; name one")
    option = next((option for option, is_given in database.given.items() if is_given), None)
    if option is not None and compile_commands is None:
        raise UsageError(f"{option}: expected --compile-commands with it, found none; add it or leave this out")


def given_corpus(
    *,
    compile_commands: Path | None,
    corpus: Path | None,
    folder: Path,
    level: Level | None,
    llvm: int,
    workers: int,
    sandbox: SandboxMode,
    report: Report,
    project: str | None = None,
    for_link: bool = False,
    database: DatabaseOptions = ANY_CLANG,
) -> Path:
    """The corpus that was named, or the one that is imported into ``folder`` if a database was.

    ``for_link`` is that of :func:`mlgokit.corpus.importers.database.import_commands`.
    """
    if compile_commands is None:
        return corpus or folder
    build = import_build.Import(
        compile_commands=compile_commands,
        corpus=folder,
        project=project,
        level=level,
        llvm=llvm,
        workers=workers,
        sandbox=sandbox,
        database=database,
    )
    import_build.run(build, for_link=for_link, report=report)
    return folder
