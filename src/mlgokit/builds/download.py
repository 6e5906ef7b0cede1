"""What an image weighs on its way to a user: its file without symbols, and that file compressed."""

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
"""The compressor, if none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressor:
    """How an image is compressed.

    Attributes:
        strip: ``llvm-strip``, which leaves out symbols and debug information first.
        words: the compressor, which reads standard input and writes standard output.
    """

    strip: Path
    words: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The command of the compressor."""
        return shlex.join(self.words)

    def measure(self, image: Path) -> tuple[int, int | None]:
        """Bytes of the stripped file, and of that compressed, if there is a compressor.

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
        if not self.words:
            return len(data), None
        done = process.run(self.words, timeout_seconds=_SECONDS, stdin=data, limits=USERS_LIMITS)
        if done.timed_out or done.returncode != 0 or not done.stdout:
            ending = f"no end within {_SECONDS:.0f} s" if done.timed_out else first_error(done.stderr)
            raise InputError(
                f"--compressor {self.text}: expected it to write compressed bytes of {image} to standard output, found "
                f"{ending or 'none'}; try it by hand as `{self.text} < {image} | wc -c`"
            )
        return len(data), len(done.stdout)


def find_compressor(command: str | None, toolchain: Toolchain) -> Compressor:
    """The compressor of a command, or only what strips images without one.

    Raises:
        ToolError: there is no ``llvm-strip``.
        UsageError: there is no such program, or the command needs a shell.
    """
    beside = toolchain.clang.resolve().parent / "llvm-strip"
    names = (str(beside), f"llvm-strip-{toolchain.major}", "llvm-strip")
    strip = next((path for path in map(shutil.which, names) if path is not None), None)
    if strip is None:
        raise ToolError(f"llvm-strip: expected {beside} or one in PATH, found neither; apt-get install llvm")
    try:
        words = tuple(shlex.split(command or ""))
    except ValueError as error:
        raise UsageError(f"--compressor: expected the words of a command, found {command!r} ({error})") from error
    if words and shutil.which(words[0]) is None:
        raise UsageError(f"--compressor: expected a program in {command}, found no {words[0]}; install it")
    return Compressor(strip=Path(strip), words=words)
