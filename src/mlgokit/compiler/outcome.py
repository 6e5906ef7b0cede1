"""Conversion of a finished compiler process to a record: its messages, its failure, its output files."""

import dataclasses
import errno
import functools
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.compilation import Compilation, CompileStatus, add_logs, read_pass_changes
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.regalloc_cost import read_regalloc_costs
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.reuse.known_use import Known
from mlgokit.compiler.reuse.trials import read_trial_results
from mlgokit.errors import InputError, StorageError, TraceError
from mlgokit.files import atomic_write
from mlgokit.traces.log import Log, read_log

_ERROR = re.compile(r"error(\[\w+\])?:")
"""rustc numbers its errors; the last one, which only counts the others, has no number."""
_OTHER_MAJOR = re.compile(r"(unable to load plugin '[^']*'): .*undefined symbol: _ZN?.*4llvm.*")
_NOT_MAPPED = re.compile(r"(unable to load plugin '[^']*'): .*failed to map segment.*")
LEAST_ROOM = 1 << 16
"""A disk with fewer free bytes counts as full."""
_FULL = os.strerror(errno.ENOSPC)


def first_error(stderr: str) -> str:
    r"""Find the first line that contains ``error``, else the last line; explain a plugin that is for another LLVM.

    Example:
        >>> first_error("error[E0554]: no feature on stable\nerror: aborting due to 1 previous error")
        'error[E0554]: no feature on stable'
        >>> said = "'Could not load library './p.so': ./p.so: undefined symbol: _ZNK4llvm4Pass7getNameEv'"
        >>> first_error(f"error: unable to load plugin './p.so': {said}")
        "error: unable to load plugin './p.so': it was made for another LLVM major than this clang's"
        >>> said = "'Could not load library './p.so': ./p.so: failed to map segment from shared object'"
        >>> first_error(f"error: unable to load plugin './p.so': {said}")
        "error: unable to load plugin './p.so': its file system seems to be mounted noexec, put it elsewhere"
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    error = next((line for line in lines if _ERROR.search(line)), lines[-1] if lines else "no message")
    error = _OTHER_MAJOR.sub(r"\1: it was made for another LLVM major than this clang's", error)
    return _NOT_MAPPED.sub(r"\1: its file system seems to be mounted noexec, put it elsewhere", error)


def check_room(folder: Path, stderr: str) -> None:
    """Raise if a compiler failed because the disk of ``folder`` is full.

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


def describe_end(done: process.Completed, output: Path, timeout_seconds: float) -> Compilation:
    """Make the record of a compiler that ended; what it wrote, if it succeeded, is not read yet."""
    ended = functools.partial(Compilation, user_seconds=done.user_seconds, wall_seconds=done.wall_seconds)
    if done.timed_out:
        reason = f"after {timeout_seconds:.0f} s; allow more with --timeout-seconds"
        return ended(status=CompileStatus.TIMED_OUT, reason=reason)
    if done.exceeded:
        return ended(status=CompileStatus.LIMITED, reason=done.exceeded)
    if done.returncode == -signal.SIGKILL:
        reason = "killed by signal 9, perhaps because memory ran out"
        return ended(status=CompileStatus.CRASHED, reason=reason, killed=True)
    if done.returncode != 0:
        check_room(output.parent, done.stderr)
        status = CompileStatus.CRASHED if done.returncode < 0 or done.returncode > 128 else CompileStatus.FAILED
        return ended(status=status, reason=first_error(done.stderr))
    return ended(status=CompileStatus.OK)


def add_sizes(ended: Compilation, measure: Callable[[], ObjectSizes | None]) -> Compilation:
    """Add what ``measure`` finds to the record of a compiler that succeeded; a failure if it cannot read the object."""
    try:
        return dataclasses.replace(ended, sizes=measure())
    except (InputError, OSError) as error:
        return dataclasses.replace(ended, status=CompileStatus.BAD_OBJECT, reason=str(error))


def read_logs(request: CompileRequest, folder: Path) -> dict[str, Log]:
    """Read the training logs in a folder that a request asks for, by problem, and keep those that it wants kept.

    Raises:
        TraceError: a log is damaged.
    """
    logs: dict[str, Log] = {}
    for problem in request.use.logs if request.use else ():
        path = folder / f"{problem}.log"
        if path.exists():
            logs[problem] = read_log(path)
            if problem in request.keep_logs:
                atomic_write(request.keep_logs[problem], path.read_bytes())
    return logs


def read_outputs(
    ended: Compilation,
    known: Known,
    request: CompileRequest,
    *,
    folder: Path,
    output: Path,
    record: Path | None,
    measure: Callable[[Path], ObjectSizes | None],
) -> Compilation:
    """Make the record of a compiler that succeeded from its output files; a failure if they cannot be read."""
    if request.lto:
        return ended
    use = request.use
    ended = add_sizes(ended, functools.partial(known.complete, folder, output, measure=measure))
    if ended.status is not CompileStatus.OK:
        return ended
    try:
        logs = read_logs(request, folder)
        default_known = use is not None and use.log_default
        ended = add_logs(ended, logs, keep=request.keep, flips=request.flips, defaults_known=default_known)
        if use is not None and use.trials is not None and (folder / "tried").exists():
            ended = dataclasses.replace(
                ended, tried=tuple(read_trial_results(folder / "tried", weights=use.trials.weights))
            )
        if use is not None and use.list_changes and (folder / "changed").exists():
            ended = dataclasses.replace(
                ended, changes=known.add_executed(read_pass_changes(folder / "changed"), folder)
            )
    except (TraceError, InputError) as error:
        return dataclasses.replace(ended, status=CompileStatus.BAD_TRACE, reason=str(error))
    try:
        costs = None if record is None else read_regalloc_costs(record)
    except InputError as error:
        return dataclasses.replace(ended, status=CompileStatus.BAD_RECORD, reason=str(error))
    return dataclasses.replace(ended, regalloc=costs)
