"""The searches that are compared: tuning as users get it, and what it has to beat with the same processor time."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.pool import parallel
from mlgokit.progress import Report
from mlgokit.tune.allocation.bytes import finish_bytes, open_allocation
from mlgokit.tune.allocation.loop import run_allocation_search
from mlgokit.tune.loop import run_search
from mlgokit.tune.project import Search, SearchConfig, adopt_if_better, save, save_totals
from mlgokit.tune.proof import open_verifier
from mlgokit.tune.result import Tuned, finish
from mlgokit.tune.search import ModuleState
from mlgokit.tune.state import build_of

LEAST_FLIPPED, MOST_FLIPPED = 0.005, 0.5
"""Between which the probability of turning a decision round is drawn, evenly on a logarithmic scale."""
POINT_SECONDS = 10.0


class Run(Protocol):
    """A search that goes on until its clock has advanced by ``seconds``."""

    def __call__(
        self, search: Search, *, seconds: float, workers: int, report: Report, clock: Callable[[], float] = ...
    ) -> None:
        """Search."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of the searches.

    Attributes:
        run: the search.
        config: its settings.
        never: it also starts from inlining nothing.
        policy: it also starts from a policy, and asks it what to try first.
        allocation: the last part of its budget goes to register allocation.
        rebuilt: its result goes into the project's own build, and the project's tests are run.
    """

    run: Run
    config: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    never: bool = False
    policy: bool = False
    allocation: bool = False
    rebuilt: bool = False


def random_search(
    search: Search, *, seconds: float, workers: int, report: Report, clock: Callable[[], float] = time.monotonic
) -> None:
    """Turn each of the heuristic's decisions round with a drawn probability; of each module the smallest build stays.

    Modules take turns. The decisions of the heuristic are asked for anew in each call, at the search's expense.
    """
    begin = clock()
    rng = np.random.default_rng([search.config.seed, search.compilations])
    heuristic: dict[str, tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]] = {}

    def ask(searched: ModuleState) -> None:
        result = search.bench.compile(searched.module)
        build = build_of(result)
        with search.lock:
            search.count(result.user_seconds)
            if build is not None and len(build.site):
                heuristic[searched.module.name] = build.site, build.inlined

    def attempt(searched: ModuleState) -> None:
        if clock() - begin >= seconds:
            return
        site, inlined = heuristic[searched.module.name]
        with search.lock:
            share = np.exp(rng.uniform(np.log(LEAST_FLIPPED), np.log(MOST_FLIPPED)))
            flipped = rng.random(len(site)) < share
            flipped[rng.integers(len(site))] = True
        decisions = dict(zip(site.tolist(), (inlined ^ flipped).tolist(), strict=True))
        result = search.bench.compile(searched.module, decisions=decisions, names=searched.names)
        build = build_of(result)
        with search.lock:
            search.count(result.user_seconds)
            adopted = build is not None and adopt_if_better(search, searched, build)
            if search.user_seconds - search.curve[-1].user_seconds >= POINT_SECONDS:
                search.mark()
                save_totals(search)
        if adopted:
            save(search, searched)

    def quietly(_done: int, _total: int, _label: str) -> None:
        change = 100 * (search.account.image / search.plain_bytes - 1)
        report(int(min(clock() - begin, seconds)), int(seconds), f"search, so far {change:+.1f} %")

    modules = list(search.modules.values())
    parallel(ask, modules, workers=workers, report=report, label="ask the heuristic")
    modules = [one for one in modules if one.module.name in heuristic]
    while modules and clock() - begin < seconds:
        parallel(attempt, modules, workers=workers, report=quietly, label="")
    search.mark()
    save_totals(search)


ARMS = {
    "tune from policy": Arm(run=run_search, never=True, policy=True, allocation=True, rebuilt=True),
    "tune": Arm(run=run_search, never=True, allocation=True, rebuilt=True),
    "greedy single flips": Arm(run=run_search, config=SearchConfig(most=1, restarts=0, refits=())),
    "random search": Arm(run=random_search),
}


def proved(search: Search, output: Path, *, seconds: float, workers: int, report: Report) -> Tuned:
    """Prove a search; if there are seconds, search register allocation until it has taken so many, and prove that too.

    Args:
        search: the search.
        output: the plugin.
        seconds: of processor time, that of earlier searches included.
        workers: compilers that run at once.
        report: told after every compilation.
    """
    with open_verifier(search, policy=None, workers=workers, report=report) as proving:
        tuned = finish(proving, output)
        if seconds <= 0:
            return tuned
        found = open_allocation(search, tuned, start={}, workers=workers, report=report)
        run_allocation_search(
            found,
            seconds=seconds - found.spent.user_seconds,
            workers=workers,
            report=report,
            clock=lambda: found.spent.user_seconds,
        )
        return finish_bytes(proving, tuned, found)
