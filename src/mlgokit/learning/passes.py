"""Learning which passes to leave out: trials of single functions, a fit to what they measured, and judges.

Each module is compiled once to hear what passes ask about its functions, once more for trials of the code generation
of those drawn from them (``pass_trials.py``), and some times without passes of the optimizer (``optimizer_trials.py``).
What was tried is kept module by module, so a run that was interrupted goes on.
"""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlgokit.algorithms.config import PassTrialsConfig
from mlgokit.algorithms.pass_fit import PassFit, PassLabels, fit_passes
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.trials import CODE_BYTES, IMAGE_BYTES, executed_weights
from mlgokit.errors import CorpusError, UsageError
from mlgokit.learning.baselines import compile_defaults, evaluate_policy
from mlgokit.learning.checkpoint import Counters
from mlgokit.learning.loop import JUDGES, Learned
from mlgokit.learning.metrics import Row, write_metrics
from mlgokit.learning.optimizer_trials import try_optimizer
from mlgokit.learning.pass_trials import FunctionQuestions, ModuleTrials, ask, try_passes
from mlgokit.learning.settings import Learning, check_ready
from mlgokit.learning.trials import kept_or_made, module_draws, trial_row, trial_settings
from mlgokit.learning.validation import Validation
from mlgokit.locks import locked
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.problems import DECIDED_PASSES, PASS_SELECTION
from mlgokit.progress import Report, say_nothing

_OF_QUESTIONS = ("occurrence", "passes_left_out")


def learn_passes(
    compiler: Compiler,
    modules: Sequence[Module],
    algorithm: str,
    config: Learning,
    *,
    folder: Path,
    report: Report = say_nothing,
) -> Learned:
    """Learn a policy of passes; trials that are in ``folder`` are not made again.

    Args:
        compiler: compiles.
        modules: what to learn from.
        algorithm: effect regression, the only one that learns from trials.
        config: how; turns, validation and the policy to start from do not apply.
        folder: where trials and metrics go.
        report: progress.

    Raises:
        BusyError: another process works in the folder.
        CorpusError: there is nothing to learn from.
        ToolError: JAX is not installed.
        UsageError: the settings contradict themselves, or no pass pays.
    """
    settings = _settings(algorithm, config)
    check_ready(modules)
    begin = time.monotonic()
    with locked(folder):
        asked = parallel(
            lambda module: ask(compiler, module),
            modules,
            workers=compiler,
            report=report,
            label="what passes ask about",
        )
        left_out = Counter(done.reason or done.status.value for done, _ in asked if not done.ok)
        plan = _drawn(modules, [functions for _, functions in asked], settings.functions, config.seed)
        found = _tried(compiler, plan, rounds=settings.rounds, config=config, folder=folder, report=report)
        left_out.update(one.reason for one in found if one.reason)
        taught = [module for (module, _), one in zip(plan, found, strict=True) if len(one.change)]
        labels = _labels(taught, [one for one in found if len(one.change)])
        features = tuple(
            name
            for name in PASS_SELECTION.feature_names
            if not name.startswith("pass:") and name not in (*config.excluded, *_OF_QUESTIONS)
        )
        report(0, 1, f"fit to {len(labels.change)} trials")
        fit = fit_passes(labels, settings, features=features, seed=config.seed)
        judged = _judge(compiler, taught, fit, projects=labels.projects, config=config, report=report)
        compilations = len(modules) + sum(one.compilations for one in found)
        counters = Counters(
            turn=1,
            compilations=compilations,
            failed=sum(left_out.values()),
            evaluations=2 * len(judged.modules),
            user_seconds=sum(done.user_seconds for done, _ in asked) + sum(one.user_seconds for one in found),
            seconds=time.monotonic() - begin,
            best_turn=1,
            best_gain=judged.gain,
        )
        row = _row(counters, labels, fit, trials=sum(one.trials for one in found))
        write_metrics(folder, [row])
    return Learned(
        policy=fit.policy,
        counters=counters,
        rows=(row,),
        taught=len(taught),
        judged=len(judged.modules),
        left_out=dict(left_out),
        judged_modules=judged.modules,
    )


def _settings(algorithm: str, config: Learning) -> PassTrialsConfig:
    """The settings of the run.

    Raises:
        UsageError: another algorithm, or something that does not apply.
    """
    settings = trial_settings(
        PASS_SELECTION, algorithm, config, fewer="functions", uses=("excluded", "features", "objective")
    )
    if config.features == "llvm":
        raise UsageError(
            f"--features llvm: expected all for {PASS_SELECTION.name}, about which LLVM has no features of its own; "
            "leave it out"
        )
    unknown = sorted(set(settings.kept) - set(DECIDED_PASSES))
    if unknown:
        raise UsageError(
            f"--setting kept: expected passes among {', '.join(DECIDED_PASSES)}, found {', '.join(unknown)}; correct it"
        )
    return settings


