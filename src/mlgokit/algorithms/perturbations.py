"""Directions in which evolution strategies perturb the weights: independent, orthogonal or by a Sobol sequence."""

# scipy annotates its functions only in part, which strict mode would report at every call.
# pyright: basic

from typing import Literal

import numpy as np

from mlgokit.algorithms.learner import Floats

Directions = Literal["gaussian", "orthogonal", "sobol"]


def draw_directions(count: int, weights: int, kind: Directions, rng: np.random.Generator) -> Floats:
    """Draw directions [count, weights], each by itself of standard normal components.

    Orthogonal ones are at right angles to each other in groups of ``weights`` (Choromanski et al., 2018), with the
    lengths of independent ones. Those of a scrambled Sobol sequence fill the space evenly.

    Example:
        >>> drawn = draw_directions(3, 5, "orthogonal", np.random.default_rng(1))
        >>> np.allclose(drawn @ drawn.T, np.diag(np.sum(drawn**2, axis=1)))
        True
        >>> draw_directions(3, 5, "sobol", np.random.default_rng(1)).shape
        (3, 5)
    """
    match kind:
        case "gaussian":
            return rng.normal(size=(count, weights))
        case "orthogonal":
            groups = [rng.normal(size=(min(weights, count - start), weights)) for start in range(0, count, weights)]
            return np.concatenate([_orthogonalise(group) for group in groups])
        case "sobol":
            # Importing them takes a second.
            from scipy.special import ndtri
            from scipy.stats import qmc

            # Whole powers of two are balanced; the rest of the last one is not used.
            points = qmc.Sobol(weights, scramble=True, rng=rng).random_base2((count - 1).bit_length())[:count]
            # A point may be 0, whose quantile is infinite.
            return ndtri(np.clip(points, 2.0**-33, 1 - 2.0**-33))


def _orthogonalise(group: Floats) -> Floats:
    """Turn rows to right angles of each other; each keeps its length."""
    basis, upper = np.linalg.qr(group.T)
    lengths = np.linalg.norm(group, axis=1)
    return (basis * np.where(np.diag(upper) < 0, -lengths, lengths)).T
