"""What learning from flipped decisions eats: flips with their features, and changes of score by component."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEffects:
    """N flips in C components.

    Attributes:
        names: the F features.
        values: int64 [N, F] the raw features of each flipped call site.
        sign: float32 [N], +1 where the flip inlined, -1 where it refused.
        component: int64 [N], ascending from 0.
        change: float32 [C] bytes, explored minus base.
        project: int64 [C] index into ``projects``.
        projects: project names.
        away: bool [N] whether the flip departs from the heuristic's decision; nothing where that is not known.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.int64]
    sign: npt.NDArray[np.float32]
    component: npt.NDArray[np.int64]
    change: npt.NDArray[np.float32]
    project: npt.NDArray[np.int64]
    projects: tuple[str, ...]
    away: npt.NDArray[np.bool_] | None = None


def join_effects(parts: Sequence[MeasuredEffects]) -> MeasuredEffects:
    """One set out of several with the same features.

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
