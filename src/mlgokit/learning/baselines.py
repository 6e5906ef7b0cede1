"""What is learned from: modules compiled under the heuristic, and the compilations that a learner asks for."""

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import ScoredBuild, attribute
from mlgokit.algorithms.learner import Actor, Experience, Floats, ForcedDecisions, Proposal, Task
from mlgokit.algorithms.rewards import relative_reward
from mlgokit.algorithms.search import independent_flips
from mlgokit.collect import Workshop, compiled, project_weights, run_module
from mlgokit.compiler.compile import HEURISTIC
from mlgokit.compiler.objects.measure import Objective, size_score
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.regalloc_cost import OFFSET, mean_change
from mlgokit.errors import CorpusError
from mlgokit.learning.decision_batch import (
    DecisionBatch,
    available_features,
    feature_rows,
    followed_decisions,
    observed,
)
from mlgokit.learning.flips import check_forced, flipped_by_table
from mlgokit.module import Module
from mlgokit.policy.exploration import Exploration
from mlgokit.policy.network import Policy
from mlgokit.policy.store import policy_bytes
from mlgokit.problems import Problem
from mlgokit.progress import Report, say_nothing
from mlgokit.spec import AdviceKind
from mlgokit.store import ModuleRun
from mlgokit.tables.decisions import site_table, sites_of

FIT_ROWS = 1_000_000
"""About as many rows of features are kept to fit a normaliser to, evenly from all modules."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baselines:
    """M modules that compile and have decisions; which of them teach and which only judge is the loop's business.

    Attributes:
        workshop: compiles and remembers.
        problem: whose decisions are learned.
        objective: which bytes count, for inlining.
        modules: [M].
        defaults: [M] the same under the heuristic, without their logs.
        weights: of each project's COMDAT signatures.
        available: names of the features that the compiler sends.
        rows: [N, number of those] some of their values under the heuristic.
        left_out: reason to number of modules that did not compile or have nothing to decide.
    """

    workshop: Workshop
    problem: Problem
    objective: Objective
    modules: tuple[Module, ...]
    defaults: tuple[ModuleRun, ...]
    weights: dict[str, dict[str, int]]
    available: tuple[str, ...]
    rows: npt.NDArray[Any]
    left_out: dict[str, int]

    def score(self, index: int, run: ModuleRun) -> float:
        """The score of a whole module; smaller is better. That of register allocation is the sum over its functions."""
        if self.problem.context == "function":
            return 0.0 if run.regalloc is None else float(run.regalloc.scores.sum())
        assert run.sizes is not None  # noqa: S101  (a run without an object is not scored)
        return size_score(run.sizes, self.weights[self.modules[index].project], objective=self.objective)

    def compiled(self, index: int, run: ModuleRun) -> ScoredBuild:
        """A compilation of the inliner's, ready for credit."""
        return compiled(run, self.weights[self.modules[index].project], self.objective)

    def reward(self, index: int, run: ModuleRun) -> float:
        """By which part a module got better than by the heuristic; in register allocation the mean over functions."""
        default = self.defaults[index]
        if self.problem.context != "function":
            before, after = np.array([self.score(index, default)]), np.array([self.score(index, run)])
            return float(relative_reward(after, before)[0])
        if run.regalloc is None or default.regalloc is None:
            return 0.0
        return mean_change(default.regalloc, run.regalloc)


