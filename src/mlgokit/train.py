"""The training loops: rounds of exploration and regression for inlining, and cloning of the heuristic."""

import dataclasses
import importlib.util
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mlgokit.algorithms.config import CloningConfig, EffectConfig
from mlgokit.algorithms.effects import MeasuredEffects, join_effects
from mlgokit.algorithms.gate import GateEvidence
from mlgokit.algorithms.search import independent_flips
from mlgokit.collect import ModuleEffects, Workshop, compiled, module_effects, project_weights, run_module
from mlgokit.compiler.compile import HEURISTIC
from mlgokit.compiler.objects.measure import Objective, size_score
from mlgokit.compiler.pool import parallel
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.module import Module
from mlgokit.policy.exploration import Exploration
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report, say_nothing
from mlgokit.store import ModuleRun
from mlgokit.tables.decisions import flipped_keys, site_table, strong_names


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectTraining:
    """Rounds of exploration around the current policy, each followed by a fit on all rounds' effects."""

    rounds: int = 3
    """Rounds; the first explores around the heuristic, the others around the policy of the round before."""
    explorations: int = 2
    """Explored compilations of each module in each round."""
    later_share: float = 0.7
    """Part of the modules that a round after the first explores, drawn anew each time."""
    exploration: Literal["independent", "mixed", "random"] = "independent"
    """Flips that cannot meet, or random ones; mixed: the second half of explorations after round one is random."""
    most_moves: int = 256
    """Independent exploration: moves in one at most, of one decision or of all like ones about a callee."""
    flip_probability: float = 0.06
    """Random exploration: probability that a decision is turned round."""
    least_flips: float = 3.0
    """Random exploration: flips expected in a small module, whose probability is raised for it."""
    temperature: float = 0.5
    """Random exploration: of decisions near the boundary, in units of preference, from the second round on."""
    slowest_seconds: float = 2.0
    """Modules that take longer to compile are not explored."""
    objective: Objective = Objective.LINK_AWARE
    """Which bytes count."""
    excluded: tuple[str, ...] = ("node_count", "edge_count")
    """Features the policy shall not see; these two change with every decision anywhere in the module."""
    seed: int = 1
    """Of everything random."""
    fit: EffectConfig = dataclasses.field(default_factory=EffectConfig)
    """The regression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What a round cost and taught.

    Attributes:
        round: counted from 0.
        policy: file of the policy that was fitted at its end.
        compilations: compilations of the round, remembered ones included.
        user_seconds: their processor time.
        flips: flipped decisions collected so far.
        components: labels made of them.
        unattributed_share: part of all measured change that no flip explains.
        correlation: of predicted and measured changes on projects that the members had not seen.
        gate: what the policy's gate rests on: for each side of its feature, the departures from the heuristic that
            were foretold to save, what they saved, and the margin chosen.
        base_change: total score of the modules under the policy that the round explored, against the heuristic.
        failures: compilations that failed, by reason.
        wall_seconds: elapsed time of collection and fit.
    """

    round: int
    policy: str
    compilations: int
    user_seconds: float
    flips: int
    components: int
    unattributed_share: float
    correlation: float
    gate: tuple[GateEvidence, ...]
    base_change: float
    failures: dict[str, int]
    wall_seconds: float

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return dataclasses.asdict(self) | {"gate": [evidence.to_json() for evidence in self.gate]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    module: int
    exploration: Exploration
    keep: str
    independent: bool = False


def check_framework() -> None:
    """Make sure that JAX is there; nothing but training needs it, so nothing else imports it.

    Raises:
        ToolError: a package that training needs is not installed.
    """
    missing = [name for name in ("jax", "optax") if importlib.util.find_spec(name) is None]
    if missing:
        raise ToolError(
            f"training: expected the Python packages jax and optax, found no {' and no '.join(missing)}; "
            "run `pip install 'mlgokit[train]'`"
        )


def collect_default(
    workshop: Workshop, modules: Sequence[Module], *, folder: Path | None = None, report: Report = say_nothing
) -> list[ModuleRun]:
    """Compile every module under the heuristic; with ``folder``, leave each training log there as ``<module>.log``."""

    def work(module: Module) -> ModuleRun:
        log = None if folder is None else folder / f"{module.name}.log"
        return run_module(workshop, module, Exploration(), HEURISTIC, keep="none", keep_log=log)

    return parallel(work, modules, workers=workshop.workers, report=report, label="default trace")


def train_effects(
    workshop: Workshop,
    modules: Sequence[Module],
    config: EffectTraining,
    *,
    folder: Path,
    report: Report = say_nothing,
    deadline: float = math.inf,
) -> tuple[Path, list[RoundResult]]:
    """Train an inlining policy by decision-effect regression.

    Args:
        workshop: compiles and remembers.
        modules: what to train on.
        config: rounds, exploration and fit.
        folder: where ``round-<n>.policy`` go.
        report: progress.
        deadline: on :func:`time.monotonic`'s clock; no round begins after it (the first always does).

    Returns:
        The last round's policy file, and what each round did.

    Raises:
        CorpusError: there is no module to train on.
        ToolError: JAX is not installed.
        UsageError: no round is asked for, or nothing was flipped.
    """
    check_framework()
    from mlgokit.algorithms.effect_fit import fit_effects

    if config.rounds < 1:
        raise UsageError(f"training: expected at least one round, found {config.rounds}; give rounds=1 or more")
    if not modules:
        raise CorpusError(
            "training: expected at least one module that is not held out, found none; add projects to the corpus"
        )
    defaults = collect_default(workshop, modules, report=report)
    weights = project_weights(modules, defaults)
    chosen = [index for index, run in enumerate(defaults) if run.ok and run.user_seconds <= config.slowest_seconds]
    if not chosen:
        reasons = sorted({run.reason or "slower than slowest_seconds" for run in defaults})
        raise CorpusError(
            f"training: expected at least one of {len(modules)} modules to compile, found none ({reasons[0]}); "
            "check the corpus with `mlgokit corpus info` and the compiler with `mlgokit doctor`"
        )
    rng = np.random.default_rng(config.seed)
    parts: list[MeasuredEffects] = []
    results: list[RoundResult] = []
    policy, path = HEURISTIC, folder / "round-0.policy"
    for number in range(config.rounds):
        begin = time.monotonic()
        if number and begin > deadline:
            break
        visited = _visited(chosen, config.later_share if number else 1.0, rng)
        tasks = [_Task(module=index, exploration=Exploration(), keep="none") for index in visited]
        tasks += [
            _Task(
                module=index,
                exploration=Exploration(
                    seed=_seed(rng),
                    temperature=config.temperature if number else 0.0,
                    flip_probability=_flip_probability(config, len(defaults[index].caller)),
                ),
                keep="flips",
                independent=_independent(config, number, position),
            )
            for index in visited
            for position in range(config.explorations)
        ]
        label = f"round {number + 1}"
        runs = _compile(workshop, modules, tasks, policy, config, weights=weights, report=report, label=label)
        effects = _effects(modules, tasks, runs, weights, config)
        parts += [effect.measured for effect in effects if effect.measured is not None]
        measured = join_effects(parts)
        report(0, 1, f"round {number + 1}: fit")
        fitted, fit = fit_effects(
            measured, config.fit, problem=INLINE_SIZE.name, rng=np.random.default_rng([config.seed, number])
        )
        report(1, 1, f"round {number + 1}: fit")
        path = folder / f"round-{number}.policy"
        save_policy(fitted, path)
        changed = sum(effect.changed_bytes for effect in effects)
        missed = sum(effect.unattributed_bytes for effect in effects)
        failures: dict[str, int] = {}
        for run in runs:
            if not run.ok:
                failures[run.reason or run.status.value] = failures.get(run.reason or run.status.value, 0) + 1
        results.append(
            RoundResult(
                round=number,
                policy=str(path),
                compilations=len(runs),
                user_seconds=sum(run.user_seconds for run in runs),
                flips=len(measured.sign),
                components=len(measured.change),
                unattributed_share=missed / max(changed + missed, 1e-9),
                correlation=fit.correlation,
                gate=fit.gate,
                base_change=_base_change(
                    list(zip(tasks, runs, strict=True)),
                    defaults,
                    [weights[module.project] for module in modules],
                    config.objective,
                ),
                failures=failures,
                wall_seconds=time.monotonic() - begin,
            )
        )
        policy = str(path)
    return path, results


def _visited(chosen: Sequence[int], share: float, rng: np.random.Generator) -> list[int]:
    """A random part of the modules, in their order."""
    count = max(1, round(share * len(chosen)))
    if count >= len(chosen):
        return list(chosen)
    positions = rng.permutation(len(chosen))[:count]
    return sorted(chosen[int(position)] for position in positions)


def _seed(rng: np.random.Generator) -> int:
    drawn: np.int64 = rng.integers(0, 2**62, dtype=np.int64)
    return int(drawn)


def _independent(config: EffectTraining, number: int, position: int) -> bool:
    """Whether an exploration of a module, counted from 0, is to be of flips that cannot meet."""
    later_half = number > 0 and position >= config.explorations - config.explorations // 2
    return config.exploration == "independent" or (config.exploration == "mixed" and not later_half)


def _compile(
    workshop: Workshop,
    modules: Sequence[Module],
    tasks: Sequence[_Task],
    policy: str,
    config: EffectTraining,
    *,
    weights: dict[str, dict[str, int]],
    report: Report,
    label: str,
) -> list[ModuleRun]:
    """First what follows the policy, then what explores: flips that cannot meet are found in the former.

    The plugin finds a module in a decision table by names that are its own, so one without them is explored at random.
    """

    def follow(task: _Task) -> ModuleRun:
        need = config.exploration != "random"
        return run_module(workshop, modules[task.module], task.exploration, policy, keep="none", need_sites=need)

    def explore(task: _Task) -> ModuleRun:
        module, base = modules[task.module], bases[task.module]
        if not task.independent or base.sites is None or base.sizes is None or not len(strong_names(base.sizes)):
            return run_module(workshop, module, task.exploration, policy, keep=task.keep)
        forced = independent_flips(
            compiled(base, weights[module.project], config.objective),
            base.sites,
            most=config.most_moves,
            seed=task.exploration.seed,
        )
        return run_module(
            workshop,
            module,
            Exploration(),
            policy,
            keep=task.keep,
            decisions=site_table(base, forced),
            turned=flipped_keys(base, forced),
        )

    following = [task for task in tasks if task.keep == "none"]
    exploring = [task for task in tasks if task.keep != "none"]
    followed = parallel(follow, following, workers=workshop.workers, report=report, label=f"{label}: follow")
    bases = {task.module: run for task, run in zip(following, followed, strict=True)}
    return followed + parallel(explore, exploring, workers=workshop.workers, report=report, label=f"{label}: explore")


def _flip_probability(config: EffectTraining, decisions: int) -> float:
    return min(0.3, max(config.flip_probability, config.least_flips / max(decisions, 1)))


def _effects(
    modules: Sequence[Module],
    tasks: Sequence[_Task],
    runs: Sequence[ModuleRun],
    weights: dict[str, dict[str, int]],
    config: EffectTraining,
) -> list[ModuleEffects]:
    bases = {task.module: run for task, run in zip(tasks, runs, strict=True) if task.keep == "none"}
    explored: dict[int, list[ModuleRun]] = {}
    for task, run in zip(tasks, runs, strict=True):
        others = explored.setdefault(task.module, [])
        if task.keep == "flips" and not (task.independent and any(_same(run, other) for other in others)):
            others.append(run)
    return [
        module_effects(
            modules[index],
            bases[index],
            explored.get(index, []),
            weights=weights[modules[index].project],
            objective=config.objective,
            excluded=config.excluded,
        )
        for index in bases
    ]


def _same(run: ModuleRun, other: ModuleRun) -> bool:
    """Whether two explorations of one module flipped alike: where there are few moves, two seeds may draw the same."""
    return np.array_equal(run.flipped, other.flipped) and np.array_equal(run.inlined, other.inlined)


def _base_change(
    done: Sequence[tuple[_Task, ModuleRun]],
    defaults: Sequence[ModuleRun],
    known_by_module: Sequence[dict[str, int]],
    objective: Objective,
) -> float:
    before = after = 0.0
    for task, run in done:
        default = defaults[task.module].sizes
        if task.keep == "none" and run.sizes is not None and default is not None:
            known = known_by_module[task.module]
            before += size_score(default, known, objective=objective)
            after += size_score(run.sizes, known, objective=objective)
    return after / before - 1 if before else 0.0


def train_cloning(
    workshop: Workshop,
    modules: Sequence[Module],
    config: CloningConfig,
    *,
    folder: Path,
    report: Report = say_nothing,
) -> tuple[Path, float]:
    """Train a policy that imitates the heuristic.

    Returns:
        The policy file, and the share of all decisions in which it agrees with the heuristic.

    Raises:
        ToolError: JAX is not installed.
        UsageError: the heuristic decided nothing in these modules.
    """
    check_framework()
    from mlgokit.algorithms.behavioural_cloning import fit_clone

    def work(module: Module) -> ModuleRun:
        return run_module(workshop, module, Exploration(), HEURISTIC, keep="all")

    runs = [run for run in parallel(work, modules, workers=workshop.workers, report=report, label="trace") if run.ok]
    runs = [run for run in runs if len(run.rows)]
    names = runs[0].names if runs else ()
    values = np.concatenate([run.values for run in runs]) if runs else np.zeros((0, 0), np.int64)
    decisions = np.concatenate([run.inlined for run in runs]) if runs else np.zeros(0, bool)
    rng = np.random.default_rng(config.seed)
    policy = fit_clone(names, values, decisions, config, problem=INLINE_SIZE.name, rng=rng)
    path = folder / "clone.policy"
    save_policy(policy, path)
    columns = [names.index(name) for name in policy.features]
    agree = int(np.count_nonzero((policy.preferences(values[:, columns]) > 0) == decisions))
    return path, agree / len(decisions)
