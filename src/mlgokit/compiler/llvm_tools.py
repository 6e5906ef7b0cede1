"""Programs of LLVM that read objects, of any major: what they print of a file is the same for each."""

import shutil
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.majors import SUPPORTED_MAJORS
from mlgokit.errors import InputError, ToolError

_SECONDS = 300.0


def find_llvm_tool(name: str) -> Path:
    """Find a program such as ``llvm-objdump``: the newest in ``PATH``, else beside a clang.

    Raises:
        ToolError: there is none.
    """
    majors = tuple(reversed(SUPPORTED_MAJORS))
    for candidate in (*(f"{name}-{major}" for major in majors), name):
        if found := shutil.which(candidate):
            return Path(found)
    # Its imports take longer than most programs do.
    from mlgokit.compiler.toolchain import apt_command, find_toolchains

    for toolchain in find_toolchains():
        if path := toolchain.find_tool(name):
            return path
    raise ToolError(f"{name}: expected it in PATH, found none; {apt_command(f'llvm-{majors[0]}')}")


def run_llvm_tool(name: str, *arguments: str | Path, where: str, seconds: float = _SECONDS) -> str:
    """Run a program of LLVM on a file, which ``where`` names in messages, and return what it prints.

    Raises:
        ToolError: there is no such program, or it does not end in time.
        InputError: it refuses the file.
    """
    program = find_llvm_tool(name)
    done = process.run([program, *arguments], timeout_seconds=seconds)
    if done.timed_out:
        raise ToolError(
            f"{where}: expected {program.name} to read it within {seconds:.0f} s, found that it took longer; give "
            "a smaller file"
        )
    if done.returncode:
        last = next(iter(reversed(done.stderr.strip().splitlines())), "no message")
        raise InputError(f"{where}: expected a file that {program.name} can read, found: {last}; build this file again")
    return done.stdout.decode("utf-8", "backslashreplace")
