"""Credit: changes go to the flips that explain them, and only to those."""

import numpy as np

from mlgokit.algorithms.credit import ScoredBuild, attribute


def compiled(edges: list[tuple[int, int, bool, bool]], scores: dict[int, float]) -> ScoredBuild:
    """Edges are (caller, callee, inlined, flipped)."""
    return ScoredBuild(
        caller=np.array([edge[0] for edge in edges], np.int64),
        callee=np.array([edge[1] for edge in edges], np.int64),
        inlined=np.array([edge[2] for edge in edges], bool),
        flipped=np.array([edge[3] for edge in edges], bool),
        functions=np.array(list(scores), np.int64),
        scores=np.array(list(scores.values())),
    )


def test_flips_that_touch_nothing_in_common_are_two_components() -> None:
    base = compiled([(1, 2, False, False), (3, 4, False, False)], {1: 50, 2: 20, 3: 60, 4: 20})
    explored = compiled([(1, 2, True, True), (3, 4, True, True)], {1: 65, 3: 55, 4: 20})
    credit = attribute(base, explored)
    assert credit.component.tolist() == [0, 1]
    # Function 2 died with its last call, which is the first flip's doing.
    assert credit.change.tolist() == [15 - 20, -5]
    assert credit.unattributed == 0


def test_a_change_flows_into_the_functions_that_inline_the_caller() -> None:
    base = compiled([(1, 2, False, False), (5, 1, True, False)], {1: 50, 2: 20, 5: 100})
    explored = compiled([(1, 2, True, True), (5, 1, True, False)], {1: 60, 2: 20, 5: 112})
    assert attribute(base, explored).change.tolist() == [22]


def test_flips_in_one_caller_share_a_component() -> None:
    base = compiled([(1, 2, False, False), (1, 3, False, False)], {1: 50, 2: 9, 3: 9})
    explored = compiled([(1, 2, True, True), (1, 3, True, True)], {1: 58, 2: 9, 3: 9})
    credit = attribute(base, explored)
    assert credit.component.tolist() == [0, 0]
    assert credit.change.tolist() == [8]


def test_a_callee_that_dies_two_calls_away_is_explained_by_the_call_edge() -> None:
    # Inlining 2 into 1 moved 2's call of 3 into 1, where it was inlined as well: 3 died.
    base = compiled([(1, 2, False, False), (2, 3, False, False)], {1: 10, 2: 10, 3: 30})
    explored = compiled([(2, 3, False, False), (1, 2, True, True), (1, 3, True, False)], {1: 15})
    credit = attribute(base, explored)
    assert credit.change.tolist() == [5 - 10 - 30]
    assert credit.unattributed == 0


def test_what_no_flip_explains_is_counted_apart() -> None:
    base = compiled([(1, 2, False, False)], {1: 10, 2: 10, 9: 30})
    explored = compiled([(1, 2, True, True)], {1: 12, 2: 10, 9: 33})
    credit = attribute(base, explored)
    assert credit.change.tolist() == [2]
    assert credit.unattributed == 3


def test_no_flip_gives_no_component() -> None:
    base = compiled([(1, 2, False, False)], {1: 10})
    assert len(attribute(base, base).change) == 0


def test_what_llvm_inlines_as_a_consequence_ties_the_flip_to_those_that_change_the_caller() -> None:
    # Function 3 inlines 2 without a flip, since the flip in 1 leaves it the last call; something is flipped in 3 too.
    edges = [(1, 2, False, False), (3, 2, False, False), (3, 4, False, False)]
    base = compiled(edges, {1: 50, 2: 20, 3: 60, 4: 20})
    explored = compiled([(1, 2, True, True), (3, 2, True, False), (3, 4, True, True)], {1: 55, 3: 90, 4: 20})
    alone = attribute(base, explored)
    assert sorted(alone.change.tolist()) == [5 - 20, 30], "the first flip seems to save 15 bytes"
    tied = attribute(base, explored, ties_consequences=True)
    assert tied.component.tolist() == [0, 0]
    assert tied.change.tolist() == [15]
    assert {1, 2, 3} <= set(tied.reached.tolist())


def test_a_call_that_was_inlined_before_is_no_consequence() -> None:
    base = compiled([(1, 2, False, False), (3, 2, True, False), (3, 4, False, False)], {1: 50, 2: 20, 3: 60, 4: 9})
    explored = compiled([(1, 2, True, True), (3, 2, True, False), (3, 4, True, True)], {1: 55, 3: 63, 4: 9})
    assert attribute(base, explored, ties_consequences=True).component.tolist() == [0, 1]
