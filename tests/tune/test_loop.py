"""The engine over a space that knows neither inlining nor registers: numbers that get smaller when they are tried."""

import dataclasses
import json
import threading
from collections.abc import Callable, Collection, Hashable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.request import CompileRequest
from mlgokit.errors import ToolError
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source
from mlgokit.tune import verify as verification
from mlgokit.tune.loop import NOTHING_LEFT, OVER, YIELDED, YieldRule, run_search
from mlgokit.tune.search import Search
from mlgokit.tune.space import IsOver, PendingWork, Score
from mlgokit.tune.verify import VerifiedBuild, Verifier, verify


@dataclasses.dataclass(slots=True, kw_only=True)
class Number:
    module: Module
    plain: int
    least: int
    now: int = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Halved:
    value: int
    user_seconds: float = 1.0
    compilations: int = 1
    trials: int = 3


@dataclasses.dataclass(slots=True, kw_only=True)
class Numbers:
    """A step halves how far a number is from the least that it can be; each leaves pending work."""

    units: Sequence[Number]
    log: list[str] = dataclasses.field(default_factory=list[str])
    predicted: list[Number] = dataclasses.field(default_factory=list[Number])
    seconds: float = 1.0

    @property
    def score(self) -> Score:
        now = sum(one.now for one in self.units)
        return Score(value=now, change=now / sum(one.plain for one in self.units) - 1)

    @property
    def pending(self) -> Sequence[PendingWork[Number, Halved]]:
        return [
            PendingWork(unit=one, run=lambda one=one: Halved(value=one.now, trials=0), seconds=1.0)
            for one in self.predicted
        ]

    def prepare(self, spent: float, _seconds: float, _rng: np.random.Generator) -> float:
        return 0.5 if spent == 0 else 0.0

    def urgency(self, unit: Number, running: int) -> tuple[float, ...] | None:
        return (unit.least - unit.now,) if unit.now > unit.least and not running else None

    def step_seconds(self, unit: Number) -> float:  # noqa: ARG002  (of the protocol)
        return self.seconds

    def propose(self, unit: Number, _rng: np.random.Generator, _is_over: IsOver) -> Callable[[], Halved]:
        self.log.append(unit.module.name)
        return lambda: Halved(value=unit.least + (unit.now - unit.least) // 2)

    def accept(self, unit: Number, step: Halved) -> None:
        if step.trials:
            self.predicted.append(unit)
        else:
            self.predicted.remove(unit)
        unit.now = step.value

    def close(self) -> None:
        self.log.append("close")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumberTable:
    """The numbers that became smaller, by name; ``objects`` against all of them if told so."""

    units: Sequence[Number]
    objects: bool = False

    @property
    def kind(self) -> str:
        return "decisions"

    def entries(self) -> Collection[str]:
        return {one.module.name for one in self.units if one.now < one.plain}

    def write(self, path: Path, kept: Collection[Hashable]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(sorted(map(str, kept))))

    def refuted(
        self, before: VerifiedBuild, after: VerifiedBuild, kept: Collection[Hashable]
    ) -> dict[str, tuple[Collection[Hashable], str]]:
        first, second = before.sizes, after.sizes
        grown = [name for name in second if second[name].llvm_size_text > first[name].llvm_size_text]
        return {name: ((name,), "it grew") for name in grown if name in kept}

    def objection(self, before: VerifiedBuild, after: VerifiedBuild) -> str:
        return "by and large" if self.objects and after is not before else ""

    def entries_of(self, modules: Collection[str]) -> Collection[str]:
        return modules


def numbers(folder: Path, **least: int) -> Search[Numbers]:
    folder.mkdir(exist_ok=True)
    units = [Number(module=toy_source(name), plain=100, least=value) for name, value in least.items()]
    return Search(folder=folder, space=Numbers(units=units), seed=1)


def go(search: Search[Numbers], seconds: float) -> None:
    spent = search.user_seconds
    run_search(search, seconds=seconds, workers=1, report=say_nothing, clock=lambda: search.user_seconds - spent)


@pytest.mark.parametrize(
    ("after", "rate", "ended", "left"),
    [(0.0, 20.0, YIELDED, 12), (0.0, 60.0, YIELDED, 50), (30.0, 60.0, NOTHING_LEFT, 0), (0.0, 0.0, NOTHING_LEFT, 0)],
)
def test_a_search_gives_way_when_no_unit_gains_as_much_as_others_will(
    tmp_path: Path, after: float, rate: float, ended: str, left: int
):
    search = numbers(tmp_path, a=0, b=98)
    run_search(
        search,
        seconds=1000,
        workers=1,
        report=say_nothing,
        yield_rule=YieldRule(after=after, rate=rate),
        clock=lambda: search.user_seconds,
    )

    assert search.ended == ended
    assert max(one.now - one.least for one in search.space.units) == left


def test_the_most_urgent_unit_comes_first_until_nothing_is_left(tmp_path: Path):
    search = numbers(tmp_path, a=99, b=92)
    go(search, 1000)
    assert search.space.log == ["b", "b", "b", "a", "b", "close"]
    assert (search.ended, search.space.score.value) == (NOTHING_LEFT, 99 + 92)
    # One second for each step and each pending work, and half a one to prepare.
    assert (search.compilations, search.trials, search.user_seconds) == (10, 15, 10.5)
    assert search.curve[-1].score == 99 + 92


@pytest.mark.parametrize(
    ("step", "ended", "steps"), [(6.0, OVER, 2), (7.0, OVER, 1), (21.0, OVER, 1), (0.1, NOTHING_LEFT, 7)]
)
def test_a_step_begins_if_half_of_it_fits_into_the_budget(tmp_path: Path, step: float, ended: str, steps: int):
    search = numbers(tmp_path, a=0)
    search.space.seconds = step

    def clock() -> float:
        # A step takes as long as it was expected to.
        return step * (len(search.space.log) - search.space.log.count("close"))

    run_search(search, seconds=10, workers=1, report=say_nothing, clock=clock)
    assert (search.ended, search.space.log.count("a")) == (ended, steps)


@pytest.mark.parametrize(("rounds", "done"), [(3, 3), (9, 4)])
def test_pending_work_that_leaves_more_is_done_too_up_to_a_bound(tmp_path: Path, rounds: int, done: int):
    @dataclasses.dataclass(slots=True, kw_only=True)
    class Remaining(Numbers):
        done: int = 0

        @property
        def pending(self) -> Sequence[PendingWork[Number, Halved]]:
            (one,) = self.units
            work = PendingWork(unit=one, run=lambda: Halved(value=one.now, trials=0), seconds=0.0)
            return [work] if self.done < rounds else []

        def accept(self, unit: Number, step: Halved) -> None:
            self.done += not step.trials
            unit.now = step.value

    space = Remaining(units=[Number(module=toy_source("a"), plain=100, least=99)])
    run_search(Search(folder=tmp_path, space=space, seed=1), seconds=1000, workers=1, report=say_nothing)
    assert space.done == done


def test_workers_that_come_during_a_search_work_at_once(tmp_path: Path):
    met = threading.Barrier(3)

    class Crew:
        workers = 1

    crew = Crew()

    @dataclasses.dataclass(slots=True, kw_only=True)
    class Meeting(Numbers):
        def propose(self, unit: Number, _rng: np.random.Generator, _is_over: IsOver) -> Callable[[], Halved]:
            self.log.append(unit.module.name)
            steps = len(self.log)

            def step() -> Halved:
                if steps == 1:
                    crew.workers = 3
                elif steps <= 4:
                    # They end only if all three run at once.
                    met.wait(60)
                return Halved(value=unit.least + (unit.now - unit.least) // 2)

            return step

    units = [Number(module=toy_source(name), plain=100, least=0) for name in "abc"]
    search = Search(folder=tmp_path, space=Meeting(units=units), seed=1)
    run_search(search, seconds=1000, workers=crew, report=say_nothing, clock=lambda: search.user_seconds)
    assert search.ended == NOTHING_LEFT


def test_the_budget_keeps_time_for_pending_work(tmp_path: Path):
    search = numbers(tmp_path, a=0)
    go(search, 5.5)
    assert search.ended == OVER
    # Half a second, then steps as long as there is time for the pending work.
    assert search.user_seconds <= 6.5
    assert not search.space.predicted


def test_a_session_goes_on_with_what_earlier_ones_spent(tmp_path: Path):
    first = numbers(tmp_path, a=0, b=0)
    go(first, 20)
    second = numbers(tmp_path, a=0, b=0)
    second.recall()
    assert (second.compilations, second.trials) == (first.compilations, first.trials)
    assert second.curve == first.curve
    # Folders of earlier versions said bytes, and had no trials.
    point = {"user_seconds": 3.0, "wall_seconds": 2.0, "compilations": 10**6, "bytes": 7.0}
    (tmp_path / "curve.json").write_text(json.dumps([point]))
    third = numbers(tmp_path, a=0, b=0)
    third.recall()
    assert (third.curve[0].score, third.compilations) == (7.0, 10**6)
    (tmp_path / "curve.json").write_text("[{")
    damaged = numbers(tmp_path, a=0)
    damaged.recall()
    assert damaged.curve == []
    assert damaged.compilations == first.compilations


@pytest.fixture
def verifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verifier]:
    """``verifier(a=90)``: modules of 100 bytes, which have so many with the plugin if they are in its table."""
    # There is no linker, and the plugin is its table.
    monkeypatch.setattr(
        verification, "link_policies", lambda _, inside, output: output.write_bytes(inside["decisions"].read_bytes())
    )

    def make(late: Collection[str] = (), /, **tuned: int) -> Verifier:
        def answer(module: Module, request: CompileRequest) -> Compilation:
            if request.use is None or request.use.plugin is None:
                return Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 100}))
            if module.name in late:
                return Compilation(status=CompileStatus.TIMED_OUT, reason="too late")
            size = tuned[module.name] if module.name in json.loads(request.use.plugin.read_text()) else 100
            if size < 0:
                return Compilation(status=CompileStatus.FAILED, reason="why not")
            return Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": size}))

        modules = [toy_source(name) for name in tuned]
        return Verifier(
            compiler=FakeCompiler(answer=answer),
            modules=modules,
            output=tmp_path / "out.so",
            search_folder=tmp_path,
            report=say_nothing,
        )

    return make


