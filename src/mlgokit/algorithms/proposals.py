"""Proposals and arrays that several learners need: compilations around a policy, experiences stacked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.learner import Actor, Experience, Ints, Proposal, Task


def draw_seeds(count: int, rng: np.random.Generator) -> Ints:
    """Draw the seeds of ``count`` explorations."""
    return rng.integers(0, 2**62, count, dtype=np.int64)


def draw_modules(modules: int, count: int, rng: np.random.Generator) -> Ints:
    """Draw ``count`` positions of ``modules`` modules, each at most once more than any other; returns them sorted.

    Example:
        >>> draw_modules(3, 3, np.random.default_rng(0)).tolist()
        [0, 1, 2]
        >>> len(draw_modules(3, 7, np.random.default_rng(0)))
        7
    """
    whole, rest = divmod(count, modules)
    drawn = np.concatenate([np.tile(np.arange(modules), whole), rng.permutation(modules)[:rest]])
    return np.sort(drawn).astype(np.int64)


def propose_exploring(
    actor: Actor,
    *,
    modules: int,
    count: int,
    temperature: float,
    flip_probability: float = 0.0,
    base: bool,
    rng: np.random.Generator,
) -> tuple[Proposal, ...]:
    """Propose ``count`` exploring compilations around ``actor``, of modules drawn from ``modules``.

    With ``base`` each drawn module is also compiled without exploration, as the baseline of credit assignment.
    """
    chosen = draw_modules(modules, count, rng)
    proposals = [
        Proposal(
            actor=actor,
            modules=chosen,
            seeds=draw_seeds(count, rng),
            temperature=temperature,
            flip_probability=np.full(count, flip_probability),
            base=1 if base else None,
        )
    ]
    if base:
        proposals.append(propose_following(actor, np.unique(chosen)))
    return tuple(proposals)


def propose_following(actor: Actor, modules: Ints) -> Proposal:
    """Propose compilations of ``modules`` that follow ``actor`` without exploration."""
    count = len(modules)
    return Proposal(
        actor=actor,
        modules=modules,
        seeds=np.zeros(count, np.int64),
        temperature=0.0,
        flip_probability=np.zeros(count),
    )


def stack_decisions(task: Task, experiences: Sequence[Experience]) -> dict[str, npt.NDArray[Any]]:
    """Stack the decisions of several compilations, by name.

    Returns:
        ``inputs`` [N, W] or [N, C, W], normalised; ``decisions`` and ``log_probability`` [N]; and ``mask`` [N, C] with
        columns.
    """
    arrays: dict[str, npt.NDArray[Any]] = {
        "inputs": task.inputs(np.concatenate([experience.features for experience in experiences])),
        "decisions": np.concatenate([one.decisions for one in experiences]).astype(np.float32),
        "log_probability": np.concatenate([one.log_probability for one in experiences]).astype(np.float32),
    }
    masks = [one.mask for one in experiences if one.mask is not None]
    if masks:
        arrays["mask"] = np.concatenate(masks)
    return arrays
