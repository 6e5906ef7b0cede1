"""Makes the pages of an evaluation and of the explanation of one module: verdict, projects, modules, functions."""

import math
from collections.abc import Iterable, Mapping, Sequence

from mlgokit.builds.images import LINKED, BuiltImage, FunctionBytes
from mlgokit.builds.variant import VariantRecord
from mlgokit.evaluation.explain import Explanation, differing_functions, largest_changes, list_call_tree
from mlgokit.evaluation.records import (
    BITCODE,
    COST,
    LANGUAGES,
    OK,
    TITLES,
    BuiltModule,
    Evaluation,
    ExplainedComponent,
    ExplainedFunction,
    ExplainedSite,
    FunctionTree,
    ImageComparison,
    ModuleComparison,
    ProjectComparison,
    TreeLine,
)
from mlgokit.evaluation.verdict import change_of
from mlgokit.pages.model import (
    MOST_BARS,
    Bar,
    Bars,
    Branch,
    Cell,
    Column,
    Compared,
    Page,
    Part,
    Row,
    Scatter,
    Table,
    Tree,
    Trees,
    before_after_cells,
    before_after_columns,
    change_columns,
    count_columns,
    drop_empty,
    number_columns,
    percent,
    relative_change,
    text_columns,
    waterfall,
)
from mlgokit.statistics import FEW_PROJECTS
from mlgokit.terminal import counted

MOST_FUNCTIONS = 1000
"""Maximum functions in the table that grew most, and as many that shrank most; the JSON has all."""
MOST_CALLS = 12
"""Maximum calls of a call tree that the terminal shows of an explanation."""
LOUDEST = 3
"""Maximum features of one decision that an explanation shows: those that speak most for it."""
_FEATURES = ("speaks for it", "here", "typically", "by")
_DECIDED = {True: "inlined", False: "not inlined", None: "not asked"}


# --- Evaluation ------------------------------------------------------------------------------------------------------


def evaluation_page(evaluation: Evaluation, names: Mapping[str, str] | None = None, extra: Sequence[Part] = ()) -> Page:
    """Make the page of an evaluation.

    Args:
        evaluation: evaluation to show.
        names: demangled names of functions by symbol, for all symbols of :func:`symbols_of`.
        extra: parts that are inserted before the functions, such as feature importance.
    """
    names = names or {}
    verdict = evaluation.verdict
    projects = _worst_projects(evaluation)
    failed = _failure_table(projects)
    return Page(
        title=f"{evaluation.after.label} against {evaluation.before.label}",
        answer="" if verdict is None else "Ship" if verdict.ship else "Do not ship",
        good=verdict is not None and verdict.ship,
        headline=_headline(evaluation, _measure(evaluation)),
        sentences=tuple(_sentences(evaluation, len(failed.rows))),
        warnings=evaluation.left_alone,
        parts=drop_empty([*comparison_parts(evaluation, names, extra), failed, _cost_table(projects)]),
        command=evaluation.command,
        facts=tuple(_facts(evaluation)),
        names=names,
    )


def comparison_parts(
    evaluation: Evaluation, names: Mapping[str, str] | None = None, extra: Sequence[Part] = ()
) -> list[Part | None]:
    """Make the parts of an evaluation: summary, projects, images, modules, trees, functions; ``None`` where empty."""
    measure, projects = _measure(evaluation), _worst_projects(evaluation)
    rows = [(project.project, row) for project in projects for row in project.module_rows]
    return [
        _summary_table(evaluation),
        _waterfall(projects, measure),
        _project_table(projects, measure),
        _image_table(projects),
        *_module_parts(rows),
        *_tree_parts(evaluation.trees, evaluation.no_trees, names or {}),
        *extra,
        _function_table(projects, by_cost=measure == COST),
    ]


def comparison_sentences(evaluation: Evaluation) -> Iterable[str]:
    """Say what the tables of :func:`comparison_parts` do not show: few projects, and objects that are not compared."""
    groups = (evaluation.overall, *evaluation.summary.values())
    if any(1 < change.projects < FEW_PROJECTS for group in groups for change in group.values()):
        yield f"Intervals from fewer than {FEW_PROJECTS} projects are too narrow."
    for project in evaluation.projects:
        if project.costs is not None and project.costs.unread:
            yield f"{project.project}: cost of register allocation {project.costs.unread}."
        for status, what in (("passed_by", "the same on both sides"), ("left_out", "not compared")):
            rows = [row for row in project.module_rows if row.after.status == status]
            if rows:
                named = f"such as {rows[0].module}: {rows[0].after.reason}"
                yield f"{project.project}: {counted(len(rows), 'object')} {what}, {named}."


