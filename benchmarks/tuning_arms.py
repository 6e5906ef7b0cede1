"""The searches that are compared: tuning as users get it, and what it has to beat with the same processor time."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mlgokit.commands.tune_functions import tune_functions
from mlgokit.commands.tune_options import ALLOCATION_SHARE, PASS_SHARE, Tune
from mlgokit.compiler.pool import parallel
from mlgokit.progress import Report
from mlgokit.tune.loop import run_search
from mlgokit.tune.publish import publish
from mlgokit.tune.result import Tuned
from mlgokit.tune.spaces.allocation.trials import open_bytes
from mlgokit.tune.spaces.functions.finish import finish_bytes
from mlgokit.tune.spaces.inlining.finish import finish_inlining
from mlgokit.tune.spaces.inlining.opening import InliningSearch
from mlgokit.tune.spaces.inlining.space import SearchConfig
from mlgokit.tune.spaces.inlining.state import ModuleState
from mlgokit.tune.spaces.inlining.step import compile_decided
from mlgokit.tune.verify import Verifier

LEAST_FLIPPED, MOST_FLIPPED = 0.005, 0.5
"""Between which the probability of flipping a decision is drawn, evenly on a logarithmic scale."""


class Run(Protocol):
    """A search that goes on until its clock has advanced by ``seconds``."""

    def __call__(
        self, search: InliningSearch, *, seconds: float, workers: int, report: Report, clock: Callable[[], float] = ...
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
        command: it is `mlgokit tune` as it is called, with its defaults, in place of a search of our own.
        shares: of registers and of passes in the command's budget, in place of its defaults.
        functions: inlining is left to LLVM, and the whole budget goes to registers and passes by their shares.
    """

    run: Run
    config: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    never: bool = False
    policy: bool = False
    allocation: bool = False
    rebuilt: bool = False
    command: bool = False
    shares: tuple[float, float] = (ALLOCATION_SHARE, PASS_SHARE)
    functions: bool = False


def random_search(
    search: InliningSearch, *, seconds: float, workers: int, report: Report, clock: Callable[[], float] = time.monotonic
) -> None:
    """Turn each of the heuristic's decisions round with a drawn probability; of each module the smallest build stays.

    Modules take turns. The decisions of the heuristic are asked for anew in each call, at the search's expense.
    """
    begin, space = clock(), search.space
    rng = np.random.default_rng([search.seed, search.compilations])
    heuristic: dict[str, tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]] = {}

    def ask(state: ModuleState) -> None:
        build = compile_decided(space.compiler, state.module)
        search.count(build.user_seconds)
        if build.ok and len(build.decisions):
            heuristic[state.module.name] = build.decisions.sites, build.decisions.inlined

    def attempt(state: ModuleState) -> None:
        if clock() - begin >= seconds:
            return
        site, inlined = heuristic[state.module.name]
        with space.lock:
            share = np.exp(rng.uniform(np.log(LEAST_FLIPPED), np.log(MOST_FLIPPED)))
            flipped = rng.random(len(site)) < share
            flipped[rng.integers(len(site))] = True
        decisions = dict(zip(site.tolist(), (inlined ^ flipped).tolist(), strict=True))
        build = compile_decided(space.compiler, state.module, decisions, state.names)
        search.count(build.user_seconds)
        if build.ok and space.adopt_if_better(state, build):
            space.save(state)
        search.save()

    def quietly(_done: int, _total: int, _label: str) -> None:
        change = 100 * space.score.change
        report(int(min(clock() - begin, seconds)), int(seconds), f"search, so far {change:+.1f} %")

    modules = space.units
    parallel(ask, modules, workers=workers, report=report, label="ask the heuristic")
    modules = [one for one in modules if one.module.name in heuristic]
    while modules and clock() - begin < seconds:
        parallel(attempt, modules, workers=workers, report=quietly, label="")
    search.mark()
    search.save()


ABLATION = {
    "inlining alone": Arm(run=run_search, command=True, shares=(0.0, 0.0)),
    "inlining and registers": Arm(run=run_search, command=True, shares=(ALLOCATION_SHARE, 0.0)),
    "inlining and passes": Arm(run=run_search, command=True, shares=(0.0, PASS_SHARE)),
    "registers alone": Arm(run=run_search, shares=(1.0, 0.0), functions=True),
    "passes alone": Arm(run=run_search, shares=(0.0, 1.0), functions=True),
}
"""The command with kinds of decisions left to LLVM."""
ARMS = {
    "tune from policy": Arm(run=run_search, never=True, policy=True, allocation=True, rebuilt=True),
    "tune": Arm(run=run_search, never=True, allocation=True, rebuilt=True),
    "mlgokit tune": Arm(run=run_search, rebuilt=True, command=True),
    **ABLATION,
    "greedy single flips": Arm(run=run_search, config=SearchConfig(most=1, restarts=0, refits=())),
    "random search": Arm(run=random_search),
}


def _verifier(search: InliningSearch, output: Path, report: Report) -> Verifier:
    return Verifier(
        compiler=search.space.compiler,
        modules=[one.module for one in search.space.units],
        output=output,
        search_folder=search.folder,
        report=report,
    )


def proved(search: InliningSearch, output: Path, *, seconds: float, report: Report) -> Tuned:
    """Prove a search; if there are seconds, search register allocation until it has taken so many, and prove that too.

    Args:
        search: the search.
        output: the plugin.
        seconds: of processor time, that of earlier searches included.
        report: told after every compilation.
    """
    space = search.space
    with _verifier(search, output, report) as verifier:
        tuned = finish_inlining(verifier, search)
        if seconds <= 0:
            return publish(verifier, tuned, search.folder)
        objective, folder = space.config.objective, search.folder
        found = open_bytes(verifier, objective=objective, folder=folder, start={}, seed=search.seed, report=report)
        run_search(
            found,
            seconds=seconds - found.user_seconds,
            workers=space.compiler.workers,
            report=report,
            clock=lambda: found.user_seconds,
        )
        return publish(verifier, finish_bytes(verifier, found, tuned, space.account.module_bytes), search.folder)


def functions_alone(search: InliningSearch, asked: Tune, *, seconds: float, report: Report) -> Tuned:
    """Prove a search, and search passes and registers beside what it found, as the command does.

    Args:
        search: the search.
        asked: says by its shares which of both, and in what part of the time.
        seconds: of wall time.
        report: told after every compilation.
    """
    with _verifier(search, asked.output, report) as verifier:
        tuned = finish_inlining(verifier, search)
        tuned = tune_functions(asked, verifier, search, tuned, whole=seconds, left=seconds, report=report)
        return publish(verifier, tuned, search.folder)
