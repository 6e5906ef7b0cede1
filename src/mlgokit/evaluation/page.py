"""An evaluation as a page: the verdict, what each project adds, modules and functions worst first, what failed."""

import math
from collections.abc import Iterable, Mapping, Sequence

from mlgokit.evaluation.explained_part import tree_parts
from mlgokit.evaluation.functions import differing_functions
from mlgokit.evaluation.module_tables import MOST_FUNCTIONS, NONE, function_table, module_parts
from mlgokit.evaluation.records import (
    COST,
    LINKED,
    MEASURES,
    BuiltImage,
    Evaluation,
    ImageComparison,
    ProjectComparison,
    SideRecord,
)
from mlgokit.evaluation.sentences import FEW_PROJECTS, LANGUAGES, TITLES, compile_time_ratio, is_linked
from mlgokit.evaluation.verdict import change_of
from mlgokit.pages.model import MOST_BARS, Bar, Bars, Page, Part, Table, percent, relative_change, waterfall


def evaluation_page(evaluation: Evaluation, names: Mapping[str, str] | None = None, extra: Sequence[Part] = ()) -> Page:
    """The page of an evaluation.

    Args:
        evaluation: what was found.
        names: those that people read, by symbol, see :func:`symbols_of`.
        extra: parts that come before the functions, such as which features decide.
    """
    names = names or {}
    verdict = evaluation.verdict
    failed = _failures(_worst_projects(evaluation))
    parts = [*comparison_parts(evaluation, names, extra), failed, _costs(_worst_projects(evaluation))]
    return Page(
        title=f"{evaluation.after.label} against {evaluation.before.label}",
        answer="" if verdict is None else "Ship" if verdict.ship else "Do not ship",
        good=verdict is not None and verdict.ship,
        headline=_headline(evaluation, _measure(evaluation)),
        sentences=tuple(_sentences(evaluation, failed)),
        parts=tuple(part for part in parts if part is not None and not (isinstance(part, Table) and not part.rows)),
        command=evaluation.command,
        facts=tuple(_facts(evaluation)),
        names=names,
    )


def comparison_parts(
    evaluation: Evaluation, names: Mapping[str, str] | None = None, extra: Sequence[Part] = ()
) -> list[Part | None]:
    """Summary, projects, images, modules, trees and functions, as in :func:`evaluation_page`; some may be missing."""
    measure, projects = _measure(evaluation), _worst_projects(evaluation)
    rows = [(project.project, row) for project in projects for row in project.module_rows]
    return [
        _summary(evaluation),
        _waterfall(projects, measure),
        _projects(projects, measure),
        _images(projects),
        *module_parts(rows),
        *tree_parts(evaluation.trees, evaluation.no_trees, names or {}),
        *extra,
        function_table(projects, by_cost=measure == COST),
    ]


def symbols_of(evaluation: Evaluation) -> set[str]:
    """Names of functions that the page has, as objects have them."""
    sites = [line.site for tree in evaluation.trees for line in tree.lines]
    functions = differing_functions(evaluation.projects, by_cost=_measure(evaluation) == COST)
    shown = {one.function for one in (*functions[:MOST_FUNCTIONS], *functions[-MOST_FUNCTIONS:])}
    return (
        shown
        | {tree.function for tree in evaluation.trees}
        | {name for one in sites for name in (one.caller, one.callee)}
    )


def _measure(evaluation: Evaluation) -> str:
    """What was judged."""
    return "image" if evaluation.verdict is None else evaluation.verdict.measure


def _worst_projects(evaluation: Evaluation) -> list[ProjectComparison]:
    measure = _measure(evaluation)
    return sorted(evaluation.projects, key=lambda project: _worst_first(change_of(project, measure)))


def _worst_first(change: float | None) -> float:
    """A key to sort by: what could not be compared, then the largest growth."""
    return -math.inf if change is None or math.isnan(change) else -change


def _headline(evaluation: Evaluation, measure: str) -> str:
    if evaluation.verdict is not None:
        return evaluation.verdict.sentence.removeprefix("Do not ship: ").removeprefix("Ship: ")
    change = evaluation.overall.get(measure)
    if change is None:
        return f"No project could be compared by {TITLES[measure]}."
    return f"{TITLES[measure]} {percent(change.mean)} over {change.projects} projects."


