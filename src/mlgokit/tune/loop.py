"""The search over a project: which module next, until the budget is spent or nothing gets smaller."""

import dataclasses
import functools
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from mlgokit.algorithms.effects import join_effects
from mlgokit.compiler import process
from mlgokit.compiler.pool import parallel
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report
from mlgokit.tune.judge import Judge, confirm, due
from mlgokit.tune.project import Search, adopt_if_better, save_step, save_totals
from mlgokit.tune.restart import ArmStatistics, RestartKind, choose_restart, restart
from mlgokit.tune.search import ModuleState, MovePriority, Rank, StepResult, confirm_composed, indifferent, step
from mlgokit.tune.state import Build, Floats

WORTH_A_PASS = 5e-4
"""A pass over all moves that saves less than this share of the module is the last one, unless a restart saves more."""
OVER, NOTHING_LEFT = "the budget was spent", "nothing left to try"
POLICY_NAME = "tuned.policy"
LEAST_COMPONENTS = 500
"""Labels below which no policy is fitted."""
LEAST_MODULES = 4
"""Modules below which none is: members stop on modules that they were not fitted on."""
_POINT_SECONDS = 10.0
_NOTHING = 0.1
"""Bytes per second that are as good as none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Begun:
    """A step that runs, or a restart of some kind."""

    searched: ModuleState
    kind: RestartKind | None


def run_search(
    search: Search,
    *,
    seconds: float,
    workers: int,
    report: Report,
    judge: Judge | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Search until ``clock`` has advanced by ``seconds``, or nothing is left to try; ``search.ended`` says which.

    A module in which no move pays any more is begun anew from elsewhere, until that was in vain too often.
    Every finished step is on disk before the next one of its module begins. A judge is asked at intervals, while
    nothing else runs.
    """
    begin = clock()
    rng = np.random.default_rng([search.config.seed, search.compilations])
    refits = [share * seconds for share in search.config.refits]
    rank = rank_by(search.policy)
    pool = ThreadPoolExecutor(workers)
    running: dict[Future[StepResult], _Begun] = {}

    def is_over() -> bool:
        return clock() - begin + _owed(search) / workers >= seconds

    search.ended = OVER
    try:
        while True:
            spent = clock() - begin
            if refits and spent >= refits[0]:
                refits = [moment for moment in refits if moment > spent]
                rank = _refitted(search, rng) or rank
            asked = due(judge, spent=spent, seconds=seconds)
            over = is_over()
            if not over and asked is None:
                _begin_steps(search, pool, running, workers=workers, rank=rank, rng=rng, is_over=is_over)
            if not running:
                _confirm_composed(search, workers=workers, report=report)
                if asked is not None:
                    confirm(asked, seconds=seconds)
                    continue
                if over or _is_done(search, judge, seconds):
                    break
                continue
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                begun = running.pop(future)
                _take(search, begun.searched, future.result(), begun.kind)
            change = 100 * (search.account.image / search.plain_bytes - 1)
            label = f"search, seconds · so far {change:+.1f} %"
            report(int(min(spent, seconds)), int(seconds), label)
    except BaseException:
        process.kill_pool(pool, running)
        raise
    finally:
        search.bench.rest()
    pool.shutdown()
    search.mark()
    save_totals(search)


def rank_by(policy: Policy | None) -> Rank:
    """Order decisions by what a policy expects of turning them round; without a policy, all are alike."""
    if policy is None:
        return indifferent
    known: dict[int, tuple[Build, Floats]] = {}
    scale = policy.bytes_per_unit if policy.output is OutputKind.EFFECT_BYTES else 1.0

    def rank(build: Build) -> Floats:
        # The build is kept beside the answer, so that no other one can have its id.
        if id(build) in known:
            return known[id(build)][1]
        if not len(build.site) or not set(policy.features) <= set(build.names):
            return np.zeros(len(build.site))
        columns = [build.names.index(name) for name in policy.features]
        towards = scale * policy.preferences(build.values[:, columns])
        found: Floats = np.where(build.inlined, -towards, towards)
        if len(known) >= MOST_RANKED:
            known.clear()
        known[id(build)] = build, found
        return found

    return rank


MOST_RANKED = 256


