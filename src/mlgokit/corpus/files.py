"""Reading of a build's untrusted files, and copying of parts of them into a corpus in chunks."""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Generator
from pathlib import Path

from mlgokit.compiler.build_tree import BITCODE
from mlgokit.errors import InputError
from mlgokit.files import whole_file, writing

CHUNK_BYTES = 1 << 20

_NAME_ERRORS = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EILSEQ, errno.EINVAL}


def copy_bytes(descriptor: int, offset: int, size: int, path: Path) -> str:
    """Copy a part of an open file to ``path``, a chunk at a time.

    Returns:
        The SHA-256 of what was copied, in hexadecimal.

    Raises:
        InputError: the file has become shorter.
        OSError: ``path`` cannot be written.
    """
    digest = hashlib.sha256()
    with whole_file(path, buffering=0) as output:
        end = offset + size
        while offset < end:
            chunk = os.pread(descriptor, min(CHUNK_BYTES, end - offset), offset)
            if not chunk:
                raise _truncated_error(end, offset)
            digest.update(chunk)
            rest = memoryview(chunk)
            while rest:
                rest = rest[output.write(rest) :]
            offset += len(chunk)
    return digest.hexdigest()


def read_bytes(descriptor: int, offset: int, size: int) -> bytes:
    """Read exactly ``size`` bytes of an open file.

    Raises:
        InputError: the file has become shorter.
    """
    data = os.pread(descriptor, size, offset)
    if len(data) != size:
        raise _truncated_error(offset + size, offset + len(data))
    return data


def _truncated_error(expected: int, found: int) -> InputError:
    return InputError(
        f"the file changed while it was read (it ends at byte {found} instead of {expected}); import again"
    )


def copy_index(descriptor: int, path: Path) -> None:
    """Copy an open part of a ThinLTO index to ``path``.

    Raises:
        InputError: the index is no bitcode.
        OSError: ``path`` cannot be written.
    """
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 4, 0) not in BITCODE:
        raise InputError("expected a ThinLTO index, which is bitcode, found another kind of file; link again")
    copy_bytes(descriptor, 0, size, path)


@contextlib.contextmanager
def open_untrusted(path: Path, missing: str) -> Generator[int]:
    """Open a regular file for reading; anything else, such as a pipe, is refused.

    Raises:
        InputError: it cannot be read; the message is ``missing`` if it does not exist.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError(missing) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError("expected a file, found a folder or a device")
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explain_write_errors(name: str, corpus_folder: Path) -> Generator[None]:
    """Within the block, convert write errors to errors about the module's name or about the disk.

    Raises:
        InputError: the name is not possible on this file system.
        StorageError: the disk is full or not writable.
    """
    try:
        with writing(corpus_folder / name):
            try:
                yield
            except OSError as error:
                if error.errno in _NAME_ERRORS:
                    reason = error.strerror or type(error).__name__
                    raise InputError(f"expected a name that a file can have, found: {reason}") from error
                raise
    except UnicodeError as error:
        raise InputError(f"expected a name that a file can have, found: {error!s:.100}") from error
