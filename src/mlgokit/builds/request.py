"""What is asked for of a project that a search is to work on; :mod:`mlgokit.builds.opening` opens it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.compression import Compressor
from mlgokit.builds.corpus import Database
from mlgokit.builds.recorded import RecordedBuild

ANY_LEVEL = frozenset({"spill-cost", "instructions"})
"""Objectives for modules that are not compiled for size, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A project that is to be searched, as the user names it.

    Attributes:
        objective: quantity to minimise, as ``mlgokit tune --objective`` names it.
        timeout_seconds: deadline of a link, and of each run of the measuring command.
        error: accepted share of comparisons that call a build better or worse by chance.
        database: compilation database of the project; needed without ``corpus``.
        recorded: the recorded build that the database is of, if it is of one.
        configured: build folder whose configured links judge, if the user named one.
        programs: patterns of the programs in it that are compared.
        link_folder: working directory of the link; that of the database if not given.
        measuring: words of a command that prints a number; empty to measure bytes.
        keep_hot: percentage of the profile's executions whose functions stay as LLVM has them.
        steps_only: the option with which no link can be searched, only compile steps; empty if none is given.
        may_defer: whether the compile steps of a link may leave inlining to it.
        go_on: whether ``scratch`` may have modules of an earlier state of the build.
    """

    scratch: Path
    objective: str
    timeout_seconds: float
    error: float
    corpus: Path | None = None
    database: Database | None = None
    project: str | None = None
    recorded: RecordedBuild | None = None
    configured: Path | None = None
    programs: Sequence[Path] = ()
    link: str | None = None
    link_folder: Path | None = None
    measuring: tuple[str, ...] = ()
    compressor: Compressor | None = None
    keep_hot: float = 0.0
    steps_only: str = ""
    may_defer: bool = True
    go_on: bool = False
    compiler: CompilerOptions
