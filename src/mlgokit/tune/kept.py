"""What a search has on disk, read without trust: a file may be cut short, damaged, or of something else."""

import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from mlgokit.compiler.arrays import DAMAGE, Arrays, arrays_in
from mlgokit.errors import InputError
from mlgokit.files import read_bounded

Value = TypeVar("Value")

MOST_KEPT_BYTES = 128 << 20
"""Of the arrays in a file: what is known of four million decisions. In memory it is up to five times as much."""
_REMEDY = "put back a copy of it, or delete it: this module is then searched anew, and the others go on"


def read_kept(path: Path, names: Collection[str], make: Callable[[Arrays], Value], *, what: str) -> Value | None:
    """What is made of the arrays in a file; ``None`` if there is no file.

    Args:
        path: an npz file.
        names: of the arrays that are wanted; no other is unpacked.
        make: makes it; raises a :class:`ValueError` or the like where arrays are missing or do not fit.
        what: is kept there, for the sentence.

    Raises:
        InputError: the file is damaged.
    """
    try:
        data = read_bounded(path, MOST_KEPT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path}: expected a readable file with {what}, found: {error.strerror}; {_REMEDY}") from error
    try:
        return make(arrays_in(data, names, most_bytes=MOST_KEPT_BYTES))
    except DAMAGE as error:
        raise InputError(
            f"{path}: expected {what}, found a damaged file ({str(error) or type(error).__name__:.200}); {_REMEDY}"
        ) from error


def finite(value: object) -> float:
    """A number that is one.

    Raises:
        ValueError: it is not finite, or no number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"expected a number, found {value!r:.100}")
    return value
