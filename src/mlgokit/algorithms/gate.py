"""The gate of a policy: for which call sites departing from LLVM's own decision has paid on projects never seen.

A policy that is wrong about a kind of code it hardly saw makes that code larger than plain ``-Oz``. So every flip that
is alone in its component is asked what the members of the ensemble that were not fitted on its project say. Where they
would depart from the heuristic, the flip measured what that does. docs/scores.md, "The gate", has the figures.

What pays in C++ may cost in C, whose functions are none that the linker may drop, and which has hardly a flip among
those of C++. So projects in which no call has the feature are asked by themselves, too. The actor that explores does
not wait for that, or nothing more would be learned there.

Single flips say on which side departures pay, not how sure one must be: by them the best margin is 5 bytes or more,
with which whole builds get larger than with 2. What pays only once every call is inlined, so that the body dies, costs
in a single flip.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.policy.network import Gate

ERRORS = 2.0
"""Standard errors that departures must have saved. With one, a corpus of many projects in C++ opened the gate for calls
of functions that stay, by which C became larger (docs/results/experiments.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEvidence:
    """What departures from the heuristic did, of the call sites on one side of the gate's feature.

    Attributes:
        feature_is_set: which side: whether the feature is not 0.
        departures: flips for which members that had not seen the project would depart from the heuristic.
        saved_bytes: what these departures saved, all together; negative if they cost.
        error_bytes: standard error of that.
        alone_saved_bytes: what those of them saved that are in projects in which no call has the feature.
        alone_error_bytes: standard error of that.
        explored_margin: the margin of the actor that explores; infinite where it is to follow the heuristic.
        margin: the margin that was chosen, in bytes; infinite where the heuristic is to decide.
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
    """Open the gate on each side of ``feature`` if departures have saved more there than chance would, by `ERRORS`.

    No single project opens a side: they must have saved more than chance without it too, if there are others. If there
    are projects in which no call has the feature, the side without it must have paid in these by themselves, too.

    Args:
        effects: N flips; who decided otherwise than the heuristic must be known.
        predicted: [N] bytes that inlining adds, as foretold by members that were not fitted on the flip's project.
        feature: the feature that divides call sites, one of those of ``effects``.
        margin: bytes that an effect must exceed where the gate is open.

    Returns:
        The gate and what it rests on; no gate if the heuristic's decisions or the feature are not known.

    Example:
        Ten refused calls are inlined. All were believed to save; the five of the first kind cost.

        >>> effects = MeasuredEffects(
        ...     names=("discardable",), values=np.repeat([[0], [1]], 5, axis=0), sign=np.ones(10, np.float32),
        ...     component=np.arange(10), change=np.repeat([8.0, -9.0], 5).astype(np.float32),
        ...     project=np.zeros(10, np.int64), projects=("a",), away=np.ones(10, bool))
        >>> choose_gate(effects, np.full(10, -5.0), feature="discardable", margin=2.0)[0]
        Gate(feature='discardable', margins=(inf, 2.0))
    """
    if effects.away is None or feature not in effects.names:
        return None, ()
    single = np.bincount(effects.component)[effects.component] == 1
    # A flip back to the heuristic measured the departure the other way round.
    direction = np.where(effects.away, effects.sign, -effects.sign)
    saved = np.where(effects.away, -1, 1) * effects.change[effects.component]
    chosen = single & (predicted * direction < -margin)
    side = effects.values[:, effects.names.index(feature)] != 0
    project = effects.project[effects.component]
    without = ~np.isin(project, project[side])
    found: list[GateEvidence] = []
    for is_set in (False, True):
        here = chosen & (side == is_set)
        alone = here & without
        paid = pays(saved[here], project[here], errors=ERRORS)
        # A corpus without such projects has nothing to say about them.
        paid_alone = is_set or not without.any() or pays(saved[alone], project[alone], errors=ERRORS)
        total, error = sum_and_error(saved[here])
        alone_total, alone_error = sum_and_error(saved[alone])
        found.append(
            GateEvidence(
                feature_is_set=is_set,
                departures=int(here.sum()),
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
    """Whether departures saved more than so many of their standard errors, whichever project is left out."""
    parts = [saved] + [saved[project != one] for one in np.unique(project)]
    # A side that one project alone has anything to say about is judged by that one.
    return all(total > errors * error for total, error in map(sum_and_error, parts if len(parts) > 2 else parts[:1]))


def sum_and_error(saved: npt.NDArray[np.floating[Any]]) -> tuple[float, float]:
    """The sum of savings, and its standard error."""
    return float(saved.sum()), float(np.sqrt(np.square(saved).sum()))
