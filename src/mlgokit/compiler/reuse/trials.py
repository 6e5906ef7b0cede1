"""Many ways to make a function's code in one compilation: what the plugin is asked to try, and what it found.

Before a function is allocated, or before its code is generated, the plugin makes a copy of the compiler for each trial,
lets it decide otherwise, reads what LLVM's allocator says that it cost, and ends the copy
(``plugin/trials/Trials.cpp``). So a trial takes the time of the allocator alone, or, if its code is to be measured, of
all that follows it up to the emission of the function. The files are in ``docs/formats.md``, "Trials".
"""

import enum
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.regalloc_cost import COST_WEIGHTS, COSTS
from mlgokit.errors import InputError

OVERRIDE = np.dtype([("range", "<u4"), ("nth", "<u2"), ("choice", "<u2")])
"""An override of one decision of LLVM: number of the live range or pass, number of the question about it, answer."""
TRIAL = np.dtype(
    [("eviction_flips", "<f8"), ("priority_flips", "<f8"), ("seed", "<u8"), ("by_rule", "<u4"), ("toggles", "<u4")]
)
"""A trial: probabilities of flipping decisions of each kind, random seed, what makes the other decisions (0 for LLVM,
:data:`BY_SETTINGS`, or a policy of the request), and the number of toggled passes."""
BY_SETTINGS = 1
"""The policy in the plugin's settings makes the decisions that a trial does not override."""
FIRST_POLICY = 2
"""The request's first policy decides the priorities of live ranges, and LLVM the rest; the next number means the second
policy, and so on."""
MOST_TOGGLES = 4
"""Maximum number of passes that a trial toggles."""

MEASURES = (*COSTS, "executed", "code", "unwind", "tables")
"""What a trial measures: LLVM's costs and executed instructions, both estimated for one call of the function; bytes of
code; unwind instructions; and bytes of jump tables."""
_COSTS = len(COSTS) + 1


class Stage(enum.IntFlag):
    """The point in the pipeline at which a function is forked."""

    REGISTERS = 1
    """Before its registers are allocated."""
    PASSES = 2
    """Before its code is generated: at the first pass that asks whether it may run."""


Records = npt.NDArray[np.void]
Floats = npt.NDArray[np.float64]

SPILL_COST: Floats = np.array([*COST_WEIGHTS, 0.0, 0.0, 0.0, 0.0])
"""Weights [9] of :data:`MEASURES` for a score that is the cost of spills, reloads and copies."""

_EQUAL = 1e-9
"""A weight so small that costs only decide between allocations of equal size."""
CODE_BYTES: Floats = np.array([*(_EQUAL * COST_WEIGHTS), 0.0, 1.0, 0.0, 0.0])
"""Weights [9] for a score that is the bytes of code."""
IMAGE_BYTES: Floats = np.array([*(_EQUAL * COST_WEIGHTS), 0.0, 1.0, 2.5, 1.0])
"""Weights [9] for a score that adds jump tables and unwind tables; an unwind instruction counts with its advance."""


RUN_COST: Floats = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1e-3, 0.0, 0.0])
"""Weights [9] for a score that is the executed instructions of one call; bytes of code decide between equal ones."""


def executed_weights(of_bytes: Floats) -> Floats:
    """Replace the tie-breaker in weights [9] of a size score: executed instructions in place of allocation costs.

    Example:
        >>> executed_weights(CODE_BYTES).tolist()
        [0.0, 0.0, 0.0, 0.0, 0.0, 1e-09, 1.0, 0.0, 0.0]
    """
    weights = of_bytes.copy()
    weights[:_COSTS] = 0.0
    weights[MEASURES.index("executed")] = _EQUAL
    return weights


def counts_bytes(weights: Floats) -> bool:
    """Whether a score with these weights is in bytes of the function, not in costs."""
    return bool(np.any(weights[_COSTS:]))


def pass_number(name: str) -> int:
    """Compute the number by which tables name a pass.

    Example:
        >>> hex(pass_number("block-placement"))
        '0x8a88a0be'
    """
    return zlib.crc32(name.encode())


PENALTY = 1e-3 / _EQUAL
"""Penalty in a score of bytes for costs beyond those of LLVM's allocation: a byte is worth 250 reloads per call.

So a spill may move into a loop, but not into a deeply nested one, where it would be executed many thousand times.
"""

_MAGIC = b"MLGOTP5\n"
_MEASURES_BYTES = 8 * len(MEASURES)


