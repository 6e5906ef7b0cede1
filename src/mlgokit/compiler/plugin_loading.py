"""Whether a clang can load plugins; one that hides the symbols of its LLVM cannot."""

import functools
import tempfile
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.errors import ToolError

_SECONDS = 30.0
# Data that refers to a function of LLVM is bound when the library is loaded, and not when it is first used.
_PROBE = 'extern char llvm_errs(void) __asm__("_ZN4llvm4errsEv");\nvoid *mlgokit_probe = (void *)llvm_errs;\n'
_REFUSED = "Could not load library"
_LARGEST_SHARED_BYTES = 1 << 24
"""Maximum size of a clang that uses a shared LLVM; one that contains LLVM is ten times as large."""


def why_no_plugin_loads(clang: Path) -> str:
    """Try whether a clang loads plugins; return its error, or nothing if it does or if the test cannot run.

    The test loads a tiny library that calls one function of LLVM. Clangs with LLVM linked in statically, such as the
    Android NDK's and many vendors', hide that function.
    """
    try:
        status = clang.stat()
    except OSError:
        return ""
    return _try_plugin(clang, status.st_mtime_ns, status.st_size)


def replay_sentence(clang: Path, reason: str) -> str:
    """Write the error for a clang that cannot load plugins, with export replay as the remedy."""
    return (
        f"clang {clang}: expected one that loads plugins, found one that hides the LLVM inside it ({reason}); tune "
        "with another clang, and give this one the inlining decisions with `mlgokit export replay`"
    )


@functools.lru_cache(maxsize=64)
def _try_plugin(clang: Path, _mtime_ns: int, size_bytes: int) -> str:
    """Compile with a tiny plugin that calls LLVM; return the error, or nothing."""
    if size_bytes < _LARGEST_SHARED_BYTES and _names_shared_llvm(clang):
        return ""
    with tempfile.TemporaryDirectory(prefix="mlgokit-probe-") as scratch:
        folder = Path(scratch)
        (folder / "probe.c").write_text(_PROBE)
        (folder / "empty.c").write_text("")
        try:
            made = process.run(
                [clang, "-shared", "-nostdlib", "-fPIC", "-w", "probe.c", "-o", "probe.so"],
                timeout_seconds=_SECONDS,
                cwd=folder,
            )
            if made.returncode != 0 or not (folder / "probe.so").is_file():
                return ""
            done = process.run(
                [clang, "-fpass-plugin=./probe.so", "-c", "empty.c", "-o", "empty.o"],
                timeout_seconds=_SECONDS,
                cwd=folder,
            )
        except ToolError:
            return ""
    # "error: unable to load plugin './p.so': 'Could not load library './p.so': ./p.so: undefined symbol: x'"
    line = next((line for line in done.stderr.splitlines() if _REFUSED in line), "")
    return line.partition(f"{_REFUSED} './probe.so': ")[2].removeprefix("./probe.so: ").rstrip(" '")


def _names_shared_llvm(clang: Path) -> bool:
    """Whether the clang links LLVM as a shared library, as distributions' do, so that the test is not needed."""
    try:
        data = clang.read_bytes()
    except OSError:
        return False
    return data.startswith(b"\x7fELF") and any(name in data for name in (b"libLLVM", b"libclang-cpp"))
