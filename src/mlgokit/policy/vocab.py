"""Vocabularies of google/ml-compiler-opt, read, written and fitted: one ``<feature>.buckets`` file per feature.

A file has the feature's quantiles, and is byte for byte what google/ml-compiler-opt's ``generate_vocab`` writes: each
quantile's shortest decimal that reads back as the same double, one per line. Its shipped files have 999 lines, a few
9999; its tool writes 1000. The format is described in ``docs/formats.md``.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.errors import InputError, UsageError
from mlgokit.files import atomic_write
from mlgokit.policy.normaliser import Quantile, quantile_rows

SUFFIX = ".buckets"
DEFAULT_BUCKETS = 1000
_FILE_NAME = re.compile(r"[^/\0\n\ud800-\udfff.][^/\0\n\ud800-\udfff]{0,99}")

Boundaries = npt.NDArray[np.float64]
Columns = Mapping[str, npt.NDArray[Any]]
"""Some rows of a data set: the values of each feature, of any shape."""


def write_vocab(vocab: Mapping[str, Boundaries], folder: Path) -> None:
    """Write ``<feature>.buckets`` for each feature, each file atomically, and remove those of other features.

    Raises:
        InputError: a feature's name is no name of a file; names may come from a log that a stranger made.
    """
    for name in vocab:
        if not _FILE_NAME.fullmatch(name):
            raise InputError(
                f"feature {name[:80]!r}: expected a name that a file in a folder can have, found another; look at "
                "where the logs come from"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, boundaries in vocab.items():
        atomic_write(folder / f"{name}{SUFFIX}", buckets_text(boundaries))
    for path in folder.glob(f"*{SUFFIX}"):
        if path.name.removesuffix(SUFFIX) not in vocab:
            path.unlink()


def buckets_text(boundaries: Boundaries) -> str:
    r"""Format the boundaries of one feature as the content of its ``.buckets`` file.

    Example:
        >>> buckets_text(np.array([2.0, 0.1, 1e22]))
        '2.0\n0.1\n1e+22\n'
    """
    return "".join(f"{float(boundary)}\n" for boundary in boundaries)


def read_vocab(folder: Path) -> dict[str, Boundaries]:
    """Read all ``.buckets`` files of ``folder``, by feature in alphabetical order; they may have different lengths.

    Raises:
        InputError: there is no such file, or one is malformed.
    """
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise InputError(
            f"vocabulary {folder}: expected files <feature>{SUFFIX}, found none; "
            "name a folder that `mlgokit vocab` wrote"
        )
    return {path.name.removesuffix(SUFFIX): read_buckets(path) for path in paths}


def read_buckets(path: Path) -> Boundaries:
    """Read the bucket boundaries of one file.

    Infinities are taken as they are. ``nan``, which the reference's tool writes for features with infinite values, has
    no place in an ascending row and is refused.

    Raises:
        InputError: the file is missing, empty, or has a line that is not a number or descends.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"vocabulary {path}: expected a readable text file, found: {error}; check the path") from error
    boundaries = np.empty(len(lines))
    for number, line in enumerate(lines):
        try:
            boundaries[number] = float(line)
        except ValueError:
            boundaries[number] = math.nan
        if math.isnan(boundaries[number]) or (number and boundaries[number] < boundaries[number - 1]):
            raise InputError(
                f"vocabulary {path}: line {number + 1}: expected a number not below the one before, found {line!r}; "
                "make the vocabulary again with `mlgokit vocab`"
            )
    if not lines:
        raise InputError(
            f"vocabulary {path}: expected at least one line, found none; make it again with `mlgokit vocab`"
        )
    return boundaries


