"""The loop of every search: which unit next, until the budget is spent or nothing is left to try."""

import math
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlgokit.compiler import process
from mlgokit.compiler.pool import MOST_THREADS, Workers, count_of, parallel
from mlgokit.progress import Report
from mlgokit.tune.judge import Judge, confirm, due
from mlgokit.tune.search import Search, SpaceT
from mlgokit.tune.space import IsOver, Step

OVER, NOTHING_LEFT = "the budget was spent", "nothing left to try"
GAVE_WAY = "the rest of the budget went to what gained more"
NOT_MADE_GOOD = "what the search began with was not made good in time"
"""Why a search ended."""
_SETTLING = 4
"""Compilations of a module, at most, before the search may rest: each may leave a smaller prediction to compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveWay:
    """When a search leaves the rest of its time to those after it.

    Attributes:
        after: seconds that it has in any case.
        rate: what another gains per second of processor time; beyond, it goes on while some unit gained as much lately.
    """

    after: float
    rate: float


def run_search(
    search: Search[SpaceT],
    *,
    seconds: float,
    workers: Workers,
    report: Report,
    judge: Judge | None = None,
    give_way: GiveWay | None = None,
    made_good: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Search until ``clock`` has advanced by ``seconds``, nothing is left to try, or others are to gain more.

    ``search.ended`` says which. Every finished step is on disk before the next one of its unit begins. A judge is asked
    at intervals, while nothing else runs. A search that began beyond the judge's bar ends where it still is there when
    the judge is asked after ``made_good`` seconds. Workers of a crew may come and go meanwhile.
    """
    begin, space = clock(), search.space
    rng = np.random.default_rng([search.seed, search.compilations])
    space.begin(seconds)
    pool = ThreadPoolExecutor(MOST_THREADS)
    crew = count_of(workers)
    running: dict[Future[Step], Any] = {}

    def is_over() -> bool:
        return clock() - begin + space.owed / crew >= seconds

    search.ended = OVER
    gave_way = False
    try:
        while True:
            crew = count_of(workers)
            spent = clock() - begin
            search.count(space.learn(spent, rng), compilations=0)
            asked = due(judge, spent=spent, seconds=seconds)
            gave_way = gave_way or (give_way is not None and spent >= give_way.after and _gains_less(search, give_way))
            over = is_over() or gave_way
            if not over and asked is None:
                _begin_steps(search, pool, running, workers=crew, rng=rng, is_over=is_over)
            if not running:
                _settle(search, workers=workers, report=report)
                if asked is not None:
                    confirm(asked, seconds=seconds)
                    if spent >= made_good and asked.is_beyond_bar:
                        search.ended = NOT_MADE_GOOD
                        break
                    continue
                if not over and judge is not None and confirm(judge, seconds=seconds):
                    # The judge took something back, which leaves something to try.
                    continue
                search.ended = GAVE_WAY if gave_way else OVER if over else NOTHING_LEFT
                break
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                _enter(search, running.pop(future), future.result())
            label = f"{space.label}, seconds · so far {100 * space.standing[1]:+.1f} %"
            report(int(min(spent, seconds)), int(seconds), label)
    except BaseException:
        process.kill_pool(pool, running)
        raise
    finally:
        space.rest()
    pool.shutdown()
    search.mark()
    search.save()


def ended_together(earlier: str, later: str) -> str:
    """Why a search ended that has two parts, one after the other: nothing is left to try if neither has anything.

    Example:
        >>> ended_together(NOTHING_LEFT, OVER), ended_together(OVER, NOTHING_LEFT)
        ('the budget was spent', 'the budget was spent')
        >>> ended_together(GAVE_WAY, NOTHING_LEFT)
        'the rest of the budget went to what gained more'
    """
    return OVER if earlier in (NOTHING_LEFT, GAVE_WAY) and later == OVER else earlier or later


def _gains_less(search: Search[SpaceT], give_way: GiveWay) -> bool:
    """Whether something is left to try, and no unit where it is gained so much lately."""
    urgencies = [urgency for unit in search.space.units if (urgency := search.space.urgency(unit)) is not None]
    return bool(urgencies) and all(-urgency[0] < give_way.rate for urgency in urgencies)


def _begin_steps(
    search: Search[SpaceT],
    pool: ThreadPoolExecutor,
    running: dict[Future[Step], Any],
    *,
    workers: int,
    rng: np.random.Generator,
    is_over: IsOver,
) -> None:
    """Give every idle worker the most urgent unit on which fewest work; on one with others only if it admits that."""
    space = search.space
    busy = Counter(id(unit) for unit in running.values())
    if len(running) >= workers:
        return
    urgencies = [(space.urgency(unit), unit) for unit in space.units]
    left = [(urgency, unit) for urgency, unit in urgencies if urgency is not None]
    left.sort(key=lambda pair: pair[0])

    def begin(unit: Any) -> None:
        running[pool.submit(space.propose(unit, rng, is_over))] = unit
        busy[id(unit)] += 1

    for unit in [unit for _, unit in left if not busy[id(unit)]][: workers - len(running)]:
        begin(unit)
    while len(running) < workers:
        shared = [unit for _, unit in left if busy[id(unit)] and space.admits(unit, busy[id(unit)])]
        if not shared:
            break
        begin(min(shared, key=lambda unit: busy[id(unit)]))


def _settle(search: Search[SpaceT], *, workers: Workers, report: Report) -> None:
    """Do the work that must be done before the search may rest; nothing else runs."""

    def work(one: tuple[Any, Callable[[], Step]]) -> Step:
        return one[1]()

    for _ in range(_SETTLING):
        waiting = search.space.unsettled()
        if not waiting:
            return
        steps = parallel(work, waiting, workers=workers, report=report, label="compile what was predicted")
        for (unit, _), step in zip(waiting, steps, strict=True):
            _enter(search, unit, step)


def _enter(search: Search[SpaceT], unit: Any, step: Step) -> None:
    """Count a step, let the space take what it found, and keep where the search stands."""
    search.count(step.user_seconds, compilations=step.compilations, trials=step.trials)
    search.space.accept(unit, step)
    search.save()
