"""Where a training stands: one file with the learner's state and the loop's counters, and the rows of its turns."""

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlgokit.algorithms.learner import State, state_bytes, state_from_bytes
from mlgokit.errors import InputError
from mlgokit.files import atomic_write
from mlgokit.learning.metrics import ROWS_NAME, Row, read_metrics

CHECKPOINT_NAME = "checkpoint.state"
_COUNTERS = "loop/"
_ALWAYS = frozenset({"turn", "compilations", "reward", "validation_gain", "user_seconds", "seconds", "time"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """How far a run is.

    Attributes:
        turn: requests that were answered.
        compilations: that the learner asked for, failed and remembered ones included.
        failed: of these.
        evaluations: compilations to judge policies, which are no part of any budget.
        user_seconds: processor time of the learner's compilations.
        seconds: elapsed time of all turns.
        best_turn: the turn whose policy was judged best; 0 if none was judged.
        best_gain: what it gained.
        stale: evaluations since then.
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


def save_checkpoint(folder: Path, algorithm: str, state: State, counters: Counters) -> None:
    """Keep all that a learner knows, and how far the run is, in one file.

    Raises:
        StorageError: the disk is full or not writable.
    """
    numbers: dict[str, Any] = {
        _COUNTERS + name: np.array(value) for name, value in dataclasses.asdict(counters).items()
    }
    atomic_write(folder / CHECKPOINT_NAME, state_bytes({**state, **numbers}, learner=algorithm), durable=True)


def load_checkpoint(folder: Path, algorithm: str) -> tuple[State, Counters] | None:
    """State and counters of the checkpoint, if there is one.

    Raises:
        InputError: it is damaged, or of another learner.
    """
    path = folder / CHECKPOINT_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        stored = state_from_bytes(data, learner=algorithm)
        counters = _counters_in(stored)
    except (InputError, KeyError, ValueError, TypeError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path}: expected where the training stands, found another or a damaged file ({reason}); put back a copy "
            "of it, or delete it to start the training anew: compilations in the store are not made again"
        ) from error
    return {name: value for name, value in stored.items() if not name.startswith(_COUNTERS)}, counters


def _counters_in(stored: State) -> Counters:
    """The counters beside a learner's state; a :class:`KeyError` or :class:`ValueError` if they are none."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(Counters):
        value = stored[_COUNTERS + field.name].item()
        is_number = not isinstance(value, bool) and isinstance(value, (int, float)) and not math.isnan(value)
        if not is_number or (field.type in (int, "int") and (not isinstance(value, int) or value < 0)):
            raise ValueError(f"{field.name}: {value!r:.100}")
        found[field.name] = value
    return Counters(**found)


def rows_up_to(turn: int, folder: Path) -> list[Row]:
    """The rows of the turns that were finished; a kill may have left one more.

    Raises:
        InputError: they are not those.
    """
    rows = [row for row in read_metrics(folder) if row.get("turn", 0) <= turn] if turn else []
    if [row.get("turn") for row in rows] != list(range(1, turn + 1)) or any(_ALWAYS - row.keys() for row in rows):
        raise InputError(
            f"metrics {folder / ROWS_NAME}: expected a row of numbers for each of the {turn} turns of the checkpoint, "
            f"found {len(rows)} rows, not all of them whole; put back a copy of it, or delete {CHECKPOINT_NAME} to "
            "start the training anew: compilations in the store are not made again"
        )
    return rows
