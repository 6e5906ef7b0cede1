"""The command that learns a policy."""

import dataclasses
import enum
import json
import math
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import tyro

from mlgokit.algorithms.registry import default_learner
from mlgokit.basic import Basic
from mlgokit.builds.workspace import claim_folder, open_workspace
from mlgokit.commands.options import (
    COMPILER,
    LEAN_REUSE,
    NO_CHANGES,
    NO_CLUSTER,
    Changes,
    Clustering,
    Compiling,
    ProblemName,
    Reusing,
)
from mlgokit.corpus.build_notes import warn_about_levels
from mlgokit.corpus.identity import known_contents, training_modules
from mlgokit.files import atomic_write, remove_leftovers
from mlgokit.learning.loop import check_training, learn
from mlgokit.learning.page import training_page
from mlgokit.learning.record import FORMAT, FORMAT_VERSION, TrainingRecord
from mlgokit.learning.settings import LIKE_PRESET, Learning
from mlgokit.learning.training import Learned
from mlgokit.manifest import package_version
from mlgokit.pages.html import write_page
from mlgokit.policy.store import save_policy
from mlgokit.policy.targets import restrict_to_targets
from mlgokit.problems import INLINE_SIZE, PROBLEMS
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Learn a policy from the projects of a corpus that are not held out."""

    corpus: Annotated[Path, Basic.INPUT] = Path("quickstart/corpus")
    """Folder of the corpus."""
    output: Annotated[Path, Basic.RESULT] = Path("quickstart/train")
    """Folder for policies and metrics; the result is <output>/final.policy."""
    problem: Annotated[ProblemName, Basic.WORK] = INLINE_SIZE.name
    """Optimization problem whose decisions are learned."""
    algorithm: (
        Literal["effect-regression", "behavioural-cloning", "bc-max", "dqn", "es", "local-search", "ppo"] | None
    ) = None
    """Learning algorithm; if not given, effect-regression, or es with the preset trials for regalloc-priority and
    regalloc-weight. One must be given for regalloc-eviction, which effect-regression does not learn."""
    store: Path | None = None
    """Folder of finished compilations, which are not repeated; <output>/store if not given."""
    shared_store: str = ""
    """Folder or fsspec URL (s3://, gs://, sftp://) of finished compilations shared by several runs and users, consulted
    after the store. Everybody who can write to it is trusted."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    cluster: Clustering = NO_CLUSTER
    """Cluster that compiles in place of this machine."""
    reuse: Reusing = LEAN_REUSE
    """Reuse between the compilations of a module."""
    minutes: Annotated[float, Basic.WORK] = math.inf
    """Minutes after which no further iteration begins; the result then depends on the machine's speed."""
    learning: Annotated[Learning, tyro.conf.OmitArgPrefixes] = LIKE_PRESET
    """Settings of the learning loop."""
    changes: Changes = NO_CHANGES
    """Changes of the options of clang -cc1 in the command lines of all modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The file of the final policy, how the run went, and what made it."""

    policy: Path
    learned: Learned
    made_by: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = {"policy": str(self.policy), **self.learned.to_json(), **self.made_by}
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **plain}


def run(config: Train, *, report: Report = say_nothing) -> Trained:
    """Train, and leave ``final.policy``, ``metrics.json`` and its report in the output folder.

    Raises:
        BusyError: another process works in the output folder, or changes the corpus.
        CorpusError: there is nothing to learn from.
        ReuseError: another training made the output folder.
        UsageError: the settings contradict themselves or do not apply, or no policy pays.
    """
    deadline = time.monotonic() + 60 * config.minutes
    edits = config.changes.edits()
    algorithm, learning = _algorithm_and_preset(config)
    check_training(PROBLEMS[config.problem], algorithm, learning)
    with open_workspace(
        config.output,
        corpus=config.corpus,
        compiler=config.compiler,
        edits=edits,
        store=config.store,
        shared_store=config.shared_store,
        cluster=config.cluster,
        reuse=config.reuse,
        report=report,
    ) as (corpus, compiler):
        modules = training_modules(corpus.modules, known_contents(corpus.folder, corpus.modules))
        if config.problem == INLINE_SIZE.name:
            warn_about_levels(modules, report)
        settings = learning.resolve(algorithm).identity_settings()
        claim_folder(
            config.output,
            kind="policy",
            config={"algorithm": algorithm, "problem": config.problem, **settings},
            edits=edits,
            compiler=compiler,
            corpus=corpus,
            modules=modules,
        )
        remove_leftovers(config.output)
        learned = learn(
            compiler,
            modules,
            PROBLEMS[config.problem],
            algorithm,
            learning,
            folder=config.output,
            report=report,
            deadline=deadline,
        )
        learned = dataclasses.replace(learned, policy=restrict_to_targets(learned.policy, modules))
        made_by = {
            "algorithm": algorithm,
            "problem": config.problem,
            "settings": {name: _in_words(value) for name, value in settings.items() if value not in (None, (), {})},
            "source": str(config.corpus),
            "command": shlex.join(["mlgokit", *sys.argv[1:]]),
            "mlgokit_version": package_version(),
            "toolchain": compiler.toolchain.describe(),
        }
        return _write(config.output, learned, made_by)


def _write(folder: Path, learned: Learned, made_by: dict[str, Any]) -> Trained:
    """Write the policy, the metrics and their report."""
    policy, metrics = folder / "final.policy", folder / "metrics.json"
    save_policy(learned.policy, policy)
    made_by = {**made_by, "report": str(metrics.with_suffix(".html"))}
    trained = Trained(policy=policy, learned=learned, made_by=made_by)
    atomic_write(metrics, json.dumps(trained.to_json(), indent=1), durable=True)
    write_page(training_page(TrainingRecord.from_json(trained.to_json())), metrics)
    return trained


def _algorithm_and_preset(config: Train) -> tuple[str, Learning]:
    """The algorithm, and the loop's settings with its preset; the problem decides the defaults."""
    algorithm, learning = config.algorithm, config.learning
    if algorithm is None:
        algorithm, preset = default_learner(config.problem)
        if learning.preset == LIKE_PRESET.preset:
            learning = dataclasses.replace(learning, preset=preset)
    return algorithm, learning


def _in_words(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value)))
    return str(value.value if isinstance(value, enum.Enum) else value)
