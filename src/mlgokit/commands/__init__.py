"""The stages that a user runs: one frozen configuration and one function each, a folder with a manifest in between.

A configuration's comments are the help of the command line (:mod:`mlgokit.cli`).
"""

import dataclasses
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from mlgokit.algorithms.config import CloningConfig
from mlgokit.collect import Workshop, open_workshop
from mlgokit.commands.builds import (
    Combine as Combine,
    Import as Import,
    Record as Record,
    combine as combine,
    import_build as import_build,
    record as record,
)
from mlgokit.commands.changes import NO_CHANGES, Changes, OptionChanges as OptionChanges
from mlgokit.commands.checking import Check as Check, check as check
from mlgokit.commands.corpora import (
    Extract as Extract,
    Info as Info,
    Sources as Sources,
    Split as Split,
    choose_projects as choose_projects,
    extract as extract,
    fetch as fetch,
    info as info,
    split as split,
)
from mlgokit.commands.explanation import Importance as Importance, explain as explain
from mlgokit.commands.tuning import Tune as Tune, tune as tune
from mlgokit.commands.tuning_allocations import tune_allocations as tune_allocations
from mlgokit.commands.verification import (
    Override as Override,
    Verify as Verify,
    override as override,
    verify as verify,
)
from mlgokit.commands.vocabulary import Vocab as Vocab, vocab as vocab
from mlgokit.compiler.compile import HEURISTIC, PluginUse
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.identity import NOTHING_KNOWN, Contents, known_contents, without_copies
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.errors import CorpusError, UsageError
from mlgokit.evaluation.compare import Evaluation, compare_projects
from mlgokit.export.plugin import ExportedPlugin, export_plugin
from mlgokit.files import atomic_write, digest_file
from mlgokit.learning import trace as tracing
from mlgokit.learning.loop import Learned, learn
from mlgokit.learning.settings import DEFAULT_LEARNING, Learning
from mlgokit.manifest import check_manifest, write_manifest
from mlgokit.module import Module
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.problems import INLINE_SIZE, PROBLEMS
from mlgokit.progress import Report, say_nothing
from mlgokit.train import EffectTraining, RoundResult, train_cloning, train_effects

