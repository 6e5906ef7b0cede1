"""Gradient steps per second of cloning and PPO on one core, with the reference's network, batches and preprocessing."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from results import Cell, Result, Table, run_benchmark, tool_versions

from mlgokit.algorithms.config import BC_REFERENCE, PPO_REFERENCE
from mlgokit.algorithms.learner import Experience, Proposal, Task
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.errors import ToolError
from mlgokit.policy.normaliser import fit_quantile
from mlgokit.progress import Report
from mlgokit.spec import AdviceKind

# google/ml-compiler-opt at d57d79b4, its own trainer on one core of the same kind of machine, by processor time.
REFERENCE_STEPS = {"cloning": 182.0, "PPO": 39.6}
BARS = {"cloning": 20.0, "PPO": 6.0}
IMPORT_SECONDS = 0.5
FEATURES = 35
QUANTILES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientThroughput:
    """Time whole fits to 100,000 observations: normalising, shuffling, batching and gradient steps."""

    contexts: int = 50
    """Modules."""
    decisions: int = 2000
    """Decisions of each."""
    cloning_steps: int = 20_000
    """Steps of one fit of cloning, batches of 64."""
    repetitions: int = 7
    """Fits of each kind that are timed, after one that is not."""
    core: int = 1
    """The core that everything is pinned to."""
    seed: int = 1
    """Of the observations."""
    llvm: int | None = None
    """LLVM major that the result names; the newest supported one if not given."""
    json: Path = Path("docs/results/gradient_throughput.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Steps per second, by processor time and by the clock, and the seconds of the first fit beyond an ordinary one."""

    processor: tuple[float, ...]
    wall: tuple[float, ...]
    first_extra_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(GradientThroughput, measure, arguments)


def measure(config: GradientThroughput, report: Report) -> Result:
    """Time both learners, and the import of the package."""
    found = tool_versions(find_toolchain(config.llvm))
    os.sched_setaffinity(0, {config.core})
    rng = np.random.default_rng(config.seed)
    values = observations(config.contexts * config.decisions, rng)
    task = Task(
        problem="inline-size",
        kind=AdviceKind.BINARY,
        features=tuple(f"feature_{index}" for index in range(FEATURES)),
        normaliser=fit_quantile(values, count=QUANTILES),
        project=np.zeros(config.contexts, np.int64),
    )
    timings: dict[str, Timing] = {}
    for index, (name, make_fit, steps) in enumerate(
        (
            ("cloning", cloning_fit, config.cloning_steps),
            ("PPO", ppo_fit, PPO_REFERENCE.steps),
        )
    ):
        report(index, 3, name)
        timings[name] = timed(make_fit(config, task, values, rng), steps, config.repetitions)
    report(2, 3, "import")
    seconds = import_seconds()
    report(3, 3, "import")
    rows: list[tuple[Cell, ...]] = []
    for name, timing in timings.items():
        middle = statistics.median(timing.processor)
        rows.append(
            (
                name,
                min(timing.processor),
                middle,
                max(timing.processor),
                statistics.median(timing.wall),
                REFERENCE_STEPS[name],
                middle / REFERENCE_STEPS[name],
                timing.first_extra_seconds,
            )
        )
    ratios = {str(row[0]): float(row[6] or 0) for row in rows}
    return Result(
        benchmark="gradient_throughput",
        question="How many gradient steps per second do cloning and PPO make on one core, data pipeline included?",
        answer="; ".join(
            f"{row[0]} {float(row[2] or 0):.0f} steps/s, {ratios[str(row[0])]:.1f} times the reference's"
            for row in rows
        )
        + f"; importing mlgokit {seconds:.2f} s",
        bar=f"cloning {BARS['cloning']:g} times, PPO {BARS['PPO']:g} times, import under {IMPORT_SECONDS:g} s",
        passed=all(ratios[name] >= bar for name, bar in BARS.items()) and seconds < IMPORT_SECONDS,
        seed=config.seed,
        versions=found | {name: version(name) for name in ("jax", "jaxlib", "optax")},
        inputs={},
        tables=(
            Table(
                title="Gradient steps per second",
                columns=(
                    "learner",
                    "least",
                    "median",
                    "most",
                    "median by the clock",
                    "reference, median",
                    "times the reference",
                    "seconds of compiling the step",
                ),
                rows=tuple(rows),
                note=(
                    f"By processor time but for one column, {config.repetitions} fits to "
                    f"{config.contexts * config.decisions} observations of {FEATURES} features, network 70-40-40-20-2. "
                    "Cloning: batches of 64, dropout 0.2. PPO: batches of 256 windows of 16, one turn of "
                    f"{PPO_REFERENCE.steps} steps. A fit begins with raw features and recorded decisions in memory; "
                    "it includes normalising them, PPO's rewards and the exploring policy's preferences, and all "
                    "shuffling. The reference's figures are its own trainer's, end to end, by processor time, on 35 "
                    "features from TFRecords, measured apart on a machine of the same kind."
                ),
            ),
        ),
    )