def symbols_of(evaluation: Evaluation) -> set[str]:
    """Collect the symbols of all functions on the page, for demangling."""
    sites = [line.site for tree in evaluation.trees for line in tree.lines]
    functions = differing_functions(evaluation.projects, by_cost=_measure(evaluation) == COST)
    shown = {one.function for one in (*functions[:MOST_FUNCTIONS], *functions[-MOST_FUNCTIONS:])}
    return (
        shown
        | {tree.function for tree in evaluation.trees}
        | {name for one in sites for name in (one.caller, one.callee)}
    )


def compile_time_ratio(evaluation: Evaluation) -> float:
    """Divide the processor time of the candidate's compilations by that of the baseline's; NaN if unknown."""
    before = sum(project.user_seconds_before for project in evaluation.projects)
    return sum(project.user_seconds_after for project in evaluation.projects) / before if before else math.nan


def side_facts(name: str, side: VariantRecord) -> Iterable[tuple[str, str]]:
    """List the policies, plugin and options that a side was built with, as facts of a page."""
    yield name, side.label
    yield from ((f"{name}: policy for {problem}", policy) for problem, policy in side.policies.items())
    if side.plugin:
        yield f"{name}: plugin", f"{side.plugin} ({side.plugin_in})" if side.plugin_in else side.plugin
    if side.options:
        yield f"{name}: options", " ".join(side.options)
    if side.link_options:
        yield f"{name}: options of the link", " ".join(side.link_options)
    yield from ((f"{name}: sha256 of {path}", digest) for path, digest in side.digests.items())


def _measure(evaluation: Evaluation) -> str:
    """Return the measure of the verdict; the linked image without a verdict."""
    return "image" if evaluation.verdict is None else evaluation.verdict.measure


def _worst_projects(evaluation: Evaluation) -> list[ProjectComparison]:
    """Sort the projects: those that could not be compared first, then by decreasing growth."""
    measure = _measure(evaluation)
    return sorted(evaluation.projects, key=lambda project: _worst_first(change_of(project, measure)))


def _worst_first(change: float | None) -> float:
    """Make a sort key by which changes that are not known come first, then the largest growth."""
    return -math.inf if change is None or math.isnan(change) else -change


def _headline(evaluation: Evaluation, measure: str) -> str:
    if evaluation.verdict is not None:
        return evaluation.verdict.sentence.removeprefix("Do not ship: ").removeprefix("Ship: ")
    change = evaluation.overall.get(measure)
    if change is None:
        return f"No project could be compared by {TITLES[measure]}."
    return f"{TITLES[measure]} {percent(change.mean)} over {change.projects} projects."


def _sentences(evaluation: Evaluation, failures: int) -> Iterable[str]:
    modules = sum(len(project.module_rows) or project.modules for project in evaluation.projects)
    differing = sum(len(row.differing) for project in evaluation.projects for row in project.module_rows)
    yield (
        f"{len(evaluation.projects):,} projects, {modules:,} modules, {differing:,} functions that differ, "
        f"{failures:,} failures. A change is after / before - 1, so negative is smaller."
    )
    if evaluation.baseline:
        yield f"Baseline: {evaluation.baseline}."
    yield from comparison_sentences(evaluation)
    ratio = compile_time_ratio(evaluation)
    if math.isfinite(ratio):
        yield f"Compiling took {ratio:.3f} times the processor time of {evaluation.before.label}; it was timed once."


def _summary_table(evaluation: Evaluation) -> Table:
    groups = evaluation.summary if len(evaluation.summary) == 1 else {"all": evaluation.overall, **evaluation.summary}
    return Table(
        title="Summary",
        columns=(
            *text_columns("language", "measure"),
            *change_columns("change"),
            *number_columns(f"{100 * evaluation.level:g} % interval"),
            *count_columns("projects"),
        ),
        rows=tuple(
            (
                LANGUAGES.get(language, language),
                title,
                change.mean,
                f"{percent(change.low)} to {percent(change.high)}" if change.projects > 1 else "none",
                change.projects,
            )
            for language, group in groups.items()
            for measure, title in TITLES.items()
            if (change := group.get(measure)) is not None
        ),
        note="Geometric means over projects, intervals by bootstrap over projects.",
    )


