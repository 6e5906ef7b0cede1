"""Inlining for size: inline this call or not.

Source: ``llvm/include/llvm/Analysis/InlineModelFeatureMaps.h`` and ``llvm/lib/Analysis/MLInlineAdvisor.cpp``.
"""

from mlgokit.problems.problem import Feature, Problem
from mlgokit.spec import AdviceKind

INLINE_SIZE = Problem(
    name="inline-size",
    summary="inline a call or not, so that the program gets smaller",
    policy_variable="MLGOKIT_POLICY",
    log_variable="MLGOKIT_LOG",
    rules=(":default", ":never", ":always"),
    log_option="-training-log",
    model_option="-ml-inliner-model-under-training",
    takes_sites=True,
    advice_kind=AdviceKind.BINARY,
    decision="inlining_decision",
    default_decision="inlining_default",
    context="module",
    channel_options=(
        "-enable-ml-inliner=release",
        "-inliner-interactive-channel-base={base}",
    ),
    default_option="-inliner-interactive-include-default",
    # https://github.com/llvm/llvm-project/pull/141453, of May 2025; can go when 21 is the oldest supported major.
    default_overwrites=(21, "callee_basic_block_count"),
    features=tuple(
        Feature(name)
        for name in (
            "sroa_savings",
            "sroa_losses",
            "load_elimination",
            "call_penalty",
            "call_argument_setup",
            "load_relative_intrinsic",
            "lowered_call_arg_setup",
            "indirect_call_penalty",
            "jump_table_penalty",
            "case_cluster_penalty",
            "switch_default_dest_penalty",
            "switch_penalty",
            "unsimplified_common_instructions",
            "num_loops",
            "dead_blocks",
            "simplified_instructions",
            "constant_args",
            "constant_offset_ptr_args",
            "callsite_cost",
            "cold_cc_penalty",
            "last_call_to_static_bonus",
            "is_multiple_blocks",
            "nested_inlines",
            "nested_inline_cost_estimate",
            "threshold",
            "callee_basic_block_count",
            "callsite_height",
            "node_count",
            "nr_ctant_params",
            "cost_estimate",
            "edge_count",
            "caller_users",
            "caller_conditionally_executed_blocks",
            "caller_basic_block_count",
            "callee_conditionally_executed_blocks",
            "callee_users",
            "is_callee_avail_external",
            "is_caller_avail_external",
        )
    ),
    scores=("link-aware", "link-aware-text", "object-text"),
)
