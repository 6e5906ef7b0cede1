"""Many pieces of work at once, as all stages do it; events and barriers instead of time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mlgokit.compiler.pool import parallel
from mlgokit.errors import ToolError
from mlgokit.progress import say_nothing

SECONDS = 60
MANY = 100


def test_results_keep_the_order_of_the_items():
    begun = threading.Barrier(2)

    def work(item: int) -> int:
        # Both must have begun before either ends: two at a time.
        begun.wait(SECONDS)
        return item * item

    assert parallel(work, [3, 1, 2, 0], workers=2, report=say_nothing, label="") == [9, 1, 4, 0]


def test_a_crew_that_grows_is_used_at_once_and_one_that_shrinks_too():
    """The work itself says how many there are: five can only meet once all five may run.

    Who begins first is not said, so what is done depends on how many began before.
    """
    met, pair, lock, shrunk = threading.Barrier(5), threading.Barrier(2), threading.Lock(), threading.Event()
    begun, running, most_after = 0, 0, 0

    class Crew:
        now, asked_when_two = 1, 0

        @property
        def workers(self) -> int:
            if self.now == 2:
                self.asked_when_two += 1
                if self.asked_when_two == 2:
                    shrunk.set()
            return self.now

    crew = Crew()

    def work(item: int) -> int:
        nonlocal begun, running, most_after
        with lock:
            place, begun = begun, begun + 1
        if place == 0:
            crew.now = 5
        elif place <= 5:
            met.wait(SECONDS)
            crew.now = 2
        elif place <= 20:
            assert shrunk.wait(SECONDS)
        else:
            with lock:
                running += 1
                most_after = max(most_after, running)
            pair.wait(SECONDS)
            with lock:
                running -= 1
        return item

    assert parallel(work, range(41), workers=crew, report=say_nothing, label="") == list(range(41))
    assert most_after == 2


def test_a_crew_that_cannot_be_asked_ends_the_work(dropped: threading.Event):
    class Crew:
        asked = 0

        @property
        def workers(self) -> int:
            self.asked += 1
            if self.asked > 1:
                raise ToolError("nobody is left")
            return 2

    def work(item: int) -> None:
        assert item == 0 or dropped.wait(SECONDS)

    with pytest.raises(ToolError, match="nobody is left"):
        parallel(work, range(MANY), workers=Crew(), report=say_nothing, label="")


def test_progress_goes_from_none_to_all():
    said: list[tuple[int, int, str]] = []

    parallel(abs, range(5), workers=2, report=lambda *words: said.append(words), label="square")

    counts = [done for done, _, _ in said]
    assert (counts[0], counts[-1]) == (0, 5)
    assert counts == sorted(counts)
    assert {words[1:] for words in said} == {(5, "square")}


def test_no_items_give_no_results():
    assert parallel(abs, [], workers=1, report=say_nothing, label="") == []


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Happens when the pool has dropped what has not begun."""
    event = threading.Event()
    shutdown: Callable[..., None] = ThreadPoolExecutor.shutdown

    def watched(pool: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT002
        shutdown(pool, wait=False, cancel_futures=cancel_futures)
        event.set()
        shutdown(pool, wait=wait)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", watched)
    return event


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_an_error_in_one_item_drops_what_has_not_begun(dropped: threading.Event, error: BaseException):
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise error
        assert dropped.wait(SECONDS)

    with pytest.raises(type(error)) as caught:
        parallel(work, range(MANY), workers=2, report=say_nothing, label="")

    assert caught.value is error
    assert set(begun) <= {0, 1, 2}


def test_an_interrupt_of_the_caller_drops_what_has_not_begun(dropped: threading.Event):
    begun: list[int] = []
    ended: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        assert dropped.wait(SECONDS)
        ended.append(item)

    def interrupt(_done: int, _total: int, _label: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel(work, range(MANY), workers=2, report=interrupt, label="")

    # What had begun was waited for: nothing goes on behind the caller's back.
    assert set(begun) <= {0, 1}
    assert sorted(ended) == sorted(begun)