def _waterfall(projects: Sequence[ProjectComparison], measure: str) -> Bars | None:
    """Draw what each project adds to the change of all; for costs of register allocation, which do not add up, bars."""
    compared = [(project, change) for project in projects if (change := change_of(project, measure)) is not None]
    if measure != COST:
        steps = [
            (project.project, getattr(project.after, measure) - getattr(project.before, measure), change)
            for project, change in compared
        ]
        return waterfall("What each project adds", ("project", "bytes"), steps, f"Bytes of: {TITLES[measure]}")
    if not compared:
        return None
    return Bars(
        title="Change by project",
        columns=("project", "change"),
        bars=tuple(
            Bar(name=project.project, start=0, end=100 * change, text=percent(change))
            for project, change in compared[:MOST_BARS]
        ),
        note="Cost of register allocation by block frequencies, as a geometric mean over functions.",
    )


def _project_table(projects: Sequence[ProjectComparison], measure: str) -> Table:
    judged = "image" if measure == COST else measure
    # In the terminal, objects are counted in one way.
    hidden = "objects" if judged == "link_aware" else "link_aware"
    measures = [judged, *(name for name in TITLES if name not in {judged, COST})]
    has_costs = any(project.costs is not None for project in projects)
    return Table(
        title="Projects, worst first",
        columns=(
            *text_columns("project"),
            *text_columns("language", terminal="below"),
            *(
                Column(
                    title=TITLES[name],
                    kind="compared",
                    whole=name == judged,
                    terminal="none" if name == hidden else "column",
                )
                for name in measures
            ),
            *change_columns(*([TITLES[COST]] if has_costs else []), terminal="none"),
            *count_columns("modules", terminal="below"),
            *count_columns("that grew", "failures", terminal="none"),
            *change_columns("compile time", terminal="none"),
        ),
        rows=tuple(
            (
                project.project,
                LANGUAGES.get(project.language, project.language),
                *(_sizes(project, name) for name in measures),
                *((change_of(project, COST),) if has_costs else ()),
                project.modules,
                project.larger_modules,
                len(project.failures) + bool(project.link_failure),
                relative_change(project.user_seconds_before, project.user_seconds_after),
            )
            for project in projects
        ),
        note=f"Before and after are bytes of: {TITLES[judged]}.",
    )


def _sizes(project: ProjectComparison, measure: str) -> Cell:
    """Make the cell of a project's sizes before and after; linked sizes are missing where nothing was linked."""
    if measure in {"text", "image"} and not project.is_linked:
        return "not linked" if project.modules else "not compiled"
    before, after = getattr(project.before, measure), getattr(project.after, measure)
    if before or after:
        return Compared(before=before, after=after)
    # Objects of a link-time optimization have no sizes.
    return BITCODE if project.modules else None


def _image_table(projects: Sequence[ProjectComparison]) -> Table:
    """Make the table of images; empty if every project has one image and none is of a link-time optimization."""
    images = [(project, image) for project in projects for image in project.images]
    if len(images) == len({project.project for project, _ in images}) and not any(one.after.lto for _, one in images):
        images = []
    images.sort(key=lambda pair: _worst_first(_image_change(pair[1])))
    return Table(
        title="Images, worst first",
        columns=(
            *text_columns("image"),
            *text_columns("project", terminal="none"),
            *count_columns("before", "after"),
            *change_columns("change"),
            *number_columns("functions that differ", terminal="none"),
            *number_columns("LTO", "plugin in compilations", "plugin in the link"),
        ),
        rows=tuple(
            (
                image.image,
                project.project,
                _image_cell(image.before),
                _image_cell(image.after),
                _image_change(image),
                f"{len(image.differing):,} of {image.functions:,}",
                image.after.lto or None,
                "yes" if any(row.after.plugin for row in project.module_rows) else "no",
                "yes" if image.after.plugin else "no",
            )
            for project, image in images
        ),
    )


def _image_change(image: ImageComparison) -> float | None:
    both = image.before.status == image.after.status == LINKED
    return relative_change(image.before.image, image.after.image) if both else None


