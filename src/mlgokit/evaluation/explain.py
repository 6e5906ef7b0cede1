"""Explains why a module's object is larger or smaller than LLVM's, by call sites that are decided differently.

A byte belongs to a function, and a function to a component of the call graph, whose differing decisions can explain its
change (:mod:`mlgokit.algorithms.credit`). A change is due to a single decision only if its component has no other.
"""

import dataclasses
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Credit, attribute, make_scored_build
from mlgokit.builds.images import FunctionBytes
from mlgokit.builds.pair import BuildPair, VariantPair
from mlgokit.builds.variant import Variant, VariantRecord, describe_inactive_policies, modules_of_variant
from mlgokit.compiler.compilation import Compilation, InlineDecisions
from mlgokit.compiler.describe import function_names
from mlgokit.compiler.objects.measure import Objective, function_scores
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.errors import ToolError, UsageError
from mlgokit.evaluation.records import (
    Evaluation,
    ExplainedComponent,
    ExplainedFunction,
    ExplainedSite,
    FeatureWeight,
    FunctionComparison,
    FunctionTree,
    ProjectComparison,
    TreeLine,
)
from mlgokit.evaluation.rows import compare_module
from mlgokit.manifest import finite_json, plain_json
from mlgokit.module import Module
from mlgokit.policy.importance import changes_from_typical
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.normaliser import typical_values
from mlgokit.policy.store import load_policy
from mlgokit.policy.targets import architectures_of
from mlgokit.problems import INLINE_SIZE, PROBLEMS
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.overrides import ALLOCATIONS, override_bytes
from mlgokit.traces.function_id import function_id

