"""The command that keeps the training logs and scores of modules."""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.builds.compilers import clang_for, open_compiler
from mlgokit.commands.options import COMPILER, NO_CHANGES, NO_CLUSTER, Changes, Clustering, Compiling, ProblemName
from mlgokit.commands.workplace import claim_folder, open_workshop
from mlgokit.compiler.development import DevelopmentCompiler
from mlgokit.compiler.request import HEURISTIC
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.build_notes import tell_levels
from mlgokit.corpus.corpus import load_measurable
from mlgokit.errors import UsageError
from mlgokit.files import digest_file
from mlgokit.learning import trace as tracing
from mlgokit.locks import locked, reading
from mlgokit.policy.pretrained import policy_file
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE, PROBLEMS, Problem
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Compile modules under LLVM's own heuristic, or a policy, and keep their training logs and scores."""

    corpus: Path = Path("quickstart/corpus")
    """Folder of the corpus."""
    output: Path = Path("quickstart/trace")
    """Folder for the logs, traces.json and performance.csv."""
    problem: ProblemName = INLINE_SIZE.name
    """Optimization problem whose decisions are traced."""
    policy: str = HEURISTIC
    """Policy file, or a rule such as :never or :random, that decides; :default is LLVM's heuristic."""
    development: bool = False
    """Use of a clang that was built with TFLite, which writes the logs itself; --policy is a folder with a model then
    (`mlgokit export tflite`), or :default."""
    sampling_rate: float = 1.0
    """Share of the modules that is compiled, drawn at random."""
    seed: int = 1
    """Random seed of the draw."""
    module_filter: str = ""
    """Regular expression that the names of modules must match from their first character."""
    key_filter: str = ""
    """Regular expression that the keys of the CSV and TFRecord files must match: functions (register allocation) or
    modules (inlining)."""
    keys_file: Path | None = None
    """File that lists the keys to write, one on each line."""
    tfrecord: Path | None = None
    """TFRecord file for all observations, as SequenceExamples with the names of google/ml-compiler-opt."""
    store: Path | None = None
    """Folder of finished compilations, which are not repeated; <output>/store if not given."""
    shared_store: str = ""
    """Folder or URL (s3://, gs://, sftp://, as fsspec knows them) of finished compilations that several runs and users
    share, behind the store; those that write to it are trusted."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    cluster: Clustering = NO_CLUSTER
    """Cluster that compiles in place of this machine."""
    changes: Changes = NO_CHANGES
    """Changes of the options of clang -cc1 in all command lines; each may be repeated."""


def run(config: Trace, *, report: Report = say_nothing) -> dict[str, Any]:
    """Write training logs, ``performance.csv``, and ``traces.json`` with what became of each module.

    Raises:
        BusyError: another process works in the output folder, or changes the corpus.
    """
    with locked(config.output), reading(config.corpus), contextlib.ExitStack() as stack:
        return _trace(config, stack, report)


def _trace(config: Trace, stack: contextlib.ExitStack, report: Report) -> dict[str, Any]:
    problem = PROBLEMS[config.problem]
    selection = tracing.select(
        modules=config.module_filter,
        keys=config.key_filter,
        keys_file=config.keys_file,
        share=config.sampling_rate,
        seed=config.seed,
    )
    if config.development:
        return _trace_development(config, problem, selection, report)
    policy = config.policy
    if not policy.startswith(":"):
        config = dataclasses.replace(config, policy=str(policy_file(policy)))
        load_policy(Path(config.policy), problem=problem.name)
        policy = digest_file(Path(config.policy))
    elif policy not in problem.rules:
        rules = ", ".join(problem.rules)
        raise UsageError(f"policy {policy}: expected a file or {rules} for {problem.name}; correct the name")
    edits = config.changes.edits()
    corpus = load_measurable(config.corpus, edits)
    modules = selection.draw(corpus.modules)
    if problem is INLINE_SIZE:
        tell_levels(modules, report)
    clang = open_compiler(config.compiler, corpus=config.corpus, folder=config.output, files=edits.files, report=report)
    store = config.store or config.output / "store"
    compiler = stack.enter_context(
        contextlib.closing(
            open_workshop(
                clang, config.compiler, store, cluster=config.cluster, shared=config.shared_store, report=report
            )
        )
    )
    settings = {"problem": problem.name, "policy": policy, "module_filter": config.module_filter}
    settings |= {"sampling_rate": config.sampling_rate, "seed": config.seed}
    claim_folder(
        config.output, kind="trace", config=settings, edits=edits, workshop=compiler, corpus=corpus, modules=modules
    )
    traces = tracing.trace_modules(
        compiler, modules, problem, policy=config.policy, folder=config.output / "logs", report=report
    )
    return _written(config, problem, selection, traces)


def _trace_development(config: Trace, problem: Problem, selection: tracing.Selection, report: Report) -> dict[str, Any]:
    """The same by LLVM's own development mode; nothing is remembered between runs, as it writes other logs."""
    edits = config.changes.edits()
    corpus = load_measurable(config.corpus, edits)
    modules = selection.draw(corpus.modules)
    toolchain = find_toolchain(config.compiler.llvm)
    clang = clang_for(
        config.compiler, toolchain, corpus=config.corpus, folder=config.output, files=edits.files, report=report
    )
    compiler = DevelopmentCompiler(clang=clang)
    settings = {"problem": problem.name, "policy": config.policy, "development": True}
    claim_folder(
        config.output, kind="trace", config=settings, edits=edits, workshop=compiler, corpus=corpus, modules=modules
    )
    traces = tracing.trace_modules(
        compiler, modules, problem, policy=config.policy, folder=config.output / "logs", report=report, regalloc=False
    )
    return _written(config, problem, selection, traces)


def _written(
    config: Trace, problem: Problem, selection: tracing.Selection, traces: Sequence[tracing.ModuleTrace]
) -> dict[str, Any]:
    """Write what was traced, beside the logs."""
    logs = config.output / "logs"
    written: dict[str, Any] = {}
    if config.tfrecord is not None:
        count = tracing.write_training_set(config.tfrecord, traces, problem, folder=logs, selection=selection)
        written["written_observations"] = count
    written["scored_keys"] = tracing.write_performance(config.output / tracing.PERFORMANCE, traces, selection)
    tracing.write_summary(config.output / "traces.json", traces, problem)
    return {"folder": str(config.output), "problem": problem.name, **tracing.outcome(traces), **written}
