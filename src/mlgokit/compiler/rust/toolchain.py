"""Version and LLVM of a rustc, and a trial compilation that shows whether it loads the plugin."""

import functools
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.rust.wrapper import permit_crate
from mlgokit.errors import ToolError
from mlgokit.problems import INLINE_SIZE

TRIAL_SECONDS = 120.0
"""Deadline; the first start of rustc reads a hundred megabytes from disk."""
_CRATE = b"""#![crate_type = "lib"]
#![no_std]
fn callee(x: u32) -> u32 { x.wrapping_mul(3) ^ (x >> 2) }
#[no_mangle] pub extern "C" fn caller(x: u32) -> u32 { callee(x).wrapping_add(callee(x ^ 1)) }
"""
_NAME = "mlgokit_trial"
_LLVM = re.compile(r"LLVM version: ((\d+)\.[\d.]+)")
_LIBRARY = re.compile(r"(libLLVM\S*) => (/\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rustc:
    """A rustc.

    Attributes:
        program: path of the compiler itself, not of rustup's proxy.
        version: version line that it prints.
        llvm: version of its LLVM, such as ``22.1.2``.
        library: path of its LLVM library, if that is shared.
    """

    program: Path
    version: str
    llvm: str
    library: Path | None

    @property
    def major(self) -> int:
        """Major version of its LLVM."""
        return int(self.llvm.partition(".")[0])


def find_rustc(name: str = "rustc") -> Rustc:
    """Find the rustc of that name in ``PATH``, or at that path.

    Raises:
        ToolError: there is no such program, or it does not name its version of LLVM.
    """
    path = shutil.which(name)
    if path is None:
        raise ToolError(f"{name}: expected a rustc, found none; install Rust, or put its folder into PATH")
    version_text = _ask(path, "-vV")
    version = _LLVM.search(version_text)
    if version is None:
        raise ToolError(f"{name}: expected a rustc with LLVM, found: {version_text.strip()[:200] or 'no answer'}")
    own = Path(_ask(path, "--print", "sysroot").strip()) / "bin" / "rustc"
    program = own if own.is_file() else Path(path)
    return Rustc(
        program=program,
        version=version_text.partition("\n")[0].strip(),
        llvm=version[1].rstrip("."),
        library=_llvm_library(program),
    )


def unstable_options(rustc_version: str, crate: str, *, given: str = "") -> dict[str, str]:
    """Make the environment variables that allow unstable options for one crate; empty for a nightly rustc.

    ``given`` is the value that the build itself has for the variable, which stays in effect.

    Example:
        >>> unstable_options("rustc 1.95.0 (59807616e 2026-04-14)", "hexyl")
        {'RUSTC_BOOTSTRAP': 'hexyl'}
    """
    is_stable = "-nightly" not in rustc_version and "-dev" not in rustc_version
    return {"RUSTC_BOOTSTRAP": permit_crate(given, crate)} if is_stable else {}


def load_plugin(rustc: Rustc, plugin: Path) -> None:
    """Check that a rustc loads the plugin: compile a crate with one call, about which the plugin must be asked.

    Raises:
        ToolError: rustc does not load the plugin, or did not ask it about the call.
    """
    with tempfile.TemporaryDirectory(prefix="mlgokit-rustc-") as name:
        log = Path(name) / "log"
        words = [rustc.program, "--crate-name", _NAME, "-Copt-level=z", "-Ccodegen-units=1"]
        words += ["--emit=obj", "-o", Path(name) / "trial.o", f"-Zllvm-plugins={plugin}", "-"]
        asked = {INLINE_SIZE.policy_variable: ":default", INLINE_SIZE.log_variable: str(log)}
        environment = {**os.environ, **unstable_options(rustc.version, _NAME), **asked}
        done = process.run(words, timeout_seconds=TRIAL_SECONDS, env=environment, stdin=_CRATE)
        if done.timed_out or done.returncode != 0:
            raise ToolError(_complaint(done))
        if not log.is_file() or not log.stat().st_size:
            raise ToolError("rustc loads the plugin, but did not ask it about any call")


def _ask(program: str | Path, *words: str) -> str:
    """Run a rustc with options that only print, and return its output."""
    done = process.run([program, *words], timeout_seconds=TRIAL_SECONDS)
    if done.timed_out or done.returncode != 0:
        raise ToolError(f"{program}: expected a rustc that answers {words[0]}, found: {_complaint(done)}")
    return done.stdout.decode("utf-8", "replace")


def _complaint(done: process.Completed) -> str:
    """Find the error of a failed rustc, in one line."""
    if done.timed_out:
        return f"no end after {TRIAL_SECONDS:g} s"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[-1] if lines else f"exit status {done.returncode}")


@functools.cache
def _llvm_library(program: Path) -> Path | None:
    """Find the shared LLVM library that a rustc or its driver library loads, if any, by asking the dynamic loader."""
    if shutil.which("ldd") is None:
        return None
    drivers = sorted((program.parent.parent / "lib").glob("librustc_driver-*.so"))
    for file in (*drivers, program):
        done = process.run(["ldd", file], timeout_seconds=TRIAL_SECONDS)
        if match := _LIBRARY.search(done.stdout.decode("utf-8", "replace")):
            return Path(match[2])
    return None
