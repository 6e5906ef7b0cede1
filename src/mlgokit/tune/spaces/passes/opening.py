"""The beginning of a search over passes that do not run, beside decisions that were verified."""

from collections.abc import Mapping
from pathlib import Path

from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.reuse.trials import CODE_BYTES, IMAGE_BYTES, Overrides, executed_weights
from mlgokit.progress import Report
from mlgokit.tune.spaces.functions.opening import FunctionSearch, open_verified
from mlgokit.tune.spaces.passes.trials import PassConfig
from mlgokit.tune.verify import Verifier


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
    """Begin with the functions as the decisions that were verified make them, or go on from what is known of them.

    Args:
        verifier: has verified inlining decisions.
        objective: which bytes count.
        slowdown: by which part a function may execute more instructions, by LLVM's estimate.
        folder: that of the search for these decisions; this one is kept below it.
        start: by function, passes that an earlier plugin leaves out; tried first.
        seed: random seed.
        report: told after every module.
    """
    weights = executed_weights(CODE_BYTES if objective is Objective.LINK_AWARE_TEXT else IMAGE_BYTES)
    return open_verified(
        verifier,
        PassConfig(weights=weights, slowdown=slowdown),
        objective=objective,
        folder=folder / "passes",
        start=start,
        seed=seed,
        report=report,
    )
