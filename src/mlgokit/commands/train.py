"""The command that learns a policy."""

import dataclasses
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mlgokit.algorithms.config import CloningConfig
from mlgokit.commands.options import COMPILER, NO_CHANGES, Changes, Compiling
from mlgokit.commands.workplace import claim_folder, open_workplace
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.identity import known_contents, training_modules
from mlgokit.files import atomic_write
from mlgokit.learning.loop import Learned, learn
from mlgokit.learning.settings import DEFAULT_LEARNING, Learning
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE, PROBLEMS
from mlgokit.progress import Report, say_nothing
from mlgokit.train import EffectTraining, RoundResult, train_cloning, train_effects


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
    compiler: Compiling = COMPILER
    """How modules are compiled."""
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


def run(config: Train, *, report: Report = say_nothing) -> Trained:
    """Train, and leave ``final.policy`` and ``metrics.json`` in the output folder."""
    deadline = time.monotonic() + 60 * config.minutes
    edits = config.changes.edits()
    corpus = load_corpus(config.corpus, edits)
    modules = training_modules(corpus.modules, known_contents(corpus.folder, corpus.modules))
    workshop = open_workplace(config.compiler, config.store or config.output / "store")
    settings: dict[str, Any] = {"algorithm": config.algorithm}
    recipe = _has_recipe(config)
    if recipe:
        settings |= dataclasses.asdict(config.effects if config.algorithm == "effect-regression" else config.cloning)
    else:
        settings |= {"problem": config.problem, **config.learning.deciding()}
    claim_folder(config.output, kind="policy", config=settings, edits=edits, workshop=workshop, corpus=corpus)
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
