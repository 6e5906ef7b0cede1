import numpy as np
from tests.algorithms.builds import build_of

from mlgokit.algorithms.moves import chains, draw_halves, like_decisions, neighbourhood, related_pairs


def test_related_pairs_join_two_groups_that_share_a_caller():
    run = build_of([(1, 8, False), (1, 9, False), (2, 9, False), (3, 7, True)])
    assert {frozenset(move) for move in related_pairs(run, np.random.default_rng(1))} == {frozenset({0, 1, 2})}


def test_a_chain_is_a_callee_with_calls_inside_it():
    run = build_of([(1, 5, False), (2, 5, False), (5, 6, True), (5, 7, False)])
    found = {frozenset(move) for move in chains(run, np.random.default_rng(1))}
    assert {frozenset({0, 1, 2}), frozenset({0, 1, 3})} <= found
    assert all({0, 1} <= move for move in found)


def test_a_function_that_calls_itself_has_each_decision_once_in_a_chain():
    run = build_of([(5, 5, False), (1, 5, False), (5, 6, False)])
    assert all(len(set(move)) == len(move) for move in chains(run, np.random.default_rng(1)))


def test_like_decisions_in_one_caller_are_a_group():
    run = build_of([(1, 5, False), (1, 6, False), (1, 7, True), (2, 5, False)])
    assert like_decisions(run, by_caller=True) == [(0, 1), (2,), (3,)]


def test_halves_have_members_of_their_group_only_and_at_least_two():
    halves = draw_halves([tuple(range(8)), (8,), (9, 10, 11)], np.random.default_rng(2))
    assert all(len(half) > 1 and (set(half) <= set(range(8)) or set(half) <= {9, 10, 11}) for half in halves)


def test_a_neighbourhood_is_as_large_as_asked_for_and_stays_in_its_part_of_the_call_graph():
    run = build_of([(index, index + 1, False) for index in range(20)] + [(50, 51, False)])
    for seed in range(9):
        found = neighbourhood(run, 6, np.random.default_rng(seed))
        assert found == (20,) or (len(set(found)) == len(found) == 6 and max(found) - min(found) < 11)
