"""Behavioural cloning: a network that imitates an advisor's decisions from their features, module by module."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms import imitation
from mlgokit.algorithms.config import BcConfig
from mlgokit.algorithms.learner import Experience, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import drawn_modules, followed
from mlgokit.policy.network import Policy
from mlgokit.spec import AdviceKind


def make(task: Task, settings: BcConfig) -> Learner:
    """Cloning of the advisor ``settings.rule`` for ``task``."""
    count = min(settings.modules or task.modules, task.modules)

    def start(rng: np.random.Generator) -> State:
        return imitation.start(task, settings.imitation, rng)

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        new = imitation.unvisited(state, count, rng)
        modules = new if len(new) else drawn_modules(task.modules, count, rng)
        return (followed(settings.rule, modules),)

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        new = imitation.stacked([imitation.rows_of(experience) for experience in experiences])
        rows = imitation.replaced(imitation.kept_rows(state), new)
        state, metrics = imitation.told(task, settings.imitation, state, proposals, experiences, rows=rows, rng=rng)
        return state, metrics | _agreement(task, best(state), rows)

    def best(state: State) -> Policy:
        return imitation.policy_of(task, settings.imitation, state)

    return Learner(start=start, ask=ask, tell=tell, best=best)


def _agreement(task: Task, policy: Policy, rows: imitation.Rows) -> dict[str, float]:
    """In which share of binary decisions the policy agrees with the advisor."""
    if task.kind is not AdviceKind.BINARY or not rows:
        return {}
    alike: npt.NDArray[np.bool_] = (policy.preferences(rows["features"]) > 0) == (rows["decisions"] > 0)
    return {"agreement": float(alike.mean())}
