"""How much sooner is a trial of a function done in a compiler with large pages of memory?"""

import contextlib
import dataclasses
import os
import tomllib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tuning_rust
from harness import Setup, check_names, run_benchmark
from results import Cell, Result, Table, quartiles
from timing import spent

from mlgokit.commands.tune import Tune
from mlgokit.commands.tune_cargo import open_cargo
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.trials import IMAGE_BYTES, SPILL_COST, TRIAL, Overrides, Series, Stage
from mlgokit.errors import UsageError
from mlgokit.learning.from_trials import compile_trials
from mlgokit.learning.live_range_trials import ask_ranges
from mlgokit.module import Module
from mlgokit.problems import REGALLOC_PRIORITY
from mlgokit.progress import Report

_PAGES = {"small": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0", "MALLOC_CONF": "thp:never"}, "large": {}}
"""What is said to the allocator; what a user says, as here of small pages, is left alone."""
WithSettings = Callable[[Mapping[str, str]], AbstractContextManager[Compiler]]
_FLIPS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpeed:
    """Try drawn allocations of functions of one module, with large pages and with small ones in turns."""

    corpus: Path | None = None
    """A corpus, whose module with most bitcode is tried."""
    programs: tuple[str, ...] = ()
    """Rust programs of tuning_rust.toml that are tried too."""
    sources: Path = Path("build/rust-sources")
    """As of tuning_rust."""
    registry: Path = Path("/usr/share/cargo/registry")
    """As of tuning_rust."""
    folder: Path = Path("build/trial-speed")
    """Where copies of the programs are built."""
    functions: int = 300
    """How many functions of each module, the first of it."""
    trials: int = 4
    """Trials of each function."""
    repetitions: int = 5
    """Compilations with each kind of pages."""
    llvm: int | None = None
    """LLVM major for the corpus; the newest supported one if not given."""
    json: Path = Path("docs/results/trial_speed.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TrialSpeed, measure, arguments)


def measure(config: TrialSpeed, setup: Setup) -> Result:
    """Time trials.

    Raises:
        UsageError: nothing to try is named, or a trial fails.
    """
    if config.corpus is None and not config.programs:
        raise UsageError("trial_speed: expected --corpus or --programs, found neither; name one")
    rows = [] if config.corpus is None else [_clang_row(config, config.corpus, setup)]
    known = {one["name"]: one for one in tomllib.loads(tuning_rust.MANIFEST.read_text())["program"]}
    check_names("programs", config.programs, known)
    rows += [_rust_row(config, known[name], setup) for name in config.programs]
    columns = ("module", "trials", "small pages, ms", "large pages, ms", "large over small", "quartile", "quartile")
    return Result(
        benchmark="trial_speed",
        question="How much sooner is a trial of a function done in a compiler with large pages of memory?",
        answer="; ".join(f"{row[0]}: {row[4]:.2f} times as long in large pages" for row in rows),
        seed=0,
        tables=(
            Table(
                title="Trials",
                columns=columns,
                rows=tuple(rows),
                note=(
                    "Each trial allocates the registers of one function in a copy of the compiler, and makes its code; "
                    "a tenth of the priorities are drawn. Milliseconds of processor time, user and system mode, that a "
                    "compilation with trials takes more than one without, for each trial, in the median. Ratios are of "
                    "compilations one after the other, the median and both quartiles."
                ),
            ),
        ),
    )


def _clang_row(config: TrialSpeed, corpus: Path, setup: Setup) -> tuple[Cell, ...]:
    toolchain = setup.toolchain(config.llvm)
    module = max(setup.corpus(corpus).modules, key=lambda one: one.bitcode_bytes)
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), workers=1)

    @contextlib.contextmanager
    def with_settings(settings: Mapping[str, str]) -> Generator[Compiler]:
        before = dict(os.environ)
        os.environ.update(settings)
        try:
            yield compiler
        finally:
            os.environ.clear()
            os.environ.update(before)

    return _row(config, module, with_settings, setup.report)


def _rust_row(config: TrialSpeed, program: dict[str, Any], setup: Setup) -> tuple[Cell, ...]:
    folder = (config.folder / program["name"]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    how = Tune(
        link_folder=tuning_rust.copied(program, config.folder, registry=config.registry, sources=config.sources),
        folder=folder / "tune",
    )
    how.folder.mkdir(exist_ok=True)
    words = tuning_rust.cargo_words(program)
    opened = open_cargo(how, words, settings=tuning_rust.PROFILE, report=setup.report)
    setup.tools["rustc"] = opened.compiler.rustc.version
    module = opened.modules[0]
    call = opened.compiler.calls[module.name]

    @contextlib.contextmanager
    def with_settings(settings: Mapping[str, str]) -> Generator[Compiler]:
        changed = dataclasses.replace(call, environment={**call.environment, **settings})
        yield dataclasses.replace(opened.compiler, calls={module.name: changed}, residents=None, known=None)

    return _row(config, module, with_settings, setup.report)


def _row(config: TrialSpeed, module: Module, with_settings: WithSettings, report: Report) -> tuple[Cell, ...]:
    with with_settings({}) as compiler:
        _, asked = ask_ranges(compiler, module, REGALLOC_PRIORITY, rows=1, seed=0)
    if asked is None:
        raise UsageError(f"{module.name}: expected live ranges with a choice, found none; name another module")
    trials = np.zeros(config.trials, TRIAL)
    trials["priority_flips"], trials["seed"] = _FLIPS, np.arange(config.trials)
    series = [Series(key=key, base=Overrides(), score=-np.inf, trials=trials) for key in asked.keys[: config.functions]]
    found = {name: np.zeros(config.repetitions) for name in _PAGES}
    for turn in range(config.repetitions):
        report(turn, config.repetitions, module.name)
        for name, settings in _PAGES.items():
            with with_settings(settings) as compiler:
                without, _ = spent()
                compile_trials(compiler, module, REGALLOC_PRIORITY, [], stage=Stage.REGISTERS, weights=SPILL_COST)
                before, _ = spent()
                done = compile_trials(
                    compiler, module, REGALLOC_PRIORITY, series, stage=Stage.REGISTERS, weights=IMAGE_BYTES
                )
                after, _ = spent()
            if not done.ok:
                raise UsageError(f"{module.name}: expected trials, found {done.status.value}: {done.reason}")
            found[name][turn] = ((after - before) - (before - without)) / (len(series) * config.trials)
    small, large = (1000 * found[name] for name in ("small", "large"))
    low, middle, high = quartiles(large / small)
    return module.name, len(series) * config.trials, float(np.median(small)), float(np.median(large)), middle, low, high


if __name__ == "__main__":
    raise SystemExit(main())
