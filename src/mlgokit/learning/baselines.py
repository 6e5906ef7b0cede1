"""Modules compiled under LLVM's heuristic: the baselines with which a learner's compilations are compared."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import ScoredBuild
from mlgokit.algorithms.effects import project_weights, score_functions
from mlgokit.algorithms.learner import Actor, Detail
from mlgokit.algorithms.rewards import relative_reward
from mlgokit.compiler.compilation import Compilation, Keep
from mlgokit.compiler.objects.measure import Objective, size_score
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.regalloc_cost import mean_change
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.errors import CorpusError
from mlgokit.learning.decision_batch import feature_names, feature_rows
from mlgokit.module import Module
from mlgokit.policy.exploration import Exploration
from mlgokit.policy.store import policy_bytes
from mlgokit.policy.targets import restrict_to_targets
from mlgokit.problems import INLINE_SIZE, Problem
from mlgokit.progress import Report, say_nothing

FIT_ROWS = 1_000_000
"""Approximate number of rows of features to fit a normaliser to, evenly from all modules."""
_KEEP: dict[Detail, Keep] = {"all": "log", "departures": "flips", "scores": "none"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baselines:
    """M modules that compile and have decisions, for training or validation.

    Attributes:
        compiler: compiler of all modules; it should cache.
        problem: problem whose decisions are learned.
        objective: which bytes count, for inlining.
        modules: [M] the modules.
        defaults: [M] compilation of each module under the heuristic, without its log.
        weights: for each project, the number of its modules that define each COMDAT signature.
        available: names of the features that the compiler sends, in order.
        rows: [N, number of features] a sample of feature values under the heuristic; N is 0 if none was requested.
        left_out: number of modules that did not compile or have no decision, by reason.
        place: int64 [M] index of each module among all modules that compile.
        compiled: names of all modules that compile, those without decisions included.
    """

    compiler: Compiler
    problem: Problem
    objective: Objective
    modules: tuple[Module, ...]
    defaults: tuple[Compilation, ...]
    weights: dict[str, dict[str, int]]
    available: tuple[str, ...]
    rows: npt.NDArray[Any]
    left_out: dict[str, int]
    place: npt.NDArray[np.int64]
    compiled: tuple[str, ...]

    def score(self, index: int, run: Compilation) -> float:
        """Score a compilation of a module, in bytes, or for register allocation in cost summed over functions."""
        if self.problem.by_regalloc_cost:
            return 0.0 if run.regalloc is None else float(run.regalloc.scores.sum())
        return size_score(run.measured, self.weights[self.modules[index].project], objective=self.objective)

    def score_build(self, index: int, run: Compilation) -> ScoredBuild:
        """Score the functions of a compilation, for credit assignment of inlining."""
        return score_functions(run, self.weights[self.modules[index].project], self.objective)

    def reward(self, index: int, run: Compilation) -> float:
        """Compute the relative improvement over the heuristic; for register allocation, the mean over functions."""
        default = self.defaults[index]
        if not self.problem.by_regalloc_cost:
            before, after = np.array([self.score(index, default)]), np.array([self.score(index, run)])
            return float(relative_reward(after, before)[0])
        if run.regalloc is None or default.regalloc is None:
            return 0.0
        return mean_change(default.regalloc, run.regalloc)


def compile_defaults(
    compiler: Compiler,
    modules: Sequence[Module],
    problem: Problem,
    *,
    objective: Objective = Objective.LINK_AWARE,
    with_rows: bool = True,
    report: Report = say_nothing,
) -> Baselines:
    """Compile every module under the heuristic; those that fail, or have no decision, are left out with their reasons.

    Args:
        compiler: compiler to use.
        modules: modules to compile.
        problem: problem whose decisions are learned.
        objective: which bytes count, for inlining.
        with_rows: whether to sample values of features, to fit a normaliser to.
        report: receives the progress.

    Raises:
        CorpusError: no module compiles and has a decision.
    """
    # At least some rows of each module, also where a corpus has more modules than FIT_ROWS has room for.
    module_rows = max(50, FIT_ROWS // max(len(modules), 1))
    detail: Detail = "all" if with_rows or problem is not INLINE_SIZE else "scores"

    def compile_default(module: Module) -> tuple[Compilation, tuple[str, ...], npt.NDArray[Any] | None]:
        """Compile a module; also return the names and a sample of its features, or ``None`` if it has no decision."""
        run = compile_once(compiler, module, problem, HEURISTIC, Exploration(), detail=detail)
        if not run.decision_count:
            return run, (), None
        log = run.logs.get(problem.name)
        names = feature_names(problem, run.decisions.names if log is None else log.columns)
        if log is None:
            return run, names, np.zeros((0, len(names)), np.int64)
        rows = feature_rows(problem, log, names).reshape(-1, len(names))
        return dataclasses.replace(run, logs={}), names, rows[:: max(1, len(rows) // module_rows)]

    done = parallel(compile_default, modules, workers=compiler, report=report, label="default trace")
    weights = project_weights(modules, [run for run, _, _ in done])
    chosen = [index for index, (run, _, rows) in enumerate(done) if run.ok and rows is not None]
    compiled = [index for index, (run, _, _) in enumerate(done) if run.ok]
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
        compiler=compiler,
        problem=problem,
        objective=objective,
        modules=tuple(modules[index] for index in chosen),
        defaults=tuple(done[index][0] for index in chosen),
        weights=weights,
        available=done[chosen[0]][1],
        rows=np.concatenate([rows for index in chosen if (rows := done[index][2]) is not None]),
        left_out=dict(left_out),
        place=np.searchsorted(compiled, chosen),
        compiled=tuple(modules[index].name for index in compiled),
    )


def compile_once(
    compiler: Compiler,
    module: Module,
    problem: Problem,
    policy: str,
    exploration: Exploration,
    *,
    detail: Detail = "all",
    decisions: bytes = b"",
    flips: npt.NDArray[np.int64] | None = None,
) -> Compilation:
    """Compile a module under a policy.

    Args:
        compiler: compiler to use.
        module: module to compile.
        problem: problem whose decisions are learned.
        policy: path of a policy file, or name of a rule.
        exploration: how decisions depart from the policy at random.
        detail: which decisions to return; all of them for problems other than inlining.
        decisions: bytes of a decision table, which overrides the policy.
        flips: keys of the entries of the table that count as flips, with the decision in bit 0.
    """
    use = PluginUse(
        policies={problem.name: policy},
        logs=(problem.name,),
        seed=exploration.seed,
        temperature=exploration.temperature,
        flip_probability=exploration.flip_probability,
        decisions=decisions,
        any_level=problem is INLINE_SIZE,
    )
    return compiler.compile(
        module,
        CompileRequest(
            use=use,
            keep=_KEEP[detail if problem is INLINE_SIZE else "all"],
            flips=flips,
            regalloc=problem.by_regalloc_cost,
            reuse=problem is INLINE_SIZE,
        ),
    )


def policy_file(actor: Actor, folder: Path, number: int, modules: Sequence[Module]) -> str:
    """Return an actor as a compiler option: the name of a rule, or the path of a policy file that is written here."""
    if isinstance(actor, str):
        return actor
    path = folder / f"{number}.policy"
    path.write_bytes(policy_bytes(restrict_to_targets(actor, modules)))
    return str(path)
