import dataclasses
import io

import pytest
from rich.console import Console

from mlgokit.tune.allocation.check import AllocationCheckResult, CheckedAllocationModule
from mlgokit.tune.allocation.render import allocations_verdict, print_allocation_check

MODULE = CheckedAllocationModule(
    name="a/one.o",
    functions=3,
    allocated=2,
    worse=(),
    plain_score=60.0,
    tuned_score=54.0,
    plain_text=500,
    tuned_text=512,
)
KEPT = AllocationCheckResult(
    plugin="tuned.so",
    modules=(MODULE,),
    failures={"a/bad.o": "plainly: the compiler reported an error: why"},
    allocations=4,
    allocations_kept=3,
    promised_change=-0.1,
    plain_score=60.0,
    tuned_score=54.0,
    mean_change=-0.05,
    left_out={"b.c": "why not"},
)


def test_the_verdict_says_what_is_kept_and_what_to_do():
    assert allocations_verdict(KEPT) == (
        "3 of 4 allocated functions (75 %) are as they were, the sum of costs changes by -10.0 %, -10.0 % when it was "
        "tuned: tuning again can wait"
    )
    lost = dataclasses.replace(KEPT, tuned_score=57.0)
    assert allocations_verdict(lost).endswith(
        "tuning again is worth it: `mlgokit tune --objective spill-cost --start tuned.so`"
    )


@pytest.mark.parametrize(("promised", "again"), [(None, False), (-0.1, False), (-0.12, False), (-0.13, True)], ids=str)
def test_a_fifth_of_the_promise_may_be_lost(promised: float | None, again: bool):
    assert dataclasses.replace(KEPT, promised_change=promised).tune_again is again


def test_a_function_that_costs_more_is_named_and_reason_enough():
    worse = dataclasses.replace(KEPT, modules=(dataclasses.replace(MODULE, worse=("f", "g")),))
    assert worse.tune_again
    text = io.StringIO()
    print_allocation_check(worse, Console(file=text, width=200))
    for words in ("costs more than plain in a/one.o: f, g", "-10.00 %", "+12", "does not compile: a/bad.o", "b.c"):
        assert words in text.getvalue()


def test_without_functions_nothing_is_lost():
    nothing = dataclasses.replace(KEPT, allocations=0, allocations_kept=0, plain_score=0.0, tuned_score=0.0)
    assert (nothing.share, nothing.change) == (1, 0)
