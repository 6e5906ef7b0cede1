"""Trust region for evolution strategies: each step maximises a quadratic model of the score within a radius.

Gradient and second derivatives are estimated from the same perturbations. N perturbations say nothing outside of the
space that they span, so the model has at most N dimensions, and is maximised exactly there; no matrix of all weights
is stored. The radius grows after steps that raised the score, and shrinks after those that lowered it; a step that
lowered it much is taken back.
"""

# scipy annotates its functions only in part, which strict mode would report at every call.
# pyright: basic

from typing import Any

import numpy as np

from mlgokit.algorithms.config import TrustRegionConfig
from mlgokit.algorithms.gradients import mean_gradient
from mlgokit.algorithms.learner import Floats, State


def start_region(weights: Floats, settings: TrustRegionConfig) -> State:
    """Make the state before the first step; its array ``centre`` is the place to perturb."""
    return {
        "centre": weights,
        "trust/radius": np.array(settings.radius),
        "trust/accepted": weights,
        "trust/value": np.array(np.nan),
        "trust/expected": np.array(0.0),
        "trust/rows": np.zeros((0, len(weights))),
        "trust/rewards": np.zeros(0),
    }


def step_region(state: State, rows: Floats, rewards: Floats, *, spread: float, settings: TrustRegionConfig) -> State:
    """Take a step, or take the last one back, by the ``rewards`` [N] of displacements ``rows`` [N, W] of the centre.

    Args:
        state: from :func:`start_region` or an earlier step.
        rows: displacements with standard deviation ``spread``.
        rewards: their rewards.
        spread: standard deviation of the displacements.
        settings: when the radius changes.
    """
    centre, value = state["centre"], float(rewards.mean())
    before, expected = float(state["trust/value"]), float(state["trust/expected"])
    radius = float(state["trust/radius"])
    is_new = not np.isnan(before) and not np.array_equal(centre, state["trust/accepted"])
    if is_new:
        radius, is_refused = judge_step(value, before, expected, radius, settings)
        if is_refused:
            return {**state, "centre": state["trust/accepted"], "trust/radius": np.array(radius)}
    elif not np.isnan(before):
        # The place is known, and what was measured there before counts as well.
        rows, rewards = np.concatenate([state["trust/rows"], rows]), np.concatenate([state["trust/rewards"], rewards])
        value = float(rewards.mean())
    step, expected = best_step(rows, rewards, spread=spread, radius=radius)
    return {
        "centre": centre + step,
        "trust/radius": np.array(radius),
        "trust/accepted": centre,
        "trust/value": np.array(value),
        "trust/expected": np.array(expected),
        "trust/rows": rows,
        "trust/rewards": rewards,
    }


def judge_step(
    value: float, before: float, expected: float, radius: float, settings: TrustRegionConfig
) -> tuple[float, bool]:
    """Return the radius after a step, and whether the step is taken back.

    Args:
        value: score after the step.
        before: score before it.
        expected: what the model expected the step to add.
        radius: radius that the step had.
        settings: the thresholds.

    Example:
        >>> from mlgokit.algorithms.config import TrustRegionConfig
        >>> [judge_step(after, 1.0, 0.5, 2.0, TrustRegionConfig()) for after in (1.2, 0.9, 0.3, -2.0)]
        [(2.2, False), (2.0, False), (1.8, False), (1.5, True)]
    """
    is_better = value > before
    change = abs(value - before) / max(abs(value) if is_better else abs(before), 1e-8)
    if is_better:
        grows = value - before > settings.grow_threshold * expected
        return (radius * settings.grow_factor if grows else radius), False
    if change > settings.reject_threshold:
        return max(radius * settings.reject_factor, settings.least_radius), True
    if change > settings.shrink_threshold:
        return max(radius * settings.shrink_factor, settings.least_radius), False
    return radius, False


def best_step(rows: Floats, rewards: Floats, *, spread: float, radius: float) -> tuple[Floats, float]:
    """Find the step [W] that the quadratic model expects most of, and what it expects.

    Example:
        >>> rows = np.random.default_rng(1).normal(size=(4000, 2))
        >>> step, _ = best_step(rows, rows @ np.array([0.0, 3.0]), spread=1.0, radius=0.5)
        >>> bool(np.allclose(step, [0.0, 0.5], atol=0.03))
        True
    """
    changes = rewards - rewards.mean()
    gradient = mean_gradient(rows, changes) / spread**2
    basis, _ = np.linalg.qr(rows.T)
    inside = rows @ basis
    # The identity that belongs to the estimate has the mean of the changes as its factor, which is 0.
    curvature = (inside * changes[:, None]).T @ inside / (len(rows) * spread**4)
    inner = minimise_within(-curvature, -(gradient @ basis), radius)
    return basis @ inner, float(gradient @ basis @ inner + inner @ curvature @ inner / 2)


def minimise_within(matrix: Floats, linear: Floats, radius: float) -> Floats:
    """Minimise x' A x / 2 + b' x over all x [N] no longer than ``radius``, exactly, also if A is indefinite.

    Args:
        matrix: symmetric A [N, N].
        linear: b [N].
        radius: the bound of the length.

    Example:
        >>> minimise_within(np.diag([2.0, -1.0]), np.array([-2.0, 0.0]), 1.0).round(4).tolist()
        [0.6667, -0.7454]
    """
    values, vectors = np.linalg.eigh(matrix)
    along = vectors.T @ linear
    least = float(values[0])

    def solve(shift: float) -> Floats:
        shifted = values + shift
        return np.divide(-along, shifted, out=np.zeros_like(along), where=shifted > 1e-12 * (1 + abs(least)))

    if least > 0 and np.linalg.norm(solve(0.0)) <= radius:
        return vectors @ solve(0.0)
    start = max(-least, 0.0)
    inner = solve(start)
    hard = float(np.linalg.norm(along[values + start <= 1e-12 * (1 + abs(least))])) <= 1e-12 * (
        1 + np.linalg.norm(along)
    )
    if hard and np.linalg.norm(inner) <= radius:
        # Any length along the lowest curvature is possible; its sign does not matter.
        inner[0] -= np.sqrt(max(radius**2 - float(inner @ inner), 0.0))
        return vectors @ inner
    # Imported where it is needed, as scipy's statistics are.
    from scipy.optimize import brentq

    end = start + float(np.linalg.norm(along)) / radius

    def excess(shift: float) -> float:
        return 1 / radius - 1 / float(np.linalg.norm(along / np.maximum(values + shift, 1e-100)))

    root: Any = brentq(excess, start, end * (1 + 1e-12) + 1e-100, xtol=1e-15)
    return vectors @ solve(float(root))
