"""Behavioural cloning: a network imitates the decisions of a rule."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms import imitation
from mlgokit.algorithms.config import BcConfig
from mlgokit.algorithms.learner import Experience, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import draw_modules, propose_following
from mlgokit.policy.network import Policy
from mlgokit.spec import AdviceKind


def make(task: Task, settings: BcConfig) -> Learner:
    """Make the learner that imitates the decisions of ``settings.rule``."""
    count = min(settings.modules or task.modules, task.modules)

    def start(rng: np.random.Generator) -> State:
        return imitation.start(task, settings.imitation, rng)

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        new = imitation.draw_unvisited(state, count, rng)
        modules = new if len(new) else draw_modules(task.modules, count, rng)
        return (propose_following(settings.rule, modules),)

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        new = imitation.stack_rows([imitation.experience_rows(experience) for experience in experiences])
        rows = imitation.replace_contexts(imitation.load_rows(state), new)
        state, metrics = imitation.store_and_fit(
            task, settings.imitation, state, proposals, experiences, rows=rows, rng=rng
        )
        return state, metrics | _agreement(task, best(state), rows)

    def best(state: State) -> Policy:
        return imitation.policy_of(task, settings.imitation, state)

    return Learner(start=start, ask=ask, tell=tell, best=best)


def _agreement(task: Task, policy: Policy, rows: imitation.Rows) -> dict[str, float]:
    """Compute the share of binary decisions in which the policy agrees with the rule; empty for other advice."""
    if task.kind is not AdviceKind.BINARY or not rows:
        return {}
    alike: npt.NDArray[np.bool_] = (imitation.preferences(policy, rows) > 0) == (rows["decisions"] > 0)
    return {"agreement": float(alike.mean())}
