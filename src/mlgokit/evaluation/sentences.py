"""Results in words and numbers for people, the same in the terminal and on the page.

A change is after / before less 1, so negative is smaller.
"""

import math

from mlgokit.evaluation.records import Evaluation, ProjectComparison
from mlgokit.pages.model import percent, relative_change

LANGUAGES = {"c++": "C++", "c": "C"}
MEASURES = {
    "objects": "Objects",
    "link_aware": "Objects, link-aware",
    "text": "Linked .text",
    "image": "Linked image",
}
TITLES = {**MEASURES, "cost": "Cost of register allocation"}
# Below this many projects the bootstrap interval is known to be too narrow.
FEW_PROJECTS = 8


def is_linked(project: ProjectComparison) -> bool:
    """Whether the project counts in the summary: something was compiled, and all images were linked."""
    return (project.modules > 0 or bool(project.images)) and not project.link_failure


def headline(evaluation: Evaluation) -> str:
    """The result in one sentence: linked image of the held-out C++ projects."""
    change = evaluation.summary.get("c++", {}).get("image")
    if change is None:
        return "No held-out C++ project could be built and linked, so there is no result for C++."
    projects = [project for project in evaluation.projects if project.language == "c++"]
    linked = [project for project in projects if is_linked(project)]
    smaller = sum(project.after.image < project.before.image for project in linked)
    size = percent(abs(change.mean)).lstrip("+")
    outcome = "the same size as" if size == "0.00 %" else f"{size} {'smaller' if change.mean < 0 else 'larger'} than"
    if change.projects > 1:
        certainty = f"95 % interval {percent(change.low)} to {percent(change.high)}"
        if change.low <= 0 <= change.high:
            certainty += ", which includes no change"
    else:
        certainty = "a single project, so without an interval"
    unlinked = f"; {len(projects) - len(linked)} could not be linked" if len(linked) < len(projects) else ""
    return (
        f"Linked image of the held-out C++ projects: {outcome} plain -Oz ({certainty}), "
        f"{smaller} of {len(linked)} projects smaller{unlinked}."
    )


def control_sentence(control: Evaluation) -> str:
    """How far the plugin alone, echoing the heuristic, is from plain ``-Oz``."""
    compared = [project for project in control.projects if project.modules]
    different = [project.project for project in compared if project.before != project.after]
    if not different:
        return f"The heuristic echoed through the plugin gives the same sizes in all {len(compared)} projects."
    objects = relative_change(
        sum(project.before.objects for project in compared), sum(project.after.objects for project in compared)
    )
    return (
        f"The heuristic echoed through the plugin gives the same sizes but in {len(different)} of {len(compared)} "
        f"projects ({', '.join(different)}); objects {percent(objects)} over all."
    )


def compile_time_ratio(evaluation: Evaluation) -> float:
    """Processor time of all compilations under the policy over that of the plain ones; NaN if unknown."""
    before = sum(project.user_seconds_before for project in evaluation.projects)
    return sum(project.user_seconds_after for project in evaluation.projects) / before if before else math.nan
