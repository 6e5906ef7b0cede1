"""The size of an image's file without symbols, and of that file compressed."""

import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError, ToolError, UsageError

_SECONDS = 300.0
DEFAULT = "xz -9"
"""Default command of the compressor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressor:
    """How an image is stripped and compressed.

    Attributes:
        strip: ``llvm-strip``, which removes symbols and debug information first.
        words: the compressor, which reads standard input and writes standard output; empty for none.
    """

    strip: Path
    words: tuple[str, ...] = ()

    def measure(self, image: Path) -> tuple[int, int | None]:
        """Measure an image's stripped file in bytes, and this file compressed; ``None`` without a compressor.

        Raises:
            InputError: the image cannot be stripped, or the compressor fails.
            ToolError: a program cannot be started.
        """
        with tempfile.TemporaryDirectory(prefix="mlgokit-strip-") as scratch:
            stripped = Path(scratch) / "image"
            words = [str(self.strip), "--strip-all", str(image), "-o", str(stripped)]
            done = process.run(words, timeout_seconds=_SECONDS)
            if done.returncode != 0:
                raise InputError(f"{image}: expected {self.strip.name} to strip it, found: {first_error(done.stderr)}")
            data = stripped.read_bytes()
        return len(data), self.compress(data) if self.words else None

    def compress(self, data: bytes) -> int:
        """Compress data, and return the number of compressed bytes.

        Raises:
            InputError: the compressor fails.
            ToolError: the compressor cannot be started.
        """
        done = process.run(self.words, timeout_seconds=_SECONDS, stdin=data, limits=USERS_LIMITS)
        if done.timed_out or done.returncode != 0 or not done.stdout:
            ending = f"no end within {_SECONDS:.0f} s" if done.timed_out else first_error(done.stderr)
            text = shlex.join(self.words)
            raise InputError(
                f"--compressor {text}: expected it to write {len(data):,} bytes compressed to standard output, found "
                f"{ending or 'none'}; try it by hand as `{text} < FILE | wc -c`"
            )
        return len(done.stdout)


def find_compressor(command: str, toolchain: Toolchain) -> Compressor:
    """Make the compressor of a user's command, after trying it.

    Raises:
        InputError: the command fails.
        ToolError: there is no ``llvm-strip``.
        UsageError: there is no such program, or the command needs a shell.
    """
    stripper = find_stripper(toolchain)
    if stripper is None:
        beside = toolchain.clang.resolve().with_name("llvm-strip")
        raise ToolError(
            f"llvm-strip: expected {beside} or one in PATH, found neither; apt-get install llvm-{toolchain.major}"
        )
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(
            f"--compressor: expected a command such as 'xz -9', found {command!r} ({error}); close the quotation"
        ) from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"--compressor: expected a program in {command!r}, found no {(*words, '')[0]}; install it")
    compressor = Compressor(strip=stripper.strip, words=words)
    compressor.compress(b"mlgokit")
    return compressor


def find_stripper(toolchain: Toolchain) -> Compressor | None:
    """Make a compressor that only strips images; ``None`` without ``llvm-strip``."""
    strip = toolchain.find_tool("llvm-strip")
    return None if strip is None else Compressor(strip=strip)