def _image_cell(image: BuiltImage) -> Cell:
    return image.image if image.status == LINKED else image.status


def _failure_table(projects: Sequence[ProjectComparison]) -> Table:
    rows: list[Row] = []
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
        columns=(*text_columns("what"), *text_columns("project", terminal="none"), *text_columns("step", "reason")),
        rows=tuple(rows),
        note="A module that fails on one side is left out of both, a project that cannot be linked is in no summary.",
    )


def _cost_table(projects: Sequence[ProjectComparison]) -> Table:
    compared = [(project.project, project.costs) for project in projects if project.costs is not None]
    kinds = list(dict.fromkeys(kind for _, costs in compared for kind in costs.counts_before))
    rows: list[Row] = []
    for name, costs in compared:
        if costs.functions or not costs.unread:
            counts = (f"{costs.counts_before.get(kind, 0):,} -> {costs.counts_after.get(kind, 0):,}" for kind in kinds)
            rows.append((name, costs.change, costs.functions, costs.cheaper, costs.dearer, *counts))
        if costs.unread:
            rows.append((name, costs.unread, *[None] * (3 + len(kinds))))
    return Table(
        title="Register allocation by project",
        columns=(
            *text_columns("project"),
            *change_columns("executed cost"),
            *count_columns("functions", "cheaper", "dearer"),
            *number_columns(*kinds),
        ),
        rows=tuple(rows),
        terminal_rows=0,
    )


def _facts(evaluation: Evaluation) -> Iterable[tuple[str, str]]:
    yield "mlgokit", evaluation.mlgokit_version or "unknown"
    yield from evaluation.toolchain.items()
    yield "baseline", evaluation.baseline or "unknown"
    yield "seed of the intervals", str(evaluation.seed)
    yield "source", evaluation.source or "unknown"
    yield "compilations", f"{evaluation.compilations:,}"
    yield from side_facts("before", evaluation.before)
    yield from side_facts("after", evaluation.after)


# --- Modules and functions -------------------------------------------------------------------------------------------


def _module_parts(rows: list[tuple[str, ModuleComparison]]) -> list[Part | None]:
    """Make the scatter plot and the table of modules; only the table if objects have no sizes, as with LTO."""
    rows = sorted(rows, key=lambda pair: _failed_first(pair[1]))
    table = Table(
        title="Modules, worst first",
        columns=(
            *text_columns("module", "project"),
            *before_after_columns(),
            *number_columns("functions that differ", "seconds before", "seconds after"),
        ),
        rows=tuple(
            (
                row.module,
                project,
                *before_after_cells(_module_cell(row.before), _module_cell(row.after)),
                f"{len(row.differing):,} of {row.functions:,}",
                f"{row.before.user_seconds:.2f}",
                f"{row.after.user_seconds:.2f}",
            )
            for project, row in rows
        ),
        note="Bytes of objects, each whole: text, read-only data and unwind tables. Those that failed come first.",
        terminal_rows=0,
    )
    measured = [row if row.before.status == row.after.status == OK else None for _, row in rows]
    before = tuple(None if row is None else row.before.objects for row in measured)
    after = tuple(None if row is None else row.after.objects for row in measured)
    if not any(before):
        return [table]
    scatter = Scatter(
        title="Change by size of the module",
        unit="bytes",
        before=before,
        after=after,
        note="One point for each module that compiles on both sides: discs shrank, triangles grew, small squares are "
        "the same. The slider goes through them by their change.",
    )
    return [scatter, table]


def _failed_first(row: ModuleComparison) -> tuple[bool, int]:
    """Make a sort key by which failures come first, then the largest growth in bytes."""
    compiled = {row.before.status, row.after.status} <= {OK, BITCODE}
    return compiled, row.before.objects - row.after.objects


def _module_cell(module: BuiltModule) -> Cell:
    return module.objects if module.status == OK else module.status.replace("_", " ")


