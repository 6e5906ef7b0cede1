"""Whether a policy can decide inside an LLVM that has no plugin, as a model of LLVM's own."""

from mlgokit.errors import PolicyError
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.problems import PROBLEMS


def check_llvms_own(policy: Policy, origin: str) -> None:
    """Check that a policy is for a problem of LLVM's, and needs nothing that LLVM does not tell a model.

    Args:
        policy: any.
        origin: what messages call it.

    Raises:
        PolicyError: it is for another problem, or needs the plugin's features or the heuristic's column.
    """
    llvms = [problem.name for problem in PROBLEMS.values() if problem.is_llvms]
    if policy.problem not in llvms:
        raise PolicyError(
            f"policy {origin}: expected a policy for {', '.join(llvms)}, since LLVM asks a model about nothing else, "
            f"found one for {policy.problem!r}; use it with `mlgokit export plugin`"
        )
    if policy.output is OutputKind.COLUMN_EFFECT:
        raise PolicyError(
            f"policy {origin}: expected one that decides alone, found effects against the column of LLVM's heuristic, "
            "which LLVM does not tell a model; use it with `mlgokit export plugin`"
        )
    known = PROBLEMS[policy.problem].feature_names
    plugins = [name for name in (*policy.features, *filter(None, [policy.mask])) if name not in known]
    if plugins:
        raise PolicyError(
            f"policy {origin}: expected LLVM's own features alone, found {plugins[0]!r}"
            f"{f' and {len(plugins) - 1} more' if plugins[1:] else ''}, which only the plugin computes; train one with "
            "`mlgokit train --features llvm`, or use this one with `mlgokit export plugin`"
        )
