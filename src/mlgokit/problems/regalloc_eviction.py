"""Eviction in the greedy register allocator: from which physical register to evict other live ranges, if any.

Sources: ``llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp`` (features, mask, the last column) and
``llvm/lib/CodeGen/RegAllocEvictionAdvisor.cpp`` (the heuristic).
"""

from mlgokit.problems.problem import Feature, Problem
from mlgokit.spec import AdviceKind

REGALLOC_EVICTION = Problem(
    name="regalloc-eviction",
    summary="which register to free for a live range, so that spilled code costs less",
    policy_variable="MLGOKIT_EVICTION_POLICY",
    log_variable="MLGOKIT_EVICTION_LOG",
    rules=(":default", ":random", ":first"),
    log_option="-regalloc-training-log",
    model_option="-regalloc-model",
    advice_kind=AdviceKind.MASKED_CHOICE,
    decision="index_to_evict",
    default_decision="index_to_evict_default",
    context="function",
    channel_options=(
        "-regalloc-enable-advisor=release",
        "-regalloc-evict-interactive-channel-base={base}",
    ),
    mask="mask",
    features=(
        *(Feature(name, "int64_t", per_column=True) for name in ("mask", "is_free")),
        *(Feature(name, "float", per_column=True) for name in ("nr_urgent", "nr_broken_hints")),
        *(Feature(name, "int64_t", per_column=True) for name in ("is_hint", "is_local")),
        *(
            Feature(name, "float", per_column=True)
            for name in (
                "nr_rematerializable",
                "nr_defs_and_uses",
                "weighed_reads_by_max",
                "weighed_writes_by_max",
                "weighed_read_writes_by_max",
                "weighed_indvars_by_max",
                "hint_weights_by_max",
                "start_bb_freq_by_max",
                "end_bb_freq_by_max",
                "hottest_bb_freq_by_max",
                "liverange_size",
                "use_def_density",
            )
        ),
        *(Feature(name, "int64_t", per_column=True) for name in ("max_stage", "min_stage")),
        Feature("progress", "float"),
    ),
    scores=("regalloc-cost",),
)
