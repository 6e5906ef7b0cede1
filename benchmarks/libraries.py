"""What does protobuf give in the place of code of our own? Reading and writing of training sets.

The reader and writer before are those of commit 40002c8, taken from git.
"""

import itertools
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.errors import UsageError
from mlgokit.traces import messages, sequence_example

BEFORE = "40002c8"
MOST = 2.0
"""How many times longer reading may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """Options.

    Attributes:
        json: where the result is written.
        seed: of the training sets.
        repeat: how often each way is measured; the least counts.
    """

    json: Path = Path("docs/results/libraries.json")
    seed: int = 1
    repeat: int = 5


def inlining(rng: np.random.Generator) -> list[dict[str, Any]]:
    """100 modules of 1,000 decisions: 38 features, from flags to large counts, a decision and a reward."""
    return [
        {f"feature_{index:02}": rng.lognormal(index % 10, 1.5, (1000, 1)).astype(np.int64) for index in range(38)}
        | {"inlining_decision": rng.integers(0, 2, (1000, 1)), "reward": np.zeros((1000, 1), np.float32)}
        for _ in range(100)
    ]


def eviction(rng: np.random.Generator) -> list[dict[str, Any]]:
    """20 functions of 500 evictions: 33 columns of flags, counts and floats."""
    return [
        {f"flag_{index:02}": rng.integers(0, 2, (500, 33)) for index in range(9)}
        | {f"count_{index:02}": rng.integers(0, 5000, (500, 33)) for index in range(4)}
        | {f"weight_{index:02}": rng.random((500, 33)).astype(np.float32) for index in range(8)}
        | {"index_to_evict": rng.integers(0, 33, (500, 1)), "reward": np.zeros((500, 1), np.float32)}
        for _ in range(20)
    ]


def before() -> Any:
    """The module with our own encoding, as it was."""
    path = "src/mlgokit/traces/sequence_example.py"
    text = subprocess.run(["git", "show", f"{BEFORE}:{path}"], check=True, capture_output=True, text=True).stdout
    module = sys.modules["before"] = types.ModuleType("before")
    exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102  (our own, from git)
    return module


def reader_value_by_value() -> Callable[[bytes], Mapping[str, Any]]:
    """Protobuf as its documentation shows it: a message of Python for each step."""
    classes = messages.message_classes(
        "libraries",
        {
            "FloatList": {1: "repeated float value"},
            "Int64List": {1: "repeated int64 value"},
            "Feature": {2: "optional FloatList float", 3: "optional Int64List int64"},
            "FeatureList": {1: "repeated Feature feature"},
            "Entry": {1: "optional string key", 2: "optional FeatureList value"},
            "Map": {1: "repeated Entry entry"},
            "SequenceExample": {2: "optional Map feature_lists"},
        },
    )

    def column(steps: Any) -> Any:
        kind = "float" if steps[0].HasField("float") else "int64"
        values = itertools.chain.from_iterable(getattr(step, kind).value for step in steps)
        return np.fromiter(values, np.float32 if kind == "float" else np.int64).reshape(len(steps), -1)

    def read(data: bytes) -> Mapping[str, Any]:
        entries = classes["SequenceExample"].FromString(data).feature_lists.entry
        return {entry.key: column(entry.value.feature) for entry in entries}

    return read


def seconds(work: Callable[[Any], object], items: Iterable[Any], repeat: int) -> float:
    """The least processor time that ``work`` takes for all items."""
    times: list[float] = []
    for _ in range(repeat):
        begin = time.process_time()
        for item in items:
            work(item)
        times.append(time.process_time() - begin)
    return min(times)


def measure(config: Libraries, setup: Setup) -> Result:
    """Read and write both training sets each way."""
    import google.protobuf

    setup.tools["protobuf"] = google.protobuf.__version__
    old, value_by_value = before(), reader_value_by_value()
    rows: list[tuple[Cell, ...]] = []
    for name, make in (("inline-size, 100 x 1,000", inlining), ("regalloc-eviction, 20 x 500", eviction)):
        columns = make(np.random.default_rng(config.seed))
        records = [sequence_example.encode_sequence(one) for one in columns]
        if records != [old.encode_sequence(one) for one in columns]:
            raise UsageError(f"{name}: expected the same bytes as before, found others; mend the writer")
        for record, one in zip(records, columns, strict=True):
            ways = (old.decode_sequence(record, path="x").columns, value_by_value(record))
            for found in (*ways, sequence_example.decode_sequence(record, path="x").columns):
                if any(not np.array_equal(found[key], column) for key, column in one.items()):
                    raise UsageError(f"{name}: expected what was written, found other columns; mend the reader")
        reading = [
            seconds(lambda data: old.decode_sequence(data, path="x"), records, config.repeat),
            seconds(lambda data: sequence_example.decode_sequence(data, path="x"), records, config.repeat),
            seconds(value_by_value, records, config.repeat),
        ]
        writing = [seconds(module.encode_sequence, columns, config.repeat) for module in (old, sequence_example)]
        rows.append((name, sum(map(len, records)) / 1e6, *reading, reading[1] / reading[0], *writing))
    worst = max(float(str(row[5])) for row in rows)
    return Result(
        benchmark="libraries",
        question="How long does a training set take to read and write with protobuf, against code of our own?",
        answer=f"reading takes {min(float(str(row[5])) for row in rows):.2f} to {worst:.2f} times as long",
        bar=f"reading takes at most {MOST:g} times as long, and the bytes are the same",
        passed=worst <= MOST,
        seed=config.seed,
        tables=(
            Table(
                title="Seconds of processor time",
                columns=(
                    "training set",
                    "MB",
                    "read, our own",
                    "read, protobuf",
                    "read, protobuf step by step",
                    "protobuf / our own",
                    "write, our own",
                    "write, protobuf",
                ),
                rows=tuple(rows),
                note="The least of the repetitions. Step by step: a Python object for each feature of each step, as "
                "protobuf's documentation shows it; ours joins the lists of all steps in protobuf.",
            ),
        ),
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(Libraries, measure))
