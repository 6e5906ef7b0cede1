"""A search over a space: its costs so far, the curve of its score, and its folder.

Files of the folder are read without trust: they may be cut short, damaged, or of another kind.
"""

import dataclasses
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from mlgokit.compiler.arrays import DAMAGE, Arrays, read_arrays
from mlgokit.errors import InputError
from mlgokit.files import atomic_write, read_bounded
from mlgokit.tune.space import Space

MOST_KEPT_BYTES = 128 << 20
"""Limit on the arrays in a file, for four million decisions. In memory they take up to five times as much."""
_REMEDY = "restore a copy of it, or delete it: this module is then searched anew, and the others go on"
_POINT_SECONDS = 10.0
_CURVE, _SPENT = "curve.json", "spent.json"

SpaceT = TypeVar("SpaceT", bound=Space[Any, Any])
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A search at one moment.

    Attributes:
        user_seconds: processor time of all compilations so far.
        wall_seconds: elapsed time.
        compilations: number of compilations so far.
        trials: number of variants that were tried within them.
        score: bytes of the exact account, or costs; smaller is better.
        change: relative change of the score against the plain build, such as -0.06.
    """

    user_seconds: float
    wall_seconds: float
    compilations: int
    score: float
    trials: int = 0
    change: float = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class Search(Generic[SpaceT]):
    """A search over one space of a project.

    Attributes:
        folder: folder of the search, with its progress.
        space: the space that is searched.
        seed: random seed.
        label: name of the search in progress reports.
        curve: the state of the search at intervals.
        ended: why the search ended; empty while it has not.
        user_seconds: processor time of all compilations, with those of earlier sessions.
        compilations: number of compilations, with those of earlier sessions.
        trials: number of trials, with those of earlier sessions.
    """

    folder: Path
    space: SpaceT
    seed: int
    label: str = "search"
    curve: list[CurvePoint] = field(default_factory=list[CurvePoint])
    ended: str = ""
    user_seconds: float = 0.0
    compilations: int = 0
    trials: int = 0
    _begin: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept_points: int = 0

    def count(self, user_seconds: float, *, compilations: int = 1, trials: int = 0) -> None:
        """Add to the costs of the search so far."""
        with self._lock:
            self.user_seconds += user_seconds
            self.compilations += compilations
            self.trials += trials

    def now(self) -> CurvePoint:
        """The state of the search at this moment."""
        score = self.space.score
        return CurvePoint(
            user_seconds=self.user_seconds,
            wall_seconds=time.monotonic() - self._begin,
            compilations=self.compilations,
            trials=self.trials,
            score=score.value,
            change=score.change,
        )

    def mark(self) -> None:
        """Add a point to the curve."""
        self.curve.append(self.now())

    def save(self) -> None:
        """Write the costs so far to disk, and the curve if it is longer than there; it gets a point now and then.

        Raises:
            StorageError: the disk is full or not writable.
        """
        now = self.now()
        atomic_write(self.folder / _SPENT, json.dumps(dataclasses.asdict(now)))
        if not self.curve or now.user_seconds - self.curve[-1].user_seconds >= _POINT_SECONDS:
            self.curve.append(now)
        if len(self.curve) > self._kept_points:
            atomic_write(self.folder / _CURVE, json.dumps([dataclasses.asdict(point) for point in self.curve]))
            self._kept_points = len(self.curve)

    def recall(self) -> None:
        """Add the costs of earlier sessions, and continue their curve."""
        self.curve, spent = _points(self.folder / _CURVE), _points(self.folder / _SPENT)
        self._kept_points = len(self.curve)
        if reached := max((*self.curve, *spent), key=lambda point: point.compilations, default=None):
            self.count(reached.user_seconds, compilations=reached.compilations, trials=reached.trials)
            self._begin -= reached.wall_seconds


def progress_path(folder: Path, name: str) -> Path:
    """Path of the file with a module's progress."""
    return folder / "modules" / f"{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.npz"


def read_kept(path: Path, names: Collection[str], make: Callable[[Arrays], Value], *, what: str) -> Value | None:
    """Read the arrays in a file and make a value of them; ``None`` if there is no file.

    Args:
        path: path of the npz file.
        names: names of the arrays to read; no other is unpacked.
        make: function that makes the value; raises a :class:`ValueError` or the like if arrays are missing or do not
            fit.
        what: description of the content, for the error.

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
        return make(read_arrays(data, names, most_bytes=MOST_KEPT_BYTES))
    except DAMAGE as error:
        raise InputError(
            f"{path}: expected {what}, found a damaged file ({str(error) or type(error).__name__:.200}); {_REMEDY}"
        ) from error


def finite(value: object) -> float:
    """Check that a value is a finite number.

    Raises:
        ValueError: the value is not finite, or no number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"expected a number, found {value!r:.100}")
    return value


def _points(path: Path) -> list[CurvePoint]:
    """Read the points in a file, one or several; empty if the file is missing or damaged."""
    try:
        data: Any = json.loads(path.read_bytes())
        points = cast("list[dict[str, Any]]", data if isinstance(data, list) else [data])
        # Folders of earlier versions call the score of inlining bytes.
        return [
            CurvePoint(**{"score" if name == "bytes" else name: finite(value) for name, value in point.items()})  # pyright: ignore[reportArgumentType]
            for point in points
        ]
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return []
