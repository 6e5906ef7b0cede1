"""A policy of evictions from labels: what it does to a function that another column is chosen than the heuristic's.

Effects are fitted as those of inlining are (``effect_fit.py``). A trial's change is the effect of its answer, less that
of the policy's own in whose place it stood.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.allocation_score import AllocationScore, changes
from mlgokit.algorithms.config import EvictionTrialsConfig
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.errors import UsageError
from mlgokit.policy.columns import DEFAULT, IS_ITSELF, LEGAL_COLUMNS, POOLED
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.problems import REGALLOC_EVICTION

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_OWN = tuple(
    feature.name
    for feature in REGALLOC_EVICTION.features
    if feature.per_column and feature.name != REGALLOC_EVICTION.mask
)
EVICTION_FEATURES = (
    *_OWN,
    *(prefix + name for prefix in (DEFAULT, *POOLED) for name in _OWN),
    "progress",
    IS_ITSELF,
    DEFAULT + IS_ITSELF,
    LEGAL_COLUMNS,
)
"""[F] what a policy sees of a column: its values, the heuristic's, and all columns together."""

UNITS: dict[AllocationScore, float] = {"spill-cost": 8.0, "executed": 4.0, "bytes": 8.0}
"""What makes one unit of the network's output: percent, parts in a thousand, and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvictionLabels:
    """What C trials measured, each of up to two answers.

    Attributes:
        values: float32 [N, F] of :data:`EVICTION_FEATURES`.
        sign: float32 [N] 1 for what was chosen in the trial, -1 for what the policy chose.
        component: int64 [N] ascending, which trial.
        before: float64 [C, 9] of the function without the trial's answer.
        after: float64 [C, 9] with it.
        project: int64 [C] index into ``projects``.
        projects: project names.
    """

    values: npt.NDArray[np.float32]
    sign: npt.NDArray[np.float32]
    component: Ints
    before: Floats
    after: Floats
    project: Ints
    projects: tuple[str, ...]


def join_labels(parts: Sequence[EvictionLabels]) -> EvictionLabels:
    """All as one set."""
    projects = tuple(sorted({name for part in parts for name in part.projects}))
    number = {name: place for place, name in enumerate(projects)}
    starts = np.cumsum([0, *(len(part.before) for part in parts)])
    return EvictionLabels(
        values=np.concatenate([part.values for part in parts]),
        sign=np.concatenate([part.sign for part in parts]),
        component=np.concatenate([part.component + start for part, start in zip(parts, starts, strict=False)]),
        before=np.concatenate([part.before for part in parts]),
        after=np.concatenate([part.after for part in parts]),
        project=np.concatenate(
            [np.array([number[name] for name in part.projects], np.int64)[part.project] for part in parts]
        ),
        projects=projects,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvictionFit:
    """A policy, and what it rests on.

    Attributes:
        policy: it.
        correlation: of foretold and measured changes on projects that members were not fitted on.
        fitted_on: bool [K, P] which projects each member was fitted on.
    """

    policy: Policy
    correlation: float
    fitted_on: npt.NDArray[np.bool_]

    def without(self, project: int) -> Policy | None:
        """The members that were not fitted on a project; nothing if all were."""
        return self.policy.of_members(~self.fitted_on[:, project])


def fit_evictions(labels: EvictionLabels, settings: EvictionTrialsConfig, *, seed: int) -> EvictionFit:
    """Fit an ensemble.

    Args:
        labels: trials.
        settings: hyper-parameters.
        seed: of split, weights and order.

    Raises:
        UsageError: there are no labels.
    """
    from mlgokit.algorithms.effect_fit import fit_effects

    if not len(labels.sign):
        raise UsageError("evictions: expected at least one trial that succeeded, found none; collect from more modules")
    unit = UNITS[settings.score]
    used, component = np.unique(labels.component, return_inverse=True)
    present, project = np.unique(labels.project[used], return_inverse=True)
    numbers: list[int] = present.tolist()
    effects = MeasuredEffects(
        names=EVICTION_FEATURES,
        values=labels.values,
        sign=labels.sign,
        component=component,
        change=changes(labels.before[used], labels.after[used], settings.score).astype(np.float32),
        project=project,
        projects=tuple(labels.projects[number] for number in numbers),
    )
    config = dataclasses.replace(settings.fit, unit_bytes=unit, huber_bytes=2 * unit, bytes_per_unit=unit)
    policy, report = fit_effects(
        effects, config, problem=REGALLOC_EVICTION.name, rng=np.random.default_rng([seed, len(labels.before)])
    )
    fitted_on = np.ones((policy.members, len(labels.projects)), bool)
    fitted_on[:, present] = report.fitted_on
    policy = dataclasses.replace(
        policy, output=OutputKind.COLUMN_EFFECT, mask=REGALLOC_EVICTION.mask or "", gate=None, margin=settings.margin
    )
    return EvictionFit(policy=policy, correlation=report.correlation, fitted_on=fitted_on)
