"""The stages that make corpora of users' builds: every source that a corpus can come from, and recording a build."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlgokit.collect import Report, say_nothing
from mlgokit.compiler.record import record_build
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.commands_import import CommandFilter, Level, import_commands
from mlgokit.corpus.compile_commands import CompileCommand, read_compile_commands
from mlgokit.corpus.front_end import ExtractionLimits
from mlgokit.corpus.module import ModuleFailure
from mlgokit.errors import CorpusError, UsageError

WORKERS = os.cpu_count() or 1
DATABASE_NAME = "compile_commands.json"
_EXAMPLES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """Make a corpus of a build that you have: name exactly one source."""

    compile_commands: Path | None = None
    """A compile_commands.json: the front end is run again over its sources, so that any build will do."""
    corpus: Path = Path("corpus")
    """Where the corpus goes."""
    project: str | None = None
    """First component of the modules' names; by default the name of the folder with the build."""
    level: Level | None = None
    """Optimization level in place of the build's own; a build at -O0 needs one."""
    include: str | None = None
    """Only sources whose path this regular expression is found in."""
    exclude: str | None = None
    """No sources whose path this regular expression is found in."""
    held_out: bool = False
    """Keep all modules out of training."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = WORKERS
    """Compilers, or readers of objects, that run at once."""
    module_seconds: float = 120.0
    """Deadline of the front end for one source."""


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


def import_build(config: Import, *, report: Report = say_nothing) -> dict[str, Any]:
    """Make the corpus; says what it has, what failed and why, and what was left out.

    Raises:
        UsageError: not exactly one source is named.
    """
    if config.compile_commands is None:
        raise UsageError("import: expected one source, found none; name one, as in --compile-commands FILE")
    return _import_commands(config, config.compile_commands, report)


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


def _import_commands(config: Import, database: Path, report: Report) -> dict[str, Any]:
    imported = import_commands(
        database,
        toolchain=find_toolchain(config.llvm),
        corpus_folder=config.corpus,
        project=config.project,
        level=config.level,
        wanted=CommandFilter(include=config.include, exclude=config.exclude),
        held_out=config.held_out,
        workers=config.workers,
        limits=ExtractionLimits(module_seconds=config.module_seconds),
        report=lambda done, total, label: report(done, total, "front end"),  # noqa: ARG005  (the protocol names it)
    )
    corpus = imported.corpus
    return {
        "corpus": str(config.corpus),
        "modules": len(corpus.modules),
        "failures": len(corpus.failures),
        "reasons": _reasons(corpus.failures),
        "repeated_commands": imported.repeated,
        "unwanted_commands": imported.unwanted,
        "dropped_options": dict(imported.dropped),
    }


def _reasons(failures: tuple[ModuleFailure, ...]) -> dict[str, str]:
    """The first few failures, each with its reason."""
    return {failure.name: failure.reason for failure in failures[:_EXAMPLES]}
