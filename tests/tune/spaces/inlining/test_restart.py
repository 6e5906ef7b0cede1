"""The search over a project with a compiler that adds up what decisions cost: what restarts find, and when it ends."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.request import NEVER
from mlgokit.progress import say_nothing
from mlgokit.testing import ToyCall, ToyModule, toy_compiler, toy_source
from mlgokit.traces.function_id import function_id
from mlgokit.tune.loop import NOTHING_LEFT, OVER, run_search
from mlgokit.tune.spaces.inlining.opening import InliningSearch, open_inlining, try_on_all
from mlgokit.tune.spaces.inlining.restart import ArmStatistics, choose_restart, restart
from mlgokit.tune.spaces.inlining.space import SearchConfig
from mlgokit.tune.spaces.inlining.state import RestartKind, StepResult
from mlgokit.tune.spaces.inlining.step import MovePriority, compile_decided, indifferent, merge, request_of

CALLERS = ("one", "two", "three")
CALLS = tuple((caller, callee) for caller in CALLERS for callee in ("first", "second"))
"""Each of the callers calls the same two functions."""
Weigh = Callable[[tuple[bool, ...]], tuple[int, ...]]
"""From all decisions, the bytes of each caller."""


def key_of(call: int) -> int:
    # Small numbers would give different moves the same key.
    return function_id(str(call)) & (2**63 - 2)


def toy(weigh: Weigh, never: tuple[bool, ...] = (False,) * len(CALLS)) -> ToyModule:
    """The heuristic inlines nothing; the rule ``never`` does what it is told here."""
    calls = tuple(
        ToyCall(caller=caller, callee=callee, site=key_of(place)) for place, (caller, callee) in enumerate(CALLS)
    )
    return ToyModule(
        calls=calls, weigh=lambda inlined: dict(zip(CALLERS, weigh(inlined), strict=True)), rules={NEVER: never}
    )


def build(weigh: Weigh, inlined: tuple[bool, ...]) -> Compilation:
    decisions = {key_of(place): taken for place, taken in enumerate(inlined)}
    return compile_decided(toy_compiler({"m": toy(weigh)}), toy_source("m"), decisions)


def stuck(_inlined: tuple[bool, ...]) -> tuple[int, ...]:
    """Nothing matters."""
    return 100, 100, 100


def together(inlined: tuple[bool, ...]) -> tuple[int, ...]:
    """Either of the two calls of a function alone costs 5 bytes, both save 10."""
    pairs = zip(inlined[::2], inlined[1::2], strict=True)
    return tuple(100 - 10 if one and other else 100 + 5 * (one or other) for one, other in pairs)


def alone(inlined: tuple[bool, ...]) -> tuple[int, ...]:
    """The first function gets smaller by what makes the second one much larger."""
    return 100 - 10 * sum(inlined[:2]), 100 + 50 * sum(inlined[2:4]), 100


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., InliningSearch]:
    """``opened(m=toy(...), restarts=...)``: a search of these modules, just opened, its clock at 0."""
    count = [0]

    def make(restarts: int = 200, **modules: ToyModule) -> InliningSearch:
        count[0] += 1
        search = open_inlining(
            [toy_source(name) for name in modules],
            compiler=toy_compiler(modules),
            config=SearchConfig(refits=(), restarts=restarts),
            folder=tmp_path / str(count[0]),
            report=say_nothing,
        )
        search.user_seconds, search.compilations = 0.0, 0
        search.curve.clear()
        return search

    return make


def go(search: InliningSearch, seconds: float) -> None:
    run_search(search, seconds=seconds, workers=1, report=say_nothing, clock=lambda: search.user_seconds)


def test_what_must_be_decided_together_is_found_by_restarts_only(opened: Callable[..., InliningSearch]):
    alone = opened(m=toy(together), restarts=0)
    go(alone, 1000)
    assert (alone.space.account.image, alone.ended) == (300, NOTHING_LEFT)
    freed = opened(m=toy(together), restarts=40)
    go(freed, 1000)
    assert (freed.space.account.image, freed.ended) == (270, NOTHING_LEFT)
    assert freed.user_seconds < 1000


def test_a_search_that_goes_on_never_gets_larger(opened: Callable[..., InliningSearch]):
    search = opened(m=toy(together))
    go(search, 60)
    least = [point.score for point in search.curve]
    assert least == sorted(least, reverse=True)


def test_a_module_that_cannot_get_smaller_takes_no_time_from_the_others(opened: Callable[..., InliningSearch]):
    search = opened(a=toy(stuck), b=toy(together), restarts=10**6)
    go(search, 200)
    assert search.space.account.image == 300 + 270


def test_the_budget_ends_restarts_as_well(opened: Callable[..., InliningSearch]):
    search = opened(m=toy(stuck), restarts=10**6)
    go(search, 200)
    assert search.ended == OVER
    # What runs when the time is over ends with the compilation in flight.
    assert search.user_seconds < 203


def test_restarts_in_vain_are_counted_until_there_are_enough(opened: Callable[..., InliningSearch]):
    search = opened(m=toy(lambda inlined: (100 + sum(inlined), 100, 100)), restarts=30)
    go(search, 10_000)
    assert search.ended == NOTHING_LEFT
    assert search.space.modules["m"].vain_restarts == 30
    assert set(search.space.arms) == set(RestartKind)


def test_a_module_that_a_judge_reverted_too_often_is_left_alone(opened: Callable[..., InliningSearch]):
    search = opened(m=toy(together), restarts=5)
    search.space.modules["m"].reverted = 5
    go(search, 1000)
    assert (search.space.account.image, search.ended, search.space.arms) == (300, NOTHING_LEFT, {})


def test_a_worse_rule_gives_its_good_parts(opened: Callable[..., InliningSearch]):
    search = opened(m=toy(alone, never=(True, True, True, True, False, False)))
    try_on_all(search, request_of(policy=NEVER), units=search.space.units, report=say_nothing, label="never")
    assert search.space.account.image == 280
    assert search.space.modules["m"].build.decisions.inlined.tolist() == [True, True, False, False, False, False]
    assert search.compilations == 2


def begun_anew(search: InliningSearch, kind: RestartKind, seed: int) -> StepResult:
    return restart(
        search.space.compiler,
        search.space.modules["m"],
        search.space.account,
        kind=kind,
        priority=MovePriority(rank=indifferent, noise=8.0, most=64, tries=1),
        rng=np.random.default_rng(seed),
        is_over=lambda: False,
    )


def test_single_callers_are_decided_as_in_a_build_that_is_larger_as_a_whole(opened: Callable[..., InliningSearch]):
    search = opened(m=toy(together))
    assert begun_anew(search, RestartKind.OTHERS, 1).compilations == 0
    other = build(together, (True, True, True, True, True, False))
    search.space.modules["m"].others = [other.decisions.sites | other.decisions.inlined.astype(np.uint64)]
    found = [
        done.build for seed in range(8) if (done := begun_anew(search, RestartKind.OTHERS, seed)).build is not None
    ]
    pairs = {tuple(one.decisions.inlined.tolist()) for one in found}
    assert pairs
    assert pairs <= {(True, True, False, False, False, False), (False, False, True, True, False, False)}


def moved(found: Compilation, key: int) -> Compilation:
    """The fifth call site has another key."""
    sites = found.decisions.sites.copy()
    sites[4] = key
    return dataclasses.replace(found, decisions=dataclasses.replace(found.decisions, site=sites))


def test_call_sites_of_either_build_keep_their_decisions_when_merged(opened: Callable[..., InliningSearch]):
    search = opened(m=toy(alone))
    best, other = build(alone, (False,) * 6), build(alone, (True, False, True, False, False, False))
    merged = merge(moved(best, 1000), moved(other, 2000), search.space.account, "m")
    assert (merged.differing, merged.taken, merged.is_new) == (2, 1, True)
    assert merged.decisions == {
        key_of(0): True,
        **dict.fromkeys([*map(key_of, (1, 2, 3, 5)), 1000, 2000], False),
    }


def test_a_restart_that_compiles_nothing_new_says_so(opened: Callable[..., InliningSearch]):
    search = opened(m=toy(stuck))
    for kind in RestartKind:
        done = begun_anew(search, kind, 1)
        assert (done.build, done.kept) == (None, 0)
        assert done.user_seconds == done.compilations


def test_kinds_are_drawn_by_what_they_gave_and_none_is_forgotten():
    rng = np.random.default_rng(1)
    tallies: dict[RestartKind, ArmStatistics] = {}
    for _ in RestartKind:
        tallies.setdefault(choose_restart(tallies, rng), ArmStatistics()).enter(0.0, 1.0)
    assert set(tallies) == set(RestartKind)
    tallies[RestartKind.PAIRS].enter(100.0, 1.0)
    drawn = [choose_restart(tallies, rng) for _ in range(300)]
    assert set(drawn) == set(RestartKind)
    assert drawn.count(RestartKind.PAIRS) > 150
    for _ in range(99):
        tallies[RestartKind.PAIRS].enter(0.0, 1.0)
    tallies[RestartKind.CALLERS].enter(1.0, 1.0)
    drawn = [choose_restart(tallies, rng) for _ in range(300)]
    assert drawn.count(RestartKind.CALLERS) > 150


def test_a_kind_that_takes_longer_is_drawn_less_often():
    tallies = {kind: ArmStatistics() for kind in RestartKind}
    for kind, tally in tallies.items():
        tally.enter(0.0, 9.0 if kind is RestartKind.NEIGHBOURHOOD else 1.0)
    drawn = [choose_restart(tallies, np.random.default_rng(seed)) for seed in range(300)]
    assert 0 < drawn.count(RestartKind.NEIGHBOURHOOD) < 30
