"""Weights of training data by the size of what it is about, where a policy regrets more and where less.

They are those of BC-Max in google/ml-compiler-opt: sizes fall into buckets, the regret of each bucket, as a part of the
largest, is a step of exponentiated gradient, and probabilities are the running average over steps, the first of which
is uniform. A decision counts by the smallest probability over that of its bucket, so where there is regret, by more.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
State = dict[str, npt.NDArray[np.float64]]
_LOGITS, _PROBABILITIES, _STEPS = "logits", "probabilities", "steps"


def start(partitions: Sequence[float]) -> State:
    """Before any regret: one bucket more than ``partitions``, all alike."""
    count = len(partitions) + 1
    return {_LOGITS: np.ones(count), _PROBABILITIES: np.full(count, 1 / count), _STEPS: np.ones(())}


def after(state: State, sizes: Doubles, regrets: Doubles, partitions: Sequence[float]) -> State:
    """The state after one comparison.

    Args:
        state: before it.
        sizes: of what the policy was tried on, [N].
        regrets: by how much each is larger than the best that is known, [N]; smaller counts as 0.
        partitions: bounds between the buckets, ascending; a size that is one belongs above it.

    Example:
        >>> after(start([1, 2, 3]), np.array([0.5, 1.5]), np.array([-1.0, 4.0]), [1, 2, 3])["probabilities"].round(8)
        array([0.27346137, 0.17961589, 0.27346137, 0.27346137])
    """
    lost = np.bincount(
        np.searchsorted(partitions, sizes, side="right"),
        weights=np.maximum(regrets, 0),
        minlength=len(state[_LOGITS]),
    )
    if not lost.max(initial=0.0) > 0:
        return state
    logits = state[_LOGITS] - lost / lost.max()
    odds = np.exp(logits - logits.max())
    steps = state[_STEPS] + 1
    probabilities = (state[_PROBABILITIES] * (steps - 1) + odds / odds.sum()) / steps
    return {_LOGITS: logits, _PROBABILITIES: probabilities, _STEPS: steps}


def weights(state: State, sizes: Doubles, partitions: Sequence[float]) -> Doubles:
    """How much decisions count that are about something of ``sizes`` [N], at most 1."""
    probabilities = state[_PROBABILITIES]
    return (probabilities.min() / probabilities)[np.searchsorted(partitions, sizes, side="right")]
