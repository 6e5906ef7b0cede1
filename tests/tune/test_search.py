"""The search, the compiler being a table: what is composed, when it is compiled, and what if it is wrong."""

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler.compile import CompileResult, CompileStatus
from mlgokit.compiler.objects.account import ProjectAccount, account_of
from mlgokit.compiler.objects.function_id import function_id
from mlgokit.compiler.objects.measure import Objective, ObjectSizes, SectionTotals
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.tune import project, search as searching
from mlgokit.tune.compose import compose
from mlgokit.tune.loop import run_search
from mlgokit.tune.project import Search, SearchConfig, open_search, progress_path
from mlgokit.tune.search import COMPOSED, ModuleState, MovePriority, StepResult, confirm_composed, indifferent, step
from mlgokit.tune.state import Build, Progress, load_progress, save_progress

NAME = "m"
CALLERS = tuple(f"caller{number}" for number in range(6))
SITES = {2 * (number + 1): caller for number, caller in enumerate(CALLERS)}
GAIN = {caller: 10 if number % 2 else -10 for number, caller in enumerate(CALLERS)}
"""Bytes by which inlining its call makes a caller smaller."""


def sizes_of(functions: Mapping[str, int], *, rest: int = 0, groups: Mapping[str, str] | None = None) -> ObjectSizes:
    """``groups``: by function, its signature."""
    owners = [(groups or {}).get(name, "") for name in functions]
    signatures = tuple(dict.fromkeys(owner for owner in owners if owner))
    text, none = np.array(list(functions.values()), np.int64), np.zeros(len(functions), np.int64)
    return ObjectSizes(
        totals=SectionTotals(text=int(text.sum()) + rest, rodata=0, eh_frame=0, data=0, bss=0, except_table=0),
        function_names=tuple(functions),
        function_text=text,
        function_rodata=none,
        function_except_table=none,
        function_eh_frame=none,
        function_signature=np.array([signatures.index(owner) if owner else -1 for owner in owners], np.int64),
        signatures=signatures,
        signature_rest=np.zeros((len(signatures), 3), np.int64),
        signature_data=np.zeros(len(signatures), np.int64),
        rest=np.array([rest, 0, 0]),
    )


def build_of_calls(sizes: ObjectSizes, calls: list[tuple[int, str, str, bool]]) -> Build:
    """``calls``: site, caller, callee, inlined."""
    return Build(
        sizes=sizes,
        site=np.array([call[0] for call in calls], np.uint64),
        caller=np.array([function_id(call[1]) for call in calls]),
        callee=np.array([function_id(call[2]) for call in calls]),
        inlined=np.array([call[3] for call in calls], bool),
        names=("weight",),
        values=np.array([[call[0]] for call in calls]),
        user_seconds=1.0,
    )


def independent(decisions: Mapping[int, bool]) -> Build:
    """Each decision changes its caller and nothing else."""
    functions = {caller: 100 - GAIN[caller] * decisions.get(site, False) for site, caller in SITES.items()}
    calls = [(site, caller, f"callee{site}", decisions.get(site, False)) for site, caller in SITES.items()]
    return build_of_calls(sizes_of(functions), calls)


@dataclasses.dataclass(slots=True)
class TableBench:
    make: Callable[[Mapping[int, bool]], Build | None]
    compilations: int = 0

    def compile(self, _module: Module, *, decisions: Mapping[int, bool], **_: object) -> CompileResult:
        self.compilations += 1
        build = self.make(decisions)
        return Made(status=CompileStatus.OK, user_seconds=1.0, made=build)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Made(CompileResult):
    made: Build | None


@dataclasses.dataclass(slots=True)
class Trial:
    bench: TableBench
    searched: ModuleState
    account: ProjectAccount

    def step(self, *, most: int = 64) -> StepResult:
        """One step, entered as the loop does."""
        done = step(
            self.bench,  # type: ignore[arg-type]
            self.searched,
            self.account,
            lock=threading.Lock(),
            order=MovePriority(rank=indifferent, noise=1.0, most=most, tries=1),
            rng=np.random.default_rng(self.bench.compilations),
        )
        return self.enter(done)

    def confirm(self) -> StepResult:
        return self.enter(confirm_composed(self.bench, self.searched, self.account, lock=threading.Lock()))  # type: ignore[arg-type]

    def enter(self, done: StepResult) -> StepResult:
        self.searched.tried.update(done.failed)
        if done.build is not None:
            self.searched.build = done.build
            self.account.put(NAME, done.build.sizes)
        self.searched.composed, self.searched.composed_steps = done.composed, done.composed_steps
        return done


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trial]:
    """``begin(make)``: a search whose compiler is ``make``, and whose first build inlines nothing."""
    monkeypatch.setattr(searching, "build_of", lambda result: result.made)

    def trial(make: Callable[[Mapping[int, bool]], Build | None]) -> Trial:
        first = make({})
        assert first is not None
        module = Module(name=NAME, project="p", language="c", bitcode=Path(), command_line=("-cc1",), bitcode_bytes=1)
        account = account_of([NAME], {NAME: first.sizes}, objective=Objective.LINK_AWARE)
        return Trial(TableBench(make), ModuleState(module=module, plain=first.sizes, build=first), account)

    return trial


