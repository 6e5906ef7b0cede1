"""Export: a policy becomes one shared library that an unmodified clang loads with ``-fpass-plugin``."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.compile import first_error
from mlgokit.compiler.plugin_build import link_policy
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE

# One call that the heuristic decides, so that the policy inside the plugin is really asked.
_CHECKED = "static int twice(int x) { return 2 * x; }\nint four(int x) { return twice(x) + twice(x + 1); }\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPlugin:
    """What was written.

    Attributes:
        plugin: the shared library.
        size_bytes: its size.
        flag: what to add to clang's command line.
    """

    plugin: str
    size_bytes: int
    flag: str


def export_plugin(toolchain: Toolchain, policy: Path, output: Path) -> ExportedPlugin:
    """Link ``policy`` into a plugin for ``toolchain`` at ``output``, and compile one small file with it.

    Raises:
        PolicyError: the policy file is not usable.
        ToolError: the plugin cannot be built, or clang cannot compile with it.
    """
    load_policy(policy, problem=INLINE_SIZE.name)
    link_policy(toolchain, policy, output)
    with tempfile.TemporaryDirectory(prefix="mlgokit-export-") as scratch:
        source = Path(scratch) / "check.c"
        source.write_text(_CHECKED)
        done = process.run(
            [toolchain.clang, "-Oz", f"-fpass-plugin={output.resolve()}", "-c", source, "-o", f"{source}.o"],
            timeout_seconds=60,
        )
    if done.returncode != 0:
        raise ToolError(
            f"{output}: expected {toolchain.clang} to compile with it, found: {first_error(done.stderr)}; "
            "train a policy for this compiler, or export for the compiler that it was trained with"
        )
    return ExportedPlugin(
        plugin=str(output), size_bytes=output.stat().st_size, flag=f"-fpass-plugin={output.resolve()}"
    )
