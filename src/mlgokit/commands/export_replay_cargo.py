"""Tuned decisions of a cargo build for a rustc that loads nothing: it takes LLVM's replay by ``-Cllvm-args``."""

import dataclasses
import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands.tune_cargo import CargoTuning, cargo_line, check_cargo, open_cargo
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import PLAIN, CompileRequest, PluginUse
from mlgokit.compiler.rust.compile import RustCompiler
from mlgokit.errors import ToolError
from mlgokit.export.replay import MANGLING, ReplayLine, parse_replay_lines, remove_replay, rustc_options, write_replay
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tune.replay import ReplayResult, ReplaySource, replay_build


def export_cargo(
    plugin: Path,
    command: str,
    *,
    folder: Path,
    output: Path,
    objective: Objective,
    compiler: CompilerOptions,
    report: Report,
) -> ReplayResult:
    """Make each program of a cargo build plainly, with the plugin and with the list, and write the list if that saves.

    Args:
        plugin: that was tuned for the build.
        command: of cargo.
        folder: where it runs.
        output: folder for the list.
        objective: which bytes count.
        compiler: workers and deadline.
        report: told what is done.

    Raises:
        CorpusError: no program is made for size by full link-time optimization.
        ToolError: the plugin writes no lines, or rustc does not load it.
        UsageError: the build fails, or the output cannot be named.
    """
    files = remove_replay(output, rust=True)
    with tempfile.TemporaryDirectory(prefix="mlgokit-replay-") as scratch:
        builds = {
            name: Tune(cargo=command, link_folder=folder, folder=Path(scratch) / name, compiler=compiler)
            for name in ("plain", "lines")
        }
        words = check_cargo(builds["plain"])
        plain = open_cargo(builds["plain"], words, report=report)
        lined = open_cargo(builds["lines"], words, settings=_line_tables(), report=report)
        sources, failures = _sources(plain, lined, plugin.resolve(), Path(scratch), report)
        if sources and not any(source.lines for source in sources):
            raise ToolError(
                f"{plugin}: expected a plugin that says what it decides, found no line of it; if an earlier version "
                f"made it, `mlgokit tune --start {plugin.name} --budget 0s` with that build makes it again"
            )
        known = {source.name for source in sources}
        whole = [module for module in lined.modules if module.name in known]

        def compile_all(lines: Sequence[ReplayLine]) -> tuple[Mapping[str, ObjectSizes], Mapping[str, str]]:
            listed = write_replay(Path(scratch) / "list", lines, rust=True)
            replaying = _with_options(lined.compiler, rustc_options(listed.lines))
            done = parallel(
                replaying.compile, whole, workers=compiler.workers, report=report, label="compile with the list"
            )
            named = list(zip((module.name for module in whole), done, strict=True))
            return (
                {name: one.sizes for name, one in named if one.sizes is not None},
                {name: _failure("with the list", one) for name, one in named if one.sizes is None},
            )

        lines, found = replay_build(sources, compile_all, objective=objective)
        if lines:
            files = write_replay(output, lines, rust=True)
        calls = [lined.compiler.calls[module.name] for module in whole]
        flags = [cargo_line(lined.words, call, _line_tables(), f"@{files.config}") for call in calls]
        version = lined.compiler.rustc.version
        return dataclasses.replace(
            found,
            failures=failures | found.failures,
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
    calls = {name: dataclasses.replace(call, words=(*call.words, *options)) for name, call in compiler.calls.items()}
    return dataclasses.replace(compiler, calls=calls)


def _sources(
    plain: CargoTuning, lined: CargoTuning, plugin: Path, scratch: Path, report: Report
) -> tuple[list[ReplaySource], dict[str, str]]:
    """The programs before anything is replayed, and why others do not compile."""
    compile_one = functools.partial(_three_ways, plain, lined, plugin, scratch)
    done = parallel(
        compile_one,
        list(zip(plain.modules, lined.modules, strict=True)),
        workers=plain.compiler.workers,
        report=report,
        label="compile plainly and tuned",
    )
    sources: list[ReplaySource] = []
    failures: dict[str, str] = {}
    for module, (by_none, tuned, written, lines) in zip(plain.modules, done, strict=True):
        ways = {"plainly": by_none, "with the plugin": tuned, "with line tables": written}
        failed = next((_failure(how, one) for how, one in ways.items() if one.sizes is None), None)
        if failed is not None or by_none.sizes is None or tuned.sizes is None:
            failures[module.name] = failed or ""
        else:
            sources.append(
                ReplaySource(
                    name=module.name, plain=by_none.sizes, plugin_plain=by_none.sizes, tuned=tuned.sizes, lines=lines
                )
            )
    return sources, failures


def _three_ways(
    plain: CargoTuning, lined: CargoTuning, plugin: Path, scratch: Path, modules: tuple[Module, Module]
) -> tuple[Compilation, Compilation, Compilation, list[ReplayLine]]:
    """A program plainly, with the plugin, and with the plugin and line tables, which says the decisions."""
    module, with_lines = modules
    written = scratch / f"{module.bitcode_sha256}.lines"
    use = PluginUse(plugin=plugin, replay_lines=written)
    done = (
        plain.compiler.compile(module, PLAIN),
        plain.compiler.compile(module, CompileRequest(use=PluginUse(plugin=plugin))),
        _with_options(lined.compiler, [MANGLING]).compile(with_lines, CompileRequest(use=use)),
    )
    # The crate's own optimization comes first, the link's is the last that the process makes.
    files = sorted(scratch.glob(f"{written.name}*"), key=lambda path: int(path.suffix[1:]) if path != written else 0)
    lines = parse_replay_lines(files[-1].read_bytes(), module.name) if files else []
    return (*done, lines)


def _failure(how: str, done: Compilation) -> str:
    return f"{how}: {done.status.value}: {done.reason}"
