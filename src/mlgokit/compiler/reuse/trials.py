"""Many allocations of a function's registers in one compilation: what the plugin is asked to try, and what it found.

Before a function is allocated, the plugin makes a copy of the compiler for each trial, lets it allocate the function
otherwise, reads what LLVM's allocator says that it cost, and ends the copy (``plugin/regalloc/Trials.cpp``). So a trial
takes the time of the allocator alone, or, if its code is to be measured, of all that follows it up to the emission of
the function. The files are in ``docs/formats.md``, "Trials of allocations".
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.regalloc_cost import COST_WEIGHTS, COSTS
from mlgokit.errors import InputError

OVERRIDE = np.dtype([("range", "<u4"), ("nth", "<u2"), ("choice", "<u2")])
"""One decision otherwise than LLVM's: which live range, which question about it, which answer."""
TRIAL = np.dtype(
    [("eviction_flips", "<f8"), ("priority_flips", "<f8"), ("seed", "<u8"), ("by_rule", "<u4"), ("unused", "<u4")]
)
"""Probabilities of flipping decisions, the seed, and whether the policy of the settings decides the others."""

MEASURES = (*COSTS, "code", "unwind")
"""What a trial gives: LLVM's costs; bytes of code; and unwind instructions of the function."""

Records = npt.NDArray[np.void]
Floats = npt.NDArray[np.float64]

SPILL_COST: Floats = np.array([*COST_WEIGHTS, 0.0, 0.0])
"""[7] weights of :data:`MEASURES` by which the score of a trial is what spills, reloads and copies cost."""

_EQUAL = 1e-9
"""So little that costs decide among allocations of one size only."""
CODE_BYTES: Floats = np.array([*(_EQUAL * COST_WEIGHTS), 1.0, 0.0])
"""[7] weights by which it is the bytes of code."""
IMAGE_BYTES: Floats = np.array([*(_EQUAL * COST_WEIGHTS), 1.0, 2.5])
"""[7] weights by which unwind tables count as well, at what an instruction takes there with its advance."""

PENALTY = 1e-3 / _EQUAL
"""For costs beyond those of LLVM's allocation, where bytes are wanted: a byte is worth 250 reloads in a call.

So a spill may come to be in a loop, but not in one within loops, where it would be executed many thousand times.
"""

_MAGIC = b"MLGOTP3\n"
_MEASURES_BYTES = 8 * len(MEASURES)


