"""Passes that are left out at random, function by function: what benchmarks of the gates compile with."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides, Stage, TrialRequest
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.tables.overrides import EACH_TIME, OPTIMIZER_PASSES, override_bytes
from mlgokit.tune.spaces.optimizer.step import EXCLUDED
from mlgokit.tune.spaces.passes.trials import CANDIDATES, pass_number

INLINING = {INLINE_SIZE.name: HEURISTIC}
"""Who inlines meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPasses:
    """What a module is compiled without.

    Attributes:
        earlier: passes of the optimizer, by the key of the function.
        later: passes of the code generator, by the key that the function has then.
    """

    earlier: dict[int, Overrides]
    later: dict[int, Overrides]


def draw_passes(
    compiler: ClangCompiler,
    module: Module,
    changed: Mapping[int, Sequence[tuple[str, int]]],
    rate: float,
    rng: np.random.Generator,
) -> DrawnPasses:
    """Leave out each candidate of each function with a probability.

    Args:
        compiler: compiles the module once, as the code generator's keys are of what the optimizer made.
        module: which one.
        changed: passes of the optimizer that change its functions, as a compilation listed them.
        rate: the probability.
        rng: draws.
    """
    earlier = {key: _drawn_changes(found, rate, rng) for key, found in changed.items()}
    use = PluginUse(policies=INLINING, optimizer_passes=override_bytes(OPTIMIZER_PASSES, earlier))
    wanted = dataclasses.replace(use, trials=TrialRequest(stages=Stage.PASSES))
    keys = [one.key for one in compiler.compile(module, CompileRequest(use=wanted)).tried]
    return DrawnPasses(earlier=earlier, later={key: Overrides(passes=_drawn(rate, rng)) for key in keys})


def _drawn(rate: float, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Records of passes, each left out with this probability, the first or the second time it asks."""
    both = [(pass_number(name), nth, 0) for name in CANDIDATES for nth in (0, 1)]
    return np.array([one for one in both if rng.random() < rate], OVERRIDE)


def _drawn_changes(changed: Sequence[tuple[str, int]], rate: float, rng: np.random.Generator) -> Overrides:
    """Passes of the optimizer that changed a function, each left out with this probability, once or each time."""
    mine = [
        (pass_number(name), nth if rng.random() < 0.5 else EACH_TIME, 0)
        for name, nth in changed
        if name not in EXCLUDED and rng.random() < rate
    ]
    return Overrides(passes=np.array(mine, OVERRIDE))
