"""Several steps on one module at once: what each finds is entered beside what the others found meanwhile."""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import CompileRequest
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.testing import FakeCompiler, ToyCall, ToyModule, toy_compiler, toy_source
from mlgokit.tune.loop import run_search
from mlgokit.tune.spaces.inlining.opening import InliningSearch, open_inlining
from mlgokit.tune.spaces.inlining.space import SearchConfig
from mlgokit.tune.spaces.inlining.state import ModuleState, StepResult
from mlgokit.tune.spaces.inlining.step import COMPOSED

NAME = "m"
COUNT = 8
CALLEES = tuple(f"g{place}" for place in range(COUNT))
Weigh = Callable[[tuple[bool, ...]], Mapping[str, int]]
Work = Callable[[], StepResult]


def alternating(inlined: tuple[bool, ...]) -> Mapping[str, int]:
    """Every other call saves ten bytes in its caller, each of the others costs ten."""
    return {f"f{place}": 100 + (10 if place % 2 else -10) * taken for place, taken in enumerate(inlined)}


def opened(
    folder: Path, weigh: Weigh, *, callees: Sequence[str] = CALLEES, most: int = 64, workers: int = 2
) -> InliningSearch:
    toy = ToyModule(
        calls=tuple(
            ToyCall(caller=f"f{place}", callee=callee, site=2 * place + 2, features={"weight": place})
            for place, callee in enumerate(callees)
        ),
        weigh=weigh,
    )
    compiler = dataclasses.replace(toy_compiler({NAME: toy}), workers=workers)
    config = SearchConfig(refits=(), most=most, restarts=4)
    return open_inlining(
        [toy_source(NAME)],
        compiler=compiler,
        config=config,
        objective=Objective.OBJECT_TEXT,
        folder=folder,
        report=say_nothing,
    )


def begun(search: InliningSearch, seed: int) -> Work:
    (unit,) = search.space.units
    return search.space.propose(unit, np.random.default_rng(seed), lambda: False)


def the(search: InliningSearch) -> ModuleState:
    (unit,) = search.space.units
    return unit


def functions(build: Compilation) -> dict[str, int]:
    return dict(zip(build.measured.function_names, build.measured.function_text.tolist(), strict=True))


