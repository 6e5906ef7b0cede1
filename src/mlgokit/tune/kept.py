"""What a search has on disk, read without trust: a file may be cut short, damaged, or of something else."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt

from mlgokit.compiler.arrays import DAMAGE, Arrays, arrays_in
from mlgokit.errors import InputError

Value = TypeVar("Value")


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
