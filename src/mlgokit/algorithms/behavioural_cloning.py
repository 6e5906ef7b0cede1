"""Behavioural cloning: a network that imitates decisions from their features.

``fit_clone`` is the reference's on its quantile inputs, for a table of decisions that is there already; ``make`` is the
same as a learner that has an advisor's decisions compiled module by module.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms import imitation
from mlgokit.algorithms.config import BcConfig, CloningConfig, ImitationConfig
from mlgokit.algorithms.learner import Experience, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import drawn_modules, followed
from mlgokit.errors import UsageError
from mlgokit.policy.network import Policy
from mlgokit.policy.normaliser import fit_quantile
from mlgokit.spec import AdviceKind


def make(task: Task, settings: BcConfig) -> Learner:
    """Cloning of the advisor ``settings.rule`` for ``task``."""

    def start(rng: np.random.Generator) -> State:
        return imitation.start(task, settings.imitation, rng)

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        new = imitation.unvisited(state, settings.modules, rng)
        again = len(new) == 0
        modules = drawn_modules(task.modules, min(settings.modules, task.modules), rng) if again else new
        return (followed(settings.rule, modules),)

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        new = imitation.stacked([imitation.rows_of(experience) for experience in experiences])
        rows = imitation.replaced(imitation.kept_rows(state), new)
        return imitation.told(task, settings.imitation, state, proposals, experiences, rows=rows, rng=rng)

    def best(state: State) -> Policy:
        return imitation.policy_of(task, settings.imitation, state)

    return Learner(start=start, ask=ask, tell=tell, best=best)


def fit_clone(
    names: tuple[str, ...],
    values: npt.NDArray[np.int64],
    decisions: npt.NDArray[np.bool_],
    config: CloningConfig,
    *,
    problem: str,
    rng: np.random.Generator,
) -> Policy:
    """Fit a policy to ``decisions`` [T] taken at ``values`` [T, F] by minimising the cross entropy.

    Raises:
        UsageError: there is no decision to imitate.
    """
    if not len(decisions):
        raise UsageError(
            "behavioural cloning: expected at least one decision, found none; collect a trace with `mlgokit trace`"
        )
    kept = [index for index, name in enumerate(names) if name not in config.excluded]
    values = values[:, kept]
    task = Task(
        problem=problem,
        kind=AdviceKind.BINARY,
        features=tuple(names[index] for index in kept),
        normaliser=fit_quantile(values, count=config.quantiles),
        project=np.zeros(1, np.int64),
    )
    settings = ImitationConfig(
        hidden=config.hidden,
        steps=config.epochs * max(1, len(decisions) // config.batch),
        batch=config.batch,
        learning_rate=config.learning_rate,
    )
    count = len(decisions)
    rows = {"features": values, "decisions": decisions.astype(np.float64), "weight": np.ones(count)}
    state = imitation.with_rows(imitation.start(task, settings, rng), rows)
    state, _ = imitation.fit(task, settings, state, rng=rng)
    return imitation.policy_of(task, settings, state)
