"""The files of a training run: the checkpoint, a row of metrics for each turn, and TensorBoard events.

docs/formats.md has the bytes. The events are ``Event`` and ``Summary`` of TensorFlow's ``core/util/event.proto`` and
``core/framework/summary.proto``, as TFRecords.
"""

import csv
import dataclasses
import io
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.algorithms.learner import Floats, State, state_bytes, state_from_bytes
from mlgokit.decode import decode
from mlgokit.errors import InputError
from mlgokit.files import atomic_write, writing
from mlgokit.manifest import finite_json
from mlgokit.traces.messages import message_classes
from mlgokit.traces.tfrecord import frame_record

CHECKPOINT_NAME = "checkpoint.state"
ROWS_NAME = "turns.json"
CSV_NAME = "metrics.csv"
EVENTS_NAME = "events.out.tfevents.0.mlgokit"
"""Name of the event file; TensorBoard recognises its middle part."""

Row = Mapping[str, float]
"""The metrics of one turn by name; NaN for what was not measured in it."""

_COUNTERS, _MODULES = "loop/", "loop/modules"
_REQUIRED = frozenset({"turn", "compilations", "reward", "validation_gain", "user_seconds", "seconds", "time"})

_Event = message_classes(
    "mlgokit.events",
    {
        "Value": {1: "optional string tag", 2: "optional float simple_value"},
        "Summary": {1: "repeated Value value"},
        "Event": {
            1: "optional double wall_time",
            2: "optional int64 step",
            3: "optional string file_version",
            5: "optional Summary summary",
        },
    },
)["Event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The progress of a run.

    Attributes:
        turn: number of finished turns.
        compilations: compilations that the learner asked for, including failed and cached ones.
        failed: number of these compilations that failed.
        evaluations: number of compilations for validation; they do not count against the budget.
        user_seconds: processor time of the learner's compilations.
        seconds: elapsed time of all turns.
        best_turn: number of the turn whose policy was best in validation; 0 if none was validated.
        best_gain: gain of that policy in validation.
        stale: number of validations since the best one.
    """

    turn: int = 0
    compilations: int = 0
    failed: int = 0
    evaluations: int = 0
    user_seconds: float = 0.0
    seconds: float = 0.0
    best_turn: int = 0
    best_gain: float = -math.inf
    stale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """A run after a turn.

    Attributes:
        state: state of the learner.
        counters: progress of the run.
        modules: names of the modules that compiled when the run began; it goes on with these alone.
    """

    state: State
    counters: Counters
    modules: tuple[str, ...]


def save_checkpoint(folder: Path, algorithm: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint as one file.

    Raises:
        StorageError: the disk is full or not writable.
    """
    numbers: dict[str, Any] = {
        _COUNTERS + name: np.array(value) for name, value in dataclasses.asdict(checkpoint.counters).items()
    }
    numbers[_MODULES] = np.frombuffer(json.dumps(checkpoint.modules).encode(), np.uint8)
    data = state_bytes({**checkpoint.state, **numbers}, learner=algorithm)
    atomic_write(folder / CHECKPOINT_NAME, data, durable=True)


def load_checkpoint(folder: Path, algorithm: str) -> Checkpoint | None:
    """Read the checkpoint; ``None`` if there is none.

    Raises:
        InputError: the checkpoint is damaged, or was written by another learner.
    """
    path = folder / CHECKPOINT_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        stored = state_from_bytes(data, learner=algorithm)
        counters = _read_counters(stored)
        modules = decode(tuple[str, ...], json.loads(stored[_MODULES].tobytes()), "modules")
    except (InputError, KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path}: expected the checkpoint of this training, found another or a damaged file ({reason}); restore a "
            "copy, or delete it to restart the training: compilations in the store are reused"
        ) from error
    state = {name: value for name, value in stored.items() if not name.startswith(_COUNTERS)}
    return Checkpoint(state=state, counters=counters, modules=modules)


def _read_counters(stored: State) -> Counters:
    """Read the counters from the arrays of a checkpoint, checking their types."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Counters):
        value = stored[_COUNTERS + field.name].item()
        is_number = not isinstance(value, bool) and isinstance(value, (int, float)) and not math.isnan(value)
        if not is_number or (field.type in (int, "int") and (not isinstance(value, int) or value < 0)):
            raise ValueError(f"{field.name}: expected a number, or a count of at least 0, found {value!r:.100}")
        values[field.name] = value
    return Counters(**values)


def make_row(
    counters: Counters,
    rewards: Floats,
    learner: Mapping[str, float],
    *,
    failed: int,
    validation: float = math.nan,
    seconds_left: float = 0.0,
) -> Row:
    """Make the row of a turn; ``rewards`` are those of its compilations, NaN alone if it measured none."""
    rewards = rewards if len(rewards) else np.zeros(1)
    return {
        "turn": counters.turn,
        "compilations": counters.compilations,
        "failed": failed,
        "reward": float(rewards.mean()),
        "reward_spread": float(np.nan_to_num(rewards.std())),
        "reward_least": float(rewards.min()),
        "reward_most": float(rewards.max()),
        "validation_gain": validation,
        "user_seconds": counters.user_seconds,
        "seconds": counters.seconds,
        "seconds_left": seconds_left,
        "time": time.time(),
        **{f"learner/{name}": value for name, value in learner.items()},
    }


def write_metrics(folder: Path, rows: Sequence[Row]) -> None:
    """Write the rows as JSON and as CSV; a number that is not finite becomes null in JSON and empty in CSV.

    Raises:
        StorageError: the disk is full or not writable.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(names)
    lines.writerows(finite_json([row.get(name, math.nan) for name in names]) for row in rows)
    atomic_write(folder / CSV_NAME, text.getvalue())
    atomic_write(folder / ROWS_NAME, json.dumps(finite_json(rows), allow_nan=False), durable=True)


