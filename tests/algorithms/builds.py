"""Builds as moves see them: calls with what the inliner decided, without sizes."""

from collections.abc import Sequence

import numpy as np

from mlgokit.algorithms.credit import ScoredBuild


def build_of(calls: Sequence[tuple[int, int, bool]]) -> ScoredBuild:
    """Calls are (caller, callee, inlined)."""
    caller, callee, inlined = (np.array(column) for column in zip(*calls, strict=True))
    return ScoredBuild(
        caller=caller.astype(np.int64),
        callee=callee.astype(np.int64),
        inlined=inlined.astype(bool),
        flipped=np.zeros(len(calls), bool),
        functions=np.zeros(0, np.int64),
        scores=np.zeros(0),
    )