def functions(build: Build) -> dict[str, int]:
    return dict(zip(build.sizes.function_names, build.sizes.function_text.tolist(), strict=True))


def test_a_step_compiles_once_and_composes_what_paid(begin: Callable[..., Trial]):
    trial = begin(independent)
    done = trial.step()
    assert (done.compilations, done.flips, done.kept, done.saved) == (1, 6, 3, 30)
    composed = trial.searched.composed
    assert composed is not None
    wanted = {site: GAIN[caller] > 0 for site, caller in SITES.items()}
    assert composed.decisions == wanted
    assert functions(composed) == functions(independent(wanted))
    assert composed.sizes.totals == independent(wanted).sizes.totals
    assert trial.account.image == 600, "what was not compiled is not in the account"
    assert trial.searched.tried == {site: 1 for site, caller in SITES.items() if GAIN[caller] < 0}


def test_what_was_composed_is_compiled_before_there_is_nothing_left_to_try(begin: Callable[..., Trial]):
    trial = begin(independent)
    steps = [trial.step()]
    while steps[-1].compilations:
        steps.append(trial.step())
    # Explored; the flips that paid, turned back; confirmed; nothing.
    assert [(one.compilations, one.flips) for one in steps] == [(1, 6), (1, 3), (1, 0), (0, 0)]
    assert trial.searched.composed is None
    assert trial.account.image == 570
    assert functions(trial.searched.build) == functions(independent(trial.searched.build.decisions))


def test_an_exploration_in_which_all_paid_needs_no_composing(begin: Callable[..., Trial]):
    def smaller(decisions: Mapping[int, bool]) -> Build:
        return build_of_calls(
            sizes_of({"f": 90 if decisions.get(2) else 100}), [(2, "f", "g", decisions.get(2, False))]
        )

    trial = begin(smaller)
    done = trial.step()
    assert done.build is not None
    assert (done.composed, trial.account.image) == (None, 90)


