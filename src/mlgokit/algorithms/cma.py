"""CMA-ES (Hansen) from the package cmaes as ask and tell, with a state of arrays for checkpoints."""

# cmaes has no annotations of its own.
# pyright: basic

from typing import Any

import numpy as np

from mlgokit.algorithms.learner import Floats, State

_POPULATION = "cma/_popsize"


def start(weights: Floats, *, spread: float, population: int) -> State:
    """Make the state before the first generation; its array ``centre`` is the mean of the search.

    Args:
        weights: [W] initial mean.
        spread: initial standard deviation.
        population: P, the size of a generation.
    """
    return _pack(_search(weights, spread, population), weights)


def ask(state: State, rng: np.random.Generator) -> Floats:
    """Sample a generation of P weight vectors to test, [P, W]."""
    search = _unpack(state)
    search.reseed_rng(int(rng.integers(2**31)))
    return np.stack([search.ask() for _ in range(int(state[_POPULATION]))])


def tell(state: State, tested: Floats, rewards: Floats) -> State:
    """Update the state by the rewards [P] of weights [P, W]; a reward of NaN counts as the lowest."""
    search = _unpack(state)
    worst = np.nanmin(rewards)
    search.tell([(row, -float(reward)) for row, reward in zip(tested, np.nan_to_num(rewards, nan=worst), strict=True)])
    return _pack(search, np.asarray(search.mean, np.float64))


def _search(mean: Floats, spread: float, population: int) -> Any:
    """Make the optimiser; its package is imported here, as it imports all of scipy, which takes a second."""
    from cmaes import CMA

    return CMA(mean=mean, sigma=spread, population_size=population)


def _pack(search: Any, centre: Floats) -> State:
    """Store the fields of the optimiser as arrays, with the mean of the search."""
    values = search.__getstate__()
    # Only its own stopping test reads the history, part of which is uninitialised memory.
    values = {name: value for name, value in values.items() if value is not None and name != "_funhist_values"}
    return {"centre": centre, **{f"cma/{name}": np.array(value) for name, value in values.items()}}


def _unpack(state: State) -> Any:
    """Restore the optimiser that :func:`_pack` stored."""
    search = _search(state["centre"].copy(), 1.0, int(state[_POPULATION]))
    values: dict[str, Any] = dict(search.__getstate__())
    for name, value in state.items():
        if name.startswith("cma/"):
            values[name.removeprefix("cma/")] = value.copy() if value.ndim else value.item()
    search.__setstate__(values)
    return search
