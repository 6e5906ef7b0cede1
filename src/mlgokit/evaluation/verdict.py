"""The verdict whether to ship the candidate of an evaluation, and its rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mlgokit.builds.images import LINKED
from mlgokit.errors import UsageError
from mlgokit.evaluation.records import COST, TITLES, Change, Evaluation, ProjectComparison, Verdict
from mlgokit.pages.model import percent, relative_change
from mlgokit.statistics import FEW_PROJECTS

Measure = Literal["auto", "image", "text", "objects", "link_aware", "cost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRules:
    """Limits by which the verdict is to ship the candidate, or not."""

    measure: Measure = "auto"
    """Measure for the verdict: linked image, its code, objects, link-aware score, or register-allocation cost. By
    default the image, or the cost if the candidate has only register-allocation policies."""
    worst_project: float = 0.3
    """Maximum growth of any project, in per cent."""
    upper_end: float = 0.0
    """Change in per cent below which the upper end of the interval over projects must lie; with a single project, its
    change."""
    new_failures: int = 0
    """Maximum number of compilations and links that fail with the candidate alone."""

    def check(self) -> None:
        """Check the ranges of the limits.

        Raises:
            UsageError: a limit is out of range.
        """
        for name, value in (("worst-project", self.worst_project), ("upper-end", self.upper_end)):
            if not -100 <= value < float("inf"):
                raise UsageError(f"--rules.{name}: expected a percentage of at least -100, found {value}; correct it")
        if self.new_failures < 0:
            raise UsageError(f"--rules.new-failures: expected 0 or more, found {self.new_failures}; correct it")


def choose_measure(rules: VerdictRules, *, allocates_only: bool) -> str:
    """Resolve the measure ``auto``: cost if the candidate has policies for register allocation only, else image."""
    if rules.measure != "auto":
        return rules.measure
    return COST if allocates_only else "image"


def change_of(project: ProjectComparison, measure: str) -> float | None:
    """Compute a project's relative change by a measure; ``None`` if the project was not measured by it."""
    if measure == COST:
        return None if project.costs is None or not project.costs.functions else project.costs.change
    if not project.is_linked:
        return None
    before, after = getattr(project.before, measure), getattr(project.after, measure)
    return relative_change(before, after) if before and after else None


def list_new_failures(projects: Sequence[ProjectComparison]) -> list[str]:
    """List the modules and images that failed with the candidate alone, with reasons."""
    found: list[str] = []
    for project in projects:
        found += [
            f"{row.module}: {row.after.reason}"
            for row in project.module_rows
            if row.after.reason and not row.before.reason
        ]
        found += [
            f"{image.image}: {image.after.reason or image.after.status}"
            for image in project.images
            if image.before.status == LINKED != image.after.status
        ]
    return found


def judge(evaluation: Evaluation, rules: VerdictRules, measure: str) -> Verdict:
    """Apply the rules to an evaluation with its intervals, by a measure of :func:`choose_measure`."""
    title = TITLES[measure]
    changes = {
        project.project: change
        for project in evaluation.projects
        if (change := change_of(project, measure)) is not None
    }
    failed = list_new_failures(evaluation.projects)
    reasons: list[str] = []
    if len(failed) > rules.new_failures:
        reasons.append(f"{len(failed)} compilations or links fail with {evaluation.after.label} alone: {failed[0]}.")
    reasons += [f"{one.project} did not build: {one.link_failure}." for one in evaluation.projects if _is_lost(one)]
    overall = evaluation.overall.get(measure)
    if not changes or overall is None:
        costs = [one.costs for one in evaluation.projects if measure == COST and one.costs is not None]
        unread = next((f" ({one.unread})" for one in costs if one.unread), "")
        reasons.append(f"No project could be compared by {title}{unread}.")
        return Verdict(ship=False, measure=measure, sentence=_sentence(reasons, ""), reasons=tuple(reasons))
    worst = sorted(
        ((change, name) for name, change in changes.items() if 100 * change > rules.worst_project), reverse=True
    )
    if worst:
        names = ", ".join(f"{name} {percent(change)}" for change, name in worst[:3])
        more = f" and {len(worst) - 3} more" if len(worst) > 3 else ""
        reasons.append(f"{title} grows by more than {rules.worst_project:g} % in {names}{more}.")
    if 100 * overall.high >= rules.upper_end:
        end = "the change" if overall.projects == 1 else "the interval's upper end"
        reasons.append(f"{end.capitalize()} is {percent(overall.high)}, which is not below {rules.upper_end:g} %.")
    return Verdict(
        ship=not reasons, measure=measure, sentence=_sentence(reasons, _figures(overall, title, evaluation.level)),
        reasons=tuple(reasons),
    )  # fmt: skip


def _is_lost(project: ProjectComparison) -> bool:
    """Whether the candidate's build of a project failed as a whole, so that no module or image has the reason."""
    return project.link_failure.startswith("after: ") and not list_new_failures([project])


def _sentence(reasons: Sequence[str], figures: str) -> str:
    answer = "Ship" if not reasons else "Do not ship"
    return f"{answer}: {' '.join([*([figures] if figures else []), *reasons])}"


def _figures(change: Change, title: str, level: float) -> str:
    if change.projects == 1:
        return f"{title} {percent(change.mean)} (one project, so without an interval)."
    few = f", too narrow with fewer than {FEW_PROJECTS}" if change.projects < FEW_PROJECTS else ""
    return (
        f"{title} {percent(change.mean)}, {100 * level:g} % interval {percent(change.low)} to {percent(change.high)} "
        f"over {change.projects} projects{few}."
    )
