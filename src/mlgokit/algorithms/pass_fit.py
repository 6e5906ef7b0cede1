"""A policy of passes from labels: which passes are worth leaving out, and in which functions.

What a pass saves where it is left out is fitted as effects are (``effect_fit.py``), with one label for each question. A
pass remains among those that the policy decides about if leaving it out where members foretell a saving did save, on
projects that these members were not fitted on, whichever of the projects is not counted.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.config import PassTrialsConfig
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.algorithms.gate import pays, sum_and_error
from mlgokit.errors import UsageError
from mlgokit.policy.network import Gate, Policy
from mlgokit.problems import DECIDED_PASSES, PASS_SELECTION

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_MINSIZE = "is_minsize"
_CHUNK = 4096
"""Questions that numpy answers at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassLabels:
    """What leaving out one pass did, question by question.

    Attributes:
        values: int64 [N, F] features of :data:`~mlgokit.problems.PASS_SELECTION`.
        change: float64 [N] bytes of the function, without the pass minus with it.
        slowdown: float64 [N] by which part more is executed, by LLVM's estimate; negative for less.
        size: float64 [N] bytes of the function with all passes.
        project: int64 [N] index into ``projects``.
        projects: project names.
    """

    values: Ints
    change: Floats
    slowdown: Floats
    size: Floats
    project: Ints
    projects: tuple[str, ...]

    @property
    def passes(self) -> Ints:
        """[N] the pass that asks, as a place in :data:`~mlgokit.problems.DECIDED_PASSES`."""
        return self.values[:, -len(DECIDED_PASSES) :].argmax(axis=1)

    def take(self, chosen: npt.NDArray[np.bool_]) -> "PassLabels":
        """The ``chosen`` [N] alone."""
        parts = {name: getattr(self, name)[chosen] for name in ("values", "change", "slowdown", "size", "project")}
        return PassLabels(**parts, projects=self.projects)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassEvidence:
    """What leaving one pass out did, where members that had not seen the project foretold a saving.

    Attributes:
        name: of the pass.
        departures: how often that was.
        saved_bytes: what it saved, all together; negative if it cost.
        error_bytes: standard error of that.
        possible_bytes: what it saves wherever it saves at all.
        chosen: whether the policy decides about it.
    """

    name: str
    departures: int
    saved_bytes: float
    error_bytes: float
    possible_bytes: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassFit:
    """A policy, and what it rests on.

    Attributes:
        policy: it.
        evidence: by pass.
        correlation: of foretold and measured changes on projects that members were not fitted on.
        fitted_on: bool [K, P] which projects each member was fitted on.
    """

    policy: Policy
    evidence: tuple[PassEvidence, ...]
    correlation: float
    fitted_on: npt.NDArray[np.bool_]

    def without(self, project: int) -> Policy | None:
        """The members that were not fitted on a project; nothing if all were."""
        return self.policy.of_members(~self.fitted_on[:, project])


def fit_passes(labels: PassLabels, settings: PassTrialsConfig, *, features: Sequence[str], seed: int) -> PassFit:
    """Fit an ensemble twice: to all passes, and to those that pay by the first.

    Args:
        labels: questions about functions that are all different.
        settings: hyper-parameters.
        features: those that the policy may see beside the pass that asks.
        seed: of split, weights and order.

    Raises:
        UsageError: there are no labels, or no pass pays.
    """
    kept = [place for place, name in enumerate(DECIDED_PASSES) if name in settings.kept]
    labels = labels.take(~np.isin(labels.passes, kept))
    if not len(labels.change):
        raise UsageError("passes: expected at least one trial that succeeded, found none; collect from more modules")
    asking = labels.passes
    departs = _fit(labels, settings, (*features, *map(_feature_of, DECIDED_PASSES)), seed).departs
    evidence = tuple(
        _evidence(name, labels.take(asking == place), departs[asking == place])
        for place, name in enumerate(DECIDED_PASSES)
    )
    chosen = [place for place, one in enumerate(evidence) if one.chosen]
    if not chosen:
        raise UsageError(
            f"passes: expected that leaving one of {', '.join(DECIDED_PASSES)} out pays on projects that do not teach, "
            f"found none that does in {len(labels.change)} trials; collect from more projects"
        )
    names = (*features, *(_feature_of(DECIDED_PASSES[place]) for place in chosen))
    last = _fit(labels.take(np.isin(asking, chosen)), settings, names, seed)
    return PassFit(policy=last.policy, evidence=evidence, correlation=last.correlation, fitted_on=last.fitted_on)


def _feature_of(name: str) -> str:
    return f"pass:{name}"


def _evidence(name: str, labels: PassLabels, departs: npt.NDArray[np.bool_]) -> PassEvidence:
    saved = -labels.change[departs]
    total, error = sum_and_error(saved)
    return PassEvidence(
        name=name,
        departures=int(departs.sum()),
        saved_bytes=total,
        error_bytes=error,
        possible_bytes=float(-np.minimum(labels.change, 0).sum()),
        chosen=len(saved) > 0 and pays(saved, labels.project[departs]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fitted:
    """An ensemble, and where members that had not seen the project would leave the pass out, [N]."""

    policy: Policy
    departs: npt.NDArray[np.bool_]
    correlation: float
    fitted_on: npt.NDArray[np.bool_]


def _fit(labels: PassLabels, settings: PassTrialsConfig, names: tuple[str, ...], seed: int) -> _Fitted:
    from mlgokit.algorithms.effect_fit import fit_effects

    columns = [PASS_SELECTION.feature_names.index(name) for name in names]
    values = labels.values[:, columns]
    slower = np.clip(labels.slowdown - settings.slowdown_free, 0, 1) * labels.size
    present, project = np.unique(labels.project, return_inverse=True)
    numbers: list[int] = present.tolist()
    effects = MeasuredEffects(
        names=names,
        values=values,
        sign=np.ones(len(values), np.float32),
        component=np.arange(len(values)),
        change=(labels.change + settings.slowdown_price * slower).astype(np.float32),
        project=project,
        projects=tuple(labels.projects[number] for number in numbers),
        away=np.ones(len(values), bool),
    )
    policy, report = fit_effects(
        effects, settings.fit, problem=PASS_SELECTION.name, rng=np.random.default_rng([seed, len(names)])
    )
    policy = dataclasses.replace(policy, gate=Gate(feature=_MINSIZE, margins=(math.inf, settings.margin)))
    fitted_on = np.ones((policy.members, len(labels.projects)), bool)
    fitted_on[:, present] = report.fitted_on
    average, deviation = _unseen(policy, values, ~fitted_on[:, labels.project])
    departs = -average > settings.margin + settings.fit.doubt * deviation
    return _Fitted(policy=policy, departs=departs, correlation=report.correlation, fitted_on=fitted_on)


def _unseen(policy: Policy, values: Ints, judges: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """[N] average and standard deviation of the answers of those members that judge [K, N]; 0 where none does."""
    average, deviation = np.zeros(len(values)), np.zeros(len(values))
    for begin in range(0, len(values), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        answers, mine = policy.answers(values[part]), judges[:, part]
        count = np.maximum(mine.sum(axis=0), 1)
        average[part] = (answers * mine).sum(axis=0) / count
        square = (answers * answers * mine).sum(axis=0) / count
        deviation[part] = np.sqrt(np.maximum(square - average[part] ** 2, 0))
    return average, deviation
