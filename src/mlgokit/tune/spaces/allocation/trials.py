"""The search over register allocations: some evictions and priorities of the best allocation are flipped at random.

The weights of the trials decide whether scores are costs of spills, reloads and copies, or bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.reuse.trials import (
    CODE_BYTES,
    IMAGE_BYTES,
    PENALTY,
    RUN_COST,
    SPILL_COST,
    TRIAL,
    Floats,
    Records,
    Series,
    Stage,
)
from mlgokit.tables.overrides import ALLOCATIONS
from mlgokit.tune.spaces.functions.rounds import TrialPlan
from mlgokit.tune.spaces.functions.state import FunctionState

FEW = (1, 2, 4, 8)
"""Mean numbers of flipped decisions in trials that flip few of them, if scores are bytes."""
SHARE_OF_FEW = 0.5
"""Share of the trials that flip few decisions, if scores are bytes."""
_WEIGHTS = {Objective.LINK_AWARE_TEXT: CODE_BYTES, Objective.EXECUTED: RUN_COST}
"""What trials are scored by; by the bytes of the image for all other objectives."""
_TINY = 1e-12
"""A probability at which nothing is flipped, but questions are counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialConfig(TrialPlan):
    """The trials of register allocations.

    Attributes:
        weights: [9] weights of a trial's measures in the score.
        eviction: whether evictions are searched.
        priority: whether priorities are searched.
        policies: policies whose decisions are tried as well, by problem.
        few: share of the trials that flip few decisions, if scores are bytes.
        label: name of the search in progress reports.
    """

    kind = ALLOCATIONS
    stage = Stage.REGISTERS
    slowdown = 0.0

    weights: Floats = field(default_factory=lambda: SPILL_COST)
    eviction: bool = True
    priority: bool = True
    policies: Mapping[str, str] = field(default_factory=dict[str, str])
    few: float = SHARE_OF_FEW
    label: str = "search"

    @property
    def penalty(self) -> float:
        """Score that is added for each unit of costs beyond those of LLVM's allocation."""
        return PENALTY if self.in_bytes and self.weights is not RUN_COST else 0.0

    def free(self, function: FunctionState) -> float:
        """Costs that are not penalised: those of LLVM's allocation."""
        return function.cost

    def series(self, function: FunctionState, count: int, rng: np.random.Generator) -> list[Series]:
        """The next ``count`` trials; the overrides of an earlier plugin come first."""
        trials = _draw_trials(self, function, count, rng)
        series = Series(
            key=function.key, base=function.overrides, score=function.score, trials=trials, free=function.cost
        )
        if function.trials:
            return [series]
        trials["eviction_flips"][0] = trials["priority_flips"][0] = _TINY
        if function.start is None:
            return [series]
        return [Series(key=function.key, base=function.start, score=np.inf, trials=trials[:1]), series]


def allocation_plan(objective: Objective) -> TrialConfig:
    """The trials of a search on top of verified tables, which are scored by what counts for an objective."""
    return TrialConfig(weights=_WEIGHTS.get(objective, IMAGE_BYTES), label="registers")


def _draw_trials(config: TrialConfig, function: FunctionState, count: int, rng: np.random.Generator) -> Records:
    """Draw ``count`` trials that flip few or many decisions of a function.

    For costs, many flips at once find more than few: measured at 10 s for seven modules, rates drawn evenly from the
    whole range, or their squares, saved a tenth more than rates that are even in their logarithm, and twice as much as
    small ones. For bytes, few flips in half of the trials find about as much (docs/results/tuning_registers.md).
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
