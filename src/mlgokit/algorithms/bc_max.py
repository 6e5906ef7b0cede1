"""BC-Max: imitate, context by context, whichever of several advisors did best there (Marinov et al., 2024).

The advisors are rules first, and then the policy itself with a few of its decisions flipped, so that the policy can
become better than all rules together. https://arxiv.org/abs/2403.19462

With ``partitions``, decisions are weighted by the size of what they are about, as in google/ml-compiler-opt: sizes fall
into buckets; the regret of each bucket, relative to the largest, is a step of exponentiated gradient; and probabilities
are the running average over steps, the first of which is uniform. The weight of a decision is the smallest probability
over that of its bucket, so that buckets with regret weigh more.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from mlgokit.algorithms import imitation
from mlgokit.algorithms.config import BcMaxConfig
from mlgokit.algorithms.learner import DEFAULT_RULE, Experience, Floats, Learner, Proposal, State, Task
from mlgokit.algorithms.proposals import draw_modules, draw_seeds, propose_following
from mlgokit.errors import UsageError
from mlgokit.policy.network import Policy
from mlgokit.spec import AdviceKind

_LEAST_STAKE = 1e-3
"""Added to the weight of every decision, so that contexts in which all advisors do equally well are imitated too."""
_WEIGHTING = "weighing/"
_LOGITS, _PROBABILITIES, _STEPS = "logits", "probabilities", "steps"

Weighting = dict[str, Floats]
"""The state of the weighting of buckets: logits and probabilities [buckets], and the number of steps, by name."""


def make(task: Task, settings: BcMaxConfig) -> Learner:
    """Make the BC-Max learner: it tries each rule on modules not seen yet, then its own policy with random flips.

    Raises:
        UsageError: the settings' partitions do not ascend.
    """
    if any(after <= before for before, after in itertools.pairwise(settings.partitions)):
        raise UsageError(
            f"--setting partitions: expected ascending numbers, such as [1000,10000], found {settings.partitions}; "
            "sort them"
        )
    rules = settings.rules if task.kind is AdviceKind.BINARY else (DEFAULT_RULE,)

    def start(rng: np.random.Generator) -> State:
        weighting = start_weighting(settings.partitions) if settings.partitions else {}
        return {**imitation.start(task, settings.imitation, rng), **_with_prefix(weighting)}

    def ask(state: State, rng: np.random.Generator) -> tuple[Proposal, ...]:
        new = imitation.draw_unvisited(state, settings.modules, rng)
        if len(new):
            return tuple(propose_following(rule, new) for rule in rules)
        modules = draw_modules(task.modules, settings.modules, rng)
        sizes = np.bincount(imitation.load_rows(state).get("module", modules), minlength=task.modules)[modules]
        actor = best(state)
        exploring = Proposal(
            actor=actor,
            modules=modules,
            seeds=draw_seeds(len(modules), rng),
            temperature=settings.spread if task.kind is AdviceKind.REAL else 0.0,
            flip_probability=np.minimum(0.5, settings.flips / np.maximum(sizes, 1)),
        )
        return (exploring,)

    def tell(
        state: State, proposals: Sequence[Proposal], experiences: Sequence[Experience], rng: np.random.Generator
    ) -> tuple[State, dict[str, float]]:
        before = imitation.load_rows(state)
        rows = _best_rows(before, experiences)
        if settings.partitions:
            weighting = {name: state[_WEIGHTING + name] for name in start_weighting(settings.partitions)}
            by_policy = {number for number, one in enumerate(proposals) if isinstance(one.actor, Policy)}
            sizes, regrets = _regrets(before, [one for one in experiences if one.proposal in by_policy])
            weighting = update_weighting(weighting, sizes, regrets, settings.partitions)
            state = {**state, **_with_prefix(weighting)}
            if rows:
                factors = bucket_weights(weighting, rows["score"].astype(np.float64), settings.partitions)
                rows = {**rows, "weight": rows["weight"] * factors}
        return imitation.store_and_fit(task, settings.imitation, state, proposals, experiences, rows=rows, rng=rng)

    def best(state: State) -> Policy:
        return imitation.policy_of(task, settings.imitation, state)

    return Learner(start=start, ask=ask, tell=tell, best=best)


def _with_prefix(weighting: Weighting) -> State:
    """Name the arrays of the weighting as they are stored in a state."""
    return {_WEIGHTING + name: value for name, value in weighting.items()}


def _regrets(rows: imitation.Rows, experiences: Sequence[Experience]) -> tuple[Floats, Floats]:
    """Compute the scores of contexts under the policy, and how far each is above the context's lowest known score."""
    if not rows:
        return np.zeros(0), np.zeros(0)
    keys = zip(rows["module"].tolist(), rows["context"].tolist(), strict=True)
    lowest = dict(zip(keys, rows["score"].tolist(), strict=True))
    pairs = [
        (float(score), lowest[experience.module, context])
        for experience in experiences
        for context, score in zip(experience.context_ids.tolist(), experience.scores, strict=True)
        if (experience.module, context) in lowest
    ]
    scores, best = np.array(pairs, np.float64).reshape(-1, 2).T
    return scores, scores - best