def _sentences(evaluation: Evaluation, failed: Table) -> Iterable[str]:
    modules = sum(len(project.module_rows) or project.modules for project in evaluation.projects)
    differing = sum(len(row.differing) for project in evaluation.projects for row in project.module_rows)
    yield (
        f"{len(evaluation.projects):,} projects, {modules:,} modules, {differing:,} functions that differ, "
        f"{len(failed.rows):,} failures. A change is after / before less 1, so negative is smaller."
    )
    ratio = compile_time_ratio(evaluation)
    if math.isfinite(ratio):
        yield f"Compiling took {ratio:.3f} times the processor time of {evaluation.before.label}; it was timed once."


def _summary(evaluation: Evaluation) -> Table:
    groups = evaluation.summary if len(evaluation.summary) == 1 else {"all": evaluation.overall, **evaluation.summary}
    rows = [
        (
            LANGUAGES.get(language, language),
            title,
            percent(change.mean),
            f"{percent(change.low)} to {percent(change.high)}" if change.projects > 1 else "none",
            f"{change.projects:,}",
        )
        for language, changes in groups.items()
        for measure, title in TITLES.items()
        if (change := changes.get(measure)) is not None
    ]
    few = any(change.projects < FEW_PROJECTS for changes in groups.values() for change in changes.values())
    return Table(
        title="Summary",
        columns=("language", "measure", "change", f"{100 * evaluation.level:g} % interval", "projects"),
        rows=tuple(rows),
        words=2,
        note="Geometric means over projects, intervals by bootstrap over projects."
        + (f" Intervals from fewer than {FEW_PROJECTS} projects are too narrow." if few else ""),
    )


def _waterfall(projects: Sequence[ProjectComparison], measure: str) -> Bars | None:
    """What each project adds to the bytes of all; costs of register allocation are ratios, which do not add up."""
    if measure == COST:
        changes = [
            (project.project, change) for project in projects if (change := change_of(project, COST)) is not None
        ]
        bars = [Bar(name=name, start=0, end=100 * change, text=percent(change)) for name, change in changes[:MOST_BARS]]
        note = "What its register allocation costs, executed, as a geometric mean over functions."
        return (
            Bars(title="Change by project", columns=("project", "change"), bars=tuple(bars), note=note)
            if bars
            else None
        )
    steps = [
        (project.project, getattr(project.after, measure) - getattr(project.before, measure), change)
        for project in projects
        if (change := change_of(project, measure)) is not None
    ]
    return waterfall("What each project adds", ("project", "bytes"), steps, f"Bytes of: {TITLES[measure]}")


def _projects(projects: Sequence[ProjectComparison], measure: str) -> Table:
    bytes_of = "image" if measure == COST else measure
    has_costs = any(project.costs is not None for project in projects)
    others = [name for name in MEASURES if name != bytes_of]
    rows: list[tuple[str, ...]] = []
    for project in projects:
        ratio = relative_change(project.user_seconds_before, project.user_seconds_after)
        cost = change_of(project, COST)
        rows.append(
            (
                project.project,
                LANGUAGES.get(project.language, project.language),
                *_sizes(project, bytes_of),
                *(_sizes(project, name)[2] for name in others),
                *((NONE if cost is None else percent(cost),) if has_costs else ()),
                f"{project.modules:,}",
                f"{project.larger_modules:,}",
                f"{len(project.failures) + bool(project.link_failure):,}",
                percent(ratio) if math.isfinite(ratio) else NONE,
            )
        )
    columns = ("project", "language", "before", "after", "change", *(TITLES[name] for name in others))
    costs = (TITLES[COST],) if has_costs else ()
    return Table(
        title="Projects, worst first",
        columns=(*columns, *costs, "modules", "that grew", "failures", "compile time"),
        rows=tuple(rows),
        words=2,
        note=f"Before and after are bytes of: {TITLES[bytes_of]}.",
    )


def _sizes(project: ProjectComparison, measure: str) -> tuple[str, str, str]:
    """Before, after and the change; linked sizes are missing where nothing was linked."""
    if measure in {"text", "image"} and not is_linked(project):
        return "not linked", "not linked", NONE
    before, after = getattr(project.before, measure), getattr(project.after, measure)
    if not before and not after:
        return NONE, NONE, NONE
    return f"{before:,.0f}", f"{after:,.0f}", percent(relative_change(before, after))


