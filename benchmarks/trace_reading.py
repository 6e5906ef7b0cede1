"""How fast training logs are read, beside the reference implementation's way of reading them, in the same process."""

import ctypes
import itertools
import json
import math
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from results import Cell, Result, Table, machine_versions, run_benchmark

from mlgokit.errors import UsageError
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, Problem
from mlgokit.progress import Report
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header, Log, iter_log, read_log, write_log

REGISTERS = 33
REFERENCE = {INLINE_SIZE.name: 6_700.0, REGALLOC_EVICTION.name: 11_300.0}
"""Observations per second of the reference's reader on one core of the machine that the bars were set on."""
BARS = {INLINE_SIZE.name: 200, REGALLOC_EVICTION.name: 30}
_BATCH = 4096
_CTYPES = {"float": ctypes.c_float, "int64_t": ctypes.c_int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReading:
    """Time the reader on synthetic logs of inlining and eviction, in long and in short contexts."""

    observations: int = 100_000
    """Inlining observations of each log; eviction logs have a fifth of them."""
    repetitions: int = 15
    """How often each log is read; the least time counts."""
    folder: Path | None = None
    """Where the logs are written; a temporary folder if not given. They take 250 MB."""
    seed: int = 1
    """Of the values."""
    json: Path = Path("docs/results/trace_reading.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One log: which problem, how many contexts of how many observations each."""

    problem: Problem
    contexts: int
    length: int

    @property
    def title(self) -> str:
        """For the table."""
        return f"{self.problem.name}, {self.contexts} contexts of {self.length}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TraceReading, measure, arguments)


def measure(config: TraceReading, report: Report) -> Result:
    """Write the logs, read each in all ways, in turns.

    Raises:
        UsageError: there is nothing to read, or nobody reads it.
    """
    if config.observations < 5000 or config.repetitions < 1:
        raise UsageError(
            f"observations, repetitions: expected at least 5000 and 1, found {config.observations} and "
            f"{config.repetitions}; give larger numbers"
        )
    found = machine_versions()
    rng = np.random.default_rng(config.seed)
    rows: list[tuple[Cell, ...]] = []
    passed, answers = True, list[str]()
    with tempfile.TemporaryDirectory(prefix="mlgokit-reading-") as scratch:
        path = (config.folder or Path(scratch)) / "benchmark.log"
        cases = cases_of(config.observations)
        for index, case in enumerate(cases):
            report(index, len(cases), "read")
            write_log(path, synthetic_log(case, rng))
            count = case.contexts * case.length
            ours = count / least_seconds(lambda: read_log(path).observation_count, config.repetitions)
            batches = count / least_seconds(lambda: in_batches(path), config.repetitions)
            singly = count / least_seconds(lambda: sum(1 for _ in one_by_one(path)), max(1, config.repetitions // 8))
            bar = REFERENCE[case.problem.name] * BARS[case.problem.name]
            passed &= ours >= bar
            times = ours / REFERENCE[case.problem.name]
            answers.append(f"{case.title}: {times:.0f} times")
            speed = ours * path.stat().st_size / count / 1e9
            rows.append((case.title, ours, speed, batches, peak_megabytes(path), singly, ours / singly, times, bar))
            path.unlink()
        report(len(cases), len(cases), "read")
    table = Table(
        title="Observations per second of processor time",
        columns=(
            "log", "read_log", "GB/s", f"iter_log, {_BATCH} a batch", "its peak, MB", "one by one, here",
            "read_log / one by one", "read_log / reference", "bar",
        ),
        rows=tuple(rows),
        note=(
            "The least of the repetitions, the file in the page cache. One by one: a reading of our own in the "
            "reference's manner, each tensor an object that ctypes casts, without TensorFlow's tensor shapes, so "
            "faster than the reference itself. Reference: its own reader, measured before on one core of another "
            f"machine ({', '.join(f'{name} {speed:.0f}' for name, speed in REFERENCE.items())})."
        ),
    )  # fmt: skip
    return Result(
        benchmark="trace_reading",
        question="How many observations of a training log are read in a second, against the reference's reader?",
        answer="; ".join(answers),
        bar="; ".join(f"{name} at least {times} times the reference" for name, times in BARS.items()),
        passed=passed,
        seed=config.seed,
        versions=found,
        inputs={},
        tables=(table,),
    )


def cases_of(observations: int) -> list[Case]:
    """Long contexts, as those that the reference was measured on, and contexts of ten observations.

    Example:
        >>> [case.title for case in cases_of(100_000)][1]
        'inline-size, 10000 contexts of 10'
    """
    fifth = observations // 5
    return [
        Case(problem=INLINE_SIZE, contexts=50, length=observations // 50),
        Case(problem=INLINE_SIZE, contexts=observations // 10, length=10),
        Case(problem=REGALLOC_EVICTION, contexts=10, length=fifth // 10),
        Case(problem=REGALLOC_EVICTION, contexts=fifth // 10, length=10),
    ]


def synthetic_log(case: Case, rng: np.random.Generator) -> Log:
    """All features of the problem, its decision and a score, with random values."""
    features = [
        TensorSpec(name=feature.name, type=feature.type, shape=(1, REGISTERS) if feature.per_column else (1,))
        for feature in case.problem.features
    ]
    features.append(TensorSpec(name=case.problem.decision, type="int64_t", shape=(1,)))
    score = TensorSpec(name="reward", type="float", shape=(1,))
    count = case.contexts * case.length

    def values(spec: TensorSpec) -> Any:
        shape = (count, *spec.shape)
        return rng.random(shape, np.float32) if spec.type == "float" else rng.integers(0, 1000, shape)

    return Log(
        header=Header(features=tuple(features), score=score),
        contexts=tuple(
            ContextSpan(name=f"_ZN4some8function{number}Ev", start=start, stop=start + case.length)
            for number, start in enumerate(range(0, count, case.length))
        ),
        columns={spec.name: values(spec) for spec in features},
        scores=values(score),
        scored=np.ones(count, np.bool_),
    )


def least_seconds(work: Callable[[], int], repetitions: int) -> float:
    """Least processor time of a call."""
    times: list[float] = []
    for _ in range(repetitions):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def in_batches(path: Path) -> int:
    """Read a log in batches; returns the number of observations."""
    return sum(log.observation_count for log in iter_log(path, observations_per_batch=_BATCH))


def peak_megabytes(path: Path) -> float:
    """Most memory that reading in batches takes."""
    tracemalloc.start()
    try:
        in_batches(path)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def one_by_one(path: Path) -> Iterator[tuple[str, int, list[Any], Any]]:
    """Context, number, tensors and score of each observation, every tensor an object of its own."""
    with path.open("rb") as file:
        header = json.loads(file.readline())
        features = [TensorSpec.from_json(spec) for spec in header["features"]]
        score = TensorSpec.from_json(header["score"])
        context = ""

        def tensor(spec: TensorSpec) -> Any:
            data = file.read(math.prod(spec.shape) * ctypes.sizeof(_CTYPES[spec.type]))
            pointer = ctypes.cast(ctypes.c_char_p(data), ctypes.POINTER(_CTYPES[spec.type]))
            return ctypes.cast(pointer, ctypes.POINTER(_CTYPES[spec.type] * math.prod(spec.shape))).contents, data

        while line := file.readline():
            event = json.loads(line)
            if "context" in event:
                context = event["context"]
                continue
            tensors = [tensor(spec) for spec in features]
            file.readline()
            if json.loads(file.readline())["outcome"] != event["observation"]:
                raise UsageError(f"{path}: expected outcome {event['observation']}, found another; write the log again")
            value = tensor(score)
            file.readline()
            yield context, event["observation"], tensors, value


def agree(path: Path) -> bool:
    """Whether both ways read the same."""
    log = read_log(path)
    names = [spec.name for spec in log.header.features]
    for row, (_, _, tensors, _) in enumerate(itertools.islice(one_by_one(path), 100)):
        for name, (values, _) in zip(names, tensors, strict=True):
            if not np.array_equal(log.columns[name][row].reshape(-1), np.array(list(values), log.columns[name].dtype)):
                return False
    return True


if __name__ == "__main__":
    sys.exit(main())