def no_overrides() -> Records:
    """A function as LLVM allocates it."""
    return np.zeros(0, OVERRIDE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overrides:
    """Where the allocation of one function is another than LLVM's.

    Attributes:
        evictions: [E] records of :data:`OVERRIDE`.
        priorities: [P] the same.
    """

    evictions: Records = field(default_factory=no_overrides)
    priorities: Records = field(default_factory=no_overrides)

    def __len__(self) -> int:
        return len(self.evictions) + len(self.priorities)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """Trials of one function. Each departs from the best before it: the lowest score, then the fewest overrides.

    Attributes:
        key: of the function, as the plugin tells it.
        base: what the first departs from.
        score: of the base; infinite to depart from whatever comes first.
        free: weighted costs up to this are not penalised.
        trials: [N] records of :data:`TRIAL`.
    """

    key: int
    base: Overrides
    score: float
    trials: Records
    free: float = np.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """One trial.

    Attributes:
        seconds: processor time.
        score: the weighted sum of what was measured; infinite if the copy failed, or took too long.
        cost: the part of LLVM's costs in it.
        evictions: questions about evictions; those that the plugin never sees are not counted.
        priorities: questions about priorities.
        overrides: all decisions that were not LLVM's; the same again give the same score.
    """

    seconds: float
    score: float
    evictions: int
    priorities: int
    overrides: Overrides
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tried:
    """A function that came to the allocator, and its trials in their order."""

    key: int
    name: str
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialRequest:
    """What to try in one compilation; without series only the functions that come to the allocator are listed.

    Attributes:
        series: what to try.
        seconds: processor time for one trial, at most.
        weights: [7] of :data:`MEASURES` in the score.
        penalty: what is added for each unit of weighted costs beyond those that are free.
    """

    series: tuple[Series, ...] = ()
    seconds: float = 0.0
    weights: Floats = field(default_factory=lambda: SPILL_COST)
    penalty: float = 0.0

    def to_bytes(self) -> bytes:
        """The file that the plugin reads."""
        return request_bytes(self.series, seconds=self.seconds, weights=self.weights, penalty=self.penalty)


def request_bytes(
    series: Iterable[Series], *, seconds: float, weights: Floats = SPILL_COST, penalty: float = 0.0
) -> bytes:
    """The file with trials, each of at most so many seconds of processor time.

    Args:
        series: what to try.
        seconds: for one trial.
        weights: [7] of :data:`MEASURES` in the score.
        penalty: what is added for each unit of weighted costs beyond those that are free.
    """
    asked = list(series)
    parts = [
        _MAGIC,
        struct.pack("<d", seconds),
        weights.astype("<f8").tobytes(),
        struct.pack("<dI", penalty, len(asked)),
    ]
    for one in asked:
        evictions, priorities = one.base.evictions, one.base.priorities
        parts.append(
            struct.pack("<QddIII", one.key, one.score, one.free, len(evictions), len(priorities), len(one.trials))
        )
        parts += [evictions.tobytes(), priorities.tobytes(), one.trials.tobytes()]
    return b"".join(parts)


def read_tried(path: Path, *, weights: Floats = SPILL_COST) -> list[Tried]:
    """Read the results, in the order in which the functions were compiled.

    Args:
        path: the file.
        weights: [7] those of the request.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        return list(_parse(path.read_bytes(), path, weights))
    except OSError as error:
        _fail(path, f"a readable file, found {error.strerror}")


def _parse(data: bytes, path: Path, weights: Floats) -> Iterator[Tried]:
    at = 0
    while at < len(data):
        if at + 16 > len(data):
            _fail(path, "a function, found the end of the file")
        key, length, count = struct.unpack_from("<QII", data, at)
        at += 16 + length
        if at > len(data):
            _fail(path, "the name of a function, found the end of the file")
        outcomes: list[Outcome] = []
        name = data[at - length : at].decode("utf-8", "surrogateescape")
        for _ in range(count):
            if at + 12 > len(data):
                _fail(path, f"a trial of {name}, found the end of the file")
            seconds, size = struct.unpack_from("<dI", data, at)
            at += 12 + size
            if at > len(data):
                _fail(path, f"a trial of {name}, found the end of the file")
            outcomes.append(_outcome(data[at - size : at], seconds, path, weights))
        yield Tried(key=key, name=name, outcomes=tuple(outcomes))


def _outcome(answer: bytes, seconds: float, path: Path, weights: Floats) -> Outcome:
    if not answer:
        return Outcome(seconds=seconds, score=np.inf, evictions=0, priorities=0, overrides=Overrides())
    head = _MEASURES_BYTES + 16
    if len(answer) < head:
        _fail(path, f"what a trial measured, found {len(answer)} bytes")
    measured = np.frombuffer(answer, "<f8", len(MEASURES))
    evictions, priorities, *counts = struct.unpack_from("<IIII", answer, _MEASURES_BYTES)
    if len(answer) != head + OVERRIDE.itemsize * sum(counts) or not np.all(np.isfinite(measured)):
        _fail(path, f"a trial with {sum(counts)} overrides and finite numbers, found {len(answer)} bytes")
    records = np.frombuffer(answer, OVERRIDE, sum(counts), head)
    return Outcome(
        seconds=seconds,
        score=float(measured @ weights),
        cost=float(measured[: len(COSTS)] @ weights[: len(COSTS)]),
        evictions=evictions,
        priorities=priorities,
        overrides=Overrides(evictions=records[: counts[0]], priorities=records[counts[0] :]),
    )


def _fail(path: Path, expected: str) -> NoReturn:
    raise InputError(f"results of trials {path}: expected {expected}; the plugin is of another version of mlgokit")
