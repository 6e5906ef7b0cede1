"""How well the native size of a function follows from counts of its IR, on projects that no model was fitted on."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from results import Cell, Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions

from mlgokit.algorithms.config import SizeModelConfig
from mlgokit.algorithms.ir2native import fit_size_model
from mlgokit.algorithms.size_model import SizeErrors, base_bytes, predict_bytes, size_errors
from mlgokit.compiler.compile import compile_module
from mlgokit.compiler.describe import DescribeAt, describe_module
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError
from mlgokit.module import Module
from mlgokit.progress import Report

STAGES = {DescribeAt.END: "after the last pass", DescribeAt.START: "before any pass"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ir2Native:
    """Fit native-size models on the training projects of a corpus, and report their errors on the held-out ones."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    modules: int = 0
    """Modules drawn from all projects; 0 for all."""
    seed: int = 1
    """Of the draw and of the fit."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/ir2native.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """Functions with their counts and sizes; N of them, C columns.

    Attributes:
        columns: [C] names.
        values: [N, C] counts of IR.
        sizes: [N] bytes of machine code under plain ``-Oz``.
        projects: [N] whose they are.
        identities: [N] equal ones have the same body.
        held_out: [N] kept out of the fit.
        unmatched: functions of objects that no description had.
    """

    columns: tuple[str, ...]
    values: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    projects: npt.NDArray[np.str_]
    identities: npt.NDArray[np.str_]
    held_out: npt.NDArray[np.bool_]
    unmatched: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_benchmark(Ir2Native, measure, arguments)


def measure(config: Ir2Native, report: Report) -> Result:
    """Describe and compile the modules, fit, and compare."""
    corpus = load_corpus(config.corpus)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    plugin, versions = build_plugin(toolchain), tool_versions(toolchain)
    rng = np.random.default_rng(config.seed)
    modules = draw_modules(corpus.modules, config.modules, rng)
    gathered = gather(modules, toolchain, plugin, timeout_seconds=config.timeout_seconds, report=report)
    rows: list[tuple[Cell, ...]] = []
    unseen: dict[DescribeAt, SizeErrors] = {}
    for at, functions in gathered.items():
        found, unseen[at] = compare(functions, config.seed)
        rows += [(STAGES[at], *row) for row in found]
    end = gathered[DescribeAt.END]
    note = (
        f"{len(end.sizes)} functions of {len(modules)} modules; {end.unmatched} functions of objects are in none. "
        "A function is unseen if no training function has the same body. An error is relative to the size; of "
        "projects: the mean error of the sum of a project's functions."
    )
    return Result(
        benchmark="ir2native",
        question="How well does a function's size in machine code follow from counts of its IR, on unseen projects?",
        answer=(
            "Median relative error over unseen functions of held-out projects: "
            f"{unseen[DescribeAt.END].median:.1%} from IR after the passes, "
            f"{unseen[DescribeAt.START].median:.1%} from IR before them"
        ),
        seed=config.seed,
        versions=versions,
        inputs=corpus_inputs(corpus),
        tables=(
            Table(
                title="Errors",
                columns=(
                    "IR",
                    "model",
                    "functions of",
                    "number",
                    "median",
                    "90 % below",
                    "of all bytes",
                    "of projects",
                ),
                rows=tuple(rows),
                note=note,
            ),
        ),
    )


def gather(
    modules: Sequence[Module], toolchain: Toolchain, plugin: Path, *, timeout_seconds: float, report: Report
) -> dict[DescribeAt, Functions]:
    """Functions of all modules with both kinds of counts; modules that do not compile are left out.

    Raises:
        CorpusError: no function is left.
    """
    parts: dict[DescribeAt, list[Functions]] = {at: [] for at in STAGES}
    for index, module in enumerate(modules):
        report(index, len(modules), "describe and compile")
        built = compile_module(toolchain, module.command_line, module.bitcode, timeout_seconds=timeout_seconds)
        if built.sizes is None:
            continue
        size_of = dict(zip(built.sizes.function_names, built.sizes.function_text.tolist(), strict=True))
        for at, found in parts.items():
            description = describe_module(
                toolchain, plugin, module.bitcode,
                command_line=module.command_line, at=at, timeout_seconds=timeout_seconds,
            )  # fmt: skip
            kept = [row for row, name in enumerate(description.names) if size_of.get(name, 0) > 0]
            if kept:
                found.append(
                    Functions(
                        columns=description.columns,
                        values=description.values[kept],
                        sizes=np.array([size_of[description.names[row]] for row in kept], np.int64),
                        projects=np.array([module.project] * len(kept)),
                        identities=np.array([description.identities[row] for row in kept]),
                        held_out=np.full(len(kept), module.held_out),
                        unmatched=len(size_of) - len(kept),
                    )
                )
    report(len(modules), len(modules), "describe and compile")
    if not all(parts.values()):
        raise CorpusError("ir2native: expected functions with a size, found none; give a corpus that compiles")
    return {at: joined(found) for at, found in parts.items()}


def joined(parts: Sequence[Functions]) -> Functions:
    """All in one; they come from one compiler, so that their columns are the same."""
    return Functions(
        columns=parts[0].columns,
        values=np.concatenate([part.values for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        projects=np.concatenate([part.projects for part in parts]),
        identities=np.concatenate([part.identities for part in parts]),
        held_out=np.concatenate([part.held_out for part in parts]),
        unmatched=sum(part.unmatched for part in parts),
    )


def compare(functions: Functions, seed: int) -> tuple[list[tuple[Cell, ...]], SizeErrors]:
    """Rows of errors for two models, and the errors of the fitted one on unseen functions.

    Raises:
        CorpusError: one side of the split has no function.
    """
    training = ~functions.held_out
    unseen = functions.held_out & ~np.isin(functions.identities, functions.identities[training])
    if not training.any() or not unseen.any():
        raise CorpusError("ir2native: expected functions on both sides, found one empty; split the corpus first")
    counts, sizes = functions.values, functions.sizes
    flat = base_bytes(functions.columns, counts.astype(np.float64))
    model = fit_size_model(
        functions.columns, counts[training], sizes[training], SizeModelConfig(), rng=np.random.default_rng(seed)
    )
    predictions = {
        "same bytes for each instruction": flat * np.median(sizes[training] / flat[training]),
        "networks": predict_bytes(model, functions.columns, counts),
    }
    groups = {"training projects": training, "held-out projects": functions.held_out, "them, unseen": unseen}
    rows: list[tuple[Cell, ...]] = []
    errors: list[SizeErrors] = []
    for name, predicted in predictions.items():
        for group, chosen in groups.items():
            found = size_errors(predicted[chosen], sizes[chosen], functions.projects[chosen].tolist())
            errors.append(found)
            rows.append((name, group, found.functions, found.median, found.p90, found.of_bytes, found.of_groups))
    return rows, errors[-1]


if __name__ == "__main__":
    sys.exit(main())
