"""Training data of effect regression: flipped decisions with their features, and changes of score by component."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Credit, ScoredBuild, scored_build
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import Objective, function_scores, link_weights
from mlgokit.errors import UsageError
from mlgokit.module import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEffects:
    """N flips in C components.

    Attributes:
        names: of the F features.
        values: [N, F] raw features of each flipped decision, int64 or floating point.
        sign: float32 [N], +1 where the flip inlined, -1 where it refused.
        component: int64 [N] ascending from 0.
        change: float32 [C] bytes, explored minus base.
        project: int64 [C] index into ``projects``.
        projects: project names.
        away: bool [N] whether the flip overrides the heuristic's decision; ``None`` if that is not known.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.integer[Any] | np.floating[Any]]
    sign: npt.NDArray[np.float32]
    component: npt.NDArray[np.int64]
    change: npt.NDArray[np.float32]
    project: npt.NDArray[np.int64]
    projects: tuple[str, ...]
    away: npt.NDArray[np.bool_] | None = None


def join_effects(parts: Sequence[MeasuredEffects]) -> MeasuredEffects:
    """Join sets with the same features.

    Raises:
        UsageError: there is nothing to join, or the features differ.
    """
    parts = [part for part in parts if len(part.change)]
    if not parts:
        raise UsageError(
            "effects: expected at least one flipped decision, found none; collect from more modules or flip more"
        )
    names = parts[0].names
    if any(part.names != names for part in parts):
        raise UsageError("effects: expected the same features in all parts; collect them with one plugin")
    projects = tuple(sorted({name for part in parts for name in part.projects}))
    number = {name: index for index, name in enumerate(projects)}
    away = [part.away for part in parts if part.away is not None]
    starts = np.cumsum([0, *(len(part.change) for part in parts)])
    return MeasuredEffects(
        names=names,
        values=np.concatenate([part.values for part in parts]),
        sign=np.concatenate([part.sign for part in parts]),
        component=np.concatenate([part.component + start for part, start in zip(parts, starts, strict=False)]),
        change=np.concatenate([part.change for part in parts]),
        project=np.concatenate(
            [np.array([number[name] for name in part.projects], np.int64)[part.project] for part in parts]
        ),
        projects=projects,
        away=np.concatenate(away) if len(away) == len(parts) else None,
    )


def measured_effects(
    explored: Compilation, credit: Credit, *, project: str, excluded: Sequence[str] = ()
) -> MeasuredEffects:
    """Extract the effects of the flips in one compilation.

    Args:
        explored: the compilation, with the features of its flips.
        credit: of its changes against the compilation without the flips.
        project: of the module.
        excluded: features to leave out.
    """
    # The regression wants the flips of a component next to each other.
    order = np.argsort(credit.component, kind="stable")
    flips, decisions = credit.flips[order], explored.decisions
    inlined = decisions.inlined[flips]
    kept = [index for index, name in enumerate(decisions.names) if name not in excluded]
    return MeasuredEffects(
        names=tuple(decisions.names[index] for index in kept),
        values=decisions.values_at(flips)[:, kept],
        sign=np.where(inlined, 1, -1).astype(np.float32),
        component=credit.component[order],
        change=credit.change.astype(np.float32),
        project=np.zeros(len(credit.change), np.int64),
        projects=(project,),
        away=None if decisions.heuristic is None else inlined != decisions.heuristic[flips],
    )


def project_weights(modules: Sequence[Module], compilations: Sequence[Compilation]) -> dict[str, dict[str, int]]:
    """Count for each project how many of its modules define each COMDAT signature."""
    return {
        project: link_weights(
            done.sizes
            for module, done in zip(modules, compilations, strict=True)
            if module.project == project and done.sizes is not None
        )
        for project in sorted({module.project for module in modules})
    }


def weighted_build(done: Compilation, weights: Mapping[str, int], objective: Objective) -> ScoredBuild:
    """Score the functions of a compilation, for credit assignment.

    Raises:
        UsageError: there is no object.
    """
    names, scores, _ = function_scores(done.measured, weights, objective=objective)
    return scored_build(done, tuple(names), scores)
