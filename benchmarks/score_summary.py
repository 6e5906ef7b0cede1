"""The tables of the benchmark ``score_tracks_link``: how scores of objects go with the linked image."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from results import Cell, Result, Table

from mlgokit.errors import CorpusError
from mlgokit.evaluation.statistics import correlation

MEASURES = ("object text", "link-aware", "exact account")
"""Scores of objects that are held against the image; the last counts every COMDAT signature once."""
FEWEST_POLICIES = 30
NEAR = 0.10
"""Largest absolute change of the image for which a policy is near the baseline."""
NO_CHANGE = 0.0005
"""Smaller absolute changes of the image have no sign."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One project under one contender: relative changes against plain ``-Oz``; -0.02 is 2 % smaller.

    Attributes:
        project: its name.
        kind: of the contender.
        name: of the contender.
        scores: change of each of :data:`MEASURES`.
        image: change of the linked image.
    """

    project: str
    kind: str
    name: str
    scores: tuple[float, ...]
    image: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A project that could not be built under a contender, and why."""

    project: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How one measure goes with the image over points.

    Attributes:
        points: their number.
        pearson: correlation of the changes; ``None`` of fewer than three points or without variation.
        spearman: the same of their ranks.
        same_sign: of the points whose image changes, the part where the measure changes in the same direction.
        signed: number of those points.
        error: mean absolute difference of the two changes.
    """

    points: int
    pearson: float | None
    spearman: float | None
    same_sign: float | None
    signed: int
    error: float


def agreement(score: Floats, image: Floats) -> Agreement:
    """Compare changes of a score with those of the image.

    Example:
        >>> found = agreement(np.array([-0.02, 0.01, 0.03, 0.0]), np.array([0.01, 0.02, 0.03, 0.0001]))
        >>> found.signed, round(found.same_sign, 3), round(found.error, 6)
        (3, 0.667, 0.010025)
    """
    varies = len(score) >= 3 and np.ptp(score) > 0 and np.ptp(image) > 0
    found = correlation(score, image) if varies else None
    moved = np.abs(image) >= NO_CHANGE
    return Agreement(
        points=len(score),
        pearson=found.pearson if found else None,
        spearman=found.spearman if found else None,
        same_sign=float((np.sign(score[moved]) == np.sign(image[moved])).mean()) if moved.any() else None,
        signed=int(moved.sum()),
        error=float(np.abs(score - image).mean()) if len(score) else 0.0,
    )


def summarise(
    points: Sequence[Point],
    failures: Sequence[Failure],
    *,
    seed: int,
    versions: dict[str, str],
    inputs: dict[str, str],
) -> Result:
    """Correlations by project, near the baseline first, and the points themselves.

    Raises:
        CorpusError: there is no point.
    """
    if not points:
        reason = failures[0].reason if failures else "no policy"
        raise CorpusError(f"score tracks link: expected builds that link, found none ({reason}); check the corpus")
    projects = list(dict.fromkeys(point.project for point in points))
    tables: list[Table] = []
    least: dict[str, Agreement] = {}
    for title, bound in ((f"Policies near the baseline: image changes by less than {NEAR:.0%}", NEAR), ("All", np.inf)):
        rows: list[tuple[Cell, ...]] = []
        for project in [*projects, "all together"]:
            chosen = [
                point for point in points if project in {point.project, "all together"} and abs(point.image) < bound
            ]
            image = np.array([point.image for point in chosen])
            for index, measure_name in enumerate(MEASURES):
                found = agreement(np.array([point.scores[index] for point in chosen]), image)
                rows.append(
                    (
                        project, measure_name, found.points, found.pearson, found.spearman,
                        None if found.same_sign is None else 100 * found.same_sign, found.signed, 100 * found.error,
                    )
                )  # fmt: skip
                if bound == NEAR and project == "all together":
                    least[measure_name] = found
        tables.append(
            Table(
                title=title,
                columns=(
                    "project", "score of the objects", "policies", "Pearson", "Spearman", "same sign (%)",
                    "policies with a sign", "mean difference (points)",
                ),
                rows=tuple(rows),
                note=_NOTE if bound == NEAR else "",
            )
        )  # fmt: skip
    tables.append(
        Table(
            title="Points",
            columns=("project", "kind", "policy", *(f"{name} (%)" for name in MEASURES), "image (%)"),
            rows=tuple(
                (point.project, point.kind, point.name, *(100 * score for score in point.scores), 100 * point.image)
                for point in sorted(points, key=lambda point: (point.project, point.image))
            ),
        )
    )
    if failures:
        failed = tuple((failure.project, failure.name, failure.reason) for failure in failures)
        tables.append(Table(title="Builds left out", columns=("project", "policy", "reason"), rows=failed))
    fewest = min(sum(point.project == project for point in points) for project in projects)
    text, aware = least[MEASURES[0]], least[MEASURES[1]]
    passed = (
        len(projects) >= 3
        and fewest >= FEWEST_POLICIES
        and (aware.pearson or 0) > (text.pearson or 0)
        and (aware.same_sign or 0) > (text.same_sign or 0)
    )
    return Result(
        benchmark="score_tracks_link",
        question="Does the link-aware score of objects track the linked image, and does object text?",
        answer=(
            f"{len(projects)} projects, {fewest} policies or more each; near the baseline the link-aware score has "
            f"Pearson {_number(aware.pearson)} and the image's sign in {_percent(aware.same_sign)} of {aware.signed} "
            f"builds, object text {_number(text.pearson)} and {_percent(text.same_sign)}"
        ),
        bar=(
            f"at least 3 projects and {FEWEST_POLICIES} policies; near the baseline the link-aware score beats object "
            "text in correlation and in sign"
        ),
        passed=passed,
        seed=seed,
        versions=versions,
        inputs=inputs,
        tables=tuple(tables),
    )


_NOTE = (
    "Each policy is one point per project: the relative change of the sum over objects, and of the linked, "
    "garbage-collected image, against plain -Oz. Policies far away, like never inlining, make any score correlate, so "
    f"these are the points that matter. The sign is counted where the image changes by at least {NO_CHANGE:.2%}. The "
    "exact account counts each COMDAT signature once, as the first object has it; it needs all objects of a project."
)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.0%}"
