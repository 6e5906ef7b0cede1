"""The parts of a tuning that go function by function, beside inlining decisions that were verified."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.evaluation.sides import policies_by_problem
from mlgokit.progress import Report
from mlgokit.tables.overrides import ALLOCATIONS, OPTIMIZER_PASSES, PASSES, OverrideKind, overrides_inside
from mlgokit.tune.loop import run_search
from mlgokit.tune.result import Tuned
from mlgokit.tune.search import Search
from mlgokit.tune.spaces.allocation.policies import add_policies
from mlgokit.tune.spaces.allocation.trials import open_bytes
from mlgokit.tune.spaces.functions.finish import finish_bytes
from mlgokit.tune.spaces.inlining.opening import InliningSearch
from mlgokit.tune.spaces.optimizer.opening import open_optimizer
from mlgokit.tune.spaces.passes.trials import open_passes
from mlgokit.tune.verify import Verifier

LEAST_STEPS = 12
"""Compilations that a search over passes of the optimizer takes to find something."""
REGISTER_POLICIES = ("builtin:regalloc", "builtin:weights-size")
"""Policies of registers that come with the package for code that is to be small."""


def tune_functions(
    config: Tune,
    verifier: Verifier,
    inlining: InliningSearch,
    tuned: Tuned,
    *,
    whole: float,
    left: float,
    report: Report,
) -> Tuned:
    """Search and verify passes that are left out, first of the optimizer, then register allocations on top of them.

    Args:
        config: the call.
        verifier: has verified the decisions.
        inlining: the search for them.
        tuned: what they gave.
        whole: seconds of the whole budget; registers have their share of them at least.
        left: seconds that are left of it; passes have what registers have no share in, and registers what is left then.
        report: told what is done.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked.
    """
    space, folder, seed = inlining.space, inlining.folder, inlining.seed
    objective = space.config.objective

    def run(found: Search[Any], seconds: float) -> Tuned:
        run_search(found, seconds=seconds, workers=space.compiler, report=report)
        return finish_bytes(verifier, found, tuned, space.account.module_bytes)

    def earlier(kind: OverrideKind) -> Mapping[int, Overrides]:
        return {} if config.start is None else overrides_inside(kind, config.start)

    kept = config.allocation_share * whole
    openings = ((open_optimizer, OPTIMIZER_PASSES), (open_passes, PASSES)) if config.share_for_passes else ()
    for index, (open_search, kind) in enumerate(openings):
        begin, seconds = time.monotonic(), max(0.0, left - kept) / (len(openings) - index)
        # All workers make steps, if only in one module.
        steps = seconds * space.compiler.workers / max(_step_seconds(verifier), 1e-9)
        if config.cargo is not None and kind is OPTIMIZER_PASSES and steps < LEAST_STEPS:
            seconds = 0.0
        found = open_search(
            verifier, objective=objective, slowdown=config.slowdown, folder=folder, start=earlier(kind), seed=seed,
            report=report,
        )  # fmt: skip
        tuned = run(found, seconds)
        left -= min(seconds, time.monotonic() - begin)
    if config.allocation_share:
        found = open_bytes(
            verifier, objective=objective, folder=folder, start=earlier(ALLOCATIONS), seed=seed, report=report
        )
        tuned = run(found, max(kept, left))
        if config.register_policies == "on" or (config.register_policies == "auto" and config.cargo is not None):
            policies = {problem: Path(file) for problem, file in policies_by_problem(REGISTER_POLICIES).items()}
            tuned = add_policies(verifier, found, tuned, space.account.module_bytes, policies=policies)
    return tuned


def _step_seconds(verifier: Verifier) -> float:
    """Processor time of a step over passes of the optimizer, which compiles one module."""
    found = [one.user_seconds for one in verifier.latest.compilations.values()]
    return sum(found) / max(1, len(found))
