"""The command that writes tuned inlining decisions for compilers that load no plugin."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlgokit.builds.cargo import CargoRequest, cargo_words
from mlgokit.builds.compilers import WORKERS, CompilerOptions
from mlgokit.corpus.front_end import Level
from mlgokit.errors import MlgokitError, UsageError
from mlgokit.progress import Report, say_nothing
from mlgokit.tune.page import replay_page
from mlgokit.tune.replay import ReplayResult
from mlgokit.tune.replay_export import ReplayRequest, export_replay


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReplay:
    """Write the inlining decisions of a tuned plugin for compilers that load no plugin, and verify what they save."""

    plugin: Annotated[Path, tyro.conf.Positional]
    """Plugin that `mlgokit tune` wrote."""
    compile_commands: Path | None = None
    """Compilation database (compile_commands.json) of the build that was tuned; name this or --cargo."""
    cargo: str | None = None
    """Cargo build that was tuned, as in `mlgokit tune`; its rustc then reads the list of decisions, without the
    plugin."""
    cargo_folder: Path = Path()
    """With --cargo: folder of the package."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("replay")
    """Folder for the list of decisions and the configuration file that clang reads it with."""
    clang: Path | None = None
    """Clang that will read the list of decisions, such as clang-16 or a path; by default the one that the plugin was
    tuned for."""
    level: Level | None = None
    """Optimization level in place of the build's own; it must be the one that was tuned."""
    workers: int = WORKERS
    """Number of compilers that run at once."""
    timeout_seconds: float | None = None
    """Deadline of one compilation, in seconds; 120 if not given, 600 with --cargo."""


def run(config: ExportReplay, *, report: Report = say_nothing) -> ReplayResult:
    """Write a plugin's inlining decisions as a list for LLVM's replay inliner, if builds with the list are smaller.

    For that each source is compiled plainly, with the plugin and with the list.

    Raises:
        MlgokitError: as :func:`mlgokit.tune.replay_export.export_replay` says.
    """
    if config.cargo is not None and not (config.compile_commands is None and config.clang is config.level is None):
        raise UsageError("--cargo: cannot be combined with --compile-commands, --clang or --level; remove those")
    compiler = CompilerOptions(workers=config.workers, timeout_seconds=config.timeout_seconds)
    cargo = None
    if config.cargo is not None:
        words = cargo_words(config.cargo)
        cargo = CargoRequest(words=words, folder=config.cargo_folder, scratch=config.output, compiler=compiler)
    request = ReplayRequest(
        plugin=config.plugin,
        output=config.output,
        database=config.compile_commands,
        cargo=cargo,
        clang=config.clang,
        level=config.level,
        compiler=compiler,
    )
    return export_replay(request, report=report)


page = replay_page


def exit_code(config: ExportReplay, result: ReplayResult) -> int:  # noqa: ARG001  (all commands take one)
    """1 if nothing of the build compiles in all ways."""
    return 0 if result.modules else MlgokitError.exit_code
