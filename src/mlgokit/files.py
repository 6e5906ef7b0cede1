"""Files that are never half there, and their digests."""

import contextlib
import errno
import hashlib
import uuid
from collections.abc import Generator
from pathlib import Path

from mlgokit.errors import StorageError

_REMEDIES = {
    errno.ENOSPC: "free some space or choose a folder on another disk",
    errno.EDQUOT: "free some space or choose a folder outside this quota",
    errno.EROFS: "choose a folder on a disk that is mounted for writing",
    errno.EACCES: "choose a folder that you may write to, or change its permissions",
    errno.EPERM: "choose a folder that you may write to, or change its permissions",
    errno.ENOTDIR: "choose a folder whose path does not lead through a file",
    errno.EISDIR: "choose a path that is not a folder",
}


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Turn an :class:`OSError` inside the block into the sentence of a :class:`StorageError` about ``path``."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "check the disk and the path")
        reason = error.strerror or type(error).__name__
        raise StorageError(f"{path}: expected to be able to write there, found: {reason}; {remedy}") from error


def atomic_write(path: Path, data: bytes | str) -> None:
    """Put ``data`` at ``path``, whole or not at all; folders on the way are made, text is UTF-8.

    The file is not synced: after a power cut it may be gone or empty, after a kill or on a full disk it is the old one.

    Raises:
        StorageError: the disk is full or the place is not writable.
    """
    temporary = path.with_name(f".{path.name[:200]}.{uuid.uuid4().hex}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data.encode() if isinstance(data, str) else data)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def digest_file(path: Path) -> str:
    """SHA-256 of the file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
