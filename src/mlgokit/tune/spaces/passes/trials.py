"""Trials of a function's passes: some of those that may be left out are toggled in the best so far.

First each candidate by itself, in the order of what it gave on other code; so the first round is a climb by single
passes. Then one, two or three drawn candidates at once, until nothing was found for long.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mlgokit.compiler.reuse.trials import (
    IMAGE_BYTES,
    MOST_TOGGLES,
    OVERRIDE,
    TRIAL,
    Floats,
    Records,
    Series,
    Stage,
    counts_bytes,
    executed_weights,
    pass_number,
)
from mlgokit.tables.overrides import PASSES, OverrideKind
from mlgokit.tune.spaces.functions.state import FunctionState
from mlgokit.tune.spaces.passes.candidates import CANDIDATES, REPEATED

TOO_SLOW = 1e12
"""Penalty for what is executed beyond the bound: more than any function has bytes."""
_SINGLES = (*((name, 0) for name in CANDIDATES), *((name, 1) for name in REPEATED))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassConfig:
    """What is tried.

    Attributes:
        weights: [9] of what a trial measures in the score.
        slowdown: by which part a function may execute more instructions than with all passes, by LLVM's estimate;
            infinite for any.
    """

    weights: Floats = field(default_factory=lambda: executed_weights(IMAGE_BYTES))
    slowdown: float = 0.0

    @property
    def kind(self) -> OverrideKind:
        """The table of what is found."""
        return PASSES

    @property
    def stage(self) -> Stage:
        """When copies are made."""
        return Stage.PASSES

    @property
    def label(self) -> str:
        """What progress is called."""
        return "passes"

    @property
    def in_bytes(self) -> bool:
        """Whether scores are bytes of the function."""
        return counts_bytes(self.weights)

    @property
    def penalty(self) -> float:
        """What each unit of weighted costs beyond the bound adds to a score."""
        return 0.0 if math.isinf(self.slowdown) else TOO_SLOW

    @property
    def policies(self) -> Mapping[str, str]:
        """None: what is not tried, LLVM and the tables decide."""
        return {}

    def free(self, function: FunctionState) -> float:
        """What may be executed."""
        return function.cost * (1 + self.slowdown)

    def series(self, function: FunctionState, count: int, rng: np.random.Generator) -> list[Series]:
        """The next so many trials; the first has all passes, and is followed by what an earlier plugin leaves out."""
        toggled = _toggled(function.trials, count, rng)
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


def _toggled(begin: int, count: int, rng: np.random.Generator) -> Records:
    """[count, 4] the passes that trials toggle, the first of which has the number ``begin``; zeros after the last."""
    toggled = np.zeros((count, MOST_TOGGLES), OVERRIDE)
    drawn = rng.choice((1, 1, 2, 2, 3), count)
    for index in range(count):
        number = begin + index - 1
        places = [number] if number >= 0 else []
        if number >= len(_SINGLES):
            places = [int(place) for place in rng.permutation(len(_SINGLES))[: drawn[index]]]
        for place, (name, nth) in enumerate(_SINGLES[place] for place in places):
            toggled[index, place] = (pass_number(name), nth, 0)
    return toggled
