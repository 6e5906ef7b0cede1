"""Which features decide a policy: permutation importance, and Shapley values by sampling, on the numpy policy.

Permutation importance (Breiman, 2001) replaces a feature's value by that of another observation; Shapley values
(Strumbelj and Kononenko, 2014) divide the difference of two answers among all features. The page that shows both is in
this file too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.errors import UsageError
from mlgokit.pages.model import Bar, Bars, Page, Part, Table, number_columns, text_columns
from mlgokit.policy.network import Doubles, OutputKind, Policy
from mlgokit.policy.normaliser import signed_log, typical_values
from mlgokit.spec import AdviceKind

_CHUNK = 4096
"""Observations that a policy answers at once."""
SHOWN = 30
"""Number of features that are shown as bars; the table has all."""
_WEAK = 0.1
"""Correlation below which a larger value neither raises nor lowers the answer."""
_UNITS = {
    AdviceKind.BINARY: ("the preference for inlining", "share of decisions that change"),
    AdviceKind.MASKED_CHOICE: ("the logit above the mean of the legal columns", "share of decisions that change"),
    AdviceKind.REAL: ("the unit number", "change of the unit number, in its standard deviations"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """N observations that a policy answers.

    Attributes:
        values: [N, F] raw features, or [N, C, F] with columns, in the order of the policy's features.
        mask: bool [N, C] the columns that may be chosen; ``None`` without columns.
    """

    values: npt.NDArray[Any]
    mask: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """How much F features matter to a policy's answers to N observations.

    Attributes:
        problem: name of the policy's problem.
        features: [F] names of the features.
        observations: number of observations N.
        changed: [F] share of decisions that change if the feature's value is another observation's; for real advice
            the mean change of the unit number, in standard deviations of the unit numbers.
        shapley: [F] mean absolute Shapley value, in the unit of the policy's answer.
        direction: [F] correlation of the feature's values with its Shapley values; 0 with columns.
    """

    problem: str
    features: tuple[str, ...]
    observations: int
    changed: tuple[float, ...]
    shapley: tuple[float, ...]
    direction: tuple[float, ...]

    def order_features(self) -> list[int]:
        """List the positions of the features, the most important first by Shapley value."""
        return sorted(range(len(self.features)), key=lambda index: -self.shapley[index])


def check_explained(policy: Policy) -> None:
    """Check that the importance of a policy's features can be measured.

    Raises:
        UsageError: the policy is recurrent.
    """
    if policy.recurrent:
        raise UsageError(
            "importance: expected a policy that decides by one observation, found a recurrent one, whose decisions "
            "depend on all before them; name another policy"
        )


def measure_importance(
    policy: Policy, questions: Questions, rng: np.random.Generator, *, orders: int = 8, explained: int = 256
) -> Importance:
    """Measure permutation importance and Shapley values of a policy's features.

    Args:
        policy: the policy.
        questions: the observations; replaced values are taken from other observations among them.
        rng: generator of all random draws.
        orders: number of orders in which features are replaced, for each explained observation; half of them are the
            reverse of the other half.
        explained: maximum number of observations with Shapley values, drawn if there are more.

    Raises:
        UsageError: there are fewer than two observations, or the policy is recurrent.
    """
    check_explained(policy)
    if len(questions) < 2:
        raise UsageError(f"importance: expected at least two observations, found {len(questions)}; trace more modules")
    contributions, rows = shapley_values(policy, questions, rng, orders=orders, explained=explained)
    direction = np.zeros(len(policy.features))
    if questions.mask is None:
        values = signed_log(questions.values[rows])
        moving = (values.std(axis=0) > 0) & (contributions.std(axis=0) > 0)
        for index in np.flatnonzero(moving).tolist():
            direction[index] = np.corrcoef(values[:, index], contributions[:, index])[0, 1]
    return Importance(
        problem=policy.problem,
        features=policy.features,
        observations=len(questions),
        changed=tuple(measure_permutations(policy, questions, rng).tolist()),
        shapley=tuple(np.abs(contributions).mean(axis=0).tolist()),
        direction=tuple(direction.tolist()),
    )


def measure_permutations(policy: Policy, questions: Questions, rng: np.random.Generator) -> Doubles:
    """Measure the permutation importance [F] of each feature, as in :attr:`Importance.changed`."""
    real = policy.output.advice_kind is AdviceKind.REAL
    before = _decisions(policy, questions)
    scale = max(float(before.std()), 1e-12) if real else 1.0
    changes = np.zeros(len(policy.features))
    for index in range(len(changes)):
        values = questions.values.copy()
        values[..., index] = values[rng.permutation(len(values)), ..., index]
        after = _decisions(policy, Questions(values=values, mask=questions.mask))
        changes[index] = np.abs(after - before).mean() / scale if real else (after != before).mean()
    return changes


def shapley_values(
    policy: Policy, questions: Questions, rng: np.random.Generator, *, orders: int, explained: int
) -> tuple[Doubles, npt.NDArray[np.int64]]:
    """Estimate the Shapley values [E, F] of E observations; also returns the positions [E] of these observations.

    The answer that is explained is the preference, the unit number, or by how much the logit of the column that the
    policy chooses is above the mean over all legal columns.
    """
    count = len(questions)
    rows = np.sort(rng.permutation(count)[:explained]).astype(np.int64)
    width = len(policy.features)
    total = np.zeros((len(rows), width))
    own = questions.values[rows]
    mask = None if questions.mask is None else questions.mask[rows]
    answer = _explained_answer(policy, own, mask)
    order = np.zeros((len(rows), width), np.int64)
    pairs = -(-max(orders, 1) // 2)
    every = np.arange(len(rows))
    for number in range(2 * pairs):
        order = order[:, ::-1] if number % 2 else rng.permuted(np.tile(np.arange(width), (len(rows), 1)), axis=1)
        mixed = questions.values[rng.integers(0, count, len(rows))].copy()
        last = answer(mixed)
        for step in range(width):
            index = order[:, step]
            mixed[every, ..., index] = own[every, ..., index]
            now = answer(mixed)
            total[every, index] += now - last
            last = now
    return total / (2 * pairs), rows


def changes_from_typical(policy: Policy, values: npt.NDArray[Any]) -> Doubles:
    """Compute how each preference changes if one feature's value is replaced by a typical value.

    Args:
        policy: a policy that decides yes or no.
        values: [N, F] raw features.

    Returns:
        [N, F] the preference minus the preference with that feature's typical value, before gate and doubt. Positive
        speaks for yes. Effects that need two features at once are in no entry, and entries do not add up.
    """
    own = policy.preferences(values)
    changes = np.zeros(values.shape)
    for index, typical in enumerate(typical_values(policy.normaliser).tolist()):
        other = values.astype(np.float64)
        other[:, index] = typical
        changes[:, index] = own - policy.preferences(other)
    return changes


def _decisions(policy: Policy, questions: Questions) -> npt.NDArray[Any]:
    """Compute the decision [N] for each observation: yes or no, a column, or a unit number."""
    chunks = [slice(begin, begin + _CHUNK) for begin in range(0, len(questions), _CHUNK)]
    mask = questions.mask
    parts = [_part_decisions(policy, questions.values[part], None if mask is None else mask[part]) for part in chunks]
    return np.concatenate(parts)


def _part_decisions(policy: Policy, values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> npt.NDArray[Any]:
    """Compute the decisions for a chunk of observations."""
    match policy.output.advice_kind:
        case AdviceKind.BINARY:
            return policy.preferences(values) > 0
        case AdviceKind.MASKED_CHOICE:
            return _legal_logits(policy, values, mask).argmax(axis=1)
        case AdviceKind.REAL:
            return policy.units(values)


def _legal_logits(policy: Policy, values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> Doubles:
    """Compute logits [N, C], minus infinity for columns that may not be chosen."""
    logits = policy.column_logits(values)
    return logits if mask is None else np.where(mask, logits, -np.inf)


def _explained_answer(
    policy: Policy, own: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None
) -> Callable[[npt.NDArray[Any]], Doubles]:
    """Make the function from raw values to answers whose differences Shapley values divide among the features."""
    kind = policy.output.advice_kind
    if kind is AdviceKind.BINARY:
        return policy.preferences
    if kind is AdviceKind.REAL:
        return policy.units
    chosen = _legal_logits(policy, own, mask).argmax(axis=1)
    legal = np.ones(own.shape[:2], bool) if mask is None else mask
    every = np.arange(len(own))

    def above_mean(values: npt.NDArray[Any]) -> Doubles:
        logits = policy.column_logits(values)
        mean: Doubles = np.where(legal, logits, 0.0).sum(axis=1) / np.maximum(legal.sum(axis=1), 1)
        return logits[every, chosen] - mean

    return above_mean


def draw_questions(parts: Sequence[Questions], count: int, rng: np.random.Generator) -> Questions:
    """Draw ``count`` of all observations in ``parts``, uniformly without replacement; they keep their order."""
    values = np.concatenate([part.values for part in parts])
    masks = [part.mask for part in parts if part.mask is not None]
    keep = np.sort(rng.permutation(len(values))[:count])
    return Questions(values=values[keep], mask=np.concatenate(masks)[keep] if masks else None)


def importance_parts(measured: Importance, output: OutputKind) -> list[Part]:
    """Make the parts of a page: bars of the most important features, and a table of all features."""
    answer, change = _UNITS[output.advice_kind]
    order = measured.order_features()
    bars = tuple(
        Bar(
            name=measured.features[place],
            start=0,
            end=measured.shapley[place],
            text=f"{measured.shapley[place]:.3g}, {_direction(measured.direction[place])}",
            is_sum=True,
        )
        for place in order[:SHOWN]
    )
    return [
        Bars(
            title="Features by importance",
            columns=("feature", f"share in {answer}"),
            bars=bars,
            note=f"Mean absolute Shapley value, a share in {answer}, over {measured.observations:,} observations; and "
            "whether a larger value raises or lowers the answer.",
        ),
        Table(
            title="All features",
            columns=(*text_columns("feature"), *number_columns("share", "a larger value", change, "correlation")),
            rows=tuple(
                (
                    measured.features[place],
                    f"{measured.shapley[place]:.4g}",
                    _direction(measured.direction[place]),
                    f"{measured.changed[place]:.4f}",
                    f"{measured.direction[place]:+.2f}",
                )
                for place in order
            ),
            note=f"Share: in {answer}. The {change} results from replacing the feature by that of another observation. "
            "The correlation is that of the feature with its share.",
        ),
    ]


def importance_page(
    measured: Importance, output: OutputKind, *, name: str, command: str = "", facts: tuple[tuple[str, str], ...] = ()
) -> Page:
    """Make the page of ``mlgokit importance``."""
    first = ", ".join(measured.features[place] for place in measured.order_features()[:3])
    return Page(
        title=f"{name} ({measured.problem})",
        headline=f"What decides most: {first}.",
        sentences=("It shows what this policy's decisions depend on, not why code is larger or smaller.",),
        parts=tuple(importance_parts(measured, output)),
        command=command,
        facts=facts,
    )


def _direction(correlation: float) -> str:
    """Say whether a larger value raises or lowers the answer, by its correlation with the Shapley value."""
    if abs(correlation) < _WEAK:
        return "neither"
    return "raises" if correlation > 0 else "lowers"
