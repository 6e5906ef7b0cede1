"""The command that records a build."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlgokit.commands.corpus import import_build
from mlgokit.commands.corpus.extract import FRONT_END_SECONDS
from mlgokit.commands.options import COMPILER, Compiling, DatabaseOptions
from mlgokit.compiler.record import record_build
from mlgokit.corpus.front_end import Level
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
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
    """Compilation database to write."""
    corpus: Path | None = None
    """Folder of a corpus into which the build is imported at once."""
    level: Level | None = None
    """With --corpus: optimization level in place of the build's own."""
    timeout_minutes: float = 240.0
    """Deadline of the build in minutes."""
    compiler: Compiling = COMPILER
    """The clang whose front end runs when the build is imported."""


def run(config: Record, *, report: Report = say_nothing) -> dict[str, Any]:
    """Record the build, and import it if a corpus is named.

    Raises:
        BusyError: another process records into the same file.
        CorpusError: the build failed, or compiled nothing.
        ToolError: Bear is not there.
        UsageError: there is no such build.
    """
    with locked_output(config.output):
        return _record(config, report)


def _record(config: Record, report: Report) -> dict[str, Any]:
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
