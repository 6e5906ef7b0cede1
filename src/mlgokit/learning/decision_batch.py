"""Converts the decisions that the plugin logged in one compilation to the arrays of an experience."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.learner import DEFAULT_RULE, Actor, Floats, Ints
from mlgokit.compiler.compilation import NOT_FEATURES, InlineDecisions
from mlgokit.errors import UsageError
from mlgokit.policy.exploration import PRIORITIES_PER_UNIT, UNIT_BOUND
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.problems import INLINE_SIZE, PROBLEMS, Problem, column_count
from mlgokit.spec import AdviceKind
from mlgokit.traces import Log
from mlgokit.traces.function_id import function_id

ABOUT_DECISIONS = frozenset(NOT_FEATURES) | {
    name for problem in PROBLEMS.values() for name in (problem.decision, problem.default_decision)
}
"""Columns of logs that describe the decision itself, and are not features."""

# Odd multipliers of the generator splitmix64, which spread small differences over all bits.
_ODD = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionBatch:
    """The N decisions of one compilation in X contexts, as :class:`mlgokit.algorithms.learner.Experience` has them.

    Attributes:
        features: [N, F] raw features, or [N, C, F] with columns.
        mask: bool [N, C] the columns that may be chosen; ``None`` without columns.
        decisions: int64 [N] decisions, or float64 [N] unit numbers.
        defaults: [N] the heuristic's decisions, as in ``decisions``.
        log_probability: float64 [N] log-probability of each decision.
        sites: int64 [N] identity of each question across compilations of the module.
        context: int64 [N] position of each decision's context.
        context_names: [X] names of functions, or one empty name where the module is the context.
    """

    features: npt.NDArray[Any]
    mask: npt.NDArray[np.bool_] | None
    decisions: npt.NDArray[Any]
    defaults: npt.NDArray[Any]
    log_probability: Floats
    sites: Ints
    context: Ints
    context_names: tuple[str, ...]

    @property
    def context_ids(self) -> Ints:
        """int64 [X] identifiers of the contexts, equal for the same function in every compilation."""
        return np.array([function_id(name) if name else 0 for name in self.context_names], np.int64)


def feature_names(problem: Problem, columns: Iterable[str]) -> tuple[str, ...]:
    """List the columns of a log that are features, in order. The mask is not one of them."""
    return tuple(name for name in columns if name not in ABOUT_DECISIONS and name != problem.mask)


def feature_rows(problem: Problem, log: Log, features: Sequence[str]) -> npt.NDArray[Any]:
    """Stack features to [N, F], or to [N, C, F] for C candidates, with scalars repeated for every candidate.

    Raises:
        UsageError: the compiler does not send a feature.
    """
    _check_features(problem, features, log.columns)
    count = log.observation_count
    if problem.mask is None:
        return np.stack([log.columns[name].reshape(count) for name in features], axis=-1)
    columns = column_count(problem, log.header.features)
    shape = (count, columns)
    return np.stack([np.broadcast_to(log.columns[name].reshape(count, -1), shape) for name in features], axis=-1)


def _check_features(problem: Problem, features: Sequence[str], columns: Iterable[str]) -> None:
    """Raise a UsageError if a feature is not among the columns that the compiler sent."""
    known = set(columns)
    missing = [name for name in features if name not in known]
    if missing:
        raise UsageError(
            f"{problem.name}: expected a feature {missing[0]!r} from the compiler, found none; leave this feature "
            "out, or start from a policy and a vocabulary that were made for this compiler"
        )


def batch_of_flips(found: InlineDecisions, features: Sequence[str]) -> DecisionBatch:
    """Make a batch of the flips of a compilation, which are the inlining decisions whose features it kept.

    Raises:
        UsageError: the compiler does not send one of ``features``.
    """
    _check_features(INLINE_SIZE, features, found.names)
    count = len(found.rows)
    places = [found.names.index(name) for name in features]
    decisions = found.inlined[found.rows].astype(np.int64)
    return DecisionBatch(
        features=found.values[:, places] if count else np.zeros((0, len(places)), np.int64),
        mask=None,
        decisions=decisions,
        defaults=decisions if found.heuristic is None else found.heuristic[found.rows].astype(np.int64),
        log_probability=np.full(count, np.nan),
        sites=np.zeros(count, np.int64),
        context=np.zeros(count, np.int64),
        context_names=("",),
    )


def batch_of_log(problem: Problem, log: Log, features: Sequence[str], *, heuristic: bool) -> DecisionBatch:
    """Make a batch of all decisions in a log that a policy could have made.

    LLVM's heuristic may choose a column that the mask does not allow a policy; such decisions are left out.

    Args:
        problem: problem of the log.
        log: log of the compilation.
        features: names of the features of the batch.
        heuristic: whether LLVM's heuristic decided, whose priorities have a greater range than a policy's.
    """
    count = log.observation_count
    names: dict[str, int] = {}
    context = np.zeros(count, np.int64)
    for span in log.contexts:
        if span.stop > span.start:
            name = span.name if problem.context == "function" else ""
            context[span.start : span.stop] = names.setdefault(name, len(names))
    found = DecisionBatch(
        features=feature_rows(problem, log, features),
        mask=None if problem.mask is None else log.columns[problem.mask].reshape(count, -1) != 0,
        decisions=_decode_decisions(problem, log.columns[problem.decision], heuristic=heuristic),
        defaults=_decode_decisions(problem, log.columns[problem.default_decision], heuristic=True),
        log_probability=log.columns["log_probability"].reshape(count).astype(np.float64),
        sites=_identify_sites(log, context),
        context=context,
        context_names=tuple(names),
    )
    return found if found.mask is None else _drop_masked(found, found.mask)


def _decode_decisions(problem: Problem, column: npt.NDArray[Any], *, heuristic: bool) -> npt.NDArray[Any]:
    """Convert a column of decisions [N] to int64, or to the unit of a policy's output: priorities, logs of factors."""
    values = column.reshape(len(column))
    if problem.advice_kind is not AdviceKind.REAL:
        return values.astype(np.int64)
    if OutputKind.for_numbers(problem.name) is OutputKind.LOG2_FACTOR:
        return values.astype(np.float64)
    # A policy's priorities are from 0 to 2**31, the heuristic's to 2**32.
    return values.astype(np.float64) / (PRIORITIES_PER_UNIT * (1 + heuristic)) - UNIT_BOUND


