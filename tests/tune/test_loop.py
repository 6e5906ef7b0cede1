"""The search over a project with a compiler that adds up what decisions cost: what restarts find, and when it ends."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler.compile import HEURISTIC, NEVER
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.function_id import function_id
from mlgokit.compiler.objects.measure import Objective, ObjectSizes, SectionTotals
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.tune import project as projects, restart as restarts, search as searches
from mlgokit.tune.loop import NOTHING_LEFT, OVER, run_search
from mlgokit.tune.merge import merge
from mlgokit.tune.project import Search, SearchConfig, try_policy
from mlgokit.tune.restart import ArmStatistics, RestartKind, choose_restart, restart
from mlgokit.tune.search import ModuleState, MovePriority, StepResult, indifferent
from mlgokit.tune.state import Build

CALLERS = ("one", "two", "three")
CALLS = tuple((caller, callee) for caller in range(len(CALLERS)) for callee in range(2))
"""Each of the callers calls the same two functions."""
Weigh = Callable[[tuple[bool, ...]], tuple[int, ...]]
"""From all decisions, the bytes of each caller."""


def key_of(call: int) -> int:
    # Small numbers would give different moves the same key.
    return function_id(str(call)) & (2**63 - 2)


def sizes(texts: tuple[int, ...]) -> ObjectSizes:
    none = np.zeros(len(texts), np.int64)
    return ObjectSizes(
        totals=SectionTotals(text=sum(texts), rodata=0, eh_frame=0, data=0, bss=0, except_table=0),
        function_names=CALLERS,
        function_text=np.array(texts, np.int64),
        function_rodata=none,
        function_except_table=none,
        function_eh_frame=none,
        function_signature=none - 1,
        signatures=(),
        signature_rest=np.zeros((0, 3), np.int64),
        signature_data=np.zeros(0, np.int64),
        rest=np.zeros(3, np.int64),
    )


def build(weigh: Weigh, inlined: tuple[bool, ...]) -> Build:
    return Build(
        sizes=sizes(weigh(inlined)),
        site=np.array([key_of(call) for call in range(len(CALLS))], np.uint64),
        caller=np.array([function_id(CALLERS[caller]) for caller, _ in CALLS]),
        callee=np.array([100 + callee for _, callee in CALLS]),
        inlined=np.array(inlined),
        names=(),
        values=np.zeros((len(CALLS), 0), np.int64),
        user_seconds=1.0,
    )


@dataclass(slots=True)
class FakeBench:
    """The heuristic inlines nothing; the rule ``never`` does what it is told here; in one module nothing matters."""

    weigh: Weigh
    never: tuple[bool, ...] = (False,) * len(CALLS)
    stuck: str = ""
    compiled: list[dict[int, bool]] = field(default_factory=list[dict[int, bool]])

    def compile(
        self, module: Module, *, decisions: Mapping[int, bool] | None = None, policy: str = HEURISTIC, **_: object
    ) -> Any:
        rule = self.never if policy == NEVER else (False,) * len(CALLS)
        known = decisions or {}
        inlined = tuple(known.get(key_of(call), rule[call]) for call in range(len(CALLS)))
        self.compiled.append(dict(known))
        weigh = self.weigh if module.name != self.stuck else lambda _: (100, 100, 100)
        return SimpleNamespace(user_seconds=1.0, build=build(weigh, inlined))

    def rest(self) -> None:
        pass


def together(inlined: tuple[bool, ...]) -> tuple[int, ...]:
    """Either of the two calls of a function alone costs 5 bytes, both save 10."""
    pairs = zip(inlined[::2], inlined[1::2], strict=True)
    return tuple(100 - 10 if one and other else 100 + 5 * (one or other) for one, other in pairs)


def alone(inlined: tuple[bool, ...]) -> tuple[int, ...]:
    """The first function gets smaller by what makes the second one much larger."""
    return 100 - 10 * sum(inlined[:2]), 100 + 50 * sum(inlined[2:4]), 100


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Search]:
    """``opened(bench, names=("m",), restarts=...)``: a search, just opened."""
    for module in (searches, projects, restarts):
        monkeypatch.setattr(module, "build_of", lambda result: result.build)

    def make(bench: FakeBench, *, names: tuple[str, ...] = ("m",), **config: Any) -> Search:
        start = build(bench.weigh, (False,) * len(CALLS))
        modules = [
            Module(name=name, project="p", language="c++", bitcode=Path(), command_line=("-cc1",), bitcode_bytes=1)
            for name in names
        ]
        account = account_of(names, dict.fromkeys(names, start.sizes), objective=Objective.LINK_AWARE)
        search = Search(
            folder=tmp_path,
            bench=bench,  # type: ignore[arg-type]
            config=SearchConfig(refits=(), **config),
            modules={one.name: ModuleState(module=one, plain=start.sizes, build=start) for one in modules},
            failures={},
            account=account,
            plain_bytes=account.image,
        )
        search.mark()
        return search

    return make


def go(search: Search, seconds: float) -> None:
    run_search(search, seconds=seconds, workers=1, report=say_nothing, clock=lambda: search.user_seconds)


def test_what_must_be_decided_together_is_found_by_restarts_only(opened: Callable[..., Search]):
    stuck = opened(FakeBench(weigh=together), restarts=0)
    go(stuck, 1000)
    assert (stuck.account.image, stuck.ended) == (300, NOTHING_LEFT)
    freed = opened(FakeBench(weigh=together), restarts=40)
    go(freed, 1000)
    assert (freed.account.image, freed.ended) == (270, NOTHING_LEFT)
    assert freed.user_seconds < 1000


def test_a_search_that_goes_on_never_gets_larger(opened: Callable[..., Search]):
    search = opened(FakeBench(weigh=together))
    go(search, 60)
    least = [point.bytes for point in search.curve]
    assert least == sorted(least, reverse=True)


def test_a_module_that_cannot_get_smaller_takes_no_time_from_the_others(opened: Callable[..., Search]):
    search = opened(FakeBench(weigh=together, stuck="a"), names=("a", "b"), restarts=10**6)
    go(search, 200)
    assert search.account.image == 300 + 270


def test_the_budget_ends_restarts_as_well(opened: Callable[..., Search]):
    search = opened(FakeBench(weigh=lambda _: (100, 100, 100)), restarts=10**6)
    go(search, 200)
    assert search.ended == OVER
    # What runs when the time is over ends with the compilation in flight.
    assert search.user_seconds < 203


def test_restarts_in_vain_are_counted_until_there_are_enough(opened: Callable[..., Search]):
    search = opened(FakeBench(weigh=lambda inlined: (100 + sum(inlined), 100, 100)), restarts=30)
    go(search, 10_000)
    assert search.ended == NOTHING_LEFT
    assert search.modules["m"].vain == 30
    assert set(search.tallies) == set(RestartKind)


def test_a_module_that_a_judge_refused_too_often_is_left_alone(opened: Callable[..., Search]):
    search = opened(FakeBench(weigh=together), restarts=5)
    search.modules["m"].refused = 5
    go(search, 1000)
    assert (search.account.image, search.ended, search.tallies) == (300, NOTHING_LEFT, {})


def test_a_worse_rule_gives_its_good_parts(opened: Callable[..., Search]):
    bench = FakeBench(weigh=alone, never=(True, True, True, True, False, False))
    search = opened(bench)
    try_policy(search, NEVER, workers=1, report=say_nothing)
    assert search.account.image == 280
    assert search.modules["m"].build.inlined.tolist() == [True, True, False, False, False, False]
    assert (len(bench.compiled), search.compilations) == (2, 2)


def begun_anew(search: Search, kind: RestartKind, seed: int) -> StepResult:
    return restart(
        search.bench,
        search.modules["m"],
        search.account,
        kind=kind,
        lock=search.lock,
        order=MovePriority(rank=indifferent, noise=8.0, most=64, tries=1),
        rng=np.random.default_rng(seed),
        is_over=lambda: False,
    )


def test_single_callers_are_decided_as_in_a_build_that_is_larger_as_a_whole(opened: Callable[..., Search]):
    search = opened(FakeBench(weigh=together))
    assert begun_anew(search, RestartKind.OTHERS, 1).compilations == 0
    other = build(together, (True, True, True, True, True, False))
    search.modules["m"].others = [other.site | other.inlined.astype(np.uint64)]
    found = [
        done.build for seed in range(8) if (done := begun_anew(search, RestartKind.OTHERS, seed)).build is not None
    ]
    pairs = {tuple(one.inlined.tolist()) for one in found}
    assert pairs
    assert pairs <= {(True, True, False, False, False, False), (False, False, True, True, False, False)}


def test_call_sites_of_either_build_keep_their_decisions_when_merged(opened: Callable[..., Search]):
    search = opened(FakeBench(weigh=alone))
    best, other = build(alone, (False,) * 6), build(alone, (True, False, True, False, False, False))
    only_here, only_there = best.site.copy(), other.site.copy()
    only_here[4], only_there[4] = 1000, 2000
    best = dataclasses.replace(best, site=only_here)
    other = dataclasses.replace(other, site=only_there)
    merged = merge(best, other, search.account, "m")
    assert (merged.differing, merged.taken, merged.is_new) == (2, 1, True)
    assert merged.decisions == {
        key_of(0): True,
        **dict.fromkeys([*map(key_of, (1, 2, 3, 5)), 1000, 2000], False),
    }


def test_a_restart_that_compiles_nothing_new_says_so(opened: Callable[..., Search]):
    search = opened(FakeBench(weigh=lambda _: (100, 100, 100)))
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
