"""Priority in the greedy register allocator: the order in which live ranges are assigned registers.

Sources: ``llvm/lib/CodeGen/MLRegAllocPriorityAdvisor.cpp`` (features; the answer is truncated to an unsigned integer)
and ``llvm/lib/CodeGen/RegAllocGreedy.cpp`` (the queue, and the heuristic).
"""

from mlgokit.problems.problem import Feature, Problem
from mlgokit.spec import AdviceKind

REGALLOC_PRIORITY = Problem(
    name="regalloc-priority",
    summary="which live range gets a register next, so that spilled code costs less",
    policy_variable="MLGOKIT_PRIORITY_POLICY",
    log_variable="MLGOKIT_PRIORITY_LOG",
    rules=(":default", ":random"),
    log_option="-regalloc-priority-training-log",
    model_option="-regalloc-priority-model",
    advice_kind=AdviceKind.REAL,
    decision="priority",
    default_decision="priority_default",
    context="function",
    channel_options=(
        "-regalloc-enable-priority-advisor=release",
        "-regalloc-priority-interactive-channel-base={base}",
    ),
    features=(Feature("li_size"), Feature("stage"), Feature("weight", "float")),
    scores=("regalloc-cost",),
)
