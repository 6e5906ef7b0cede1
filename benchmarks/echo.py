"""Echoing the heuristic through the plugin gives the objects of plain ``-Oz``, save for LLVM's own growth stop.

LLVM's ``MLInlineAdvisor``, which the plugin derives from, stops inlining when a module has grown beyond a factor of its
first size (``-ml-advisor-size-increase-threshold``, 2 by default); the plain advisor has no such stop.
"""

import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from results import Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions

from mlgokit.compiler.compile import HEURISTIC, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report

NO_GROWTH_STOP = ("-mllvm", "-ml-advisor-size-increase-threshold=1000000")


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoCheck:
    """Compile the corpus plainly and with the heuristic echoed by the plugin, and explain every difference."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    modules: int = 0
    """Modules drawn from all projects; 0 for all."""
    workers: int = 2
    """Compilers that run at once."""
    seed: int = 1
    """Of the draw."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/echo.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One object: llvm-size's text in bytes and the digest of the file, or why there is none."""

    text: int = 0
    digest: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Echoed:
    """The builds of one module.

    Attributes:
        name: of the module.
        project: its project.
        plain: without the plugin.
        echo: the heuristic echoed.
        unstopped: echoed without LLVM's growth stop; only where ``echo`` differs from ``plain``.
    """

    name: str
    project: str
    plain: Built
    echo: Built
    unstopped: Built | None = None

    @property
    def failure(self) -> str:
        """Why the module cannot be compared, or empty."""
        return self.plain.failure or self.echo.failure

    @property
    def differs(self) -> bool:
        """Whether echoing gave another object."""
        return not self.failure and self.plain.digest != self.echo.digest

    @property
    def is_growth_stop(self) -> bool:
        """Whether the difference is gone when LLVM's growth stop is off."""
        return self.unstopped is not None and self.unstopped.digest == self.plain.digest


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(EchoCheck, measure, arguments)


def measure(config: EchoCheck, report: Report) -> Result:
    """Build every module twice, and those that differ a third time."""
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    found = tool_versions(toolchain)
    corpus = load_corpus(config.corpus)
    use = PluginUse(plugin=build_plugin(toolchain), policies={INLINE_SIZE.name: HEURISTIC})
    drawn = draw_modules(corpus.modules, config.modules, np.random.default_rng(config.seed))

    def build(module: Module, use: PluginUse | None, options: tuple[str, ...] = ()) -> Built:
        return build_object(toolchain, module, use, options, timeout_seconds=config.timeout_seconds)

    def work(module: Module) -> Echoed:
        pair = Echoed(name=module.name, project=module.project, plain=build(module, None), echo=build(module, use))
        if not pair.differs:
            return pair
        return Echoed(
            name=pair.name,
            project=pair.project,
            plain=pair.plain,
            echo=pair.echo,
            unstopped=build(module, use, NO_GROWTH_STOP),
        )

    modules = parallel(work, drawn, workers=config.workers, report=report, label="echo")
    return summarise(modules, seed=config.seed, versions=found, inputs=corpus_inputs(corpus))


def build_object(
    toolchain: Toolchain, module: Module, use: PluginUse | None, options: tuple[str, ...], *, timeout_seconds: float
) -> Built:
    """Compile one module with additional ``options``."""
    with tempfile.TemporaryDirectory(prefix="mlgokit-echo-") as scratch:
        output = Path(scratch) / "module.o"
        done = compile_module(
            toolchain,
            (*module.command_line, *options),
            module.bitcode,
            use=use,
            keep_object=output,
            timeout_seconds=timeout_seconds,
        )
        if done.status is not CompileStatus.OK or done.sizes is None:
            return Built(failure=f"{done.status.value}: {done.reason}")
        return Built(text=done.sizes.llvm_size_text, digest=hashlib.sha256(output.read_bytes()).hexdigest())


def summarise(modules: Sequence[Echoed], *, seed: int, versions: dict[str, str], inputs: dict[str, str]) -> Result:
    """Count what is equal, and list what is not.

    Raises:
        CorpusError: no module compiled.
    """
    compared = [module for module in modules if not module.failure]
    failed = [module for module in modules if module.failure]
    if not compared:
        raise CorpusError(
            f"echo: expected modules that compile, found none of {len(modules)} "
            f"({failed[0].failure if failed else 'no module'}); use a corpus that this LLVM can read"
        )
    different = [module for module in compared if module.differs]
    stopped = [module for module in different if module.is_growth_stop]
    before, after = sum(module.plain.text for module in compared), sum(module.echo.text for module in compared)
    tables = [
        Table(
            title="All modules",
            columns=("what", "modules", "text plain (bytes)", "text echoed (bytes)", "change (%)"),
            rows=tuple(
                (
                    title,
                    len(chosen),
                    sum(module.plain.text for module in chosen),
                    sum(module.echo.text for module in chosen),
                    100 * _change(chosen),
                )
                for title, chosen in (
                    ("all", compared),
                    ("the same object, byte for byte", [module for module in compared if not module.differs]),
                    ("another object", different),
                    ("another object, and LLVM's growth stop is why", stopped),
                )
            ),
            note=(
                "A difference is LLVM's growth stop if compiling with "
                f"`{' '.join(NO_GROWTH_STOP)}` gives the object of plain -Oz, byte for byte."
            ),
        )
    ]
    if different:
        tables.append(
            Table(
                title="Modules that differ",
                columns=("module", "text plain", "text echoed", "difference", "echoed without the growth stop", "same"),
                rows=tuple(
                    (
                        module.name, module.plain.text, module.echo.text, module.echo.text - module.plain.text,
                        module.unstopped.text if module.unstopped else None, "yes" if module.is_growth_stop else "no",
                    )
                    for module in different
                ),
            )
        )  # fmt: skip
    if failed:
        rows = tuple((module.name, module.failure) for module in failed)
        tables.append(Table(title="Modules left out", columns=("module", "reason"), rows=rows))
    return Result(
        benchmark="echo",
        question="Does echoing the heuristic through the plugin give the objects of plain -Oz?",
        answer=(
            f"{len(compared) - len(different)} of {len(compared)} objects are the same byte for byte; {len(stopped)} "
            f"of the {len(different)} others are LLVM's growth stop; text of all objects {before} -> {after} bytes "
            f"({after - before:+d}, {after / before - 1:+.3%})"
        ),
        bar="every difference is LLVM's growth stop",
        passed=len(stopped) == len(different),
        seed=seed,
        versions=versions,
        inputs=inputs,
        tables=tuple(tables),
    )


def _change(modules: Sequence[Echoed]) -> float:
    before = sum(module.plain.text for module in modules)
    return sum(module.echo.text for module in modules) / before - 1 if before else 0.0


if __name__ == "__main__":
    sys.exit(main())