WORKERS = os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Compile modules under LLVM's own heuristic, or a policy, and keep their training logs and scores."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    output: Path = Path("quickstart/trace")
    """Where logs, traces.json and performance.csv go."""
    problem: Literal["inline-size", "regalloc-eviction", "regalloc-priority"] = "inline-size"
    """Whose decisions are traced."""
    policy: str = HEURISTIC
    """A policy file or a rule of the problem, such as :never or :random, to trace instead of the heuristic."""
    sampling_rate: float = 1.0
    """Share of the modules that is compiled, drawn at random."""
    seed: int = 1
    """Of the draw."""
    module_filter: str = ""
    """Only modules whose names this regular expression fits from the first character on."""
    key_filter: str = ""
    """Only keys that it fits, in the CSV and TFRecord files: functions (register allocation) or modules (inlining)."""
    keys_file: Path | None = None
    """Only keys that are lines of this file."""
    tfrecord: Path | None = None
    """File for all observations as SequenceExamples with the reference implementation's names."""
    store: Path | None = None
    """Folder of finished compilations; <output>/store if not given."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = WORKERS
    """Compilers that run at once."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    changes: Changes = NO_CHANGES
    """Options of clang -cc1 that are changed in all command lines; each may be given several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Learn a policy from a corpus; held-out projects are not looked at."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    output: Path = Path("quickstart/train")
    """Where policies and metrics go; <output>/final.policy is the result."""
    problem: Literal["inline-size", "regalloc-eviction", "regalloc-priority"] = "inline-size"
    """Whose decisions are learned."""
    algorithm: Literal["effect-regression", "behavioural-cloning", "bc-max", "dqn", "es", "local-search", "ppo"] = (
        "effect-regression"
    )
    """How to learn. Without a budget in turns or compilations, the first two have recipes of their own for inlining."""
    store: Path | None = None
    """Folder of finished compilations; <output>/store if not given."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = WORKERS
    """Compilers that run at once."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    minutes: float = math.inf
    """No round begins after this many minutes; a run that is cut short depends on the machine's speed."""
    effects: EffectTraining = dataclasses.field(default_factory=EffectTraining)
    """Settings of effect regression's recipe."""
    cloning: CloningConfig = dataclasses.field(default_factory=CloningConfig)
    """Settings of behavioural cloning's recipe."""
    learning: Annotated[Learning, tyro.conf.OmitArgPrefixes] = DEFAULT_LEARNING
    """How a learner is run."""
    changes: Changes = NO_CHANGES
    """Options of clang -cc1 that are changed in all command lines; each may be given several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Build projects plainly and under a policy, link both, and compare the sizes."""

    policy: Annotated[str, tyro.conf.Positional]
    """A policy file, or :default (echo the heuristic), :never, :always."""
    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    projects: tuple[str, ...] = ()
    """Projects to build; all that are held out of training if none is named."""
    output: Path | None = None
    """File for the result as JSON."""
    seed: int = 1
    """Of the bootstrap intervals."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = WORKERS
    """Compilers that run at once."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    changes: Changes = NO_CHANGES
    """Options of clang -cc1 that are changed in all command lines; each may be given several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Link policies into a plugin for an unmodified clang: clang -Oz -fpass-plugin=<output>."""

    policies: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Policy files, at most one for each problem."""
    output: Path = Path("policy.so")
    """The plugin."""
    llvm: int | None = None
    """LLVM major to export for; the newest supported one if not given."""


def trace(config: Trace, *, report: Report = say_nothing) -> dict[str, Any]:
    """Write training logs, ``performance.csv``, and ``traces.json`` with what became of each module."""
    problem = PROBLEMS[config.problem]
    selection = tracing.select(
        modules=config.module_filter,
        keys=config.key_filter,
        keys_file=config.keys_file,
        share=config.sampling_rate,
        seed=config.seed,
    )
    policy = config.policy
    if not policy.startswith(":"):
        load_policy(Path(policy), problem=problem.name)
        policy = digest_file(Path(policy))
    elif policy not in tracing.RULES[problem.name]:
        rules = ", ".join(tracing.RULES[problem.name])
        raise UsageError(f"policy {policy}: expected a file or {rules} for {problem.name}; correct the name")
    edits = config.changes.edits()
    corpus = load_corpus(config.corpus, edits)
    modules = selection.draw(corpus.modules)
    workshop = _workshop(config, config.output)
    settings = {"problem": problem.name, "policy": policy, "module_filter": config.module_filter}
    settings |= {"sampling_rate": config.sampling_rate, "seed": config.seed}
    _claim(config.output, kind="trace", config=_edited(settings, edits), workshop=workshop, corpus=corpus)
    logs = config.output / "logs"
    traces = tracing.trace_modules(workshop, modules, problem, policy=config.policy, folder=logs, report=report)
    written: dict[str, Any] = {}
    if config.tfrecord is not None:
        count = tracing.write_training_set(config.tfrecord, traces, problem, folder=logs, selection=selection)
        written["written_observations"] = count
    written["scored_keys"] = tracing.write_performance(config.output / tracing.PERFORMANCE, traces, selection)
    tracing.write_summary(config.output / "traces.json", traces, problem)
    return {"folder": str(config.output), "problem": problem.name, **tracing.outcome(traces), **written}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The policy that training ended with, and what each round of a recipe or the loop did."""

    policy: Path
    rounds: tuple[RoundResult, ...] = ()
    agreement: float | None = None
    learned: Learned | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        if self.learned is not None:
            return {"policy": str(self.policy), **self.learned.to_json()}
        return {
            "policy": str(self.policy),
            "rounds": [result.to_json() for result in self.rounds],
            "agreement": self.agreement,
        }


def train(config: Train, *, report: Report = say_nothing) -> Trained:
    """Train, and leave ``final.policy`` and ``metrics.json`` in the output folder."""
    deadline = time.monotonic() + 60 * config.minutes
    edits = config.changes.edits()
    corpus = load_corpus(config.corpus, edits)
    modules = training_modules(corpus.modules, known_contents(corpus.folder, corpus.modules))
    workshop = _workshop(config, config.output)
    settings: dict[str, Any] = {"algorithm": config.algorithm}
    recipe = _has_recipe(config)
    if recipe:
        settings |= dataclasses.asdict(config.effects if config.algorithm == "effect-regression" else config.cloning)
    else:
        settings |= {"problem": config.problem, **config.learning.deciding()}
    _claim(config.output, kind="policy", config=_edited(settings, edits), workshop=workshop, corpus=corpus)
    final = config.output / "final.policy"
    if not recipe:
        learned = learn(
            workshop,
            modules,
            PROBLEMS[config.problem],
            config.algorithm,
            config.learning,
            folder=config.output,
            report=report,
            deadline=deadline,
        )
        save_policy(learned.policy, final)
        trained = Trained(policy=final, learned=learned)
    elif config.algorithm == "effect-regression":
        path, rounds = train_effects(
            workshop, modules, config.effects, folder=config.output, report=report, deadline=deadline
        )
        atomic_write(final, path.read_bytes())
        trained = Trained(policy=final, rounds=tuple(rounds))
    else:
        path, agreement = train_cloning(workshop, modules, config.cloning, folder=config.output, report=report)
        atomic_write(final, path.read_bytes())
        trained = Trained(policy=final, agreement=agreement)
    atomic_write(config.output / "metrics.json", json.dumps(trained.to_json(), indent=1))
    return trained


