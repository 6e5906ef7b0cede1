"""The judge of a search, without a real compiler or link: an object has as text what it weighs in the link."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds import measurement
from mlgokit.builds.measurement import LinkedBuild, Measure, Measurement
from mlgokit.compiler.compilation import Compilation, CompileStatus, add_logs
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import CompileRequest
from mlgokit.errors import UsageError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import say_nothing
from mlgokit.testing import FakeCompiler, ToyCall, toy_log, toy_sizes, toy_source
from mlgokit.tune import judge as judging
from mlgokit.tune.judge import Judge, JudgeConfig, conclude, confirm, is_due, open_judge, plain_object, prove
from mlgokit.tune.loop import NOT_RECOVERED, NOTHING_LEFT, run_search
from mlgokit.tune.search import Search
from mlgokit.tune.spaces.inlining.space import InliningSpace, SearchConfig
from mlgokit.tune.spaces.inlining.state import ModuleState

NAMES = tuple("abcdefgh")
PLAIN = 100
SITES = (8, 16, 24)


def build(text: int, inlined: tuple[bool, ...] = (False, False, False)) -> Compilation:
    calls = [ToyCall(caller=f"f{site}", callee=f"g{site}", site=site) for site in SITES]
    done = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"main": text}))
    return add_logs(done, {INLINE_SIZE.name: toy_log(calls, inlined)})


ORIGIN = build(PLAIN + 1)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Judge]:
    """``opened(weights)``: a judge of modules that weigh 100 bytes plainly, and tuned as told when they are linked.

    Nothing is linked, and no command is run: what is measured is the sum, with noise if a command says how much.
    """
    noise = np.random.default_rng(3)

    def fake(how: Measure, linked: LinkedBuild) -> Measurement:
        words = [path.read_text() for path in linked.objects.values()]
        if "broken" in words:
            return Measurement(value=None, reason="broken")
        return Measurement(value=sum(map(float, words)) + float(how.command[0] if how.command else 0) * noise.normal())

    monkeypatch.setattr(measurement, "measure", fake)
    monkeypatch.setattr(judging, "measure", fake)

    def make(
        weights: Mapping[str, float | str], *, command: tuple[str, ...] = (), comes_out: Compilation | None = None
    ) -> Judge:
        """``comes_out``: every module by any decisions; else what the search has found for it."""

        def answer(module: Module, request: CompileRequest) -> Compilation:
            if request.keep_object is not None:
                request.keep_object.write_text(str(weights[module.name]))
            if request.use is None or not request.use.decisions:
                return ORIGIN
            return comes_out or states[module.name].build

        sizes = toy_sizes({"main": PLAIN})
        states = {name: ModuleState(module=toy_source(name), plain=sizes, build=ORIGIN) for name in NAMES}
        plain = {name: plain_object(tmp_path / "judge", index) for index, name in enumerate(NAMES)}
        for path in plain.values():
            path.write_text(str(PLAIN))
        space = InliningSpace(
            folder=tmp_path / "search",
            compiler=FakeCompiler(answer=answer),
            config=SearchConfig(),
            modules=states,
            failures={},
            account=account_of(NAMES, dict.fromkeys(NAMES, ORIGIN.measured), objective=Objective.LINK_AWARE),
            plain_bytes=PLAIN * len(NAMES),
        )
        how = Measure(plans={}, command=command, modules=NAMES, timeout_seconds=1)
        search = Search(folder=space.folder, space=space, seed=1)
        return open_judge(search, how, JudgeConfig(), plain, folder=tmp_path / "judge", report=say_nothing)

    return make


def compilations(judge: Judge) -> int:
    return judge.search.compilations


def adopt(judge: Judge, **texts: int) -> None:
    """Let the search find builds of these sizes by the account."""
    for name, text in texts.items():
        judge.search.space.modules[name].build = build(text, (True, True, False))
        judge.search.space.account.put(name, toy_sizes({"main": text}))


def total(judge: Judge, folder: Path) -> float:
    found = prove(judge, judge.plain.objects, judge.linked.objects, folder)
    assert found.after is not None
    return found.after


def test_gains_that_the_link_shows_are_kept_at_one_stroke(opened: Callable[..., Judge], tmp_path: Path):
    judge = opened(dict.fromkeys(NAMES, 90))
    assert judge.value == Measurement(value=800)
    adopt(judge, a=90, c=90)
    assert confirm(judge, seconds=100) == 0
    assert (set(judge.accepted), judge.value, total(judge, tmp_path)) == ({"a", "c"}, Measurement(value=780), 780)
    assert compilations(judge) == 2
    assert confirm(judge, seconds=100) == 0
    assert compilations(judge) == 2


def test_modules_that_make_the_image_larger_are_found_and_taken_back(opened: Callable[..., Judge], tmp_path: Path):
    judge = opened({name: 130 if name in "cg" else 90 for name in NAMES})
    adopt(judge, **dict.fromkeys(NAMES, 90))
    assert confirm(judge, seconds=100) == 2
    assert set(judge.accepted) == set(NAMES) - set("cg")
    assert total(judge, tmp_path) == 6 * 90 + 2 * 100
    back = judge.search.space.modules["c"]
    assert back.build.decisions.by_site == ORIGIN.decisions.by_site
    assert set(back.tried) == {8, 16}, "the moves that led there are not made again at once"
    assert judge.search.space.account.image == 6 * 90 + 2 * (PLAIN + 1)


def test_a_loss_hidden_in_a_gain_is_found(opened: Callable[..., Judge]):
    judge = opened({name: 120 if name == "b" else 80 for name in NAMES})
    adopt(judge, **dict.fromkeys(NAMES, 80))
    assert confirm(judge, seconds=100) == 1
    assert set(judge.accepted) == set(NAMES) - {"b"}


def test_a_build_that_does_not_link_is_taken_back(opened: Callable[..., Judge]):
    judge = opened({name: "broken" if name == "d" else 90 for name in NAMES})
    adopt(judge, **dict.fromkeys(NAMES, 90))
    assert confirm(judge, seconds=100) == 1
    assert set(judge.accepted) == set(NAMES) - {"d"}


def test_what_a_killed_compiler_leaves_beside_its_object_is_no_object(opened: Callable[..., Judge]):
    judge = opened(dict.fromkeys(NAMES, 90))
    first = judge.new_object(judge.search.space.modules["a"])
    first.with_name("1-8fdf8745.o.tmp").touch()
    adopt(judge, a=90)
    assert confirm(judge, seconds=100) == 0
    assert set(judge.accepted) == {"a"}


def test_a_module_that_becomes_plain_again_is_measured_too(opened: Callable[..., Judge]):
    judge = opened(dict.fromkeys(NAMES, 95))
    adopt(judge, a=90)
    confirm(judge, seconds=100)
    adopt(judge, a=100)
    confirm(judge, seconds=100)
    # The link says that the plain one is larger than what was accepted.
    assert set(judge.accepted) == {"a"}


def test_a_noisy_command_keeps_what_is_shown_and_leaves_open_what_is_not(opened: Callable[..., Judge]):
    judge = opened({"a": 60, "b": 99.99}, command=("1.0",))
    assert judge.value is None
    adopt(judge, b=99)
    assert confirm(judge, seconds=100) == 0
    assert not judge.accepted
    adopt(judge, a=60)
    confirm(judge, seconds=100)
    assert "a" in judge.accepted


def test_a_noisy_command_takes_back_what_is_shown_to_be_worse(opened: Callable[..., Judge]):
    judge = opened({"a": 60, "b": 190}, command=("1.0",))
    adopt(judge, a=60, b=90)
    assert confirm(judge, seconds=100) == 1
    assert set(judge.accepted) == {"a"}


def test_an_exact_command_that_sees_no_difference_adopts_nothing(opened: Callable[..., Judge]):
    judge = opened(dict.fromkeys(NAMES, 100), command=("0",))
    assert judge.value == Measurement(value=800)
    adopt(judge, a=90)
    assert confirm(judge, seconds=100) == 0
    assert not judge.accepted
    conclude(judge, seconds=100)
    assert judge.search.space.account.image == 100 + 7 * 100


@pytest.mark.parametrize(("bar", "kept"), [(795.0, {"a"}), (785.0, set[str]())])
def test_nothing_is_accepted_at_the_end_beyond_the_bar(opened: Callable[..., Judge], bar: float, kept: set[str]):
    judge = opened(dict.fromkeys(NAMES, 90))
    judge.measure = dataclasses.replace(judge.measure, bar=bar)
    adopt(judge, a=90)
    conclude(judge, seconds=100)
    assert set(judge.accepted) == kept
    assert judge.search.space.accepted == kept
    assert (judge.linked is judge.plain) == (not kept)


def test_without_time_gains_stay_open(opened: Callable[..., Judge]):
    judge = opened({name: 130 if name in "cg" else 90 for name in NAMES})
    adopt(judge, **dict.fromkeys(NAMES, 90))
    assert confirm(judge, seconds=0) == 0
    assert set(judge.accepted) <= set(NAMES)
    assert judge.value is not None
    assert judge.value.value is not None
    assert judge.value.value <= 800


def test_without_a_budget_one_module_does_not_cost_the_gains_of_all_others(opened: Callable[..., Judge]):
    judge = opened({name: 200 if name == "c" else 99 for name in NAMES})
    adopt(judge, **dict.fromkeys(NAMES, 90))
    conclude(judge, seconds=0)
    assert set(judge.accepted) == set(NAMES) - {"c"}


def test_what_was_accepted_is_recalled_and_measured_again(opened: Callable[..., Judge]):
    judge = opened(dict.fromkeys(NAMES, 90))
    adopt(judge, a=90, b=90)
    confirm(judge, seconds=100)
    kept = build(90, (True, True, False))
    again = opened(dict.fromkeys(NAMES, 90), comes_out=kept)
    assert set(again.accepted) == {"a", "b"}
    assert again.value == Measurement(value=780)
    assert not opened(dict.fromkeys(NAMES, 101), comes_out=kept).accepted


def test_a_plain_build_that_cannot_be_measured_is_refused_before_the_search(
    opened: Callable[..., Judge], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        judging, "measure", lambda *_: Measurement(value=None, reason="the link ended with 1: no library")
    )
    with pytest.raises(
        UsageError, match="expected the plain build to be measured, found: the link ended with 1: no lib"
    ):
        opened({})


def test_it_is_due_after_each_share_of_the_budget(opened: Callable[..., Judge]):
    judge = opened(dict.fromkeys(NAMES, 90))
    assert not is_due(judge, spent=9, seconds=100)
    assert is_due(judge, spent=10, seconds=100)
    confirm(judge, seconds=100)
    assert not is_due(judge, spent=19, seconds=100)
    assert is_due(judge, spent=21, seconds=100)
    assert not is_due(judge, spent=100, seconds=100)


def test_progress_of_the_judge_is_no_progress_of_the_search(opened: Callable[..., Judge]):
    judge = opened(dict.fromkeys(NAMES, 90))
    adopt(judge, a=90)
    confirm(judge, seconds=100)
    folders = {path.relative_to(judge.search.folder).parts[0] for path in judge.search.folder.rglob("*.npz")}
    assert folders == {"judged"}


@pytest.mark.parametrize(
    ("bar", "recover_by", "ended"),
    [(805.0, 0.0, NOTHING_LEFT), (795.0, math.inf, NOT_RECOVERED), (795.0, 0.0, NOT_RECOVERED)],
)
def test_a_search_that_ends_beyond_the_bar_did_not_recover(
    opened: Callable[..., Judge], bar: float, recover_by: float, ended: str
):
    judge = opened(dict.fromkeys(NAMES, 100))
    judge.measure = dataclasses.replace(judge.measure, bar=bar)
    search, spent = judge.search, itertools.count()
    search.space.config = SearchConfig(restarts=0, refits=())
    run_search(
        search, seconds=1e6, workers=1, report=say_nothing, judge=judge, recover_by=recover_by,
        clock=lambda: float(next(spent)),
    )  # fmt: skip
    assert search.ended == ended
    assert judge.excess == pytest.approx(800 / bar - 1)


def test_what_was_accepted_and_links_no_more_is_not_recalled(
    opened: Callable[..., Judge], monkeypatch: pytest.MonkeyPatch
):
    command, kept = ("1.0",), build(60, (True, True, False))
    judge = opened({"a": 60}, command=command)
    adopt(judge, a=60)
    confirm(judge, seconds=100)
    assert set(opened({"a": 60}, command=command, comes_out=kept).accepted) == {"a"}

    def fail(
        how: Measure, objects: Mapping[str, Path], scratch: Path, *, earlier: LinkedBuild | None = None
    ) -> LinkedBuild:
        linked = measurement.link_build(how, objects, scratch, earlier=earlier)
        return linked if earlier is None else dataclasses.replace(linked, failures={"app": "no such symbol"})

    monkeypatch.setattr(judging, "link_build", fail)
    again = opened({"a": 60}, command=command, comes_out=kept)
    assert (again.accepted, again.linked) == ({}, again.plain)
