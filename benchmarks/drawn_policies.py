"""Policies nobody trained: networks with drawn weights, for what must hold whatever was trained."""

import itertools

import numpy as np

from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_quantile, fit_signed_log
from mlgokit.problems import Problem
from mlgokit.spec import AdviceKind
from mlgokit.traces import Log


def draw_policy(problem: Problem, log: Log, rng: np.random.Generator) -> Policy:
    """A policy for eviction or priority, of drawn shape and weights.

    Args:
        problem: one that decides by columns or by a number.
        log: what the features look like; half of them, drawn, are used, and of these all that vary in it.
        rng: where everything comes from.
    """
    varying = [
        name for name in problem.feature_names if name != problem.mask and np.ptp(log.columns[name].astype(float)) > 0
    ]
    count = max(1, len(varying) // 2)
    names = tuple(varying[index] for index in sorted(rng.choice(len(varying), count, replace=False).tolist()))
    columns = [log.columns[name].reshape(log.observation_count, -1).astype(np.float64) for name in names]
    width = max(column.shape[1] for column in columns)
    rows = np.stack([np.broadcast_to(column, (len(column), width)).ravel() for column in columns], axis=1)
    normaliser = fit_quantile(rows, count=50) if rng.random() < 0.5 else fit_signed_log(rows)
    members, hidden = int(rng.integers(1, 4)), int(rng.integers(4, 25))
    layers = tuple(
        Layer(
            rng.normal(size=(members, inputs, outputs)).astype(np.float32),
            rng.normal(size=(members, outputs)).astype(np.float32),
        )
        for inputs, outputs in itertools.pairwise((normaliser.width, hidden, 1))
    )
    chooses = problem.advice_kind is AdviceKind.MASKED_CHOICE
    return Policy(
        problem=problem.name,
        features=names,
        normaliser=normaliser,
        layers=layers,
        output=OutputKind.COLUMN_LOGIT if chooses else OutputKind.PRIORITY,
        mask=problem.mask or "",
    )
