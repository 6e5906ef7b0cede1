"""Which functions are why a build executes more: what is inlined counts with the function that it is inlined into."""

import pytest

from mlgokit.compiler.run_costs import FunctionCosts, changes_of_functions

PLAIN = FunctionCosts(
    own={"main": 100, "outer": 60, "inner": 40, "loop": 500},
    calls={("main", "outer"): 10, ("outer", "inner"): 20, ("main", "loop"): 1, ("loop", "loop"): 9},
)
EVERY = {*PLAIN.own, "split"}
"""A call of ``inner`` is worth 2, one of ``outer`` 10; ``loop`` calls itself."""


def test_inlining_that_saves_the_call_is_a_gain_of_the_caller():
    tuned = FunctionCosts(
        own={"main": 130, "inner": 40, "loop": 500},
        calls={("main", "inner"): 20, ("main", "loop"): 1, ("loop", "loop"): 9},
    )

    changes = changes_of_functions(PLAIN, tuned, EVERY)

    assert changes == pytest.approx({"main": -30, "outer": 0, "inner": 0, "loop": 0}, abs=1e-3)


def test_a_function_that_became_slower_is_told_from_its_callers():
    tuned = FunctionCosts(own=dict(PLAIN.own) | {"inner": 60}, calls=PLAIN.calls)

    assert changes_of_functions(PLAIN, tuned, EVERY) == pytest.approx(
        {"main": 0, "outer": 0, "inner": 20, "loop": 0}, abs=1e-3
    )


def test_calls_that_remain_may_be_dear_ones_which_is_due_to_who_calls_less():
    # Twelve of the calls were inlined, and those that are left cost 3 each.
    tuned = FunctionCosts(
        own=dict(PLAIN.own) | {"outer": 68, "inner": 24}, calls=dict(PLAIN.calls) | {("outer", "inner"): 8}
    )

    assert changes_of_functions(PLAIN, tuned, EVERY)["inner"] == pytest.approx(8)
    assert changes_of_functions(PLAIN, tuned, {"outer"})["inner"] == 0
    assert changes_of_functions(PLAIN, tuned, {"outer"})["outer"] == pytest.approx(68 + 24 - 60 - 40)


def test_calls_that_the_plain_build_never_makes_cost_their_caller_what_they_execute():
    tuned = FunctionCosts(
        own=dict(PLAIN.own) | {"main": 90, "split": 30},
        calls=dict(PLAIN.calls) | {("main", "split"): 5},
    )

    changes = changes_of_functions(PLAIN, tuned, EVERY)

    assert changes["main"] == pytest.approx(20)
    assert changes["split"] == pytest.approx(0)


def test_the_changes_of_all_functions_are_that_of_the_run():
    tuned = FunctionCosts(
        own={"main": 77, "outer": 81, "inner": 13, "loop": 450},
        calls={("main", "outer"): 8, ("outer", "inner"): 5, ("main", "loop"): 2, ("loop", "loop"): 6},
    )

    total = sum(changes_of_functions(PLAIN, tuned, EVERY).values())

    assert total == pytest.approx(tuned.instructions - PLAIN.instructions)
