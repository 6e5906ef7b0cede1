"""Counts of executed events, and the protocol of counters."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mlgokit.compiler import process
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.process import Limits

EVENTS = ("instructions", "loads", "stores", "branches")
RUN_LIMITS = Limits(file_bytes=1 << 30, memory_bytes=1 << 46)
"""Limits of a program that is run: its files and its output are bounded, its memory practically is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of executed events; ``None`` for those that were not counted.

    Attributes:
        instructions: all instructions.
        loads: instructions that read memory.
        stores: instructions that write memory.
        branches: conditional and indirect ones; with hardware counters all branches.
    """

    instructions: int | None = None
    loads: int | None = None
    stores: int | None = None
    branches: int | None = None

    def to_json(self) -> dict[str, int | None]:
        """Convert the counts to JSON values by event."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The counts of one run, or why there are none.

    Attributes:
        whole: counts of the whole process and its children.
        own: counts of the files that the workload built; ``None`` if the counter cannot tell.
        reason: why nothing was counted; empty for success.
    """

    whole: Counts = Counts()
    own: Counts | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A program to run under a counter.

    Attributes:
        argv: program and arguments.
        folder: working directory.
        environment: environment variables.
        own: file, or folder of the files, whose instructions count as the workload's own.
        expected: exit code of a successful run.
        timeout_seconds: deadline of a run without a counter.
    """

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    own: Path
    expected: int = 0
    timeout_seconds: float = 60.0


def run_under(tool: str, words: Sequence[str], execution: Execution, *, timeout_seconds: float) -> str:
    """Run a program under a tool, whose command line is ``words``; return why its counts are unusable, else "".

    Raises:
        ToolError: ``tool`` cannot be started.
    """
    done = process.run(
        [*words, *execution.argv],
        timeout_seconds=timeout_seconds,
        cwd=execution.folder,
        env=execution.environment,
        limits=RUN_LIMITS,
    )
    if done.timed_out:
        return f"{tool} did not end within {timeout_seconds:.0f} s"
    if done.returncode != execution.expected:
        reason = f"under {tool} it ended with {done.returncode} instead of {execution.expected}"
        return f"{reason}: {first_error(done.stderr)}"
    return ""


class Counter(Protocol):
    """A tool that counts events."""

    @property
    def name(self) -> str:
        """Name of the tool, with its version."""
        ...

    @property
    def exact(self) -> bool:
        """Whether two runs of a program give the same counts."""
        ...

    def count(self, execution: Execution, scratch: Path) -> Counted:
        """Run a program and count its events; temporary files go to ``scratch``.

        Raises:
            ToolError: the tool cannot be started.
        """
        ...
