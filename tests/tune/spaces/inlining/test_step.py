"""The search, the compiler being a table: what is composed, when it is compiled, and what if it is wrong."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.compilation import Compilation, CompileStatus, InlineDecisions, add_logs
from mlgokit.compiler.objects.account import ProjectAccount, account_of
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import ALWAYS
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import say_nothing
from mlgokit.testing import FakeCompiler, ToyCall, ToyModule, toy_compiler, toy_log, toy_sizes, toy_source
from mlgokit.traces.function_id import function_id
from mlgokit.tune.composing import compose
from mlgokit.tune.loop import run_search
from mlgokit.tune.search import progress_path
from mlgokit.tune.spaces.inlining.opening import InliningSearch, open_inlining, try_whole
from mlgokit.tune.spaces.inlining.space import SearchConfig
from mlgokit.tune.spaces.inlining.state import ModuleState, Progress, StepResult, load_progress, save_progress
from mlgokit.tune.spaces.inlining.step import (
    COMPOSED,
    MovePriority,
    compile_decided,
    confirm_composed,
    indifferent,
    request_of,
    step,
)

NAME = "m"
CALLERS = tuple(f"caller{number}" for number in range(6))
SITES = {2 * (number + 1): caller for number, caller in enumerate(CALLERS)}
GAIN = {caller: 10 if number % 2 else -10 for number, caller in enumerate(CALLERS)}
"""Bytes by which inlining its call makes a caller smaller."""
Weigh = Callable[[tuple[bool, ...]], Mapping[str, int]]


def calls_of(*callers: str) -> tuple[ToyCall, ...]:
    """One call in each, of a function of its own."""
    places = {2 * (number + 1): caller for number, caller in enumerate(callers)}
    return tuple(
        ToyCall(caller=caller, callee=f"callee{site}", site=site, features={"weight": site})
        for site, caller in places.items()
    )


def weigh_independent(inlined: tuple[bool, ...]) -> Mapping[str, int]:
    """Each decision changes its caller and nothing else."""
    return {caller: 100 - GAIN[caller] * taken for caller, taken in zip(CALLERS, inlined, strict=True)}


INDEPENDENT = ToyModule(calls=calls_of(*CALLERS), weigh=weigh_independent)


@dataclasses.dataclass(slots=True)
class Trial:
    compiler: FakeCompiler
    state: ModuleState
    account: ProjectAccount

    @property
    def compilations(self) -> int:
        return len(self.compiler.asked) - 1

    def step(self, *, most: int = 64, seed: int | None = None) -> StepResult:
        """One step, entered as the loop does."""
        done = step(
            self.compiler,
            self.state,
            self.account,
            priority=MovePriority(rank=indifferent, noise=1.0, most=most, tries=1),
            rng=np.random.default_rng(self.compilations if seed is None else seed),
        )
        return self.enter(done)

    def confirm(self) -> StepResult:
        return self.enter(confirm_composed(self.compiler, self.state, self.account))

    def enter(self, done: StepResult) -> StepResult:
        self.state.tried.update(done.failed)
        if done.build is not None:
            self.state.build = done.build
            self.account.put(NAME, done.build.measured)
        self.state.composed, self.state.climb.composed_steps = done.composed, done.composed_steps
        return done


def begin(toy: ToyModule) -> Trial:
    """A search of one module, whose first build inlines nothing."""
    compiler = toy_compiler({NAME: toy})
    first = compile_decided(compiler, toy_source(NAME))
    account = account_of([NAME], {NAME: first.measured}, objective=Objective.LINK_AWARE)
    return Trial(compiler, ModuleState(module=toy_source(NAME), plain=first.measured, build=first), account)


def functions(build: Compilation) -> dict[str, int]:
    return dict(zip(build.measured.function_names, build.measured.function_text.tolist(), strict=True))


def independent(decisions: Mapping[int, bool]) -> dict[str, int]:
    return dict(weigh_independent(tuple(decisions.get(site, False) for site in SITES)))


def test_a_step_compiles_once_and_composes_what_paid():
    trial = begin(INDEPENDENT)
    done = trial.step()
    assert (done.compilations, done.flips, done.kept, done.saved) == (1, 6, 3, 30)
    composed = trial.state.composed
    assert composed is not None
    wanted = {site: GAIN[caller] > 0 for site, caller in SITES.items()}
    assert composed.decisions.by_site == wanted
    assert functions(composed) == independent(wanted)
    assert composed.measured.totals == toy_sizes(independent(wanted)).totals
    assert trial.account.image == 600, "what was not compiled is not in the account"
    assert trial.state.tried == {site: 1 for site, caller in SITES.items() if GAIN[caller] < 0}


def test_what_was_composed_is_compiled_before_there_is_nothing_left_to_try():
    trial = begin(INDEPENDENT)
    steps = [trial.step()]
    while steps[-1].compilations:
        steps.append(trial.step())
    # Explored; the flips that paid, turned back; confirmed; nothing.
    assert [(one.compilations, one.flips) for one in steps] == [(1, 6), (1, 3), (1, 0), (0, 0)]
    assert trial.state.composed is None
    assert trial.account.image == 570
    assert functions(trial.state.build) == independent(trial.state.build.decisions.by_site)


def test_an_exploration_in_which_all_paid_needs_no_composing():
    trial = begin(ToyModule(calls=calls_of("f"), weigh=lambda inlined: {"f": 90 if inlined[0] else 100}))
    done = trial.step()
    assert done.build is not None
    assert (done.composed, trial.account.image) == (None, 90)


def test_it_is_confirmed_after_some_gains():
    count = 2 * COMPOSED + 2

    def many(inlined: tuple[bool, ...]) -> Mapping[str, int]:
        return {f"f{index}": 100 + (10 if index % 2 else -10) * taken for index, taken in enumerate(inlined)}

    trial = begin(ToyModule(calls=calls_of(*(f"f{index}" for index in range(count))), weigh=many))
    compiled_whole = 0
    for _ in range(4 * COMPOSED):
        composed = trial.state.composed
        done = trial.step(most=3)
        if composed is not None and not done.flips and done.compilations:
            compiled_whole += 1
            assert done.build is not None
            assert functions(done.build) == functions(composed)
    assert compiled_whole >= 1
    assert trial.account.image == 100 * count - 10 * (count // 2)


def test_a_composed_build_that_is_not_there_is_given_up_and_its_moves_are_not_made_again():
    def jealous(inlined: tuple[bool, ...]) -> Mapping[str, int]:
        """Caller 1 only becomes smaller as long as that of 2 inlines its call as well, which costs far more."""
        first, second = inlined
        return {"one": 80 if first and second else 100 + first, "two": 150 if second else 100}

    trial = begin(ToyModule(calls=calls_of("one", "two"), weigh=jealous))
    first = trial.state.build
    done = trial.step()
    assert done.composed is not None
    assert done.composed.decisions.by_site == {2: True, 4: False}
    assert functions(done.composed)["one"] == 80
    back = trial.confirm()
    assert (back.build, back.composed) == (None, None)
    assert trial.state.build is first
    assert (trial.account.image, set(trial.state.tried)) == (200, {2, 4})
    assert trial.step().compilations == 0


def test_the_next_exploration_shows_what_was_composed_wrongly():
    def far(inlined: tuple[bool, ...]) -> Mapping[str, int]:
        """Inlining in two takes something off far, which nothing calls, but only without that in one."""
        one, two, three, four = inlined
        return {
            "one": 130 if one else 100,
            "two": 80 if two else 100,
            "far": 90 if one else 100,
            "three": 99 if three else 100,
            "four": 101 if four else 100,
        }

    trial, tries = begin(ToyModule(calls=calls_of("one", "two", "three", "four"), weigh=far)), 0
    while trial.state.composed is None or functions(trial.state.composed)["far"] == 100:
        trial.state.composed, trial.state.tried = None, Counter()
        trial.step(most=3, seed=tries)
        tries += 1
        assert tries < 50
    wrong = trial.state.composed
    assert wrong.decisions.by_site[2] is False
    assert functions(wrong)["far"] == 90
    while trial.state.composed is not None and trial.state.composed.sizes is wrong.sizes:
        assert trial.step(most=1).compilations
    assert functions(trial.state.composed or trial.state.build)["far"] == 100


def test_a_compilation_that_fails_leaves_everything_as_it_was():
    broken: list[str] = []
    trial = begin(dataclasses.replace(INDEPENDENT, fails=lambda _: "".join(broken)))
    trial.step()
    composed = trial.state.composed
    broken.append("why not")
    done = trial.step()
    assert (done.build, done.composed, done.kept) == (None, composed, 0)
    assert trial.confirm().composed is None
    assert trial.account.image == 600


def decided(sizes: dict[str, int], groups: dict[str, str], rest: int, *calls: tuple[str, str, bool]) -> Compilation:
    """``calls``: caller, callee, inlined."""
    asked = [ToyCall(caller=one[0], callee=one[1], site=2 * place + 2) for place, one in enumerate(calls)]
    done = Compilation(status=CompileStatus.OK, sizes=toy_sizes(sizes, signatures=groups, rest=rest))
    return add_logs(done, {INLINE_SIZE.name: toy_log(asked, [one[2] for one in calls])})


def test_groups_of_functions_come_and_go_with_them():
    base = decided(
        {"a": 10, "b": 20, "dead": 5}, {"a": "a", "dead": "dead"}, 7, ("a", "x", False), ("b", "dead", False)
    )
    explored = decided(
        {"a": 14, "b": 22, "new": 3}, {"a": "a", "new": "new"}, 9,
        ("a", "x", True), ("b", "dead", True), ("b", "y", False),
    )  # fmt: skip
    found = compose(base, explored, np.array([function_id("a")]))
    assert functions(found) == {"a": 10, "b": 22, "new": 3}
    assert found.measured.signatures == ("a", "new")
    assert found.measured.function_signature.tolist() == [0, -1, 1]
    assert found.measured.totals.text == 10 + 22 + 3 + 7
    assert found.decisions.by_site == {2: False, 4: True, 6: False}
    back = compose(base, explored, np.array([function_id(name) for name in ("a", "b", "dead", "new")]))
    assert functions(back) == functions(base)
    assert back.measured.totals == base.measured.totals
    assert back.decisions.by_site == base.decisions.by_site


NAMES = ("a", "b", "c")
BEST = {site: GAIN[caller] > 0 for site, caller in SITES.items()}


@pytest.fixture
def search(tmp_path: Path) -> InliningSearch:
    return opened(tmp_path)


def opened(folder: Path, *, changed: str = "") -> InliningSearch:
    compiler = toy_compiler(dict.fromkeys(NAMES, INDEPENDENT))
    config = SearchConfig(refits=(), restarts=20)
    modules = [
        dataclasses.replace(toy_source(name), bitcode_sha256="new" if name == changed else "old") for name in NAMES
    ]
    return open_inlining(
        modules, compiler=compiler, config=config, objective=Objective.OBJECT_TEXT, folder=folder, report=say_nothing
    )


def test_all_that_was_composed_is_compiled_before_the_search_ends(search: InliningSearch):
    spent = search.user_seconds
    run_search(search, seconds=1e6, workers=1, report=say_nothing, clock=lambda: search.user_seconds - spent)
    assert search.space.account.image == len(NAMES) * 570
    for one in search.space.units:
        assert one.composed is None
        assert one.build.decisions.by_site == BEST
        kept = load_progress(progress_path(search.folder, one.module.name))
        assert kept is not None
        assert (kept.decisions, kept.composed) == (BEST, {})


def test_inlining_into_functions_that_are_taken_back_is_left_to_llvm(search: InliningSearch):
    spent = search.user_seconds
    run_search(search, seconds=1e6, workers=1, report=say_nothing, clock=lambda: search.user_seconds - spent)
    space, caller = search.space, function_id(CALLERS[1])

    assert space.inlined_with({caller}) == {caller, function_id("callee4")}
    assert space.take_back({caller})
    assert not space.take_back({caller})
    for one in space.units:
        assert one.build.decisions.by_site == BEST | {4: False}
        kept = load_progress(progress_path(search.folder, one.module.name))
        assert kept is not None
        assert kept.decisions[4] is False


def test_functions_of_a_large_module_are_taken_back_in_one_look_at_its_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    names = tuple(f"caller{number}" for number in range(100))
    toy = ToyModule(calls=calls_of(*names), weigh=lambda inlined: {"f": 1000 - 5 * sum(inlined)})
    space = open_inlining(
        [toy_source(NAME)],
        compiler=toy_compiler({NAME: toy}),
        config=SearchConfig(),
        folder=tmp_path,
        report=say_nothing,
    ).space
    (unit,) = space.units
    assert space.adopt_if_better(unit, space.compiler.compile(unit.module, request_of(policy=ALWAYS)))
    read, looks = InlineDecisions.by_site.fget, list[int]()
    assert read is not None
    monkeypatch.setattr(InlineDecisions, "by_site", property(lambda one: looks.append(1) or read(one)))
    assert space.take_back({function_id(names[0])})
    assert len(looks) < len(names)
    assert sum(unit.build.decisions.inlined) == len(names) - 1


def test_the_rule_is_tried_unless_a_policy_stands_for_it(search: InliningSearch, tmp_path: Path):
    labels: list[str] = []
    for by_rule in (False, True):
        try_whole(
            opened(tmp_path),
            policies={},
            earlier=None,
            by_rule=by_rule,
            report=lambda _done, _total, label: labels.append(label),
        )
        assert any("never" in label for label in labels) is by_rule
        (search.folder / "begun").unlink()


def test_a_module_that_changed_between_sessions_is_searched_first_from_the_decisions_that_apply(
    search: InliningSearch, tmp_path: Path
):
    assert not search.space.changed
    try_whole(search, policies={}, earlier=None, report=say_nothing)
    path = progress_path(search.folder, "b")
    for name in NAMES:
        save_progress(progress_path(search.folder, name), Progress(decisions=BEST, tried={2: 1}))
    same = opened(tmp_path)
    try_whole(same, policies={}, earlier=None, report=say_nothing)
    assert (same.space.changed, same.compilations) == (frozenset(), 2 * len(NAMES))

    again = opened(tmp_path, changed="b")
    assert again.space.changed == {"b"}
    assert [one.module.name for one in again.space.units if one.tried] == ["a", "c"]
    assert again.space.modules["b"].build.decisions.by_site == BEST
    try_whole(again, policies={}, earlier=None, report=say_nothing)
    first, *others = sorted(again.space.units, key=lambda unit: again.space.urgency(unit, 0) or ())
    assert first.module.name == "b"
    assert all(one.climb.rate == 0 for one in others)
    # That session has begun with it.
    assert load_progress(path) is not None
    assert not opened(tmp_path, changed="b").space.changed
    # A file of an earlier version does not say what it began with.
    (search.folder / "begun").write_text("")
    assert not opened(tmp_path, changed="b").space.changed


def test_the_last_seconds_of_the_budget_are_for_confirmation(search: InliningSearch):
    spent = search.user_seconds
    run_search(search, seconds=6, workers=1, report=say_nothing, clock=lambda: search.user_seconds - spent)
    # Each compilation takes a second: three explorations, and three of what was composed.
    assert search.user_seconds - spent == 6
    assert search.space.account.image == len(NAMES) * 570


def test_what_a_kill_left_composed_is_compiled_by_the_next_session(search: InliningSearch, tmp_path: Path):
    path = progress_path(search.folder, "b")
    path.parent.mkdir()
    save_progress(path, Progress(decisions={}, tried={}, composed=BEST))
    again = opened(tmp_path)
    assert again.space.modules["b"].build.decisions.by_site == BEST
    assert again.space.account.image == 600 + 570 + 600
    # A promise that does not hold changes nothing.
    save_progress(path, Progress(decisions={}, tried={}, composed={site: not taken for site, taken in BEST.items()}))
    assert opened(tmp_path).space.account.image == 1800
