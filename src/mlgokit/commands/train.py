"""The command that learns a policy."""

import contextlib
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

from mlgokit.algorithms.registry import TRIALS
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
    open_compiler,
)
from mlgokit.commands.workplace import claim_folder, open_workshop
from mlgokit.corpus.build_notes import tell_levels
from mlgokit.corpus.corpus import load_measurable
from mlgokit.corpus.identity import known_contents, training_modules
from mlgokit.evaluation.page import write_page
from mlgokit.files import atomic_write, remove_leftovers
from mlgokit.learning.loop import learn
from mlgokit.learning.page import training_page
from mlgokit.learning.record import FORMAT, FORMAT_VERSION, TrainingRecord
from mlgokit.learning.settings import LIKE_PRESET, Learning
from mlgokit.learning.training import Learned
from mlgokit.locks import locked, reading
from mlgokit.manifest import package_version
from mlgokit.policy.store import save_policy
from mlgokit.policy.targets import for_modules
from mlgokit.problems import (
    INLINE_SIZE,
    PROBLEMS,
    REGALLOC_PRIORITY,
    REGALLOC_WEIGHT,
)
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Learn a policy from a corpus; held-out projects are not looked at."""

    corpus: Path = Path("quickstart/corpus")
    """Folder of the corpus."""
    output: Path = Path("quickstart/train")
    """Folder for policies and metrics; the result is <output>/final.policy."""
    problem: ProblemName = INLINE_SIZE.name
    """Optimization problem whose decisions are learned."""
    algorithm: (
        Literal["effect-regression", "behavioural-cloning", "bc-max", "dqn", "es", "local-search", "ppo"] | None
    ) = None
    """Learning algorithm; effect-regression if not given, and es with the preset trials for regalloc-priority and
    regalloc-weight."""
    store: Path | None = None
    """Folder of finished compilations, which are not repeated; <output>/store if not given."""
    shared_store: str = ""
    """Folder or URL (s3://, gs://, sftp://, as fsspec knows them) of finished compilations that several runs and users
    share, behind the store; those that write to it are trusted."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    cluster: Clustering = NO_CLUSTER
    """Cluster that compiles in place of this machine."""
    reuse: Reusing = LEAN_REUSE
    """Reuse between the compilations of a module."""
    minutes: float = math.inf
    """Minutes after which no turn but the first begins; a run that is cut short depends on the machine's speed."""
    learning: Annotated[Learning, tyro.conf.OmitArgPrefixes] = LIKE_PRESET
    """Settings of the learning loop."""
    changes: Changes = NO_CHANGES
    """Changes of the options of clang -cc1 in all command lines; each may be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The file of the policy that training ended with, how the run went, and what made it."""

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
    """
    with locked(config.output), reading(config.corpus), contextlib.ExitStack() as stack:
        return _train(config, stack, report)


def _train(config: Train, stack: contextlib.ExitStack, report: Report) -> Trained:
    deadline = time.monotonic() + 60 * config.minutes
    edits = config.changes.edits()
    corpus = load_measurable(config.corpus, edits)
    modules = training_modules(corpus.modules, known_contents(corpus.folder, corpus.modules))
    if config.problem == INLINE_SIZE.name:
        tell_levels(modules, report)
    clang = open_compiler(config.compiler, corpus=config.corpus, folder=config.output, files=edits.files, report=report)
    clang = config.reuse.applied(clang, recheck=config.compiler.recheck())
    store = config.store or config.output / "store"
    compiler = stack.enter_context(
        contextlib.closing(
            open_workshop(
                clang, config.compiler, store, cluster=config.cluster, shared=config.shared_store, report=report
            )
        )
    )
    algorithm, learning = _learner(config)
    settings = {"algorithm": algorithm, "problem": config.problem, **learning.deciding()}
    claim_folder(
        config.output,
        kind="policy",
        config=settings,
        edits=edits,
        workshop=compiler,
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
    learned = dataclasses.replace(learned, policy=for_modules(learned.policy, modules))
    final = config.output / "final.policy"
    save_policy(learned.policy, final)
    metrics = config.output / "metrics.json"
    trained = Trained(
        policy=final,
        learned=learned,
        made_by={
            "algorithm": algorithm,
            "problem": config.problem,
            "settings": {
                name: _said(value) for name, value in learning.deciding().items() if value not in (None, (), {})
            },
            "source": str(config.corpus),
            "command": shlex.join(["mlgokit", *sys.argv[1:]]),
            "mlgokit_version": package_version(),
            "toolchain": clang.toolchain.describe(),
            "report": str(metrics.with_suffix(".html")),
        },
    )
    atomic_write(metrics, json.dumps(trained.to_json(), indent=1), durable=True)
    write_page(training_page(TrainingRecord.from_json(trained.to_json())), metrics)
    return trained


def _learner(config: Train) -> tuple[str, Learning]:
    """The algorithm, and its loop's settings; the problem chooses where nothing is said."""
    algorithm, learning = config.algorithm or "effect-regression", config.learning
    if config.algorithm is None and config.problem in (REGALLOC_PRIORITY.name, REGALLOC_WEIGHT.name):
        algorithm = "es"
        if learning.preset == LIKE_PRESET.preset:
            learning = dataclasses.replace(learning, preset=TRIALS)
    return algorithm, learning.resolved(algorithm)


def _said(value: object) -> str:
    """A setting in words."""
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value)))
    return str(value.value if isinstance(value, enum.Enum) else value)
