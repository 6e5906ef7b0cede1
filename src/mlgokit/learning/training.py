"""Values and protocols of a training: its configuration, a run of it turn by turn, and the result."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mlgokit.algorithms.learner import State
from mlgokit.compiler.request import Compiler
from mlgokit.learning.run_folder import Counters, Row, rounds_of
from mlgokit.learning.settings import Learning
from mlgokit.learning.validation import ValidatedModule
from mlgokit.manifest import finite_json
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.problems import Problem
from mlgokit.progress import Report


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Training:
    """The configuration of a training, fully resolved.

    Attributes:
        compiler: compiler to use; it should cache, or an interrupted training repeats compilations.
        modules: modules to learn from; a part of them may be kept apart for validation.
        problem: problem whose decisions are learned.
        algorithm: name of the algorithm in ``LEARNERS``.
        config: settings of the loop, with all defaults of the preset filled in.
        settings: settings of the algorithm.
        folder: folder for the checkpoint, the metrics, the events and the best policy.
        report: receives the progress.
        deadline: time of :func:`time.monotonic` after which no turn begins, except for the first.
    """

    compiler: Compiler
    modules: tuple[Module, ...]
    problem: Problem
    algorithm: str
    config: Learning
    settings: Any
    folder: Path
    report: Report
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The result of a training.

    Attributes:
        policy: policy that was best in validation. It is the last policy if none was validated, or if members of an
            ensemble were validated on training modules and the last policy is not clearly worse.
        counters: progress of the run.
        rows: metrics of each turn.
        taught: number of training modules.
        judged: number of validation modules: modules kept apart, or training modules on which those members of an
            ensemble were validated that were not fitted on their projects.
        left_out: number of modules that could not be used, by reason.
        judged_modules: scores of the validation modules under the best policy.
    """

    policy: Policy
    counters: Counters
    rows: tuple[Row, ...]
    taught: int
    judged: int
    left_out: dict[str, int]
    judged_modules: tuple[ValidatedModule, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Convert the result to plain JSON values, without the policy."""
        plain = {
            "counters": dataclasses.asdict(self.counters),
            "last_turn": dict(self.rows[-1]) if self.rows else {},
            "taught": self.taught,
            "judged": self.judged,
            "left_out": self.left_out,
            "rounds": rounds_of(self.rows),
            "judged_modules": [dataclasses.asdict(module) for module in self.judged_modules],
        }
        return finite_json(plain)


class Run(Protocol):
    """A training in progress; its methods change nothing but the files in its folder."""

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules that compile, in order; the course of the training depends on which they are."""
        ...

    def start(self) -> tuple[State, Counters]:
        """Make the state before the first turn."""
        ...

    def step(self, state: State, counters: Counters) -> tuple[State, Counters, Row]:
        """Perform one turn: collect labels, and fit the policy to them."""
        ...

    def is_over(self, counters: Counters) -> bool:
        """Whether the budget is spent."""
        ...

    def finish(self, state: State, counters: Counters, rows: Sequence[Row]) -> Learned:
        """Choose and validate the policy.

        Raises:
            CorpusError: no compilation succeeded.
            UsageError: the policy does not improve on LLVM in validation projects; it is kept under another name.
        """
        ...


class LabelSource(Protocol):
    """Where a learner's labels come from: rollouts of its policies, or trials of single functions."""

    def check(self, problem: Problem, algorithm: str, config: Learning) -> Any:
        """Check the options of a training before anything is compiled; return the settings of its algorithm.

        Raises:
            UsageError: the settings contradict themselves, or do not apply.
        """
        ...

    def open(self, training: Training, checkpoint: State | None) -> Run:
        """Compile what every turn needs; ``checkpoint`` is the state of an interrupted run.

        Raises:
            CorpusError: the modules have no decisions to learn from.
        """
        ...
