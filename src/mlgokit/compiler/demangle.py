"""Demangled names of symbols, for reports."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mlgokit.compiler import process
from mlgokit.compiler.majors import SUPPORTED_MAJORS
from mlgokit.errors import ToolError

if TYPE_CHECKING:
    from mlgokit.compiler.toolchain import Toolchain

_PROGRAMS = ("llvm-cxxfilt", *(f"llvm-cxxfilt-{major}" for major in reversed(SUPPORTED_MAJORS)), "c++filt")
_MANGLED = re.compile(r"_[ZR][\w.$@]+")
_SECONDS = 20.0


def find_demangler(toolchain: "Toolchain | None" = None) -> Path | None:
    """Find the toolchain's llvm-cxxfilt, else one or c++filt in PATH."""
    if toolchain is not None:
        folder = toolchain.clang.parent
        own = [folder / "llvm-cxxfilt", folder / f"llvm-cxxfilt-{toolchain.major}"]
        if program := next((path for path in own if path.is_file()), None):
            return program
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
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
        done = process.run([demangler], stdin="\n".join(asked).encode(), timeout_seconds=_SECONDS)
    except ToolError:
        return {}
    names = done.stdout.decode(errors="replace").split("\n")
    if done.returncode or done.timed_out or len(names) not in {len(asked), len(asked) + 1}:
        return {}
    return {symbol: name for symbol, name in zip(asked, names, strict=False) if name and name != symbol}
