"""The tools of LLVM that lie beside clang."""

from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError

SECONDS = 600.0


def run_tool(toolchain: Toolchain, tool: str, *words: str | Path, stdin: str = "") -> str:
    """What a tool prints.

    Args:
        toolchain: whose tool.
        tool: its name, such as ``llvm-objdump``.
        words: its arguments.
        stdin: what it reads.

    Raises:
        ToolError: it is missing, or fails.
    """
    path = toolchain.clang.resolve().with_name(tool)
    done = process.run([path, *words], timeout_seconds=SECONDS, stdin=stdin.encode())
    if done.returncode != 0:
        raise ToolError(f"{path} {words[-1]}: expected it to succeed, found: {first_error(done.stderr)}")
    return done.stdout.decode("utf-8", "replace")
