"""Gradients from the scores of perturbed weights, as evolution strategies estimate them."""

# numpy.linalg annotates its functions only in part, which strict mode would report at every call.
# pyright: basic

import numpy as np

from mlgokit.algorithms.learner import Floats, Ints

LEAST_DEVIATION = 1e-5
"""Standard deviation below which scores count as equal, and are not scaled up to noise."""


def normalise_scores(scores: Floats, current: float) -> tuple[Floats, float]:
    """Shift and scale ``scores`` [N] and that of the current weights by the mean and deviation of all of them.

    Example:
        >>> normalise_scores(np.array([5.0, 5.0]), 5.0)
        (array([0., 0.]), 0.0)
    """
    values = np.append(scores, current)
    normalised = (values - values.mean()) / max(float(values.std()), LEAST_DEVIATION)
    return normalised[:-1], float(normalised[-1])


def centred_ranks(rewards: Floats) -> Floats:
    """Centred ranks of ``rewards``, from -0.5 to 0.5.

    Example:
        >>> centred_ranks(np.array([3.0, 100.0, -5.0])).tolist()
        [0.0, 0.5, -0.5]
    """
    if len(rewards) < 2:
        return np.zeros(len(rewards))
    return rewards.argsort(kind="stable").argsort(kind="stable") / (len(rewards) - 1) - 0.5


def top_directions(rewards: Floats, count: int) -> Ints:
    """Choose the ``count`` directions, all for 0, whose best score is the highest, best first.

    Args:
        rewards: [K, N] scores of the weights along each of N directions: one, or one for each of both signs.
        count: number of directions to keep.

    Example:
        >>> top_directions(np.array([[1.0, 0.0, 3.0], [-2.0, 2.0, -9.0]]), 2).tolist()
        [2, 1]
    """
    best = rewards.max(axis=0)
    if not count:
        return np.arange(len(best))
    return np.argsort(-best, kind="stable")[:count].astype(np.int64)


def mean_gradient(noise: Floats, slopes: Floats) -> Floats:
    """Estimate the gradient [W] as the mean of ``slopes`` [N] times directions ``noise`` [N, W].

    Example:
        >>> mean_gradient(np.eye(2), np.array([3.0, -2.0])).tolist()
        [1.5, -1.0]
    """
    return (slopes[:, None] * noise).mean(axis=0)


def ridge_gradient(rows: Floats, slopes: Floats, penalty: float) -> Floats:
    """Estimate the gradient [W] from the changes ``slopes`` [N] of the score over displacements ``rows`` [N, W].

    That is a ridge regression with an intercept, which is not penalised.

    Example:
        >>> rows, wanted = np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]]), np.array([3.0, -2.0])
        >>> ridge_gradient(rows, 7 + rows @ wanted, 1e-9).round(6).tolist()
        [3.0, -2.0]
    """
    centred, changes = rows - rows.mean(axis=0), slopes - slopes.mean()
    # There are fewer pairs than weights, so the dual system is the smaller one.
    weights = np.linalg.solve(centred @ centred.T + penalty * np.eye(len(rows)), changes)
    return centred.T @ weights