def test_it_is_confirmed_after_some_gains(begin: Callable[..., Trial]):
    count = 2 * COMPOSED + 2

    def many(decisions: Mapping[int, bool]) -> Build:
        calls = [
            (2 * index + 2, f"f{index}", f"g{index}", decisions.get(2 * index + 2, False)) for index in range(count)
        ]
        return build_of_calls(
            sizes_of({call[1]: 100 + (-10 if call[0] % 4 else 10) * call[3] for call in calls}), calls
        )

    trial = begin(many)
    compiled_whole = 0
    for _ in range(4 * COMPOSED):
        composed = trial.searched.composed
        done = trial.step(most=3)
        if composed is not None and not done.flips and done.compilations:
            compiled_whole += 1
            assert done.build is not None
            assert functions(done.build) == functions(composed)
    assert compiled_whole >= 1
    assert trial.account.image == 100 * count - 10 * (count // 2)


def test_a_composed_build_that_is_not_there_is_given_up_and_its_moves_are_not_made_again(begin: Callable[..., Trial]):
    def jealous(decisions: Mapping[int, bool]) -> Build:
        """Caller 1 only becomes smaller as long as that of 2 inlines its call as well, which costs far more."""
        both = decisions.get(2, False) and decisions.get(4, False)
        sizes = sizes_of(
            {"one": 80 if both else 100 + decisions.get(2, False), "two": 150 if decisions.get(4) else 100}
        )
        calls = [(2, "one", "a", decisions.get(2, False)), (4, "two", "b", decisions.get(4, False))]
        return build_of_calls(sizes, calls)

    trial = begin(jealous)
    first = trial.searched.build
    done = trial.step()
    assert done.composed is not None
    assert done.composed.decisions == {2: True, 4: False}
    assert functions(done.composed)["one"] == 80
    back = trial.confirm()
    assert (back.build, back.composed) == (None, None)
    assert trial.searched.build is first
    assert (trial.account.image, set(trial.searched.tried)) == (200, {2, 4})
    assert trial.step().compilations == 0


def test_the_next_exploration_shows_what_was_composed_wrongly(begin: Callable[..., Trial]):
    def far(decisions: Mapping[int, bool]) -> Build:
        """Inlining in two takes something off far, which nothing calls, but only without that in one."""
        taken = {site: decisions.get(site, False) for site in (2, 4, 6, 8)}
        sizes = sizes_of(
            {
                "one": 130 if taken[2] else 100,
                "two": 80 if taken[4] else 100,
                "far": 90 if taken[2] else 100,
                "three": 99 if taken[6] else 100,
                "four": 101 if taken[8] else 100,
            }
        )
        names = {2: "one", 4: "two", 6: "three", 8: "four"}
        return build_of_calls(sizes, [(site, name, f"g{site}", taken[site]) for site, name in names.items()])

    trial = begin(far)
    while trial.searched.composed is None or functions(trial.searched.composed)["far"] == 100:
        trial.searched.composed, trial.searched.tried = None, Counter()
        trial.step(most=3)
        trial.bench.compilations += 1
        assert trial.bench.compilations < 50
    wrong = trial.searched.composed
    assert wrong.decisions[2] is False
    assert functions(wrong)["far"] == 90
    while trial.searched.composed is not None and trial.searched.composed.sizes is wrong.sizes:
        assert trial.step(most=1).compilations
    assert functions(trial.searched.composed or trial.searched.build)["far"] == 100


def test_a_compilation_that_fails_leaves_everything_as_it_was(begin: Callable[..., Trial]):
    trial = begin(independent)
    trial.step()
    composed = trial.searched.composed
    trial.bench.make = lambda _: None
    done = trial.step()
    assert (done.build, done.composed, done.kept) == (None, composed, 0)
    assert trial.confirm().composed is None
    assert trial.account.image == 600


def test_groups_of_functions_come_and_go_with_them():
    base = build_of_calls(
        sizes_of({"a": 10, "b": 20, "dead": 5}, rest=7, groups={"a": "a", "dead": "dead"}),
        [(2, "a", "x", False), (4, "b", "dead", False)],
    )
    explored = build_of_calls(
        sizes_of({"a": 14, "b": 22, "new": 3}, rest=9, groups={"a": "a", "new": "new"}),
        [(2, "a", "x", True), (4, "b", "dead", True), (6, "b", "y", False)],
    )
    found = compose(base, explored, np.array([function_id("a")]))
    assert functions(found) == {"a": 10, "b": 22, "new": 3}
    assert found.sizes.signatures == ("a", "new")
    assert found.sizes.function_signature.tolist() == [0, -1, 1]
    assert found.sizes.totals.text == 10 + 22 + 3 + 7
    assert found.decisions == {2: False, 4: True, 6: False}
    back = compose(base, explored, np.array([function_id(name) for name in ("a", "b", "dead", "new")]))
    assert functions(back) == functions(base)
    assert back.sizes.totals == base.sizes.totals
    assert back.decisions == base.decisions


NAMES = ("a", "b", "c")
BEST = {site: GAIN[caller] > 0 for site, caller in SITES.items()}


@dataclasses.dataclass(slots=True)
class ProjectBench:
    asked: list[Mapping[int, bool] | None] = dataclasses.field(default_factory=list[Mapping[int, bool] | None])

    def compile(self, _module: Module, *, decisions: Mapping[int, bool] | None = None, **_: object) -> CompileResult:
        self.asked.append(decisions)
        return Made(status=CompileStatus.OK, user_seconds=1.0, made=independent(decisions or {}))

    def compile_plain(self, _module: Module, **_: object) -> CompileResult:
        return CompileResult(status=CompileStatus.OK, sizes=independent({}).sizes, user_seconds=1.0)

    def rest(self) -> None:
        pass


def modules() -> list[Module]:
    return [
        Module(name=name, project="p", language="c", bitcode=Path(), command_line=("-cc1",), bitcode_bytes=1)
        for name in NAMES
    ]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    monkeypatch.setattr(searching, "build_of", lambda result: result.made)
    monkeypatch.setattr(project, "build_of", lambda result: result.made)
    return opened(tmp_path)


def opened(folder: Path) -> Search:
    bench: Any = ProjectBench()
    config = SearchConfig(objective=Objective.OBJECT_TEXT, refits=())
    return open_search(modules(), bench=bench, config=config, folder=folder, workers=1, report=say_nothing)


def test_all_that_was_composed_is_compiled_before_the_search_ends(search: Search):
    spent = search.user_seconds
    run_search(search, seconds=1e6, workers=1, report=say_nothing, clock=lambda: search.user_seconds - spent)
    assert search.account.image == len(NAMES) * 570
    for one in search.modules.values():
        assert one.composed is None
        assert one.build.decisions == BEST
        kept = load_progress(progress_path(search.folder, one.module.name))
        assert kept is not None
        assert (kept.decisions, kept.composed) == (BEST, {})


def test_the_last_seconds_of_the_budget_are_for_confirmation(search: Search):
    spent = search.user_seconds
    run_search(search, seconds=6, workers=1, report=say_nothing, clock=lambda: search.user_seconds - spent)
    # Each compilation takes a second: three explorations, and three of what was composed.
    assert search.user_seconds - spent == 6
    assert search.account.image == len(NAMES) * 570


def test_what_a_kill_left_composed_is_compiled_by_the_next_session(search: Search, tmp_path: Path):
    path = progress_path(search.folder, "b")
    path.parent.mkdir()
    save_progress(path, Progress(decisions={}, tried={}, composed=BEST))
    again = opened(tmp_path)
    assert again.modules["b"].build.decisions == BEST
    assert again.account.image == 600 + 570 + 600
    # A promise that does not hold changes nothing.
    save_progress(path, Progress(decisions={}, tried={}, composed={site: not taken for site, taken in BEST.items()}))
    assert opened(tmp_path).account.image == 1800
