"""Judges of policies that allocate registers: functions, allocated by LLVM and by a policy in one compilation each."""

from collections.abc import Callable, Sequence

import numpy as np

from mlgokit.algorithms.allocation_score import AllocationScore, in_score
from mlgokit.compiler.pool import Workers, parallel
from mlgokit.compiler.reuse.trials import Floats
from mlgokit.learning.validation import JudgedModule, Validation
from mlgokit.module import Module
from mlgokit.progress import Report

ModuleFunctions = tuple[Module, tuple[int, ...]]
"""A module, and keys of functions of it."""


def judge_functions(
    parts: Sequence[ModuleFunctions],
    measure: Callable[[Module, Sequence[int]], tuple[Floats, Floats]],
    score: AllocationScore,
    *,
    workers: Workers,
    report: Report,
) -> Validation:
    """By which part functions got better, in the mean of projects; scores of modules are sums.

    Args:
        parts: what judges.
        measure: gives what functions measure as LLVM allocates them and by the policy, [N, 9] each, of those that
            succeeded.
        score: what is judged.
        workers: modules at once.
        report: progress.
    """

    def work(part: ModuleFunctions) -> JudgedModule:
        module, keys = part
        then, now = in_score(*measure(module, keys), score)
        return JudgedModule(
            module=module.name, project=module.project, before=float(then.sum()), after=float(now.sum())
        )

    done = parallel(work, parts, workers=workers, report=report, label="judge")
    found = tuple(one for one in done if one.before)
    ratios = [
        sum(one.after for one in found if one.project == name) / sum(one.before for one in found if one.project == name)
        for name in sorted({one.project for one in found})
    ]
    return Validation(gain=1 - float(np.mean(ratios)) if ratios else -np.inf, modules=found)
