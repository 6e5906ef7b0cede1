"""Learning evictions from trials of single functions: rounds of trials, a fit after each, and judges.

A round compiles each module to hear what the allocator asks, and once more for trials of other answers
(``eviction_trials.py``). The first departs from LLVM's heuristic, each later one from the policy that the rounds before
it gave, so that it learns where it comes to. What was tried is kept module by module, so a run that was interrupted
goes on. At the end functions of projects that members were not fitted on say how sure a member must be.
"""

import dataclasses
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlgokit.algorithms.config import EvictionTrialsConfig
from mlgokit.algorithms.eviction_fit import EvictionFit
from mlgokit.compiler.request import Compiler
from mlgokit.learning.baselines import policy_file
from mlgokit.learning.checkpoint import Counters
from mlgokit.learning.eviction_rounds import EvictionRound, EvictionRounds
from mlgokit.learning.eviction_trials import try_policy
from mlgokit.learning.function_judges import judge_functions
from mlgokit.learning.loop import Learned
from mlgokit.learning.metrics import Row, write_metrics
from mlgokit.learning.settings import Learning, check_ready
from mlgokit.learning.trials import refuse_loss, trial_row, trial_settings
from mlgokit.learning.validation import Validation
from mlgokit.locks import locked
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.targets import for_modules
from mlgokit.problems import REGALLOC_EVICTION
from mlgokit.progress import Report, say_nothing


def learn_evictions(
    compiler: Compiler,
    modules: Sequence[Module],
    algorithm: str,
    config: Learning,
    *,
    folder: Path,
    report: Report = say_nothing,
) -> Learned:
    """Learn a policy of evictions; trials that are in ``folder`` are not made again.

    Args:
        compiler: compiles.
        modules: what to learn from, made at the level that the policy is for.
        algorithm: effect regression, the only one that learns from trials.
        config: how; turns, validation and the policy to start from do not apply.
        folder: where trials and metrics go.
        report: progress.

    Raises:
        BusyError: another process works in the folder.
        CorpusError: there is nothing to learn from.
        ToolError: JAX is not installed.
        UsageError: the settings contradict themselves, or no departure from the heuristic pays; the policy is kept
            under a name of its own then.
    """
    settings: EvictionTrialsConfig = trial_settings(
        REGALLOC_EVICTION, algorithm, config, fewer="module_trials", at_least_one=("rounds",)
    )
    check_ready(modules)
    begin = time.monotonic()
    with locked(folder), tempfile.TemporaryDirectory(prefix="mlgokit-") as scratch:
        run = EvictionRounds(compiler, tuple(modules), settings, config.seed, folder, Path(scratch), report)
        done = [run.round(0, None)]
        fit = run.fit(done)
        for number in range(1, settings.rounds):
            done.append(run.round(number, fit))
            fit = run.fit(done)
        policy, judged = _judge(run, fit, done[0])
        refuse_loss(REGALLOC_EVICTION, for_modules(policy, modules), judged, folder)
        left_out = Counter(reason for one in done for reason in one.left_out)
        counters = Counters(
            turn=settings.rounds,
            compilations=2 * len(modules) * settings.rounds,
            failed=sum(left_out.values()),
            evaluations=len(judged.modules) * len(settings.doubts),
            user_seconds=sum(one.user_seconds for one in done),
            seconds=time.monotonic() - begin,
            best_turn=settings.rounds,
            best_gain=judged.gain,
        )
        row = _row(counters, fit, policy, trials=sum(one.trials for one in done))
        write_metrics(folder, [row])
    return Learned(
        policy=policy,
        counters=counters,
        rows=(row,),
        taught=len(done[0].taught),
        judged=len(judged.modules),
        left_out=dict(left_out),
        judged_modules=judged.modules,
    )


def _judge(run: EvictionRounds, fit: EvictionFit, first: EvictionRound) -> tuple[Policy, Validation]:
    """The policy with the doubt that did best, and how it did, on functions of projects not fitted on."""
    drawn = np.random.default_rng([run.seed, 0, len(first.taught)]).permutation(len(first.taught))
    chosen: list[int] = np.sort(drawn[: run.settings.judges]).tolist()
    judges = [first.taught[place] for place in chosen]
    places = {name: place for place, name in enumerate(first.labels.projects)}
    best, policy = Validation(gain=-np.inf), dataclasses.replace(fit.policy, doubt=run.settings.fit.doubt)
    for number, doubt in enumerate(run.settings.doubts):
        tried = dataclasses.replace(fit, policy=dataclasses.replace(fit.policy, doubt=doubt))
        files = {
            name: policy_file(judging, run.scratch, 1000 * (number + 1) + place, run.modules)
            for name, place in places.items()
            if (judging := tried.without(place)) is not None
        }
        found = judge_functions(
            [part for part in judges if part[0].project in files],
            lambda module, keys, files=files: try_policy(run.compiler, module, keys, files[module.project]),
            run.settings.score,
            workers=run.compiler,
            report=run.report,
        )
        if found.modules and found.gain > best.gain:
            best, policy = found, tried.policy
    return policy, best


def _row(counters: Counters, fit: EvictionFit, policy: Policy, *, trials: int) -> Row:
    numbers = {"trials": float(trials), "correlation": fit.correlation, "doubt": policy.doubt}
    return trial_row(counters, numbers)
