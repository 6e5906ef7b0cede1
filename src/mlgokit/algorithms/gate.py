"""The gate of a policy: the call sites for which overriding LLVM's heuristic paid on projects outside the fit.

A policy that is wrong about a kind of code that it was hardly trained on makes that code larger than plain ``-Oz``. So
for every flip that is alone in its component, the members that were not fitted on its project predict its effect. Where
they would override the heuristic, the flip measured what that does. docs/scores.md, "The gate", has the figures.

What pays in C++ may cost in C, which has no functions that the linker may drop, and hardly a flip among those of C++.
So projects in which no call has the feature must pay by themselves, too. The exploring policy does not wait for that,
or nothing more would be learned there.

Single flips tell on which side overriding pays, but not the margin: by them the best margin is 5 bytes or more, with
which whole builds are larger than with 2. A decision that pays only once every call is inlined, so that the body dies,
costs bytes in a single flip.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.policy.network import Gate

ERRORS = 2.0
"""Standard errors that the savings must exceed. With one, a corpus of many C++ projects opened the gate for calls of
functions that stay, which made C larger (docs/results/experiments.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEvidence:
    """What overriding the heuristic did at the call sites on one side of the gate's feature.

    Attributes:
        feature_is_set: the side: whether the feature is not 0.
        departures: number of flips where members that were not fitted on the project would override the heuristic.
        saved_bytes: bytes that these flips saved in sum; negative if they cost.
        error_bytes: standard error of ``saved_bytes``.
        alone_saved_bytes: the part of ``saved_bytes`` from projects in which no call has the feature.
        alone_error_bytes: standard error of ``alone_saved_bytes``.
        explored_margin: margin of the exploring policy in bytes; infinite where it follows the heuristic.
        margin: margin of the policy in bytes; infinite where the heuristic decides.
    """

    feature_is_set: bool
    departures: int
    saved_bytes: float
    error_bytes: float
    alone_saved_bytes: float
    alone_error_bytes: float
    explored_margin: float
    margin: float


def choose_gate(
    effects: MeasuredEffects, predicted: npt.NDArray[np.floating[Any]], *, feature: str, margin: float
) -> tuple[Gate | None, tuple[GateEvidence, ...]]:
    """Open the gate on each side of ``feature`` where overriding saved more than `ERRORS` standard errors.

    No single project opens a side: the savings must hold without any one of them, if there are several. If there are
    projects in which no call has the feature, the side without it must have paid in these by themselves, too.

    Args:
        effects: N flips, with what the heuristic decides.
        predicted: [N] bytes that inlining adds, as predicted by members that were not fitted on the flip's project.
        feature: name of the feature that divides the call sites into two sides, one of ``effects``.
        margin: bytes that an effect must exceed where the gate is open.

    Returns:
        The gate and its evidence; no gate if the heuristic's decisions or the feature are not known.

    Example:
        Ten calls that the heuristic refuses are inlined. All were predicted to save; the first five cost bytes.

        >>> effects = MeasuredEffects(
        ...     names=("discardable",), values=np.repeat([[0], [1]], 5, axis=0), sign=np.ones(10, np.float32),
        ...     component=np.arange(10), change=np.repeat([8.0, -9.0], 5).astype(np.float32),
        ...     project=np.zeros(10, np.int64), projects=("a",), departs=np.ones(10, bool))
        >>> choose_gate(effects, np.full(10, -5.0), feature="discardable", margin=2.0)[0]
        Gate(feature='discardable', margins=(inf, 2.0))
    """
    if effects.departs is None or feature not in effects.names:
        return None, ()
    single = np.bincount(effects.component)[effects.component] == 1
    # A flip back to the heuristic's decision measured the opposite of overriding it.
    direction = np.where(effects.departs, effects.sign, -effects.sign)
    saved = np.where(effects.departs, -1, 1) * effects.change[effects.component]
    chosen = single & (predicted * direction < -margin)
    side = effects.values[:, effects.names.index(feature)] != 0
    project = effects.project[effects.component]
    without = ~np.isin(project, project[side])
    found: list[GateEvidence] = []
    for is_set in (False, True):
        mine = chosen & (side == is_set)
        alone = mine & without
        paid = pays(saved[mine], project[mine], errors=ERRORS)
        # A corpus without such projects says nothing about them.
        paid_alone = is_set or not without.any() or pays(saved[alone], project[alone], errors=ERRORS)
        total, error = sum_and_error(saved[mine])
        alone_total, alone_error = sum_and_error(saved[alone])
        found.append(
            GateEvidence(
                feature_is_set=is_set,
                departures=int(mine.sum()),
                saved_bytes=total,
                error_bytes=error,
                alone_saved_bytes=alone_total,
                alone_error_bytes=alone_error,
                explored_margin=margin if paid else math.inf,
                margin=margin if paid and paid_alone else math.inf,
            )
        )
    return Gate(feature=feature, margins=(found[0].margin, found[1].margin)), tuple(found)


def pays(saved: npt.NDArray[np.floating[Any]], project: npt.NDArray[np.int64], *, errors: float = 1.0) -> bool:
    """Whether the sum of savings exceeds ``errors`` standard errors of it, whichever project is left out.

    Args:
        saved: [N] bytes that each flip saved.
        project: [N] number of the flip's project.
        errors: number of standard errors.
    """
    parts = [saved] + [saved[project != one] for one in np.unique(project)]
    # A single project is judged by itself.
    return all(total > errors * error for total, error in map(sum_and_error, parts if len(parts) > 2 else parts[:1]))


def sum_and_error(saved: npt.NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Compute the sum of savings [N] and its standard error, for independent savings around zero."""
    return float(saved.sum()), float(np.sqrt(np.square(saved).sum()))
