"""The profile that the runs of a program with counters left."""

from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError

SECONDS = 60.0


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
    profdata = toolchain.clang.resolve().with_name("llvm-profdata")
    inputs = sorted(raw.glob("*.profraw"))
    if not inputs or process.run([profdata, "merge", "-o", merged, *inputs], timeout_seconds=SECONDS).returncode != 0:
        raise ToolError(f"{name}: expected a profile of its work, found none; see what its build says")
    return merged
