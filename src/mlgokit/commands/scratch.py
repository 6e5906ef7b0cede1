"""A folder for the temporary files of a process, which a later process removes if this one is killed."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path

from mlgokit.files import writing

_PREFIX = "mlgokit-run-"


@contextlib.contextmanager
def scratch_folder() -> Generator[Path]:
    """While the block runs, temporary files of this process are in one folder, which goes with it.

    The folder is locked, so that others can tell whether its process is still there.

    Raises:
        StorageError: there is no place for temporary files.
    """
    base, before = Path(tempfile.gettempdir()), tempfile.tempdir
    _remove_abandoned(base)
    folder, descriptor = _locked_folder(base)
    tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked_folder(base: Path) -> tuple[Path, int]:
    while True:
        with writing(base):
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                # Somebody took it for an abandoned one before it was opened.
                continue
        # Some network file systems know no locks; nobody removes anything there.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder, descriptor
        # Or before it was locked.
        os.close(descriptor)


def _remove_abandoned(base: Path) -> None:
    """Remove the folders of processes that are gone, this user's only, and end sandboxes that still wait there."""
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                from mlgokit.compiler.sandbox import end_abandoned_sandboxes

                end_abandoned_sandboxes(folder)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
