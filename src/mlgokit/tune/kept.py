"""What a search has on disk, read without trust: a file may be cut short, damaged, or of something else."""

import io
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mlgokit.errors import InputError

Arrays = dict[str, npt.NDArray[Any]]
Value = TypeVar("Value")

# What numpy and zipfile say of damaged files (found by mutating them), and of numbers that are none of ours.
DAMAGE = (
    OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
    SystemError,
    SyntaxError, tokenize.TokenError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip


def read_kept(path: Path, make: Callable[[Arrays], Value], *, what: str) -> Value | None:
    """What is made of the arrays in a file; ``None`` if there is no file.

    Args:
        path: an npz file.
        make: makes it; raises a :class:`ValueError` or the like where arrays are missing or do not fit.
        what: is kept there, for the sentence.

    Raises:
        InputError: the file is damaged.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path}: expected a readable file with {what}, found: {error.strerror}") from error
    try:
        return make(arrays_in(data))
    except DAMAGE as error:
        raise InputError(
            f"{path}: expected {what}, found a damaged file ({str(error) or type(error).__name__:.200}); put back a "
            "copy of it, or delete it: this module is then searched anew, and the others go on"
        ) from error


def arrays_in(data: bytes) -> Arrays:
    """The arrays of an npz file in memory; raises one of :data:`DAMAGE` if that is none."""
    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        return dict(found)


def column(arrays: Arrays, name: str, kind: str, *, width: int = 0) -> npt.NDArray[Any]:
    """An array of a kind of numpy's, such as ``u``: [N], or [N, width].

    Raises:
        KeyError: there is none of that name.
        ValueError: it is another.
    """
    found = arrays[name]
    fits = found.ndim == (2 if width else 1) and (not width or found.shape[1] == width)
    if found.dtype.kind != kind or not fits:
        raise ValueError(f"{name}: an array of {found.dtype} {found.shape}")
    return found


def finite(value: object) -> float:
    """A number that is one.

    Raises:
        ValueError: it is not finite, or no number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"expected a number, found {value!r:.100}")
    return value
