"""What it costs to know results by content, and to compile a hundredth of the recalled ones again."""

import contextlib
import dataclasses
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, draw_modules, run_benchmark
from results import Cell, Result, Table

from mlgokit.compiler.caching import open_caching
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.inputs import module_facts
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.recheck import SHARE, Recheck
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.errors import CorpusError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckCost:
    """Fill a store and recall from it, and compile as a search does, with and without the check."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    modules: int = 100
    """Modules drawn from all projects; 0 for all."""
    repetitions: int = 6
    """How often each module is recalled, and compiled as a search does."""
    seed: int = 1
    """Of the draws."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/recheck.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(RecheckCost, measure, arguments)


def measure(config: RecheckCost, setup: Setup) -> Result:
    """Time everything in turns.

    Raises:
        CorpusError: no module compiles.
    """
    toolchain = setup.toolchain(config.llvm)
    corpus = setup.corpus(config.corpus)
    clang = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain))
    looks = [_timed(lambda: clang.loaded) for _ in range(6)]
    drawn = draw_modules(corpus.modules, config.modules, np.random.default_rng(config.seed))
    asked = CompileRequest(use=PluginUse(policies={INLINE_SIZE.name: HEURISTIC}, logs=(INLINE_SIZE.name,)))
    with tempfile.TemporaryDirectory(prefix="mlgokit-recheck-") as scratch:
        store = Path(scratch)
        filling = open_caching(clang, store)
        made: list[float] = []
        modules: list[Module] = []
        for index, module in enumerate(drawn):
            setup.report(index, len(drawn), "fill the store")
            begin = time.perf_counter()
            if filling.compile(module, asked).ok:
                modules.append(module)
                made.append(time.perf_counter() - begin)
        if not modules:
            raise CorpusError(f"{config.corpus}: expected modules that compile, found none; check the corpus")
        keys = _in_turns(setup, "keys", modules, config.repetitions, {"key": module_facts})
        without = open_caching(clang, store)
        checking = open_caching(clang, store, recheck=Recheck(share=1.0, seed=config.seed))
        recalled = _in_turns(
            setup,
            "recall",
            modules,
            config.repetitions,
            {
                "without": lambda module: without.compile(module, asked),
                "with": lambda module: checking.compile(module, asked),
            },
        )
    searched = _search(config, setup, clang, modules)
    times = {
        "key": keys["key"],
        **{f"recall {name}": one for name, one in recalled.items()},
        **{f"search {name}": one for name, one in searched.items()},
    }
    return _result(config, looks, made, times)


def _search(config: RecheckCost, setup: Setup, clang: ClangCompiler, modules: Sequence[Module]) -> dict[str, float]:
    """Seconds in which all modules are compiled as a search does, each by a seed of its own."""

    def request(number: int) -> CompileRequest:
        use = PluginUse(
            policies={INLINE_SIZE.name: HEURISTIC}, logs=(INLINE_SIZE.name,), seed=number, flip_probability=0.01
        )
        return CompileRequest(use=use, reuse=True)

    compilers = {
        name: dataclasses.replace(
            clang, residents=Residents(), known={}, recheck=Recheck(share=share, seed=config.seed)
        )
        for name, share in (("without", 0.0), ("with", 1.0))
    }
    with contextlib.ExitStack() as stack:
        for compiler in compilers.values():
            stack.callback(compiler.close)
        seconds = dict.fromkeys(compilers, 0.0)
        for index, module in enumerate(modules):
            setup.report(index, len(modules), "compile as a search does")
            for number in range(config.repetitions):
                for name, compiler in compilers.items():
                    seconds[name] += _timed(functools.partial(compiler.compile, module, request(number)))
            for compiler in compilers.values():
                compiler.close()
    return seconds


def _in_turns(
    setup: Setup,
    label: str,
    modules: Sequence[Module],
    repetitions: int,
    works: dict[str, Callable[[Module], object]],
) -> dict[str, float]:
    seconds = dict.fromkeys(works, 0.0)
    for number in range(repetitions):
        setup.report(number, repetitions, label)
        for module in modules:
            for name, work in works.items():
                seconds[name] += _timed(lambda module=module, work=work: work(module))
    return seconds


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _result(config: RecheckCost, looks: Sequence[float], made: Sequence[float], times: dict[str, float]) -> Result:
    count = config.repetitions * len(made)
    one_made = sum(made) / len(made)
    each = {name: 1000 * seconds / count for name, seconds in times.items()}
    of_made = SHARE * (each["recall with"] - each["recall without"]) / (1000 * one_made)
    of_search = SHARE * (each["search with"] / each["search without"] - 1)
    rows: list[tuple[Cell, ...]] = [
        ("see what clang loads, first time in a process", 1000 * looks[0]),
        ("see it again", 1000 * float(np.median(looks[1:]))),
        ("digests of a module's files, known by their time stamps", each["key"]),
        ("compile a module", 1000 * one_made),
        ("recall it", each["recall without"]),
        ("recall it, and check it", each["recall with"]),
        ("compile it as a search does", each["search without"]),
        ("compile it as a search does, and check it", each["search with"]),
    ]
    return Result(
        benchmark="recheck",
        question="What does it cost to know results by content, and to check a hundredth of what is recalled?",
        answer=(
            f"The check costs {of_made:.1%} of the compilations that a store saves, and a search "
            f"{of_search:.1%} of its time; a key costs {each['key']:.2f} ms, and a command {looks[0]:.2f} s once."
        ),
        seed=config.seed,
        tables=(
            Table(
                title=f"Mean wall time, {len(made)} modules, {config.repetitions} times each",
                columns=("what", "ms"),
                rows=tuple(rows),
                note="A search is imitated by drawn flips (one decision in a hundred) with resident compilers and "
                "known functions. What is checked here is everything; the answer is about a hundredth of that.",
            ),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