def compile_defaults(
    workshop: Workshop,
    modules: Sequence[Module],
    problem: Problem,
    *,
    objective: Objective = Objective.LINK_AWARE,
    report: Report = say_nothing,
) -> Baselines:
    """Compile every module under the heuristic.

    Raises:
        CorpusError: none compiles and has a decision.
    """
    most = max(50, FIT_ROWS // max(len(modules), 1))

    def work(module: Module) -> tuple[ModuleRun, tuple[str, ...], npt.NDArray[Any] | None]:
        run = _run(workshop, module, problem, HEURISTIC, Exploration())
        if run.log is None or not run.log.observation_count:
            return run, (), None
        names = available_features(problem, run.log)
        rows = feature_rows(problem, run.log, names).reshape(-1, len(names))
        return dataclasses.replace(run, log=None), names, rows[:: max(1, len(rows) // most)]

    done = parallel(work, modules, workers=workshop.workers, report=report, label="default trace")
    weights = project_weights(modules, [run for run, _, _ in done])
    chosen = [index for index, (run, _, rows) in enumerate(done) if run.ok and rows is not None]
    kept = set(chosen)
    left_out = Counter(
        run.reason or ("nothing to decide" if run.ok else run.status.value)
        for index, (run, _, _) in enumerate(done)
        if index not in kept
    )
    if not chosen:
        raise CorpusError(
            f"training: expected at least one of {len(modules)} modules to compile and to have decisions of "
            f"{problem.name}, found none ({next(iter(left_out), 'no modules')}); "
            "check the corpus with `mlgokit corpus info` and the compiler with `mlgokit doctor`"
        )
    return Baselines(
        workshop=workshop,
        problem=problem,
        objective=objective,
        modules=tuple(modules[index] for index in chosen),
        defaults=tuple(done[index][0] for index in chosen),
        weights=weights,
        available=done[chosen[0]][1],
        rows=np.concatenate([rows for index in chosen if (rows := done[index][2]) is not None]),
        left_out=dict(left_out),
    )


def _run(
    workshop: Workshop,
    module: Module,
    problem: Problem,
    policy: str,
    exploration: Exploration,
    *,
    decisions: bytes = b"",
) -> ModuleRun:
    return run_module(
        workshop,
        module,
        exploration,
        policy,
        keep="log",
        problem=problem.name,
        regalloc=problem.context == "function",
        decisions=decisions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What became of the compilations of one request.

    Attributes:
        experiences: of those that worked, in the order of the request.
        rewards: [number of experiences] as :meth:`Material.reward`.
        compilations: how many were asked for.
        failures: reason to number.
        user_seconds: processor time of the compilers, remembered compilations included.
    """

    experiences: tuple[Experience, ...]
    rewards: Floats
    compilations: int
    failures: dict[str, int]
    user_seconds: float


def compile_proposals(
    material: Baselines,
    task: Task,
    taught: Sequence[int],
    proposals: Sequence[Proposal],
    *,
    report: Report = say_nothing,
    label: str = "compile",
) -> Collected:
    """Compile what a learner asks for.

    Args:
        material: what there is.
        task: what is learned.
        taught: the module of the material that each module of the task is.
        proposals: the request.
        report: progress.
        label: of the progress.

    Raises:
        UsageError: decisions of single sites are given that the plugin would not take, or would turn round.
    """
    for proposal in proposals:
        check_forced(material.problem, proposal)
    items = [(number, position) for number, one in enumerate(proposals) for position in range(len(one.modules))]
    forced = {
        (number, position): proposals[number].forced[position] for number, position in items if proposals[number].forced
    }

    def index_of(item: tuple[int, int]) -> int:
        return taught[int(proposals[item[0]].modules[item[1]])]

    with tempfile.TemporaryDirectory(prefix="mlgokit-") as place:
        files = [_policy_file(proposal.actor, Path(place), number) for number, proposal in enumerate(proposals)]

        def work(item: tuple[int, int]) -> ModuleRun:
            index = index_of(item)
            table = site_table(material.defaults[index], forced[item]) if item in forced else b""
            exploration = _exploration(task, proposals[item[0]], item[1])
            workshop, module = material.workshop, material.modules[index]
            return _run(workshop, module, material.problem, files[item[0]], exploration, decisions=table)

        def compile_all(chosen: Sequence[tuple[int, int]], begin: int) -> dict[tuple[int, int], ModuleRun]:
            def told(done: int, _total: int, text: str) -> None:
                report(begin + done, len(items), text)

            done = parallel(work, chosen, workers=material.workshop.workers, report=told, label=label)
            return dict(zip(chosen, done, strict=True))

        runs = compile_all([item for item in items if not proposals[item[0]].independent], 0)
        bases: dict[tuple[int | None, int], ModuleRun] = {
            (item[0], index_of(item)): run for item, run in runs.items() if run.ok
        }
        scored = {
            key: material.compiled(key[1], bases[key])
            for key in {(proposals[item[0]].base, index_of(item)) for item in items} & bases.keys()
            if material.problem.context != "function"
        }
        drawn = [item for item in items if item not in runs and (proposals[item[0]].base, index_of(item)) in bases]
        for item in drawn:
            proposal = proposals[item[0]]
            key = proposal.base, index_of(item)
            forced[item] = independent_flips(
                scored[key],
                sites_of(bases[key]),
                most=proposal.independent,
                seed=int(proposal.seeds[item[1]]),
            )
        runs |= compile_all(drawn, len(runs))
    experiences: list[Experience] = []
    rewards: list[float] = []
    for item in (item for item in items if item in runs):
        number, position = item
        run, index = runs[item], index_of(item)
        if not run.ok or run.log is None:
            continue
        key = proposals[number].base, index
        experiences.append(
            _experience(
                material,
                task,
                run,
                bases.get(key),
                scored.get(key),
                index=index,
                actor=proposals[number].actor,
                forced=forced.get(item),
                place=(number, position, int(proposals[number].modules[position])),
            )
        )
        rewards.append(material.reward(index, run))
    failures = Counter(run.reason or run.status.value for run in runs.values() if not run.ok)
    return Collected(
        experiences=tuple(experiences),
        rewards=np.array(rewards),
        compilations=len(items),
        failures=dict(failures),
        user_seconds=sum(run.user_seconds for run in runs.values()),
    )


def _policy_file(actor: Actor, folder: Path, number: int) -> str:
    if isinstance(actor, str):
        return actor
    path = folder / f"{number}.policy"
    path.write_bytes(policy_bytes(actor))
    return str(path)


def _exploration(task: Task, proposal: Proposal, position: int) -> Exploration:
    """A real answer is never flipped, whatever the proposal says."""
    flip = 0.0 if task.kind is AdviceKind.REAL else float(proposal.flip_probability[position])
    if not flip and not proposal.temperature:
        # The seed decides nothing, so that the store knows the compilation by one name.
        return Exploration()
    return Exploration(seed=int(proposal.seeds[position]), temperature=proposal.temperature, flip_probability=flip)


def _experience(
    material: Baselines,
    task: Task,
    run: ModuleRun,
    base: ModuleRun | None,
    before: ScoredBuild | None,
    *,
    index: int,
    actor: Actor,
    forced: ForcedDecisions | None,
    place: tuple[int, int, int],
) -> Experience:
    assert run.log is not None  # noqa: S101  (looked at by the caller)
    found = observed(material.problem, run.log, task.features, heuristic=actor == HEURISTIC)
    if material.problem.context == "function":
        scores, defaults = (_costs(one, found) for one in (run, material.defaults[index]))
        credit = _context_credit(material, task, found, base, index=index, actor=actor, scores=scores)
    else:
        scores, defaults = (np.array([material.score(index, one)]) for one in (run, material.defaults[index]))
        credit = _component_credit(material, index, run, found, base=base, before=before, forced=forced)
    component, change, base_decisions = credit
    number, compilation, module = place
    return Experience(
        proposal=number,
        compilation=compilation,
        module=module,
        features=found.features,
        mask=found.mask,
        decisions=found.decisions,
        log_probability=found.log_probability,
        defaults=found.defaults,
        sites=found.sites,
        context=found.context,
        context_ids=found.context_ids,
        scores=scores,
        default_scores=defaults,
        component=component,
        change=change,
        base_decisions=base_decisions,
    )


_Credit = tuple[npt.NDArray[np.int64] | None, Floats | None, npt.NDArray[Any] | None]


def _costs(run: ModuleRun, found: DecisionBatch) -> Floats:
    return np.zeros(len(found.context_names)) if run.regalloc is None else run.regalloc.score_of(found.context_names)


def _component_credit(
    material: Baselines,
    index: int,
    run: ModuleRun,
    found: DecisionBatch,
    *,
    base: ModuleRun | None,
    before: ScoredBuild | None,
    forced: ForcedDecisions | None,
) -> _Credit:
    """Flips of the inliner, drawn or given, and what their components changed, in bytes."""
    if base is None or before is None:
        return None, None, None
    explored = material.compiled(index, run)
    if forced is not None:
        explored = dataclasses.replace(explored, flipped=explored.flipped | flipped_by_table(base, found, forced))
    credit = attribute(before, explored)
    component = np.full(len(found.decisions), -1, np.int64)
    component[credit.flips] = credit.component
    return component, credit.change, np.where(component >= 0, 1 - found.decisions, found.decisions)


def _context_credit(
    material: Baselines,
    task: Task,
    found: DecisionBatch,
    base: ModuleRun | None,
    *,
    index: int,
    actor: Actor,
    scores: Floats,
) -> _Credit:
    """Departures of the register allocator, one component for each function.

    Functions are allocated one by one and do not change each other. A change is a part of what the function costs under
    the heuristic, because costs of functions are not in one unit (docs/scores.md).
    """
    if base is None:
        return None, None, None
    followed = followed_decisions(material.problem, actor, task.features, found)
    departed = found.decisions != followed
    contexts, component = np.unique(found.context[departed], return_inverse=True)
    whole = np.full(len(found.decisions), -1, np.int64)
    whole[departed] = component
    change = (scores - _costs(base, found)) / (_costs(material.defaults[index], found) + OFFSET)
    return whole, change[contexts], followed


def evaluate_policy(
    material: Baselines, judged: Sequence[int], policy: Policy, *, report: Report = say_nothing, label: str = "validate"
) -> tuple[float, int]:
    """The gain of a policy on modules that do not teach, and how many of them compiled.

    The gain is by which part all scores together are smaller than the heuristic's; for register allocation, where
    scores do not add up, the mean of :meth:`Material.reward`.
    """
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as place:
        file = _policy_file(policy, Path(place), 0)

        def work(index: int) -> ModuleRun:
            return _run(material.workshop, material.modules[index], material.problem, file, Exploration())

        runs = parallel(work, judged, workers=material.workshop.workers, report=report, label=label)
    done = [(index, run) for index, run in zip(judged, runs, strict=True) if run.ok]
    if not done:
        return -np.inf, 0
    if material.problem.context == "function":
        return float(np.mean([material.reward(index, run) for index, run in done])), len(done)
    after = sum(material.score(index, run) for index, run in done)
    before = sum(material.score(index, material.defaults[index]) for index, _ in done)
    return 1 - after / before, len(done)
