"""What a side of a comparison adds to the compilers of a real build."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.evaluation.records import SideRecord
from mlgokit.export.plugin import export_plugin


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFlags:
    """What a side adds to a compiler.

    Attributes:
        words: at the end of its options.
        environment: to its variables.
    """

    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def open_side(side: SideRecord, toolchain: Toolchain, output: Path) -> SideFlags:
    """The flags of a side.

    Args:
        side: what was asked for, already checked.
        toolchain: whose clang.
        output: where policy files are put into a plugin, as they are shipped. Rules need none: they are told to the
            general plugin by variables.

    Raises:
        PolicyError: a policy file is not usable.
        ToolError: a plugin cannot be built.
    """
    if side.plugin:
        return SideFlags(words=(f"-fpass-plugin={Path(side.plugin).resolve()}", *side.options))
    if not side.policies:
        return SideFlags(words=side.options)
    if any(policy.startswith(":") for policy in side.policies.values()):
        paths = {
            problem: policy if policy.startswith(":") else str(Path(policy).resolve())
            for problem, policy in side.policies.items()
        }
        environment = PluginUse(policies=paths).environment(output.parent)
        return SideFlags(words=(f"-fpass-plugin={build_plugin(toolchain)}", *side.options), environment=environment)
    export_plugin(toolchain, [Path(policy) for policy in side.policies.values()], output)
    return SideFlags(words=(f"-fpass-plugin={output.resolve()}", *side.options))