def observations(rows: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Counters as a compiler sends them: mostly small, now and then large, a few that are flags or never vary."""
    scale = rng.uniform(0.1, 2.5, FEATURES)
    values = np.floor(np.exp(rng.normal(size=(rows, FEATURES)) * scale)).astype(np.int64)
    values[:, :5] = values[:, :5] > 1
    values[:, 5:8] = 0
    return values


def cloning_fit(
    config: GradientThroughput, task: Task, values: npt.NDArray[np.int64], rng: np.random.Generator
) -> Callable[[], object]:
    """A fit of the reference's cloning network."""
    import dataclasses

    from mlgokit.algorithms import imitation

    settings = dataclasses.replace(BC_REFERENCE.imitation, steps=config.cloning_steps)
    rows: dict[str, npt.NDArray[Any]] = {
        "features": values,
        "decisions": (values[:, 10] > values[:, 11]).astype(np.float64),
        "weight": np.ones(len(values)),
    }
    state = imitation.with_rows(imitation.start(task, settings, rng), rows)
    return lambda: imitation.fit(task, settings, state, rng=rng)


def ppo_fit(
    config: GradientThroughput, task: Task, values: npt.NDArray[np.int64], rng: np.random.Generator
) -> Callable[[], object]:
    """One turn of the reference's PPO after all compilations are done."""
    from mlgokit.algorithms import ppo

    learner = ppo.make(task, PPO_REFERENCE)
    state = learner.start(rng)
    count = config.decisions
    decisions = rng.integers(0, 2, (config.contexts, count))
    told = [
        Experience(
            proposal=0,
            compilation=module,
            module=module,
            features=values[module * count : (module + 1) * count],
            decisions=decisions[module],
            log_probability=np.full(count, np.log(0.5)),
            defaults=decisions[module],
            sites=np.arange(count),
            context=np.zeros(count, np.int64),
            context_ids=np.zeros(1, np.int64),
            scores=rng.uniform(900, 1100, 1),
            default_scores=np.array([1000.0]),
        )
        for module in range(config.contexts)
    ]
    everything = np.arange(config.contexts)
    asked = (
        Proposal(
            actor=learner.best(state),
            modules=everything,
            seeds=everything,
            temperature=1.0,
            flip_probability=np.zeros(config.contexts),
        ),
    )
    return lambda: learner.tell(state, asked, told, rng)


def timed(fit: Callable[[], object], steps: int, repetitions: int) -> Timing:
    """Run ``fit`` once and then ``repetitions`` times."""
    seconds: list[tuple[float, float]] = []
    for _ in range(repetitions + 1):
        wall, processor = time.perf_counter(), time.process_time()
        fit()
        seconds.append((time.process_time() - processor, time.perf_counter() - wall))
    usual = statistics.median(first for first, _ in seconds[1:])
    return Timing(
        processor=tuple(steps / first for first, _ in seconds[1:]),
        wall=tuple(steps / second for _, second in seconds[1:]),
        first_extra_seconds=max(0.0, seconds[0][0] - usual),
    )


def import_seconds() -> float:
    """Least processor seconds of three that a new process needs to import the package, which must leave JAX alone.

    Raises:
        ToolError: the import fails, or loads JAX.
    """
    program = (
        "import sys, time; begin = time.process_time(); import mlgokit, mlgokit.algorithms.registry; "
        "assert 'jax' not in sys.modules; print(time.process_time() - begin)"
    )
    found: list[float] = []
    for _ in range(3):
        done = process.run([sys.executable, "-c", program], timeout_seconds=60)
        if done.returncode != 0:
            raise ToolError(f"import: expected mlgokit to load without JAX, found: {done.stderr[-300:]}; reinstall it")
        found.append(float(done.stdout))
    return min(found)


if __name__ == "__main__":
    sys.exit(main())
