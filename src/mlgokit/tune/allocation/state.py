"""Functions and modules in a search over register allocations, and what is kept of them on disk."""

import io
import json
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler.regalloc_cost import OFFSET
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides
from mlgokit.evaluation.statistics import geometric_mean_change
from mlgokit.files import atomic_write
from mlgokit.module import Module

_PATIENCE = 48
_PATIENCE_PER_QUESTION = 3
_MOST_PATIENCE = 1500


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionSearch:
    """A function in the search.

    Attributes:
        key: as the plugin tells it.
        name: its symbol.
        plain: its score as LLVM allocates it; infinite before the first trial if that has to measure it.
        score: the best one.
        cost: the part of LLVM's costs in the plain score where bytes are wanted; infinite before that is measured.
        spills: whether it has costs beside copies, of which most cannot be saved.
        departures: the decisions that gave it.
        start: decisions of an earlier plugin, to be tried first.
        evictions: questions about evictions, once they were counted.
        priorities: questions about priorities.
        trials: how many there were.
        gained: after how many of them the score became better last.
        seconds: what one takes.
        rate: bytes that it saved in a second lately; infinite before it was tried.
    """

    key: int
    name: str
    plain: float
    score: float
    spills: bool = True
    departures: Overrides = field(default_factory=Overrides)
    start: Overrides | None = None
    evictions: int = 0
    priorities: int = 0
    trials: int = 0
    gained: int = 0
    seconds: float = 0.01
    rate: float = math.inf
    cost: float = math.inf

    @property
    def exhausted(self) -> bool:
        """Whether so many trials gave nothing that the time is better spent elsewhere."""
        questions = self.evictions + self.priorities
        if self.trials and (not questions or math.isinf(self.score)):
            return True
        patience = _PATIENCE + _PATIENCE_PER_QUESTION * questions
        return self.score <= 0 or self.trials - self.gained >= min(patience, _MOST_PATIENCE)


@dataclass(slots=True, kw_only=True, eq=False)
class ModuleSearch:
    """A module in the search.

    Attributes:
        module: what is compiled.
        keys: of all its functions that come to the allocator, by name.
        functions: those with costs that no earlier module has too.
        compile_seconds: of one compilation without trials.
        rate: gain per second lately; infinite before the first round if there are spills.
        failures: rounds in a row that gave nothing since the compiler failed.
    """

    module: Module
    keys: dict[str, int]
    functions: list[FunctionSearch]
    compile_seconds: float
    rate: float = math.inf
    failures: int = 0

    def __post_init__(self) -> None:
        if not any(one.spills for one in self.functions):
            self.rate = 0.0

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing to try any more."""
        return self.failures >= 2 or all(one.exhausted for one in self.functions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The search at one moment.

    Attributes:
        wall_seconds: elapsed time.
        user_seconds: processor time of all compilations, trials included.
        compilations: how many there were.
        trials: likewise.
        score: the sum of the best scores.
        change: geometric mean of best by plain score over functions with costs, minus 1; of bytes, that of their sums.
    """

    wall_seconds: float = 0.0
    user_seconds: float = 0.0
    compilations: int = 0
    trials: int = 0
    score: float = 0.0
    change: float = 0.0


def mean_ratio(scores: Sequence[tuple[float, float]]) -> float:
    """Geometric mean of after by before, each with the offset of relative changes, minus 1.

    Example:
        >>> round(mean_ratio([(100.0, 50.0), (100.0, 100.0)]), 3)
        -0.293
    """
    if not scores:
        return 0.0
    before, after = (np.array(scores) + OFFSET).T
    return geometric_mean_change(before, after)


def save_functions(path: Path, functions: Sequence[FunctionSearch]) -> None:
    """Keep what is known of a module's functions.

    Raises:
        StorageError: the disk is full or not writable.
    """
    numbers = [
        (one.evictions, one.priorities, one.trials, one.gained, len(one.departures.evictions), len(one.departures))
        for one in functions
    ]
    records = [part for one in functions for part in (one.departures.evictions, one.departures.priorities)]
    file = io.BytesIO()
    np.savez_compressed(
        file,
        key=np.array([one.key for one in functions], np.uint64),
        score=np.array([(one.plain, one.score, one.seconds, one.cost) for one in functions], np.float64).reshape(-1, 4),
        numbers=np.array(numbers, np.int64).reshape(-1, 6),
        records=np.concatenate([np.zeros(0, OVERRIDE), *records]).view(np.uint64),
    )
    atomic_write(path, file.getvalue())


def load_functions(path: Path) -> dict[int, FunctionSearch]:
    """What is known of a module's functions, by key; nothing if there is none or its file is damaged."""
    found: dict[int, FunctionSearch] = {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            records = stored["records"].view(OVERRIDE)
            rows = zip(stored["key"].tolist(), stored["score"].tolist(), stored["numbers"].tolist(), strict=True)
            for key, (plain, score, seconds, cost), (evictions, priorities, trials, gained, first, both) in rows:
                mine, records = records[:both], records[both:]
                found[key] = FunctionSearch(
                    key=key,
                    name="",
                    plain=plain,
                    score=score,
                    departures=Overrides(evictions=mine[:first], priorities=mine[first:]),
                    evictions=evictions,
                    priorities=priorities,
                    trials=trials,
                    gained=gained,
                    seconds=seconds,
                    cost=cost,
                )
    except (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile):
        return {}
    return found


def load_reached(path: Path) -> Reached:
    """Where an earlier search stood."""
    try:
        return Reached(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return Reached()
