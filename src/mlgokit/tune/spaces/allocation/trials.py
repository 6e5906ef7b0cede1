"""Trials of a module's functions: which are made next, and what is kept of their outcomes.

Functions are allocated one by one, so every trial says of its function alone what it is worth, to the last digit. Each
departs from the best of the function so far: some evictions and priorities are drawn anew
(``plugin/trials/Trials.cpp``).
Weights say what a score is: what spills, reloads and copies cost, or bytes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mlgokit.compiler.regalloc_cost import OFFSET
from mlgokit.compiler.reuse.trials import PENALTY, SPILL_COST, TRIAL, Floats, Outcome, Records, Series, counts_bytes
from mlgokit.tune.spaces.allocation.state import FunctionState, ModuleFunctions

FIRST_TRIALS = 8
MOST_TRIALS = 96
"""Trials of one function in one compilation."""
ROUND_SECONDS = 8.0
"""Processor time of trials in one compilation, at most; less for modules that are compiled quickly."""
LEAST_TRIAL_SECONDS = 1.0
FEW = (1, 2, 4, 8)
"""Decisions that are flipped in the mean in some of the trials that want bytes."""
EXPECTED = 0.02
"""Part of a function that its first 32 trials are expected to save."""
SHARE_OF_FEW = 0.5
"""How many of the trials."""
_TINY = 1e-12
"""A probability at which nothing is flipped, but questions are counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialConfig:
    """What is tried.

    Attributes:
        weights: [9] of what a trial measures in the score.
        eviction: whether evictions are searched.
        priority: whether priorities are.
        policies: by problem, policies whose decisions are tried as well.
        few: share of trials for bytes that flip few decisions.
    """

    weights: Floats = field(default_factory=lambda: SPILL_COST)
    eviction: bool = True
    priority: bool = True
    policies: Mapping[str, str] = field(default_factory=dict[str, str])
    few: float = SHARE_OF_FEW

    @property
    def in_bytes(self) -> bool:
        """Whether scores are bytes of the function, not LLVM's costs."""
        return counts_bytes(self.weights)

    @property
    def penalty(self) -> float:
        """What each unit of costs beyond LLVM's adds to a score."""
        return PENALTY if self.in_bytes else 0.0


def plan_round(config: TrialConfig, one: ModuleFunctions, rng: np.random.Generator) -> list[Series]:
    """What to try next with the functions of a module."""
    active = [function for function in one.functions if not function.exhausted]
    # Copies come when nothing else is left.
    active = [function for function in active if function.spills] or active
    wanted = [min(MOST_TRIALS, FIRST_TRIALS + 2 * function.trials) for function in active]
    seconds = sum(count * function.seconds for count, function in zip(wanted, active, strict=True))
    room = max(1.0, min(ROUND_SECONDS, 4 * one.compile_seconds), one.compile_seconds)
    share = min(1.0, room / max(seconds, 1e-9))
    if config.in_bytes and share < 1 and all(function.trials for function in active):
        active, wanted = _most_promising(active, wanted, room)
        share = 1.0
    asked: list[Series] = []
    for function, count in zip(active, wanted, strict=True):
        trials = _draw(config, function, max(2, round(share * count)), rng)
        if not function.trials:
            trials["eviction_flips"][0] = trials["priority_flips"][0] = _TINY
            if function.start is not None:
                asked.append(Series(key=function.key, base=function.start, score=math.inf, trials=trials[:1]))
        asked.append(
            Series(key=function.key, base=function.overrides, score=function.score, trials=trials, free=function.cost)
        )
    return asked


def _most_promising(
    active: Sequence[FunctionState], wanted: Sequence[int], room: float
) -> tuple[list[FunctionState], list[int]]:
    """Those functions, with all their trials, that saved most in a second lately, as long as there is room."""
    chosen: list[FunctionState] = []
    counts: list[int] = []
    for function, count in sorted(zip(active, wanted, strict=True), key=lambda one: -one[0].rate):
        if room <= 0:
            break
        chosen.append(function)
        counts.append(count)
        room -= count * function.seconds
    return chosen, counts


def _draw(config: TrialConfig, function: FunctionState, count: int, rng: np.random.Generator) -> Records:
    """[count] trials that flip some decisions, or most.

    Of costs, many at once find more than few: measured at 10 s for seven modules, rates drawn evenly from the whole
    range, or their squares, saved a tenth more than rates that are even in their logarithm, and twice as much as small
    ones. Of bytes, few in half of the trials find about as much (docs/results/tuning_registers.md).
    """
    trials = np.zeros(count, TRIAL)
    trials["seed"] = rng.integers(0, 2**63, count)
    both = config.eviction and config.priority
    questions = function.evictions + function.priorities if config.in_bytes else 0
    few, flipped = rng.random(count) < config.few, rng.choice(FEW, count)
    which = rng.integers(0, 3, count) if both else np.zeros(count, np.int64)
    for column, searched, left_out in (
        ("eviction_flips", config.eviction, 1),
        ("priority_flips", config.priority, 2),
    ):
        rate = rng.random(count) ** rng.integers(1, 4, count)
        if questions:
            rate = np.where(few, np.minimum(1.0, flipped / questions), rate)
        trials[column] = np.where(which == left_out, 0.0, rate) if searched else 0.0
    if config.policies and not function.trials:
        # The policy as it is, and with some decisions flipped.
        trials["by_rule"][1::2] = 1
        trials["eviction_flips"][1] = trials["priority_flips"][1] = 0
    return trials


def take(function: FunctionState, outcomes: Sequence[Outcome], *, in_bytes: bool = False) -> float:
    """Enter trials of a function; gives by how much its score became smaller, of costs the logarithm of it."""
    if math.isinf(function.plain):
        plain = next((one for one in outcomes if not len(one.overrides)), None)
        if plain is not None:
            function.plain, function.cost = plain.score, plain.cost
    if math.isinf(function.plain):
        function.trials += len(outcomes)
        return 0.0
    before = min(function.score, function.plain)
    if in_bytes:
        outcomes = [replace(one, score=one.score + PENALTY * max(0.0, one.cost - function.cost)) for one in outcomes]
    for outcome in outcomes:
        function.trials += 1
        function.evictions = max(function.evictions, outcome.evictions)
        function.priorities = max(function.priorities, outcome.priorities)
        as_good = outcome.score == function.score and len(outcome.overrides) < len(function.overrides)
        if outcome.score < function.score or as_good:
            function.gained = function.trials if outcome.score < function.score else function.gained
            function.score, function.overrides = outcome.score, outcome.overrides
    if outcomes:
        function.seconds = float(np.mean([outcome.seconds for outcome in outcomes]))
    if in_bytes:
        gain, spent = before - min(function.score, before), sum(one.seconds for one in outcomes)
        first = EXPECTED * function.plain / max(32 * function.seconds, 1e-6)
        earlier = first if math.isinf(function.rate) else function.rate
        function.rate = 0.5 * earlier + 0.5 * gain / max(spent, 1e-6)
        return gain
    return math.log((before + OFFSET) / (function.score + OFFSET))
