"""The files of a worker, by content: each comes once, whichever run, module or path asks for it."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.inputs import digest_once
from mlgokit.files import atomic_write

KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a file stays that nobody asks for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shelf:
    """A folder of files by their SHA-256. Processes and threads may share it.

    Attributes:
        folder: where they are; each has a folder of its own, which keeps its name.
    """

    folder: Path
    _seen: set[Path] = field(default_factory=set[Path])

    def place(self, digest: str, name: str) -> Path:
        """Where a file is, or would be."""
        return self.folder / digest[:2] / digest / name

    def missing(self, files: Mapping[str, str]) -> tuple[str, ...]:
        """Which of these paths' digests are not here, or damaged.

        Args:
            files: digest by path on the client.
        """
        return tuple(dict.fromkeys(digest for path, digest in files.items() if not self._has(path, digest)))

    def put(self, digest: str, names: tuple[str, ...], data: bytes) -> None:
        """Keep a file, under each of its names.

        Raises:
            StorageError: the disk is full or not writable.
            ValueError: the content is another one.
        """
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"a file for the worker: expected the digest {digest[:12]}, found another; send it again")
        for name in names:
            atomic_write(self.place(digest, name), data)

    def clear(self, *, before: float | None = None) -> int:
        """Delete what nobody has asked for since ``before``, a week ago by default; how many files that were."""
        before = time.time() - KEPT_SECONDS if before is None else before
        count = 0
        for path in self.folder.glob("*/*/*"):
            try:
                if path.stat().st_atime < before and path.stat().st_mtime < before:
                    path.unlink()
                    count += 1
            except OSError:
                continue
        return count

    def _has(self, path: str, digest: str) -> bool:
        place = self.place(digest, Path(path).name)
        if place in self._seen:
            return place.exists()
        try:
            same = digest_once(place) == digest
        except OSError:
            return False
        if same:
            self._seen.add(place)
        return same
