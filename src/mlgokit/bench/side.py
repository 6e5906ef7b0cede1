"""The flags by which a side of a comparison (baseline or candidate) differs in a real build."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.variant import VariantRecord
from mlgokit.compiler.plugin_build import build_plugin, check_made_for
from mlgokit.compiler.plugin_name import publish_plugin
from mlgokit.compiler.request import PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.export.plugin import export_plugin
from mlgokit.files import temporary_beside, writing


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFlags:
    """What a side adds to each call of the compiler.

    Attributes:
        words: words at the end of the options.
        environment: environment variables to set.
    """

    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def open_side(side: VariantRecord, toolchain: Toolchain, output: Path) -> SideFlags:
    """Make the flags of a side, and its plugin if it needs one.

    Args:
        side: options, policies or plugin of the side, already checked.
        toolchain: toolchain whose clang loads the plugin.
        output: path of the plugin to write: a copy of the side's plugin, or a plugin with the policy files inside, as
            it is shipped. For rules it is a copy of the general plugin, which is told the rules by variables.

    Raises:
        InputError: the side's plugin is for other compilers.
        PolicyError: a policy file is not usable.
        StorageError: the disk is full or not writable.
        ToolError: a plugin cannot be built.
    """
    if side.plugin:
        check_made_for(Path(side.plugin), toolchain)
        return SideFlags(words=(_load_copy(Path(side.plugin), output), *side.options))
    if not side.policies:
        return SideFlags(words=side.options)
    if any(policy.startswith(":") for policy in side.policies.values()):
        paths = {
            problem: policy if policy.startswith(":") else str(Path(policy).resolve())
            for problem, policy in side.policies.items()
        }
        environment = PluginUse(policies=paths).environment(output.parent)
        return SideFlags(words=(_load_copy(build_plugin(toolchain), output), *side.options), environment=environment)
    exported = export_plugin(toolchain, [Path(policy) for policy in side.policies.values()], output)
    return SideFlags(words=(exported.flag, *side.options))


def _load_copy(plugin: Path, output: Path) -> str:
    """Copy a plugin to a name with its digest beside ``output``; returns the clang option that loads the copy.

    ``compiler/plugin_name.py`` says why the name has a digest and no ``.so``.

    Raises:
        StorageError: the disk is full or not writable.
    """
    copy = temporary_beside(output)
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(plugin, copy)
    return f"-fpass-plugin={publish_plugin(copy, output)}"
