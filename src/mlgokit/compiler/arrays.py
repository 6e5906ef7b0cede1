"""Arrays that are kept in npz files, read without trust and from several threads."""

import io
import lzma
import struct
import threading
import tokenize
import zipfile
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

# What numpy and zipfile say of damaged files (found by mutating them), and of numbers that are none of ours.
DAMAGE = (
    OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
    SystemError,
    SyntaxError, tokenize.TokenError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip

_reading = threading.Lock()


def arrays_in(data: bytes) -> Arrays:
    """The arrays of an npz file in memory; raises one of :data:`DAMAGE` if that is none.

    One at a time: numpy parses the header of an array with :mod:`ast`, whose count of recursions CPython 3.11 shares
    between threads (https://github.com/python/cpython/issues/106905), so that it fails now and then.
    """
    with _reading, np.load(io.BytesIO(data), allow_pickle=False) as found:
        return dict(found)
