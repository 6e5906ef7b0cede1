"""The search for what live ranges get: what a generation is rewarded with, and a search that can be taken up."""

import numpy as np
import numpy.typing as npt
import pytest

from mlgokit.algorithms import cma
from mlgokit.algorithms.live_range_search import linear_policy, rewards, single_weights
from mlgokit.compiler.reuse.trials import MEASURES
from mlgokit.policy.normaliser import SignedLog
from mlgokit.problems import REGALLOC_PRIORITY, REGALLOC_WEIGHT

CODE = MEASURES.index("code")


def functions(*sizes: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """[N, 1 + P, 9] with bytes of code alone."""
    found = np.zeros((len(sizes), len(sizes[0]), len(MEASURES)))
    found[:, :, CODE] = sizes
    found[np.isnan(found[:, :, CODE])] = np.nan
    return found


def test_projects_count_by_the_root_of_their_functions_and_a_failure_as_twice_the_function():
    project = np.array([0, 0, 0, 0, 1])
    small = (100.0, 90.0, 100.0)
    found = rewards(functions(small, small, small, small, (1000.0, 1000.0, np.nan)), project, "bytes")
    # The first policy: 10 % on a project with weight 2, none on one with weight 1.
    assert found.tolist() == pytest.approx([20 / 3, -100 / 3])


def test_no_unit_number_is_clipped_and_the_order_is_that_of_the_weights():
    normaliser = SignedLog(mean=np.zeros(3, np.float32), scale=np.ones(3, np.float32), clip=4.0)
    weights = np.array([1e6, -5e5, 3.0])
    policy = linear_policy(REGALLOC_PRIORITY, ("a", "b", "c"), normaliser, weights)
    values = np.expm1(np.array([[4.0, -4.0, 4.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
    values[0, 1] = -np.expm1(4.0)
    units = policy.units(values)
    assert np.abs(units).max() < 16
    assert np.argsort(-units).tolist() == [0, 2, 1]


def test_factors_are_the_sum_as_it_is():
    normaliser = SignedLog(mean=np.zeros(2, np.float32), scale=np.ones(2, np.float32), clip=4.0)
    policy = linear_policy(REGALLOC_WEIGHT, ("a", "b"), normaliser, np.array([0.5, -2.0]))
    assert policy.units(np.expm1(np.array([[1.0, 0.0], [1.0, 1.0]]))) == pytest.approx([0.5, -1.5], abs=1e-3)


def test_either_way_of_each_feature_is_among_the_first_policies():
    assert single_weights(2).tolist() == [[1, 0], [0, 1], [-1, 0], [0, -1]]


def test_a_search_goes_on_from_its_state():
    def after(turns: int, state: cma.State) -> cma.State:
        for turn in range(turns):
            tested = cma.ask(state, np.random.default_rng(turn))
            gained = -((tested - [1.0, -2.0]) ** 2).sum(axis=1)
            gained[0] = np.nan
            state = cma.tell(state, tested, gained)
        return state

    state = after(25, cma.start(np.zeros(2), spread=0.5, population=8))
    assert state["centre"] == pytest.approx([1.0, -2.0], abs=0.1)
    copied = {name: value.copy() for name, value in state.items()}
    assert after(1, copied)["centre"].tolist() == after(1, state)["centre"].tolist()