def _has_recipe(config: Train) -> bool:
    """Whether this is one of the two ways to train inlining that need no loop, and nothing says that it be the loop."""
    return (
        config.problem == INLINE_SIZE.name
        and config.algorithm in ("effect-regression", "behavioural-cloning")
        and config.learning == DEFAULT_LEARNING
    )


def training_modules(modules: Sequence[Module], contents: Contents = NOTHING_KNOWN) -> list[Module]:
    """The modules that are not held out, without the copies of what is held out or came before.

    Raises:
        CorpusError: nothing is left.
    """
    chosen = without_copies(modules, contents)
    if not chosen:
        raise CorpusError(
            f"training: expected at least one of {len(modules)} modules not to be held out, found none; "
            "add training projects to the corpus"
        )
    return chosen


def evaluate(config: Evaluate, *, report: Report = say_nothing) -> Evaluation:
    """Compare plain builds with builds under the policy."""
    corpus = load_corpus(config.corpus, config.changes.edits())
    known = {module.project for module in corpus.modules}
    unknown = sorted(set(config.projects) - known)
    if unknown:
        raise UsageError(
            f"projects: expected names from the corpus {config.corpus}, found {', '.join(unknown)}; it has "
            f"{', '.join(sorted(known))}"
        )
    modules = [
        module
        for module in corpus.modules
        if (module.project in config.projects if config.projects else module.held_out)
    ]
    if not modules:
        raise CorpusError(
            f"{config.corpus}: expected at least one held-out project to evaluate on, found none; "
            "name projects with --projects"
        )
    if not config.policy.startswith(":"):
        load_policy(Path(config.policy), problem=INLINE_SIZE.name)
    elif config.policy not in {HEURISTIC, ":never", ":always"}:
        raise UsageError(f"policy {config.policy}: expected a file or :default, :never, :always; correct the name")
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    use = PluginUse(plugin=build_plugin(toolchain), policies={INLINE_SIZE.name: config.policy})
    evaluation = compare_projects(
        modules,
        toolchain=toolchain,
        use=use,
        workers=config.workers,
        rng=np.random.default_rng(config.seed),
        report=report,
        timeout_seconds=config.timeout_seconds,
    )
    if config.output is not None:
        atomic_write(config.output, json.dumps(evaluation.to_json(), indent=1))
    return evaluation


def export(config: Export) -> ExportedPlugin:
    """Link the policies into a plugin."""
    return export_plugin(find_toolchain(config.llvm, need_plugin=True), config.policies, config.output)


def _workshop(config: Trace | Train, output: Path) -> Workshop:
    toolchain: Toolchain = find_toolchain(config.llvm, need_plugin=True)
    return open_workshop(
        toolchain,
        build_plugin(toolchain),
        config.store or output / "store",
        workers=config.workers,
        timeout_seconds=config.timeout_seconds,
    )


def _edited(config: dict[str, Any], edits: CommandLineEdits) -> dict[str, Any]:
    """A manifest's configuration; without changes it is what it was before there could be any."""
    return {**config, "option_changes": edits.words} if edits.words else config


def _claim(folder: Path, *, kind: str, config: dict[str, Any], workshop: Workshop, corpus: Corpus) -> None:
    """Sign the folder, or refuse one that something else made."""
    versions = workshop.toolchain.describe()
    inputs = {"corpus": digest_file(corpus.folder / "corpus_description.json"), "workshop": workshop.identity}
    if not check_manifest(folder, kind=kind, config=config, toolchain=versions, inputs=inputs):
        write_manifest(folder, kind=kind, config=config, toolchain=versions, inputs=inputs)
