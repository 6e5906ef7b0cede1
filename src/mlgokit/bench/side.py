"""One side of a comparison: what is added to a build's compiler, and what the build is plain without."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError
from mlgokit.export.plugin import export_plugin
from mlgokit.files import digest_file
from mlgokit.problems import PROBLEMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side of a comparison has that a plain build has not.

    Attributes:
        policies: policy files, at most one for each problem; or one rule for inlining, such as ``:never``.
        plugin: a plugin that is finished, as ``tune`` and ``export plugin`` write it.
        options: options of the compiler, in order.
    """

    policies: tuple[str, ...] = ()
    plugin: Path | None = None
    options: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The side for readers.

        Example:
            >>> Side().shown, Side(plugin=Path("a/tuned.so"), options=("-O2",)).shown
            ('plain', 'tuned.so, -O2')
        """
        names = [policy if policy.startswith(":") else Path(policy).name for policy in self.policies]
        names += [self.plugin.name] if self.plugin else []
        return ", ".join([*names, *([shlex.join(self.options)] if self.options else [])]) or "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFlags:
    """What a side adds to a compiler.

    Attributes:
        words: at the end of its options.
        environment: to its variables.
        inputs: digests of policies and plugin, by path.
    """

    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])


def check_side(side: Side, *, option: str = "") -> None:
    """Look at a side before anything is compiled.

    Args:
        side: what was asked for.
        option: what is in front of the names of its options, ``against-`` or nothing.

    Raises:
        UsageError: it contradicts itself, or names what is not there.
    """
    if side.policies and side.plugin is not None:
        raise UsageError(
            f"--{option}policy and --{option}plugin: expected one of them, found both; a compiler loads one plugin, "
            "so export the policy first and leave the other one out"
        )
    rules = [policy for policy in side.policies if policy.startswith(":")]
    known = sorted({rule for problem in PROBLEMS.values() for rule in problem.rules})
    if wrong := [rule for rule in rules if rule not in known]:
        raise UsageError(
            f"--{option}policy: expected a policy file or one of {', '.join(known)}, found {wrong[0]}; correct the name"
        )
    if rules and len(side.policies) > 1:
        raise UsageError(
            f"--{option}policy: expected a rule alone or policy files, found {', '.join(side.policies)}; "
            "leave all but one out"
        )
    files = [*([side.plugin] if side.plugin else []), *(Path(one) for one in side.policies if one not in rules)]
    for path in files:
        if not path.is_file():
            raise UsageError(f"{path}: expected a file, found none; correct --{option}policy or --{option}plugin")


def open_side(side: Side, toolchain: Toolchain, output: Path) -> SideFlags:
    """The flags of a side; policies are put into a plugin at ``output``, as they are shipped.

    Raises:
        UsageError: as :func:`check_side`.
        PolicyError: a policy file is not usable.
        ToolError: a plugin cannot be built.
    """
    check_side(side)
    if side.policies and side.policies[0].startswith(":"):
        plugin = build_plugin(toolchain)
        rule = side.policies[0]
        use = PluginUse(policies={problem.name: rule for problem in PROBLEMS.values() if rule in problem.rules})
        variables = {name: value for name, value in use.environment(output.parent).items() if value == rule}
        return SideFlags(words=(f"-fpass-plugin={plugin}", *side.options), environment=variables)
    if side.policies:
        export_plugin(toolchain, [Path(policy) for policy in side.policies], output)
        inputs = {policy: digest_file(Path(policy)) for policy in side.policies}
        return SideFlags(words=(f"-fpass-plugin={output.resolve()}", *side.options), inputs=inputs)
    if side.plugin is not None:
        inputs = {str(side.plugin): digest_file(side.plugin)}
        return SideFlags(words=(f"-fpass-plugin={side.plugin.resolve()}", *side.options), inputs=inputs)
    return SideFlags(words=side.options)
