"""Where doctor's plugin comes from: compiled here, or prebuilt in the package."""

from pathlib import Path

from mlgokit.compiler.plugin_build import build_plugin, was_compiled
from mlgokit.compiler.plugin_loading import replay_sentence, why_no_plugin_loads
from mlgokit.compiler.prebuilt import Prebuilt, all_prebuilt, find_prebuilt
from mlgokit.compiler.toolchain import Toolchain, known_majors
from mlgokit.errors import ToolError


def obtain_plugin(toolchain: Toolchain) -> tuple[Path, str]:
    """The plugin for a compiler, and the words for where it comes from.

    Raises:
        ToolError: the plugin is not made for this compiler, cannot be loaded or built there, or there are no headers.
    """
    if not toolchain.supported:
        raise ToolError(f"the plugin is made for LLVM {known_majors('and')} only")
    if reason := why_no_plugin_loads(toolchain.clang):
        raise ToolError(replay_sentence(toolchain.clang, reason))
    prebuilt = find_prebuilt(toolchain.version, toolchain.target, toolchain.cxx_library)
    if toolchain.include_dir is None and isinstance(prebuilt, str):
        raise ToolError(f"no LLVM headers of major {toolchain.major} found{prebuilt and f', and {prebuilt}'}")
    plugin = build_plugin(toolchain)
    if isinstance(prebuilt, Prebuilt) and not was_compiled(plugin):
        return plugin, f"comes prebuilt for {prebuilt.name}"
    return plugin, "builds"


def list_prebuilt() -> str:
    """The compilers for which a plugin came with the package.

    Raises:
        ToolError: none did.
    """
    known = all_prebuilt()
    if not known:
        raise ToolError("no prebuilt plugin in this installation: it is compiled with LLVM's headers")
    return ", ".join(one.name for one in known)
