"""Versions of programs, and the vendor and target of a clang, from ``--version``."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.errors import ToolError

VERSION_SECONDS = 20.0
"""Deadline of ``--version``."""

# Some vendors write their own version before it: "Vendor v23.1.4.post8 LLD 23.1.4".
_VERSION = re.compile(r"(?<![\w.])v?(\d+\.\d+(?:\.\d+)?\w*)")
_CLANG_VERSION = re.compile(
    r"^(?P<text>(?P<vendor>.*?)\s*\bclang version (?P<version>\d+(?:\.\d+)+\w*).*)$", re.MULTILINE
)
_TARGET = re.compile(r"^Target: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramVersion:
    """What a program says about itself.

    Attributes:
        version: for example ``19.1.7``.
        vendor: who built a clang, empty for LLVM's own builds.
        text: the line that a clang prints.
        target: a clang's default target triple.
        reason: why there is no version; empty if there is one.
    """

    version: str = ""
    vendor: str = ""
    text: str = ""
    target: str = ""
    reason: str = ""

    @property
    def major(self) -> int:
        """The version's first number, 0 if there is none."""
        return int(self.version.split(".", 1)[0]) if self.version else 0


def program_version(program: Path) -> ProgramVersion:
    """Ask a program for its version, once as long as the file stays the same."""
    try:
        status = program.stat()
    except OSError as error:
        return ProgramVersion(reason=f"nothing that can be read ({error.strerror})")
    return _ask(program, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=512)
def _ask(program: Path, _mtime_ns: int, _size_bytes: int) -> ProgramVersion:
    """Run ``--version`` and parse the answer; cached as long as the file is the same."""
    try:
        completed = process.run([program, "--version"], timeout_seconds=VERSION_SECONDS)
    except ToolError:
        return ProgramVersion(reason="a file that cannot be executed")
    if completed.timed_out:
        return ProgramVersion(reason=f"no answer to --version in {VERSION_SECONDS:g} s")
    output = completed.stdout.decode("utf-8", "replace")
    if completed.returncode != 0:
        complaint = (completed.stderr.strip() or output.strip() or "nothing").splitlines()[0]
        return ProgramVersion(reason=f"exit status {completed.returncode} of --version, with: {complaint}")
    if clang := _CLANG_VERSION.search(output):
        target = _TARGET.search(output)
        return ProgramVersion(
            version=clang["version"],
            vendor=clang["vendor"].strip(),
            text=clang["text"].strip(),
            target=target[1] if target else "",
        )
    if other := _VERSION.search(output):
        return ProgramVersion(version=other[1])
    return ProgramVersion(reason="no version in the output of --version")
