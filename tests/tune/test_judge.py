"""The judge of a search, without a real compiler or link: an object has as text what it weighs in the link."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.compiler.compile import CompileResult, CompileStatus
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective, ObjectSizes, SectionTotals
from mlgokit.errors import UsageError
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.tune import judge as judging, measurement
from mlgokit.tune.judge import Judge, JudgeConfig, conclude, confirm, due, open_judge, plain_object, prove
from mlgokit.tune.measurement import LinkedBuild, Measure, Measurement
from mlgokit.tune.project import Search, SearchConfig
from mlgokit.tune.search import ModuleState
from mlgokit.tune.state import Build

NAMES = tuple("abcdefgh")
PLAIN = 100
SITES = (8, 16, 24)


def sizes(text: int) -> ObjectSizes:
    one, none = np.array([text], np.int64), np.zeros(1, np.int64)
    return ObjectSizes(
        totals=SectionTotals(text=text, rodata=0, eh_frame=0, data=0, bss=0, except_table=0),
        function_names=("main",),
        function_text=one,
        function_rodata=none,
        function_except_table=none,
        function_eh_frame=none,
        function_signature=none - 1,
        signatures=(),
        signature_rest=np.zeros((0, 3), np.int64),
        signature_data=np.zeros(0, np.int64),
        rest=np.zeros(3, np.int64),
    )


def build(text: int, inlined: tuple[bool, ...] = (False, False, False)) -> Build:
    return Build(
        sizes=sizes(text),
        site=np.array(SITES, np.uint64),
        caller=np.array([1, 2, 3]),
        callee=np.array([4, 5, 6]),
        inlined=np.array(inlined),
        names=(),
        values=np.zeros((3, 0), np.int64),
        user_seconds=0.0,
    )


ORIGIN = build(PLAIN + 1)


@dataclasses.dataclass(slots=True)
class FakeBench:
    """``weights``: by module, what its tuned object weighs when it is linked."""

    search: Any = None
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    compiled: int = 0

    def compile(
        self,
        module: Module,
        *,
        decisions: Mapping[int, bool] | None = None,
        keep_object: Any = None,
        **_: object,
    ) -> CompileResult:
        self.compiled += 1
        found = ORIGIN if decisions is None else self.search.modules[module.name].build
        if keep_object is not None:
            keep_object.write_text(str(self.weights[module.name]))
        return CompileResult(status=CompileStatus.OK, sizes=found.sizes)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Judge]:
    """``opened(weights, exact=True, is_size=True)``: a judge of modules that weigh 100 bytes plainly."""
    monkeypatch.setattr(judging, "build_of", lambda result: dataclasses.replace(ORIGIN, sizes=result.sizes))
    monkeypatch.setattr(
        judging, "make_ready", lambda _means, objects, _scratch: LinkedBuild(objects=dict(objects), image=Path())
    )
    noise = np.random.default_rng(3)

    def fake(means: Measure, ready: LinkedBuild) -> Measurement:
        words = [path.read_text() for path in ready.objects.values()]
        if "broken" in words:
            return Measurement(value=None, reason="broken")
        return Measurement(
            value=sum(map(float, words)) + float(means.command[0] if means.command else 0) * noise.normal()
        )

    monkeypatch.setattr(measurement, "measure", fake)
    monkeypatch.setattr(judging, "measure", fake)

    def make(weights: Mapping[str, float | str], *, command: tuple[str, ...] = ()) -> Judge:
        bench = FakeBench(weights=weights)  # type: ignore[arg-type]
        modules = {
            name: ModuleState(
                module=Module(
                    name=name, project="p", language="c++", bitcode=Path(), command_line=("-cc1",), bitcode_bytes=1
                ),
                plain=sizes(PLAIN),
                build=ORIGIN,
            )
            for name in NAMES
        }
        plain = {name: plain_object(tmp_path / "judge", index) for index, name in enumerate(NAMES)}
        for path in plain.values():
            path.write_text(str(PLAIN))
        objects = {name: one.build.sizes for name, one in modules.items()}
        search = Search(
            folder=tmp_path / "search",
            bench=bench,  # type: ignore[arg-type]
            config=SearchConfig(),
            modules=modules,
            failures={},
            account=account_of(NAMES, objects, objective=Objective.LINK_AWARE),
            plain_bytes=PLAIN * len(NAMES),
        )
        bench.search = search
        means = Measure(plan=None, command=command, modules=NAMES, timeout_seconds=1)
        return open_judge(search, means, JudgeConfig(), plain, folder=tmp_path / "judge", workers=1, report=say_nothing)

    return make


def adopt(judge: Judge, **texts: int) -> None:
    """Let the search find builds of these sizes by the account."""
    for name, text in texts.items():
        judge.search.modules[name].build = build(text, (True, True, False))
        judge.search.account.put(name, sizes(text))


def total(judge: Judge, folder: Path) -> float:
    found = prove(judge, judge.plain.objects, judge.ready.objects, folder)
    assert found.after is not None
    return found.after


def test_gains_that_the_link_shows_are_kept_at_one_stroke(opened: Callable[..., Judge], tmp_path: Path):
    judge = opened(dict.fromkeys(NAMES, 90))
    assert judge.value == 800
    adopt(judge, a=90, c=90)
    assert confirm(judge, seconds=100) == 0
    assert (set(judge.accepted), judge.value, total(judge, tmp_path)) == ({"a", "c"}, 780, 780)
    assert judge.search.bench.compiled == 2  # type: ignore[attr-defined]
    assert confirm(judge, seconds=100) == 0
    assert judge.search.bench.compiled == 2  # type: ignore[attr-defined]


def test_modules_that_make_the_image_larger_are_found_and_taken_back(opened: Callable[..., Judge], tmp_path: Path):
    judge = opened({name: 130 if name in "cg" else 90 for name in NAMES})
    adopt(judge, **dict.fromkeys(NAMES, 90))
    assert confirm(judge, seconds=100) == 2
    assert set(judge.accepted) == set(NAMES) - set("cg")
    assert total(judge, tmp_path) == 6 * 90 + 2 * 100
    back = judge.search.modules["c"]
    assert back.build.decisions == ORIGIN.decisions
    assert set(back.tried) == {8, 16}, "the moves that led there are not made again at once"
    assert judge.search.account.image == 6 * 90 + 2 * (PLAIN + 1)


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
    assert judge.value == 800
    adopt(judge, a=90)
    assert confirm(judge, seconds=100) == 0
    assert not judge.accepted
    conclude(judge, seconds=100)
    assert judge.search.account.image == 100 + 7 * 100


def test_without_time_gains_stay_open(opened: Callable[..., Judge]):
    judge = opened({name: 130 if name in "cg" else 90 for name in NAMES})
    adopt(judge, **dict.fromkeys(NAMES, 90))
    assert confirm(judge, seconds=0) == 0
    assert set(judge.accepted) <= set(NAMES)
    assert judge.value is not None
    assert judge.value <= 800


def test_what_was_accepted_is_recalled_and_measured_again(
    opened: Callable[..., Judge], monkeypatch: pytest.MonkeyPatch
):
    judge = opened(dict.fromkeys(NAMES, 90))
    adopt(judge, a=90, b=90)
    confirm(judge, seconds=100)
    kept = build(90, (True, True, False))
    monkeypatch.setattr(judging, "build_of", lambda _: kept)
    monkeypatch.setattr(FakeBench, "compile", _always(kept, "90"))
    again = opened({})
    assert set(again.accepted) == {"a", "b"}
    assert again.value == 780
    monkeypatch.setattr(FakeBench, "compile", _always(kept, "101"))
    assert not opened({}).accepted


def _always(found: Build, text: str) -> Callable[..., CompileResult]:
    def compile_it(*_words: object, keep_object: Path | None = None, **_: object) -> CompileResult:
        if keep_object is not None:
            keep_object.write_text(text)
        return CompileResult(status=CompileStatus.OK, sizes=found.sizes)

    return compile_it


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
    assert due(None, spent=50, seconds=100) is None
    assert due(judge, spent=9, seconds=100) is None
    assert due(judge, spent=10, seconds=100) is judge
    confirm(judge, seconds=100)
    assert due(judge, spent=19, seconds=100) is None
    assert due(judge, spent=21, seconds=100) is judge
    assert due(judge, spent=100, seconds=100) is None


def test_progress_of_the_judge_is_no_progress_of_the_search(opened: Callable[..., Judge]):
    judge = opened(dict.fromkeys(NAMES, 90))
    adopt(judge, a=90)
    confirm(judge, seconds=100)
    folders = {path.relative_to(judge.search.folder).parts[0] for path in judge.search.folder.rglob("*.npz")}
    assert folders == {"judged"}
