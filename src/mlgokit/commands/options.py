"""Options that several commands have."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.limits import GIB, ModuleLimits
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.recheck import SHARE, Recheck
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.options.edits import CommandLineEdits, command_line_edits
from mlgokit.errors import UsageError
from mlgokit.problems import PROBLEMS

WORKERS = os.cpu_count() or 1
"""Compilers that run at once unless a command is told otherwise."""
_MOST_GIB = 1 << 20
if TYPE_CHECKING:
    ProblemName = str
else:
    ProblemName = tyro.extras.literal_type_from_choices(PROBLEMS)
"""The name of a problem, as a user types it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOptions:
    """The clang that compiles, how many of it run at once, and how long each may take."""

    llvm: int | None = None
    """LLVM major version to use; the newest supported one if not given."""
    workers: int = WORKERS
    """Number of compilers that run at once."""
    timeout_seconds: float | None = None
    """Deadline of one compilation in seconds; if not given, 60, and 120 for a front end alone, or less as soon as it
    is known what the module takes plainly."""
    memory_limit_gib: float | None = None
    """Memory that each compiler may take, in GiB; if not given, 8, or the machine's if that is less, or less as soon as
    it is known what the module takes plainly."""
    file_limit_gib: float | None = None
    """Size of each file that a compiler may write, in GiB; if not given, 0.5, or less as soon as it is known what the
    module's object takes plainly."""
    check_share: float = SHARE
    """Share of remembered results that are compiled again and compared, from 0 to 1; a difference is an error."""
    check_seed: int | None = None
    """Random seed of that draw; another one in each run if not given."""

    def deadline(self, default: float = 60.0) -> float:
        """The seconds that one compilation may take."""
        return default if self.timeout_seconds is None else self.timeout_seconds

    def limits(self) -> ModuleLimits:
        """What each compilation may take.

        Raises:
            UsageError: a limit is no positive number.
        """
        return ModuleLimits(
            memory_bytes=_bytes("--memory-limit-gib", self.memory_limit_gib),
            file_bytes=_bytes("--file-limit-gib", self.file_limit_gib),
            seconds=self.timeout_seconds is None,
        )

    def recheck(self) -> Recheck:
        """Which remembered results are compiled again.

        Raises:
            UsageError: the share is none.
        """
        if not 0 <= self.check_share <= 1:
            raise UsageError(f"--check-share: expected a part from 0 to 1, found {self.check_share:g}; correct it")
        return Recheck(
            share=self.check_share, seed=secrets.randbits(32) if self.check_seed is None else self.check_seed
        )


def _bytes(option: str, gib: float | None) -> int | None:
    if gib is None:
        return None
    if not 0 < gib < _MOST_GIB:
        raise UsageError(f"{option}: expected a positive number of GiB, below {_MOST_GIB}, found {gib:g}; correct it")
    return int(gib * GIB)


Compiling = Annotated[CompilerOptions, tyro.conf.OmitArgPrefixes]
"""As a field of a command's configuration: the options of the command line have no prefix."""
COMPILER = CompilerOptions()


def open_tools(options: CompilerOptions) -> tuple[Toolchain, Path]:
    """The clang that is asked for, and our plugin, built for it.

    Raises:
        ToolError: there is no such clang, or it lacks what the plugin is built from.
    """
    toolchain = find_toolchain(options.llvm, need_plugin=True)
    return toolchain, build_plugin(toolchain)


def open_compiler(options: CompilerOptions) -> ClangCompiler:
    """The clang that is asked for, with our plugin.

    Raises:
        ToolError: there is no such clang, or it lacks what the plugin is built from.
    """
    toolchain, plugin = open_tools(options)
    return ClangCompiler(
        toolchain=toolchain,
        plugin=plugin,
        workers=options.workers,
        timeout_seconds=options.deadline(),
        limits=options.limits(),
    )


Texts = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChanges:
    """Changes of the command lines of a corpus."""

    add_options: Texts = ()
    """Option to add at the end, as in --add-options=-O2 or --add-options='-mllvm -inline-threshold=5'."""
    delete_options: Texts = ()
    """Option to delete, as in --delete-options=-split-dwarf-file."""
    replace_options: Texts = ()
    """Option to give another value, as in --replace-options=-fprofile-instrument-use-path=/data/a.profdata."""

    def edits(self) -> CommandLineEdits:
        """What they mean.

        Raises:
            UsageError: one is no option, or two contradict each other.
        """
        return command_line_edits(self.add_options, self.delete_options, self.replace_options)


NO_CHANGES = OptionChanges()
Changes = Annotated[OptionChanges, tyro.conf.OmitArgPrefixes]
"""As a field of a command's configuration: the options of the command line have no prefix."""
