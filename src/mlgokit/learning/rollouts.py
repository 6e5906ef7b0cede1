"""Labels from rollouts: compile modules under a learner's policies, and tell the learner the changes of their scores.

Every random draw of turn t comes from a generator with the seed [seed, t], and the checkpoint of a turn holds the whole
state of the learner. So an interrupted run ends with the same bits as one that was not interrupted, except for times.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlgokit.algorithms.learner import Learner, State, Task
from mlgokit.algorithms.registry import LEARNERS, check_learner, check_recurrent, make_learner
from mlgokit.errors import CorpusError
from mlgokit.learning.baselines import Baselines, compile_defaults
from mlgokit.learning.experiences import Collected, compile_proposals
from mlgokit.learning.run_folder import Counters, Row, make_row
from mlgokit.learning.settings import Learning, check_network, refuse_options, settings_of
from mlgokit.learning.task import make_task, split_modules
from mlgokit.learning.training import Learned, Training
from mlgokit.learning.validation import (
    VALIDATION_MODULES,
    Validation,
    read_validated,
    validate_policies,
    write_validated,
)
from mlgokit.policy.network import Policy
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.policy.targets import restrict_to_targets
from mlgokit.problems import Problem
from mlgokit.progress import Report

BEST_NAME = "best.policy"
_FAILED = "failed/"
"""Prefix of a reason in the row of a turn."""
INNER_MARGIN = 0.05
"""Margin in gain by which an earlier policy must beat the last one if both were validated on training modules."""


class Rollouts:
    """The label source of all learners in ``LEARNERS``, on all problems that they can learn."""

    def check(self, problem: Problem, algorithm: str, config: Learning) -> Any:
        """Check the options of a training, and return the settings of its algorithm.

        Raises:
            UsageError: there is no such algorithm or setting, the algorithm cannot learn the problem, or an option has
                no effect.
        """
        settings = settings_of(algorithm, config.preset, config.setting, problem=problem.name)
        check_learner(algorithm, problem.name, problem.advice_kind)
        check_recurrent(algorithm, problem.name, check_network(settings))
        if problem.by_regalloc_cost:
            refuse_options(config, ("objective",), where=f"for {problem.name}")
        if LEARNERS[algorithm].fits_normaliser:
            refuse_options(config, ("vocab", "normaliser"), where=f"with {algorithm}, which fits a normaliser itself")
        if config.start is not None:
            refuse_options(config, ("vocab", "normaliser", "excluded"), where="with --start, whose policy has its own")
        if config.vocab is not None:
            refuse_options(config, ("normaliser",), where="with --vocab")
        return settings

    def open(self, training: Training, checkpoint: State | None) -> "RolloutRun":
        """Compile all modules under the heuristic, split training from validation modules, and make the learner.

        Raises:
            CorpusError: no module compiles and has a decision.
            PolicyError: the policy to start from does not fit the problem, the learner or the compiler.
            UsageError: no feature is left, or the learner cannot learn the problem.
        """
        del checkpoint
        config = training.config
        baselines = compile_defaults(
            training.compiler,
            training.modules,
            training.problem,
            objective=config.objective,
            with_rows=not LEARNERS[training.algorithm].fits_normaliser,
            report=training.report,
        )
        training_indices, validation_indices = split_modules(baselines, config)
        task = make_task(baselines, training_indices, config, algorithm=training.algorithm)
        learner = make_learner(training.algorithm, task, training.settings)
        # Without validation modules of their own, members of an ensemble can be validated on training modules of the
        # projects that they were not fitted on.
        if not validation_indices and learner.best_without is not None and config.evaluate_every:
            validation_indices = _draw_validation_modules(task, training_indices, config)
        return RolloutRun(
            training=training,
            baselines=baselines,
            task=task,
            learner=learner,
            training_indices=training_indices,
            validation_indices=validation_indices,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RolloutRun:
    """A training from rollouts.

    Attributes:
        training: configuration of the training.
        baselines: modules, compiled under the heuristic.
        task: task of the learner.
        learner: learner that proposes compilations.
        training_indices: positions of the training modules in the baselines.
        validation_indices: positions of the validation modules in the baselines.
    """

    training: Training
    baselines: Baselines
    task: Task
    learner: Learner
    training_indices: Sequence[int]
    validation_indices: Sequence[int]

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules that compile."""
        return self.baselines.compiled

    def start(self) -> tuple[State, Counters]:
        """Make the learner's first state."""
        return self.learner.start(np.random.default_rng([self.training.config.seed, 0])), Counters()

    def step(self, state: State, counters: Counters) -> tuple[State, Counters, Row]:
        """Perform one turn: ask the learner for proposals, compile them, tell it the results; validate when due."""
        begin = time.monotonic()
        turn = counters.turn + 1
        rng = np.random.default_rng([self.training.config.seed, turn])
        proposals = self.learner.ask(state, rng)
        asked = sum(len(proposal.modules) for proposal in proposals)
        title = f"train {self.training.algorithm} · turn {turn}"
        report = self._report_of_all_turns(counters, asked, title)
        collected = compile_proposals(self.baselines, self.task, self.training_indices, proposals, report=report)
        state, metrics = self.learner.tell(state, proposals, collected.experiences, rng)
        counters = dataclasses.replace(
            counters,
            turn=turn,
            compilations=counters.compilations + asked,
            failed=counters.failed + sum(collected.failures.values()),
            user_seconds=counters.user_seconds + collected.user_seconds,
        )
        validation = math.nan
        if self.validation_indices and turn % (self.training.config.evaluate_every or 1) == 0:
            validation, counters = self._validate_and_store(state, counters)
        counters = dataclasses.replace(counters, seconds=counters.seconds + time.monotonic() - begin)
        row = self._row(counters, collected, metrics, validation=validation)
        gain = f"{100 * row['reward']:+.2f} % ± {100 * row['reward_spread']:.2f}"
        report(asked, asked, f"{title}: reward {gain}, {counters.compilations} compilations")
        return state, counters, row

    def is_over(self, counters: Counters) -> bool:
        """Whether the budget of turns, compilations, patience or time is spent."""
        config = self.training.config
        return (
            (config.iterations is not None and counters.turn >= config.iterations)
            or (config.compilations is not None and counters.compilations >= config.compilations)
            or (config.patience > 0 and counters.stale >= config.patience)
            or (counters.turn > 0 and time.monotonic() > self.training.deadline)
        )

    def finish(self, state: State, counters: Counters, rows: Sequence[Row]) -> Learned:
        """Choose the policy that was best in validation, after validating the last one, and summarise the run.

        The folder stays as it is, since the run may be continued with a larger budget.

        On training modules, only those members of an ensemble are validated that were not fitted on the module's
        project, which says little about the whole ensemble. The last policy, which was fitted to the most labels, is
        then chosen unless another one is better by a margin.

        Raises:
            CorpusError: no compilation of the learner succeeded, so that nothing was learned.
        """
        if counters.failed == counters.compilations:
            reason = next((name for name in rows[-1] if name.startswith(_FAILED)), _FAILED).removeprefix(_FAILED)
            raise CorpusError(
                f"training: expected at least one of {counters.compilations} compilations of {self.training.algorithm} "
                f"to succeed, found none ({reason}); correct that, then train into another folder"
            )
        folder, gain = self.training.folder, rows[-1]["validation_gain"]
        judged = read_validated(folder) if counters.best_turn else ()
        if self.validation_indices and math.isnan(gain):
            validation = self._validate_policy(state)
            gain = validation.gain
            counters = dataclasses.replace(counters, evaluations=counters.evaluations + len(self.validation_indices))
            if gain > counters.best_gain:
                judged = validation.modules
                counters = dataclasses.replace(counters, best_turn=counters.turn, best_gain=gain)
        within = set(self.validation_indices) <= set(self.training_indices)
        is_last = counters.best_turn in (0, counters.turn) or (within and counters.best_gain <= gain + INNER_MARGIN)
        return Learned(
            policy=self.learner.best(state) if is_last else load_policy(folder / BEST_NAME),
            counters=counters,
            rows=tuple(rows),
            taught=len(self.training_indices),
            judged=len(self.validation_indices),
            left_out=self.baselines.left_out,
            judged_modules=judged,
        )

    def _validate_policy(self, state: State) -> Validation:
        """Validate the policy; on modules of a training project, only the members that were not fitted on it."""
        positions = {index: position for position, index in enumerate(self.training_indices)}
        groups: dict[int, list[int]] = {}
        for index in self.validation_indices:
            project = int(self.task.project[positions[index]]) if index in positions else -1
            groups.setdefault(project, []).append(index)
        policies: list[tuple[Policy, Sequence[int]]] = []
        for project, indices in groups.items():
            best_without = self.learner.best_without
            policy = self.learner.best(state) if project < 0 or best_without is None else best_without(state, project)
            if policy is not None:
                policies.append((policy, indices))
        return validate_policies(self.baselines, policies)

    def _validate_and_store(self, state: State, counters: Counters) -> tuple[float, Counters]:
        """Validate the policy, store it if it is the best so far, and return its gain."""
        validation = self._validate_policy(state)
        counters = dataclasses.replace(counters, evaluations=counters.evaluations + len(self.validation_indices))
        if validation.gain <= counters.best_gain:
            return validation.gain, dataclasses.replace(counters, stale=counters.stale + 1)
        folder = self.training.folder
        save_policy(restrict_to_targets(self.learner.best(state), self.baselines.modules), folder / BEST_NAME)
        write_validated(folder, validation.modules)
        return validation.gain, dataclasses.replace(
            counters, best_turn=counters.turn, best_gain=validation.gain, stale=0
        )

    def _report_of_all_turns(self, counters: Counters, asked: int, title: str) -> Report:
        """Make a progress report that counts the compilations of all turns."""
        config = self.training.config
        last = config.iterations
        ends = [counters.compilations + asked * (last - counters.turn)] if last is not None else []
        ends += [config.compilations] if config.compilations is not None else []

        def report(done: int, _total: int, text: str) -> None:
            """Report compilations of this turn as part of those of all turns; a total of -1 is not known."""
            total = max(min(ends), counters.compilations + asked) if ends else -1
            # Reports of single compilations come without the title.
            self.training.report(counters.compilations + done, total, text if " · " in text else title)

        return report

    def _row(self, counters: Counters, collected: Collected, metrics: dict[str, float], *, validation: float) -> Row:
        """Make the row of a turn in the table of the run."""
        share = _spent_share(self.training.config, counters)
        left = counters.seconds * (1 / share - 1) if share else math.inf
        row = make_row(
            counters,
            collected.rewards,
            metrics,
            failed=sum(collected.failures.values()),
            validation=validation,
            seconds_left=max(0.0, min(left, self.training.deadline - time.monotonic())),
        )
        return {**row, **{_FAILED + reason: count for reason, count in sorted(collected.failures.items())}}


def _draw_validation_modules(task: Task, training_indices: Sequence[int], config: Learning) -> list[int]:
    """Draw training modules for validation, the same in all turns.

    The 5 % with the most decisions are left out: they take long to compile, and would dominate the sum of scores.
    """
    decisions = np.zeros(task.modules) if task.decisions is None else task.decisions
    quick = np.flatnonzero(decisions <= np.quantile(decisions, 0.95))
    drawn = np.random.default_rng([config.seed, 0, task.modules]).permutation(quick)[:VALIDATION_MODULES]
    return [training_indices[module] for module in np.sort(drawn).tolist()]


def _spent_share(config: Learning, counters: Counters) -> float:
    """Compute the share of the budget of turns or compilations that has been spent."""
    shares = [counters.turn / config.iterations] if config.iterations else []
    shares += [counters.compilations / config.compilations] if config.compilations else []
    return min(1.0, max(shares, default=0.0))
