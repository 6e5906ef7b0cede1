"""The profile that the runs of a program with counters left."""

from pathlib import Path

from llvm_tools import run_tool

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError


def merged_profile(raw: Path, merged: Path, toolchain: Toolchain, *, name: str) -> Path:
    """Merge what a program built with ``-fprofile-generate`` left in a folder.

    Args:
        raw: the folder.
        merged: where the profile goes.
        toolchain: whose llvm-profdata.
        name: of the program.

    Raises:
        ToolError: it left nothing, or nothing that can be merged.
    """
    inputs = sorted(raw.glob("*.profraw"))
    if not inputs:
        raise ToolError(f"{name}: expected a profile of its work, found none; see what its build says")
    run_tool(toolchain, "llvm-profdata", "merge", "-o", merged, *inputs)
    return merged
