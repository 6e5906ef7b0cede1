"""What a session says of its time, and which searches it leaves out of a project that is large for its budget."""

import dataclasses
import time
from pathlib import Path

import pytest

from mlgokit.tune.session import TuneSettings, _announce_early, _inlining_share, _is_too_large, announce_time


def settings(
    folder: Path, *, seconds: float = 300.0, pass_share: float = 0.4, allocation_share: float = 0.3
) -> TuneSettings:
    return TuneSettings(
        folder=folder,
        output=folder / "tuned.so",
        objective="image",
        seconds=seconds,
        pass_share=pass_share,
        least_pass_share=0.1,
        allocation_share=allocation_share,
    )


@pytest.mark.parametrize(
    ("compiling", "seconds", "is_large"),
    [(700.0, 300.0, True), (500.0, 300.0, False), (700.0, 400.0, False), (100.0, 1.0, False), (140.0, 1.0, True)],
)
def test_only_inlining_is_searched_if_a_look_at_all_modules_takes_longer_than_the_budget(
    tmp_path: Path, compiling: float, seconds: float, is_large: bool
):
    found = settings(tmp_path, seconds=seconds)
    assert _is_too_large(found, compiling) is is_large
    # What was found before would be lost.
    (tmp_path / "search" / "passes").mkdir(parents=True)
    assert not _is_too_large(found, compiling)


def test_a_search_over_inlining_alone_has_the_whole_budget(tmp_path: Path):
    assert _inlining_share(settings(tmp_path), alone=True) == (300.0, None)
    seconds, rule = _inlining_share(settings(tmp_path), alone=False)
    assert rule is not None
    assert (seconds, rule.after) == pytest.approx((180.0, 90.0))
    assert _inlining_share(settings(tmp_path, pass_share=0.0, allocation_share=0.5), alone=False) == (150.0, None)


def test_the_announced_time_has_no_searches_that_are_left_out(tmp_path: Path):
    assert announce_time(100.0, settings(tmp_path), spent=0.0) == (
        "about 14 min: the search 5 min, first policies and verifications 9 min"
    )
    assert announce_time(800.0, settings(tmp_path), spent=0.0) == (
        "about 26 min: the search 5 min, first policies and verifications 21 min"
    )
    # Nor has a large project a build by a rule beside that by a policy.
    started = dataclasses.replace(settings(tmp_path), policies={"inline-size": tmp_path / "size.policy"})
    assert announce_time(800.0, started, spent=0.0) == (
        "about 26 min: the search 5 min, first policies and verifications 21 min"
    )


@pytest.mark.parametrize(("total", "said"), [(1300, ["by the first 65 of 1300 modules about"]), (99, [])])
def test_the_time_of_a_large_project_is_announced_by_its_first_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, said: list[str]
):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    labels: list[str] = []
    tell = _announce_early(settings(tmp_path), lambda _done, _total, label: labels.append(label), build=0.0)
    for done in range(total + 1):
        now[0] += 0.1
        tell(done, total, "compile")
    announced = [label for label in labels if label != "compile"]
    assert [label.partition(" about")[0] + " about" for label in announced] == said
    assert len(labels) - len(announced) == total + 1
