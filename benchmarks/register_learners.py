"""All learners on the problems of register allocation, at one budget, in slices that a later call goes on with."""

import dataclasses
import functools
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from allocated import COLUMNS, NOTE, Floats, compared, fine
from arms import Arm, file_name, finished_arms, mean_of
from changes import interval_of
from harness import Setup, check_names, draw_modules, run_benchmark
from results import Cell, Result, Table

from mlgokit.algorithms.registry import LEARNERS, TRIALS, check_learner
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.reuse.trials import (
    IMAGE_BYTES,
    MEASURES,
    TRIAL,
    Overrides,
    Series,
    Stage,
    executed_weights,
)
from mlgokit.corpus.identity import training_modules
from mlgokit.errors import CorpusError, UsageError
from mlgokit.learning.from_trials import REFUSED_NAME, compile_logged, compile_trials
from mlgokit.learning.live_range_trials import ask_ranges, try_ranges
from mlgokit.learning.loop import learn
from mlgokit.learning.settings import Learning
from mlgokit.learning.validation import ModuleFunctions
from mlgokit.module import Module
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.problems import PROBLEMS, REGALLOC_EVICTION, Problem
from mlgokit.progress import Report

_DECIDED = ("regalloc-eviction", "regalloc-priority", "regalloc-weight")
_SPILLS, _EXECUTED = 2, 3
"""Where these are among what is compared."""
_COMPILED = (
    "es:trials compiles each module twice before its first turn to find the functions, which is part of the budget, "
    "but not among its compilations here."
)
_COUNTING_ONLY = 1e-12
"""Probability of a flip at which none is drawn, but questions about evictions are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterLearners:
    """Train every learner for as long on the same modules, and let its policies allocate functions of the held out."""

    corpus: Path = Path("corpus-O2")
    """The corpus, at the level in question; its held-out projects judge."""
    folder: Path = Path("build/register-learners")
    """Where finished arms are; one folder for one budget and corpus."""
    problems: tuple[str, ...] = _DECIDED[:2]
    """What is decided."""
    algorithms: tuple[str, ...] = ()
    """Only these, as ppo or ppo:reference; all that can learn the problem if none is named."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """One arm of each learner for each."""
    minutes: float = 3.0
    """Budget of each arm in minutes of one core, after which no turn begins."""
    compilations: int = 0
    """Budget of each arm in compilations in place of minutes, after which no turn begins; 0 for minutes. Trials of
    functions in copies of a compiler count as the one compilation that they are part of."""
    modules: int = 60
    """Training modules drawn from all; 0 for all."""
    judges: int = 60
    """Held-out modules drawn from all; 0 for all."""
    largest: int = 400_000
    """Draw from modules with at most so many bytes of bitcode; 0 for all."""
    slice: int = 0
    """Make at most so many arms in this call; 0 for all, -1 for none but the table."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/register_learners.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """What all arms share. There is one worker, so that wall time is core time."""

    config: RegisterLearners
    compiler: ClangCompiler
    training: list[Module]
    held_out: list[Module]
    report: Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(RegisterLearners, measure, arguments)


def measure(config: RegisterLearners, setup: Setup) -> Result:
    """Make the missing arms, and put all that are there side by side."""
    check_names("--problems", config.problems, _DECIDED)
    corpus = setup.corpus(config.corpus)
    toolchain = setup.toolchain(config.llvm)
    fitting = [one for one in corpus.modules if not config.largest or one.bitcode_bytes <= config.largest]
    held_out = [module for module in fitting if module.held_out]
    if not held_out:
        raise CorpusError(
            f"{config.corpus}: expected held-out projects to judge, found none; run `mlgokit corpus split`"
        )
    rng = np.random.default_rng(1)
    bench = _Bench(
        config=config,
        compiler=ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), workers=1),
        training=draw_modules(training_modules(fitting), config.modules, rng),
        held_out=draw_modules(held_out, config.judges, rng),
        report=setup.report,
    )
    budget = "compilations" if config.compilations else "minutes"
    of = {name: getattr(config, name) for name in (budget, "modules", "judges", "largest")}
    arms = [arm for problem in config.problems for arm in _arms(bench, PROBLEMS[problem])]
    found = finished_arms(
        config.folder, arms, of=of | {"corpus": setup.inputs["corpus"]}, most=config.slice, report=setup.report
    )
    return summed_up(config, found, missing=len(arms) - len(found))


def learners_of(problem: Problem, named: Sequence[str] = ()) -> list[str]:
    """The learners of a problem, each with its presets as `mlgokit train` takes them.

    Presets with fewer or other settings of the same method are left out, and learners that ask for single decisions,
    which the compiler cannot be given here.

    Args:
        problem: what is decided.
        named: only these, if there are any.

    Example:
        >>> learners_of(PROBLEMS["regalloc-priority"])
        ['behavioural-cloning', 'es:trials', 'es', 'bc-max', 'ppo', 'ppo:reference']
    """
    found: list[str] = []
    for algorithm, entry in LEARNERS.items():
        if problem.advice_kind not in entry.kinds and problem.name not in entry.of_problem:
            continue
        try:
            check_learner(algorithm, problem)
        except UsageError:
            continue
        found += [f"{algorithm}:{TRIALS}"] if problem.name in entry.trials else []
        found.append(algorithm)
        found += [f"{algorithm}:reference"] if problem.name in entry.reference else []
    return [one for one in found if not named or one in named]


def _arms(bench: _Bench, problem: Problem) -> list[Arm]:
    """Seed by seed, so that a first slice has one of each learner."""
    judged = functools.cache(lambda: _functions(bench, problem))
    return [
        Arm(
            name=f"{problem.name} {name}",
            seed=seed,
            run=lambda name=name, seed=seed: _learned(bench, problem, name, seed, judged()),
        )
        for seed in bench.config.seeds
        for name in learners_of(problem, bench.config.algorithms)
    ]


def _functions(bench: _Bench, problem: Problem) -> list[ModuleFunctions]:
    """The functions of the held-out modules that ask."""

    def work(module: Module) -> ModuleFunctions:
        if problem is REGALLOC_EVICTION:
            done, log = compile_logged(bench.compiler, module, problem, Stage.REGISTERS)
            asking = set() if log is None else {span.name for span in log.contexts if span.stop > span.start}
            return module, tuple(one.key for one in done.tried if one.stage is Stage.REGISTERS and one.name in asking)
        _, ranges = ask_ranges(bench.compiler, module, problem, rows=1, seed=1)
        return module, () if ranges is None else ranges.keys

    found = parallel(work, bench.held_out, workers=bench.compiler, report=bench.report, label="functions that judge")
    return [part for part in found if part[1]]


def _learned(
    bench: _Bench, problem: Problem, name: str, seed: int, judged: Sequence[ModuleFunctions]
) -> dict[str, Any]:
    """Train, and allocate the functions that judge by the policy."""
    folder = bench.config.folder / "runs" / file_name(f"{problem.name} {name}-{seed}")
    begin = time.monotonic()
    policy, spent = _trained(bench, problem, name, seed, folder)
    seconds = time.monotonic() - begin
    by_project: dict[str, list[tuple[Floats, Floats]]] = {}
    for module, keys in judged:
        by_project.setdefault(module.project, []).append(_allocated(bench, problem, module, keys, policy))
    projects = {
        project: compared(*(np.concatenate([one[place] for one in parts]) for place in (0, 1))).tolist()
        for project, parts in by_project.items()
    }
    return {"problem": problem.name, "learner": name, "minutes": seconds / 60, **spent, "projects": projects}


def _allocated(
    bench: _Bench, problem: Problem, module: Module, keys: Sequence[int], policy: Path
) -> tuple[Floats, Floats]:
    """[N, 9] what functions measure as LLVM allocates them, and by a policy."""
    if problem is REGALLOC_EVICTION:
        return _evicted(bench, module, keys, policy)
    tried = [load_policy(policy, problem=problem.name)]
    measured = try_ranges(bench.compiler, module, problem, keys, tried).measured
    found = np.array(list(measured.values())).reshape(-1, 2, len(MEASURES))
    whole = found[np.isfinite(found).all(axis=(1, 2))]
    return whole[:, 0], whole[:, 1]


def _evicted(bench: _Bench, module: Module, keys: Sequence[int], policy: Path) -> tuple[Floats, Floats]:
    """The same of a policy of evictions, which the whole compilation is given."""
    trials = np.zeros(2, TRIAL)
    trials["eviction_flips"] = _COUNTING_ONLY
    trials["by_rule"][1] = 1
    series = [Series(key=key, base=Overrides(), score=-np.inf, trials=trials) for key in keys]
    done = compile_trials(
        bench.compiler, module, REGALLOC_EVICTION, series, stage=Stage.REGISTERS,
        weights=executed_weights(IMAGE_BYTES), policy=str(policy),
    )  # fmt: skip
    pairs = [[outcome.measured for outcome in one.outcomes] for one in done.tried if len(one.outcomes) == 2]
    both = [(before, after) for before, after in pairs if before is not None and after is not None]
    before, after = np.array(both).reshape(-1, 2, len(MEASURES)).swapaxes(0, 1)
    return before, after


def generations_within(compilations: int, modules: int) -> int:
    """Generations of live ranges, in each of which a module is compiled once, and twice before the first.

    For 0 compilations the budget is another one.

    Example:
        >>> generations_within(320, 40)
        6
    """
    return max(1, compilations // modules - 2) if compilations else 1000


def _trained(bench: _Bench, problem: Problem, name: str, seed: int, folder: Path) -> tuple[Path, dict[str, int]]:
    """The policy of a learner, one that it refuses too, and what it took; nothing is kept apart for validation."""
    config = bench.config
    algorithm, _, preset = name.partition(":")
    learning = Learning(preset=preset or "default", seed=seed, evaluate_every=0, validation_share=0.0)
    deadline = np.inf if config.compilations else time.monotonic() + 60 * config.minutes
    generations = generations_within(config.compilations, len(bench.training))
    final = folder / "final.policy"
    try:
        if preset == TRIALS:
            setting = ("score=spill-cost", "judges=0", f"generations={generations}")
            learning = dataclasses.replace(learning, setting=setting)
        else:
            budget = {"compilations": config.compilations} if config.compilations else {"iterations": 1_000_000}
            learning = dataclasses.replace(learning, **budget)
        done = learn(
            bench.compiler, bench.training, problem, algorithm, learning, folder=folder, deadline=deadline,
            report=bench.report,
        )  # fmt: skip
    except UsageError:
        if not (folder / REFUSED_NAME).exists():
            raise
        return folder / REFUSED_NAME, {}
    save_policy(done.policy, final)
    counters = done.counters
    return final, {"compilations": counters.compilations, "turns": counters.turn, "failed": counters.failed}


def summed_up(config: RegisterLearners, found: Sequence[dict[str, Any]], *, missing: int) -> Result:
    """The table of all arms that are there."""
    rows: list[tuple[Cell, ...]] = []
    best: dict[str, tuple[float, str]] = {}
    for problem in config.problems:
        for name in dict.fromkeys(one["learner"] for one in found if one["problem"] == problem):
            arms = [one for one in found if (one["problem"], one["learner"]) == (problem, name)]
            names = sorted(arms[0]["projects"])
            every = np.array([[arm["projects"][project] for project in names] for arm in arms])
            of_projects, of_seeds = every.mean(axis=0), every.mean(axis=1)
            change = float(of_seeds[:, _SPILLS].mean())
            best[problem] = min(best.get(problem, (np.inf, "")), (change, name))
            low, high = interval_of(of_projects[:, _SPILLS], np.random.default_rng(1))
            rows.append(
                (
                    problem, name, len(arms), fine(change), f"{fine(low)} to {fine(high)}",
                    f"{fine(of_seeds[:, _SPILLS].min())} to {fine(of_seeds[:, _SPILLS].max())}",
                    fine(float(of_seeds[:, _EXECUTED].mean())), fine(float(of_projects[:, _EXECUTED].max())),
                    *(fine(float(of_seeds[:, place].mean())) for place in range(_EXECUTED + 1, len(COLUMNS))),
                    *(mean_of(arms, name) for name in ("turns", "compilations", "minutes", "core_minutes")),
                )
            )  # fmt: skip
    budget = f"{config.compilations} compilations" if config.compilations else f"{config.minutes:g} minutes of a core"
    said = "; ".join(f"{problem}: {name} {fine(change)}" for problem, (change, name) in best.items())
    return Result(
        benchmark="register_learners",
        question="Which learner of register allocation pays most where nothing taught it, "
        f"after {budget}?",
        answer=f"{COLUMNS[_SPILLS]}, in the mean of held-out projects: {said or 'nothing was trained'} "
        f"({missing} arms missing)",
        seed=config.seeds[0],
        tables=(
            Table(
                title="Arms",
                columns=(
                    "problem", "learner", "seeds", COLUMNS[_SPILLS], "95 % interval over projects", "over seeds",
                    COLUMNS[_EXECUTED], "the worst project", *COLUMNS[_EXECUTED + 1 :], "turns", "compilations",
                    "minutes", "core-minutes with judging",
                ),
                rows=tuple(rows),
                note="Functions of held-out modules that ask, against LLVM's own allocation, in the mean of projects "
                f"and seeds. {NOTE} A policy that its training refuses is judged as well, and has no turns. "
                "All learn from LLVM's cost of spills, reloads and copies. A turn that was begun within "
                f"the budget is finished. {_COMPILED if config.compilations else ''}".rstrip(),
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
