"""The loop of every search: which unit takes a step next, until the budget is spent or nothing is left to try."""

import math
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlgokit.compiler import process
from mlgokit.compiler.pool import MOST_THREADS, Workers, count_of, parallel
from mlgokit.progress import Report
from mlgokit.tune.judge import Judge, confirm, is_due
from mlgokit.tune.search import Search
from mlgokit.tune.space import PendingWork, Step, pending_seconds

OVER, NOTHING_LEFT = "the budget was spent", "nothing left to try"
YIELDED = "the rest of the budget went to what gained more"
NOT_RECOVERED = "what the search began with was not made good in time"
"""Why a search ended."""
_JUDGE_DUE = "gains are to be confirmed"
_PENDING_ROUNDS = 4
"""Maximum number of compilations of a module before the search pauses: each may leave a smaller composed build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class YieldRule:
    """When a search leaves the rest of its time to the searches after it.

    Attributes:
        after: seconds that it has in any case.
        rate: bytes that a later search gains per second of processor time; the search goes on while some unit of it
            gained as much lately.
    """

    after: float
    rate: float


def run_search(
    search: Search[Any],
    *,
    seconds: float,
    workers: Workers,
    report: Report,
    judge: Judge | None = None,
    yield_rule: YieldRule | None = None,
    recover_by: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run steps until the budget is spent, nothing is left to try, or another search is to gain more.

    ``search.ended`` says which. Every finished step is on disk before the next one of its unit begins. Workers of a
    crew may come and go meanwhile.

    Args:
        search: the search, just opened or run before.
        seconds: the budget, in seconds of ``clock``.
        workers: number of steps under way at once.
        report: called at least once a second.
        judge: confirms gains at intervals, while no step is under way; ``None`` for no confirmation.
        yield_rule: when to leave the rest of the budget to other searches; by default never.
        recover_by: seconds after which a search that is still beyond the judge's bar ends as not recovered. One that
            ends for another reason than its budget is not recovered either if it is beyond the bar.
        clock: function that returns the time in seconds.
    """
    session = _Session(search=search, seconds=seconds, workers=workers, clock=clock)
    space, search.ended = search.space, ""

    def tell(spent: float) -> None:
        report(int(spent), int(seconds), f"{search.label}, seconds · so far {100 * space.score.change:+.1f} %")

    try:
        while not search.ended:
            spent = session.spent
            search.count(space.prepare(spent, seconds, session.rng), compilations=0)
            pause = session.pause_reason(spent, judge, yield_rule)
            if not pause:
                pause = session.begin_steps()
            if session.running:
                session.record_finished()
                # All seconds are over when no step is under way any more.
                tell(max(0.0, min(spent, seconds - 1)))
            else:
                finish_pending(search, workers=workers, report=report)
                search.ended = _confirm_or_end(pause, judge, seconds=seconds, is_late=spent >= recover_by)
    except BaseException:
        process.kill_pool(session.pool, session.running)
        raise
    finally:
        space.close()
    session.pool.shutdown()
    tell(min(session.spent, seconds))
    search.mark()
    search.save()


def finish_pending(search: Search[Any], *, workers: Workers, report: Report) -> None:
    """Do the work that must be done before the search pauses; it is called when no step is under way."""

    def run(work: PendingWork[Any, Step]) -> Step:
        return work.run()

    for _ in range(_PENDING_ROUNDS):
        pending = search.space.pending
        if not pending:
            return
        steps = parallel(run, pending, workers=workers, report=report, label="compile what was predicted")
        for work, step in zip(pending, steps, strict=True):
            record_step(search, work.unit, step)


def record_step(search: Search[Any], unit: Any, step: Step) -> None:
    """Count a step, let the space accept its outcome, and save the search."""
    search.count(step.user_seconds, compilations=step.compilations, trials=step.trials)
    search.space.accept(unit, step)
    search.save()


def combine_end_reasons(earlier: str, later: str) -> str:
    """Combine the reasons why two searches ended that ran one after the other.

    It is the earlier reason, except that nothing is left to try only if that holds for both searches, and that the
    budget is spent if the later search spent what the earlier one left to it.

    Example:
        >>> combine_end_reasons(NOTHING_LEFT, OVER), combine_end_reasons(OVER, NOTHING_LEFT)
        ('the budget was spent', 'the budget was spent')
        >>> combine_end_reasons(YIELDED, NOTHING_LEFT) == combine_end_reasons(NOTHING_LEFT, YIELDED) == YIELDED
        True
        >>> combine_end_reasons(YIELDED, OVER), combine_end_reasons(NOTHING_LEFT, NOTHING_LEFT)
        ('the budget was spent', 'nothing left to try')
    """
    takes_later = earlier in ("", NOTHING_LEFT) or (earlier == YIELDED and later == OVER)
    return later if takes_later and later else earlier


