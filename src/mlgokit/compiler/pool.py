"""Thread pools whose threads wait for child processes, which are killed if the pool stops early."""

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from mlgokit.compiler import process
from mlgokit.errors import UsageError
from mlgokit.progress import Report

Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD = 8
_LARGE_SHARE = 0.1
"""Share of a worker's cost from which on an item begins before the others."""
MOST_THREADS = 1 << 16
"""Maximum number of threads of a pool; a thread is started only when it is needed."""


class Crew(Protocol):
    """Anything with a changing number of workers, such as a compiler on a cluster."""

    @property
    def workers(self) -> int:
        """The current number of workers."""
        ...


Workers = int | Crew
"""Number of workers: fixed, or an object with a changing number."""


def count_of(workers: Workers) -> int:
    """Read the current number of workers.

    Example:
        >>> count_of(3)
        3
    """
    return workers if isinstance(workers, int) else workers.workers


@dataclass(slots=True, kw_only=True, eq=False)
class _Seats:
    """A semaphore whose limit may change.

    Attributes:
        most: the current limit.
    """

    most: int
    _taken: int = 0
    _closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self) -> None:
        """Acquire a seat; waits until one is free."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._taken < self.most)
            if self._closed:
                raise CancelledError
            self._taken += 1

    def leave(self) -> None:
        """Release the seat."""
        with self._changed:
            self._taken -= 1
            self._changed.notify()

    def resize(self, most: int) -> None:
        """Change the limit; a lower one takes effect as seats are released."""
        if most == self.most:
            return
        with self._changed:
            self.most = most
            self._changed.notify_all()

    def close(self) -> None:
        """Wake all waiting threads; no further seat is given."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def parallel(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: Workers,
    report: Report,
    label: str,
    cost: Callable[[Item], float] | None = None,
) -> list[Result]:
    """Run ``work`` on every item, ``workers`` at a time; return the results in order.

    With ``cost``, items that take a large part of a worker's time begin first, so that none is left alone at the end.
    The size of a crew is read again whenever an item ends, and every second. An error or an interrupt kills the running
    child processes and drops the items that have not started.

    Raises:
        UsageError: ``workers`` is below 1.
    """
    seats = _Seats(most=count_of(workers))
    _check_count(seats.most)
    results: list[Result | None] = [None] * len(items)
    pool = ThreadPoolExecutor(MOST_THREADS)
    pending: dict[Future[Result], int] = {}
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    left = iter([(index, items[index]) for index in _order(items, cost, workers=seats.most)])

    def work_in_seat(item: Item) -> Result:
        seats.take()
        try:
            return work(item)
        finally:
            seats.leave()

    try:
        done = 0
        report(0, len(items), label)
        while True:
            # Only a few more than there are seats, since each has a thread.
            for index, item in itertools.islice(left, max(0, seats.most + _AHEAD - len(pending))):
                future = pool.submit(work_in_seat, item)
                pending[future] = index
                future.add_done_callback(ended.put)
            if not pending:
                break
            finished = _drain(ended, seconds=1.0)
            seats.resize(count_of(workers))
            for future in finished:
                results[pending.pop(future)] = future.result()
            done += len(finished)
            report(done, len(items), label)
    except BaseException:
        seats.close()
        process.kill_pool(pool, pending)
        raise
    pool.shutdown()
    return results  # pyright: ignore[reportReturnType]  (every future has put its result)


def _order(items: Sequence[Item], cost: Callable[[Item], float] | None, *, workers: int) -> list[int]:
    """Return the order in which items begin: those with a large part of a worker's cost first, the largest of all.

    Example:
        >>> _order([1, 2, 90, 3, 40], float, workers=2)
        [2, 4, 0, 1, 3]
    """
    if cost is None or workers < 2:
        return list(range(len(items)))
    costs = [cost(item) for item in items]
    large = _LARGE_SHARE * sum(costs) / workers
    first = sorted((index for index, one in enumerate(costs) if one > large), key=lambda index: -costs[index])
    return [*first, *(index for index, one in enumerate(costs) if one <= large)]


def _drain(queue: SimpleQueue[Item], *, seconds: float) -> list[Item]:
    """Take all items of a queue; waits up to ``seconds`` for the first."""
    items: list[Item] = []
    with contextlib.suppress(Empty):
        items.append(queue.get(timeout=seconds))
        while True:
            items.append(queue.get_nowait())
    return items


def map_in_order(work: Callable[[Item], Result], items: Iterable[Item], *, workers: int) -> Generator[Result]:
    """Map ``work`` over the items in threads, results in order; only a few items are read ahead.

    When the consumer stops early, running child processes are killed and items that have not started are dropped.

    Raises:
        UsageError: ``workers`` is below 1.

    Example:
        >>> list(map_in_order(abs, [-3, 2, -1], workers=2))
        [3, 2, 1]
    """
    if workers <= 1:
        _check_count(workers)
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="import")
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) >= workers * _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BaseException:
        process.kill_pool(pool, pending)
        raise
    pool.shutdown()


def _check_count(workers: int) -> None:
    if workers < 1:
        raise UsageError(f"workers: expected at least one, found {workers}; give as many as there are processors")