def test_entries_that_the_objects_refute_are_put_back(verifier: Callable[..., Verifier], tmp_path: Path):
    one = verifier(a=90, b=110, c=95)
    space = numbers(tmp_path, a=90, b=90, c=100).space
    for unit in space.units:
        unit.now = unit.least
    done = verify(one, NumberTable(units=space.units), tmp_path / "decisions")
    assert (done.kept, done.reverted, done.notes) == ({"a"}, {"b"}, {"b": "it grew"})
    assert json.loads(one.plugin.read_text()) == ["a"]
    assert not (tmp_path / "out.so").exists()
    assert {name: sizes.llvm_size_text for name, sizes in done.after.sizes.items()} == {"a": 90, "b": 100, "c": 100}


def test_a_module_that_timed_out_counts_as_before(verifier: Callable[..., Verifier], tmp_path: Path):
    one = verifier({"b"}, a=90, b=100)
    space = numbers(tmp_path, a=90, b=100).space
    space.units[0].now = 90
    done = verify(one, NumberTable(units=space.units), tmp_path / "decisions")
    assert done.kept == {"a"}
    assert done.notes == {"b": "it does not compile with the result; counted as it was before"}
    assert {name: sizes.llvm_size_text for name, sizes in done.after.sizes.items()} == {"a": 90, "b": 100}


