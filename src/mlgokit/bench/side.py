"""What a side of a comparison adds to the compilers of a real build."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.variant import VariantRecord
from mlgokit.compiler.made_for import check_made_for
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.plugin_name import publish_plugin
from mlgokit.compiler.request import PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.export.plugin import export_plugin
from mlgokit.files import temporary_beside, writing


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFlags:
    """What a side adds to a compiler.

    Attributes:
        words: at the end of its options.
        environment: to its variables.
    """

    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def open_side(side: VariantRecord, toolchain: Toolchain, output: Path) -> SideFlags:
    """The flags of a side.

    Args:
        side: what was asked for, already checked.
        toolchain: whose clang.
        output: where the plugin goes: a copy of the one that is given, or one with policy files inside, as they are
            shipped. Rules are told to a copy of the general plugin by variables.

    Raises:
        InputError: the plugin that is given is for other compilers.
        PolicyError: a policy file is not usable.
        StorageError: the disk is full or not writable.
        ToolError: a plugin cannot be built.
    """
    if side.plugin:
        check_made_for(Path(side.plugin), toolchain)
        return SideFlags(words=(_copied(Path(side.plugin), output), *side.options))
    if not side.policies:
        return SideFlags(words=side.options)
    if any(policy.startswith(":") for policy in side.policies.values()):
        paths = {
            problem: policy if policy.startswith(":") else str(Path(policy).resolve())
            for problem, policy in side.policies.items()
        }
        environment = PluginUse(policies=paths).environment(output.parent)
        return SideFlags(words=(_copied(build_plugin(toolchain), output), *side.options), environment=environment)
    exported = export_plugin(toolchain, [Path(policy) for policy in side.policies.values()], output)
    return SideFlags(words=(exported.flag, *side.options))


def _copied(plugin: Path, output: Path) -> str:
    """The option that loads a copy of a plugin by a name that every build system takes.

    Raises:
        StorageError: the disk is full or not writable.
    """
    copy = temporary_beside(output)
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(plugin, copy)
    return f"-fpass-plugin={publish_plugin(copy, output)}"
