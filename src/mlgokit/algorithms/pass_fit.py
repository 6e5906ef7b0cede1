"""A policy about optional passes, fitted to labels: which passes to leave out, and of which functions.

The change of size without a pass is fitted by effect regression (``effect_fit.py``), with one label for each pass that
was left out of a function. The policy decides about a pass if leaving it out where members predict a saving did save on
projects that these members were not fitted on, whichever project is left out of the sum.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.config import PassTrialsConfig
from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.algorithms.gate import pays
from mlgokit.errors import UsageError
from mlgokit.policy.network import Gate, Policy
from mlgokit.problems import DECIDED_PASSES, PASS_SELECTION

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_MINSIZE = "is_minsize"
_CHUNK = 4096
"""Labels for which the policy is evaluated at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassLabels:
    """How leaving out one pass changes a function; N labels, each for one pass of one function.

    Attributes:
        values: int64 [N, F] features of :data:`~mlgokit.problems.PASS_SELECTION`.
        change: float64 [N] bytes of the function, without the pass minus with it.
        slowdown: float64 [N] added share of executed instructions, by LLVM's estimate; negative for fewer.
        size: float64 [N] bytes of the function with all passes.
        project: int64 [N] the function's project, as an index into ``projects``.
        projects: names of the projects.
    """

    values: Ints
    change: Floats
    slowdown: Floats
    size: Floats
    project: Ints
    projects: tuple[str, ...]

    @property
    def passes(self) -> Ints:
        """[N] the pass that was left out, as a position in :data:`~mlgokit.problems.DECIDED_PASSES`."""
        return self.values[:, -len(DECIDED_PASSES) :].argmax(axis=1)

    def select(self, chosen: npt.NDArray[np.bool_]) -> "PassLabels":
        """Keep the labels where ``chosen`` [N] is true."""
        parts = {name: getattr(self, name)[chosen] for name in ("values", "change", "slowdown", "size", "project")}
        return PassLabels(**parts, projects=self.projects)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassEvidence:
    """What leaving one pass out did where members that were not fitted on the project predicted a saving.

    Attributes:
        name: name of the pass.
        saved_bytes: bytes that leaving the pass out saved in functions where such members predicted a saving; negative
            if it cost.
        possible_bytes: bytes saved in all functions where leaving the pass out saves, predicted or not.
        chosen: whether the policy decides about the pass.
    """

    name: str
    saved_bytes: float
    possible_bytes: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassFit:
    """A fitted policy about passes, and its evidence; K members, P projects.

    Attributes:
        policy: the policy.
        evidence: evidence for each pass.
        correlation: correlation of predicted and measured changes on projects that members were not fitted on.
        fitted_on: bool [K, P] which projects each member was fitted on.
    """

    policy: Policy
    evidence: tuple[PassEvidence, ...]
    correlation: float
    fitted_on: npt.NDArray[np.bool_]


def fit_passes(labels: PassLabels, settings: PassTrialsConfig, *, features: Sequence[str], seed: int) -> PassFit:
    """Fit an ensemble twice: to all passes, then to those whose omission pays by the first fit.

    Args:
        labels: labels of passes that were left out of functions.
        settings: hyperparameters.
        features: names of the features that the policy sees beside the pass.
        seed: seed of the split into projects, of the initial weights and of the order of batches.

    Raises:
        UsageError: there are no labels, or there is no pass whose omission pays.
    """
    kept = [place for place, name in enumerate(DECIDED_PASSES) if name in settings.kept]
    labels = labels.select(~np.isin(labels.passes, kept))
    if not len(labels.change):
        raise UsageError(
            "pass selection: expected at least one trial of a pass that succeeded, found none; train on more modules"
        )
    omitted = labels.passes
    departs = _fit(labels, settings, (*features, *map(_feature_of, DECIDED_PASSES)), seed).departs
    evidence = tuple(
        _evidence(name, labels.select(omitted == place), departs[omitted == place])
        for place, name in enumerate(DECIDED_PASSES)
    )
    chosen = [place for place, one in enumerate(evidence) if one.chosen]
    if not chosen:
        raise UsageError(
            f"pass selection: expected that skipping one of the passes {', '.join(DECIDED_PASSES)} saves bytes in "
            f"projects that were not fitted on, found none that does in {len(labels.change)} trials; train on more "
            "projects"
        )
    names = (*features, *(_feature_of(DECIDED_PASSES[place]) for place in chosen))
    last = _fit(labels.select(np.isin(omitted, chosen)), settings, names, seed)
    return PassFit(policy=last.policy, evidence=evidence, correlation=last.correlation, fitted_on=last.fitted_on)


def _feature_of(name: str) -> str:
    """Name the feature that is 1 where the policy is asked about this pass."""
    return f"pass:{name}"


def _evidence(name: str, labels: PassLabels, departs: npt.NDArray[np.bool_]) -> PassEvidence:
    """Sum what leaving out the pass ``name`` saved where the first fit ``departs`` [N], that is, would leave it out."""
    saved = -labels.change[departs]
    return PassEvidence(
        name=name,
        saved_bytes=float(saved.sum()),
        possible_bytes=float(-np.minimum(labels.change, 0).sum()),
        chosen=len(saved) > 0 and pays(saved, labels.project[departs]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fitted:
    """An ensemble, and the labels [N] where members that were not fitted on the project would leave the pass out."""

    policy: Policy
    departs: npt.NDArray[np.bool_]
    correlation: float
    fitted_on: npt.NDArray[np.bool_]


def _fit(labels: PassLabels, settings: PassTrialsConfig, names: tuple[str, ...], seed: int) -> _Fitted:
    """Fit an ensemble to the features ``names``, and decide each label by members not fitted on its project."""
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
        departs=np.ones(len(values), bool),
    )
    policy, report = fit_effects(
        effects, settings.fit, problem=PASS_SELECTION.name, rng=np.random.default_rng([seed, len(names)])
    )
    policy = dataclasses.replace(policy, gate=Gate(feature=_MINSIZE, margins=(math.inf, settings.margin)))
    fitted_on = np.ones((policy.members, len(labels.projects)), bool)
    fitted_on[:, present] = report.fitted_on
    average, deviation = _predict_unseen(policy, values, ~fitted_on[:, labels.project])
    departs = -average > settings.margin + settings.fit.doubt * deviation
    return _Fitted(policy=policy, departs=departs, correlation=report.correlation, fitted_on=fitted_on)


def _predict_unseen(policy: Policy, values: Ints, validating: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Compute mean and standard deviation [N] of the answers of the members that validate [K, N]; 0 where none does."""
    average, deviation = np.zeros(len(values)), np.zeros(len(values))
    for begin in range(0, len(values), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        answers, mine = policy.answers(values[part]), validating[:, part]
        count = np.maximum(mine.sum(axis=0), 1)
        average[part] = (answers * mine).sum(axis=0) / count
        square = (answers * answers * mine).sum(axis=0) / count
        deviation[part] = np.sqrt(np.maximum(square - average[part] ** 2, 0))
    return average, deviation
