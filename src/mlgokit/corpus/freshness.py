"""Whether an existing module is up to date, judged by digests of its source and of all included files.

Beside the bitcode of a module stands ``<module>.dep``: a zlib stream of JSON with

=================  ================================================================================================
``bitcode_sha256``  SHA-256 of the module's bitcode
``call``            digest of the front end's command line
``files``           what the front end read, as clang's dependency file names it, system headers among them
``sha256``          digest of the contents of these files, in that order
=================  ================================================================================================

Time stamps are not used. Not detected is a new file that the include search would find before one of these.
"""

import hashlib
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from mlgokit.files import whole_file
from mlgokit.unpacking import inflate

SUFFIX = ".dep"
DEPENDENCIES = ("-sys-header-deps", "-MT", "module", "-dependency-file")
"""Options of ``clang -cc1`` that write the files that it read as make rules; the path of the output follows."""

_MOST_BYTES = 8 << 20
"""Limit on an unpacked record, for the names of a hundred thousand files. Parsed JSON takes 24 times as much memory."""
_CLOCK_REALTIME_COARSE = 5
"""Linux's; Python has no name for it."""
_LARGEST_FILE = 1 << 30
_CHUNK = 1 << 20
_NAME = re.compile(rb"(?:\\[ #]|\$\$|\\(?!\n)|[^\s\\])+")
_ESCAPED = re.compile(rb"\\([ #])|\$(\$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigests:
    """Digests of files that many modules include, cached as long as the file is unchanged."""

    known: dict[str, tuple[int, bytes]] = field(default_factory=dict[str, tuple[int, bytes]])

    def of(self, path: str, *, before: int | None = None, keep: bool = True) -> bytes | None:
        """Compute the digest of a file's content.

        Args:
            path: path of the file; a device such as ``/dev/null`` counts as a file that never changes.
            before: a time from :func:`now`; the file must not have been changed since.
            keep: whether to remember the digest; sources, which are read once, would take memory for nothing.

        Returns:
            The SHA-256; ``None`` if the file cannot be read, is being changed, or was changed since ``before``.
        """
        try:
            status = os.stat(path)  # noqa: PTH116  (a module has a thousand of them)
            identity = _identity(status)
            # A change sets this time, whatever the file's own time is set to afterwards.
            if before is not None and status.st_ctime_ns >= before and stat.S_ISREG(status.st_mode):
                return None
            known = self.known.get(path)
            if known is not None and known[0] == identity:
                return known[1]
            digest = _digest_content(path, status, identity)
        except (OSError, ValueError):
            return None
        if keep and digest is not None:
            self.known[path] = (identity, digest)
        return digest

    def digest_all(self, names: Sequence[str], folder: Path, *, before: int | None = None) -> str | None:
        """Compute one digest of all files of a module, by names relative to a folder.

        ``None`` if there are no files, or one has no digest. The first file is the source; no other module reads it, so
        its digest is not remembered.
        """
        whole = hashlib.sha256()
        for place, name in enumerate(names):
            path = os.path.join(folder, name)  # noqa: PTH118
            digest = self.of(path, before=before, keep=place > 0)
            if digest is None:
                return None
            whole.update(digest)
        return whole.hexdigest() if names else None


def now() -> int:
    """Return the current time, in ns, of the clock from which file systems take modification times."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


def await_tick() -> None:
    """Wait some milliseconds, until later changes get a later modification time than those made before."""
    begin = now()
    while now() == begin:
        time.sleep(0.001)


def call_digest(words: Sequence[str]) -> str:
    """Digest a front end's command line."""
    return hashlib.sha256(json.dumps(list(words)).encode()).hexdigest()


def read_dependencies(path: Path) -> list[str]:
    r"""Read the files in clang's dependency file, in order; empty if there is no such file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.d")
        ...     _ = path.write_bytes(b"module: a.c a\\ b.h \\\n  /usr/include/c\\#$$.h\n")
        ...     read_dependencies(path)
        ['a.c', 'a b.h', '/usr/include/c#$.h']
    """
    try:
        _, _, text = path.read_bytes().partition(b":")
    except FileNotFoundError:
        return []
    names = (_ESCAPED.sub(lambda found: found[1] or found[2], name) for name in _NAME.findall(text))
    return [os.fsdecode(name) for name in names]


def note_sources(path: Path, files: Sequence[str], *, sha256: str, call: str, bitcode_sha256: str) -> None:
    """Record the files from which a module was made, so that :func:`is_current` knows it later.

    Raises:
        OSError: the disk is full or not writable.
    """
    fields = {"bitcode_sha256": bitcode_sha256, "call": call, "files": list(files), "sha256": sha256}
    with whole_file(path) as file:
        file.write(zlib.compress(json.dumps(fields).encode(), 1))


def is_current(path: Path, digests: FileDigests, *, folder: Path, call: str, bitcode_sha256: str) -> bool:
    """Whether the front end would make the same bitcode again, by the record at ``path``; false without a record.

    :func:`note_sources` wrote the record, perhaps in a corpus from elsewhere. ``folder`` is the working directory of
    the front end, and ``call`` its :func:`call_digest`.
    """
    fields = _read_record(path)
    if fields.get("bitcode_sha256") != bitcode_sha256 or fields.get("call") != call:
        return False
    files = fields.get("files")
    names = cast("list[object]", files) if isinstance(files, list) else []
    texts = [name for name in names if isinstance(name, str)]
    return bool(texts) and len(texts) == len(names) and digests.digest_all(texts, folder) == fields.get("sha256")


def _read_record(path: Path) -> dict[str, Any]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return {}
            found: object = json.loads(inflate(file.read(_MOST_BYTES), most_bytes=_MOST_BYTES))
    except (OSError, ValueError, RecursionError, zlib.error):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _identity(status: os.stat_result) -> int:
    """Compute a number that changes when the file is changed."""
    return hash((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


def _digest_content(path: str, status: os.stat_result, identity: int) -> bytes | None:
    """Compute the digest of a file's content, a fixed one for a device; ``None`` if the file changes meanwhile."""
    if not stat.S_ISREG(status.st_mode):
        return None if stat.S_ISDIR(status.st_mode) else b"no file"
    if status.st_size > _LARGEST_FILE:
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if _identity(os.fstat(descriptor)) != identity:
            return None
        digest, left = hashlib.sha256(), status.st_size
        # Files in /proc have size 0 whatever they contain, and some of them never end.
        while chunk := file.read(min(_CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                return None
            digest.update(chunk)
        return digest.digest() if not left and _identity(os.fstat(descriptor)) == identity else None
