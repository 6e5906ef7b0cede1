"""Functions and modules in a search function by function, and their progress on disk."""

import functools
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler.arrays import Arrays, column
from mlgokit.compiler.regalloc_cost import OFFSET
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides, split_overrides
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.tune.search import read_kept

_PATIENCE = 48
_PATIENCE_PER_QUESTION = 3
_MOST_PATIENCE = 1500
_NAMES = frozenset({"key", "score", "counts", "records", "measured_by", "numbers"})


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionState:
    """A function in the search.

    Attributes:
        key: the plugin's key of the function.
        name: symbol of the function.
        plain: its score without overrides; infinite before the first trial if a trial has to measure it.
        score: its best score so far.
        cost: the part of the plain score that comes from LLVM's costs, if scores are bytes; infinite before it is
            measured.
        code_bytes: bytes of its code before the search, or what its executed instructions are worth, if scores are
            bytes or executed instructions; 0 if not known.
        worth: bytes that a unit of the score is worth: those of all entries, if scores are executed instructions.
        spills: whether it has other costs than those of copies, most of which cannot be saved.
        overrides: the overrides that gave the best score.
        start: overrides of an earlier plugin, to be tried first.
        evictions: number of questions about evictions, once they were counted.
        priorities: number of questions about priorities.
        passes: number of questions of passes whether they may run.
        trials: number of trials so far.
        gained: number of trials when the score last improved.
        seconds: processor time of a trial.
        rate: bytes saved per second lately; infinite before the first trial.
        patience: factor on the number of trials without a gain after which it is exhausted.
    """

    key: int
    name: str
    plain: float
    score: float
    code_bytes: float = 0.0
    worth: float = 1.0
    spills: bool = True
    overrides: Overrides = field(default_factory=Overrides)
    start: Overrides | None = None
    evictions: int = 0
    priorities: int = 0
    passes: int = 0
    trials: int = 0
    gained: int = 0
    seconds: float = 0.01
    rate: float = math.inf
    cost: float = math.inf
    patience: int = 1

    @property
    def exhausted(self) -> bool:
        """Whether enough trials in a row gave no gain, so that no more are made."""
        questions = self.evictions + self.priorities + self.passes
        if self.trials and (not questions or math.isinf(self.score)):
            return True
        patience = min(_PATIENCE + _PATIENCE_PER_QUESTION * questions, _MOST_PATIENCE)
        return self.score <= 0 or self.trials - self.gained >= self.patience * patience

    def recall(self, kept: "FunctionState | None") -> None:
        """Adopt the state that an earlier session saved, if its score was no worse."""
        if kept is not None and kept.start:
            self.start = kept.start
        if kept is None or kept.score > self.score or kept.start is not None:
            return
        self.plain, self.cost = min(self.plain, kept.plain), kept.cost
        self.score, self.overrides = kept.score, kept.overrides
        self.trials, self.gained, self.seconds = kept.trials, kept.gained, kept.seconds
        self.evictions, self.priorities, self.passes = kept.evictions, kept.priorities, kept.passes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSums:
    """Sums over the functions of a module whose plain score was measured.

    Attributes:
        before: sum of the plain scores.
        after: sum of the best scores.
        log_change: sum of the logarithms of after by before, each with the offset of relative changes.
        count: number of these functions.
    """

    before: float
    after: float
    log_change: float
    count: int


@dataclass(slots=True, kw_only=True, eq=False)
class ModuleFunctions:
    """A module in the search, with its functions.

    Attributes:
        module: the module that is compiled.
        keys: table keys of all its functions that reach the stage of the trials, by name.
        functions: the functions that are searched, without those that an earlier module has too.
        compile_seconds: processor time of one compilation without trials.
        rate: gain per second lately; infinite before the first round if there are spills.
        failures: number of rounds in a row in which the compiler failed.
        claimed: keys of the functions that rounds under way try.
        sums: sums of the functions' scores, so that those of a project are not added up function by function after
            every round.
    """

    module: Module
    keys: dict[str, int]
    functions: list[FunctionState]
    compile_seconds: float
    rate: float = math.inf
    failures: int = 0
    claimed: set[int] = field(default_factory=set[int])
    sums: ScoreSums = field(init=False)

    def __post_init__(self) -> None:
        if not any(one.spills for one in self.functions):
            self.rate = 0.0
        self.add_up()

    def add_up(self) -> None:
        """Add up the scores of the functions, after some of them changed."""
        scores = [
            (one.worth * one.plain, one.worth * min(one.plain, one.score))
            for one in self.functions
            if math.isfinite(one.plain)
        ]
        before, after = np.array(scores, np.float64).reshape(-1, 2).T
        self.sums = ScoreSums(
            before=float(before.sum()),
            after=float(after.sum()),
            log_change=float(np.log((after + OFFSET) / (before + OFFSET)).sum()),
            count=len(scores),
        )

    @property
    def names(self) -> tuple[str]:
        """Name of the module; another module with the same functions is searched by itself."""
        return (self.module.name,)

    @property
    def exhausted(self) -> bool:
        """Whether no function is left to try, or the compiler failed twice."""
        return self.failures >= 2 or all(one.exhausted for one in self.functions)

    @property
    def has_unclaimed(self) -> bool:
        """Whether there is a function to try that no round has claimed."""
        return any(not one.exhausted and one.key not in self.claimed for one in self.functions)


