"""What the gates of passes cost that let everything run: instructions of compilations with them over those without."""

import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, draw_modules, run_benchmark
from instructions import count_instructions
from results import Cell, Result, Table

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin, link_policies
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides, Stage, TrialRequest
from mlgokit.errors import ToolError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.overrides import OPTIMIZER_PASSES, PASSES, OverrideKind, write_overrides
from mlgokit.tune.spaces.passes.trials import pass_number

BAR = 1.01
NONE = "none known"
GATES = {"optimizer": (OPTIMIZER_PASSES,), "code generator": (PASSES,), "both": (OPTIMIZER_PASSES, PASSES)}
ASKING = {OPTIMIZER_PASSES: ("InstCombinePass", "SimplifyCFGPass"), PASSES: ("block-placement", "early-machinelicm")}
"""Passes that tables leave out more often than others, by who asks."""
_SLOWER = 300.0
"""How many times the deadline of a compilation callgrind may take, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadPasses:
    """Compile modules plainly, and with tables that leave nothing out: of all their functions, and of none of them."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus, of the compiler's major."""
    modules: int = 12
    """Modules drawn from all projects."""
    least_bytes: int = 10_000
    """Bytes of bitcode that they have at least: of small ones, process start is most."""
    most_bytes: int = 250_000
    """Bytes of bitcode that they have at most: callgrind takes a minute for each second."""
    large: Path | None = None
    """Another corpus, of overhead_large.toml for example."""
    large_names: tuple[str, ...] = ()
    """Modules of it that take part as well."""
    each: bool = False
    """Also count each gate alone."""
    seed: int = 1
    """Of the draw."""
    llvm: int | None = None
    """LLVM major; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/overhead_passes.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One module.

    Attributes:
        name: of the module.
        plain: instructions of the compilation without the plugin.
        counts: by build, those with it.
        same: whether the object is the plain one with all functions known to both gates.
    """

    name: str
    plain: int
    counts: dict[str, int]
    same: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(OverheadPasses, measure, arguments)


def measure(config: OverheadPasses, setup: Setup) -> Result:
    """Count every build of every drawn module.

    Raises:
        ToolError: a module does not compile.
    """
    toolchain, rng = setup.toolchain(config.llvm), np.random.default_rng(config.seed)
    every = setup.corpus(config.corpus).modules
    fitting = [one for one in every if config.least_bytes <= one.bitcode_bytes <= config.most_bytes]
    modules = draw_modules(fitting, config.modules, rng)
    if config.large is not None:
        large = setup.corpus(config.large, "large corpus").modules
        modules += [one for one in large if one.name in config.large_names]
    compiler = ClangCompiler(
        toolchain=toolchain, plugin=build_plugin(toolchain), timeout_seconds=config.timeout_seconds
    )
    gates = GATES if config.each else {"both": GATES["both"]}
    rows: list[Row] = []
    for index, module in enumerate(modules):
        with tempfile.TemporaryDirectory(prefix="mlgokit-gates-") as scratch:
            folder = Path(scratch)
            plugins: dict[str, Path] = {}
            # Key 0 is of no function.
            for name, kinds, keys in (
                (NONE, GATES["both"], dict.fromkeys(GATES["both"], frozenset((0,)))),
                *((name, kinds, known_functions(compiler, module)) for name, kinds in gates.items()),
            ):
                tables = {kind.table: folder / kind.table for kind in kinds}
                for kind in kinds:
                    write_overrides(kind, tables[kind.table], dict.fromkeys(keys[kind], never(ASKING[kind])))
                plugins[name] = link_policies(toolchain, tables, folder / f"{name}.so")
            counts = {
                name: count_instructions(
                    toolchain, module, plugin, folder, timeout_seconds=_SLOWER * config.timeout_seconds
                )[""]
                for name, plugin in {"": None, **plugins}.items()
            }
            same = object_of(compiler, module, None, folder) == object_of(compiler, module, plugins["both"], folder)
        rows.append(Row(name=module.name, plain=counts.pop(""), counts=counts, same=same))
        setup.report(index + 1, len(modules), "modules")
    return summarise(rows, config)


def known_functions(compiler: ClangCompiler, module: Module) -> dict[OverrideKind, frozenset[int]]:
    """The keys of all functions that the gates meet.

    Raises:
        ToolError: the module does not compile.
    """
    use = PluginUse(policies={INLINE_SIZE.name: HEURISTIC}, list_changes=True, trials=TrialRequest(stages=Stage.PASSES))
    found = compiled(compiler, module, CompileRequest(use=use))
    if found.changes is None:
        raise ToolError(f"{module.name}: expected the list of what passes changed, found none; see the plugin's output")
    return {
        OPTIMIZER_PASSES: frozenset(found.changes.keys.values()),
        PASSES: frozenset(one.key for one in found.tried),
    }


def never(passes: Iterable[str]) -> Overrides:
    """Overrides by which passes do not run when they ask for the 60,001st time: so they always run."""
    return Overrides(passes=np.array([(pass_number(name), 60_000, 0) for name in passes], OVERRIDE))


def object_of(compiler: ClangCompiler, module: Module, plugin: Path | None, folder: Path) -> bytes:
    """The object that a compilation makes.

    Raises:
        ToolError: the module does not compile.
    """
    path = folder / "compared.o"
    use = None if plugin is None else PluginUse(plugin=plugin)
    compiled(compiler, module, CompileRequest(use=use, keep_object=path))
    return path.read_bytes()


def compiled(compiler: ClangCompiler, module: Module, request: CompileRequest) -> Compilation:
    """A compilation that succeeds.

    Raises:
        ToolError: it does not.
    """
    found = compiler.compile(module, request)
    if not found.ok:
        raise ToolError(f"{module.name}: expected a compilation, found {found.status.value}: {found.reason}")
    return found


def summarise(rows: Sequence[Row], config: OverheadPasses) -> Result:
    """The tables."""
    whole = sum(row.plain for row in rows)
    total = {name: sum(row.counts[name] for row in rows) / whole for name in rows[0].counts}
    worst = max(row.counts["both"] / row.plain for row in rows)
    others = [row.name for row in rows if not row.same]
    table: list[tuple[Cell, ...]] = [
        (
            row.name,
            row.plain,
            *(round(count / row.plain, 4) for count in row.counts.values()),
            "the same" if row.same else "another",
        )
        for row in rows
    ]
    table.append(("all", whole, *(round(value, 4) for value in total.values()), f"{len(others)} others"))
    return Result(
        benchmark="overhead_passes",
        question="How many more instructions does a compilation take with gates that let every pass run?",
        answer=f"{total['both']:.4f} times as many in total over {len(rows)} modules, {worst:.4f} in the worst; "
        f"{total[NONE]:.4f} where no function is in the tables; {len(others)} objects differ",
        bar=f"at most {BAR} in total with all functions in both tables, and no object differs",
        passed=total["both"] <= BAR and not others,
        seed=config.seed,
        tables=(
            Table(
                title="Instructions with gates over those of plain clang, by callgrind",
                columns=("module", "plain", *total, "object"),
                rows=tuple(table),
                note="Loading the plugin is part of it. In the columns of gates each table has every function that the "
                "gate meets in the module, with two passes that would be left out the next time, if they asked 60,000 "
                f'times before; under "{NONE}" both tables have a function that no module has.',
            ),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
