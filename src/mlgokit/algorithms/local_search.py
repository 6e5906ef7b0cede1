"""Local search, then imitation: try single departures from the best known decisions, and fit a policy to what wins.

Each module keeps its best decisions, at first the start policy's or the heuristic's. A turn forces them, departs at a
few sites, and keeps the departures whose component got smaller. What a site's trial was worth in bytes is the weight
of its label, so that the policy learns most from the decisions that matter.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms import imitation
from mlgokit.algorithms.config import LocalSearchConfig
from mlgokit.algorithms.learner import DEFAULT_RULE, Experience, ForcedDecisions, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import drawn_modules, followed
from mlgokit.policy.network import Policy
from mlgokit.spec import AdviceKind

_NEVER = 1 << 62
"""Times that a site counts as tried where there is nothing else to decide."""


def make(task: Task, settings: LocalSearchConfig) -> Learner:
    """Local search for ``task``."""
    actor = DEFAULT_RULE if task.start is None else task.start

    def start(rng: np.random.Generator) -> State:
        return imitation.start(task, settings.imitation, rng)

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        new = imitation.unvisited(state, settings.modules, rng)
        if len(new):
            return (followed(actor, new),)
        modules = np.unique(drawn_modules(task.modules, min(settings.modules, task.modules), rng))
        rows = imitation.kept_rows(state)
        policy = best(state)
        known: list[ForcedDecisions] = []
        tried: list[ForcedDecisions] = []
        for module in modules.tolist():
            mine = imitation.chosen_rows(rows, rows["module"] == module) if rows else rows
            known.append(_forced(mine))
            tried.append(_departures(mine, policy, task, settings, rng))
        zeros = np.zeros(len(modules), np.int64)
        share = np.zeros(len(modules))
        together = [_joined(first, then) for first, then in zip(known, tried, strict=True)]
        return tuple(
            Proposal(
                actor=actor,
                modules=modules,
                seeds=zeros,
                temperature=0.0,
                flip_probability=share,
                forced=tuple(forced),
                base=base,
            )
            for forced, base in ((together, 1), (known, None))
        )

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        rows = imitation.kept_rows(state)
        firsts = [_first(one) for one in experiences if one.component is None and not proposals[one.proposal].forced]
        rows = imitation.replaced(rows, imitation.stacked(firsts))
        for experience in experiences:
            rows = _judged(rows, experience, real=task.kind is AdviceKind.REAL)
        state, metrics = imitation.told(task, settings.imitation, state, proposals, experiences, rows=rows, rng=rng)
        return state, metrics | {"tried": float(np.count_nonzero(rows["tried"])) if rows else 0.0}

    def best(state: State) -> Policy:
        return imitation.policy_of(task, settings.imitation, state)

    return Learner(start=start, ask=ask, tell=tell, best=best)


def _first(experience: Experience) -> imitation.Rows:
    """The decisions of a module that was not seen before, none of them tried yet."""
    rows = imitation.rows_of(experience)
    return {**rows, "weight": np.zeros(len(rows["site"])), "tried": np.zeros(len(rows["site"]), np.int64)}


def _forced(rows: imitation.Rows) -> ForcedDecisions:
    if not rows:
        return ForcedDecisions(sites=np.zeros(0, np.int64), decisions=np.zeros(0))
    return ForcedDecisions(sites=rows["site"], decisions=rows["decisions"])


def _joined(first: ForcedDecisions, then: ForcedDecisions) -> ForcedDecisions:
    """``first``, with the sites of ``then`` decided as there."""
    stays = ~np.isin(first.sites, then.sites)
    return ForcedDecisions(
        sites=np.concatenate([first.sites[stays], then.sites]),
        decisions=np.concatenate([first.decisions[stays], then.decisions]),
    )


def _departures(
    rows: imitation.Rows, policy: Policy, task: Task, settings: LocalSearchConfig, rng: np.random.Generator
) -> ForcedDecisions:
    """Other decisions at the sites that were tried least, first of all where the fitted policy would decide otherwise.

    A column is the policy's favourite, or any other if that is known already; a real number is near the policy's.
    """
    if not rows:
        return _forced(rows)
    features, known, tried = rows["features"], rows["decisions"], rows["tried"]
    guess: npt.NDArray[Any]
    preference = policy.answers(features.reshape(-1, features.shape[-1])).mean(axis=0).reshape(features.shape[:-1])
    if task.kind is AdviceKind.REAL:
        guess, disagrees = preference.astype(np.float64), np.ones(len(known), bool)
    elif task.kind is AdviceKind.BINARY:
        guess, disagrees = 1 - known, (preference > 0) != (known > 0)
    else:
        guess = np.where(rows["mask"], preference, -np.inf).argmax(axis=1)
        disagrees = guess != known
        others = rows["mask"].copy()
        others[np.arange(len(known)), known.astype(np.int64)] = False
        guess = np.where(disagrees, guess, np.where(others, rng.random(others.shape), -1.0).argmax(axis=1))
        tried = np.where(others.any(axis=1), tried, _NEVER)
    order = np.lexsort((rng.random(len(known)), tried - disagrees))[: settings.departures]
    order = order[tried[order] < _NEVER]
    guess = guess[order].astype(np.float64)
    if task.kind is AdviceKind.REAL:
        guess += rng.normal(size=len(guess)) * settings.spread
    return ForcedDecisions(sites=rows["site"][order], decisions=guess)


def _judged(rows: imitation.Rows, experience: Experience, *, real: bool) -> imitation.Rows:
    """``rows`` after one trial: departures that won are kept, and all that were tried have weights."""
    if experience.component is None or experience.change is None:
        return rows
    departed = np.flatnonzero(experience.component >= 0)
    component = experience.component[departed]
    change = experience.change[component] / np.bincount(component)[component]
    mine = np.flatnonzero(rows["module"] == experience.module)
    place = dict(zip(rows["site"][mine].tolist(), mine.tolist(), strict=True))
    found: list[tuple[int, int]] = [
        (place[site], index) for index, site in enumerate(experience.sites[departed].tolist()) if site in place
    ]
    if not found:
        return rows
    at, where = (np.array(column, np.int64) for column in zip(*found, strict=True))
    decisions: npt.NDArray[Any] = rows["decisions"].copy()
    weight, tried = rows["weight"].copy(), rows["tried"].copy()
    won = change[where] < 0
    decisions[at[won]] = experience.decisions[departed][where[won]]
    # A number that lost says nothing about how good the known one is.
    counts = won if real else np.ones_like(won)
    weight[at] = np.where(counts, np.maximum(weight[at], np.abs(change[where])), weight[at])
    tried[at] += 1
    return {**rows, "decisions": decisions, "weight": weight, "tried": tried}