def test_a_module_that_no_longer_compiles_plainly_is_an_error(verifier: Callable[..., Verifier], tmp_path: Path):
    one = verifier(a=90, b=100)
    answer = cast("FakeCompiler", one.compiler).answer

    def answer_late(module: Module, request: CompileRequest) -> Compilation:
        is_late = request.use is None and module.name == "b"
        return Compilation(status=CompileStatus.TIMED_OUT, reason="60 s") if is_late else answer(module, request)

    one.compiler = FakeCompiler(answer=answer_late)
    with pytest.raises(
        ToolError, match=r"b: expected clang to compile it without the plugin, as it did .* found: .*60 s"
    ):
        verify(one, NumberTable(units=numbers(tmp_path, a=90, b=100).space.units), tmp_path / "decisions")


def test_the_sizes_of_a_build_are_collected_once():
    """They are asked for module by module."""
    done = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 8}))
    late = Compilation(status=CompileStatus.TIMED_OUT)
    build = VerifiedBuild(compilations={"a": done, "b": late}, objects={})
    assert build.sizes is build.sizes
    assert [*build.sizes] == ["a"]
    assert [*dataclasses.replace(build, compilations={"b": done}).sizes] == ["b"]


def test_a_module_that_does_not_compile_with_the_plugin_does_not_speak_for_it(
    verifier: Callable[..., Verifier], tmp_path: Path
):
    one = verifier({"a"}, a=100, b=90)
    space = numbers(tmp_path, a=100, b=90).space
    space.units[1].now = 90
    assert verify(one, NumberTable(units=space.units), tmp_path / "decisions").kept == {"b"}
    one.mark_stale()
    one.check_link()
    assert not one.is_unchecked


def test_everything_is_put_back_if_the_whole_is_no_better(verifier: Callable[..., Verifier], tmp_path: Path):
    space = numbers(tmp_path, a=90).space
    space.units[0].now = 90
    done = verify(verifier(a=90), NumberTable(units=space.units, objects=True), tmp_path / "decisions")
    assert (done.kept, done.reverted, done.objection) == (set(), {"a"}, "by and large")


def test_a_plugin_with_which_nothing_compiles_is_an_error(verifier: Callable[..., Verifier], tmp_path: Path):
    space = numbers(tmp_path, a=90).space
    space.units[0].now = 90
    (tmp_path / "out.so").write_text("proved")
    (tmp_path / "decisions").write_text("proved")
    with pytest.raises(ToolError, match="expected clang to compile modules with this plugin, found that none compiles"):
        verify(verifier(a=-1), NumberTable(units=space.units), tmp_path / "decisions")
    # What an earlier tuning left is there until there is something better.
    assert (tmp_path / "out.so").read_text() == (tmp_path / "decisions").read_text() == "proved"


def test_a_plugin_linked_again_must_do_what_was_verified(verifier: Callable[..., Verifier], tmp_path: Path):
    sizes = {"a": 90, "b": 95}
    one = verifier(**sizes)
    space = numbers(tmp_path, a=90, b=95).space
    for unit in space.units:
        unit.now = unit.least
    verify(one, NumberTable(units=space.units), tmp_path / "decisions")
    one.mark_stale()
    one.check_link()
    one.inside["decisions"].write_text("[]")
    one.mark_stale()
    message = "out.so: expected the finished plugin to compile a to the object that was verified, found another object"
    with pytest.raises(ToolError, match=message):
        one.check_link()
