"""Limits on the disk space of a run: a reserve that stays free, and a bound for the run's own folder."""

import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.errors import StorageError

MOST_RESERVE_BYTES = 1 << 30
RESERVE_SHARE = 0.02
"""The default reserve is :data:`MOST_RESERVE_BYTES`, or this share of the disk if that is less."""
_LOOK_SECONDS = 10.0
"""Minimum time between two measurements of the folder's size."""
_LOOK_SHARE = 200
"""At most 1 / 200 of the time is spent on measuring the folder's size."""
_MIB = 1 << 20


@dataclass(slots=True, kw_only=True, eq=False)
class Room:
    """The disk space that a run may use. Threads may share it.

    Attributes:
        folder: the run's own folder, which need not exist yet; ``None`` for temporary files only.
        reserve_bytes: bytes that stay free on the disks of the folder and of temporary files; ``None`` for the default.
        most_bytes: maximum size of the folder; ``None`` for no limit.
    """

    folder: Path | None
    reserve_bytes: int | None = None
    most_bytes: int | None = None
    _look_again: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raise if the run is about to fill the disk; called before each compilation, it takes microseconds.

        Raises:
            StorageError: less than the reserve is free, or the folder is larger than its maximum.
        """
        temporary = Path(tempfile.gettempdir())
        for folder in (temporary, *([] if self.folder is None else [_existing(self.folder)])):
            disk = os.statvfs(folder)
            free, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
            reserve = self.reserve_bytes
            if reserve is None:
                reserve = min(MOST_RESERVE_BYTES, int(RESERVE_SHARE * whole))
            if free < reserve:
                raise StorageError(
                    f"{folder}: expected at least {reserve / _MIB:,.1f} MiB to stay free on its disk, found "
                    f"{free / _MIB:,.1f}; free some space, or give a smaller --disk-reserve-gib, then run the same "
                    "command again: what was finished is kept"
                )
        if self.most_bytes is not None and self.folder is not None:
            self._check_folder(self.folder, self.most_bytes)

    def _check_folder(self, folder: Path, most_bytes: int) -> None:
        """Raise if the folder is larger than its maximum; its size is measured only from time to time."""
        begin = time.monotonic()
        with self._lock:
            if begin < self._look_again:
                return
            self._look_again = float("inf")
        used = folder_bytes(folder)
        end = time.monotonic()
        self._look_again = end + max(_LOOK_SECONDS, _LOOK_SHARE * (end - begin))
        if used > most_bytes:
            self._look_again = 0.0
            raise StorageError(
                f"{folder}: expected at most {most_bytes / _MIB:,.1f} MiB in this folder, found {used / _MIB:,.1f}; "
                "allow more with --disk-limit-gib, then run the same command again: what was finished is kept"
            )


def folder_bytes(folder: Path) -> int:
    """Sum the bytes that a folder's files take on the disk; links are not followed, vanished files do not count."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += 512 * os.lstat(os.path.join(directory, name)).st_blocks  # noqa: PTH118  (a hot loop)
            except OSError:
                continue
    return total


def free_bytes(folder: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    disk = os.statvfs(_existing(folder))
    return disk.f_bavail * disk.f_frsize


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    ancestor = folder.absolute()
    while not ancestor.exists():
        ancestor = ancestor.parent
    return ancestor
