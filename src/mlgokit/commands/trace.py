"""The command that writes training logs and scores of modules."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from mlgokit.basic import Basic
from mlgokit.builds.compilers import clang_for
from mlgokit.builds.workspace import claim_folder, open_workspace
from mlgokit.commands.options import COMPILER, NO_CHANGES, NO_CLUSTER, Changes, Clustering, Compiling, ProblemName
from mlgokit.compiler.development import DevelopmentCompiler
from mlgokit.compiler.request import HEURISTIC
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.build_notes import warn_about_levels
from mlgokit.corpus.corpus import load_corpus
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

    corpus: Annotated[Path, Basic.INPUT] = Path("quickstart/corpus")
    """Folder of the corpus."""
    output: Annotated[Path, Basic.RESULT] = Path("quickstart/trace")
    """Folder for the logs, traces.json and performance.csv."""
    problem: Annotated[ProblemName, Basic.WORK] = INLINE_SIZE.name
    """Optimization problem whose decisions are traced."""
    policy: Annotated[str, Basic.WORK] = HEURISTIC
    """Policy file, or a rule such as :never or :random, that decides; :default is LLVM's heuristic."""
    development: bool = False
    """Use a clang built with TFLite (LLVM's development mode), which writes the logs itself; --policy is then a folder
    with a model (`mlgokit export tflite`), or :default."""
    sampling_rate: Annotated[float, Basic.WORK] = 1.0
    """Share of the modules to compile, drawn at random."""
    seed: int = 1
    """Random seed by which the modules are drawn."""
    module_filter: Annotated[str, Basic.WORK] = ""
    """Regular expression that the names of modules must match from their first character."""
    key_filter: str = ""
    """Regular expression that the keys of the CSV and TFRecord files must match: functions (register allocation) or
    modules (inlining)."""
    keys_file: Path | None = None
    """File with the keys to write into the CSV and TFRecord files (names of functions or modules), one on each line."""
    tfrecord: Annotated[Path | None, Basic.RESULT] = None
    """TFRecord file for all observations, as SequenceExamples with the names of google/ml-compiler-opt."""
    performance: Path | None = None
    """CSV file for the scores of modules and functions; <output>/performance.csv if not given."""
    store: Path | None = None
    """Folder of finished compilations, which are not repeated; <output>/store if not given."""
    shared_store: str = ""
    """Folder or fsspec URL (s3://, gs://, sftp://) of finished compilations shared by several runs and users, consulted
    after the store. Everybody who can write to it is trusted."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    cluster: Clustering = NO_CLUSTER
    """Cluster that compiles in place of this machine."""
    changes: Changes = NO_CHANGES
    """Changes of the options of clang -cc1 in the command lines of all modules."""


def run(config: Trace, *, report: Report = say_nothing) -> dict[str, Any]:
    """Write training logs, ``performance.csv``, and ``traces.json`` with what became of each module.

    Raises:
        BusyError: another process works in the output folder, or changes the corpus.
        UsageError: the policy is none of the problem, or the development mode is asked for on a cluster.
    """
    problem = PROBLEMS[config.problem]
    selection = tracing.select(
        modules=config.module_filter,
        keys=config.key_filter,
        keys_file=config.keys_file,
        share=config.sampling_rate,
        seed=config.seed,
    )
    if config.development:
        if config.cluster.scheduler is not None or config.shared_store:
            raise UsageError(
                "--development: cannot be combined with --scheduler and --shared-store, as this clang compiles here, "
                "and its logs are not kept in a store; remove one"
            )
        return _trace_development(config, problem, selection, report)
    policy, identity = _policy(config.policy, problem)
    edits = config.changes.edits()
    with open_workspace(
        config.output,
        corpus=config.corpus,
        compiler=config.compiler,
        edits=edits,
        store=config.store,
        shared_store=config.shared_store,
        cluster=config.cluster,
        report=report,
    ) as (corpus, compiler):
        modules = selection.draw(corpus.modules)
        if problem is INLINE_SIZE:
            warn_about_levels(modules, report)
        settings = {"problem": problem.name, "policy": identity, "module_filter": config.module_filter}
        settings |= {"sampling_rate": config.sampling_rate, "seed": config.seed}
        claim_folder(
            config.output, kind="trace", config=settings, edits=edits, compiler=compiler, corpus=corpus, modules=modules
        )
        traces = tracing.trace_modules(
            compiler, modules, problem, policy=policy, folder=config.output / "logs", report=report
        )
        return _write(config, problem, selection, traces)


def _policy(name: str, problem: Problem) -> tuple[str, str]:
    """The policy file or rule that decides, and its identity for the manifest."""
    if not name.startswith(":"):
        path = policy_file(name)
        load_policy(path, problem=problem.name)
        return str(path), digest_file(path)
    if name not in problem.rules:
        rules = ", ".join(problem.rules)
        raise UsageError(f"policy {name}: expected a file or {rules} for {problem.name}; correct the name")
    return name, name


def _trace_development(config: Trace, problem: Problem, selection: tracing.Selection, report: Report) -> dict[str, Any]:
    """Trace by LLVM's own development mode; there is no store, as this clang writes other logs."""
    with locked(config.output), reading(config.corpus):
        edits = config.changes.edits()
        corpus = load_corpus(config.corpus, edits)
        modules = selection.draw(corpus.modules)
        clang = clang_for(
            config.compiler,
            find_toolchain(config.compiler.llvm),
            corpus=config.corpus,
            folder=config.output,
            files=edits.files,
            report=report,
        )
        compiler = DevelopmentCompiler(clang=clang)
        settings = {"problem": problem.name, "policy": config.policy, "development": True}
        claim_folder(
            config.output, kind="trace", config=settings, edits=edits, compiler=compiler, corpus=corpus, modules=modules
        )
        folder = config.output / "logs"
        traces = tracing.trace_modules(
            compiler, modules, problem, policy=config.policy, folder=folder, report=report, regalloc=False
        )
        return _write(config, problem, selection, traces)


def _write(
    config: Trace, problem: Problem, selection: tracing.Selection, traces: Sequence[tracing.ModuleTrace]
) -> dict[str, Any]:
    """Write scores, summary and training set of what was traced."""
    logs = config.output / "logs"
    written: dict[str, Any] = {}
    if config.tfrecord is not None:
        count = tracing.write_training_set(config.tfrecord, traces, problem, folder=logs, selection=selection)
        written["written_observations"] = count
    scores = config.performance or config.output / tracing.PERFORMANCE
    written["scored_keys"] = tracing.write_performance(scores, traces, selection)
    tracing.write_summary(config.output / "traces.json", traces, problem)
    return {"folder": str(config.output), "problem": problem.name, **tracing.outcome(traces), **written}
