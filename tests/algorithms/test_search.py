import dataclasses

import numpy as np
from tests.algorithms.builds import build_of

from mlgokit.algorithms.credit import Credit, ScoredBuild, attribute
from mlgokit.algorithms.search import (
    LARGEST_MOVE,
    functions_as_before,
    independent_flips,
    independent_moves,
    judge,
    moves_of,
)


def test_like_decisions_about_one_callee_are_a_move_and_unlike_ones_are_not():
    run = build_of([(1, 9, False), (2, 9, True), (3, 9, False), (4, 8, True)])
    assert moves_of(run) == [(0,), (1,), (2,), (3,), (0, 2)]


def test_a_callee_with_very_many_calls_has_no_move_of_its_own():
    assert (
        len(moves_of(build_of([(caller, 9, False) for caller in range(100, 100 + LARGEST_MOVE + 1)])))
        == LARGEST_MOVE + 1
    )


def test_moves_in_functions_that_are_inlined_into_one_another_are_not_made_together():
    run = build_of([(1, 2, True), (2, 3, False), (1, 4, False), (5, 6, False)])
    moves = [(index,) for index in range(4)]
    # The call in 2 is also in 1, because 2 is inlined there.
    assert independent_moves(run, moves, [1, 2, 3], most=9) == [1, 3]
    assert independent_moves(run, moves, [2, 1, 3], most=9) == [2, 3]


def test_moves_about_one_callee_are_not_made_together():
    run = build_of([(1, 9, False), (2, 9, False)])
    assert independent_moves(run, [(0,), (1,)], [0, 1], most=9) == [0]


def test_no_more_moves_than_asked_for():
    run = build_of([(index, 100 + index, False) for index in range(10)])
    assert independent_moves(run, moves_of(run), range(10), most=3) == [0, 1, 2]


def test_flips_of_a_component_stand_or_fall_together():
    credit = Credit(
        flips=np.arange(4),
        component=np.array([0, 1, 1, 2]),
        change=np.array([-10.0, 3.0, -0.2]),
        unattributed=0.0,
        reached=np.zeros(0, np.int64),
        reached_by=np.zeros(0, np.int64),
    )
    verdict = judge(credit)
    assert verdict.kept.tolist() == [True, False, False, False]
    assert verdict.gain == 10.0


def test_a_real_compilation_has_a_move_in_each_part_that_cannot_meet():
    # 1 is inlined into 2, which 3 calls; 7 stands apart; 5 calls 6 twice.
    caller = np.array([2, 3, 7, 5, 5])
    callee = np.array([1, 2, 4, 6, 6])
    inlined = np.array([True, False, False, False, False])
    run = ScoredBuild(
        caller=caller, callee=callee, inlined=inlined, flipped=~inlined, functions=caller, scores=np.zeros(5)
    )
    seen: set[tuple[int, ...]] = set()
    for seed in range(20):
        given = independent_flips(run, np.arange(0, 10, 2), most=9, seed=seed)
        turned = np.flatnonzero(given.decisions != inlined)
        seen.add(tuple(turned.tolist()))
        # 2 is the caller of the first call and the callee of the second.
        assert not {0, 1} <= set(turned.tolist())
        assert 2 in turned
    # All calls of one callee are a move too.
    assert any({3, 4} <= set(turned) for turned in seen)
    assert any(len({3, 4} & set(turned)) == 1 for turned in seen)
    assert len(independent_flips(run, np.arange(0, 10, 2), most=0, seed=1).decisions) == 5


def composed_of(
    base: list[tuple[int, int, bool]],
    explored: list[tuple[int, int, bool]],
    flipped: set[int],
    *,
    sizes: tuple[dict[int, int], dict[int, int]],
    kept: list[bool],
) -> list[int]:
    """Functions as before; ``flipped`` are positions in ``explored``, ``kept`` goes by them."""

    def weighed(calls: list[tuple[int, int, bool]], sizes: dict[int, int], flips: set[int]) -> ScoredBuild:
        return dataclasses.replace(
            build_of(calls),
            flipped=np.array([position in flips for position in range(len(calls))]),
            functions=np.array(list(sizes), np.int64),
            scores=np.array(list(sizes.values()), float),
        )

    credit = attribute(weighed(base, sizes[0], set()), weighed(explored, sizes[1], flipped))
    return functions_as_before(credit, np.array(kept)).tolist()


def test_of_two_components_the_kept_one_is_as_explored():
    before, after = [(1, 2, False), (3, 4, False)], [(1, 2, True), (3, 4, True)]
    sizes = {1: 50, 2: 20, 3: 60, 4: 20}, {1: 40, 2: 20, 3: 70, 4: 20}
    assert composed_of(before, after, {0, 1}, sizes=sizes, kept=[True, False]) == [3, 4]
    assert composed_of(before, after, {0, 1}, sizes=sizes, kept=[False, True]) == [1, 2]
    assert composed_of(before, after, {0, 1}, sizes=sizes, kept=[True, True]) == []


def test_a_function_that_a_kept_flip_drops_stays_dropped_and_one_that_dies_elsewhere_comes_back():
    before, after = [(1, 2, False), (3, 4, False)], [(1, 2, True), (3, 4, True)]
    sizes = {1: 50, 2: 20, 3: 60, 4: 20}, {1: 55, 3: 90}
    assert composed_of(before, after, {0, 1}, sizes=sizes, kept=[True, False]) == [3, 4]


def test_a_local_callee_that_dies_two_calls_away_goes_with_the_flip_that_moved_its_last_call():
    # Inlining 2 into 1 moved 2's call of 3 into 1, where it was inlined as well.
    before = [(1, 2, False), (2, 3, False), (5, 6, False)]
    after = [(2, 3, False), (1, 2, True), (1, 3, True), (5, 6, True)]
    sizes = {1: 10, 2: 10, 3: 30, 5: 10, 6: 9}, {1: 15, 5: 30, 6: 9}
    assert composed_of(before, after, {1, 3}, sizes=sizes, kept=[True, False]) == [5, 6]
    assert composed_of(before, after, {1, 3}, sizes=sizes, kept=[False, True]) == [1, 2, 3]


def test_what_inlines_the_caller_goes_with_it():
    before, after = [(1, 2, False), (5, 1, True), (6, 7, False)], [(1, 2, True), (5, 1, True), (6, 7, True)]
    sizes = {1: 50, 2: 20, 5: 100, 6: 9}, {1: 60, 2: 20, 5: 112, 6: 8}
    assert composed_of(before, after, {0, 2}, sizes=sizes, kept=[False, True]) == [1, 2, 5]
