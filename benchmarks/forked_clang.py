"""A clang that is loaded once and forks for each command line: the same program, but in milliseconds; for fuzzers.

Two thirds of the time of a small compilation is the loading of LLVM's library. Here ``forked_clang.c`` is preloaded
into the user's clang and takes the place of its ``main``; each command line is then given to the real one in a copy
of the process, with its own folder, environment and limits, as :func:`mlgokit.compiler.process.run` would.
"""

import contextlib
import functools
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlgokit.compiler import process
from mlgokit.compiler.process import Completed
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError

_HEAD = struct.Struct("<4I2Q")
_ANSWER = struct.Struct("<2q")


@contextlib.contextmanager
def forked_clang(toolchain: Toolchain) -> Generator[Callable[..., Completed]]:
    """What to put in the place of :func:`process.run` meanwhile; it gives on what is not this toolchain's clang.

    One call at a time.

    Raises:
        ToolError: the preloaded library cannot be compiled.
    """
    with tempfile.TemporaryDirectory(prefix="mlgokit-forked-") as scratch, contextlib.ExitStack() as open_:
        folder = Path(scratch)
        library = folder / "forked.so"
        source = Path(__file__).with_suffix(".c")
        done = process.run([toolchain.clang, "-O1", "-shared", "-fPIC", source, "-o", library], timeout_seconds=60)
        if done.returncode != 0:
            raise ToolError(f"forked_clang: expected {source.name} to compile, found: {done.stderr}; needs glibc 2.34")
        channels: dict[str, socket.socket] = {}
        for program in {str(toolchain.clang), str(toolchain.clangxx)}:
            ours, theirs = socket.socketpair()
            open_.enter_context(_serving(program, theirs, library))
            open_.callback(ours.close)
            theirs.close()
            channels[program] = ours
        yield functools.partial(_run, channels, folder)


@contextlib.contextmanager
def _serving(program: str, channel: socket.socket, library: Path) -> Generator[None]:
    number = channel.fileno()
    environment = {"LD_PRELOAD": str(library), "MLGOKIT_FORKED": str(number)}
    with subprocess.Popen([program], pass_fds=[number], env=environment, stdin=subprocess.DEVNULL) as child:
        try:
            yield
        finally:
            child.kill()


def _run(
    channels: Mapping[str, socket.socket],
    folder: Path,
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout_seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    stderr_bytes: int = process.TAIL_BYTES,
    limits: process.Limits | None = None,
    **others: Any,
) -> Completed:
    process.require_checked_line(argv)
    words = [os.fspath(word) for word in argv]
    if words[0] not in channels:
        return _started(
            argv, timeout_seconds=timeout_seconds, cwd=cwd, env=env, stdin=stdin, stderr_bytes=stderr_bytes,
            limits=limits, **others,
        )  # fmt: skip
    limits = process.choose_limits(argv, limits)
    files = [folder / name for name in ("in", "out", "err")]
    for path, data in zip(files, (stdin, b"", b""), strict=True):
        path.write_bytes(data)
    variables = [f"{name}={value}" for name, value in (os.environ if env is None else env).items()]
    texts = [str(cwd or Path.cwd()), *map(str, files), *words, *variables]
    data = b"".join(os.fsencode(text) + b"\0" for text in texts)
    seconds = max(1, round(timeout_seconds))
    bounds = (limits.file_bytes or 0, limits.memory_bytes or 0)
    begin = time.monotonic()
    channels[words[0]].sendall(_HEAD.pack(len(data), len(words), len(variables), seconds, *bounds) + data)
    answer = channels[words[0]].recv(_ANSWER.size, socket.MSG_WAITALL)
    if len(answer) != _ANSWER.size:
        raise ToolError(f"forked_clang: expected an answer of {words[0]}, found none; it has ended")
    status, microseconds = _ANSWER.unpack(answer)
    code = os.waitstatus_to_exitcode(status)
    timed_out = code == -signal.SIGALRM
    with files[2].open("rb") as err:
        stderr = process.read_tail(err, stderr_bytes)
    return Completed(
        returncode=code,
        stdout=files[1].read_bytes(),
        stderr=stderr,
        timed_out=timed_out,
        wall_seconds=time.monotonic() - begin,
        user_seconds=microseconds * 1e-6,
        peak_bytes=0,
    )


_started = process.run
"""As it is where nothing took its place."""