def _images(projects: Sequence[ProjectComparison]) -> Table:
    """Where projects have several images, or the link optimized."""
    images = [(project.project, image) for project in projects for image in project.images]
    if len(images) == len({name for name, _ in images}) and not any(image.after.lto for _, image in images):
        images = []
    images.sort(key=lambda pair: _worst_first(_image_change(pair[1])))
    rows = tuple(
        (
            image.image,
            name,
            _image_cell(image.before),
            _image_cell(image.after),
            NONE if (change := _image_change(image)) is None else percent(change),
            f"{len(image.differing):,} of {image.functions:,}",
            image.after.lto or NONE,
            "yes" if image.after.plugin else "no",
        )
        for name, image in images
    )
    columns = ("image", "project", "before", "after", "change", "functions that differ", "LTO", "plugin in the link")
    return Table(title="Images, worst first", columns=columns, rows=rows, words=2)


def _image_change(image: ImageComparison) -> float | None:
    both = image.before.status == image.after.status == LINKED
    return relative_change(image.before.image, image.after.image) if both else None


def _image_cell(image: BuiltImage) -> str:
    return f"{image.image:,}" if image.status == LINKED else image.status


def _failures(projects: Sequence[ProjectComparison]) -> Table:
    rows: list[tuple[str, ...]] = []
    for project in projects:
        if project.link_failure:
            rows.append((project.project, project.project, "link", project.link_failure))
        rows += [(one.module, project.project, f"compile, {one.build}", one.reason) for one in project.failures]
        rows += [
            (image.image, project.project, f"link, {side}", built.reason or built.status)
            for image in project.images
            for side, built in (("before", image.before), ("after", image.after))
            if built.status != LINKED and not project.link_failure
        ]
    return Table(
        title="Failures",
        columns=("what", "project", "step", "reason"),
        rows=tuple(rows),
        words=4,
        note="A module that fails on one side is left out of both, a project that cannot be linked is in no summary.",
    )


def _costs(projects: Sequence[ProjectComparison]) -> Table:
    kinds = _kinds(projects)
    rows: list[tuple[str, ...]] = []
    for project in projects:
        costs = project.costs
        if costs is not None and (costs.functions or not costs.unread):
            counts = (f"{costs.counts_before.get(kind, 0):,} -> {costs.counts_after.get(kind, 0):,}" for kind in kinds)
            numbers = (f"{costs.functions:,}", f"{costs.cheaper:,}", f"{costs.dearer:,}", *counts)
            rows.append((project.project, percent(costs.change), *numbers))
        if costs is not None and costs.unread:
            rows.append((project.project, costs.unread, *[NONE] * (3 + len(kinds))))
    return Table(
        title="Register allocation by project",
        columns=("project", "executed cost", "functions", "cheaper", "dearer", *kinds),
        rows=tuple(rows),
    )


def _kinds(projects: Sequence[ProjectComparison]) -> list[str]:
    found = {kind: None for project in projects if project.costs is not None for kind in project.costs.counts_before}
    return list(found)


def _facts(evaluation: Evaluation) -> Iterable[tuple[str, str]]:
    yield "mlgokit", evaluation.mlgokit_version or "unknown"
    yield from evaluation.toolchain.items()
    yield "baseline", evaluation.baseline or "unknown"
    yield "seed of the intervals", str(evaluation.seed)
    yield "source", evaluation.source or "unknown"
    yield "compilations", f"{evaluation.compilations:,}"
    yield from side_facts("before", evaluation.before)
    yield from side_facts("after", evaluation.after)


def side_facts(name: str, side: SideRecord) -> Iterable[tuple[str, str]]:
    """What a side was built with, by name."""
    yield name, side.label
    yield from ((f"{name}: policy for {problem}", policy) for problem, policy in side.policies.items())
    if side.plugin:
        yield f"{name}: plugin", f"{side.plugin} ({side.plugin_in})" if side.plugin_in else side.plugin
    if side.options:
        yield f"{name}: options", " ".join(side.options)
    if side.link_options:
        yield f"{name}: options of the link", " ".join(side.link_options)
    yield from ((f"{name}: sha256 of {path}", digest) for path, digest in side.digests.items())