def _function_table(projects: Sequence[ProjectComparison], *, by_cost: bool) -> Table:
    """Make the table of functions that differ; if there are many, those that changed least are left out."""
    differing = differing_functions(projects, by_cost=by_cost)
    has_costs = any(_cost_cell(side) is not None for one in differing for side in (one.before, one.after))
    listed = (
        differing
        if len(differing) <= 2 * MOST_FUNCTIONS
        else [*differing[:MOST_FUNCTIONS], *differing[-MOST_FUNCTIONS:]]
    )
    rows: list[Row] = []
    for one in listed:
        before, after = one.before, one.after
        first, *others = one.where
        more = f" and {len(others):,} more" if others else ""
        rows.append(
            (
                one.function,
                f"{first}{more}",
                one.project,
                "absent" if before is None else before.total,
                "absent" if after is None else after.total,
                one.growth,
                None if before is None or after is None else relative_change(before.total, after.total),
                *((_cost_cell(before), _cost_cell(after)) if has_costs else ()),
            )
        )
    cut = f" These are the {MOST_FUNCTIONS:,} first and the {MOST_FUNCTIONS:,} last of {len(differing):,}."
    return Table(
        title="Functions, worst first",
        columns=(
            *text_columns("function", "module", "project"),
            *before_after_columns(),
            *number_columns(*(("cost before", "cost after") if has_costs else ())),
        ),
        rows=tuple(rows),
        note="Functions that are not the same on both sides, by "
        + ("their costs" if by_cost else "bytes")
        + "; an absent function was inlined everywhere, or is no longer needed."
        + (cut if len(differing) > len(listed) else ""),
        symbols=True,
        terminal_rows=0,
    )


def _cost_cell(function: FunctionBytes | None) -> Cell:
    return None if function is None or function.cost is None else f"{function.cost:,.3g}"


# --- Call trees, and the explanation of a module ---------------------------------------------------------------------


def explanation_page(explanation: Explanation, *, functions: int) -> Page:
    """Make the page of an explanation: sums of bytes, and the call trees of the functions that changed most.

    It has at most ``functions`` that grew, and as many that shrank.
    """
    module, side = explanation.module, explanation.side.label
    title = f"{module} by {side}"
    if explanation.failure:
        return Page(title=title, good=False, headline=f"{module}: nothing to explain: {explanation.failure}", parts=())
    changes = largest_changes(explanation, functions)
    hidden = sum(function.change != 0 for function in explanation.functions) - sum(map(len, changes))
    differ = sum(site.differs for site in explanation.sites)
    by_differences = sum(component.change for component in explanation.components)
    sums = (
        f"{explanation.change:+,} = {by_differences:+,} from changed decisions, {explanation.unexplained:+,} in "
        f"functions out of their reach, {explanation.elsewhere:+,} outside of functions"
    )
    if explanation.allocation:
        sums += f", {explanation.allocation:+,} by register allocation"
    sites = (
        f"{len(explanation.sites):,} call sites, {differ:,} decided differently, in "
        f"{len(explanation.components):,} components of the call graph; the bytes of a component cannot be "
        "divided among its decisions"
    )
    more = [f"{hidden:,} more functions changed; --functions shows more, --json has all"] if hidden > 0 else []
    summed: set[int] = set()
    return Page(
        title=title,
        headline=f"{module}: {explanation.before:,} bytes with LLVM's decisions, {explanation.after:,} with {side}",
        sentences=(*more, sums, sites),
        warnings=explanation.left_alone,
        parts=tuple(
            Trees(
                title=f"{direction} functions",
                trees=tuple(_explained_tree(explanation, function, summed) for function in group),
                terminal_rows=MOST_CALLS,
            )
            for direction, group in zip(("Larger", "Smaller"), changes, strict=True)
            if group
        ),
    )


def _explained_tree(explanation: Explanation, function: ExplainedFunction, summed: set[int]) -> Tree:
    """Make the call tree of a function; ``summed`` has the components whose sums are on the page already."""
    component = None if function.component is None else explanation.components[function.component]
    note = _component_note(component)
    if component is not None and component.number in summed:
        note = f"Component {component.number}, as above."
    elif component is not None:
        summed.add(component.number)
    return Tree(
        symbol=function.function,
        change=f"{function.change:+,} bytes ({_bytes_both(function.before, function.after)})",
        tone="larger" if function.change > 0 else "smaller",
        notes=(note,),
        branches=_branches(list_call_tree(explanation, function), {}, with_sites=True),
    )


