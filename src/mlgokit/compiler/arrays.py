"""Untrusted npz files: only the requested arrays are read, and their total size is bounded."""

import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.limits import format_bytes
from mlgokit.unpacking import DEFLATE_RATIO, LONGEST_READ, ZIP_METHODS, open_zip

Arrays = dict[str, npt.NDArray[Any]]

MOST_BYTES = 512 << 20
"""Limit on the total size of the requested arrays of a file. The largest is a compiler's log, whose size is limited."""
MOST_ARRAYS = 64

# What zipfile and numpy raise for damaged files (found by mutating them), and for arrays of unexpected types.
DAMAGE = (
    OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, ArithmeticError, RuntimeError, SystemError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

_HEADER_BYTES = 128
"""Maximum size of the header that numpy writes before an array of a few dimensions."""
_MAGIC = b"\x93NUMPY\x01\0"
# As numpy writes it for numbers and text; objects and structures have another.
_HEADER = re.compile(
    rb"\{'descr': '([<|][biufU][0-9]{1,9})', 'fortran_order': (False|True), 'shape': \(([0-9, ]{0,80})\), \} *\n"
)


class TooLargeError(ValueError):
    """The arrays take more bytes than such a file may have."""


def read_arrays(data: bytes, names: Collection[str], *, most_bytes: int = MOST_BYTES) -> Arrays:
    """Read the arrays of an npz file in memory whose names are among ``names``; no other is decompressed.

    Args:
        data: content of the file.
        names: names of the arrays to read; missing ones are no error.
        most_bytes: limit on the total size of these arrays.

    Raises:
        TooLargeError: the arrays would be larger; nothing was decompressed.
        ValueError: the file is damaged; this may also be another error of :data:`DAMAGE`.
    """
    with open_zip(io.BytesIO(data), most_bytes=len(data)) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        if not len(members) == len(archive.infolist()) <= MOST_ARRAYS:
            raise ValueError(
                f"expected at most {MOST_ARRAYS} arrays with different names, found {len(archive.infolist())} "
                f"entries, {len(members)} of different names"
            )
        wanted = {name: member for name, member in members.items() if name in names}
        if any(member.file_size > DEFLATE_RATIO * member.compress_size for member in wanted.values()):
            raise ValueError(
                f"expected arrays of at most {DEFLATE_RATIO} times their compressed size, which is all that "
                "deflate can do, found a larger one"
            )
        size = sum(member.file_size for member in wanted.values())
        if size > most_bytes:
            raise TooLargeError(f"{format_bytes(size)} of arrays, of which at most {format_bytes(most_bytes)} are read")
        return {name: _read_array(archive, name, member) for name, member in wanted.items()}


def _read_array(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Read one array; it has to have the size that both the archive's directory and its own header state.

    numpy's own reader allocates what the header states before it checks that the data exists.
    """
    if member.compress_type not in ZIP_METHODS:
        raise ValueError(f"{name}: expected an array stored or deflated, found zip method {member.compress_type}")
    with archive.open(member) as file:
        begin = file.read(len(_MAGIC) + 2)
        length = int.from_bytes(begin[len(_MAGIC) :], "little")
        header = _HEADER.fullmatch(file.read(length))
        if header is None or not begin.startswith(_MAGIC):
            raise ValueError(
                f"{name}: expected the header of a .npy file with numbers or fixed-width text, found another header"
            )
        dtype = np.dtype(header[1].decode())
        shape = tuple(int(word) for word in header[3].split(b",") if word.strip())
        size = member.file_size - len(begin) - length
        if math.prod(shape) * dtype.itemsize != size:
            raise ValueError(
                f"{name}: expected an array of {size} bytes, as the zip directory states, found {dtype} {shape}"
            )
        content = bytearray(size)
        for position in range(0, size, LONGEST_READ):
            part = file.read(LONGEST_READ)
            if len(part) != min(LONGEST_READ, size - position):
                raise EOFError(f"{name}: expected an array of {size} bytes, found the end of the file before")
            content[position : position + len(part)] = part
    return np.ndarray(shape, dtype, content, order="F" if header[2] == b"True" else "C")


def unpacked_bytes(arrays: Arrays) -> int:
    """Compute the total size of saved arrays in bytes, as :func:`read_arrays` counts it."""
    return sum(array.nbytes + _HEADER_BYTES for array in arrays.values())


def column(arrays: Arrays, name: str, kind: str, *, width: int = 0) -> npt.NDArray[Any]:
    """Return the array [N] or [N, width] of that name, checking that its dtype has the kind ``kind``, such as ``u``.

    Raises:
        KeyError: there is no array of that name.
        ValueError: the array has another kind or shape.
    """
    array = arrays[name]
    fits = array.ndim == (2 if width else 1) and (not width or array.shape[1] == width)
    if array.dtype.kind != kind or not fits:
        shape = f"[N, {width}]" if width else "[N]"
        raise ValueError(f"{name}: expected an array {shape} of dtype kind {kind!r}, found {array.dtype} {array.shape}")
    return array