def _begin_steps(
    search: Search,
    pool: ThreadPoolExecutor,
    running: dict[Future[StepResult], _Begun],
    *,
    workers: int,
    rank: Rank,
    rng: np.random.Generator,
    is_over: Callable[[], bool],
) -> None:
    """Give every idle worker the module that saved most per second lately.

    Of those that saved nothing the ones with moves that were never tried come first, then those in a later pass, for
    both give more than restarts; else they share the time.
    """
    busy = {begun.searched.module.name for begun in running.values()}
    free = [one for one in search.modules.values() if one.module.name not in busy and _goes_on(search, one)]
    config = search.config
    order = MovePriority(rank=rank, noise=config.noise, most=config.most, tries=config.tries)
    free.sort(
        key=lambda one: (
            -one.rate if one.rate > _NOTHING else 0.0,
            2 if one.exhausted else min(one.passes, 1),
            one.idle_seconds,
        )
    )
    for searched in free[: max(0, workers - len(running))]:
        go = functools.partial(
            restart if searched.exhausted else step,
            search.bench,
            searched,
            search.account,
            lock=search.lock,
            order=order,
            rng=rng.spawn(1)[0],
        )
        if searched.exhausted:
            kind = choose_restart(search.tallies, rng)
            future = pool.submit(go, kind=kind, is_over=is_over)
        else:
            kind = None
            searched.pass_from = searched.pass_from or searched.build
            future = pool.submit(go)
        running[future] = _Begun(searched=searched, kind=kind)


def _owed(search: Search) -> float:
    """Processor time of the compilations that composed builds wait for."""
    return sum(one.composed.user_seconds for one in search.modules.values() if one.composed is not None)


def _confirm_composed(search: Search, *, workers: int, report: Report) -> None:
    """Compile all that was composed; nothing else runs."""

    def confirm_one(searched: ModuleState) -> StepResult:
        return confirm_composed(search.bench, searched, search.account, lock=search.lock)

    waiting = [one for one in search.modules.values() if one.composed is not None]
    steps = parallel(confirm_one, waiting, workers=workers, report=report, label="compile what was composed")
    for searched, done in zip(waiting, steps, strict=True):
        _take(search, searched, done, None)


def _is_done(search: Search, judge: Judge | None, seconds: float) -> bool:
    """Whether nothing is left to try, unless a judge takes something back."""
    if judge is not None and confirm(judge, seconds=seconds):
        return False
    search.ended = NOTHING_LEFT
    return True


def _goes_on(search: Search, one: ModuleState) -> bool:
    """Whether a module has moves that were not tried, or may be begun anew."""
    may_restart = one.vain + one.refused < search.config.restarts
    return len(one.build.site) > 0 and (not one.exhausted or may_restart)


def _end_pass(search: Search, one: ModuleState) -> None:
    """Begin another pass over all moves of a module if the last one was worth it; the caller holds the lock."""
    name, first = one.module.name, one.pass_from or one.build
    before, now = (search.account.module_bytes(name, each.sizes) for each in (first, one.build))
    one.exhausted = now >= before - WORTH_A_PASS * abs(before)
    if not one.exhausted:
        one.pass_from = one.build
        one.passes += 1
        one.tried.clear()


def _take(search: Search, searched: ModuleState, done: StepResult, kind: RestartKind | None) -> None:
    """Enter the outcome of a step, or of a restart of some kind."""
    with search.lock:
        search.count(done.user_seconds, done.compilations)
        if not done.compilations and kind is None:
            _end_pass(search, searched)
            return
        effects = None
        if done.effects is not None:
            effects = dataclasses.replace(done.effects, projects=(searched.module.name,))
            search.effects.append(effects)
        tried = searched.tried if kind is None else searched.drawn
        tried.update(done.failed)
        adopted = done.build is not None and adopt_if_better(search, searched, done.build)
        searched.composed, searched.composed_steps = done.composed, done.composed_steps
        if kind is not None:
            tally = search.tallies.setdefault(kind, ArmStatistics())
            tally.enter(done.saved, done.user_seconds or tally.mean_seconds)
            # Where all moves that were drawn had been made, they may be made again, and nothing was in vain.
            searched.vain += done.compilations > 0
            if not done.compilations:
                searched.drawn.clear()
        searched.idle_seconds += done.user_seconds
        if adopted:
            searched.vain, searched.idle_seconds = 0, 0.0
        # What a restart composed is compiled by a step, when no move is left.
        if adopted or done.composed is not None:
            searched.exhausted = False
        if done.flips:
            rate = done.saved / max(done.user_seconds, 1e-3)
            searched.rate = rate if searched.rate == float("inf") else 0.5 * searched.rate + 0.5 * rate
    save_step(search, searched, effects)
    if search.user_seconds - search.curve[-1].user_seconds >= _POINT_SECONDS:
        search.mark()
        save_totals(search)


def _refitted(search: Search, rng: np.random.Generator) -> Rank | None:
    """The order by a policy of what was measured so far, if the framework is there and enough was measured."""
    modules = {part.projects for part in search.effects}
    if sum(len(part.change) for part in search.effects) < LEAST_COMPONENTS or len(modules) < LEAST_MODULES:
        return None
    try:
        from mlgokit.algorithms.effect_fit import fit_effects
    except ImportError:
        return None
    begin = time.process_time()
    search.policy, _ = fit_effects(join_effects(search.effects), search.config.fit, problem=INLINE_SIZE.name, rng=rng)
    search.user_seconds += time.process_time() - begin
    save_policy(search.policy, search.folder / POLICY_NAME)
    return rank_by(search.policy)
