"""The architectures that a policy decides for, and whether it can be exported into LLVM without the plugin."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mlgokit.errors import PolicyError, UsageError
from mlgokit.module import Module, architecture_of
from mlgokit.policy.network import Policy
from mlgokit.policy.store import join_parts
from mlgokit.problems import PROBLEMS

ARCHITECTURES = frozenset({
    "aarch64", "aarch64_32", "aarch64_be", "amdgcn", "arc", "arm", "armeb", "avr", "bpfeb", "bpfel", "csky",
    "hexagon", "i386", "lanai", "loongarch32", "loongarch64", "m68k", "mips", "mips64", "mips64el", "mipsel",
    "msp430", "nvptx", "nvptx64", "powerpc", "powerpc64", "powerpc64le", "powerpcle", "r600", "riscv32", "riscv64",
    "s390x", "sparc", "sparcel", "sparcv9", "spirv", "spirv32", "spirv64", "thumbeb", "thumbv6m", "ve", "wasm32",
    "wasm64", "x86_64", "xcore", "xtensa",
})  # fmt: skip
"""Names of architectures that a policy may be for: those of `Triple::getArchTypeName`, and ``thumbv6m``."""


def restrict_to_targets(policy: Policy, modules: Iterable[Module]) -> Policy:
    """Set a policy's targets to the architectures of ``modules``; unchanged if no command line names one.

    Of a policy with several parts, the one for most of the modules is taken, or the first if none is for them.
    """
    architectures = architectures_of(modules)
    if not architectures:
        return policy
    (usual, _), *_ = architectures.most_common(1)
    part = policy.for_architecture(usual) or policy.parts[0]
    return dataclasses.replace(part, targets=tuple(sorted(architectures)))


def assign_targets(policy: Policy, targets: Sequence[str]) -> Policy:
    """Make a policy decide for ``targets`` and nothing else: each by the part that is for it, or by the first part."""
    parts = policy.parts
    own = [tuple(target for target in targets if target in part.targets) for part in parts]
    new = tuple(target for target in targets if target not in policy.all_targets)
    own[0] = tuple(target for target in targets if target in (*own[0], *new))
    return join_parts([dataclasses.replace(part, targets=of) for part, of in zip(parts, own, strict=True) if of])


def check_targets(targets: Sequence[str]) -> None:
    """Check that names are LLVM's names of architectures.

    Raises:
        UsageError: the list is empty, has a name twice, or one that is a triple or an alias.
    """
    if twice := [name for name, count in Counter(targets).items() if count > 1]:
        raise UsageError(f"--targets: expected each architecture once, found {twice[0]} twice; leave one out")
    wrong = next((name for name in targets if name not in ARCHITECTURES), None)
    if wrong is not None or not targets:
        known = f"; LLVM calls it {known}" if wrong and (known := architecture_of(wrong)) not in ("", wrong) else ""
        raise UsageError(
            f"--targets: expected names of architectures, such as aarch64, arm or riscv64, found {wrong or 'none'}"
            f"{known or '; correct it'}"
        )


def architectures_of(modules: Iterable[Module]) -> Counter[str]:
    """Count the modules of each architecture that their command lines name."""
    return Counter(architecture for module in modules if (architecture := module.architecture))


def describe_other_targets(
    policies: Mapping[str, Policy], architectures: Mapping[str, int], *, has_links: bool = True
) -> tuple[str, ...]:
    """Describe each policy that leaves modules to LLVM, as they are of other architectures, in a sentence.

    Args:
        policies: policies by name.
        architectures: number of modules by architecture.
        has_links: whether a link compiles some of them, with -flto; a policy for links decides nothing otherwise.
    """
    count, sentences = sum(architectures.values()), list[str]()
    for name, policy in policies.items():
        if not has_links and all(part.stage == "link" for part in policy.parts):
            sentences.append(f"{name} is a policy for links with -flto, and leaves all modules to LLVM.")
            continue
        others = {
            architecture: number
            for architecture, number in sorted(architectures.items())
            if architecture not in policy.all_targets
        }
        if others:
            alone = f"{sum(others.values())} of {count} module{'s' * (count != 1)}"
            sentences.append(
                f"{name} is a policy for {join_names(sorted(policy.all_targets))}, and leaves {alone}, for "
                f"{join_names(list(others))}, to LLVM."
            )
    return tuple(sentences)


def describe_missing_policies(
    name: str, policies: Mapping[str, Policy], architectures: Mapping[str, int]
) -> tuple[str, ...]:
    """Describe, in a sentence for each architecture, which problems a set of policies leaves to LLVM there.

    Args:
        name: of the set.
        policies: by problem.
        architectures: number of modules for each.

    Example:
        >>> describe_missing_policies("builtin:Oz", {}, {"arm": 3})
        ()
    """
    count, sentences = sum(architectures.values()), list[str]()
    for architecture, number in sorted(architectures.items()):
        missing = [problem for problem, policy in policies.items() if architecture not in policy.all_targets]
        if missing:
            sentences.append(
                f"{name} has no policy of {join_names(missing)} for {architecture}: LLVM decides there, in {number} of "
                f"{count} module{'s' * (count != 1)}"
            )
    return tuple(sentences)


def join_names(names: Iterable[str]) -> str:
    """Join names for a sentence.

    Example:
        >>> join_names(["aarch64"]), join_names(["aarch64", "arm", "x86_64"])
        ('aarch64', 'aarch64, arm and x86_64')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def check_exportable_to_llvm(policy: Policy, origin: str) -> None:
    """Check that a policy works inside LLVM without the plugin: LLVM has a model for its problem, and all its features.

    Args:
        policy: the policy.
        origin: name of the policy in error messages.

    Raises:
        PolicyError: LLVM has no model for the problem, or the policy needs features of the plugin.
    """
    llvms = [problem.name for problem in PROBLEMS.values() if problem.has_llvm_advisor]
    if policy.problem not in llvms:
        raise PolicyError(
            f"policy {origin}: expected a policy for {' or '.join(llvms)}, for which LLVM has models, found one for "
            f"{policy.problem!r}; use it with `mlgokit export plugin`"
        )
    if any(part.recurrent for part in policy.parts):
        raise PolicyError(
            f"policy {origin}: expected a network of dense layers, found an LSTM, whose state LLVM does not carry from "
            "one decision to the next; use it with `mlgokit export plugin`"
        )
    if policy.others:
        raise PolicyError(
            f"policy {origin}: expected a policy for one kind of processor, found {len(policy.parts)}, for "
            f"{join_names(policy.all_targets)}; export one of the files that it was made of"
        )
    if policy.stage == "link":
        raise PolicyError(
            f"policy {origin}: expected a policy for whole compilations, found one for links with -flto, which LLVM "
            "would also ask elsewhere; use it with `mlgokit export plugin`"
        )
    known = PROBLEMS[policy.problem].feature_names
    plugins = [name for name in (*policy.features, *filter(None, [policy.mask])) if name not in known]
    if plugins:
        raise PolicyError(
            f"policy {origin}: expected LLVM's own features alone, found {plugins[0]!r}"
            f"{f' and {len(plugins) - 1} more' if plugins[1:] else ''}, which only the plugin computes; train one with "
            "`mlgokit train --features llvm`, or use this one with `mlgokit export plugin`"
        )
