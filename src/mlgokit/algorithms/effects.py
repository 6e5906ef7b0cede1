"""Training data of effect regression: flipped decisions with their features, and changes of score by component."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Credit, ScoredBuild, make_scored_build
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.objects.measure import Objective, function_scores, link_weights
from mlgokit.errors import UsageError
from mlgokit.module import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEffects:
    """N flipped decisions in C components, with the measured change of each component.

    Attributes:
        names: names of the F features.
        values: [N, F] raw features of each flipped decision, int64 or floating point.
        sign: float32 [N], +1 where the flip inlined, -1 where it refused.
        component: int64 [N] the component of each flip, ascending from 0.
        change: float32 [C] change of the component's functions in bytes, with the flips minus without them.
        project: int64 [C] the component's project, as an index into ``projects``.
        projects: names of the projects.
        departs: bool [N] whether the flip departs from the heuristic's decision, and not back to it; ``None`` if that
            is not known.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.integer[Any] | np.floating[Any]]
    sign: npt.NDArray[np.float32]
    component: npt.NDArray[np.int64]
    change: npt.NDArray[np.float32]
    project: npt.NDArray[np.int64]
    projects: tuple[str, ...]
    departs: npt.NDArray[np.bool_] | None = None


def join_effects(parts: Sequence[MeasuredEffects]) -> MeasuredEffects:
    """Concatenate the effects of several compilations, which have the same features.

    Raises:
        UsageError: no part has a flip whose bytes changed, or the features differ.
    """
    parts = [part for part in parts if len(part.change)]
    if not parts:
        raise UsageError(
            "effect regression: expected at least one flipped decision whose bytes were measured, found none; "
            "explore more modules, or flip with a higher probability"
        )
    names = parts[0].names
    if any(part.names != names for part in parts):
        other = next(part.names for part in parts if part.names != names)
        raise UsageError(
            f"effect regression: expected the features {', '.join(names)} in all compilations, found "
            f"{', '.join(other)}; compile all modules with one plugin"
        )
    projects = tuple(sorted({name for part in parts for name in part.projects}))
    number = {name: index for index, name in enumerate(projects)}
    departs = [part.departs for part in parts if part.departs is not None]
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
        departs=np.concatenate(departs) if len(departs) == len(parts) else None,
    )


def measured_effects(explored: Compilation, credit: Credit, *, project: str) -> MeasuredEffects:
    """Pair the flipped decisions of one compilation with the changes in bytes that credit assignment gives them.

    Args:
        explored: the compilation with flipped decisions, which have their features.
        credit: bytes that each component of flips changed, against the compilation without them.
        project: name of the module's project.
    """
    # The regression wants the flips of a component next to each other.
    order = np.argsort(credit.component, kind="stable")
    flips, decisions = credit.flips[order], explored.decisions
    inlined = decisions.inlined[flips]
    return MeasuredEffects(
        names=decisions.names,
        values=decisions.values_at(flips),
        sign=np.where(inlined, 1, -1).astype(np.float32),
        component=credit.component[order],
        change=credit.change.astype(np.float32),
        project=np.zeros(len(credit.change), np.int64),
        projects=(project,),
        departs=None if decisions.heuristic is None else inlined != decisions.heuristic[flips],
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


def score_functions(done: Compilation, weights: Mapping[str, int], objective: Objective) -> ScoredBuild:
    """Score the functions of a compilation, for credit assignment.

    Raises:
        UsageError: the compilation made no object.
    """
    names, scores, _ = function_scores(done.measured, weights, objective=objective)
    return make_scored_build(done, tuple(names), scores)
