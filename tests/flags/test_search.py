"""Which flags are tried, kept and refused, on builds whose sizes are made up."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlgokit.builds.images import BuiltImage
from mlgokit.commands import report
from mlgokit.errors import UsageError
from mlgokit.flags.advise import AdviceOptions, search_flags
from mlgokit.flags.page import advice_page
from mlgokit.flags.record import FlagAdvice, Trial
from mlgokit.flags.reviewed import Flag
from mlgokit.flags.search import Budget, check_names, describe_budget, try_alone
from mlgokit.flags.trials import ALREADY
from mlgokit.pages.markdown import render_markdown
from mlgokit.progress import say_nothing

A = Flag(name="a", compile=("-a",), cost="speed")
B = Flag(name="b", link=("-Wl,-b",), cost="nothing")
RISKY = Flag(name="risky", compile=("-risky",), cost="meaning", risk=True, worth=0.005)
WEAK = Flag(name="weak", compile=("-weak",), cost="nothing", group="level")
STRONG = Flag(name="strong", compile=("-strong",), cost="speed", group="level", worth=0.002)
FILE = Flag(name="file", link=("-Wl,-s",), cost="names", counts="file")
LIST = (A, B, RISKY, WEAK, STRONG, FILE)


def trial(
    flags: Sequence[Flag], text: int, *, file: int = 5000, reason: str = "", tests: str | None = None, wall: float = 1.0
) -> Trial:
    return Trial(
        flags=tuple(flag.name for flag in flags),
        reason=reason,
        tests=tests,
        programs={} if reason else {"app": BuiltImage(status="linked", image=text, text=text, data=10, file=text)},
        files={} if reason else {"app": file},
        folders={"src": text // 2, "lib": text // 4} if not reason else {},
        compile_seconds=2.0,
        link_seconds=0.5,
        wall_seconds=wall,
    )


@dataclass(slots=True, kw_only=True)
class FakeTrials:
    """Each flag saves the bytes in ``saves``; those in ``together`` more if all are there.

    Those in ``breaks`` fail the tests, those in ``fails`` do not build.
    """

    saves: Mapping[str, int] = field(default_factory=dict[str, int])
    breaks: tuple[str, ...] = ()
    fails: tuple[str, ...] = ()
    fails_whole: tuple[str, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict[str, str])
    together: Mapping[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])
    has_passing_tests: bool = True
    flags: tuple[Flag, ...] = LIST
    made: list[str] = field(default_factory=list[str])
    wall: float = 1.0
    walls: Mapping[str, float] = field(default_factory=dict[str, float])
    grows_whole: Mapping[str, int] = field(default_factory=dict[str, int])
    compiled: set[tuple[str, ...]] = field(default_factory=lambda: {()})

    def make_plain(self) -> Trial:
        return trial((), 1000, wall=self.wall)

    def list_excluded(self) -> dict[str, str]:
        return dict(self.known)

    def make(self, flags: Sequence[Flag], *, whole: bool = False) -> Trial:
        names = [flag.name for flag in flags]
        self.compiled = {(), *(flag.compile for flag in flags[-1:])}
        self.made.append("+".join([*(["whole"] if whole else []), *names]))
        if any(name in self.fails or (whole and name in self.fails_whole) for name in names):
            return trial(flags, 0, reason="make ended with 2: error: no")
        wall = self.walls.get(names[-1], self.wall) if names else self.wall
        tests = "check ended with 1" if any(name in self.breaks for name in names) else ""
        saved = sum(self.saves.get(flag.name, 0) for flag in flags if flag.counts == "loaded")
        saved += sum(more for some, more in self.together.items() if set(some) <= set(names))
        saved -= sum(self.grows_whole.get(name, 0) for name in names if whole)
        file = 5000 - sum(self.saves.get(flag.name, 0) for flag in flags)
        return trial(flags, 1000 - saved, file=file, tests=tests if self.has_passing_tests else None, wall=wall)

    def is_known(self, flags: Sequence[Flag]) -> bool:  # noqa: ARG002  (of the protocol)
        return False

    def only_links(self, flags: Sequence[Flag]) -> bool:
        return tuple(word for flag in flags for word in flag.compile) in self.compiled


Ask = Callable[..., FlagAdvice]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    def ask(trials: FakeTrials, *, seconds: float = 600.0, without: tuple[str, ...] = ()) -> FlagAdvice:
        options = AdviceOptions(folder=tmp_path, seconds=seconds, without=without)
        return search_flags(trials, options, build=("make",), whole_seconds=1.0, report=say_nothing)[0]

    return ask


def states(found: FlagAdvice) -> dict[str, str]:
    return {row.name: row.state for row in found.flags}


def reasons(found: FlagAdvice) -> dict[str, str]:
    return {step.flag: step.reason for step in found.steps}


def test_flags_are_added_by_their_gain_and_the_whole_build_is_made_with_them(ask: Ask):
    trials = FakeTrials(saves={"a": 20, "b": 50, "risky": 10, "file": 300})
    found = ask(trials)

    assert found.advised == ("b", "a", "risky", "file")
    assert (found.compile, found.link) == (("-a", "-risky"), ("-Wl,-b", "-Wl,-s"))
    assert trials.made[-1] == "whole+b+a+risky+file"
    assert found.advised_build is not None
    assert (found.advised_build.count("loaded"), found.advised_build.count("file")) == (930, 4620)
    assert [step.saved for step in found.steps if step.kept] == [50, 20, 10, 300]


def test_what_excludes_another_fails_or_is_not_worth_its_cost_stays_out(ask: Ask):
    trials = FakeTrials(
        saves={"a": 30, "b": 5, "risky": 4, "weak": 90, "strong": 80},
        breaks=("a",),
        fails=("b",),
        known={"file": ALREADY},
    )
    found = ask(trials)

    assert states(found) == {
        "a": "fails the tests", "b": "does not build", "risky": "smaller", "weak": "smaller", "strong": "smaller",
        "file": "already there",
    }  # fmt: skip
    assert reasons(found) == {
        "weak": "",
        "strong": "weak saves as much or more in its place",
        "risky": "its cost is worth 0.5 %, not 0.43 %",
    }
    assert found.advised == ("weak",)


def test_a_flag_takes_the_place_of_one_that_it_excludes_if_it_saves_more_there(ask: Ask):
    trials = FakeTrials(saves={"weak": 30, "strong": 20, "a": 25}, together={("strong", "a"): 40})
    found = ask(trials)
    assert "a+strong" in trials.made
    assert found.advised == ("a", "strong")
    assert reasons(found)["weak"] == "strong saves as much or more in its place"


def test_a_flag_that_lost_its_place_wins_it_back_beside_later_ones(ask: Ask):
    trials = FakeTrials(saves={"strong": 30, "weak": 29, "a": 20}, together={("weak", "a"): 10})
    found = ask(trials)
    assert found.advised == ("a", "weak")
    assert trials.made[-2:] == ["a+weak", "whole+a+weak"]
    assert {step.flag: step.kept for step in found.steps if step.flag in {"weak", "strong"}} == {
        "weak": True, "strong": False,
    }  # fmt: skip


def test_without_tests_nothing_is_advised_that_can_change_the_program(ask: Ask):
    found = ask(FakeTrials(saves={"risky": 100, "a": 10}, has_passing_tests=False))
    assert found.advised == ("a",)
    assert reasons(found)["risky"] == "it can change what the program does, and no --test judges"


def test_a_flag_that_grows_alone_is_tried_on_top(ask: Ask):
    trials = FakeTrials(saves={"a": 20, "b": -5})
    found = ask(trials)
    assert states(found)["b"] == "no smaller"
    assert "a+b" in trials.made
    assert reasons(found)["b"] == "it saves nothing on top"


def test_what_fails_in_the_whole_build_is_dropped(ask: Ask):
    found = ask(FakeTrials(saves={"a": 20, "b": 50}, fails_whole=("a",)))
    assert found.advised == ("b",)
    assert reasons(found)["a"] == "the whole build does not build: make ended with 2: error: no"


def test_time_ends_trials_and_the_reason_says_so(ask: Ask):
    trials = FakeTrials(saves={"a": 20, "b": 50}, wall=100.0)
    found = ask(trials, seconds=60.0)
    # Only a link fits into 60 % of the time.
    assert trials.made == ["b", "file", "b", "b+file", "whole+b"]
    row = next(row for row in found.flags if row.name == "a")
    assert (row.state, row.reason) == (
        "not tried",
        "out of time: run the same command again to go on, with more --seconds",
    )
    budget = Budget(seconds=60.0, build_seconds=100.0)
    assert describe_budget(trials, (), budget) == "6 flags, each build about 100.0 s: at most 60 s (--seconds)"


def test_what_a_compilation_takes_is_learned_and_not_what_a_link_takes(monkeypatch: pytest.MonkeyPatch):
    """The plain build had a busy machine, on which no compilation but the first would fit."""
    c = Flag(name="c", compile=A.compile, link=("-Wl,-c",), cost="nothing")
    trials = FakeTrials(flags=(B, A, c, STRONG), walls={"b": 1.0, "a": 20.0, "c": 2.0, "strong": 20.0})
    budget = Budget(seconds=60.0, build_seconds=100.0)
    assert budget.learn(trial([A], 0, reason="no")) == budget
    seconds = Budget(seconds=200.0, build_seconds=118.5, began=0.0)
    monkeypatch.setattr("mlgokit.flags.search.time.monotonic", lambda: float(len(trials.made)))
    rows, learned = try_alone(trials, trials.make_plain(), (), seconds, say_nothing)
    assert [row.name for row in rows if row.trial is None] == []
    assert learned.build_seconds == 20.0
    assert try_alone(trials, trials.make_plain(), (), learned, say_nothing)[1].build_seconds == 20.0


def test_flags_with_which_the_whole_build_is_no_smaller_are_not_advised(ask: Ask):
    """Its configuration sees the flags, and chooses otherwise."""
    found = ask(FakeTrials(saves={"a": 20, "b": 50}, grows_whole={"a": 90}))
    assert found.advised == ("b",)
    assert reasons(found)["a"] == "the whole build is no smaller than the plain one"
    found = ask(FakeTrials(saves={"a": 20}, grows_whole={"a": 20}))
    assert (found.advised, found.advised_build) == ((), None)


def test_names_of_without_are_those_of_the_list(ask: Ask):
    found = ask(FakeTrials(saves={"a": 20}), without=("a",))
    assert (found.advised, found.flags[0].reason) == ((), "--without")
    with pytest.raises(UsageError, match=r"^--without lto: expected one of a, b, risky, weak, strong, file; correct"):
        check_names(("lto",), LIST)


def test_the_page_says_what_is_advised_and_the_json_gives_it_back(ask: Ask, tmp_path: Path):
    advice = ask(FakeTrials(saves={"a": 20, "b": 50}, fails=("risky",)))
    assert FlagAdvice.from_json(json.loads(json.dumps(advice.to_json()))) == advice
    text = render_markdown(advice_page(advice))
    assert "**Smaller.** -6.93 % by b, a: 1 program, 1,010 to 940 bytes loaded, whole files -1.40 %" in text
    assert "| risky | does not build | make ended with 2: error: no |" in text
    assert "| b | -Wl,-b | nothing | smaller | -50 | -4.95 %" in text
    (tmp_path / "advice.json").write_text(json.dumps(advice.to_json()))
    told = report.run(report.MakeReport(result=tmp_path / "advice.json"))
    assert Path(told["markdown"]).read_text() == text
    nothing = ask(FakeTrials())
    assert "**Nothing was found.** none of 6 flags makes the 1 program smaller" in render_markdown(advice_page(nothing))