def no_overrides() -> Records:
    """Make an empty list of overrides: the function is compiled with LLVM's decisions."""
    return np.zeros(0, OVERRIDE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overrides:
    """The decisions of LLVM that are overridden in one function.

    Attributes:
        evictions: [E] records of :data:`OVERRIDE`.
        priorities: [P] records for priorities.
        passes: [N] records for passes that are skipped.
    """

    evictions: Records = field(default_factory=no_overrides)
    priorities: Records = field(default_factory=no_overrides)
    passes: Records = field(default_factory=no_overrides)

    @property
    def lists(self) -> tuple[Records, ...]:
        """All three lists, in the order of the file format."""
        return self.evictions, self.priorities, self.passes

    def __len__(self) -> int:
        return sum(map(len, self.lists))


def split_overrides(records: Records, counts: Sequence[int]) -> Overrides:
    """Split consecutive records into three lists of the given lengths."""
    evictions, priorities, passes, _ = np.split(records, np.cumsum(counts))
    return Overrides(evictions=evictions, priorities=priorities, passes=passes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """Trials of one function. Each varies the best one before it: lowest score, then fewest overrides.

    Attributes:
        key: the plugin's key of the function.
        base: the overrides that the first trial varies.
        score: score of the base; infinite to start from the first successful trial.
        free: weighted costs up to this are not penalised; NaN for those of the first trial.
        trials: [N] records of :data:`TRIAL`.
        toggled: [N, 4] records of :data:`OVERRIDE` for the passes that each trial toggles, as many as its record says:
            a pass that runs in the overrides that it varies is skipped, and the other way round; ``None`` for none.
    """

    key: int
    base: Overrides
    score: float
    trials: Records
    free: float = np.inf
    toggled: Records | None = None

    def to_bytes(self) -> bytes:
        """Encode the part of the request file for this series."""
        toggled = np.zeros((len(self.trials), MOST_TOGGLES), OVERRIDE) if self.toggled is None else self.toggled
        trials = np.concatenate(
            [
                self.trials.view(np.uint8).reshape(len(self.trials), TRIAL.itemsize),
                np.ascontiguousarray(toggled).view(np.uint8).reshape(len(self.trials), -1),
            ],
            axis=1,
        )
        counts = (*map(len, self.base.lists), len(self.trials))
        head = struct.pack("<Qdd4I", self.key, self.score, self.free, *counts)
        return b"".join((head, *(records.tobytes() for records in self.base.lists), trials.tobytes()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The result of one trial.

    Attributes:
        seconds: processor time.
        score: weighted sum of the measures; infinite if the copy failed or exceeded its time.
        cost: the part of the score that comes from LLVM's costs.
        evictions: number of eviction questions, without those that the plugin does not see.
        priorities: number of priority questions.
        passes: number of questions of passes whether they may run.
        overrides: all decisions that were not LLVM's; the same overrides give the same score again.
        measured: [9] values of :data:`MEASURES`; ``None`` if the copy failed.
    """

    seconds: float
    score: float
    evictions: int
    priorities: int
    overrides: Overrides
    cost: float = 0.0
    passes: int = 0
    measured: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialResults:
    """A function that reached a stage, by the plugin's key and its symbol, and the results of its trials in order."""

    key: int
    name: str
    outcomes: tuple[Outcome, ...]
    stage: Stage = Stage.REGISTERS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialRequest:
    """The trials to run in one compilation; without series, functions are only listed.

    Attributes:
        series: the trials.
        stages: the stages at which functions are listed and trials are run.
        seconds: limit on the processor time of a trial.
        weights: [9] weights of :data:`MEASURES` in the score.
        penalty: score that is added for each unit of weighted costs beyond those that are free.
        policies: contents of policy files for priorities or spill weights; trials number them from :data:`FIRST_POLICY`
            on.
    """

    series: tuple[Series, ...] = ()
    stages: Stage = Stage.REGISTERS
    seconds: float = 0.0
    weights: Floats = field(default_factory=lambda: SPILL_COST)
    penalty: float = 0.0
    policies: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        """Encode the file that the plugin reads."""
        asked = [trials.to_bytes() for trials in self.series]
        weights = self.weights.astype("<f8").tobytes()
        head = struct.pack("<d", self.seconds), weights, struct.pack("<dII", self.penalty, self.stages, len(asked))
        sized = (struct.pack("<I", len(policy)) + policy for policy in self.policies)
        return b"".join((_MAGIC, *head, *asked, struct.pack("<I", len(self.policies)), *sized))


def read_trial_results(path: Path, *, weights: Floats = SPILL_COST) -> list[TrialResults]:
    """Read the results in the order in which functions were compiled.

    Args:
        path: file that the plugin wrote.
        weights: [9] weights of :data:`MEASURES` in the request.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        return list(_parse(path.read_bytes(), path, weights))
    except OSError as error:
        _fail(path, f"a readable file, found {error.strerror}")


def _parse(data: bytes, path: Path, weights: Floats) -> Iterator[TrialResults]:
    """Parse the plugin's results, function by function."""
    at = 0
    while at < len(data):
        if at + 20 > len(data):
            _fail(path, "a function, found the end of the file")
        key, stage, length, count = struct.unpack_from("<QIII", data, at)
        if stage not in set(Stage):
            _fail(path, f"a stage of code generation, found {stage}")
        at += 20 + length
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
        yield TrialResults(key=key, name=name, outcomes=tuple(outcomes), stage=Stage(stage))


def _outcome(answer: bytes, seconds: float, path: Path, weights: Floats) -> Outcome:
    """Parse the result of one trial; an empty answer means that the copy failed."""
    if not answer:
        return Outcome(seconds=seconds, score=np.inf, evictions=0, priorities=0, overrides=Overrides())
    head = _MEASURES_BYTES + 24
    if len(answer) < head:
        _fail(path, f"what a trial measured, found {len(answer)} bytes")
    measured = np.frombuffer(answer, "<f8", len(MEASURES))
    evictions, priorities, passes, *counts = struct.unpack_from("<6I", answer, _MEASURES_BYTES)
    if len(answer) != head + OVERRIDE.itemsize * sum(counts) or not np.all(np.isfinite(measured)):
        _fail(path, f"a trial with {sum(counts)} overrides and finite numbers, found {len(answer)} bytes")
    return Outcome(
        seconds=seconds,
        score=float(measured @ weights),
        cost=float(measured[:_COSTS] @ weights[:_COSTS]),
        evictions=evictions,
        priorities=priorities,
        passes=passes,
        measured=measured,
        overrides=split_overrides(np.frombuffer(answer, OVERRIDE, sum(counts), head), counts),
    )


def _fail(path: Path, expected: str) -> NoReturn:
    raise InputError(
        f"results of trials {path}: expected {expected}; the plugin is of another version of mlgokit, build it again"
    )