def test_steps_under_way_make_different_moves_and_both_gains_stay(tmp_path: Path):
    search = opened(tmp_path, alternating, most=COUNT // 2)
    first, second = begun(search, 1), begun(search, 2)
    assert len(the(search).climb.claimed) == COUNT
    one, other = first(), second()
    assert one.made.isdisjoint(other.made)
    assert one.kept
    assert other.kept
    # The one that began later ends first.
    search.space.accept(the(search), other)
    search.space.accept(the(search), one)
    assert not the(search).climb.claimed
    found = the(search).composed
    assert found is not None
    wanted = tuple(place % 2 == 0 for place in range(COUNT))
    assert found.decisions.by_site == {2 * place + 2: taken for place, taken in enumerate(wanted)}
    assert functions(found) == alternating(wanted)
    assert found.measured.totals.text == sum(alternating(wanted).values())
    # Nothing is in the account before it was compiled.
    assert search.space.account.image == 100 * COUNT
    begun_again = begun(search, 3)
    search.space.accept(the(search), begun_again())
    run_search(search, seconds=1e6, workers=2, report=say_nothing, clock=lambda: search.user_seconds)
    assert search.space.account.image == sum(alternating(wanted).values())


def test_two_changes_of_one_function_are_not_both_taken(tmp_path: Path):
    def shared(inlined: tuple[bool, ...]) -> Mapping[str, int]:
        """Each call saves in a function that both change: ten bytes the first one, thirty the second, alone."""
        first, second = inlined
        saved = 10 if first and not second else 30 if second and not first else 0
        return {"f0": 100 - saved, "f1": 100}

    # The second call is of the function that has the first one.
    search = opened(tmp_path, shared, callees=("g0", "f0"), most=1)
    works = [begun(search, seed) for seed in (1, 2)]
    steps = [work() for work in works]
    for step in sorted(steps, key=lambda step: step.saved):
        search.space.accept(the(search), step)
    run_search(search, seconds=1e6, workers=2, report=say_nothing, clock=lambda: search.user_seconds)
    assert search.space.account.image == 170
    assert the(search).build.decisions.by_site == {2: False, 4: True}


def test_of_a_merged_state_that_is_not_what_was_added_up_the_parts_that_are_stay(tmp_path: Path):
    def jealous(inlined: tuple[bool, ...]) -> Mapping[str, int]:
        """Calls save ten bytes each, but the first costs fifty as soon as the second is inlined as well."""
        saved = {f"f{place}": 100 - 10 * taken for place, taken in enumerate(inlined)}
        return saved | ({"f0": 150} if inlined[0] and inlined[1] else {})

    search = opened(tmp_path, jealous, callees=CALLEES[:4], most=2)
    unit = the(search)
    # Each step makes one of the two calls that do not get on.
    seeds = iter(range(100))
    while True:
        works = [begun(search, next(seeds)) for _ in range(2)]
        steps = [work() for work in works]
        if all(len({2, 4} & step.made) == 1 for step in steps):
            break
        unit.climb.claimed.clear()
    for step in steps:
        search.space.accept(unit, step)
    assert unit.composed is not None
    assert unit.composed.measured.totals.text == 360, "what is added up"
    unit.climb.composed_steps = COMPOSED
    search.space.accept(unit, begun(search, 1)())
    assert unit.composed is not None
    assert unit.composed.decisions.by_site == {2: False, 4: True, 6: True, 8: True}
    assert unit.composed.measured.totals.text == 370
    assert search.space.account.image >= 370
    unit.climb.composed_steps = COMPOSED
    search.space.accept(unit, begun(search, 1)())
    assert (search.space.account.image, unit.composed) == (370, None)


def test_a_promise_that_does_not_hold_is_dropped_with_what_was_added_meanwhile(tmp_path: Path):
    broken: list[str] = []
    search = opened(tmp_path, alternating, most=COUNT // 2)
    unit = the(search)
    search.space.accept(unit, begun(search, 1)())
    assert unit.composed is not None
    unit.climb.composed_steps = COMPOSED
    confirm, explore = begun(search, 2), begun(search, 3)
    assert unit.climb.is_confirming
    broken.append("no")
    real = dataclasses.replace(confirm(), build=None, composed=None)
    search.space.accept(unit, explore())
    assert unit.composed is not None
    search.space.accept(unit, real)
    assert (unit.composed, unit.climb.is_confirming) == (None, False)


def test_a_pass_over_the_moves_ends_once_and_with_nobody_beside(tmp_path: Path):
    search = opened(tmp_path, lambda inlined: {f"f{place}": 100 + taken for place, taken in enumerate(inlined)})
    unit, space = the(search), search.space
    first = begun(search, 1)
    second = begun(search, 2)
    # All moves are under way, so the other worker restarts.
    assert second().kind is not None
    space.accept(unit, first())
    end = begun(search, 3)
    assert unit.climb.ends_pass
    assert space.urgency(unit, 1) is None
    space.accept(unit, end())
    assert unit.climb.exhausted
    assert space.urgency(unit, 1) is not None


@dataclasses.dataclass(slots=True)
class Meeting:
    """A compiler whose explorations wait until two are under way."""

    compiler: FakeCompiler
    barrier: threading.Barrier = dataclasses.field(default_factory=lambda: threading.Barrier(2))
    met: int = 0

    def __call__(self, module: Module, request: CompileRequest) -> Compilation:
        if request.use is not None and request.use.decisions:
            try:
                self.barrier.wait(timeout=20 if not self.met else 0.01)
                self.met += 1
            except threading.BrokenBarrierError:
                self.barrier.reset()
        return self.compiler.compile(module, request)


def test_two_workers_search_one_module_together(tmp_path: Path):
    search = opened(tmp_path, alternating, most=2)
    meeting = Meeting(search.space.compiler)  # pyright: ignore[reportArgumentType]
    search.space.compiler = FakeCompiler(answer=meeting, workers=2)
    run_search(search, seconds=40, workers=2, report=say_nothing, clock=lambda: search.user_seconds)
    assert meeting.met
    assert search.space.account.image == 100 * COUNT - 10 * (COUNT // 2)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_search_ends_at_the_same_place_with_any_number_of_workers(tmp_path: Path, workers: int):
    search = opened(tmp_path, alternating, most=2, workers=workers)
    run_search(search, seconds=500, workers=workers, report=say_nothing, clock=lambda: search.user_seconds)
    assert search.space.account.image == 100 * COUNT - 10 * (COUNT // 2)
    assert the(search).build.decisions.by_site == {2 * place + 2: place % 2 == 0 for place in range(COUNT)}
