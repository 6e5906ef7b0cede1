"""The loop of every training; each turn collects labels, fits the policy, and stores the state.

Labels come from a :class:`~mlgokit.learning.training.LabelSource`, which :func:`source_of` chooses.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlgokit.algorithms.registry import TRIALS
from mlgokit.compiler.request import Compiler
from mlgokit.errors import InputError
from mlgokit.learning.live_ranges import LIVE_RANGES
from mlgokit.learning.passes import PASSES
from mlgokit.learning.rollouts import Rollouts
from mlgokit.learning.run_folder import (
    CHECKPOINT_NAME,
    EVENTS_NAME,
    Checkpoint,
    Row,
    append_event,
    event,
    load_checkpoint,
    rows_up_to,
    save_checkpoint,
    start_events,
    write_metrics,
)
from mlgokit.learning.settings import Learning, check_learning, check_ready
from mlgokit.learning.training import LabelSource, Learned, Run, Training
from mlgokit.locks import locked
from mlgokit.module import Module
from mlgokit.problems import PASS_SELECTION, REGALLOC_PRIORITY, REGALLOC_WEIGHT, Problem
from mlgokit.progress import Report, say_nothing

ROLLOUTS = Rollouts()
FROM_TRIALS: Mapping[tuple[str, str | None], LabelSource] = {
    (PASS_SELECTION.name, None): PASSES,
    (REGALLOC_PRIORITY.name, TRIALS): LIVE_RANGES,
    (REGALLOC_WEIGHT.name, TRIALS): LIVE_RANGES,
}
"""The problems that are learned from trials of single functions, by problem and preset (``None`` for any preset). All
others are learned from rollouts."""


def source_of(problem: Problem, preset: str) -> LabelSource:
    """Choose the source of labels for a problem and a preset: trials of functions, or rollouts.

    Example:
        >>> from mlgokit.problems import INLINE_SIZE
        >>> source_of(INLINE_SIZE, "default") is ROLLOUTS, source_of(PASS_SELECTION, "small") is PASSES
        (True, True)
    """
    return FROM_TRIALS.get((problem.name, None)) or FROM_TRIALS.get((problem.name, preset)) or ROLLOUTS


def check_training(problem: Problem, algorithm: str, config: Learning) -> Any:
    """Check the options of a training before it writes anything, and return the settings of its algorithm.

    Raises:
        UsageError: the settings contradict themselves or do not apply.
    """
    settings = source_of(problem, config.preset).check(problem, algorithm, config)
    check_learning(config.resolve(algorithm))
    return settings


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
    """Learn a policy until the budget is spent; an interrupted run in ``folder`` is continued.

    Args:
        compiler: compiler to use; it should cache, or an interrupted training repeats compilations.
        modules: modules to learn from; a part of them may be kept apart for validation.
        problem: problem whose decisions are learned.
        algorithm: name of the algorithm in ``LEARNERS``.
        config: settings of the loop.
        folder: folder for the checkpoint, the metrics, the events and the best policy.
        report: receives the progress.
        deadline: time of :func:`time.monotonic` after which no turn begins, except for the first.

    Raises:
        BusyError: another process works in the folder.
        CorpusError: the modules have no decisions to learn from.
        InputError: the checkpoint or the policy to start from cannot be used.
        ToolError: JAX is not installed.
        UsageError: the settings contradict themselves or do not apply, or no policy improves on LLVM.
    """
    source = source_of(problem, config.preset)
    settings = check_training(problem, algorithm, config)
    config = config.resolve(algorithm)
    check_ready(modules)
    training = Training(
        compiler=compiler,
        modules=tuple(modules),
        problem=problem,
        algorithm=algorithm,
        config=config,
        settings=settings,
        folder=folder,
        report=report,
        deadline=deadline,
    )
    with locked(folder):
        return _run_turns(source, training)


def _run_turns(source: LabelSource, training: Training) -> Learned:
    """Run turns until the budget is spent, from the checkpoint if there is one; store each turn in the folder."""
    folder, algorithm = training.folder, training.algorithm
    checkpoint = load_checkpoint(folder, algorithm)
    if checkpoint is None:
        run = source.open(training, None)
        state, counters = run.start()
        save_checkpoint(folder, algorithm, Checkpoint(state=state, counters=counters, modules=run.modules))
    else:
        run = _resume(source, training, checkpoint)
        state, counters = checkpoint.state, checkpoint.counters
    rows = rows_up_to(counters.turn, folder)
    start_events(folder / EVENTS_NAME, map(_event, rows))
    while not run.is_over(counters):
        state, counters, row = run.step(state, counters)
        rows.append(row)
        write_metrics(folder, rows)
        append_event(folder / EVENTS_NAME, _event(row))
        save_checkpoint(folder, algorithm, Checkpoint(state=state, counters=counters, modules=run.modules))
    learned = run.finish(state, counters, rows)
    if checkpoint is not None and (dropped := len(training.modules) - len(checkpoint.modules)):
        left_out = {**learned.left_out, "left out when the training began": dropped}
        learned = dataclasses.replace(learned, left_out=left_out)
    if learned.rows != tuple(rows):
        # The last row has been completed, as by a validation at the end.
        write_metrics(folder, learned.rows)
        start_events(folder / EVENTS_NAME, map(_event, learned.rows))
    return learned


def _resume(source: LabelSource, training: Training, checkpoint: Checkpoint) -> Run:
    """Open the run of a checkpoint, with the modules that compiled when it began: others would change its draws."""
    kept = set(checkpoint.modules)
    training = dataclasses.replace(training, modules=tuple(one for one in training.modules if one.name in kept))
    run = source.open(training, checkpoint.state)
    if missing := kept.difference(run.modules):
        raise InputError(
            f"training in {training.folder}: expected the {len(kept)} modules that compiled when it began, found that "
            f"{min(missing)} does not; run the same command again, with more --timeout-seconds if the machine is slow, "
            f"or delete {CHECKPOINT_NAME} to restart the training"
        )
    return run


def _event(row: Row) -> bytes:
    """Encode the finite numbers of a turn as a TensorBoard event."""
    numbers = {name: value for name, value in row.items() if name not in ("turn", "time") and math.isfinite(value)}
    return event(int(row["turn"]), numbers, wall_seconds=row["time"])
