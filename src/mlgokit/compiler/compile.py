"""Compiles one module of a corpus, plainly or under the plugin, and measures the object. A failure is a result."""

import enum
import errno
import functools
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.objects.measure import ObjectSizes, measure_object
from mlgokit.compiler.regalloc_cost import RegallocCosts, read_regalloc_costs, record_options
from mlgokit.compiler.reuse.known import KnownFunctions
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError, StorageError, TraceError
from mlgokit.files import atomic_write
from mlgokit.traces.log import Log, read_log

HEURISTIC = ":default"
NEVER = ":never"
ALWAYS = ":always"
_SETTINGS = {
    "inline-size": ("MLGOKIT_POLICY", "MLGOKIT_LOG"),
    "regalloc-eviction": ("MLGOKIT_EVICTION_POLICY", "MLGOKIT_EVICTION_LOG"),
    "regalloc-priority": ("MLGOKIT_PRIORITY_POLICY", "MLGOKIT_PRIORITY_LOG"),
}
"""The plugin's variables by problem: where its policy is, and where its log shall be."""
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
    BAD_RECORD = "the compiler succeeded but its optimization record cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginUse:
    """What the plugin shall do in one compilation.

    Attributes:
        plugin: the shared library.
        policies: by problem, a policy file or a rule such as ``:default``; problems that are left out use the policy
            inside the plugin, and LLVM's heuristic if it has none.
        logs: the problems whose training logs are wanted.
        seed: of exploration.
        temperature: of drawn decisions; 0 acts greedily.
        flip_probability: of turning a decision round.
        decisions: a table of inlining decisions that is asked before the policy.
        allocations: a table of evictions and priorities that is asked before the policies for them.
        trials: allocations to try for functions of the module, see :mod:`mlgokit.compiler.reuse.trials`.
        tried: where their results go.
        log_default: whether logs have the heuristic's decision where the table decides as well; it is -1 otherwise.
    """

    plugin: Path
    policies: Mapping[str, str] = field(default_factory=dict[str, str])
    logs: tuple[str, ...] = ()
    seed: int = 0
    temperature: float = 0.0
    flip_probability: float = 0.0
    decisions: Path | None = None
    allocations: Path | None = None
    trials: Path | None = None
    tried: Path | None = None
    log_default: bool = True

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables that tell the plugin, see ``plugin/shared/Settings.cpp``; logs go to ``folder``."""
        given = {_SETTINGS[problem][0]: policy for problem, policy in self.policies.items()}
        wanted = {_SETTINGS[problem][1]: str(folder / f"{problem}.log") for problem in self.logs}
        files = {
            "MLGOKIT_DECISIONS": self.decisions,
            "MLGOKIT_ALLOCATIONS": self.allocations,
            "MLGOKIT_TRIALS": self.trials,
            "MLGOKIT_TRIED": self.tried,
        }
        return (
            given
            | wanted
            | {name: str(path) for name, path in files.items() if path}
            | ({} if self.log_default else {"MLGOKIT_LOG_DEFAULT": "0"})
            | {
                "MLGOKIT_SEED": str(self.seed),
                "MLGOKIT_TEMPERATURE": repr(float(self.temperature)),
                "MLGOKIT_FLIP_PROBABILITY": repr(float(self.flip_probability)),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileResult:
    """One compilation, whatever came of it.

    Attributes:
        status: how it ended; the value is the sentence to show.
        reason: the compiler's first error or what was wrong with its output; empty when it succeeded.
        sizes: the object's sizes, when it could be read.
        logs: by problem, the training logs that were asked for; none for a problem that had no decision.
        regalloc: what register allocation cost each function, when that was asked for.
        user_seconds: processor time of the compiler.
        wall_seconds: elapsed time.
        killed: signal 9 ended the compiler, which is never its own doing.
    """

    status: CompileStatus
    reason: str = ""
    sizes: ObjectSizes | None = None
    logs: Mapping[str, Log] = field(default_factory=dict[str, Log])
    regalloc: RegallocCosts | None = None
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
    record: Path | None = None,
    thinlto_index: Path | None = None,
) -> list[str]:
    """The compiler call for one module: its recorded ``-cc1`` options, its bitcode, plugin, record and ThinLTO index.

    The bitcode of a ThinLTO module has its imports already, which LLVM has to be told.
    """
    extra = [] if plugin is None else [f"-fpass-plugin={plugin}"]
    extra += [] if record is None else record_options(record)
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
    keep_logs: Mapping[str, Path] | None = None,
    regalloc: bool = False,
    timeout_seconds: float = COMPILE_SECONDS,
    thinlto_index: Path | None = None,
    residents: Residents | None = None,
    known: KnownFunctions | None = None,
) -> CompileResult:
    """Compile one module and measure it.

    Args:
        toolchain: whose clang.
        command_line: the ``-cc1`` options recorded for the module.
        bitcode: the module's IR.
        use: what the plugin shall do; ``None`` compiles without it.
        keep_object: where to keep the object file; by default it is only measured.
        keep_logs: by problem, where to keep a training log; by default it is only read.
        regalloc: whether the costs of register allocation are wanted; the object is the same.
        timeout_seconds: deadline of the compiler.
        thinlto_index: the module's part of the ThinLTO index, if it is of a ThinLTO build.
        residents: compilers that stay, for modules that are compiled again and again under the plugin; not for ThinLTO,
            nor for costs of register allocation. What fails with one of them is compiled once more without, so that the
            outcome never depends on it.
        known: functions of this module that need not be generated again; the sizes are those of the whole object.

    Raises:
        StorageError: the compiler found the disk full.
        ToolError: the compiler cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as scratch:
        folder = Path(scratch)
        output = keep_object or folder / "module.o"
        record = folder / "module.opt.yaml" if regalloc else None
        environment = {name: value for name, value in os.environ.items() if not _CHANGES_COMPILER.match(name)}
        environment["LLVM_DISABLE_SYMBOLIZATION"] = "1"
        # What a killed compiler leaves behind goes with this folder.
        environment["TMPDIR"] = scratch
        settings = use.environment(folder) if use else {}
        listed = folder / "functions"
        if known is not None:
            (folder / "known").write_bytes(known.file())
            settings |= {"MLGOKIT_KNOWN": str(folder / "known"), "MLGOKIT_FUNCTIONS": str(listed)}
        words = functools.partial(
            command,
            toolchain,
            command_line,
            bitcode,
            plugin=use.plugin if use else None,
            record=record,
            thinlto_index=thinlto_index,
        )
        done = None
        if residents is not None and use is not None and record is None and thinlto_index is None:
            argv = words(output=Path("-"))
            done = residents.run(
                argv,
                environment=environment,
                request={"TMPDIR": scratch, **settings},
                output=output,
                timeout_seconds=timeout_seconds,
            )
            if done is not None and done.returncode != 0 and not done.timed_out:
                residents.decline(argv, f"a compilation failed: {first_error(done.stderr)}")
                done = None
        if done is None:
            done = process.run(words(output=output), timeout_seconds=timeout_seconds, env=environment | settings)
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
        logs = {problem: folder / f"{problem}.log" for problem in (use.logs if use else ())}
        measure = measure_object if known is None else functools.partial(known.complete, functions=listed)
        return _read_outputs(ended, functools.partial(measure, output), logs, record, keep_logs or {})


def _read_outputs(
    ended: Callable[..., CompileResult],
    measure: Callable[[], ObjectSizes | None],
    log_paths: Mapping[str, Path],
    record: Path | None,
    keep_logs: Mapping[str, Path],
) -> CompileResult:
    """The result of a compiler that succeeded, if what it wrote can be read."""
    try:
        sizes = measure()
    except (InputError, OSError) as error:
        return ended(status=CompileStatus.BAD_OBJECT, reason=str(error))
    logs: dict[str, Log] = {}
    for problem, path in log_paths.items():
        if not path.exists():
            continue
        try:
            logs[problem] = read_log(path)
        except TraceError as error:
            return ended(status=CompileStatus.BAD_TRACE, reason=str(error), sizes=sizes)
        if problem in keep_logs:
            atomic_write(keep_logs[problem], path.read_bytes())
    try:
        costs = None if record is None else read_regalloc_costs(record)
    except InputError as error:
        return ended(status=CompileStatus.BAD_RECORD, reason=str(error), sizes=sizes, logs=logs)
    return ended(status=CompileStatus.OK, sizes=sizes, logs=logs, regalloc=costs)
