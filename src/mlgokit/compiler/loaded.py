"""The identity of a compiler: digests of its program and of every library that it loads.

A version line is not enough: two builds of one version print the same, and ``LD_LIBRARY_PATH`` or ``LD_PRELOAD`` load
other libraries into one program. Compilers keep these variables, as some do not start without them; the libraries are
read from the memory map of a running compiler.
"""

import fcntl
import os
import struct
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.errors import ToolError
from mlgokit.files import digest_cached, stamp_of

START_SECONDS = 30.0
_PAUSE_SECONDS = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """A program or library.

    Attributes:
        path: path of the file.
        sha256: digest of its content.
        stamp: device, inode, size and times when it was digested.
    """

    path: Path
    sha256: str
    stamp: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The identity of a compiler, by content.

    Attributes:
        version: the version line that it prints.
        target: its default target.
        files: its program, the compiler that a wrapper starts, and the libraries of both.
    """

    version: str = ""
    target: str = ""
    files: tuple[LoadedFile, ...] = ()

    @property
    def facts(self) -> dict[str, object]:
        """Version, target and digests, without paths, which do not affect the output."""
        names = sorted((file.path.name, file.sha256) for file in self.files)
        return {"version": self.version, "target": self.target, "files": names}

    def check(self) -> None:
        """Check that none of the files was replaced since they were digested.

        Raises:
            ToolError: a file is another one now.
        """
        for file in self.files:
            try:
                same = stamp_of(file.path) == file.stamp
            except OSError:
                same = False
            if not same and _digest(file.path) != file.sha256:
                raise ToolError(
                    f"{file.path}: this part of the compiler was replaced during the run; run the same command "
                    "again: finished work is kept"
                )


def inspect_compiler(clang: Path, *, version: str, target: str, environment: Mapping[str, str]) -> Loaded:
    """Digest the program and the libraries of a compiler, which is started for this and waits for its source.

    Args:
        clang: path of the compiler, or of a wrapper of it.
        version: the version line that it prints.
        target: its default target.
        environment: environment of its compilations.

    Raises:
        ToolError: the compiler cannot be started, or does not read a source from its standard input.
    """
    paths = {Path(path) for path in _mapped_files(clang, environment)} | {clang.resolve()}
    files: list[LoadedFile] = []
    for path in sorted(paths):
        digest = _digest(path)
        if not digest:
            raise ToolError(
                f"{clang}: expected readable libraries, as it loads them, found that {path} cannot be read; if the "
                "compiler is being replaced, run the same command again when that is done"
            )
        files.append(LoadedFile(path=path, sha256=digest, stamp=stamp_of(path)))
    return Loaded(version=version, target=target, files=tuple(files))


def _digest(path: Path) -> str:
    """Digest a file; empty if it cannot be read."""
    try:
        return digest_cached(path)
    except OSError:
        return ""


def _mapped_files(clang: Path, environment: Mapping[str, str]) -> set[str]:
    """Start the compiler, and list the executable files in its memory map and its wrappers'."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    with (
        os.fdopen(reading, "rb") as source,
        os.fdopen(writing, "wb", buffering=0) as pipe,
        tempfile.TemporaryFile() as err,
    ):
        # Once the pipe is empty, the compiler has read the line: it has loaded everything, and waits for more.
        pipe.write(b"\n")
        argv = Cc1Line(clang, own=("-fsyntax-only", "-x", "c", "-"))
        child = process.start(argv, stdin=source, stderr=err, env=environment)
        try:
            with process.track_group(child.pid):
                deadline = time.monotonic() + START_SECONDS
                while struct.unpack("i", fcntl.ioctl(writing, termios.FIONREAD, bytes(4)))[0]:
                    if child.poll() is not None or time.monotonic() > deadline:
                        message = (process.read_tail(err).strip().splitlines() or ["no message"])[-1]
                        raise ToolError(
                            f"{clang}: expected a clang that reads a source from its standard input, found "
                            f"{message}; give the path of another clang"
                        )
                    time.sleep(_PAUSE_SECONDS)
                return {path for pid in _processes_in(child.pid) for path in _mapped_executables(pid)}
        finally:
            process.kill_group(child)


def _processes_in(group: int) -> Iterator[int]:
    """List the processes of a group; a wrapper may start the compiler as another process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group:
                yield int(entry.name)


def _mapped_executables(pid: int) -> Iterator[str]:
    """Yield the files that a process maps as executable."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
            yield fields[5]
