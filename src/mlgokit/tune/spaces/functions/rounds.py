"""Rounds of trials: how many trials each function of a module gets next, and which outcomes are kept.

Code is generated function by function, so every trial gives the exact score of its function alone. Each varies the
function's best overrides so far. A :class:`TrialPlan` chooses the trials.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from mlgokit.compiler.executed import LEAST_BELIEVED
from mlgokit.compiler.regalloc_cost import OFFSET
from mlgokit.compiler.reuse.trials import RUN_COST, Floats, Outcome, Series, Stage, counts_bytes
from mlgokit.tables.overrides import OverrideKind
from mlgokit.tune.spaces.functions.state import FunctionState, ModuleFunctions

FIRST_TRIALS = 8
LEAST_TRIALS, MOST_TRIALS = 2, 96
"""Limits on the number of trials of one function in one compilation."""
LONGEST_LOOK = 2.0
"""Maximum number of rounds for the first trials of all functions; with more, functions are chosen by their size."""
ROUND_SECONDS = 8.0
"""Processor time of trials in one compilation; less for modules that compile quickly, more in long sessions for modules
that compile slowly."""
ROUND_SHARE = 0.15
"""Share of a session's time that trials in one compilation may take, if that is more than :data:`ROUND_SECONDS`."""
LEAST_TRIAL_SECONDS = 1.0
EXPECTED = 0.02
"""Share of a function's bytes that its first 32 trials are expected to save."""


class TrialPlan(Protocol):
    """One kind of trials: which trials come next, and how they are scored.

    Attributes:
        kind: kind of the table that the search makes.
        stage: stage of code generation at which functions are forked.
        label: name of the search in progress reports.
        weights: [9] weights of a trial's measures in the score.
        slowdown: share of LLVM's costs that is free beside them; infinite for no bound.
        policies: policies that make the decisions that are not tried, by problem.
    """

    kind: OverrideKind
    stage: Stage
    label: str
    weights: Floats
    slowdown: float
    policies: Mapping[str, str]

    @property
    def in_bytes(self) -> bool:
        """Whether scores are bytes of the function, not LLVM's costs."""
        return counts_bytes(self.weights)

    @property
    def penalty(self) -> float:
        """Score that is added for each unit of costs beyond those that are free."""
        ...

    def free(self, function: FunctionState) -> float:
        """Costs of a function that are not penalised."""
        ...

    def series(self, function: FunctionState, count: int, rng: np.random.Generator) -> Sequence[Series]:
        """The next ``count`` trials of a function."""
        ...


def plan_round(
    plan: TrialPlan,
    one: ModuleFunctions,
    rng: np.random.Generator,
    *,
    most_seconds: float = ROUND_SECONDS,
    shares: int = 1,
) -> list[Series]:
    """Plan the next trials of the functions of a module that no other round has claimed.

    Args:
        plan: the kind of trials.
        one: the module.
        rng: source of random draws.
        most_seconds: maximum processor time of the trials.
        shares: number of rounds that may run at once; each takes its share of the functions that were never tried.
    """
    active = [function for function in one.functions if not function.exhausted and function.key not in one.claimed]
    # Functions with costs of copies alone come last.
    active = [function for function in active if function.spills] or active
    if shares > 1 and (fresh := [function for function in active if not function.trials]):
        active = fresh[: math.ceil(len(active) / shares)]
    wanted = [min(MOST_TRIALS, FIRST_TRIALS + 2 * function.trials) for function in active]
    seconds = sum(count * function.seconds for count, function in zip(wanted, active, strict=True))
    room = max(1.0, min(most_seconds, 4 * one.compile_seconds), one.compile_seconds)
    share = min(1.0, room / max(seconds, 1e-9))
    fresh = [function for function in active if not function.trials]
    # In a module of thousands of functions, first trials of all take many rounds, and most functions are small.
    look = LEAST_TRIALS * sum(function.seconds for function in fresh)
    long = plan.in_bytes and look > LONGEST_LOOK * room
    if long:
        wanted = [count if function.trials else LEAST_TRIALS for count, function in zip(wanted, active, strict=True)]
    if plan.in_bytes and share < 1 and (long or not fresh):
        active, wanted = _most_promising(active, wanted, room)
        share = 1.0
    asked: list[Series] = []
    for function, count in zip(active, wanted, strict=True):
        asked += plan.series(function, max(LEAST_TRIALS, round(share * count)), rng)
    return asked


def _most_promising(
    active: Sequence[FunctionState], wanted: Sequence[int], room: float
) -> tuple[list[FunctionState], list[int]]:
    """The functions that saved most per second lately, with all their trials, as many as ``room`` seconds allow.

    A function that was never tried is expected to save the share :data:`EXPECTED` of its bytes.
    """

    def rate(function: FunctionState) -> float:
        return function.rate if function.trials else _usual_rate(function.code_bytes, function.seconds)

    chosen: list[FunctionState] = []
    counts: list[int] = []
    for function, count in sorted(zip(active, wanted, strict=True), key=lambda one: -rate(one[0])):
        if room <= 0:
            break
        chosen.append(function)
        counts.append(count)
        room -= count * function.seconds
    return chosen, counts


def record_outcomes(function: FunctionState, outcomes: Sequence[Outcome], plan: TrialPlan) -> float:
    """Record trials of a function; return the reduction of its score, in bytes, or in the logarithm of costs."""
    if math.isinf(function.plain):
        # A trial that failed has no overrides either.
        plain = next((one for one in outcomes if not one.overrides and math.isfinite(one.score)), None)
        if plain is not None:
            function.plain, function.cost = plain.score, plain.cost
    if math.isinf(function.plain):
        function.trials += len(outcomes)
        return 0.0
    before = min(function.score, function.plain)
    if plan.in_bytes:
        free = plan.free(function)
        outcomes = [replace(one, score=one.score + plan.penalty * max(0.0, one.cost - free)) for one in outcomes]
    for outcome in outcomes:
        function.trials += 1
        function.evictions = max(function.evictions, outcome.evictions)
        function.priorities = max(function.priorities, outcome.priorities)
        function.passes = max(function.passes, outcome.passes)
        if plan.weights is RUN_COST and outcome.score < LEAST_BELIEVED * function.plain:
            continue
        as_good = outcome.score == function.score and len(outcome.overrides) < len(function.overrides)
        if outcome.score < function.score or as_good:
            function.gained = function.trials if outcome.score < function.score else function.gained
            function.score, function.overrides = outcome.score, outcome.overrides
    if outcomes:
        function.seconds = float(np.mean([outcome.seconds for outcome in outcomes]))
    if plan.in_bytes:
        gain, spent = function.worth * (before - min(function.score, before)), sum(one.seconds for one in outcomes)
        earlier = (
            _usual_rate(function.worth * function.plain, function.seconds)
            if math.isinf(function.rate)
            else function.rate
        )
        function.rate = 0.5 * earlier + 0.5 * gain / max(spent, 1e-6)
        return gain
    return math.log((before + OFFSET) / (function.score + OFFSET))


def _usual_rate(size: float, seconds: float) -> float:
    """Bytes that a function of a size may save in a second at first, if a trial takes ``seconds``."""
    return EXPECTED * size / max(32 * seconds, 1e-6)
