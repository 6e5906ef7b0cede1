"""The loop: ask, compile, tell, keep; and now and then look how the policy does on projects that do not teach.

All that is random in turn t comes from a generator made of the seed and t, and the checkpoint of a turn has all that
the learner knows. So a run that was interrupted and is started again ends as it would have without that, bit by bit,
except for times; ``--minutes`` ends it where the machine's speed says.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.algorithms.learner import Learner, State, Task
from mlgokit.algorithms.registry import LEARNERS, check_learner, make_learner
from mlgokit.compiler.request import Compiler
from mlgokit.learning.baselines import Baselines, compile_defaults, evaluate_policy
from mlgokit.learning.checkpoint import Counters, load_checkpoint, rows_up_to, save_checkpoint
from mlgokit.learning.events import EVENTS_NAME, append_event, event, start_events
from mlgokit.learning.experiences import Collected, compile_proposals
from mlgokit.learning.metrics import Row, rounds_of, write_metrics
from mlgokit.learning.settings import Learning, check_learning, check_ready, settings_of
from mlgokit.learning.task import make_task, split_modules
from mlgokit.learning.validation import JudgedModule, Validation, read_judged, write_judged
from mlgokit.locks import locked
from mlgokit.manifest import finite_json
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.policy.targets import for_modules
from mlgokit.problems import Problem
from mlgokit.progress import Report, say_nothing

BEST_NAME = "best.policy"
JUDGES = 40
"""Modules that judge the members of an ensemble which were not fitted on their projects."""
INNER_MARGIN = 0.05
"""By how much an earlier policy must be judged better than the last one, where modules judge that also teach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a run ended with.

    Attributes:
        policy: the best judged one; the last one if none was judged, or members judged what they teach and the last is
            not clearly worse.
        counters: how far it went.
        rows: a row of numbers for each turn.
        taught: modules that taught.
        judged: modules that were kept apart, or teach and judge those members that were not fitted on their projects.
        left_out: reason to number of modules that could not be used.
        judged_modules: what those said that judged, of the policy that was judged best.
    """

    policy: Policy
    counters: Counters
    rows: tuple[Row, ...]
    taught: int
    judged: int
    left_out: dict[str, int]
    judged_modules: tuple[JudgedModule, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, without the policy."""
        plain = {
            "counters": dataclasses.asdict(self.counters),
            "last_turn": dict(self.rows[-1]) if self.rows else {},
            "taught": self.taught,
            "judged": self.judged,
            "left_out": self.left_out,
            "rounds": rounds_of(self.rows),
            "judged_modules": [dataclasses.asdict(one) for one in self.judged_modules],
        }
        return finite_json(plain)


