"""Runs a user's build and has Bear write down what it compiles."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.errors import ToolError, UsageError

BEAR = "bear"
WITHOUT_BEAR = (
    "install it (apt-get install bear), or have the build system write compile_commands.json: "
    "`cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON`, `ninja -t compdb`; Meson always does"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBuild:
    """How a recorded build ended; ``returncode`` is the build's, negative for a signal."""

    database: Path
    returncode: int
    timed_out: bool


def record_build(command: Sequence[str], *, database: Path, timeout_seconds: float) -> RecordedBuild:
    """Run a build under Bear (version 3); what it prints goes to standard error as it comes.

    Args:
        command: the build's command line, as ``make -j2``.
        database: the ``compile_commands.json`` to write.
        timeout_seconds: deadline of the build.

    Raises:
        ToolError: Bear is not there.
        UsageError: no command, or one that is not there.
    """
    if not command:
        raise UsageError("record: expected a build after --, found nothing; give one, as in `record -- make -j2`")
    if shutil.which(BEAR) is None:
        raise ToolError(f"record: expected the program {BEAR}, found none; {WITHOUT_BEAR}")
    if shutil.which(command[0]) is None:
        raise UsageError(f"record: expected a program in {shlex.join(command)}, found no {command[0]}; check the name")
    sys.stderr.flush()
    done = process.run(
        [BEAR, "--output", os.fspath(database), "--", *command],
        timeout_seconds=timeout_seconds,
        limits=USERS_LIMITS,
        output=process.STANDARD_ERROR,
    )
    return RecordedBuild(database=database, returncode=done.returncode, timed_out=done.timed_out)