def save_functions(path: Path, functions: Sequence[FunctionState], *, measured_by: str = "") -> None:
    """Write the progress of a module's functions to a file.

    Args:
        path: path of the file.
        functions: states of the module's functions.
        measured_by: digest of all that the scores depend on, except for the functions' code.

    Raises:
        StorageError: the disk is full or not writable.
    """
    # What was not tried yet is to be tried first by the next session too.
    made = [one.start if one.start and not one.trials else one.overrides for one in functions]
    counts = [
        (one.evictions, one.priorities, one.passes, one.trials, one.gained, *map(len, its.lists))
        for one, its in zip(functions, made, strict=True)
    ]
    records = [part for its in made for part in its.lists]
    file = io.BytesIO()
    np.savez_compressed(
        file,
        key=np.array([one.key for one in functions], np.uint64),
        score=np.array([(one.plain, one.score, one.seconds, one.cost) for one in functions], np.float64).reshape(-1, 4),
        counts=np.array(counts, np.int64).reshape(-1, 8),
        records=np.concatenate([np.zeros(0, OVERRIDE), *records]).view(np.uint64),
        measured_by=np.frombuffer(measured_by.encode(), np.uint8),
    )
    atomic_write(path, file.getvalue(), durable=True)


def load_functions(path: Path, *, measured_by: str = "") -> dict[int, FunctionState]:
    """Read the progress of a module's functions, by key; empty if there is no file.

    Scores that were measured under other conditions are dropped; their overrides are only tried first.

    Raises:
        InputError: the file is damaged.
    """
    make = functools.partial(_functions_of, measured_by=measured_by)
    return read_kept(path, _NAMES, make, what="what the search knows of a module's functions") or {}


def _functions_of(arrays: Arrays, *, measured_by: str) -> dict[int, FunctionState]:
    functions: dict[int, FunctionState] = {}
    if "numbers" in arrays:
        # The plugin of the version that wrote this measured something else.
        return functions
    # Files of earlier versions do not say.
    holds = "measured_by" in arrays and arrays["measured_by"].tobytes() == measured_by.encode()
    records = column(arrays, "records", "u").view(OVERRIDE)
    scores, counts = column(arrays, "score", "f", width=4), column(arrays, "counts", "i", width=8)
    if len(counts) and (counts.min() < 0 or counts[:, 5:].max() > len(records)):
        raise ValueError(
            f"counts: expected numbers of at least 0, and at most {len(records)} overrides of a function, found others"
        )
    if int(counts[:, 5:].sum()) != len(records):
        raise ValueError(
            f"records: expected as many overrides as the counts state, {int(counts[:, 5:].sum())}, found {len(records)}"
        )
    rows = zip(column(arrays, "key", "u").tolist(), scores.tolist(), counts.tolist(), strict=True)
    for key, (plain, score, seconds, cost), (evictions, priorities, passes, trials, gained, *lengths) in rows:
        mine, records = records[: sum(lengths)], records[sum(lengths) :]
        overrides = split_overrides(mine, lengths)
        if not (holds and trials):
            functions[key] = FunctionState(key=key, name="", plain=math.inf, score=math.inf, start=overrides)
            continue
        functions[key] = FunctionState(
            key=key,
            name="",
            plain=plain,
            score=score,
            overrides=overrides,
            evictions=evictions,
            priorities=priorities,
            passes=passes,
            trials=trials,
            gained=gained,
            seconds=seconds,
            cost=cost,
        )
    return functions
