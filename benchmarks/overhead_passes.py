"""What the gates of passes cost that let everything run: instructions of compilations with them over those without."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, draw_modules, run_benchmark
from instructions import count_instructions
from results import Cell, Result, Table

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.tables.overrides import OPTIMIZER_PASSES, PASSES, OverrideKind, write_overrides

BAR = 1.01
_SLOWER = 300.0
"""How many times the deadline of a compilation callgrind may take, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadPasses:
    """Compile modules plainly, and with pass tables in the plugin that have functions of none of them."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus, of the compiler's major."""
    modules: int = 12
    """Modules drawn from all projects."""
    least_bytes: int = 40_000
    """Bytes of bitcode that they have at least: of small ones, process start is most."""
    most_bytes: int = 250_000
    """Bytes of bitcode that they have at most: callgrind takes a minute for each second."""
    seed: int = 1
    """Of the draw."""
    llvm: int | None = None
    """LLVM major; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/overhead_passes.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(OverheadPasses, measure, arguments)


def measure(config: OverheadPasses, setup: Setup) -> Result:
    """Count every build of every drawn module."""
    toolchain = setup.toolchain(config.llvm)
    every = setup.corpus(config.corpus).modules
    fitting = [one for one in every if config.least_bytes <= one.bitcode_bytes <= config.most_bytes]
    modules = draw_modules(fitting, config.modules, np.random.default_rng(config.seed))
    rows: list[tuple[str, int, dict[str, int], bool]] = []
    with tempfile.TemporaryDirectory(prefix="mlgokit-gates-") as scratch:
        folder = Path(scratch)
        # Key 0 is of no function.
        for kind in (OPTIMIZER_PASSES, PASSES):
            write_overrides(kind, folder / kind.table, {0: Overrides()})

        def plugin_of(name: str, *kinds: OverrideKind) -> Path:
            return link_policies(toolchain, {one.table: folder / one.table for one in kinds}, folder / f"{name}.so")

        plugins = {
            "both": plugin_of("both", OPTIMIZER_PASSES, PASSES),
            "optimizer": plugin_of("optimizer", OPTIMIZER_PASSES),
            "code generator": plugin_of("generator", PASSES),
        }
        compiler = ClangCompiler(toolchain=toolchain, timeout_seconds=config.timeout_seconds)
        for index, module in enumerate(modules):
            deadline = _SLOWER * config.timeout_seconds
            same = True
            objects = [folder / "plain.o", folder / "gates.o"]
            for path, use in zip(objects, (None, PluginUse(plugin=plugins["both"])), strict=True):
                same &= compiler.compile(module, CompileRequest(use=use, keep_object=path)).ok
            same = same and objects[0].read_bytes() == objects[1].read_bytes()
            plain = count_instructions(toolchain, module, None, folder, timeout_seconds=deadline)[""]
            counts = {
                name: count_instructions(toolchain, module, plugin, folder, timeout_seconds=deadline)[""]
                for name, plugin in plugins.items()
            }
            rows.append((module.name, plain, counts, same))
            setup.report(index + 1, len(modules), "modules")
    return summarise(rows, config)


def summarise(rows: Sequence[tuple[str, int, dict[str, int], bool]], config: OverheadPasses) -> Result:
    """The tables."""
    whole = sum(plain for _, plain, _, _ in rows)
    total = {name: sum(counts[name] for _, _, counts, _ in rows) / whole for name in rows[0][2]}
    worst = max(counts["both"] / plain for _, plain, counts, _ in rows)
    others = [name for name, _, _, same in rows if not same]
    table: list[tuple[Cell, ...]] = [
        (name, plain, *(round(counts[each] / plain, 4) for each in total), "the same" if same else "another")
        for name, plain, counts, same in rows
    ]
    table.append(("all", whole, *(round(value, 4) for value in total.values()), f"{len(others)} others"))
    return Result(
        benchmark="overhead_passes",
        question="How many more instructions does a compilation take with gates that let every pass run?",
        answer=f"{total['both']:.4f} times as many in total over {len(rows)} modules, {worst:.4f} in the worst; "
        f"{len(others)} objects differ",
        bar=f"at most {BAR} in total, and no object differs",
        passed=total["both"] <= BAR and not others,
        seed=config.seed,
        tables=(
            Table(
                title="Instructions with gates over those of plain clang, by callgrind",
                columns=("module", "plain", *total, "object"),
                rows=tuple(table),
                note="Loading the plugin is part of it. Each table has one function, which no module has, so that all "
                "bodies are hashed and all questions asked.",
            ),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