@dataclass(slots=True, kw_only=True, eq=False)
class _Session:
    """One run of a search: its clock, its draws, and the steps under way.

    Attributes:
        search: the search that is run.
        seconds: the budget, in seconds of ``clock``.
        workers: number of steps under way at once.
        clock: function that returns the time in seconds.
        began: time when the session began.
        rng: source of the steps' random draws.
        pool: threads of the steps.
        running: units of the steps under way.
        has_yielded: whether the rest of the budget is left to other searches; this is final.
        has_begun: whether steps began.
    """

    search: Search[Any]
    seconds: float
    workers: Workers
    clock: Callable[[], float]
    began: float = field(init=False)
    rng: np.random.Generator = field(init=False)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_THREADS))
    running: dict[Future[Step], Any] = field(default_factory=dict[Future[Step], Any])
    has_yielded: bool = False
    has_begun: bool = False

    def __post_init__(self) -> None:
        self.began = self.clock()
        self.rng = np.random.default_rng([self.search.seed, self.search.compilations])

    @property
    def spent(self) -> float:
        """Seconds since the session began."""
        return self.clock() - self.began

    def is_over(self) -> bool:
        """Whether the budget is spent, except for the time that the pending work needs."""
        return self.spent + pending_seconds(self.search.space) / count_of(self.workers) >= self.seconds

    def pause_reason(self, spent: float, judge: Judge | None, rule: YieldRule | None) -> str:
        """Why no step may begin now; empty if a step may begin."""
        if rule is not None and spent >= rule.after and not self.has_yielded:
            self.has_yielded = self._gains_less(rule.rate)
        if judge is not None and is_due(judge, spent=spent, seconds=self.seconds):
            return _JUDGE_DUE
        if self.has_yielded:
            return YIELDED
        return OVER if self.is_over() else ""

    def begin_steps(self) -> str:
        """Give every idle worker the most urgent unit with the fewest steps under way, if it takes one more.

        After the first ones, a step begins only if at least half of it fits into what is left of the budget.

        Returns:
            Why no step begins although something is left to try; empty otherwise.
        """
        space, workers = self.search.space, count_of(self.workers)
        if len(self.running) >= workers:
            return ""
        busy = Counter(id(unit) for unit in self.running.values())
        ranked = [(rank, unit) for unit in space.units if (rank := space.urgency(unit, 0)) is not None]
        ranked.sort(key=lambda pair: pair[0])
        most = 2 * (self.seconds - self.spent) if self.has_begun else math.inf
        self.has_begun = True
        units = [unit for _, unit in ranked if space.step_seconds(unit) <= most]

        def begin(unit: Any) -> None:
            self.running[self.pool.submit(space.propose(unit, self.rng, self.is_over))] = unit
            busy[id(unit)] += 1

        for unit in [unit for unit in units if not busy[id(unit)]][: workers - len(self.running)]:
            begin(unit)
        while len(self.running) < workers:
            shared = [unit for unit in units if busy[id(unit)] and space.urgency(unit, busy[id(unit)]) is not None]
            if not shared:
                break
            begin(min(shared, key=lambda unit: busy[id(unit)]))
        return OVER if ranked and not units and not self.running else ""

    def record_finished(self) -> None:
        """Wait for the next step to finish, for a second at most, and record what has finished."""
        done, _ = wait(self.running, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            record_step(self.search, self.running.pop(future), future.result())

    def _gains_less(self, rate: float) -> bool:
        """Whether some units are left to try, but none of them gained ``rate`` bytes per second lately."""
        space = self.search.space
        ranks = [rank for unit in space.units if (rank := space.urgency(unit, 0)) is not None]
        return bool(ranks) and all(-rank[0] < rate for rank in ranks)


def _confirm_or_end(pause: str, judge: Judge | None, *, seconds: float, is_late: bool) -> str:
    """Let the judge confirm if that is due or no step is left; return why the search ends, or empty if it goes on."""
    if judge is not None and pause in (_JUDGE_DUE, ""):
        reverted = confirm(judge, seconds=seconds)
        if pause == _JUDGE_DUE:
            return NOT_RECOVERED if is_late and judge.is_beyond_bar else ""
        if reverted:
            # There is something to try again.
            return ""
    ended = pause or NOTHING_LEFT
    return NOT_RECOVERED if judge is not None and judge.is_beyond_bar and ended != OVER else ended
