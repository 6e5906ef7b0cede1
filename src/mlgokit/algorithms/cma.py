"""CMA-ES (Hansen) from the package cmaes, by ask and tell, with a state of arrays that can be kept."""

# cmaes has no annotations of its own.
# pyright: basic

from typing import Any

import numpy as np
from cmaes import CMA

from mlgokit.algorithms.learner import Floats, State

_POPULATION = "cma/_popsize"


def start(weights: Floats, *, spread: float, population: int) -> State:
    """The state before the first generation.

    Args:
        weights: [W] where it starts; the state has the centre of the search as ``centre``.
        spread: standard deviation of the first generation.
        population: weights in one generation.
    """
    return _packed(CMA(mean=weights, sigma=spread, population_size=population), weights)


def ask(state: State, rng: np.random.Generator) -> Floats:
    """[P, W] weights to test."""
    search = _unpacked(state)
    search.reseed_rng(int(rng.integers(2**31)))
    return np.stack([search.ask() for _ in range(int(state[_POPULATION]))])


def tell(state: State, tested: Floats, rewards: Floats) -> State:
    """The state after weights [P, W] had rewards [P]; where one is NaN, it is taken for the least."""
    search = _unpacked(state)
    worst = np.nanmin(rewards)
    search.tell([(row, -float(reward)) for row, reward in zip(tested, np.nan_to_num(rewards, nan=worst), strict=True)])
    return _packed(search, np.asarray(search.mean, np.float64))


def _packed(search: CMA, centre: Floats) -> State:
    values = search.__getstate__()
    # Only its own test of when to stop reads the history, part of which is uninitialised memory.
    values = {name: value for name, value in values.items() if value is not None and name != "_funhist_values"}
    return {"centre": centre, **{f"cma/{name}": np.array(value) for name, value in values.items()}}


def _unpacked(state: State) -> CMA:
    search = CMA(mean=state["centre"].copy(), sigma=1.0, population_size=int(state[_POPULATION]))
    values: dict[str, Any] = dict(search.__getstate__())
    for name, value in state.items():
        if name.startswith("cma/"):
            values[name.removeprefix("cma/")] = value.copy() if value.ndim else value.item()
    search.__setstate__(values)
    return search