def _best_rows(rows: imitation.Rows, experiences: Sequence[Experience]) -> imitation.Rows:
    """Keep for each context the decisions that had its lowest score, weighted by how far that is below its highest."""
    seen: dict[tuple[int, int], tuple[float, float]] = {}
    if rows:
        keys = zip(rows["module"].tolist(), rows["context"].tolist(), strict=True)
        seen = dict(zip(keys, zip(rows["score"].tolist(), rows["highest"].tolist(), strict=True), strict=True))
    winners: dict[tuple[int, int], imitation.Rows] = {}
    for experience in experiences:
        found = imitation.experience_rows(experience)
        for place, context in enumerate(experience.context_ids.tolist()):
            key = (experience.module, context)
            score = float(experience.scores[place])
            lowest, highest = seen.get(key, (np.inf, -np.inf))
            if score < lowest:
                winners[key] = imitation.select_rows(found, experience.context == place)
            seen[key] = (min(score, lowest), max(score, highest))
    rows = imitation.replace_contexts(
        {name: value for name, value in rows.items() if name != "highest"}, imitation.stack_rows(list(winners.values()))
    )
    if not rows:
        return rows
    keys = zip(rows["module"].tolist(), rows["context"].tolist(), strict=True)
    highest = np.array([seen[key][1] for key in keys])
    stake = (highest - rows["score"]) / np.maximum(highest, 1e-9)
    return {**rows, "highest": highest, "weight": stake + _LEAST_STAKE}


def start_weighting(partitions: Sequence[float]) -> Weighting:
    """Make equal weights of all buckets, of which there is one more than of ``partitions``."""
    count = len(partitions) + 1
    return {_LOGITS: np.ones(count), _PROBABILITIES: np.full(count, 1 / count), _STEPS: np.ones(())}


def update_weighting(state: Weighting, sizes: Floats, regrets: Floats, partitions: Sequence[float]) -> Weighting:
    """Update the weights of the buckets by the policy's regrets in N contexts.

    Args:
        state: the weights before the update.
        sizes: [N] score of each context under the policy, which chooses its bucket.
        regrets: [N] how far that score is above the context's lowest known score; a negative regret counts as 0.
        partitions: ascending bounds between the buckets; a size at a bound belongs to the bucket above it.

    Example:
        >>> state = start_weighting([1, 2, 3])
        >>> state = update_weighting(state, np.array([0.5, 1.5]), np.array([-1.0, 4.0]), [1, 2, 3])
        >>> state["probabilities"].round(8)
        array([0.27346137, 0.17961589, 0.27346137, 0.27346137])
    """
    lost = np.bincount(
        np.searchsorted(partitions, sizes, side="right"),
        weights=np.maximum(regrets, 0),
        minlength=len(state[_LOGITS]),
    )
    if not lost.max(initial=0.0) > 0:
        return state
    logits = state[_LOGITS] - lost / lost.max()
    odds = np.exp(logits - logits.max())
    steps = state[_STEPS] + 1
    probabilities = (state[_PROBABILITIES] * (steps - 1) + odds / odds.sum()) / steps
    return {_LOGITS: logits, _PROBABILITIES: probabilities, _STEPS: steps}


def bucket_weights(state: Weighting, sizes: Floats, partitions: Sequence[float]) -> Floats:
    """Look up the weights [N], at most 1, of the buckets that ``sizes`` [N] fall into."""
    probabilities = state[_PROBABILITIES]
    return (probabilities.min() / probabilities)[np.searchsorted(partitions, sizes, side="right")]
