"""For which architectures policies are, and what that means for modules."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mlgokit.errors import UsageError
from mlgokit.module import Module, architecture_of
from mlgokit.policy.network import Policy


def for_modules(policy: Policy, modules: Iterable[Module]) -> Policy:
    """The policy for what the code of ``modules`` is for; as it is where no command line says that."""
    targets = tuple(sorted(architectures_of(modules)))
    return dataclasses.replace(policy, targets=targets) if targets else policy


def check_targets(targets: Sequence[str]) -> None:
    """Make sure that names are those of architectures, as far as one can tell.

    Raises:
        UsageError: there is none, or one is a whole triple or another name for an architecture.
    """
    wrong = next((name for name in targets if architecture_of(name) != name or not name.isidentifier()), None)
    if wrong is not None or not targets:
        known = f"; LLVM calls it {known}" if wrong and (known := architecture_of(wrong)) not in ("", wrong) else ""
        raise UsageError(
            f"--targets: expected names of architectures, such as aarch64, arm or riscv64, found {wrong or 'none'}"
            f"{known or '; correct it'}"
        )


def architectures_of(modules: Iterable[Module]) -> Counter[str]:
    """How many modules are for each architecture, as far as their command lines say."""
    return Counter(architecture for module in modules if (architecture := module.architecture))


def left_alone(policies: Mapping[str, Policy], architectures: Mapping[str, int]) -> tuple[str, ...]:
    """A sentence for each policy, by its name, that leaves code to LLVM because of what that is for.

    Args:
        policies: by name.
        architectures: how many modules are for each.
    """
    count, found = sum(architectures.values()), list[str]()
    for name, policy in policies.items():
        others = {one: number for one, number in sorted(architectures.items()) if one not in policy.targets}
        if others:
            alone = f"{sum(others.values())} of {count} module{'s' * (count != 1)}"
            found.append(
                f"{name} is a policy for {spoken(policy.targets)}, and leaves {alone}, for {spoken(list(others))}, to "
                "LLVM."
            )
    return tuple(found)


def spoken(names: Iterable[str]) -> str:
    """Names in a sentence.

    Example:
        >>> spoken(["aarch64"]), spoken(["aarch64", "arm", "x86_64"])
        ('aarch64', 'aarch64, arm and x86_64')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
