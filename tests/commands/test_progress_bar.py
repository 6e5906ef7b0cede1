"""What a stage reports on a terminal and in a file; the clock is the test's."""

import io
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from rich.console import Console

from mlgokit.commands import progress_bar
from mlgokit.commands.progress_bar import show_progress


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr(progress_bar, "time", SimpleNamespace(monotonic=own.monotonic))
    return own


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=100)


def shown(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_file_gets_the_beginning_a_line_a_minute_and_the_end(clock: Clock, console: Console):
    with show_progress(console) as report:
        for done in range(0, 301, 10):
            report(done, 300, "compile")
            clock.now += 5

    assert shown(console) == [
        "compile: 0 of 300 after 0 s",
        "compile: 120 of 300 after 60 s, about 90 s left",
        "compile: 240 of 300 after 120 s, about 30 s left",
        "compile: 300 of 300 after 150 s",
    ]


def test_work_under_a_label_that_was_seen_before_has_a_time_of_its_own(clock: Clock, console: Console):
    with show_progress(console) as report:
        report(1, 2, "front end")
        report(2, 2, "front end")
        report(0, 180, "search")
        clock.now += 70
        report(60, 180, "search")
        clock.now += 1000
        # Not finished before, and from the beginning; or finished, and told after the first piece.
        report(0, 90, "search")
        report(1, 3, "front end")
        clock.now += 1
        report(3, 3, "front end")

    assert shown(console) == [
        "front end: 1 of 2 after 0 s",
        "front end: 2 of 2 after 0 s",
        "search: 0 of 180 after 0 s",
        "search: 60 of 180 after 70 s, about 140 s left",
        "search: 0 of 90 after 0 s",
        "front end: 1 of 3 after 0 s",
        "front end: 3 of 3 after 1 s",
    ]


def test_every_label_has_its_own_lines(clock: Clock, console: Console):
    with show_progress(console) as report:
        report(0, 2, "trace")
        clock.now += 10
        report(2, 2, "trace")
        report(0, 1, "fit")
        clock.now += 20
        report(1, 1, "fit")

    assert shown(console) == [
        "trace: 0 of 2 after 0 s",
        "trace: 2 of 2 after 10 s",
        "fit: 0 of 1 after 0 s",
        "fit: 1 of 1 after 20 s",
    ]


def test_a_label_that_comes_again_begins_again(clock: Clock, console: Console):
    with show_progress(console) as report:
        for _ in range(2):
            report(0, 4, "default trace")
            clock.now += 7
            report(0, 4, "default trace")
            clock.now += 7
            report(4, 4, "default trace")
            clock.now += 100

    assert shown(console) == ["default trace: 0 of 4 after 0 s", "default trace: 4 of 4 after 14 s"] * 2


def test_nothing_to_do_is_no_division_by_zero(clock: Clock, console: Console):
    with show_progress(console) as report:
        report(0, 0, "link")
        report(0, 0, "link")

    assert not "".join(shown(console))


def test_labels_are_not_markup(clock: Clock, console: Console):
    with show_progress(console) as report:
        report(0, 1, "[bold]alpha[/bold]")

    assert shown(console) == ["[bold]alpha[/bold]: 0 of 1 after 0 s"]


def test_a_long_label_is_one_line(clock: Clock, console: Console):
    with show_progress(console) as report:
        report(0, 1, "a label of several words " * 10)

    assert len(shown(console)) == 1


@pytest.fixture
def terminal() -> tuple[Console, Callable[[], str]]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=100, color_system=None), file.getvalue


def test_a_terminal_gets_a_bar_for_each_label(terminal: tuple[Console, Callable[[], str]]):
    console, text = terminal
    with show_progress(console) as report:
        report(0, 3, "front end")
        report(3, 3, "front end")
        report(0, 5, "default trace")
        report(5, 5, "default trace")
        report(0, 5, "default trace")
        report(2, 5, "default trace")

    first, second, third = [line for line in text().splitlines() if "left" in line][-3:]
    assert "front end" in first
    assert "3/3" in first
    assert "default trace" in second
    assert "5/5" in second
    assert "default trace" in third
    assert "2/5" in third


def test_the_default_is_standard_error(clock: Clock, capsys: pytest.CaptureFixture[str]):
    with show_progress() as report:
        report(0, 1, "fetch")

    assert capsys.readouterr() == ("", "fetch: 0 of 1 after 0 s\n")
