"""What switches of LLVM that leave passes out, add them or bound them do to the size of modules of real projects."""

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Ledger, Setup, draw_modules, open_ledger, run_benchmark
from results import Cell, Result, Table, percent

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import PLAIN
from mlgokit.module import Module

SWITCHES: Mapping[str, tuple[str, ...]] = {
    "MergeFunctions": ("-fmerge-functions",),
    "GVNSink added": ("-mllvm", "-enable-gvn-sink"),
    "GVNHoist added": ("-mllvm", "-enable-gvn-hoist"),
    "minsize to optsize": ("-mllvm", "-force-remove-attribute=minsize"),
    "no loop rotation": ("-mllvm", "-rotation-max-header-size=0"),
    "no jump tables": ("-mllvm", "-min-jump-table-entries=100000"),
    "jump tables from 8 cases": ("-mllvm", "-min-jump-table-entries=8"),
    "no lookup tables": ("-mllvm", "-switch-to-lookup=false"),
    "outliner": ("-mllvm", "-enable-machine-outliner=always"),
    "no early machine LICM, nor a late one": ("-mllvm", "-disable-machine-licm"),
    "no block placement": ("-mllvm", "-disable-block-placement"),
    "registers across functions": ("-mllvm", "-enable-ipra"),
}
"""Options of clang -cc1, for all functions of a module."""
PAYS = -0.005
"""Change of the sum of the modules that a switch is on where it pays, from which it is worth a decision of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSwitches:
    """Compile each drawn module plainly and under each switch."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus, of the compiler's major."""
    modules: int = 80
    """Modules drawn from all projects."""
    most_bytes: int = 400_000
    """Bytes of bitcode that they have at most."""
    seed: int = 1
    """Of the draw."""
    llvm: int | None = None
    """LLVM major; the newest supported one if not given."""
    minutes: float = 60.0
    """No module is begun after so long; the same command goes on."""
    timeout_seconds: float = 120.0
    """Deadline of one compilation."""
    records: Path = Path("build/pass_switches.jsonl")
    """Where finished modules are noted."""
    json: Path = Path("docs/results/pass_switches.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(PassSwitches, measure, arguments)


def measure(config: PassSwitches, setup: Setup) -> Result:
    """Do what is not done yet, while there is time, and sum everything up."""
    toolchain = setup.toolchain(config.llvm)
    fitting = [one for one in setup.corpus(config.corpus).modules if one.bitcode_bytes <= config.most_bytes]
    modules = draw_modules(fitting, config.modules, np.random.default_rng(config.seed))
    ledger = open_ledger(config.records, {"seed": config.seed, "major": toolchain.major, **setup.inputs})
    compiler = ClangCompiler(toolchain=toolchain, timeout_seconds=config.timeout_seconds)
    begin = time.monotonic()
    for index, module in enumerate(modules):
        if time.monotonic() - begin > 60 * config.minutes:
            break
        if module.name not in ledger.known:
            ledger.add(module.name, try_module(compiler, module))
        setup.report(index + 1, len(modules), "modules")
    return summarise(ledger, {one.name: one for one in modules}, config)


def try_module(compiler: ClangCompiler, module: Module) -> dict[str, Any]:
    """Code, read-only data and unwind tables of one module, plain and under each switch; a failure is its reason."""
    found: dict[str, Any] = {}
    for name, options in {"plain": (), **SWITCHES}.items():
        words = (*module.command_line, *options)
        done = compiler.compile(dataclasses.replace(module, command_line=words), PLAIN)
        found[name] = done.measured.llvm_size_text if done.ok else f"{done.status.value}: {done.reason}"
        if name == "plain" and not done.ok:
            break
    return found


def summarise(ledger: Ledger, modules: Mapping[str, Module], config: PassSwitches) -> Result:
    """The tables."""
    rows = {name: row for name, row in ledger.known.items() if name in modules and isinstance(row["plain"], int)}
    is_c = {name: modules[name].language == "c" for name in rows}
    table: list[tuple[Cell, ...]] = []
    paying: list[str] = []
    for switch in SWITCHES:
        cells: list[Cell] = [switch]
        for wanted in (True, False):
            chosen = [row for name, row in rows.items() if is_c[name] is wanted and isinstance(row[switch], int)]
            plain = sum(row["plain"] for row in chosen)
            cells.append(percent(sum(row[switch] for row in chosen) / plain - 1) if plain else None)
            best = sum(min(row["plain"], row[switch]) for row in chosen)
            cells.append(percent(best / plain - 1) if plain else None)
            if plain and best / plain - 1 <= PAYS and switch not in paying:
                paying.append(switch)
        table.append((*cells, sum(not isinstance(row[switch], int) for row in rows.values())))
    count = sum(is_c.values())
    return Result(
        benchmark="pass_switches",
        question="Which of LLVM's switches for passes make modules smaller, where each module may choose?",
        answer=f"by {-100 * PAYS:g} % and more, in C or in C++: {', '.join(paying) or 'none'}; over {count} modules of "
        f"C and {len(rows) - count} of C++",
        seed=config.seed,
        tables=(
            Table(
                title="Change of objects",
                columns=(
                    "switch",
                    "C, everywhere",
                    "C, where it pays",
                    "C++, everywhere",
                    "C++, where it pays",
                    "failed",
                ),
                rows=tuple(table),
                note="Code, read-only data and unwind tables of the object of each module, summed; what the linker "
                "merges or drops is not in it. Where it pays: the smaller of both objects of each module.",
            ),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
