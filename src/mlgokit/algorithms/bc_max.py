"""BC-Max: imitate, context by context, whichever of several advisors did best there (Marinov et al., 2024).

The advisors are rules, and then the policy itself with a few of its decisions flipped, so that what is imitated gets
better than all the rules together. https://arxiv.org/abs/2403.19462
"""

from collections.abc import Sequence

import numpy as np

from mlgokit.algorithms import imitation
from mlgokit.algorithms.config import BcMaxConfig
from mlgokit.algorithms.learner import DEFAULT_RULE, Experience, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import drawn_modules, drawn_seeds, followed
from mlgokit.policy.network import Policy
from mlgokit.spec import AdviceKind

_LEAST_STAKE = 1e-3


def make(task: Task, settings: BcMaxConfig) -> Learner:
    """BC-Max for ``task``."""
    rules = settings.rules if task.kind is AdviceKind.BINARY else (DEFAULT_RULE,)

    def start(rng: np.random.Generator) -> State:
        return imitation.start(task, settings.imitation, rng)

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        new = imitation.unvisited(state, settings.modules, rng)
        if len(new):
            return tuple(followed(rule, new) for rule in rules)
        modules = drawn_modules(task.modules, settings.modules, rng)
        sizes = np.bincount(imitation.kept_rows(state).get("module", modules), minlength=task.modules)[modules]
        actor = best(state)
        exploring = Proposal(
            actor=actor,
            modules=modules,
            seeds=drawn_seeds(len(modules), rng),
            temperature=settings.spread if task.kind is AdviceKind.REAL else 0.0,
            flip_probability=np.minimum(0.5, settings.flips / np.maximum(sizes, 1)),
        )
        return (exploring,)

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        rows = _best_of(imitation.kept_rows(state), experiences)
        return imitation.told(task, settings.imitation, state, proposals, experiences, rows=rows, rng=rng)

    def best(state: State) -> Policy:
        return imitation.policy_of(task, settings.imitation, state)

    return Learner(start=start, ask=ask, tell=tell, best=best)


def _best_of(rows: imitation.Rows, experiences: Sequence[Experience]) -> imitation.Rows:
    """The decisions of the lowest score seen for each context, weighted by how far that is below the highest seen."""
    seen: dict[tuple[int, int], tuple[float, float]] = {}
    if rows:
        keys = zip(rows["module"].tolist(), rows["context"].tolist(), strict=True)
        seen = dict(zip(keys, zip(rows["score"].tolist(), rows["highest"].tolist(), strict=True), strict=True))
    winners: dict[tuple[int, int], imitation.Rows] = {}
    for experience in experiences:
        found = imitation.rows_of(experience)
        for place, context in enumerate(experience.context_ids.tolist()):
            key = (experience.module, context)
            score = float(experience.scores[place])
            lowest, highest = seen.get(key, (np.inf, -np.inf))
            if score < lowest:
                winners[key] = imitation.chosen_rows(found, experience.context == place)
            seen[key] = (min(score, lowest), max(score, highest))
    rows = imitation.replaced(
        {name: value for name, value in rows.items() if name != "highest"}, imitation.stacked(list(winners.values()))
    )
    if not rows:
        return rows
    keys = zip(rows["module"].tolist(), rows["context"].tolist(), strict=True)
    highest = np.array([seen[key][1] for key in keys])
    stake = (highest - rows["score"]) / np.maximum(rows["score"], 1e-9)
    return {**rows, "highest": highest, "weight": stake + _LEAST_STAKE}
