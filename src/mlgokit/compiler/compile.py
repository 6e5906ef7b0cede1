"""Compiles one module of a corpus, plainly or under the plugin, and measures the object. A failure is a result."""

import enum
import errno
import functools
import os
import re
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.measure import ObjectSizes, measure_object
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError, StorageError, TraceError
from mlgokit.manifest import atomic_write
from mlgokit.traces.log import Log, read_log

HEURISTIC = ":default"
NEVER = ":never"
ALWAYS = ":always"
COMPILE_SECONDS = 60.0
LEAST_ROOM = 1 << 16
"""Bytes; a disk with less is taken for full."""

_CHANGES_COMPILER = re.compile(
    r"(MLGOKIT|CCC|CC_PRINT|CC_LOG|CLANG|LLVM(?!_PROFILE_FILE)|GCOV|DEBUGINFOD)_|(.*_)?(CPATH|INCLUDE_PATH)$"
)
"""Variables that change what clang does, or make it write logs. A crash would start the llvm-symbolizer in PATH, which
is not the compiler that the user named, so that this is turned off."""

_FULL = os.strerror(errno.ENOSPC)


class CompileStatus(enum.Enum):
    """How a compilation ended."""

    OK = "the compiler succeeded"
    FAILED = "the compiler reported an error"
    CRASHED = "the compiler was ended by a signal"
    TIMED_OUT = "the compiler did not finish in time and was killed"
    BAD_OBJECT = "the compiler succeeded but its object cannot be read"
    BAD_TRACE = "the compiler succeeded but its training log cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginUse:
    """What the plugin shall do in one compilation.

    Attributes:
        plugin: the shared library.
        policy: a policy file, or ``:default``, ``:never``, ``:always``; empty for the policy inside the plugin.
        log: whether the training log is wanted.
        seed: of exploration.
        temperature: of sampled decisions; 0 acts greedily.
        flip_probability: of turning a decision round.
    """

    plugin: Path
    policy: str = ""
    log: bool = False
    seed: int = 0
    temperature: float = 0.0
    flip_probability: float = 0.0

    def environment(self, log_path: Path | None) -> dict[str, str]:
        """The variables that tell the plugin, see ``plugin/Settings.cpp``."""
        return {
            "MLGOKIT_POLICY": self.policy,
            "MLGOKIT_LOG": str(log_path or ""),
            "MLGOKIT_SEED": str(self.seed),
            "MLGOKIT_TEMPERATURE": repr(float(self.temperature)),
            "MLGOKIT_FLIP_PROBABILITY": repr(float(self.flip_probability)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileResult:
    """One compilation, whatever came of it.

    Attributes:
        status: how it ended; the value is the sentence to show.
        reason: the compiler's first error or what was wrong with its output; empty when it succeeded.
        sizes: the object's sizes, when it could be read.
        log: the training log, when one was asked for.
        user_seconds: processor time of the compiler.
        wall_seconds: elapsed time.
        killed: signal 9 ended the compiler, which is never its own doing.
    """

    status: CompileStatus
    reason: str = ""
    sizes: ObjectSizes | None = None
    log: Log | None = None
    user_seconds: float = 0.0
    wall_seconds: float = 0.0
    killed: bool = False


THINLTO_INDEX = "-fthinlto-index="


def command(
    toolchain: Toolchain,
    command_line: tuple[str, ...],
    bitcode: Path,
    output: Path,
    plugin: Path | None,
    *,
    thinlto_index: Path | None = None,
) -> list[str]:
    """The compiler call for one module: its recorded ``-cc1`` options, its bitcode, the plugin, and its ThinLTO index.

    The bitcode of a ThinLTO module has its imports already, which LLVM has to be told.
    """
    extra = [] if plugin is None else [f"-fpass-plugin={plugin}"]
    options = [option for option in command_line if option]
    if thinlto_index is not None:
        options = [option for option in options if not option.startswith(THINLTO_INDEX)]
        extra += [f"{THINLTO_INDEX}{thinlto_index}", "-mllvm", "-thinlto-assume-merged"]
    return [str(toolchain.clang), *options, *extra, "-x", "ir", str(bitcode), "-emit-obj", "-o", str(output)]


def first_error(stderr: str) -> str:
    """The first line that says ``error``, else the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[-1] if lines else "no message")


def check_room(folder: Path, stderr: str) -> None:
    """Tell a compiler that failed for want of room in ``folder`` from one that failed by itself.

    Its message is lost if the disk with temporary files is full as well.

    Raises:
        StorageError: the disk is full.
    """
    message = stderr.strip()
    if _FULL in message or (not message and shutil.disk_usage(folder).free < LEAST_ROOM):
        raise StorageError(
            f"{folder}: expected room for what the compiler writes, found the disk full; "
            "free some space, then run the same command again: what was finished is kept"
        )


def compile_module(
    toolchain: Toolchain,
    command_line: tuple[str, ...],
    bitcode: Path,
    *,
    use: PluginUse | None = None,
    keep_object: Path | None = None,
    keep_log: Path | None = None,
    timeout_seconds: float = COMPILE_SECONDS,
    thinlto_index: Path | None = None,
) -> CompileResult:
    """Compile one module and measure it.

    Args:
        toolchain: whose clang.
        command_line: the ``-cc1`` options recorded for the module.
        bitcode: the module's IR.
        use: what the plugin shall do; ``None`` compiles without it.
        keep_object: where to keep the object file; by default it is only measured.
        keep_log: where to keep the training log; by default it is only read.
        timeout_seconds: deadline of the compiler.
        thinlto_index: the module's part of the ThinLTO index, if it is of a ThinLTO build.

    Raises:
        StorageError: the compiler found the disk full.
        ToolError: the compiler cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as scratch:
        folder = Path(scratch)
        output = keep_object or folder / "module.o"
        log_path = folder / "module.log" if use and use.log else None
        environment = {name: value for name, value in os.environ.items() if not _CHANGES_COMPILER.match(name)}
        environment["LLVM_DISABLE_SYMBOLIZATION"] = "1"
        if use:
            environment |= use.environment(log_path)
        done = process.run(
            command(toolchain, command_line, bitcode, output, use.plugin if use else None, thinlto_index=thinlto_index),
            timeout_seconds=timeout_seconds,
            env=environment,
        )
        ended = functools.partial(CompileResult, user_seconds=done.user_seconds, wall_seconds=done.wall_seconds)
        if done.timed_out:
            return ended(status=CompileStatus.TIMED_OUT, reason=f"after {timeout_seconds:.0f} s")
        if done.returncode == -signal.SIGKILL:
            reason = "killed by signal 9, perhaps for want of memory"
            return ended(status=CompileStatus.CRASHED, reason=reason, killed=True)
        if done.returncode != 0:
            check_room(output.parent, done.stderr)
            status = CompileStatus.CRASHED if done.returncode < 0 or done.returncode > 128 else CompileStatus.FAILED
            return ended(status=status, reason=first_error(done.stderr))
        try:
            sizes = measure_object(output)
        except (InputError, OSError) as error:
            return ended(status=CompileStatus.BAD_OBJECT, reason=str(error))
        log = None
        if log_path is not None and log_path.exists():
            try:
                log = read_log(log_path)
            except TraceError as error:
                return ended(status=CompileStatus.BAD_TRACE, reason=str(error), sizes=sizes)
            if keep_log is not None:
                atomic_write(keep_log, log_path.read_bytes())
        return ended(status=CompileStatus.OK, sizes=sizes, log=log)
