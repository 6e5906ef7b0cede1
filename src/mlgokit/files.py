"""Atomic writes of files, removal of temporary files that killed processes left, and digests of files."""

import contextlib
import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO

from mlgokit.errors import StorageError

_REMEDIES = {
    errno.ENOSPC: "free some space or choose a folder on another disk",
    errno.EDQUOT: "free some space or choose a folder outside this quota",
    errno.EROFS: "choose a folder on a disk that is mounted for writing",
    errno.EACCES: "choose a folder that you may write to, or change its permissions",
    errno.EPERM: "choose a folder that you may write to, or change its permissions",
    errno.ENOTDIR: "choose a folder whose path does not lead through a file",
    errno.EISDIR: "choose a path that is not a folder",
    errno.ENODEV: "choose a path where a file may be put",
    errno.ENAMETOOLONG: "choose a shorter name",
}
_TEMPORARY = re.compile(r"\.mlgokit-([1-9][0-9]{0,9})-[0-9a-f]{32}\.tmp")
_RACY_NANOSECONDS = 2_000_000_000
"""A file that changed within this time may change again without a new time stamp, so its digest is not cached."""
_digests: dict[tuple[int, ...], str] = {}


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Within the block, convert an :class:`OSError` to a :class:`StorageError` about ``path``."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "check the disk and the path")
        reason = error.strerror or type(error).__name__
        raise StorageError(f"{path}: expected to be able to write there, found: {reason}; {remedy}") from error


def check_writable(path: Path, *, is_folder: bool = False, least_bytes: int = 1 << 12) -> None:
    """Check that a file or folder can be written later; existing files are kept, and nothing is left behind.

    Args:
        path: path that will be written; parent folders may be missing.
        is_folder: whether it will be a folder.
        least_bytes: free space that its disk must have.

    Raises:
        StorageError: the path has a file of another kind, is not writable, or its disk is full.
    """
    with writing(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            mode = None
        if mode is not None and stat.S_ISDIR(mode) != is_folder:
            number = errno.ENOTDIR if is_folder else errno.EISDIR
            raise OSError(number, os.strerror(number))
        if mode is not None and not is_folder and not stat.S_ISREG(mode):
            raise OSError(errno.ENODEV, "a device, a pipe or a socket")
        parent = (path if is_folder else path.parent).absolute()
        while not parent.exists():
            parent = parent.parent
        temporary = temporary_beside(parent / path.name)
        try:
            with temporary.open("xb") as file:
                file.write(bytes(least_bytes))
                file.flush()
                os.fsync(file.fileno())
        finally:
            temporary.unlink(missing_ok=True)


def temporary_beside(path: Path) -> Path:
    """Make a temporary name in the folder of ``path``, for a later rename; :func:`remove_leftovers` recognises it."""
    return path.with_name(f".mlgokit-{os.getpid()}-{os.urandom(16).hex()}.tmp")


@contextlib.contextmanager
def whole_file(path: Path, *, durable: bool = False, buffering: int = -1) -> Generator[IO[bytes]]:
    """Open a file for writing that appears at ``path`` only if the block succeeds.

    Parent folders are made. An existing file is kept until then, and replaced atomically; a symbolic link is replaced,
    and its target is not touched.

    Args:
        path: path of the file.
        durable: whether to sync file and folder to disk, so that a power cut leaves either the old or the new file.
        buffering: buffering of the file, as for :func:`open`.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        with temporary.open("xb", buffering=buffering) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def move_into_place(source: Path, path: Path, *, durable: bool = False) -> None:
    """Rename a finished file to ``path`` atomically; one on another file system is copied beside ``path`` first.

    Raises:
        OSError: ``path`` cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if durable:
            with source.open("rb") as file:
                os.fsync(file.fileno())
        source.replace(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with whole_file(path, durable=durable) as target, source.open("rb") as file:
            shutil.copyfileobj(file, target)
            os.fchmod(target.fileno(), os.fstat(file.fileno()).st_mode & 0o777)
        source.unlink()
    else:
        if durable:
            _sync_folder(path.parent)


def replace_by_link(target: str, path: Path) -> None:
    """Replace ``path`` by a symbolic link to ``target``, a file in the same folder, atomically and durably.

    On a file system without links, ``path`` becomes a copy.

    Raises:
        OSError: ``path`` cannot be written.
    """
    temporary = temporary_beside(path)
    try:
        try:
            temporary.symlink_to(target)
        except OSError:
            shutil.copy2(path.with_name(target), temporary)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk, where the file system supports it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def atomic_write(path: Path, data: bytes | str, *, durable: bool = False) -> None:
    """Write ``data`` to ``path`` atomically; parent folders are made, text is encoded as UTF-8.

    After a kill or on a full disk, the old file remains. After a power cut the file may be empty, unless ``durable`` is
    set, which syncs it to disk.

    Raises:
        StorageError: the disk is full or the path is not writable.
    """
    with writing(path), whole_file(path, durable=durable) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading. Anything else is refused: opening a pipe without a writer would wait for ever.

    Raises:
        OSError: the path is no regular file, or cannot be opened.
        ValueError: no file can have this name.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file")
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Read a regular file of at most ``most_bytes``.

    Raises:
        OSError: the path is no regular file, the file is longer, or it cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"a file of {size} bytes, where at most {most_bytes} are read")
        return file.read(size)


def is_temporary(name: str) -> bool:
    """Whether ``name`` is a name that :func:`temporary_beside` makes."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_leftovers(folder: Path, *, below: bool = True) -> int:
    """Delete temporary files of processes that were killed; return their number.

    Args:
        folder: folder to search.
        below: whether to search its subfolders as well.
    """
    removed = 0
    for directory, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            match = _TEMPORARY.fullmatch(name)
            if match is None or _is_alive(int(match[1])):
                continue
            removed += 1
            path = Path(directory) / name
            if name in folders:
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
        if not below:
            break
        folders[:] = [name for name in folders if not is_temporary(name)]
    return removed


def _is_alive(process: int) -> bool:
    """Whether a process of any user with that id is running."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def digest_file(path: Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        import hashlib

        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_cached(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal; it is read again only if device, inode, size or times changed.

    Raises:
        OSError: the file cannot be read.
    """
    begin = time.time_ns()
    before = stamp_of(path)
    if (known := _digests.get(before)) is not None:
        return known
    digest = digest_file(path)
    if before == stamp_of(path) and begin - max(before[-2:]) > _RACY_NANOSECONDS:
        _digests[before] = digest
    return digest


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return what changes when a file changes: device, inode, size, and times in nanoseconds.

    Raises:
        OSError: the file does not exist.
    """
    status = path.stat()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
