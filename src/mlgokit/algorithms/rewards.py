"""Rewards of decisions, from the scores of their contexts or the changes of their components."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from mlgokit.algorithms.config import Credit
from mlgokit.algorithms.learner import Experience, Floats, State

_EPSILON = 0.01


def relative_reward(score: Floats, baseline: Floats) -> Floats:
    """Compute the relative reduction of ``score`` against ``baseline``; google/ml-compiler-opt's ``calculate_reward``.

    Example:
        >>> relative_reward(np.array([8.0]), np.array([10.0])).round(7).tolist()
        [0.1998002]
    """
    return 1 - (score + _EPSILON) / (baseline + _EPSILON)


def initial_averages() -> State:
    """Make empty moving averages: keys [A, 2] of module and context, and values [A]."""
    return {"average/key": np.zeros((0, 2), np.int64), "average/value": np.zeros(0)}


def context_rewards(experiences: Sequence[Experience], averages: State, decay: float) -> tuple[list[Floats], State]:
    """Compute rewards [X] of each compilation's contexts against moving averages of their scores; update the averages.

    The first average of a context is its score under the heuristic, or its own if that is not known. A compilation
    moves the average after it was rewarded, in the order given.

    Example:
        >>> ones = np.ones(1, np.int64)
        >>> seen = [
        ...     Experience(proposal=0, compilation=0, module=0, features=ones, decisions=ones, log_probability=ones,
        ...     defaults=ones, sites=ones, context=0 * ones, context_ids=ones, scores=np.array([8.0]),
        ...     default_scores=np.array([10.0]))]
        >>> rewards, averages = context_rewards(seen, initial_averages(), 0.8)
        >>> rewards[0].round(7).tolist(), averages["average/value"].tolist()
        ([0.1998002], [9.6])
    """
    keys: list[tuple[int, int]] = [(int(key[0]), int(key[1])) for key in averages["average/key"]]
    known = dict(zip(keys, averages["average/value"].tolist(), strict=True))
    rewards: list[Floats] = []
    for experience in experiences:
        names = [(experience.module, context) for context in experience.context_ids.tolist()]
        first = np.where(np.isnan(experience.default_scores), experience.scores, experience.default_scores)
        average = np.array([known.get(name, value) for name, value in zip(names, first.tolist(), strict=True)])
        rewards.append(relative_reward(experience.scores, average))
        moved = average * decay + experience.scores * (1 - decay)
        known.update(zip(names, moved.tolist(), strict=True))
    return rewards, {
        "average/key": np.array(list(known), np.int64).reshape(-1, 2),
        "average/value": np.array(list(known.values()), np.float64),
    }


def decision_rewards(
    experiences: Sequence[Experience], credit: Credit, averages: State, decay: float
) -> tuple[list[Floats], State]:
    """Compute the reward [N] of each decision, and update the averages.

    With credit by component a flipped decision is rewarded with what its component saved against the base, in the unit
    of the score, and a decision that follows the base with 0: the base is the baseline, so no value function is needed.
    Compilations without a base have rewards of 0, and the averages are not updated.
    """
    if credit is Credit.COMPONENT:
        rewards: list[Floats] = []
        for experience in experiences:
            reward = np.zeros(len(experience.decisions))
            if experience.component is not None and experience.change is not None:
                departed = experience.component >= 0
                reward[departed] = -experience.change[experience.component[departed]]
            rewards.append(reward)
        return rewards, averages
    if credit is Credit.CONTEXT:
        earned, averages = context_rewards(experiences, averages, decay)
        pairs = zip(experiences, earned, strict=True)
        return [reward[experience.context] for experience, reward in pairs], averages
    merged = [_whole_module(experience) for experience in experiences]
    earned, averages = context_rewards(merged, averages, decay)
    return [np.full(len(one.decisions), reward[0]) for one, reward in zip(experiences, earned, strict=True)], averages


def _whole_module(experience: Experience) -> Experience:
    """Merge the contexts of a compilation into one."""
    return dataclasses.replace(
        experience,
        context=np.zeros_like(experience.context),
        context_ids=np.zeros(1, np.int64),
        scores=np.array([experience.scores.sum()]),
        default_scores=np.array([experience.default_scores.sum()]),
    )


def relative_gain(experiences: Sequence[Experience]) -> float:
    """Compute the relative reduction of the sum of all scores against the heuristic's; 0 without experiences."""
    score = sum(float(experience.scores.sum()) for experience in experiences)
    default = sum(float(experience.default_scores.sum()) for experience in experiences)
    return 1 - score / default if default > 0 else 0.0
