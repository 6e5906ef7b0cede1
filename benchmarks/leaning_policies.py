"""Policies that nobody trained: random networks, and networks that imitate the heuristic and lean to some side."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mlgokit.collect import NOT_FEATURES
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog, Values, fit_signed_log
from mlgokit.problems import INLINE_SIZE

Floats = npt.NDArray[np.float64]


def _observed(columns: Mapping[str, Values]) -> tuple[tuple[str, ...], Values]:
    """Names [F] and values [T, F] of the features in a log."""
    names = tuple(name for name in columns if name not in NOT_FEATURES)
    return names, np.stack([columns[name] for name in names], axis=1)


def random_network(columns: Mapping[str, Values], rng: np.random.Generator, width: int = 16) -> Policy:
    """Random weights over all features, shifted so that a part of the calls drawn from 5 to 60 % is inlined."""
    names, values = _observed(columns)
    normaliser = fit_signed_log(values)
    hidden = rng.normal(size=(len(names), width)) / np.sqrt(len(names))
    output = rng.normal(size=width)
    answer = np.maximum(normaliser.apply(values) @ hidden, 0) @ output
    # An effect below 0 is an improvement: inline.
    shift = np.quantile(answer, rng.uniform(0.05, 0.6))
    return _network(names, normaliser, hidden=hidden, bias=np.zeros(width), output=output, shift=-shift)


def leaning_network(columns: Mapping[str, Values], rng: np.random.Generator, width: int = 96) -> Policy:
    """A ridge regression of the heuristic's decisions on random features of the observations, plus a lean.

    The lean is a combination of three features with random weights, of a strength drawn between 0.03 and 0.5.
    """
    names, values = _observed(columns)
    normaliser = fit_signed_log(values)
    inputs = normaliser.apply(values).astype(np.float64)
    decisions = np.where(columns["inlining_default"] != 0, 1.0, -1.0)
    hidden = rng.normal(size=(len(names), width)) / np.sqrt(len(names))
    bias = rng.normal(size=width)
    features = np.column_stack([np.maximum(inputs @ hidden + bias, 0), np.ones(len(inputs))])
    gram = features.T @ features + 1e-3 * len(inputs) * np.eye(width + 1)
    weights = np.linalg.solve(gram, features.T @ decisions)
    lean = np.zeros(len(names))
    lean[rng.choice(len(names), 3, replace=False)] = rng.normal(size=3) * np.exp(rng.uniform(np.log(0.03), np.log(0.5)))
    # x = max(x, 0) - max(-x, 0): two more units carry the lean through the hidden layer.
    return _network(
        names,
        normaliser,
        hidden=np.column_stack([hidden, lean, -lean]),
        bias=np.append(bias, [0.0, 0.0]),
        output=np.append(-weights[:-1], [1.0, -1.0]),
        shift=-weights[-1],
    )


def _network(
    names: tuple[str, ...],
    normaliser: SignedLog,
    *,
    hidden: Floats,
    bias: Floats,
    output: Floats,
    shift: float,
) -> Policy:
    first = Layer(hidden[None].astype(np.float32), bias[None].astype(np.float32))
    last = Layer(output[None, :, None].astype(np.float32), np.array([[shift]], np.float32))
    return Policy(
        problem=INLINE_SIZE.name,
        features=names,
        normaliser=normaliser,
        layers=(first, last),
        output=OutputKind.EFFECT_BYTES,
    )
