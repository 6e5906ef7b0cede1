"""Tuned inlining decisions for compilers that load no plugin: a list is made, tried, and written if it saves bytes."""

import dataclasses
import functools
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mlgokit.builds.cargo import CargoBuild, CargoRequest, cargo_line, open_cargo
from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.lto import check_steps
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import PLAIN, CompileRequest, PluginUse
from mlgokit.compiler.rust.compile import RustCompiler
from mlgokit.compiler.source import SourceCall, compile_source
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.front_end import Level
from mlgokit.corpus.importers.build_sources import source_calls
from mlgokit.errors import CorpusError, UsageError
from mlgokit.export.replay import (
    LINE_TABLES,
    MANGLING,
    ReplayLine,
    config_words,
    parse_replay_lines,
    remove_replay,
    replay_files,
    rustc_options,
    write_replay,
)
from mlgokit.locks import locked
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tables.decisions import read_table
from mlgokit.tables.file import list_tables
from mlgokit.tune.replay import ReplayResult, ReplaySource, replay_build

_COMPILE_SECONDS = 120.0
_PLAINLY, _BY_OWN, _TUNED = "plainly", "plainly by the plugin's compiler", "with the plugin"
_NOT_REPLAYED = {
    "allocations": "register allocation",
    "passes": "passes of the code generator",
    "optimizer_passes": "passes of the optimizer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The request for a list of inlining decisions.

    Attributes:
        plugin: path of the tuned plugin.
        output: folder for the list.
        database: path of the build's compilation database; ``None`` with ``cargo``.
        cargo: the cargo build; its scratch folder is not used.
        clang: the clang that will use the list; by default the one that the plugin was tuned for.
        level: optimization level in place of the build's own.
        compiler: number of workers and deadline.
    """

    plugin: Path
    output: Path
    database: Path | None = None
    cargo: CargoRequest | None = None
    clang: Path | None = None
    level: Level | None = None
    compiler: CompilerOptions


class _Built(NamedTuple):
    """A module as it is compiled before a replay, by the name of each way, and its decisions with the plugin."""

    ways: Mapping[str, Compilation]
    lines: Sequence[ReplayLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """The compilers of a build: the plugin, its own clang, and the ``target`` clang that replays; and a folder."""

    plugin: Path
    own: Toolchain
    target: Toolchain
    folder: Path
    timeout_seconds: float


def export_replay(asked: ReplayRequest, *, report: Report) -> ReplayResult:
    """Write a plugin's inlining decisions as a list for LLVM's replay inliner, if builds with the list are smaller.

    For that each source is compiled plainly, with the plugin and with the list.

    Raises:
        BusyError: another process writes into the folder.
        UsageError: the plugin has no inlining decisions of compile steps, or no build is given.
        InputError: the file is no tuned plugin.
        CorpusError: the build has no source to compile.
        ToolError: a compiler is missing.
    """
    with locked(asked.output):
        return _export(asked, report)


def _export(asked: ReplayRequest, report: Report) -> ReplayResult:
    """Make the list of :func:`export_replay`; the output folder is locked."""
    # A path that the options cannot contain is refused before anything is compiled.
    replay_files(asked.output, rust=asked.cargo is not None)
    inside = list_tables(asked.plugin)
    if "decisions" not in inside:
        raise UsageError(
            f"{asked.plugin}: expected a plugin with inlining decisions, found {', '.join(sorted(inside)) or 'none'}; "
            "only inlining has a replay in LLVM"
        )
    table = read_table(asked.plugin)
    not_replayed = [name for table_name, name in _NOT_REPLAYED.items() if table_name in inside]
    notes = (f"{' and '.join(not_replayed)}: in the plugin, but LLVM has no replay for them",) if not_replayed else ()
    objective = Objective.LINK_AWARE if table.summary is None else Objective(table.summary.objective)
    if asked.cargo is not None:
        return dataclasses.replace(_export_cargo(asked, asked.cargo, objective=objective, report=report), notes=notes)
    if asked.database is None:
        raise UsageError(
            "export replay: expected the build that was tuned, found none; give --compile-commands or --cargo"
        )
    check_steps(asked.plugin, table)
    own = find_toolchain(None if table.summary is None else table.summary.llvm)
    target = own if asked.clang is None else find_reader(asked.clang)
    calls, left_out = source_calls(asked.database, toolchain=own, level=asked.level, workers=asked.compiler.workers)
    if not calls:
        name, reason = next(iter(left_out.items()))
        raise CorpusError(f"{asked.database}: expected sources that can be compiled, found none ({name}: {reason})")
    with tempfile.TemporaryDirectory(prefix="mlgokit-replay-") as scratch:
        site = _Site(
            plugin=asked.plugin.resolve(),
            own=own,
            target=target,
            folder=Path(scratch),
            timeout_seconds=asked.compiler.deadline(_COMPILE_SECONDS),
        )
        built = parallel(
            functools.partial(_compile_variants, site),
            list(enumerate(calls)),
            workers=asked.compiler.workers,
            report=report,
            label="compile plainly and tuned",
        )
        sources, failures = _sources([call.name for call in calls], built)
        whole = [call for call in calls if call.name not in failures]
        rounds = functools.partial(_compile_all, site, whole, workers=asked.compiler.workers, report=report)
        lines, found = replay_build(sources, rounds, objective=objective)
    files = write_replay(asked.output, lines) if lines else remove_replay(asked.output)
    return dataclasses.replace(
        found,
        failures=failures,
        left_out=left_out,
        plugin=str(asked.plugin),
        compiler=target.version_text or target.version,
        plugin_compiler=own.version_text or own.version,
        lines=str(files.lines),
        config=str(files.config),
        flag=f"--config={files.config}" if lines else "",
        notes=notes,
    )


def find_reader(clang: Path) -> Toolchain:
    """Find the clang that will use a list, given by name or path.

    Raises:
        ToolError: there is none.
    """
    found = shutil.which(clang)
    return find_toolchain(clang=clang if found is None else Path(found))


def _compile_variants(site: _Site, numbered: tuple[int, SourceCall]) -> _Built:
    """Compile a numbered source without the plugin, by both compilers, and with it, so that it lists its decisions."""
    index, call = numbered
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
    return _Built({_PLAINLY: plain, _BY_OWN: plugin_plain, _TUNED: tuned}, found)


def _sources(names: Iterable[str], built: Sequence[_Built]) -> tuple[list[ReplaySource], dict[str, str]]:
    """The modules that compile in all ways, and the reasons by name for the others."""
    sources: list[ReplaySource] = []
    failures: dict[str, str] = {}
    for name, (ways, lines) in zip(names, built, strict=True):
        if failed := next((_failure(how, done) for how, done in ways.items() if done.sizes is None), ""):
            failures[name] = failed
            continue
        plain, own, tuned = (ways[how].measured for how in (_PLAINLY, _BY_OWN if _BY_OWN in ways else _PLAINLY, _TUNED))
        sources.append(ReplaySource(name=name, plain=plain, plugin_plain=own, tuned=tuned, lines=lines))
    return sources, failures


def _compile_all(
    site: _Site, calls: Sequence[SourceCall], lines: Sequence[ReplayLine], *, workers: int, report: Report
) -> tuple[Mapping[str, ObjectSizes], Mapping[str, str]]:
    """Compile all sources with the list, by the configuration file that the user gets; return sizes and failures."""
    files = write_replay(site.folder / "list", lines)

    def compile_one(numbered: tuple[int, SourceCall]) -> Compilation:
        index, call = numbered
        output = site.folder / f"{index}.o"
        done = compile_source(
            site.target, call, output, options=config_words(files), timeout_seconds=site.timeout_seconds
        )
        # The sizes are in the compilation; the object is not needed.
        output.unlink(missing_ok=True)
        return done

    done = parallel(compile_one, list(enumerate(calls)), workers=workers, report=report, label="compile with the list")
    return _sizes_and_failures([call.name for call in calls], done)


def _sizes_and_failures(
    names: Sequence[str], replayed: Sequence[Compilation]
) -> tuple[Mapping[str, ObjectSizes], Mapping[str, str]]:
    """The sizes of what compiles with the list, by name, and the reasons for what does not."""
    named = list(zip(names, replayed, strict=True))
    sizes = {name: one.sizes for name, one in named if one.sizes is not None}
    return sizes, {name: _failure("with the list", one) for name, one in named if one.sizes is None}


def _failure(how: str, done: Compilation) -> str:
    """The reason why a module does not compile in one of the ways."""
    return f"{how}: {done.status.value}: {done.reason}"


# --- Cargo ---


def _export_cargo(asked: ReplayRequest, cargo: CargoRequest, *, objective: Objective, report: Report) -> ReplayResult:
    """Make each program of a cargo build plainly, with the plugin and with the list, and write the list if that saves.

    rustc loads nothing here: it takes LLVM's replay by ``-Cllvm-args``.
    """
    plugin, compiler = asked.plugin, asked.compiler
    with tempfile.TemporaryDirectory(prefix="mlgokit-replay-") as scratch:
        plain, lined = (
            open_cargo(dataclasses.replace(cargo, scratch=Path(scratch) / name), settings=settings, report=report)
            for name, settings in (("plain", None), ("lines", _line_tables()))
        )
        sources, failures = _cargo_sources(plain, lined, plugin.resolve(), Path(scratch), report)
        known = {source.name for source in sources}
        whole = [module for module in lined.modules if module.name in known]

        def compile_all(lines: Sequence[ReplayLine]) -> tuple[Mapping[str, ObjectSizes], Mapping[str, str]]:
            listed = write_replay(Path(scratch) / "list", lines, rust=True)
            replaying = _with_options(lined.compiler, rustc_options(listed.lines))
            done = parallel(
                replaying.compile, whole, workers=compiler.workers, report=report, label="compile with the list"
            )
            return _sizes_and_failures([module.name for module in whole], done)

        lines, found = replay_build(sources, compile_all, objective=objective)
        files = write_replay(asked.output, lines, rust=True) if lines else remove_replay(asked.output, rust=True)
        calls = [lined.compiler.calls[module.name] for module in whole]
        flags = [cargo_line(lined.asked.words, call, _line_tables(), f"@{files.config}") for call in calls]
        version = lined.compiler.rustc.version
        return dataclasses.replace(
            found,
            failures=failures,
            left_out=lined.left_out,
            plugin=str(plugin),
            compiler=version,
            plugin_compiler=version,
            lines=str(files.lines),
            config=str(files.config),
            flag=" && ".join(flags) if lines else "",
        )


def _line_tables() -> dict[str, str]:
    """The variable by which cargo gives all crates of a build line tables; a profile's would change their names."""
    return {"RUSTFLAGS": " ".join([*os.environ.get("RUSTFLAGS", "").split(), "-Cdebuginfo=line-tables-only"])}


def _with_options(compiler: RustCompiler, options: Sequence[str]) -> RustCompiler:
    """The compiler with further options in all calls."""
    calls = {name: dataclasses.replace(call, words=(*call.words, *options)) for name, call in compiler.calls.items()}
    return dataclasses.replace(compiler, calls=calls)


def _cargo_sources(
    plain: CargoBuild, lined: CargoBuild, plugin: Path, scratch: Path, report: Report
) -> tuple[list[ReplaySource], dict[str, str]]:
    """Compile the programs before a replay; return those that compile in all ways, and reasons for the others."""
    compile_one = functools.partial(_compile_program, plain, lined, plugin, scratch)
    done = parallel(
        compile_one,
        list(zip(plain.modules, lined.modules, strict=True)),
        workers=plain.compiler.workers,
        report=report,
        label="compile plainly and tuned",
    )
    return _sources([module.name for module in plain.modules], done)


def _compile_program(
    plain: CargoBuild, lined: CargoBuild, plugin: Path, scratch: Path, modules: tuple[Module, Module]
) -> _Built:
    """Compile a program plainly, with the plugin, and with line tables too, so that it lists its decisions."""
    module, with_lines = modules
    written = scratch / f"{module.bitcode_sha256}.lines"
    use = PluginUse(plugin=plugin, replay_lines=written)
    ways = {
        _PLAINLY: plain.compiler.compile(module, PLAIN),
        _TUNED: plain.compiler.compile(module, CompileRequest(use=PluginUse(plugin=plugin))),
        "with line tables": _with_options(lined.compiler, [MANGLING]).compile(with_lines, CompileRequest(use=use)),
    }
    # The crate's own optimization comes first, the link's is the last that the process makes.
    files = sorted(scratch.glob(f"{written.name}*"), key=lambda path: int(path.suffix[1:]) if path != written else 0)
    lines = parse_replay_lines(files[-1].read_bytes(), module.name) if files else []
    return _Built(ways, lines)
