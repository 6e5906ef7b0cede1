"""Every exception that mlgokit raises on purpose.

A message is one sentence with four parts: what, where, expected versus found, what to do::

    MlgokitError             root; exit code 1
    |- UsageError            the call contradicts itself or names what is not there; exit code 2
    |- ToolError             a compiler, header or system tool is missing or unfit; exit code 3
    |- InputError            an input file is unreadable, malformed or of another kind; exit code 4
    |  |- CorpusError        a corpus folder or one of its modules
    |  |- TraceError         a training log or channel stream; has .path and .offset
    |  |- PolicyError        a policy file
    |  `- FetchError         an archive that could not be fetched or has the wrong digest
    |- ReuseError            a folder that another configuration made; exit code 5
    |- StorageError          the disk is full or not writable, or there is no memory left; exit code 6
    |- BusyError             another process uses the folder or file; exit code 7
    |- StaleError            a cached result is not what the compiler gives now; exit code 8
    `- RejectedError         a tuned build fails where the plain one does not; exit code 9

A compiler that fails on a module is a result (:class:`mlgokit.compiler.compilation.Compilation`), never an exception.
"""

from pathlib import Path
from typing import ClassVar


class MlgokitError(Exception):
    """Root of all errors of this package."""

    exit_code: ClassVar[int] = 1


class UsageError(MlgokitError):
    """The call contradicts itself or names something that does not exist."""

    exit_code: ClassVar[int] = 2


class OtherLinkerError(UsageError):
    """A link uses a linker that does not load the plugin."""


class ToolError(MlgokitError):
    """A compiler, its headers or another system tool is missing or unfit."""

    exit_code: ClassVar[int] = 3


class InputError(MlgokitError):
    """An input file or stream is unreadable, malformed or of another kind."""

    exit_code: ClassVar[int] = 4


class CorpusError(InputError):
    """A corpus folder, its description or one of its modules is unusable."""


class TraceError(InputError):
    """A training log or channel stream is malformed.

    Attributes:
        path: path of the file, or a description of the stream.
        offset: byte at which reading had to stop.
    """

    def __init__(self, message: str, *, path: Path | str, offset: int) -> None:
        """Store path and offset beside the message."""
        super().__init__(message)
        self.path = path
        self.offset = offset


class PolicyError(InputError):
    """A policy file is malformed, too new, or meant for another problem."""


class FetchError(InputError):
    """An archive could not be fetched, or has another digest than expected."""


class ReuseError(MlgokitError):
    """A folder was made by another configuration and is not reused."""

    exit_code: ClassVar[int] = 5


class StorageError(MlgokitError):
    """The disk is full or not writable, or there is no memory left."""

    exit_code: ClassVar[int] = 6


class BusyError(MlgokitError):
    """Another process uses a folder or file that only one process may use; the message names the process."""

    exit_code: ClassVar[int] = 7


class StaleError(MlgokitError):
    """A cached result is not what the compiler gives now: its key lacks something that affects the result."""

    exit_code: ClassVar[int] = 8


class RejectedError(MlgokitError):
    """A tuned build, or its tests, fails where the plain one does not; nothing is published."""

    exit_code: ClassVar[int] = 9
