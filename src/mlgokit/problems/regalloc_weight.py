"""Spill weights in the greedy register allocator: the factor by which LLVM's weight of a live range is multiplied.

Sources: ``llvm/lib/CodeGen/CalcSpillWeights.cpp`` (LLVM's weight: frequency of uses over size) and
``llvm/lib/CodeGen/RegAllocGreedy.cpp`` (the weight decides which live range is evicted, split or spilled). LLVM has no
advisor for weights; only the plugin has one.
"""

from mlgokit.problems.problem import Feature, Problem
from mlgokit.spec import AdviceKind

REGALLOC_WEIGHT = Problem(
    name="regalloc-weight",
    summary="how hard a live range defends its register, so that spilled code costs less",
    policy_variable="MLGOKIT_WEIGHT_POLICY",
    log_variable="MLGOKIT_WEIGHT_LOG",
    rules=(":default", ":random"),
    advice_kind=AdviceKind.REAL,
    decision="log2_factor",
    default_decision="log2_factor_default",
    context="function",
    features=(
        Feature("li_size"),
        Feature("stage"),
        *(
            Feature(name, "float")
            for name in (
                "weight",
                "heuristic_priority",
                "fine_weight",
                "position",
                "instructions",
                "definitions",
                "cheap_definitions",
                "is_local",
                "values",
                "segments",
                "has_hint",
                "has_physical_hint",
                "class_registers",
                "class_priority",
                "is_minsize",
                "calls_across",
                "registers",
            )
        ),
    ),
    scores=("regalloc-cost",),
)
