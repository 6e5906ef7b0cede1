"""The beginning of a search over register allocations for bytes, beside decisions that were verified."""

from collections.abc import Mapping
from pathlib import Path

from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.reuse.trials import CODE_BYTES, IMAGE_BYTES, Overrides
from mlgokit.progress import Report
from mlgokit.tune.spaces.allocation.trials import TrialConfig
from mlgokit.tune.spaces.functions.opening import FunctionSearch, open_verified
from mlgokit.tune.verify import Verifier


def open_bytes(
    verifier: Verifier,
    *,
    objective: Objective,
    folder: Path,
    start: Mapping[int, Overrides],
    seed: int,
    report: Report,
) -> FunctionSearch:
    """Begin with the functions as the tables that were verified make them, or go on from what is known of them.

    Args:
        verifier: has verified inlining decisions, and perhaps passes.
        objective: which bytes count.
        folder: that of the search for these decisions; this one is kept below it.
        start: by function, what an earlier plugin does otherwise than LLVM; tried first.
        seed: random seed.
        report: told after every module.
    """
    return open_verified(
        verifier,
        TrialConfig(weights=CODE_BYTES if objective is Objective.LINK_AWARE_TEXT else IMAGE_BYTES),
        objective=objective,
        folder=folder / "allocation",
        start=start,
        seed=seed,
        report=report,
    )
