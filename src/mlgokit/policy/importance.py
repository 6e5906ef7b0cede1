"""Which features decide a policy: permutation importance, and Shapley values by sampling, on the numpy policy.

Permutation importance (Breiman, 2001) asks what happens if a feature is another observation's; Shapley values
(Strumbelj and Kononenko, 2014) share the distance between two answers out among all features. The page of both is here,
too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.errors import UsageError
from mlgokit.pages.model import Bar, Bars, Page, Part, Table, number_columns, text_columns
from mlgokit.policy.network import Doubles, OutputKind, Policy
from mlgokit.policy.normaliser import typical_values
from mlgokit.spec import AdviceKind

_CHUNK = 4096
SHOWN = 30
"""Features that have a bar; the table has all."""
_WEAK = 0.1
"""Correlation below which a feature leads neither up nor down."""
_UNITS = {
    AdviceKind.BINARY: ("the preference for inlining", "share of decisions that change"),
    AdviceKind.MASKED_CHOICE: ("the logit above the mean of the legal columns", "share of decisions that change"),
    AdviceKind.REAL: ("the unit number", "change of the unit number, in its standard deviations"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """N observations.

    Attributes:
        values: [N, F] raw, or [N, C, F] with columns, in the order of the policy's features.
        mask: bool [N, C] the columns that may be chosen; nothing without columns.
    """

    values: npt.NDArray[Any]
    mask: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """What F features do to N answers.

    Attributes:
        problem: the policy's.
        features: [F] names.
        observations: N.
        changed: [F] share of decisions that are other ones if the feature is another observation's; for real advice
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
        """Positions of the features, the most important first by Shapley value."""
        return sorted(range(len(self.features)), key=lambda index: -self.shapley[index])


def check_explained(policy: Policy) -> None:
    """Make sure that a policy can be explained.

    Raises:
        UsageError: it measures effects against another column.
    """
    if policy.output is OutputKind.COLUMN_EFFECT:
        raise UsageError(
            f"importance: expected a policy for {policy.problem} with a logit for each column, found effects against "
            "the heuristic's column, which are not explained yet; name another policy"
        )


def measure_importance(
    policy: Policy, questions: Questions, rng: np.random.Generator, *, orders: int = 8, explained: int = 256
) -> Importance:
    """Both measures.

    Args:
        policy: which policy.
        questions: the observations; the other observation that a value is taken from is drawn from them.
        rng: for everything that is drawn.
        orders: in which features are exchanged, for each explained observation; half of them are the others reversed.
        explained: observations with Shapley values, drawn if there are more.

    Raises:
        UsageError: there are fewer than two observations, or the policy measures effects against another column.
    """
    check_explained(policy)
    if len(questions) < 2:
        raise UsageError(f"importance: expected at least two observations, found {len(questions)}; trace more modules")
    contributions, rows = shapley_values(policy, questions, rng, orders=orders, explained=explained)
    direction = np.zeros(len(policy.features))
    if questions.mask is None:
        values = questions.values[rows].astype(np.float64)
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
    """[F] as :attr:`Importance.changed`."""
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
    """Shapley values [E, F], and the positions [E] of the observations that they explain.

    The answer that is explained is the preference, the unit number, or by how much the logit of the column that the
    policy chooses is above the mean of all legal ones.
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
    """What each feature by itself does to each preference.

    Args:
        policy: which decides yes or no.
        values: raw [N, F].

    Returns:
        [N, F] the preference, less the one with that feature's typical value in place of its own, before gate and
        doubt. Positive speaks for yes. Features that only speak together have no share in it, and shares do not add up.
    """
    own = policy.preferences(values)
    changes = np.zeros(values.shape)
    for index, typical in enumerate(typical_values(policy.normaliser).tolist()):
        other = values.astype(np.float64)
        other[:, index] = typical
        changes[:, index] = own - policy.preferences(other)
    return changes


def _decisions(policy: Policy, questions: Questions) -> npt.NDArray[Any]:
    parts = [
        _part_decisions(policy, questions.values[begin : begin + _CHUNK], questions.mask, begin)
        for begin in range(0, len(questions), _CHUNK)
    ]
    return np.concatenate(parts)


def _part_decisions(
    policy: Policy, values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None, begin: int
) -> npt.NDArray[Any]:
    match policy.output.advice_kind:
        case AdviceKind.BINARY:
            return policy.preferences(values) > 0
        case AdviceKind.MASKED_CHOICE:
            return _legal_logits(policy, values, None if mask is None else mask[begin : begin + len(values)]).argmax(
                axis=1
            )
        case AdviceKind.REAL:
            return policy.units(values)


def _legal_logits(policy: Policy, values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> Doubles:
    logits = policy.column_logits(values)
    return logits if mask is None else np.where(mask, logits, -np.inf)


def _explained_answer(
    policy: Policy, own: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None
) -> Callable[[npt.NDArray[Any]], Doubles]:
    """The function of raw values whose change is shared out."""
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
    """``count`` observations of all, each as likely as any other, in their order."""
    values = np.concatenate([part.values for part in parts])
    masks = [part.mask for part in parts if part.mask is not None]
    keep = np.sort(rng.permutation(len(values))[:count])
    return Questions(values=values[keep], mask=np.concatenate(masks)[keep] if masks else None)


def importance_parts(measured: Importance, output: OutputKind) -> list[Part]:
    """A bar for each feature that matters most, and all of them as a table."""
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
    """A page of its own."""
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
    if abs(correlation) < _WEAK:
        return "neither"
    return "raises" if correlation > 0 else "lowers"
