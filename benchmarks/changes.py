"""Means and intervals of relative changes, where a benchmark has these and not the sizes that they are of."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.evaluation.statistics import bootstrap_interval, geometric_mean_change

Changes = Sequence[float] | npt.NDArray[Any]


def mean_change(changes: Changes) -> float:
    """The change of the geometric mean.

    Example:
        >>> round(mean_change([-0.1, -0.6]), 6)
        -0.4
    """
    return geometric_mean_change(np.ones(len(changes)), 1 + np.asarray(changes))


def interval_of(changes: Changes, rng: np.random.Generator) -> tuple[float, float]:
    """Between which mean changes others of the kind would lie, in 95 % of cases; one change is its own interval.

    Example:
        >>> interval_of([-0.1], np.random.default_rng(1))
        (-0.1, -0.1)
        >>> low, high = interval_of([-0.1, -0.2, -0.3], np.random.default_rng(1))
        >>> -0.31 < low < mean_change([-0.1, -0.2, -0.3]) < high < -0.09
        True
    """
    if len(changes) < 2:
        return float(changes[0]), float(changes[0])
    return bootstrap_interval(np.ones(len(changes)), 1 + np.asarray(changes), rng=rng)
