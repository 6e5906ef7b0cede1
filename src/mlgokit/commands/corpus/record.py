"""The command that records a build."""

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlgokit.builds.corpus import DatabaseOptions
from mlgokit.commands.corpus import import_build
from mlgokit.commands.corpus.extract import FRONT_END_SECONDS
from mlgokit.commands.options import COMPILER, Compiling, check_build_command, describe_unseen
from mlgokit.compiler import process
from mlgokit.compiler.build_tree import UnseenObject, find_unseen_objects, objects_below
from mlgokit.compiler.project_calls import group_by_reason, project_calls
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.compiler.wrapping import AddedOptions, run_wrapped
from mlgokit.corpus.front_end import Level
from mlgokit.corpus.importers.recorded import write_database
from mlgokit.errors import CorpusError
from mlgokit.locks import locked_output
from mlgokit.progress import Report, say_nothing

DATABASE_NAME = "compile_commands.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Run a build, and write down what it compiles: record -- make -j2."""

    command: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Build command, after --; it must compile everything, so clean up first."""
    output: Path = Path(DATABASE_NAME)
    """Compilation database to write; copies of sources that the build deletes are kept in a folder beside it, of the
    same name with .kept."""
    corpus: Path | None = None
    """Folder of a corpus into which the recorded build is imported at once."""
    level: Level | None = None
    """With --corpus: optimization level in place of the build's own."""
    timeout_minutes: float = 240.0
    """Deadline of the build in minutes."""
    compiler: Compiling = COMPILER
    """The clang that preprocesses sources to keep and imports the build; the build itself uses its own compilers."""


def run(config: Record, *, report: Report = say_nothing) -> dict[str, Any]:
    """Record the build, and import it if a corpus is named.

    Raises:
        BusyError: another process records into the same file.
        CorpusError: the build failed, or compiled nothing.
        ReuseError: the folder for sources is another one.
        StorageError: the disk is full or not writable.
        ToolError: there is no such clang.
        UsageError: there is no such build.
    """
    check_build_command("record", config.command, example="record -- make -j2")
    with locked_output(config.output):
        database = config.output.absolute()
        result = {"database": str(config.output)} | record_build(
            config.command,
            database=database,
            toolchain=find_toolchain(config.compiler.llvm),
            timeout_seconds=60 * config.timeout_minutes,
        )
        if config.corpus is None:
            next_words = ["mlgokit", "corpus", "import", "--compile-commands", str(config.output)]
            next_words += ["--baseline", "clang", "--corpus", "corpus"]
            return {**result, "next": shlex.join(next_words)}
        imported = import_build.Import(
            compile_commands=database,
            corpus=config.corpus,
            level=config.level,
            database=DatabaseOptions(baseline="clang"),
            llvm=config.compiler.llvm,
            sandbox=config.compiler.sandbox,
            workers=config.compiler.workers,
            module_seconds=config.compiler.deadline(FRONT_END_SECONDS),
        )
        return {**result, **import_build.run(imported, report=report)}


def record_build(
    command: Sequence[str], *, database: Path, toolchain: Toolchain, timeout_seconds: float
) -> dict[str, Any]:
    """Run a build by its own compilers in the current folder; what it prints goes to standard error as it comes.

    The toolchain's clang preprocesses what is kept beside the ``database`` to write.

    Returns:
        How many compilations were ``seen``, how many of them the database has (``commands``), how many of these are
        ``kept`` as preprocessed text, and why others are ``left_out``; and what no wrapper has seen (``passed_by``).

    Raises:
        CorpusError: the build failed, or compiled nothing.
        ReuseError: the folder for sources is another one.
        StorageError: the disk is full or not writable.
        ToolError: the build cannot be started.
    """
    tree = Path.cwd()
    before = objects_below(tree)
    with tempfile.TemporaryDirectory(prefix="mlgokit-record-") as scratch:
        build = run_wrapped(
            [command],
            tree=tree,
            folder=Path(scratch),
            toolchain=toolchain,
            added=AddedOptions(),
            timeout_seconds=timeout_seconds,
            output=process.STANDARD_ERROR,
            keeps_compilers=True,
            keeps_sources=True,
        )
        project = project_calls(build, tree)
        # What was recorded before stays unless there is something to put in its place.
        if build.reason:
            raise CorpusError(
                f"record: expected the build to succeed, found that it failed after {project.compilations} recorded "
                f"compilations: {build.reason}; correct the build"
            )
        passed = [one for one in find_unseen_objects(tree, build, before=before) if one.is_new]
        if not project.compilations:
            raise _nothing_compiled(command, passed)
        written = write_database(project.calls, database, kept=database.with_suffix(".kept"))
    if not written.entries:
        raise _nothing_compiled(command, passed)
    left_out = (*project.left_out, *written.left_out)
    return {
        "seen": project.seen,
        "commands": written.entries,
        **({"kept": written.kept} if written.kept else {}),
        **({"left_out": group_by_reason(left_out)} if left_out else {}),
        **({"passed_by": describe_unseen(passed)} if passed else {}),
    }


def _nothing_compiled(command: Sequence[str], passed: Sequence[UnseenObject]) -> CorpusError:
    return CorpusError(
        f"{shlex.join(command)}: expected a build that compiles, found "
        f"{describe_unseen(passed) or 'that it called no compiler'}; clean the build folder first"
    )
