"""Validation of policies on modules or functions that they were not fitted on."""

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from mlgokit.algorithms.live_range_search import AllocationScore, additive_scores
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.pool import Workers, parallel
from mlgokit.compiler.reuse.trials import Floats
from mlgokit.decode import decode, read_json
from mlgokit.errors import InputError
from mlgokit.files import atomic_write
from mlgokit.learning.baselines import Baselines, compile_once, policy_file
from mlgokit.module import Module
from mlgokit.policy.exploration import Exploration
from mlgokit.policy.network import Policy
from mlgokit.progress import Report, say_nothing

JUDGED_NAME = "judged.json"
VALIDATION_MODULES = 40
"""Number of training modules on which members of an ensemble are validated that were not fitted on their projects."""

ModuleFunctions = tuple[Module, tuple[int, ...]]
"""A module, and the trial keys of some of its functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedModule:
    """The scores of one module under the heuristic and under the policy; smaller is better."""

    module: str
    project: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The result of a validation.

    Attributes:
        gain: relative reduction of the sum of all scores against the heuristic; for register allocation, whose scores
            cannot be added, the mean over modules. Minus infinity if no module compiled.
        modules: scores of the modules that compiled.
    """

    gain: float
    modules: tuple[ValidatedModule, ...] = ()


def write_validated(folder: Path, modules: Sequence[ValidatedModule]) -> None:
    """Write the validation scores of the best policy.

    Raises:
        StorageError: the disk is full or not writable.
    """
    atomic_write(folder / JUDGED_NAME, json.dumps([asdict(module) for module in modules]))


def read_validated(folder: Path) -> tuple[ValidatedModule, ...]:
    """Read the validation scores; empty if the file is missing or damaged, since only the report needs them."""
    try:
        value = read_json(folder / JUDGED_NAME, expected="scores of validation modules", remedy="train again")
        return decode(tuple[ValidatedModule, ...], value, JUDGED_NAME)
    except InputError:
        return ()


def validate_policies(
    baselines: Baselines,
    policies: Sequence[tuple[Policy, Sequence[int]]],
    *,
    report: Report = say_nothing,
) -> Validation:
    """Compute the gain of policies over the heuristic on modules that they were not fitted on.

    Args:
        baselines: modules, compiled under the heuristic.
        policies: pairs of a policy and the positions of its modules in the baselines; one pair, unless members of an
            ensemble are validated separately.
        report: receives the progress.
    """
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as scratch:
        files = [
            policy_file(policy, Path(scratch), number, baselines.modules) for number, (policy, _) in enumerate(policies)
        ]
        pairs = [(file, index) for file, (_, indices) in zip(files, policies, strict=True) for index in indices]

        def compile_pair(pair: tuple[str, int]) -> Compilation:
            """Compile the module with an index in the baselines under a policy file."""
            file, index = pair
            module = baselines.modules[index]
            return compile_once(baselines.compiler, module, baselines.problem, file, Exploration(), detail="scores")

        runs = parallel(compile_pair, pairs, workers=baselines.compiler, report=report, label="validate")
    done = [(index, run) for (_, index), run in zip(pairs, runs, strict=True) if run.ok]
    if not done:
        return Validation(gain=-math.inf)
    modules = tuple(
        ValidatedModule(
            module=baselines.modules[index].name,
            project=baselines.modules[index].project,
            before=baselines.score(index, baselines.defaults[index]),
            after=baselines.score(index, run),
        )
        for index, run in done
    )
    if baselines.problem.by_regalloc_cost:
        gain = float(np.mean([baselines.reward(index, run) for index, run in done]))
    else:
        before = sum(module.before for module in modules)
        gain = 1 - sum(module.after for module in modules) / before if before else 0.0
    return Validation(gain=gain, modules=modules)


def validate_functions(
    parts: Sequence[ModuleFunctions],
    measure: Callable[[Module, Sequence[int]], tuple[Floats, Floats]],
    score: AllocationScore,
    *,
    workers: Workers,
    report: Report,
) -> Validation:
    """Validate a policy of register allocation on single functions; the gain is the mean over projects.

    Args:
        parts: modules with trial keys of their functions.
        measure: function that returns the :data:`~mlgokit.compiler.reuse.trials.MEASURES` [N, 9] of a module's N
            functions under LLVM's heuristic, and those under the policy, NaN where it failed.
        score: score to validate; that of a module is the sum over its functions.
        workers: number of modules at once.
        report: receives the progress.
    """

    def validate_module(part: ModuleFunctions) -> ValidatedModule:
        """Sum the scores of a module's functions under LLVM's heuristic and under the policy."""
        module, keys = part
        before, after = additive_scores(*measure(module, keys), score)
        return ValidatedModule(
            module=module.name, project=module.project, before=float(before.sum()), after=float(after.sum())
        )

    done = parallel(validate_module, parts, workers=workers, report=report, label="validate")
    modules = tuple(module for module in done if module.before)
    by_project: dict[str, list[ValidatedModule]] = {}
    for module in modules:
        by_project.setdefault(module.project, []).append(module)
    ratios = [
        sum(module.after for module in mine) / sum(module.before for module in mine)
        for _, mine in sorted(by_project.items())
    ]
    return Validation(gain=1 - float(np.mean(ratios)) if ratios else -math.inf, modules=modules)
