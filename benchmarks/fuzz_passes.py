"""Random passes left out, function by function, in modules of real projects: what goes wrong."""

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import Ledger, Setup, open_ledger, run_benchmark
from results import Cell, Result, Table, percent

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC, PLAIN, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides, Stage, TrialRequest, pass_number
from mlgokit.corpus.corpus import load_corpus
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.overrides import EACH_TIME, OPTIMIZER_PASSES, PASSES, override_bytes
from mlgokit.tune.spaces.optimizer.step import EXCLUDED
from mlgokit.tune.spaces.passes.candidates import ONLY_ON, candidates_of

RATES = (0.02, 0.1, 0.3, 1.0)
"""Of candidates that a function is made without: passes of the optimizer that change it, and those of the code
generator."""
INLINING = {INLINE_SIZE.name: HEURISTIC}
"""Who inlines meanwhile."""
SMALL = 60_000
"""Bytes of bitcode up to which modules are drawn about evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzPasses:
    """Compile modules with drawn passes left out in every function, and with gates that let all run."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus, of the compiler's major."""
    llvm: int | None = None
    """LLVM major; the newest supported one if not given."""
    compilations: int = 2_000
    """With passes left out."""
    seed: int = 1
    """Of all draws."""
    minutes: float = 240.0
    """No module is begun after so long; the same command goes on."""
    records: Path = Path("build/fuzz_passes.jsonl")
    """Where finished modules are noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPasses:
    """What a module is compiled without.

    Attributes:
        earlier: passes of the optimizer, by the key of the function.
        later: passes of the code generator, by the key that the function has then.
    """

    earlier: dict[int, Overrides]
    later: dict[int, Overrides]


def draw_passes(
    compiler: ClangCompiler,
    module: Module,
    changed: Mapping[int, Sequence[tuple[str, int]]],
    rate: float,
    rng: np.random.Generator,
) -> DrawnPasses:
    """Leave out each candidate of each function with a probability.

    Args:
        compiler: compiles the module once, as the code generator's keys are of what the optimizer made.
        module: which one.
        changed: passes of the optimizer that change its functions, as a compilation listed them.
        rate: the probability.
        rng: draws.
    """
    earlier = {key: _drawn_changes(found, rate, rng) for key, found in changed.items()}
    use = PluginUse(policies=INLINING, optimizer_passes=override_bytes(OPTIMIZER_PASSES, earlier))
    wanted = dataclasses.replace(use, trials=TrialRequest(stages=Stage.PASSES))
    keys = [one.key for one in compiler.compile(module, CompileRequest(use=wanted)).tried]
    return DrawnPasses(earlier=earlier, later={key: Overrides(passes=_drawn(rate, rng)) for key in keys})


def _drawn(rate: float, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Records of passes, each left out with this probability, the first or the second time it asks."""
    both = [(pass_number(name), nth, 0) for name, _ in candidates_of(ONLY_ON) for nth in (0, 1)]
    return np.array([one for one in both if rng.random() < rate], OVERRIDE)


def _drawn_changes(changed: Sequence[tuple[str, int]], rate: float, rng: np.random.Generator) -> Overrides:
    """Passes of the optimizer that changed a function, each left out with this probability, once or each time."""
    mine = [
        (pass_number(name), nth if rng.random() < 0.5 else EACH_TIME, 0)
        for name, nth in changed
        if name not in EXCLUDED and rng.random() < rate
    ]
    return Overrides(passes=np.array(mine, OVERRIDE))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(FuzzPasses, measure, arguments)


def measure(config: FuzzPasses, setup: Setup) -> Result:
    """Do what is not done yet, while there is time, and sum everything up."""
    toolchain = setup.toolchain(config.llvm)
    setup.corpus(config.corpus)
    modules = load_corpus(config.corpus).modules
    ledger = open_ledger(config.records, {"seed": config.seed, "major": toolchain.major, **setup.inputs})
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), timeout_seconds=300)
    sizes = np.array([module.bitcode_bytes for module in modules], float)
    weights = 1 / (SMALL + sizes)
    begin, rounds = time.monotonic(), config.compilations // len(RATES)
    for index in range(rounds):
        if time.monotonic() - begin > 60 * config.minutes:
            break
        if str(index) not in ledger.known:
            rng = np.random.default_rng([config.seed, index])
            module = modules[int(rng.choice(len(modules), p=weights / weights.sum()))]
            ledger.add(str(index), try_module(compiler, module, rng))
        setup.report(index + 1, rounds, "modules")
    return summarise(ledger, config)


def try_module(compiler: ClangCompiler, module: Module, rng: np.random.Generator) -> dict[str, Any]:
    """One module: all passes run, and then fewer and fewer."""
    plain = compiler.compile(module, PLAIN)
    listed = compiler.compile(module, CompileRequest(use=PluginUse(policies=INLINING, list_changes=True)))
    row: dict[str, Any] = {"module": module.name, "functions": 0, "plain": plain.reason or listed.reason, "sizes": []}
    if not plain.ok or listed.changes is None:
        return row | {"plain": row["plain"] or "nothing was listed"}
    row["functions"] = len(listed.changes.changed)
    # Of a few modules the heuristic echoed makes other code than plain clang (docs/pitfalls.md, "The growth stop").
    row["text"] = listed.measured.totals.text
    for rate in (0.0, *RATES):
        drawn = draw_passes(compiler, module, listed.changes.changed, rate, rng)
        use = PluginUse(
            policies=INLINING,
            optimizer_passes=override_bytes(OPTIMIZER_PASSES, drawn.earlier),
            passes=override_bytes(PASSES, drawn.later),
        )
        done = compiler.compile(module, CompileRequest(use=use))
        row["sizes"].append(done.measured.totals.text if done.ok else f"{done.status.value}: {done.reason}")
    return row


def summarise(ledger: Ledger, config: FuzzPasses) -> Result:
    """The tables."""
    rows = [row for key, row in ledger.known.items() if key.isdigit() and not row["plain"]]
    failed = [
        (row["module"], rate, found)
        for row in rows
        for rate, found in zip((0.0, *RATES), row["sizes"], strict=True)
        if isinstance(found, str)
    ]
    others = [row["module"] for row in rows if row["sizes"][0] != row["text"]]
    table: list[tuple[Cell, ...]] = []
    for place, rate in enumerate((0.0, *RATES)):
        done = [row for row in rows if not isinstance(row["sizes"][place], str)]
        text = sum(row["text"] for row in done)
        change = percent(sum(row["sizes"][place] for row in done) / text - 1) if text else None
        table.append((f"{rate:g}", len(rows), sum(row["functions"] for row in rows), len(rows) - len(done), change))
    compilations = len(RATES) * len(rows)
    passed = not failed and not others
    return Result(
        benchmark="fuzz_passes",
        question="Do compilations fail when passes of the optimizer and of the code generator are left out at random, "
        "function by function?",
        answer=f"{len(failed)} of {compilations:,} do, and {len(others)} modules have another size with gates that "
        "let everything run",
        bar="none does, and none has",
        passed=passed if compilations else None,
        seed=config.seed,
        tables=(
            Table(
                title="Compilations by the share of candidates that is left out",
                columns=("share", "compilations", "functions", "failed", "text"),
                rows=tuple(table),
                note="Modules that do not compile plainly, or of which no pass asks, are passed over. Share 0: tables "
                "that let all run. Text: against LLVM's heuristic, echoed, without tables.",
            ),
            Table(title="Failures", columns=("module", "share", "what"), rows=tuple(failed[:50])),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
