"""The loop over modules of a search over register allocations."""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler import process
from mlgokit.compiler.compile import CompileResult
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tune.allocation.search import AllocationBench, open_modules, run_round
from mlgokit.tune.allocation.state import (
    ModuleSearch,
    Reached,
    load_reached,
    mean_ratio,
    save_functions,
)
from mlgokit.tune.project import progress_path


@dataclass(slots=True, kw_only=True)
class AllocationSearch:
    """A project in the search.

    Attributes:
        folder: where progress is kept.
        bench: how to compile.
        modules: those that compile.
        failures: those that do not, with the reason.
        seed: of everything random.
        spent: effort so far, that of earlier sessions included.
        curve: where the search stood at intervals.
    """

    folder: Path
    bench: AllocationBench
    modules: list[ModuleSearch]
    failures: dict[str, str]
    seed: int
    spent: Reached
    curve: list[Reached] = field(default_factory=list[Reached])

    def now(self) -> Reached:
        """Effort, and what was reached by it."""
        functions = [one for module in self.modules for one in module.functions]
        scores = [(one.plain, min(one.plain, one.score)) for one in functions if math.isfinite(one.plain)]
        before, after = (sum(column) for column in zip(*scores, strict=True)) if scores else (0.0, 0.0)
        change = mean_ratio(scores) if not self.bench.in_bytes else after / before - 1 if before else 0.0
        return dataclasses.replace(self.spent, score=after, change=change)


def open_allocation_search(
    modules: Sequence[Module],
    *,
    bench: AllocationBench,
    folder: Path,
    start: Mapping[int, Overrides],
    seed: int,
    workers: int,
    report: Report,
) -> AllocationSearch:
    """Begin a search, or go on with the one in the folder; every module is compiled once.

    Raises:
        CorpusError: as :func:`open_modules`.
    """
    searched, failures, user_seconds = open_modules(
        modules, bench=bench, folder=folder, start=start, workers=workers, report=report
    )
    before = load_reached(folder / "spent.json")
    spent = dataclasses.replace(
        before, user_seconds=before.user_seconds + user_seconds, compilations=before.compilations + len(modules)
    )
    return AllocationSearch(folder=folder, bench=bench, modules=searched, failures=failures, seed=seed, spent=spent)


def run_allocation_search(
    search: AllocationSearch,
    *,
    seconds: float,
    workers: int,
    report: Report,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Search until ``clock`` has advanced by ``seconds``, or no function is likely to get better.

    What a round found is on disk before the next one of its module begins.
    """
    begin, wall_before = clock(), search.spent.wall_seconds
    rng = np.random.default_rng([search.seed, search.spent.compilations])
    search.curve.append(search.now())
    pool = ThreadPoolExecutor(workers)
    running: dict[Future[tuple[CompileResult, int, float]], ModuleSearch] = {}
    try:
        while True:
            spent = clock() - begin
            if spent < seconds:
                busy = {id(one) for one in running.values()}
                free = [one for one in search.modules if not one.exhausted and id(one) not in busy]
                free.sort(key=lambda one: -one.rate)
                for one in free[: max(0, workers - len(running))]:
                    running[pool.submit(run_round, search.bench, one, rng.spawn(1)[0])] = one
            if not running:
                break
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                _take(search, running.pop(future), *future.result(), wall=wall_before + clock() - begin)
            what = "registers" if search.bench.in_bytes else "search"
            label = f"{what}, seconds · so far {100 * search.curve[-1].change:+.1f} %"
            report(int(min(clock() - begin, seconds)), int(seconds), label)
    except BaseException:
        process.kill_pool(pool, running)
        raise
    pool.shutdown()


def _take(
    search: AllocationSearch, one: ModuleSearch, result: CompileResult, trials: int, gain: float, *, wall: float
) -> None:
    """Enter a round, and keep it."""
    rate = gain / max(result.user_seconds, 1e-3)
    one.rate = rate if one.rate == float("inf") else 0.5 * one.rate + 0.5 * rate
    search.spent = dataclasses.replace(
        search.spent,
        wall_seconds=wall,
        user_seconds=search.spent.user_seconds + result.user_seconds,
        compilations=search.spent.compilations + 1,
        trials=search.spent.trials + trials,
    )
    search.curve.append(search.now())
    save_functions(progress_path(search.folder, one.module.name), one.functions)
    atomic_write(search.folder / "spent.json", json.dumps(dataclasses.asdict(search.curve[-1])))
