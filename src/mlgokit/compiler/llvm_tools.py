"""Programs of LLVM that read objects or symbols, of any major: what they print is the same for each."""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mlgokit.compiler import process
from mlgokit.compiler.majors import SUPPORTED_MAJORS
from mlgokit.errors import InputError, ToolError

if TYPE_CHECKING:
    from mlgokit.compiler.toolchain import Toolchain

_SECONDS = 300.0
_DEMANGLERS = ("llvm-cxxfilt", *(f"llvm-cxxfilt-{major}" for major in reversed(SUPPORTED_MAJORS)), "c++filt")
_MANGLED = re.compile(r"_[ZR][\w.$@]+")
_DEMANGLE_SECONDS = 20.0


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


def run_llvm_tool(name: str, *options: str, file: Path) -> str:
    """Run a program of LLVM on a file, and return what it prints; there the file has its absolute path.

    Raises:
        ToolError: there is no such program, or it does not end in time.
        InputError: it refuses the file.
    """
    program = find_llvm_tool(name)
    # No absolute path begins with a dash, which makes an option of a file's name.
    done = process.run([program, *options, file.absolute()], timeout_seconds=_SECONDS)
    if done.timed_out:
        raise ToolError(
            f"{file}: expected {program.name} to read it within {_SECONDS:.0f} s, found that it took longer; give "
            "a smaller file"
        )
    if done.returncode:
        last = next(iter(reversed(done.stderr.strip().splitlines())), "no message")
        raise InputError(f"{file}: expected a file that {program.name} can read, found: {last}; build this file again")
    return _printed(done.stdout)


def _printed(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


def member_of_line(line: str, file: Path) -> str | None:
    r"""The member that follows in what :func:`run_llvm_tool` returns of a file; empty for the file itself.

    ``None`` for a line that begins nothing.

    Example:
        >>> member_of_line("/lib (1)/a.a(b/c (2).o):\tfile format elf64-x86-64", Path("/lib (1)/a.a"))
        'b/c (2).o'
    """
    path = _printed(os.fsencode(file.absolute()))
    begin, colon, _ = line.rpartition(":\tfile format ")
    if not colon or not begin.startswith(path):
        return None
    return begin.removeprefix(path).removeprefix("(").removesuffix(")")


def find_demangler(toolchain: "Toolchain | None" = None) -> Path | None:
    """Find the toolchain's llvm-cxxfilt, else one or c++filt in PATH."""
    if toolchain is not None and (own := toolchain.find_tool("llvm-cxxfilt")) is not None:
        return own
    program = next(filter(None, map(shutil.which, _DEMANGLERS)), None)
    return None if program is None else Path(program)


def readable_names(symbols: Iterable[str], demangler: Path | None) -> dict[str, str]:
    """Demangle C++ and Rust symbols; symbols that are not mangled are left out.

    Without a demangler, or if it fails, the result is empty: names are only shown, and never used as keys.
    """
    # Names are matched by line: a line feed in a stranger's symbol would give all later ones the wrong name.
    asked = sorted({symbol for symbol in symbols if _MANGLED.fullmatch(symbol)})
    if demangler is None or not asked:
        return {}
    try:
        done = process.run([demangler], stdin="\n".join(asked).encode(), timeout_seconds=_DEMANGLE_SECONDS)
    except ToolError:
        return {}
    names = done.stdout.decode(errors="replace").split("\n")
    if done.returncode or done.timed_out or len(names) not in {len(asked), len(asked) + 1}:
        return {}
    return {symbol: name for symbol, name in zip(asked, names, strict=False) if name and name != symbol}
