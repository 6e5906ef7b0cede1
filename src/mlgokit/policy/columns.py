"""Features of an eviction policy that compare a column (an eviction candidate) with other columns.

A feature's name says which column its value is from: ``nr_urgent`` from the column itself, ``default:nr_urgent`` from
the column that LLVM's heuristic takes; ``least:``, ``mean:`` and ``most:`` are over all columns that may be chosen.
``plugin/regalloc/ColumnFeatures.cpp`` is the twin.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mlgokit.policy.normaliser import Values

DEFAULT = "default:"
POOLED = ("least:", "mean:", "most:")
IS_ITSELF = "is_itself"
"""Whether the column is the last one: the live range that asks, so that nothing is evicted."""
LEGAL_COLUMNS = "legal_columns"
"""How many columns may be chosen."""
Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def base_name(feature: str) -> str:
    """Strip the prefix from a feature's name: the name of the value that the feature is computed from.

    Example:
        >>> base_name("mean:nr_urgent"), base_name("progress")
        ('nr_urgent', 'progress')
    """
    return feature.removeprefix(prefix_of(feature))


def prefix_of(feature: str) -> str:
    """Find the prefix of a feature's name, which says what columns its value is from; empty for the column itself."""
    return next((prefix for prefix in (DEFAULT, *POOLED) if feature.startswith(prefix)), "")


def base_names(features: Sequence[str]) -> list[str]:
    """List the names of all values from which features are computed, each once.

    Example:
        >>> base_names(("nr_urgent", "mean:nr_urgent", "progress", "is_itself"))
        ['nr_urgent', 'progress']
    """
    return [name for name in dict.fromkeys(map(base_name, features)) if name not in (IS_ITSELF, LEGAL_COLUMNS)]


def column_values(
    features: Sequence[str], given: Mapping[str, Values], mask: Bools, default: Ints | None = None
) -> Doubles:
    """Compute the raw inputs [T, C, F] of an eviction policy for T questions with C columns.

    Args:
        features: [F] names of the policy's features.
        given: values by :func:`base_name`, [T, C], or [T, 1] where every column has the same.
        mask: [T, C] which columns may be chosen.
        default: [T] the column that the heuristic takes; needed for features with the prefix ``default:``.

    Raises:
        KeyError: the value that a feature is computed from is not in ``given``, or ``default`` is missing.

    Example:
        >>> given = {"a": np.array([[3.0, 1.0, 8.0]])}
        >>> mask = np.array([[True, True, False]])
        >>> column_values(("a", "default:a", "mean:a", "is_itself"), given, mask, np.array([1])).tolist()
        [[[3.0, 1.0, 2.0, 0.0], [1.0, 1.0, 2.0, 0.0], [8.0, 1.0, 2.0, 1.0]]]
    """
    questions, columns = mask.shape
    legal: Ints = mask.sum(axis=1)
    own: dict[str, npt.NDArray[np.generic]] = {
        IS_ITSELF: np.eye(columns, dtype=np.bool_)[[-1] * questions],
        LEGAL_COLUMNS: legal[:, None],
    }
    output = np.empty((questions, columns, len(features)))
    every = np.arange(questions, dtype=np.int64)
    for position, feature in enumerate(features):
        name, prefix = base_name(feature), prefix_of(feature)
        values = np.broadcast_to(np.asarray(own[name] if name in own else given[name], np.float64), mask.shape)
        if not prefix:
            output[:, :, position] = values
        elif prefix == DEFAULT:
            if default is None:
                raise KeyError(feature)
            output[:, :, position] = values[every, default][:, None]
        else:
            output[:, :, position] = _pool_columns(values, mask, legal, prefix)[:, None]
    return output


def _pool_columns(values: Doubles, mask: Bools, legal: Ints, prefix: str) -> Doubles:
    """Compute the minimum, mean or maximum [T] of ``values`` [T, C] over the legal columns; 0 if there are none."""
    if prefix == "mean:":
        # One column after the other: the plugin's order of additions.
        total = np.zeros(len(values))
        for column in range(values.shape[1]):
            total += np.where(mask[:, column], values[:, column], 0.0)
        return np.where(legal > 0, total / np.maximum(legal, 1), 0.0)
    least = prefix == "least:"
    outside = np.where(mask, values, np.inf if least else -np.inf)
    extreme = outside.min(axis=1) if least else outside.max(axis=1)
    return np.where(legal > 0, extreme, 0.0)
