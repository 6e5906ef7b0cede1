"""The search over passes of the code generator: some of those that may be left out are toggled in the best code.

First each candidate is toggled by itself, in the order of its gains on other code. Then one, two or three candidates
are drawn at once, until many trials gave no gain. LLVM asks a gate about optional passes only; :data:`EXCLUDED` has the
optional passes that always run nevertheless, with the reason.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
    Overrides,
    Records,
    Series,
    Stage,
    counts_bytes,
    executed_weights,
    pass_number,
)
from mlgokit.progress import Report
from mlgokit.tables.overrides import PASSES, OverrideKind
from mlgokit.tune.spaces.functions.opening import FunctionSearch, open_verified
from mlgokit.tune.spaces.functions.state import FunctionState
from mlgokit.tune.verify import Verifier

CANDIDATES = (
    "early-machinelicm",
    "block-placement",
    "codegenprepare",
    "machine-cse",
    "machine-sink",
    "twoaddressinstruction",
    "branch-folder",
    "shrink-wrap",
    "machine-cp",
    "machine-scheduler",
    "early-tailduplication",
    "tailduplication",
    "peephole-opt",
    "x86-cf-opt",
    "consthoist",
    "machinelicm",
    "x86-optimize-leas",
    "x86-fixup-bw-insts",
    "postra-machine-sink",
    "mergeicmps",
    "expand-memcmp",
    "x86-cmov-conversion",
    "early-ifcvt",
    "opt-phis",
    "dead-mi-elimination",
    "machine-latecleanup",
    "lrshrink",
    "partially-inline-libcalls",
    "x86-partial-reduction",
    "x86-avoid-sfb",
    "x86-execution-domain-fix",
    "x86-fixup-leas",
    "x86-domain-reassignment",
    "interleaved-access",
    "post-RA-sched",
)
"""Passes that may be left out, by LLVM's command-line names; those with the largest measured gains first."""
REPEATED = ("machine-cp", "dead-mi-elimination")
"""Passes that run twice on a function; the second run is a candidate of its own."""

EXCLUDED: Mapping[str, str] = {
    "x86-isel": "instructions are then selected as at -O0, which is several times slower",
    "stack-coloring": "variables then share no stack, so deep recursions may no longer fit",
    "stack-slot-coloring": "spills then share no stack, for the same reason",
    "fixup-statepoint-caller-saved": "garbage collectors go by what it does",
    "break-false-deps": "it costs bytes for speed only, which estimates do not see",
    "objc-arc-contract": "it runs over all functions before their code is generated",
    "Local Dynamic TLS Access Clean-up": "LLVM has no argument for it",
    "X86 Atom pad short functions": "LLVM has no argument for it",
    "remove-loads-into-fake-uses": "it is for debugging",
    "loop-reduce": "loop passes do not say whose loop it is",
    "canon-freeze": "loop passes do not say whose loop it is",
}
"""Optional passes that a search never leaves out, with the reason."""

TOO_SLOW = 1e12
"""Penalty for each executed instruction beyond the bound: more than any function has bytes."""
_SINGLES = (*((name, 0) for name in CANDIDATES), *((name, 1) for name in REPEATED))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassConfig:
    """The trials of passes.

    Attributes:
        weights: [9] weights of a trial's measures in the score.
        slowdown: share by which a function may execute more instructions than with all passes, by LLVM's estimate;
            infinite for no bound.
    """

    weights: Floats = field(default_factory=lambda: executed_weights(IMAGE_BYTES))
    slowdown: float = 0.0

    @property
    def kind(self) -> OverrideKind:
        """Kind of the table: passes of the code generator."""
        return PASSES

    @property
    def stage(self) -> Stage:
        """Stage of code generation at which functions are forked."""
        return Stage.PASSES

    @property
    def label(self) -> str:
        """Name of the search in progress reports."""
        return "passes"

    @property
    def in_bytes(self) -> bool:
        """Whether scores are bytes of the function."""
        return counts_bytes(self.weights)

    @property
    def penalty(self) -> float:
        """Score that is added for each executed instruction beyond the bound."""
        return 0.0 if math.isinf(self.slowdown) else TOO_SLOW

    @property
    def policies(self) -> Mapping[str, str]:
        """No policies: LLVM and the tables make the decisions that are not tried."""
        return {}

    def free(self, function: FunctionState) -> float:
        """Instructions that a call of the function may execute, by LLVM's estimate."""
        return function.cost * (1 + self.slowdown)

    def series(self, function: FunctionState, count: int, rng: np.random.Generator) -> list[Series]:
        """The next ``count`` trials; the first runs all passes, and the overrides of an earlier plugin follow it."""
        # Of the trials that were made, one was of the earlier plugin's overrides, if there are any.
        followed = function.start is not None and function.trials > 1
        toggled = _draw_toggles(function.trials - followed, count, rng)
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


def open_passes(
    verifier: Verifier,
    *,
    objective: Objective,
    slowdown: float,
    folder: Path,
    start: Mapping[int, Overrides],
    seed: int,
    report: Report,
) -> FunctionSearch:
    """Begin a search on top of the verified decisions, or go on with the one in the folder.

    Args:
        verifier: verifier with the verified inlining decisions.
        objective: decides which bytes count.
        slowdown: share by which a function may execute more instructions, by LLVM's estimate.
        folder: folder of the search for inlining decisions; this search gets one below it.
        start: overrides of an earlier plugin by key of the function, which are tried first.
        seed: random seed.
        report: called after every module.
    """
    in_bytes = executed_weights(CODE_BYTES if objective is Objective.LINK_AWARE_TEXT else IMAGE_BYTES)
    weights = RUN_COST if objective is Objective.EXECUTED else in_bytes
    return open_verified(
        verifier,
        PassConfig(weights=weights, slowdown=slowdown),
        objective=objective,
        folder=folder / "passes",
        start=start,
        seed=seed,
        report=report,
    )


def _draw_toggles(begin: int, count: int, rng: np.random.Generator) -> Records:
    """Choose the passes [count, 4] that trials toggle, from the function's trial ``begin`` on; zeros for none."""
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
