"""The search over a project: which module next, until the budget is spent or nothing gets smaller."""

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import numpy as np

from mlgokit.algorithms.effects import join_effects
from mlgokit.collect import Report
from mlgokit.compiler import process
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.tune.judge import Judge, confirm, due
from mlgokit.tune.project import Search, adopt_if_better, save_step, save_totals
from mlgokit.tune.search import Rank, Searched, Step, step
from mlgokit.tune.state import Build, Floats

WORTH_A_PASS = 5e-4
"""A pass over all moves that saves less than this share of the project is the last one."""
POLICY_NAME = "tuned.policy"
LEAST_COMPONENTS = 500
"""Labels below which no policy is fitted."""
LEAST_MODULES = 4
"""Modules below which none is: members stop on modules that they were not fitted on."""
_POINT_SECONDS = 10.0


def run_search(
    search: Search,
    *,
    seconds: float,
    workers: int,
    report: Report,
    judge: Judge | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Search until ``clock`` has advanced by ``seconds``, or nothing is left to try.

    Every finished step is on disk before the next one of its module begins. A judge is asked at intervals, while
    nothing else runs.
    """
    begin = clock()
    rng = np.random.default_rng([search.config.seed, search.compilations])
    refits = [share * seconds for share in search.config.refits]
    rank = rank_by(search.policy)
    bytes_then = search.account.image
    pool = ThreadPoolExecutor(workers)
    running: dict[Future[Step], Searched] = {}
    try:
        while True:
            spent = clock() - begin
            if refits and spent >= refits[0]:
                refits = [moment for moment in refits if moment > spent]
                rank = _refitted(search, rng) or rank
            asked = due(judge, spent=spent, seconds=seconds)
            if spent < seconds and asked is None:
                _begin_steps(search, pool, running, workers=workers, rank=rank, rng=rng)
            if not running:
                if asked is not None:
                    confirm(asked, seconds=seconds)
                    continue
                if spent >= seconds or not _goes_on(search, judge, bytes_then, seconds):
                    break
                bytes_then = search.account.image
                continue
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                _take(search, running.pop(future), future.result())
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
        return lambda build: np.zeros(len(build.site))
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
    running: dict[Future[Step], Searched],
    *,
    workers: int,
    rank: Rank,
    rng: np.random.Generator,
) -> None:
    """Give every idle worker the module that saved most per second lately."""
    busy = {searched.module.name for searched in running.values()}
    free = [one for one in search.modules.values() if not one.exhausted and one.module.name not in busy]
    free.sort(key=lambda one: -one.rate)
    for searched in free[: max(0, workers - len(running))]:
        future = pool.submit(
            step,
            search.bench,
            searched,
            search.account,
            lock=search.lock,
            rank=rank,
            noise=search.config.noise,
            most=search.config.most,
            tries=search.config.tries,
            rng=rng.spawn(1)[0],
        )
        running[future] = searched


def _goes_on(search: Search, judge: Judge | None, bytes_then: float, seconds: float) -> bool:
    """Whether there is more to try: another pass, or what a judge takes back."""
    return _another_pass(search, bytes_then) or (judge is not None and confirm(judge, seconds=seconds) > 0)


def _another_pass(search: Search, bytes_then: float) -> bool:
    """Begin another pass over all moves, if the last one was worth it."""
    if search.account.image > bytes_then * (1 - WORTH_A_PASS):
        return False
    for searched in search.modules.values():
        searched.exhausted = False
        searched.rate = float("inf")
        searched.tried.clear()
    return True


def _take(search: Search, searched: Searched, done: Step) -> None:
    """Enter the outcome of a step."""
    with search.lock:
        search.count(done.user_seconds, done.compilations)
        if not done.compilations:
            searched.exhausted = True
            return
        effects = None
        if done.effects is not None:
            effects = dataclasses.replace(done.effects, projects=(searched.module.name,))
            search.effects.append(effects)
        for move in done.failed:
            searched.tried[move] = searched.tried.get(move, 0) + 1
        before = search.account.image
        if done.build is not None:
            adopt_if_better(search, searched, done.build)
        rate = (before - search.account.image) / max(done.user_seconds, 1e-3)
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
        from mlgokit.algorithms.effect_regression import fit_effects
    except ImportError:
        return None
    begin = time.process_time()
    search.policy, _ = fit_effects(join_effects(search.effects), search.config.fit, problem=INLINE_SIZE.name, rng=rng)
    search.user_seconds += time.process_time() - begin
    save_policy(search.policy, search.folder / POLICY_NAME)
    return rank_by(search.policy)