def fit_vocab(
    chunks: Callable[[], Iterable[Columns]], *, buckets: int = DEFAULT_BUCKETS, budget_values: int = 20_000_000
) -> dict[str, Boundaries]:
    """Compute ``numpy.quantile(values, numpy.linspace(0, 1, buckets))`` of each feature, exactly, in bounded memory.

    Of each feature a histogram of its distinct values is kept, which is small, as most features are small counts. If
    all together exceed the budget, the features are fitted a few at a time, in further passes over the chunks.

    Infinite values count as the feature's smallest and largest finite ones (the reference's tool would write ``nan``);
    NaN is left out. A feature without any finite value is 0 throughout.

    Args:
        chunks: iterates over the data set from its beginning, each time it is called.
        buckets: number of quantiles of each feature.
        budget_values: maximum number of distinct values in memory at once.

    Raises:
        UsageError: there are fewer than two buckets or no values, or one feature alone exceeds the budget.
    """
    if buckets < 2:
        raise UsageError(f"vocabulary: expected at least two buckets, found {buckets}; ask for more")
    done: dict[str, Boundaries] = {}
    waiting: set[str] | None = None
    while waiting is None or waiting:
        counts: dict[str, _Counts] = {}
        left: set[str] = set()
        for chunk in chunks():
            for name, values in chunk.items():
                if (waiting is None or name in waiting) and name not in left:
                    counts[name] = _add(counts.get(name), values)
            while sum(len(count.values) for count in counts.values()) > budget_values:
                largest = max(counts, key=lambda name: len(counts[name].values))
                if len(counts) == 1:
                    raise UsageError(
                        f"vocabulary: feature {largest}: expected at most {budget_values} different values, found "
                        "more; raise budget_values, or use a part of the data"
                    )
                left.add(largest)
                del counts[largest]
        if not counts:
            raise UsageError("vocabulary: expected at least one observation, found none; collect a trace first")
        done |= {name: _quantiles(count, buckets) for name, count in counts.items()}
        waiting = left
    return dict(sorted(done.items()))


@dataclass(frozen=True, slots=True)
class _Counts:
    """How often each of the ascending ``values`` occurs."""

    values: npt.NDArray[Any]
    times: npt.NDArray[np.int64]


def _add(counts: _Counts | None, values: npt.NDArray[Any]) -> _Counts:
    """Add the values of a chunk to the histogram of a feature, without NaN."""
    fresh, times = np.unique(np.asarray(values).ravel(), return_counts=True)
    known = ~np.isnan(fresh)
    if counts is None:
        return _Counts(fresh[known], times[known])
    merged, inverse = np.unique(np.concatenate([counts.values, fresh[known]]), return_inverse=True)
    total = np.zeros(len(merged), np.int64)
    np.add.at(total, inverse, np.concatenate([counts.times, times[known]]))
    return _Counts(merged, total)


def _quantiles(counts: _Counts, buckets: int) -> Boundaries:
    """Compute the quantiles of a histogram as ``numpy.quantile`` computes those of the values themselves."""
    finite = np.isfinite(counts.values)
    if not finite.any():
        return np.zeros(buckets)
    kept = counts.values[finite]
    values = np.clip(counts.values, kept[0], kept[-1])
    ends = np.cumsum(counts.times)
    # numpy's rule, with the values at two neighbouring ranks looked up instead of indexed.
    position = np.linspace(0, 1, buckets) * (ends[-1] - 1)
    below = np.floor(position)
    share = position - below
    low = values[np.searchsorted(ends, below, side="right")]
    high = values[np.searchsorted(ends, np.minimum(below + 1, ends[-1] - 1), side="right")]
    # In the values' own precision, as numpy does.
    step: npt.NDArray[Any] = high - low
    lower: Boundaries = low + step * share
    upper: Boundaries = high - step * (1 - share)
    return np.where(share >= 0.5, upper, lower).astype(np.float64)


def quantile_of(vocab: Mapping[str, Boundaries], features: tuple[str, ...]) -> Quantile:
    """Make the quantile normaliser of a policy with these features, in this order, by :func:`quantile_rows`.

    Raises:
        UsageError: a feature has no boundaries.
    """
    missing = [name for name in features if name not in vocab]
    if missing:
        raise UsageError(
            f"vocabulary: expected boundaries of {missing[0]}, found none; fit a vocabulary that has all features"
        )
    return quantile_rows([vocab[name] for name in features])