def _tree_parts(trees: Sequence[FunctionTree], left_out: str, names: Mapping[str, str]) -> list[Trees]:
    """Make the trees of functions that grew, and of those that shrank; or a note why there are none."""
    if left_out:
        return [Trees(title="Why functions changed", trees=(), note=f"There are no call trees: {left_out}.")]
    return [
        Trees(
            title=title,
            trees=tuple(_tree(one, names) for one in chosen),
            note="Calls that are decided differently from the plain build are bold. Their bytes are those of their "
            "component of the call graph (all functions that they can have changed), and cannot be divided among its "
            "calls. A preference is positive for inlining; a feature counts by what the preference loses "
            "with the typical value in its place.",
        )
        for title, chosen in (
            ("Functions that grew most, and why", [one for one in trees if one.growth > 0]),
            ("Functions that shrank most, and why", [one for one in trees if one.growth < 0]),
        )
        if chosen
    ]


def _tree(tree: FunctionTree, names: Mapping[str, str]) -> Tree:
    note = f"There is no explanation: {tree.failure}." if tree.failure else _component_note(tree.component)
    more = (f"{tree.more:,} more calls; mlgokit explain shows them.",) if tree.more else ()
    sizes = "" if tree.failure else f" ({_bytes_both(tree.before, tree.after)})"
    return Tree(
        symbol=tree.function,
        change=f"{tree.growth:+,} bytes{sizes}",
        tone="larger" if tree.growth > 0 else "smaller",
        notes=(f"{tree.module}, project {tree.project}.", note, *more),
        branches=_branches(tree.lines, names),
    )


def _bytes_both(before: int | None, after: int | None) -> str:
    return " -> ".join("absent" if one is None else f"{one:,}" for one in (before, after))


def _component_note(component: ExplainedComponent | None) -> str:
    if component is None:
        return "No call that is decided differently can have changed this function."
    if component.differences == 1:
        return f"Component {component.number}: {component.change:+,} bytes by one difference."
    return (
        f"Component {component.number}: {component.change:+,} bytes in {component.functions:,} functions by "
        f"{component.differences:,} differences together."
    )


def _branches(
    lines: Sequence[TreeLine], names: Mapping[str, str], *, depth: int = 0, with_sites: bool = False
) -> tuple[Branch, ...]:
    """Nest the lines of a call tree: those of ``depth``, each with the deeper lines that follow it."""
    starts = [place for place, line in enumerate(lines) if line.depth == depth]
    ends = [*starts[1:], len(lines)]
    return tuple(
        _branch(
            lines[start],
            _branches(lines[start + 1 : end], names, depth=depth + 1, with_sites=with_sites),
            names,
            with_sites=with_sites,
        )
        for start, end in zip(starts, ends, strict=False)
    )


def _branch(line: TreeLine, below: tuple[Branch, ...], names: Mapping[str, str], *, with_sites: bool) -> Branch:
    """Make the branch of one call; ``with_sites`` adds the key of its call site and limits its features."""
    site = line.site
    how, symbol = {
        "below": ("calls", site.callee),
        "above": ("called by", site.caller),
        "elsewhere": (f"{names.get(site.caller, site.caller)} calls", site.callee),
    }[line.where]
    if not site.differs:
        return Branch(how=how, symbol=symbol, marks=_decisions(site), branches=below)
    features = site.features[:LOUDEST] if with_sites else site.features
    mostly = "" if with_sites else "".join(f"; mostly {one.feature}, here {one.value:,}" for one in site.features[:1])
    return Branch(
        how=how,
        symbol=symbol,
        marks=(*_decisions(site), f"call site {site.site}") if with_sites else _decisions(site),
        is_loud=True,
        note=f"{_reason(site)}{mostly}",
        columns=_FEATURES,
        rows=tuple((one.feature, f"{one.value:,}", f"{one.typical:,.1f}", f"{one.change:+.2f}") for one in features),
        branches=below,
    )


def _decisions(site: ExplainedSite) -> tuple[str, ...]:
    """Make the marks of LLVM's decision and of the candidate's; one mark if they are the same."""
    if not site.differs and site.llvm == site.decided:
        return (_DECIDED[site.llvm],)
    return f"LLVM: {_DECIDED[site.llvm]}", f"now: {_DECIDED[site.decided]}"


def _reason(site: ExplainedSite) -> str:
    """Say whether a table or the policy decided, and with what preference; empty if that is not known."""
    if site.by_table:
        return "decided by the plugin's table"
    if site.preference is None:
        return ""
    return f"preference {site.preference:+.2f}, {site.agree} of {site.members} members agree"