def learn(
    compiler: Compiler,
    modules: Sequence[Module],
    problem: Problem,
    algorithm: str,
    config: Learning,
    *,
    folder: Path,
    report: Report = say_nothing,
    deadline: float = math.inf,
) -> Learned:
    """Run a learner until its budget is spent; what is in ``folder`` of the same run is gone on with.

    Args:
        compiler: compiles; one that remembers, if an interrupted run is to repeat nothing.
        modules: what to learn from; a part of them judges.
        problem: whose decisions are learned.
        algorithm: a name in ``LEARNERS``.
        config: how.
        folder: where the checkpoint, the metrics, the events and the best policy go.
        report: progress.
        deadline: on :func:`time.monotonic`'s clock; no turn but the first begins after it.

    Raises:
        BusyError: another process works in the folder.
        CorpusError: there is nothing to learn from.
        InputError: the checkpoint or the policy to start from cannot be used.
        ToolError: JAX is not installed.
        UsageError: the settings contradict themselves.
    """
    check_learning(config)
    settings = settings_of(algorithm, config.preset, config.setting, problem=problem.name)
    check_learner(algorithm, problem)
    check_ready(modules)
    config = config.resolved(algorithm)
    traced = not LEARNERS[algorithm].fits_normaliser
    with locked(folder):
        baselines = compile_defaults(
            compiler, modules, problem, objective=config.objective, with_rows=traced, report=report
        )
        taught, judged = split_modules(baselines, config)
        task = make_task(baselines, taught, config, algorithm=algorithm)
        learner = make_learner(algorithm, task, settings)
        state, counters = load_checkpoint(folder, algorithm) or (
            learner.start(np.random.default_rng([config.seed, 0])),
            Counters(),
        )
        rows = rows_up_to(counters.turn, folder)
        if not judged and learner.without is not None and config.evaluate_every:
            judged = _inner_judges(task, taught, config)
        run = _Run(
            baselines=baselines, task=task, learner=learner, taught=taught, judged=judged, config=config, folder=folder
        )
        start_events(folder / EVENTS_NAME, map(_event, rows))
        while not _is_over(config, counters, deadline):
            state, counters, row = _turn(run, state, counters, algorithm=algorithm, report=report, deadline=deadline)
            rows.append(row)
            write_metrics(folder, rows)
            append_event(folder / EVENTS_NAME, _event(row))
            save_checkpoint(folder, algorithm, state, counters)
        return Learned(
            policy=_final(run, state, counters, rows),
            counters=counters,
            rows=tuple(rows),
            taught=len(taught),
            judged=len(judged),
            left_out=baselines.left_out,
            judged_modules=read_judged(folder) if counters.best_turn else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Run:
    """What stays the same in all turns."""

    baselines: Baselines
    task: Task
    learner: Learner
    taught: Sequence[int]
    judged: Sequence[int]
    config: Learning
    folder: Path


def _turn(
    run: _Run, state: State, counters: Counters, *, algorithm: str, report: Report, deadline: float
) -> tuple[State, Counters, Row]:
    begin = time.monotonic()
    turn = counters.turn + 1
    rng = np.random.default_rng([run.config.seed, turn])
    proposals = run.learner.ask(state, rng)
    asked = sum(len(proposal.modules) for proposal in proposals)
    told = _of_the_whole(report, run.config, counters, asked, f"train {algorithm} · turn {turn}")
    collected = compile_proposals(run.baselines, run.task, run.taught, proposals, report=told)
    state, metrics = run.learner.tell(state, proposals, collected.experiences, rng)
    counters = dataclasses.replace(
        counters,
        turn=turn,
        compilations=counters.compilations + asked,
        failed=counters.failed + sum(collected.failures.values()),
        user_seconds=counters.user_seconds + collected.user_seconds,
    )
    validation = math.nan
    if run.judged and turn % (run.config.evaluate_every or 1) == 0:
        validation, counters = _judged(run, state, counters)
    counters = dataclasses.replace(counters, seconds=counters.seconds + time.monotonic() - begin)
    row = _row(run.config, counters, collected, metrics, validation=validation, deadline=deadline)
    gain = f"{100 * row['reward']:+.2f} % ± {100 * row['reward_spread']:.2f}"
    told(asked, asked, f"train {algorithm} · turn {turn}: reward {gain}, {counters.compilations} compilations")
    return state, counters, row


def _inner_judges(task: Task, taught: Sequence[int], config: Learning) -> list[int]:
    """Modules that teach and judge: the same in all turns, and none of the twentieth with most decisions.

    Most of the score is in a few large modules, and a bad policy shows there first.
    """
    decisions = np.zeros(task.modules) if task.decisions is None else task.decisions
    quick = np.flatnonzero(decisions <= np.quantile(decisions, 0.95))
    drawn = np.random.default_rng([config.seed, 0, task.modules]).permutation(quick)[:JUDGES]
    return [taught[module] for module in np.sort(drawn).tolist()]


def _validation(run: _Run, state: State) -> Validation:
    """What the policy does to the modules that judge: all of it, or the members that do not know their projects."""
    places = {index: module for module, index in enumerate(run.taught)}
    groups: dict[int, list[int]] = {}
    for index in run.judged:
        groups.setdefault(int(run.task.project[places[index]]) if index in places else -1, []).append(index)
    policies: list[tuple[Policy, Sequence[int]]] = []
    for project, judges in groups.items():
        without = run.learner.without
        policy = run.learner.best(state) if project < 0 or without is None else without(state, project)
        if policy is not None:
            policies.append((policy, judges))
    return evaluate_policy(run.baselines, policies)


def _judged(run: _Run, state: State, counters: Counters) -> tuple[float, Counters]:
    """The gain on the modules that judge; the best policy is kept as a file."""
    found = _validation(run, state)
    gain = found.gain
    counters = dataclasses.replace(counters, evaluations=counters.evaluations + len(run.judged))
    if gain <= counters.best_gain:
        return gain, dataclasses.replace(counters, stale=counters.stale + 1)
    save_policy(for_modules(run.learner.best(state), run.baselines.modules), run.folder / BEST_NAME)
    write_judged(run.folder, found.modules)
    return gain, dataclasses.replace(counters, best_turn=counters.turn, best_gain=gain, stale=0)


def _final(run: _Run, state: State, counters: Counters, rows: Sequence[Row]) -> Policy:
    """The best judged policy; the last one is judged too, which is no part of the checkpoint: a run may go on.

    Where modules judge that also teach, each is compiled by a few members of an ensemble, which says little of the
    whole: there the last policy, which has learned from most, gives way only to one that is better by a margin.
    """
    last = run.learner.best(state)
    if not run.judged:
        return last
    gains = [row["validation_gain"] for row in rows if math.isfinite(row["validation_gain"])]
    if set(run.judged) <= set(run.taught) and gains and counters.best_gain <= gains[-1] + INNER_MARGIN:
        return last
    if counters.turn % (run.config.evaluate_every or 1) and _validation(run, state).gain > counters.best_gain:
        return last
    return load_policy(run.folder / BEST_NAME) if counters.best_turn else last


def _is_over(config: Learning, counters: Counters, deadline: float) -> bool:
    return (
        (config.iterations is not None and counters.turn >= config.iterations)
        or (config.compilations is not None and counters.compilations >= config.compilations)
        or (config.patience > 0 and counters.stale >= config.patience)
        or (counters.turn > 0 and time.monotonic() > deadline)
    )


def _share_done(config: Learning, counters: Counters) -> float:
    """How much of the budget of turns or compilations is spent."""
    shares = [counters.turn / config.iterations] if config.iterations else []
    shares += [counters.compilations / config.compilations] if config.compilations else []
    return min(1.0, max(shares, default=0.0))


def _of_the_whole(
    report: Report, config: Learning, counters: Counters, asked: int, label: str
) -> Callable[[int, int, str], None]:
    """A report that counts the compilations of all turns."""
    last = config.iterations
    ends = [counters.compilations + asked * (last - counters.turn)] if last is not None else []
    ends += [config.compilations] if config.compilations is not None else []

    def told(done: int, _total: int, text: str) -> None:
        total = max(min(ends), counters.compilations + asked) if ends else -1
        report(counters.compilations + done, total, text if " · " in text else label)

    return told


def _row(
    config: Learning,
    counters: Counters,
    collected: Collected,
    metrics: dict[str, float],
    *,
    validation: float,
    deadline: float,
) -> Row:
    rewards = collected.rewards
    share = _share_done(config, counters)
    left = counters.seconds * (1 / share - 1) if share else math.inf
    row: dict[str, float] = {
        "turn": counters.turn,
        "compilations": counters.compilations,
        "failed": sum(collected.failures.values()),
        "reward": float(rewards.mean()) if len(rewards) else 0.0,
        "reward_spread": float(rewards.std()) if len(rewards) else 0.0,
        "reward_least": float(rewards.min()) if len(rewards) else 0.0,
        "reward_most": float(rewards.max()) if len(rewards) else 0.0,
        "validation_gain": validation,
        "user_seconds": counters.user_seconds,
        "seconds": counters.seconds,
        "seconds_left": max(0.0, min(left, deadline - time.monotonic())),
        "time": time.time(),
    }
    row |= {f"failed/{reason}": count for reason, count in sorted(collected.failures.items())}
    return row | {f"learner/{name}": value for name, value in metrics.items()}


def _event(row: Row) -> bytes:
    numbers = {name: value for name, value in row.items() if name not in ("turn", "time") and math.isfinite(value)}
    return event(int(row["turn"]), numbers, wall_seconds=row["time"])
