"""Unpacking untrusted archives.

The archive libraries only read; every path is checked and every file written here, so that no link, device, permission
or claimed size of an archive has an effect outside the folder.
"""

import bz2
import contextlib
import functools
import gzip
import io
import json
import lzma
import posixpath
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from mlgokit.errors import FetchError, ReuseError
from mlgokit.files import digest_file, temporary_beside, writing
from mlgokit.manifest import digest_value, plain_json
from mlgokit.unpacking import LONGEST_READ, ZIP_METHODS, BoundedStream, XzFile, open_zip

MAX_BYTES = 2 << 30
MAX_FILES = 200_000
"""Limit on the number of members of any kind, including folders and links."""
MAX_RATIO = 200
"""Limit on unpacked bytes per byte of archive; source code reaches 30 with xz."""
_LEAST_ARCHIVE = 1 << 16
"""Bytes that a smaller archive counts as where its unpacked bytes are bounded by :data:`MAX_RATIO`."""

_STAMP = ".mlgokit-unpacked.json"
_CHUNK = 1 << 16
_LONGEST_DIRECTORY = 32 << 20
"""Limit in bytes on a zip archive's list of members, for 200,000 of them."""
_MOST_GLOBAL_HEADERS = 100
_MAX_STREAM = 8 << 30
"""Limit in bytes on a tar file, which may contain much besides the requested subtree."""
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    lzma.LZMAError,
    zlib.error,
    OSError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A member of an archive; ``open`` is there if it is a regular file or a link to one."""

    path: str
    open: Callable[[], IO[bytes] | None] | None
    link: str | None = None


def unpack_archive(
    archive_path: Path, folder: Path, *, subtree: str = "", generated: Mapping[str, str] | None = None
) -> Path:
    """Unpack a tar or zip archive to ``folder``, completely or not at all; skipped if it has been done before.

    Only plain files are written. A link is replaced by a copy of the file it leads to, or left out if it leads to none;
    permissions and times are not taken over. The folder is replaced if another archive was unpacked there. ``subtree``
    is the only folder of the archive that is unpacked, and ``generated`` are texts of further files by their paths.

    Raises:
        FetchError: the archive is damaged, exceeds the limits, or has a path or link that leaves the folder.
        ReuseError: ``folder`` has files that did not come from an archive.
        StorageError: the disk is full or not writable.
    """
    with writing(archive_path):
        stamp = plain_json(
            {
                "archive": digest_file(archive_path),
                "subtree": posixpath.normpath(subtree),
                "generated": digest_value(generated or {}),
            }
        )
    if _read_stamp(folder) == stamp:
        return folder
    with writing(folder):
        if folder.exists() and _read_stamp(folder) is None and any(folder.iterdir()):
            raise ReuseError(
                f"{folder}: expected nothing or an unpacked archive, found other files; "
                "choose another folder or delete this one"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = (temporary_beside(folder) for _ in range(2))
    try:
        with writing(fresh):
            fresh.mkdir()
        _unpack(archive_path, fresh, subtree=posixpath.normpath(subtree))
        with writing(folder):
            for path, text in (generated or {}).items():
                target = fresh / _check_path(path, archive_path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            (fresh / _STAMP).write_text(json.dumps(stamp), encoding="utf-8")
            if folder.exists():
                folder.replace(old)
            fresh.replace(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return folder


def _read_stamp(folder: Path) -> Any:
    """Read what was unpacked into a folder, by the stamp that is written last; ``None`` without a stamp."""
    try:
        return json.loads((folder / _STAMP).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _unpack(archive_path: Path, folder: Path, *, subtree: str) -> None:
    """Write the files of an archive below ``subtree`` to ``folder``; links become copies once all files are there."""
    limit = min(MAX_BYTES, max(archive_path.stat().st_size, _LEAST_ARCHIVE) * MAX_RATIO)
    links: dict[str, str] = {}
    written = files = 0
    for entry in _entries(archive_path):
        files += 1
        if files > MAX_FILES:
            raise FetchError(f"{archive_path.name}: expected at most {MAX_FILES} files, found more; do not use it")
        if entry.open is None:
            continue
        path = _check_path(entry.path, archive_path)
        if subtree != "." and not f"{path}/".startswith(f"{subtree}/"):
            continue
        if entry.link is not None:
            links[path] = _check_path(entry.link, archive_path)
            continue
        written += _write_entry(entry, folder / path, limit=limit - written, archive_path=archive_path)
    for path in links:
        target = path
        # A link may lead to another one.
        for _ in range(8):
            target = links.get(target, target)
        source = folder / target
        with writing(folder / path):
            if source.is_file() and not (folder / path).exists():
                written += source.stat().st_size
                if written > limit:
                    raise _too_large_error(archive_path, limit)
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, folder / path)


def _write_entry(entry: _Entry, target: Path, *, limit: int, archive_path: Path) -> int:
    """Write one file and return its size; the size that the archive declares is not used."""
    size = 0
    with _as_fetch_error(archive_path):
        source = entry.open() if entry.open else None
    if source is None:
        return 0
    with source, writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            while True:
                with _as_fetch_error(archive_path):
                    chunk = source.read(_CHUNK)
                if not chunk:
                    return size
                size += len(chunk)
                if size > limit:
                    raise _too_large_error(archive_path, limit)
                file.write(chunk)


@contextlib.contextmanager
def _as_fetch_error(archive_path: Path) -> Generator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise FetchError(
            f"{archive_path.name}: expected a sound tar or zip archive, found: {error}; delete it to fetch it again"
        ) from error


def _too_large_error(archive_path: Path, limit: int) -> FetchError:
    return FetchError(f"{archive_path.name}: expected at most {limit} bytes unpacked, found more; do not use it")


def _check_path(path: str, archive_path: Path) -> str:
    plain = posixpath.normpath(path)
    if posixpath.isabs(path) or plain.split("/")[0] == ".." or "\\" in path or "\0" in path:
        raise FetchError(f"{archive_path.name}: expected paths inside the archive, found {path!r}; do not use it")
    return plain


def _entries(archive_path: Path) -> Iterator[_Entry]:
    with _as_fetch_error(archive_path):
        zipped = zipfile.is_zipfile(archive_path)
    yield from _zip_entries(archive_path) if zipped else _tar_entries(archive_path)


def _tar_entries(archive_path: Path) -> Iterator[_Entry]:
    with contextlib.ExitStack() as stack:
        with _as_fetch_error(archive_path):
            stream = BoundedStream(
                file=stack.enter_context(_decompress(archive_path)),
                most_bytes=min(
                    _MAX_STREAM, max(archive_path.stat().st_size, _LEAST_ARCHIVE) * MAX_RATIO + LONGEST_READ
                ),
                left=LONGEST_READ,
            )
            archive = stack.enter_context(tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:"))
        while True:
            with _as_fetch_error(archive_path):
                # A member may have any number of headers before it, and tarfile keeps all of all members.
                stream.left = LONGEST_READ
                member = archive.next()
                stream.left = None
                archive.members.clear()  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
                characters = sum(len(name) + len(value) for name, value in archive.pax_headers.items())
                if len(archive.pax_headers) > _MOST_GLOBAL_HEADERS or characters > LONGEST_READ:
                    raise ValueError("global headers that are too long")
            if member is None:
                return
            if member.issym():
                link = posixpath.join(posixpath.dirname(member.name), member.linkname)
                yield _Entry(path=member.name, open=lambda: None, link=link)
            elif member.islnk():
                yield _Entry(path=member.name, open=lambda: None, link=member.linkname)
            elif member.isfile():
                yield _Entry(path=member.name, open=lambda member=member: archive.extractfile(member))
            else:
                yield _Entry(path=member.name, open=None)


def _decompress(archive_path: Path) -> IO[bytes]:
    """Open an archive for reading, decompressed by its first bytes."""
    with archive_path.open("rb") as file:
        magic = file.read(6)
    kinds: Mapping[bytes, Callable[[Path], Any]] = {
        b"\x1f\x8b": gzip.open,
        b"BZh": bz2.open,
        b"\xfd7zXZ\0": _open_xz,
        b"]\0\0\x80": _open_xz,
    }
    opener = next((opener for begin, opener in kinds.items() if magic.startswith(begin)), None)
    return archive_path.open("rb") if opener is None else cast("IO[bytes]", opener(archive_path))


def _open_xz(path: Path) -> IO[bytes]:
    return io.BufferedReader(XzFile(path), _CHUNK)


def _zip_entries(archive_path: Path) -> Iterator[_Entry]:
    with contextlib.ExitStack() as stack:
        with _as_fetch_error(archive_path):
            size = archive_path.stat().st_size
            file = stack.enter_context(archive_path.open("rb"))
            archive = stack.enter_context(open_zip(file, most_bytes=size, longest_directory=_LONGEST_DIRECTORY))
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            is_file = not member.is_dir() and kind in {0, stat.S_IFREG}
            if is_file and member.compress_type not in ZIP_METHODS:
                raise FetchError(
                    f"{archive_path.name}: expected zip members stored or deflated, found {member.filename!r:.200} "
                    "otherwise; pack it again"
                )
            opener = functools.partial(archive.open, member) if is_file else None
            yield _Entry(path=member.filename, open=opener)