def _drawn(
    modules: Sequence[Module], asked: Sequence[Sequence[FunctionQuestions]], most: int, seed: int
) -> list[tuple[Module, list[FunctionQuestions]]]:
    """Functions that no module before has, at most so many of each."""
    known: set[int] = set()
    plan: list[tuple[Module, list[FunctionQuestions]]] = []
    for module, functions in zip(modules, asked, strict=True):
        fresh = [one for one in functions if one.key not in known and len(one.passes)]
        known |= {one.key for one in fresh}
        places = np.sort(module_draws(module, seed).permutation(len(fresh))[: most or len(fresh)])
        if len(places):
            plan.append((module, [fresh[place] for place in places.tolist()]))
    return plan


def _tried(
    compiler: Compiler,
    plan: Sequence[tuple[Module, Sequence[FunctionQuestions]]],
    *,
    rounds: int,
    config: Learning,
    folder: Path,
    report: Report,
) -> list[ModuleTrials]:
    """The trials of each module; those that are kept are not made again."""
    weights = executed_weights(CODE_BYTES if config.objective is Objective.LINK_AWARE_TEXT else IMAGE_BYTES)

    def work(part: tuple[Module, Sequence[FunctionQuestions]]) -> ModuleTrials:
        module, functions = part
        of_generator = kept_or_made(
            ModuleTrials, folder, module, lambda: try_passes(compiler, module, functions, weights=weights)
        )
        of_optimizer = kept_or_made(
            ModuleTrials,
            folder,
            module,
            lambda: try_optimizer(
                compiler, module, functions, objective=config.objective, rounds=rounds, seed=config.seed
            ),
            part="optimizer",
        )
        return of_generator.beside(of_optimizer)

    return parallel(work, plan, workers=compiler, report=report, label="try functions without a pass")


def _labels(modules: Sequence[Module], trials: Sequence[ModuleTrials]) -> PassLabels:
    """All trials as one set.

    Raises:
        CorpusError: there are none.
    """
    if not modules:
        raise CorpusError(
            "training: expected at least one module that compiles and has functions compiled for size, found none; "
            "check the corpus with `mlgokit corpus info` and the compiler with `mlgokit doctor`"
        )
    projects = tuple(sorted({module.project for module in modules}))
    numbers = {name: number for number, name in enumerate(projects)}
    return PassLabels(
        values=np.concatenate([one.values for one in trials]),
        change=np.concatenate([one.change for one in trials]),
        slowdown=np.concatenate([one.slowdown for one in trials]),
        size=np.concatenate([one.size for one in trials]),
        project=np.concatenate(
            [
                np.full(len(one.change), numbers[module.project], np.int64)
                for module, one in zip(modules, trials, strict=True)
            ]
        ),
        projects=projects,
    )


def _judge(
    compiler: Compiler,
    modules: Sequence[Module],
    fit: PassFit,
    *,
    projects: Sequence[str],
    config: Learning,
    report: Report,
) -> Validation:
    """What the members that do not know a project do to modules of it, all passes together."""
    drawn = np.sort(np.random.default_rng([config.seed, 0, len(modules)]).permutation(len(modules))[:JUDGES])
    places: list[int] = drawn.tolist()
    chosen = [modules[place] for place in places]
    baselines = compile_defaults(
        compiler, chosen, PASS_SELECTION, objective=config.objective, with_rows=False, report=report
    )
    policies: list[tuple[Policy, Sequence[int]]] = []
    for number, name in enumerate(projects):
        mine = [index for index, module in enumerate(baselines.modules) if module.project == name]
        judging = fit.without(number) if mine else None
        if judging is not None:
            policies.append((judging, mine))
    return evaluate_policy(baselines, policies, report=report)


def _row(counters: Counters, labels: PassLabels, fit: PassFit, *, trials: int) -> Row:
    numbers = {
        "trials": float(trials),
        "labels": float(len(labels.change)),
        "correlation": fit.correlation,
        **{f"saved_bytes/{one.name}": one.saved_bytes for one in fit.evidence},
        **{f"possible_bytes/{one.name}": one.possible_bytes for one in fit.evidence},
        **{f"decides/{one.name}": float(one.chosen) for one in fit.evidence},
    }
    return trial_row(counters, numbers)
