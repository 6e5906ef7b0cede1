"""What the rustc at hand can do: its LLVM, and whether it loads the plugin, which is tried."""

from collections.abc import Callable, Iterator

from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.rust.toolchain import find_rustc, load_plugin, unstable_options
from mlgokit.compiler.toolchain import SUPPORTED_MAJORS, find_toolchain, known_majors
from mlgokit.errors import ToolError


def rust_trials(*, plugin: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """What is tried of the rustc in ``PATH``: each with its name, and a function that says what was found.

    Args:
        plugin: also build the plugin for its LLVM, and load it.
    """
    yield "rustc", _say_rustc
    if plugin:
        yield "plugin in rustc", _try_plugin


def _say_rustc() -> str:
    rustc = find_rustc()
    library = "inside the compiler" if rustc.library is None else f"shared ({rustc.library.resolve()})"
    return f"{rustc.version}, LLVM {rustc.llvm}, {library}"


def _try_plugin() -> str:
    rustc = find_rustc()
    if rustc.major not in SUPPORTED_MAJORS:
        raise ToolError(f"the plugin is made for LLVM {known_majors('and')} only, this rustc has {rustc.llvm}")
    load_plugin(rustc, build_plugin(find_toolchain(rustc.major, need_plugin=True)))
    variables = " ".join(f"{name}={value}" for name, value in unstable_options(rustc.version, "CRATE").items())
    return f"it loads it and asks it about calls: {variables + ' ' if variables else ''}rustc -Zllvm-plugins=..."