FORMAT = "mlgokit explanation"
FORMAT_VERSION = 1
MOST_DEPTH = 12
"""Maximum depth of a call tree."""
MOST_TREES = 10
"""Maximum functions that grew most with a call tree, and as many that shrank most."""
MOST_LINES = 16
"""Maximum calls in one call tree."""
MOST_FEATURES = 4
"""Maximum features that are stored for one decision in a call tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A module built by LLVM's heuristic and by a candidate; bytes are what llvm-size calls text.

    ``change`` is the sum of the components' changes, ``unexplained``, ``elsewhere`` and ``allocation``.

    Attributes:
        side: the candidate.
        failure: why there is nothing to explain; empty if there is an explanation.
        left_alone: a sentence for each policy that leaves the module to LLVM because of its architecture.
        unexplained: bytes gained by functions that no differing decision can have changed.
        elsewhere: bytes gained outside of functions.
        allocation: bytes gained by the plugin's decisions about register allocation; all other bytes are of an object
            without these decisions.
        components: components of differing decisions, those that grew most first.
        functions: functions that changed, those that grew most first.
        sites: every call site, in the order in which the candidate's build asked about them, then those that only the
            plain build asked about.
        source: path of the corpus.
        toolchain: version of each tool.
    """

    module: str
    project: str
    side: VariantRecord
    failure: str = ""
    left_alone: tuple[str, ...] = ()
    before: int = 0
    after: int = 0
    unexplained: int = 0
    elsewhere: int = 0
    allocation: int = 0
    components: tuple[ExplainedComponent, ...] = ()
    functions: tuple[ExplainedFunction, ...] = ()
    sites: tuple[ExplainedSite, ...] = ()
    source: str = ""
    mlgokit_version: str = ""
    toolchain: dict[str, str] = dataclasses.field(default_factory=dict[str, str])

    @property
    def change(self) -> int:
        """Bytes that the object gained."""
        return self.after - self.before

    def to_json(self) -> dict[str, Any]:
        """Convert the explanation to plain JSON values, see ``docs/formats.md``."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **finite_json(plain_json(self))}


def explain_module(
    module: Module,
    *,
    compiler: Compiler,
    side: Variant,
    policy: Policy | None = None,
    names: Iterable[str] = (),
    report: Report = say_nothing,
) -> Explanation:
    """Compile a module by LLVM's heuristic and by a candidate, and compare their inlining decisions and bytes.

    If a compilation fails, the explanation has the reason.

    Args:
        module: module to compile.
        compiler: compiler with a plugin.
        side: the candidate; its policies or its plugin decide inlining.
        policy: policy that decides inlining for the candidate, for preferences and features; ``None`` if a plugin does.
        names: names of the module's functions; without them, functions that neither object has are shown as numbers.
        report: receives the progress.

    Raises:
        UsageError: the candidate has neither a policy nor a plugin that decides inlining.
    """
    if side.use is None or (side.use.plugin is None and INLINE_SIZE.name not in side.use.policies):
        raise UsageError(
            f"explain: expected a policy or a plugin that decides inlining, found {side.record.label}; "
            "name one with --policy or --plugin"
        )
    # Policies for register allocation decide on both sides: their bytes are not the inliner's.
    plain_use = PluginUse(
        policies={**side.use.policies, INLINE_SIZE.name: HEURISTIC},
        logs=(INLINE_SIZE.name,),
        any_level=side.use.any_level,
    )
    candidate_use = dataclasses.replace(side.use, logs=(INLINE_SIZE.name,))
    uses = [plain_use, candidate_use]
    if side.use.plugin is not None:
        uses.append(_drop_allocations(candidate_use))
    plain, whole, *rest = parallel(
        lambda use: compiler.compile(module, CompileRequest(use=use, keep="all")),
        uses,
        workers=compiler,
        report=report,
        label="explain",
    )
    alone = describe_inactive_policies(side, architectures_of([module]), has_links=module.link_folder is not None)
    found = Explanation(module=module.name, project=module.project, side=side.record, left_alone=alone)
    for build, done in (("plain", plain), *((side.record.label, done) for done in (whole, *rest))):
        if not done.ok:
            return dataclasses.replace(found, failure=f"{build}: {done.status.value}: {done.reason}")
    judged = rest[0] if rest else whole
    part = None if policy is None else policy.for_architecture(module.architecture)
    found = _fill_explanation(found, plain, judged, part, names)
    after = whole.measured.llvm_size_text
    return dataclasses.replace(found, after=after, allocation=after - found.after)


def _drop_allocations(use: PluginUse) -> PluginUse:
    """Leave register allocation to LLVM, also if the plugin has tables or policies for it."""
    own = {name: HEURISTIC for name, problem in PROBLEMS.items() if problem.by_regalloc_cost}
    return dataclasses.replace(use, allocations=override_bytes(ALLOCATIONS, {}), policies={**use.policies, **own})


def _fill_explanation(
    found: Explanation, plain: Compilation, judged: Compilation, policy: Policy | None, names: Iterable[str]
) -> Explanation:
    known = {function_id(name): name for name in names}
    for done in (plain, judged):
        known |= {function_id(name): name for name in done.measured.function_names}
    sites = _call_sites(plain.decisions, judged.decisions, known)
    differ = np.array([one.differs for one in sites[: len(judged.decisions)]], np.bool_)
    builds = [
        make_scored_build(
            done, *function_scores(done.measured, {}, objective=Objective.OBJECT_TEXT)[:2], flipped=flipped
        )
        for done, flipped in ((plain, np.zeros(len(plain.decisions), np.bool_)), (judged, differ))
    ]
    credit = attribute(builds[0], builds[1])
    rows = compare_module(found.module, (plain, judged), {}).differing
    functions, components, number = _components(credit, rows)
    positions: list[int] = credit.flips.tolist()
    for position, own in zip(positions, credit.component.tolist(), strict=True):
        sites[position] = dataclasses.replace(sites[position], component=number[own])
    if policy is not None:
        _ask_policy(sites, judged.decisions, policy)
    before, after = plain.measured.llvm_size_text, judged.measured.llvm_size_text
    in_functions = sum(one.change for one in functions)
    return dataclasses.replace(
        found,
        before=before,
        after=after,
        unexplained=sum(one.change for one in functions if one.component is None),
        elsewhere=after - before - in_functions,
        components=components,
        functions=functions,
        sites=tuple(sites),
    )


def _call_sites(plain: InlineDecisions, judged: InlineDecisions, known: dict[int, str]) -> list[ExplainedSite]:
    """List the call sites of both builds, those of the candidate first, with the decisions about them."""
    before = plain.by_site
    heuristic = [None] * len(judged) if judged.heuristic is None else judged.heuristic.tolist()
    by_table = [False] * len(judged) if judged.by_table is None else judged.by_table.tolist()

    def sites_of(decisions: InlineDecisions, *answers: list[Any]) -> Iterator[ExplainedSite]:
        keys = (decisions.sites.tolist(), decisions.caller.tolist(), decisions.callee.tolist())
        for site, caller, callee, default, decided, table in zip(*keys, *answers, strict=True):
            yield ExplainedSite(
                site=f"{site:#018x}",
                caller=known.get(caller, f"function {caller & (2**64 - 1):#018x}"),
                callee=known.get(callee, f"function {callee & (2**64 - 1):#018x}"),
                plain=before.get(site),
                heuristic=default,
                decided=decided,
                by_table=table,
            )

    found = list(sites_of(judged, heuristic, judged.inlined.tolist(), by_table))
    there = {one.site for one in found}
    nothing = [None] * len(plain)
    only_plain = sites_of(plain, nothing, nothing, [False] * len(plain))
    return found + [one for one in only_plain if one.site not in there]


def _components(
    credit: Credit, rows: Iterable[FunctionComparison]
) -> tuple[tuple[ExplainedFunction, ...], tuple[ExplainedComponent, ...], dict[int, int]]:
    """Explain the changes of functions by components.

    Returns:
        Functions that changed, components by decreasing growth, and the new number of each component of ``credit``.
    """
    reached = dict(zip(credit.reached.tolist(), credit.reached_by.tolist(), strict=True))
    order: list[int] = np.argsort(-credit.change, kind="stable").tolist()
    number = {own: place for place, own in enumerate(order)}
    functions: list[ExplainedFunction] = []
    for row in rows:
        before, after = (None if one is None else one.total for one in (row.before, row.after))
        if before == after:
            continue
        own = reached.get(function_id(row.function)) if (before or 0) != (after or 0) else None
        functions.append(
            ExplainedFunction(
                function=row.function, before=before, after=after, component=None if own is None else number[own]
            )
        )
    components = tuple(
        ExplainedComponent(
            number=place,
            change=round(float(credit.change[own])),
            differences=int((credit.component == own).sum()),
            functions=sum(one.component == place for one in functions),
        )
        for place, own in enumerate(order)
    )
    return tuple(functions), components, number


def _ask_policy(sites: list[ExplainedSite], judged: InlineDecisions, policy: Policy) -> None:
    """Add the policy's preference and its members' votes to all sites, and its features to those that differ."""
    if not len(judged):
        return
    values: npt.NDArray[Any] = judged.values[:, [judged.names.index(name) for name in policy.features]]
    preferences = policy.preferences(values, judged.heuristic)
    answers = policy.answers(values)
    inline = answers < 0 if policy.output is OutputKind.EFFECT_BYTES else answers > 0
    agree = (inline == judged.inlined).sum(axis=0)
    for place, preference in enumerate(preferences.tolist()):
        sites[place] = dataclasses.replace(
            sites[place], preference=preference, members=policy.members, agree=int(agree[place])
        )
    places = [place for place, one in enumerate(sites[: len(judged)]) if one.differs]
    # What a recurrent policy answers also depends on the questions before.
    if not places or policy.recurrent:
        return
    changes, typical = changes_from_typical(policy, values[places]), typical_values(policy.normaliser)
    for row, place in enumerate(places):
        toward = changes[row] if sites[place].decided else -changes[row]
        loudest: list[int] = np.argsort(-toward, kind="stable").tolist()
        weights = tuple(
            FeatureWeight(
                feature=policy.features[feature],
                value=int(values[place, feature]),
                typical=float(typical[feature]),
                change=float(changes[row, feature]),
            )
            for feature in loudest
            if toward[feature] > 0
        )
        sites[place] = dataclasses.replace(sites[place], features=weights)


def largest_changes(found: Explanation, count: int) -> tuple[list[ExplainedFunction], list[ExplainedFunction]]:
    """Select at most ``count`` functions that grew, the most first, and as many that shrank, the most first."""
    grown = sorted((one for one in found.functions if one.change > 0), key=lambda one: (-one.change, one.function))
    shrunk = sorted((one for one in found.functions if one.change < 0), key=lambda one: (one.change, one.function))
    return grown[:count], shrunk[:count]


def list_call_tree(found: Explanation, function: ExplainedFunction) -> list[TreeLine]:
    """List the differing decisions that can explain a function's change, as a tree of calls.

    These are the differences of the function's component inside the function and inside calls that it inlines, and
    those at calls of the function. If there are none, all differences of the component are listed, those in the
    function's callers first. An inlined call that does not differ is listed if there is a difference below it. The
    calls of each function are listed once.
    """
    if function.component is None:
        return []
    differ = [one for one in found.sites if one.component == function.component]
    below = _calls_below(function.function, _calls_by_caller(found, differ))
    inside = {one.site.site for one in below}
    calls = [one for one in differ if one.callee == function.function and one.site not in inside]
    if below or calls:
        return below + [TreeLine(depth=0, site=one, where="above") for one in calls]
    callers = {one.caller for one in found.sites if one.callee == function.function}
    differ.sort(key=lambda one: one.caller not in callers)
    return [TreeLine(depth=0, site=one, where="elsewhere") for one in differ]


def _calls_by_caller(found: Explanation, differ: Sequence[ExplainedSite]) -> dict[str, list[ExplainedSite]]:
    """Map each caller to its differing calls, and to one inlined call of each callee with differing calls below it."""
    inlined = [one for one in found.sites if one.plain or one.decided]
    above: dict[str, set[str]] = defaultdict(set)
    for one in inlined:
        above[one.callee].add(one.caller)
    leads = _transitive_callers({one.caller for one in differ}, above)
    of_caller: dict[str, list[ExplainedSite]] = defaultdict(list)
    for one in differ:
        of_caller[one.caller].append(one)
    seen = {(one.caller, one.callee) for one in differ}
    for one in inlined:
        if one.callee in leads and (one.caller, one.callee) not in seen:
            seen.add((one.caller, one.callee))
            of_caller[one.caller].append(one)
    return of_caller


def _calls_below(root: str, of_caller: dict[str, list[ExplainedSite]]) -> list[TreeLine]:
    """List the calls in a function and in what it inlines, depth first, as far as they lead to differences."""
    lines: list[TreeLine] = []
    opened = {root}
    todo = [(0, one) for one in reversed(of_caller.get(root, ()))]
    while todo:
        depth, site = todo.pop()
        lines.append(TreeLine(depth=depth, site=site))
        if site.callee not in opened and depth + 1 < MOST_DEPTH and (site.plain or site.decided):
            opened.add(site.callee)
            todo += [(depth + 1, one) for one in reversed(of_caller.get(site.callee, ()))]
    return _keep_differences(lines)


def _transitive_callers(start: set[str], above: dict[str, set[str]]) -> set[str]:
    """Collect functions and all functions that inline them, directly or transitively."""
    seen, todo = set(start), list(start)
    while todo:
        for caller in above.get(todo.pop(), ()):
            if caller not in seen:
                seen.add(caller)
                todo.append(caller)
    return seen


def _keep_differences(lines: Sequence[TreeLine]) -> list[TreeLine]:
    """Keep the lines that are differences or have one below; the calls below other lines are listed elsewhere."""
    kept: list[TreeLine] = []
    wanted = -1
    for one in reversed(lines):
        if one.site.differs or one.depth == wanted - 1:
            kept.append(one)
            wanted = one.depth
        elif one.depth < wanted:
            wanted = one.depth
    return kept[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingFunction:
    """A function whose bytes or cost differ between the builds; equal copies in several objects are one.

    ``before`` and ``after`` are ``None`` if the function is absent there; ``where`` names the modules that have it, or
    the images if link-time optimization generated it.
    """

    function: str
    project: str
    before: FunctionBytes | None
    after: FunctionBytes | None
    where: tuple[str, ...]

    @property
    def growth(self) -> int:
        """Bytes gained."""
        return (0 if self.after is None else self.after.total) - (0 if self.before is None else self.before.total)

    @property
    def cost_growth(self) -> float:
        """Cost of register allocation gained."""
        before, after = (0.0 if one is None else one.cost or 0.0 for one in (self.before, self.after))
        return after - before


def differing_functions(
    projects: Iterable[ProjectComparison], *, by_cost: bool = False
) -> tuple[DifferingFunction, ...]:
    """List the functions of all projects that differ, by decreasing growth in bytes or in cost, then by name."""
    copies: dict[tuple[str, str, FunctionBytes | None, FunctionBytes | None], list[str]] = defaultdict(list)
    for project in projects:
        modules = [(row.module, row.differing) for row in project.module_rows if row.differing]
        for where, differing in modules or [(image.image, image.differing) for image in project.images]:
            for one in differing:
                copies[project.project, one.function, one.before, one.after].append(where)
    found = [
        DifferingFunction(function=function, project=project, before=before, after=after, where=tuple(where))
        for (project, function, before, after), where in copies.items()
    ]
    found.sort(key=lambda one: (-one.cost_growth if by_cost else -one.growth, one.function, one.project, one.where))
    return tuple(found)


def explain_differences(
    found: Evaluation, pair: BuildPair, *, seconds: float, report: Report = say_nothing
) -> Evaluation:
    """Add call trees of the functions that changed most to an evaluation, or the reason why it has none.

    The files of both builds must still exist. After ``seconds`` no further module is compiled; 0 is for no trees.
    """
    variants = pair.variants
    if why := _why_no_trees(variants, seconds):
        return dataclasses.replace(found, no_trees=why)
    functions = differing_functions(found.projects)
    objects = {name for one in (*functions[:MOST_TREES], *functions[-MOST_TREES:]) for name in one.where[:1]}
    bitcode = pair.bitcode(objects, report)
    if isinstance(bitcode, str):
        return dataclasses.replace(found, no_trees=bitcode)
    compiler = bitcode.compiler
    if compiler.plugin is None:
        # A user's plugin compiles the candidate; the plain side of a tree needs one of ours, which logs decisions.
        try:
            compiler = dataclasses.replace(compiler, plugin=build_plugin(compiler.toolchain))
        except ToolError as error:
            return dataclasses.replace(found, no_trees=f"they need a plugin of their own: {error}")
    trees = explain_largest_changes(
        functions,
        {module.name: module for module in modules_of_variant(bitcode.modules, variants.after)},
        compiler=compiler,
        side=variants.after,
        policy=inlining_policy(variants.after),
        names=lambda module: function_names(compiler, module),
        seconds=seconds,
        report=report,
    )
    return dataclasses.replace(found, trees=trees)


def _why_no_trees(variants: VariantPair, seconds: float) -> str:
    before, after = variants.before, variants.after
    if not seconds:
        return "--explain-seconds 0 was given"
    if before.use is not None:
        return "call trees compare inlining with LLVM's own, and the baseline is not LLVM's own"
    if before.record.options != after.record.options:
        return "the compiler options differ, not only the inlining decisions"
    if after.use is None or (after.use.plugin is None and INLINE_SIZE.name not in after.use.policies):
        return "the candidate has no policy or plugin for inlining"
    return "" if after.compiles_with_plugin else "the plugin is loaded in the link alone"


def inlining_policy(side: Variant) -> Policy | None:
    """Load the policy of a variant that decides inlining; ``None`` if a rule or a plugin decides.

    Raises:
        PolicyError: the policy file is not usable.
    """
    chosen = side.record.policies.get(INLINE_SIZE.name, ":")
    return None if chosen.startswith(":") else load_policy(Path(chosen), problem=INLINE_SIZE.name)


def explain_largest_changes(
    functions: Sequence[DifferingFunction],
    modules: Mapping[str, Module],
    *,
    compiler: Compiler,
    side: Variant,
    policy: Policy | None = None,
    names: Callable[[Module], Iterable[str]] = lambda _: (),
    seconds: float,
    report: Report = say_nothing,
) -> tuple[FunctionTree, ...]:
    """Make call trees of the functions whose size changed most, those that grew first; compiles their modules again.

    If the ``seconds`` are over before a function's module is compiled, the function's tree has that as its ``failure``.
    ``functions`` are all that differ, those that grew most first; other arguments are as for :func:`explain_module`.
    """
    grown = [one for one in functions[:MOST_TREES] if one.growth > 0]
    shrunk = [one for one in reversed(functions[-MOST_TREES:]) if one.growth < 0]
    deadline = time.monotonic() + seconds
    explained: dict[str, Explanation] = {}
    found: dict[int, FunctionTree] = {}
    # Alternating, so that the time is spent on both equally if it does not suffice.
    both = [one for pair in itertools.zip_longest(grown, shrunk) for one in pair if one is not None]
    for done, one in enumerate(both):
        report(done, len(both), "call trees")
        held = [where for where in one.where if where in modules]
        name = next((where for where in held if where in explained), held[0] if held else one.where[0])
        blank = FunctionTree(function=one.function, module=name, project=one.project, growth=one.growth)
        if not held:
            found[id(one)] = dataclasses.replace(blank, failure="its module is bitcode of a link-time optimization")
            continue
        if name not in explained:
            if time.monotonic() > deadline:
                found[id(one)] = dataclasses.replace(blank, failure=f"the {seconds:g} seconds for call trees were over")
                continue
            explained[name] = explain_module(
                modules[name], compiler=compiler, side=side, policy=policy, names=names(modules[name])
            )
        found[id(one)] = _fill_tree(blank, explained[name])
    return tuple(found[id(one)] for one in (*grown, *shrunk))


def _fill_tree(blank: FunctionTree, explanation: Explanation) -> FunctionTree:
    if explanation.failure:
        return dataclasses.replace(blank, failure=explanation.failure)
    row = next((one for one in explanation.functions if one.function == blank.function), None)
    if row is None:
        # Register allocation by a plugin, or a module in which LLVM's advisor stops as its IR has doubled.
        return dataclasses.replace(blank, failure="its inlining is the same, so something else differs")
    lines = list_call_tree(explanation, row)
    shown = [
        dataclasses.replace(line, site=dataclasses.replace(line.site, features=line.site.features[:MOST_FEATURES]))
        for line in lines[:MOST_LINES]
    ]
    return dataclasses.replace(
        blank,
        before=row.before,
        after=row.after,
        component=None if row.component is None else explanation.components[row.component],
        lines=tuple(shown),
        more=len(lines) - len(shown),
    )
