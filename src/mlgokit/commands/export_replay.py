"""The command that writes tuned inlining decisions for compilers that load no plugin."""

import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro
from rich.console import Console

from mlgokit.commands.check import check_steps
from mlgokit.commands.export_replay_cargo import export_cargo
from mlgokit.commands.options import WORKERS, CompilerOptions
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.source import SourceCall, compile_source
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.front_end import Level
from mlgokit.corpus.importers.build_sources import source_calls
from mlgokit.errors import CorpusError, MlgokitError, ToolError, UsageError
from mlgokit.export.replay import LINE_TABLES, ReplayLine, config_words, parse_replay_lines, remove_replay, write_replay
from mlgokit.locks import locked
from mlgokit.pages.terminal import print_page
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.decisions import read_table
from mlgokit.tables.file import tables_inside
from mlgokit.tune.page import replay_page
from mlgokit.tune.replay import ReplayResult, ReplaySource, replay_build

_COMPILE_SECONDS = 120.0
_STAYS = {
    "allocations": "register allocation",
    "passes": "passes of the code generator",
    "optimizer_passes": "passes of the optimizer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReplay:
    """Write the inlining decisions of a tuned plugin for compilers that load no plugin, and verify what they save."""

    plugin: Annotated[Path, tyro.conf.Positional]
    """Plugin that `mlgokit tune` wrote."""
    compile_commands: Path | None = None
    """Compilation database (compile_commands.json) of the build that was tuned; name this or --cargo."""
    cargo: str | None = None
    """Cargo build that was tuned, as in `mlgokit tune`; the list is for its rustc, without the plugin."""
    cargo_folder: Path = Path()
    """With --cargo: folder of the package."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("replay")
    """Folder for the list of decisions and the configuration file that clang reads it with."""
    clang: Path | None = None
    """Clang that is to use the list, such as clang-16 or a path; by default the one that the plugin was tuned for."""
    level: Level | None = None
    """Optimization level in place of the build's own; the one that was tuned."""
    workers: int = WORKERS
    """Number of compilers that run at once."""
    timeout_seconds: float | None = None
    """Deadline of one compilation, in seconds; 120 if not given, 600 with --cargo."""


class _Built(NamedTuple):
    """A source before the list: how it compiles by whoever is to replay, by the plugin's clang and with the plugin."""

    plain: Compilation
    plugin_plain: Compilation
    tuned: Compilation
    lines: Sequence[ReplayLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """Where a build is compiled: by the plugin's clang, and by the one that is to replay."""

    plugin: Path
    own: Toolchain
    target: Toolchain
    folder: Path
    timeout_seconds: float


def run(config: ExportReplay, *, report: Report = say_nothing) -> ReplayResult:
    """Compile each source plainly, with the plugin and with the list, and write the list that saves something.

    Raises:
        BusyError: another process writes into the folder.
        UsageError: the plugin has no inlining decisions of compile steps, or the output cannot be named.
        InputError: the plugin is none that a tuning wrote.
        CorpusError: there is nothing to compile.
        ToolError: a compiler is missing, or the plugin writes no lines.
    """
    if config.cargo is not None and not (config.compile_commands is None and config.clang is config.level is None):
        raise UsageError(
            "--cargo: expected neither --compile-commands nor --clang nor --level with it, found one; leave it out"
        )
    with locked(config.output):
        return _export(config, report)


def _export(config: ExportReplay, report: Report) -> ReplayResult:
    """Make the list in a folder that is ours."""
    inside = tables_inside(config.plugin)
    if "decisions" not in inside:
        raise UsageError(
            f"{config.plugin}: expected a plugin with inlining decisions, found {', '.join(sorted(inside)) or 'none'}; "
            "only inlining has a replay in LLVM"
        )
    table = read_table(config.plugin)
    stays = [name for table_name, name in _STAYS.items() if table_name in inside]
    notes = (f"{' and '.join(stays)}: in the plugin, but LLVM has no replay for them",) if stays else ()
    objective = Objective.LINK_AWARE if table.summary is None else Objective(table.summary.objective)
    if config.cargo is not None:
        found = export_cargo(
            config.plugin,
            config.cargo,
            folder=config.cargo_folder,
            output=config.output,
            objective=objective,
            compiler=CompilerOptions(workers=config.workers, timeout_seconds=config.timeout_seconds),
            report=report,
        )
        return dataclasses.replace(found, notes=notes)
    if config.compile_commands is None:
        raise UsageError(
            "export replay: expected the build that was tuned, found none; give --compile-commands or --cargo"
        )
    check_steps(config.plugin, table)
    own = find_toolchain(None if table.summary is None else table.summary.llvm)
    target = own if config.clang is None else find_toolchain(clang=_program(config.clang))
    calls, left_out = source_calls(config.compile_commands, toolchain=own, level=config.level, workers=config.workers)
    if not calls:
        name, reason = next(iter(left_out.items()))
        raise CorpusError(f"{config.compile_commands}: expected sources to compile, found none ({name}: {reason})")
    with tempfile.TemporaryDirectory(prefix="mlgokit-replay-") as scratch:
        site = _Site(
            plugin=config.plugin.resolve(),
            own=own,
            target=target,
            folder=Path(scratch),
            timeout_seconds=_COMPILE_SECONDS if config.timeout_seconds is None else config.timeout_seconds,
        )
        built = parallel(
            functools.partial(_build, site),
            list(enumerate(calls)),
            workers=config.workers,
            report=report,
            label="compile plainly and tuned",
        )
        sources, failures = _sources(calls, built)
        if sources and not any(source.lines for source in sources):
            raise ToolError(
                f"{config.plugin}: expected a plugin that says what it decides, found no line of it; if an earlier "
                f"version made it, `mlgokit tune --start {config.plugin.name} --budget 0s` makes it again"
            )
        whole = [call for call in calls if call.name not in failures]
        rounds = functools.partial(_compile_all, site, whole, workers=config.workers, report=report)
        lines, found = replay_build(sources, rounds, objective=objective)
    files = write_replay(config.output, lines) if lines else remove_replay(config.output)
    return dataclasses.replace(
        found,
        failures=failures | found.failures,
        left_out=left_out,
        plugin=str(config.plugin),
        compiler=target.version_text or target.version,
        plugin_compiler=own.version_text or own.version,
        lines=str(files.lines),
        config=str(files.config),
        flag=f"--config={files.config}" if lines else "",
        notes=notes,
    )


def _program(clang: Path) -> Path:
    """The program that a name or a path means."""
    found = shutil.which(clang)
    return clang if found is None else Path(found)


def _build(site: _Site, place: tuple[int, SourceCall]) -> _Built:
    index, call = place
    output, lines = site.folder / f"{index}.o", site.folder / f"{index}.lines"
    compile_one = functools.partial(compile_source, call=call, output=output, timeout_seconds=site.timeout_seconds)
    plugin_plain = compile_one(site.own)
    plain = plugin_plain if site.target is site.own else compile_one(site.target)
    tuned = compile_one(
        site.own,
        options=(*LINE_TABLES, f"-fpass-plugin={site.plugin}"),
        settings={"MLGOKIT_REPLAY_LINES": str(lines)},
    )
    found = parse_replay_lines(lines.read_bytes(), call.name) if tuned.ok and lines.exists() else []
    for path in (output, lines):
        path.unlink(missing_ok=True)
    return _Built(plain, plugin_plain, tuned, found)


def _sources(calls: Sequence[SourceCall], built: Sequence[_Built]) -> tuple[list[ReplaySource], dict[str, str]]:
    sources: list[ReplaySource] = []
    failures: dict[str, str] = {}
    for call, one in zip(calls, built, strict=True):
        ways = {
            "plainly": one.plain,
            "plainly by the plugin's compiler": one.plugin_plain,
            "with the plugin": one.tuned,
        }
        sizes: list[ObjectSizes] = []
        for how, done in ways.items():
            if done.sizes is None:
                failures.setdefault(call.name, _failure(how, done))
            else:
                sizes.append(done.sizes)
        if call.name not in failures:
            plain, plugin_plain, tuned = sizes
            sources.append(
                ReplaySource(name=call.name, plain=plain, plugin_plain=plugin_plain, tuned=tuned, lines=one.lines)
            )
    return sources, failures


def _compile_all(
    site: _Site, calls: Sequence[SourceCall], lines: Sequence[ReplayLine], *, workers: int, report: Report
) -> tuple[Mapping[str, ObjectSizes], Mapping[str, str]]:
    """All modules with the list, by the configuration file that the user gets."""
    files = write_replay(site.folder / "list", lines)

    def compile_one(place: tuple[int, SourceCall]) -> Compilation:
        index, call = place
        output = site.folder / f"{index}.o"
        done = compile_source(
            site.target, call, output, options=config_words(files), timeout_seconds=site.timeout_seconds
        )
        output.unlink(missing_ok=True)
        return done

    done = parallel(compile_one, list(enumerate(calls)), workers=workers, report=report, label="compile with the list")
    named = list(zip((call.name for call in calls), done, strict=True))
    sizes = {name: one.sizes for name, one in named if one.sizes is not None}
    return sizes, {name: _failure("with the list", one) for name, one in named if one.sizes is None}


def _failure(how: str, done: Compilation) -> str:
    return f"{how}: {done.status.value}: {done.reason}"


def render(result: ReplayResult, console: Console) -> None:
    """Print what is left of the plugin's saving, and what to add to the build."""
    print_page(replay_page(result), console)


def exit_code(config: ExportReplay, result: ReplayResult) -> int:  # noqa: ARG001  (all commands take one)
    """1 if nothing of the build compiles in all ways."""
    return 0 if result.modules else MlgokitError.exit_code
