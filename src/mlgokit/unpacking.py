"""Unpacks archives and compressed files within bounds that are set before.

Python's archive libraries read into memory as many bytes at once as the archive says. So they read through a
:class:`BoundedStream`.
"""

import io
import lzma
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LONGEST_READ = 1 << 20
"""Maximum bytes that an archive library may read at once: a header, a directory, a chunk of a member."""
ZIP_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""Compression methods of zip members that may be read: Python decompresses others without a bound on the output."""

LARGEST_DICTIONARY = 256 << 20
"""Maximum memory of an xz decoder; files of ``xz -9`` take 65 MiB."""
DEFLATE_RATIO = 1032
"""Maximum bytes that one byte of deflate can decompress to: a run of 258 bytes takes at least two bits."""
_CHUNK = 1 << 16


@dataclass(slots=True, kw_only=True)
class BoundedStream:
    """A file with a bound on its size and on the bytes of one read.

    Attributes:
        file: file to read; of a compressed file, the decompressed stream.
        most_bytes: maximum size of the file.
        longest_read: maximum bytes of one read.
        left: bytes that may still be read before the caller sets this again; ``None`` for no bound.
    """

    file: IO[bytes]
    most_bytes: int
    longest_read: int = LONGEST_READ
    left: int | None = None

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes, or the rest of the file if ``size`` is negative.

        Raises:
            ValueError: these are more bytes than may be read.
        """
        most = LONGEST_READ if size < 0 else self.longest_read
        most = most if self.left is None else min(most, self.left)
        data = b"" if size > most else self.file.read(most + 1 if size < 0 else size)
        if max(size, len(data)) > most:
            raise ValueError(f"a header of {max(size, len(data))} bytes, of which at most {most} are read")
        if self.left is not None:
            self.left -= len(data)
        self._check()
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        """Move to a position.

        Raises:
            ValueError: the position is beyond the maximum size.
        """
        if whence == 0 and position > self.most_bytes:
            raise ValueError(f"more than {self.most_bytes} bytes unpacked")
        self.file.seek(position, whence)
        return self._check()

    def tell(self) -> int:
        """Return the current position."""
        return self.file.tell()

    def seekable(self) -> bool:
        """Return true: the stream can seek."""
        return True

    def _check(self) -> int:
        """Return the current position; raise a ValueError if it is beyond the maximum size."""
        if (position := self.file.tell()) > self.most_bytes:
            raise ValueError(f"more than {self.most_bytes} bytes unpacked")
        return position


class XzFile(io.RawIOBase):
    """An xz or lzma file that is decompressed in one pass, with a bound on the memory of the decoder.

    :func:`lzma.open` takes as much memory as the file asks for, up to 4 GiB.
    """

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._file = path.open("rb")
        self._decoder = lzma.LZMADecompressor(memlimit=LARGEST_DICTIONARY)
        self._position = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def readable(self) -> bool:
        """Return true: the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return true: the file can seek, forward only."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill ``buffer`` with decompressed bytes; returns their number, 0 at the end.

        Raises:
            EOFError: the file is cut short.
            lzma.LZMAError: the file is damaged, or needs too much memory.
        """
        view = memoryview(buffer).cast("B")
        while len(view):
            if self._decoder.eof:
                # Streams may follow one another, with zeros between them.
                data = self._decoder.unused_data
                while data or (data := self._file.read(_CHUNK)):
                    if data := data.lstrip(b"\0"):
                        break
                else:
                    return 0
                self._decoder = lzma.LZMADecompressor(memlimit=LARGEST_DICTIONARY)
            elif self._decoder.needs_input:
                data = self._file.read(_CHUNK)
                if not data:
                    raise EOFError("a compressed file that is cut short")
            else:
                data = b""
            chunk = self._decoder.decompress(data, len(view))
            if chunk:
                view[: len(chunk)] = chunk
                self._position += len(chunk)
                return len(chunk)
        return 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move forward to a position, at most to the end.

        Raises:
            io.UnsupportedOperation: the position is backward, or relative to the end.
        """
        target = offset + (self._position if whence == 1 else 0)
        if target < self._position or whence == 2:
            raise io.UnsupportedOperation(f"from {self._position} to {offset}")
        while self._position < target and self.read(min(_CHUNK, target - self._position)):
            pass
        return self._position


def open_zip(file: IO[bytes], *, most_bytes: int, longest_directory: int = LONGEST_READ) -> zipfile.ZipFile:
    """Open a zip archive for reading, with a bound on its directory, which is read into memory.

    Args:
        file: the archive.
        most_bytes: size of the archive.
        longest_directory: maximum bytes of its directory, the list of members.

    Raises:
        ValueError: the directory is longer.
        zipfile.BadZipFile: the archive is damaged.
    """
    stream = BoundedStream(file=file, most_bytes=most_bytes, longest_read=longest_directory)
    return zipfile.ZipFile(cast("IO[bytes]", stream))


def inflate(data: bytes, *, most_bytes: int) -> bytes:
    """Decompress a zlib stream.

    Raises:
        ValueError: the decompressed data is longer than ``most_bytes``.
        zlib.error: the stream is damaged.
    """
    content = zlib.decompressobj().decompress(data, most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"more than {most_bytes} bytes unpacked")
    return content