def _drop_masked(found: DecisionBatch, mask: npt.NDArray[np.bool_]) -> DecisionBatch:
    """Drop the decisions for a candidate that the mask does not allow."""
    keep = mask[np.arange(len(mask)), found.decisions]
    return dataclasses.replace(
        found,
        features=found.features[keep],
        mask=mask[keep],
        decisions=found.decisions[keep],
        defaults=found.defaults[keep],
        log_probability=found.log_probability[keep],
        sites=found.sites[keep],
        context=found.context[keep],
    )


def _identify_sites(log: Log, context: Ints) -> Ints:
    """Identify each decision by the plugin's key; without one, by a hash of its functions and a number among equals."""
    if "site" in log.columns:
        return log.columns["site"].reshape(-1).astype(np.int64)
    count = len(context)
    if "caller_id" in log.columns:
        parts = [log.columns[name].reshape(count).astype(np.int64) for name in ("caller_id", "callee_id")]
    else:
        ids = np.array([function_id(span.name) for span in log.contexts for _ in range(span.start, span.stop)])
        parts = [ids.astype(np.int64), np.zeros(count, np.int64)]
    hashed = np.zeros(count, np.uint64)
    for part, odd in zip(parts, _ODD[:2], strict=True):
        hashed = (hashed ^ part.view(np.uint64)) * odd
        hashed ^= hashed >> np.uint64(29)
    order = np.argsort(hashed, kind="stable")
    first = np.flatnonzero(np.append(True, hashed[order][1:] != hashed[order][:-1]))[:count]
    number = np.empty(count, np.uint64)
    number[order] = np.arange(count) - np.repeat(first, np.diff(np.append(first, count)))
    return (hashed + number * _ODD[2]).view(np.int64)


def compute_greedy_decisions(
    problem: Problem, actor: Actor, features: Sequence[str], found: DecisionBatch
) -> npt.NDArray[Any]:
    """Compute the decisions of ``actor`` for the same observations without exploration.

    For a rule other than the heuristic, these are the decisions that were taken.

    Args:
        problem: problem that is decided.
        actor: policy or rule.
        features: names of the features in ``found.features``.
        found: decisions with their features.
    """
    if not isinstance(actor, Policy):
        return found.defaults if actor == DEFAULT_RULE else found.decisions
    places = [list(features).index(name) for name in actor.features]
    match problem.advice_kind:
        case AdviceKind.BINARY:
            heuristic = np.asarray(found.defaults) != 0
            return (actor.preferences(found.features[..., places], heuristic) > 0).astype(np.int64)
        case AdviceKind.MASKED_CHOICE:
            logits = actor.column_logits(found.features[..., places])
            legal = np.ones(logits.shape, bool) if found.mask is None else found.mask
            return np.where(legal, logits, -np.inf).argmax(axis=1).astype(np.int64)
        case AdviceKind.REAL:
            return actor.units(found.features[..., places])
