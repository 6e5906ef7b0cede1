"""Reading what is compressed within bounds that are known before anything is unpacked.

The archive libraries of Python keep in memory what they read at a time, and how much that is, the archive says. So they
read through a :class:`BoundedStream`.
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
"""Bytes that an archive library may read at once: a header, a directory, a chunk of a member."""
ZIP_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""Of zip members that may be read: the others are decompressed without a bound on how much comes out at a time."""

LARGEST_DICTIONARY = 256 << 20
"""Bytes that a decoder of xz may take; ``xz -9`` makes files that take 65 MiB."""
DEFLATE_RATIO = 1032
"""Bytes that one byte of deflate can become: 258 are two bits at least."""
_CHUNK = 1 << 16


@dataclass(slots=True, kw_only=True)
class BoundedStream:
    """A file of which no more is read than a number of bytes, nor much at a time.

    Attributes:
        file: decompressed, if it is a compressed one.
        most_bytes: of the whole file.
        longest_read: bytes of one read.
        left: bytes that may be read until this is set again; ``None`` for any.
    """

    file: IO[bytes]
    most_bytes: int
    longest_read: int = LONGEST_READ
    left: int | None = None

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes, or all that is left.

        Raises:
            ValueError: that is more than may be read.
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
            ValueError: the position is behind what may be read.
        """
        if whence == 0 and position > self.most_bytes:
            raise ValueError(f"more than {self.most_bytes} bytes unpacked")
        self.file.seek(position, whence)
        return self._check()

    def tell(self) -> int:
        """The current position."""
        return self.file.tell()

    def seekable(self) -> bool:
        """It can seek."""
        return True

    def _check(self) -> int:
        if (position := self.file.tell()) > self.most_bytes:
            raise ValueError(f"more than {self.most_bytes} bytes unpacked")
        return position


class XzFile(io.RawIOBase):
    """An xz or lzma file, unpacked from its begin to its end, with a bound on its dictionary.

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
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """Forward only."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill ``buffer`` with unpacked bytes, and count them; 0 at the end.

        Raises:
            EOFError: the file is cut short.
            lzma.LZMAError: it is damaged, or its dictionary is too large.
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
                    raise EOFError("cut short")
            else:
                data = b""
            chunk = self._decoder.decompress(data, len(view))
            if chunk:
                view[: len(chunk)] = chunk
                self._position += len(chunk)
                return len(chunk)
        return 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go forward; not behind the end.

        Raises:
            io.UnsupportedOperation: that is backward, or counts from the end.
        """
        target = offset + (self._position if whence == 1 else 0)
        if target < self._position or whence == 2:
            raise io.UnsupportedOperation(f"from {self._position} to {offset}")
        while self._position < target and self.read(min(_CHUNK, target - self._position)):
            pass
        return self._position


def open_zip(file: IO[bytes], *, most_bytes: int, longest_directory: int = LONGEST_READ) -> zipfile.ZipFile:
    """A zip archive for reading; what it takes in memory is bounded by its directory.

    Args:
        file: the archive.
        most_bytes: its size.
        longest_directory: bytes of its list of members.

    Raises:
        ValueError: the list is longer.
        zipfile.BadZipFile: it is damaged.
    """
    stream = BoundedStream(file=file, most_bytes=most_bytes, longest_read=longest_directory)
    return zipfile.ZipFile(cast("IO[bytes]", stream))


def inflated(data: bytes, *, most_bytes: int) -> bytes:
    """A zlib stream, unpacked.

    Raises:
        ValueError: that is more than ``most_bytes``.
        zlib.error: it is damaged.
    """
    content = zlib.decompressobj().decompress(data, most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"more than {most_bytes} bytes unpacked")
    return content
