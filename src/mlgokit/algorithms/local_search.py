"""Local search and imitation: flip single decisions of the best known build, and fit a policy to the best decisions.

Each module keeps its best decisions, at first the start policy's or the heuristic's. A turn forces them, flips a few
sites, and keeps the flips whose component became smaller. The change in bytes is the weight of a site's label, so that
the policy learns most from the decisions that matter.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms import imitation
from mlgokit.algorithms.config import LocalSearchConfig
from mlgokit.algorithms.learner import DEFAULT_RULE, Experience, ForcedDecisions, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import draw_modules, propose_following
from mlgokit.policy.network import Policy


def make(task: Task, settings: LocalSearchConfig) -> Learner:
    """Make the learner that improves the decisions of modules by local search, and imitates the best ones."""
    actor = DEFAULT_RULE if task.start is None else task.start

    def start(rng: np.random.Generator) -> State:
        return imitation.start(task, settings.imitation, rng)

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        """Propose the actor on modules not visited yet; else known decisions with flips, and those alone to compare."""
        new = imitation.draw_unvisited(state, settings.modules, rng)
        if len(new):
            return (propose_following(actor, new),)
        modules = np.unique(draw_modules(task.modules, min(settings.modules, task.modules), rng))
        rows = imitation.load_rows(state)
        policy = best(state)
        known: list[ForcedDecisions] = []
        tried: list[ForcedDecisions] = []
        for module in modules.tolist():
            mine = imitation.select_rows(rows, rows["module"] == module) if rows else rows
            known.append(_force(mine))
            tried.append(_choose_flips(mine, policy, settings, rng))
        zeros = np.zeros(len(modules), np.int64)
        share = np.zeros(len(modules))
        together = [_override(first, then) for first, then in zip(known, tried, strict=True)]
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
            # The flips get credit against position 1 of this tuple: the known decisions without flips.
            for forced, base in ((together, 1), (known, None))
        )

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        rows = imitation.load_rows(state)
        firsts = [
            _first_rows(one) for one in experiences if one.component is None and not proposals[one.proposal].forced
        ]
        rows = imitation.replace_contexts(rows, imitation.stack_rows(firsts))
        for experience in experiences:
            rows = _update_rows(rows, experience)
        state, metrics = imitation.store_and_fit(
            task, settings.imitation, state, proposals, experiences, rows=rows, rng=rng
        )
        return state, metrics | {"tried": float(np.count_nonzero(rows["tried"])) if rows else 0.0}

    def best(state: State) -> Policy:
        return imitation.policy_of(task, settings.imitation, state)

    return Learner(start=start, ask=ask, tell=tell, best=best)


def _first_rows(experience: Experience) -> imitation.Rows:
    """Make rows of a module's first decisions, none of them tried yet."""
    rows = imitation.experience_rows(experience)
    return {**rows, "weight": np.zeros(len(rows["site"])), "tried": np.zeros(len(rows["site"]), np.int64)}


def _force(rows: imitation.Rows) -> ForcedDecisions:
    """Make forced decisions of all rows."""
    if not rows:
        return ForcedDecisions(sites=np.zeros(0, np.int64), decisions=np.zeros(0))
    return ForcedDecisions(sites=rows["site"], decisions=rows["decisions"])


def _override(first: ForcedDecisions, then: ForcedDecisions) -> ForcedDecisions:
    """Override decisions of ``first`` by those of ``then``."""
    stays = ~np.isin(first.sites, then.sites)
    return ForcedDecisions(
        sites=np.concatenate([first.sites[stays], then.sites]),
        decisions=np.concatenate([first.decisions[stays], then.decisions]),
    )


def _choose_flips(
    rows: imitation.Rows, policy: Policy, settings: LocalSearchConfig, rng: np.random.Generator
) -> ForcedDecisions:
    """Flip decisions at the sites that were tried least, those where the fitted policy disagrees first."""
    if not rows:
        return _force(rows)
    known = rows["decisions"]
    disagrees = (policy.answers(rows["features"]).mean(axis=0) > 0) != (known > 0)
    order = np.lexsort((rng.random(len(known)), rows["tried"] - disagrees))[: settings.departures]
    return ForcedDecisions(sites=rows["site"][order], decisions=1 - known[order])


def _update_rows(rows: imitation.Rows, experience: Experience) -> imitation.Rows:
    """Update the best known decisions by one compilation: keep flips that saved bytes, and weight all flipped sites."""
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
    weight[at] = np.maximum(weight[at], np.abs(change[where]))
    tried[at] += 1
    return {**rows, "decisions": decisions, "weight": weight, "tried": tried}
