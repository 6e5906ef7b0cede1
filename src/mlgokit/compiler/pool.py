"""Work on many items at once: threads that wait for child processes, which die with the work."""

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from mlgokit.compiler import process
from mlgokit.errors import UsageError
from mlgokit.progress import Report

Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD = 8


def parallel(
    work: Callable[[Item], Result], items: Sequence[Item], *, workers: int, report: Report, label: str
) -> list[Result]:
    """``work`` on every item, ``workers`` at a time, results in order.

    An error or an interrupt kills the child processes that run and drops what has not begun.

    Raises:
        UsageError: nobody is to work.
    """
    if workers < 1:
        raise UsageError(f"workers: expected at least one, found {workers}; give as many as there are processors")
    results: list[Result | None] = [None] * len(items)
    pool = ThreadPoolExecutor(workers)
    pending: dict[Future[Result], int] = {}
    left = iter(enumerate(items))
    try:
        done = 0
        report(0, len(items), label)
        while True:
            # Few ahead: to wait looks at each of them.
            ahead = itertools.islice(left, workers + _AHEAD - len(pending))
            pending |= {pool.submit(work, item): index for index, item in ahead}
            if not pending:
                break
            finished, _ = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in finished:
                results[pending.pop(future)] = future.result()
            done += len(finished)
            report(done, len(items), label)
    except BaseException:
        process.kill_pool(pool, pending)
        raise
    pool.shutdown()
    return results  # pyright: ignore[reportReturnType]  (every future has put its result)


def in_order(work: Callable[[Item], Result], items: Iterable[Item], *, workers: int) -> Generator[Result]:
    """``work`` on each item in threads, outcomes in the order of the items; few items are taken ahead.

    When the consumer stops early, child processes that run are killed and what has not begun is dropped.

    Example:
        >>> list(in_order(abs, [-3, 2, -1], workers=2))
        [3, 2, 1]
    """
    if workers <= 1:
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
