"""The search over passes of the code generator: some of those that may be left out are toggled in the best code.

So are attributes of a function, and options of LLVM that hold while its code is generated
(:mod:`mlgokit.tune.spaces.passes.candidates`). First each candidate is toggled by itself, in the order of its gains on
other code. Then one, two or three candidates are drawn at once, until many trials gave no gain.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.reuse.trials import (
    CODE_BYTES,
    IMAGE_BYTES,
    MOST_TOGGLES,
    OVERRIDE,
    RUN_COST,
    TRIAL,
    Floats,
    Records,
    Series,
    Stage,
    executed_weights,
    pass_number,
)
from mlgokit.tables.overrides import PASSES
from mlgokit.tune.spaces.functions.rounds import TrialPlan
from mlgokit.tune.spaces.functions.state import FunctionState
from mlgokit.tune.spaces.passes.candidates import candidates_of

TOO_SLOW = 1e12
"""Penalty for each executed instruction beyond the bound: more than any function has bytes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassConfig(TrialPlan):
    """The trials of passes.

    Attributes:
        weights: [9] weights of a trial's measures in the score.
        slowdown: share by which a function may execute more instructions than with all passes, by LLVM's estimate;
            infinite for no bound.
        candidates: what is toggled, in the order of the first trials.
    """

    kind = PASSES
    stage = Stage.PASSES
    label = "passes"
    policies = MappingProxyType({})

    weights: Floats = field(default_factory=lambda: executed_weights(IMAGE_BYTES))
    slowdown: float = 0.0
    candidates: Sequence[tuple[str, int]] = candidates_of(())

    @property
    def penalty(self) -> float:
        """Score that is added for each executed instruction beyond the bound."""
        return 0.0 if math.isinf(self.slowdown) else TOO_SLOW

    def free(self, function: FunctionState) -> float:
        """Instructions that a call of the function may execute, by LLVM's estimate."""
        return function.cost * (1 + self.slowdown)

    def series(self, function: FunctionState, count: int, rng: np.random.Generator) -> list[Series]:
        """The next ``count`` trials; the first runs all passes, and the overrides of an earlier plugin follow it."""
        # Of the trials that were made, one was of the earlier plugin's overrides, if there are any.
        followed = function.start is not None and function.trials > 1
        toggled = _draw_toggles(self.candidates, function.trials - followed, count, rng)
        trials = np.zeros(count, TRIAL)
        trials["toggles"] = np.count_nonzero(toggled["range"], axis=1)
        if function.trials:
            series = Series(
                key=function.key,
                base=function.overrides,
                score=function.score,
                trials=trials,
                free=self.free(function) if self.penalty else np.inf,
                toggled=toggled,
            )
            return [series]
        first = np.nan if self.penalty else np.inf
        series = Series(
            key=function.key, base=function.overrides, score=np.inf, trials=trials, free=first, toggled=toggled
        )
        if function.start is None:
            return [series]
        plain = np.zeros((1, MOST_TOGGLES), OVERRIDE)
        earlier = Series(key=function.key, base=function.start, score=np.inf, trials=trials[:1], toggled=plain)
        return [series, earlier]


def pass_plan(objective: Objective, architectures: Iterable[str], *, slowdown: float) -> PassConfig:
    """The trials of a search on top of verified decisions.

    Args:
        objective: decides which bytes count.
        architectures: those of the modules, as :func:`candidates_of` takes them.
        slowdown: share by which a function may execute more instructions, by LLVM's estimate.
    """
    in_bytes = executed_weights(CODE_BYTES if objective is Objective.LINK_AWARE_TEXT else IMAGE_BYTES)
    return PassConfig(
        weights=RUN_COST if objective is Objective.EXECUTED else in_bytes,
        slowdown=slowdown,
        candidates=candidates_of(architectures),
    )


def _draw_toggles(candidates: Sequence[tuple[str, int]], begin: int, count: int, rng: np.random.Generator) -> Records:
    """Choose the passes [count, 4] that trials toggle, from the function's trial ``begin`` on; zeros for none."""
    toggled = np.zeros((count, MOST_TOGGLES), OVERRIDE)
    drawn = rng.choice((1, 1, 2, 2, 3), count)
    for index in range(count):
        number = begin + index - 1
        places = [number] if number >= 0 else []
        if number >= len(candidates):
            places = [int(place) for place in rng.permutation(len(candidates))[: drawn[index]]]
        for place, (name, nth) in enumerate(candidates[place] for place in places):
            toggled[index, place] = (pass_number(name), nth, 0)
    return toggled
