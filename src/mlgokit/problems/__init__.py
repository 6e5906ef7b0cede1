"""The problems: which decisions of LLVM a policy can make, one declarative file for each."""

from mlgokit.problems.inline_size import INLINE_SIZE
from mlgokit.problems.pass_selection import DECIDED_PASSES, GENERATOR_PASSES, PASS_FEATURES, PASS_SELECTION
from mlgokit.problems.problem import Channel, Feature, Problem, column_count, header_defect
from mlgokit.problems.regalloc_eviction import REGALLOC_EVICTION
from mlgokit.problems.regalloc_priority import REGALLOC_PRIORITY
from mlgokit.problems.regalloc_weight import REGALLOC_WEIGHT

PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY, PASS_SELECTION, REGALLOC_WEIGHT)
}
"""All problems by name."""

__all__ = [
    "DECIDED_PASSES",
    "GENERATOR_PASSES",
    "INLINE_SIZE",
    "PASS_FEATURES",
    "PASS_SELECTION",
    "PROBLEMS",
    "REGALLOC_EVICTION",
    "REGALLOC_PRIORITY",
    "REGALLOC_WEIGHT",
    "Channel",
    "Feature",
    "Problem",
    "column_count",
    "header_defect",
]