def read_metrics(folder: Path) -> list[Row]:
    """Read the rows of metrics that :func:`write_metrics` wrote as JSON.

    Raises:
        InputError: the file is missing or malformed.
    """
    path = folder / ROWS_NAME
    try:
        rows = json.loads(path.read_bytes())
        return [{name: _number(value) for name, value in row.items()} for row in rows]
    except (OSError, ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"metrics {path}: expected the rows of the checkpoint beside it, found: {error}; "
            "delete the checkpoint to restart the training"
        ) from error


def _number(value: object) -> float:
    """Decode a number of a row; null is NaN."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"expected a number, found {value!r:.100}")
    return value


def rows_up_to(turn: int, folder: Path) -> list[Row]:
    """Read the rows of the finished turns; a run that was killed may have written one more, which is dropped.

    Raises:
        InputError: the file does not have one whole row for each of these turns.
    """
    rows = [row for row in read_metrics(folder) if row.get("turn", 0) <= turn] if turn else []
    if [row.get("turn") for row in rows] != list(range(1, turn + 1)) or any(_REQUIRED - row.keys() for row in rows):
        raise InputError(
            f"metrics {folder / ROWS_NAME}: expected a row of numbers for each of the {turn} turns of the checkpoint, "
            f"found {len(rows)} rows, not all of them whole; restore a copy, or delete {CHECKPOINT_NAME} to "
            "restart the training: compilations in the store are reused"
        )
    return rows


def rounds_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Convert rows, which have running totals, to JSON values of each turn alone: cost, failures, learner metrics.

    Example:
        >>> rows = [{"turn": 1, "compilations": 9, "user_seconds": 2.0, "seconds": 1.0, "failed/boom": 1,
        ...          "learner/flips": 8.0, "learner/gate/set/margin": 2.0}]
        >>> (first,) = rounds_of(rows)
        >>> first["flips"], first["failures"], first["gate"][0]["margin"]
        (8, {'boom': 1}, 2.0)
    """
    rounds: list[dict[str, Any]] = []
    for before, row in zip([{}, *rows], rows, strict=False):

        def spent(name: str, before: Row = before, row: Row = row) -> float:
            """Subtract the running total of the turn before from that of this turn."""
            return row[name] - before.get(name, 0)

        known = {name: value for name, value in row.items() if not math.isnan(value)}
        numbers = _select_prefix("learner/", known)
        rounds.append(
            {
                "round": int(row["turn"]) - 1,
                "compilations": int(spent("compilations")),
                "user_seconds": spent("user_seconds"),
                "wall_seconds": spent("seconds"),
                "failures": {reason: int(count) for reason, count in _select_prefix("failed/", known).items()},
                "validation_gain": row.get("validation_gain", math.nan),
                "reward": row.get("reward", math.nan),
                **{name: int(value) if value.is_integer() else value for name, value in numbers.items()
                   if "/" not in name},
                "gate": _gate(numbers),
            }
        )  # fmt: skip
    return rounds


def _select_prefix(prefix: str, row: Row) -> dict[str, float]:
    """Select the numbers whose name has a prefix, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def _gate(numbers: Row) -> list[dict[str, Any]]:
    """Collect the statistics of each side of a gate; a closed side has an infinite margin."""
    sides = {side: _select_prefix(f"gate/{side}/", numbers) for side in ("unset", "set")}
    return [
        {
            "feature_is_set": side == "set",
            **dict.fromkeys(("saved_bytes", "error_bytes", "alone_saved_bytes", "alone_error_bytes"), 0.0),
            "margin": math.inf,
            **facts,
            "departures": int(facts.get("departures", 0)),
        }
        for side, facts in sides.items()
        if facts
    ]


def event(step: int, numbers: Mapping[str, float], *, wall_seconds: float) -> bytes:
    """Encode a TensorBoard event with the scalars ``numbers`` at ``step``; ``wall_seconds`` is Unix time.

    Example:
        >>> event(1, {"loss": 0.5}, wall_seconds=0.0).hex()
        '09000000000000000010012a0d0a0b0a046c6f7373150000003f'
    """
    values = [{"tag": name, "simple_value": value} for name, value in numbers.items()]
    return _Event(wall_time=wall_seconds, step=step, summary={"value": values}).SerializeToString()


def start_events(path: Path, events: Iterable[bytes]) -> None:
    """Write an event file with ``events``, replacing one that is there.

    Raises:
        StorageError: the disk is full or not writable.
    """
    first = _Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString()
    atomic_write(path, b"".join(frame_record(record) for record in (first, *events)))


def append_event(path: Path, record: bytes) -> None:
    """Append an event to an event file, where a running TensorBoard picks it up.

    Raises:
        StorageError: the disk is full or not writable.
    """
    with writing(path), path.open("ab") as file:
        file.write(frame_record(record))
