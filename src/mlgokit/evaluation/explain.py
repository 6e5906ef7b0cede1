"""Why a module's object is larger or smaller: call sites, what LLVM and a policy decide there, and what that weighs.

A byte belongs to a function, and a function to a component of the call graph: the decisions that differ and can explain
it (:mod:`mlgokit.algorithms.credit`). A single decision has bytes of its own only where its component has no other.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.algorithms.credit import Credit, attribute, scored_build
from mlgokit.builds.variant import Variant, VariantRecord, leaves_alone
from mlgokit.compiler.compilation import Compilation, InlineDecisions
from mlgokit.compiler.objects.measure import Objective, function_scores
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.errors import UsageError
from mlgokit.evaluation.explained import ExplainedComponent, ExplainedFunction, ExplainedSite, FeatureWeight
from mlgokit.evaluation.records import FunctionComparison
from mlgokit.evaluation.rows import compare_module
from mlgokit.manifest import finite_json, plain_json
from mlgokit.module import Module
from mlgokit.policy.importance import changes_from_typical
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.normaliser import typical_values
from mlgokit.policy.targets import architectures_of
from mlgokit.problems import INLINE_SIZE, PROBLEMS
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.overrides import ALLOCATIONS, override_bytes
from mlgokit.traces.log import function_id

FORMAT = "mlgokit explanation"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A module built by LLVM's heuristic and by another side; bytes are what llvm-size calls text.

    ``change`` is the sum of the components' changes, ``unexplained``, ``elsewhere`` and ``allocation``.

    Attributes:
        module: its name.
        project: whose it is.
        left_alone: which policies leave the module to LLVM because of its processor, a sentence each.
        side: what was judged.
        failure: why there is nothing to explain, else empty.
        before: bytes of the plain object.
        after: bytes of the judged one.
        unexplained: bytes gained by functions that no difference can have reached.
        elsewhere: bytes gained outside of functions.
        allocation: bytes gained by what a plugin allocates otherwise; all others are those of the object without that.
        components: those that grew most first.
        functions: those that changed, those that grew most first.
        sites: every call site, in the order of the judged build's questions, then those of the plain one alone.
        source: the corpus.
        mlgokit_version: of this package.
        toolchain: tool name -> version.
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
        """The explanation as plain JSON values, see ``docs/formats.md``."""
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
    """Compile a module by LLVM's heuristic and as the side says, and set their decisions and bytes side by side.

    A compilation that fails is an explanation with the reason.

    Args:
        module: what to compile.
        compiler: with a plugin.
        side: what is judged; its policies or its plugin decide inlining.
        policy: the policy file that decides there, for preferences and features.
        names: functions of the module. Those that neither object has are shown as numbers otherwise.
        report: progress.

    Raises:
        UsageError: the side has nothing to decide inlining with.
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
    judged_use = dataclasses.replace(side.use, logs=(INLINE_SIZE.name,))
    uses = [plain_use, judged_use]
    if side.use.plugin is not None:
        uses.append(_without_allocations(judged_use))
    plain, whole, *rest = parallel(
        lambda use: compiler.compile(module, CompileRequest(use=use, keep="all")),
        uses,
        workers=compiler,
        report=report,
        label="explain",
    )
    alone = leaves_alone(side, architectures_of([module]))
    found = Explanation(module=module.name, project=module.project, side=side.record, left_alone=alone)
    for build, done in (("plain", plain), *((side.record.label, done) for done in (whole, *rest))):
        if not done.ok:
            return dataclasses.replace(found, failure=f"{build}: {done.status.value}: {done.reason}")
    judged = rest[0] if rest else whole
    found = _explained(found, plain, judged, policy if _decides(policy, module) else None, names)
    after = whole.measured.llvm_size_text
    return dataclasses.replace(found, after=after, allocation=after - found.after)


def _decides(policy: Policy | None, module: Module) -> bool:
    return policy is not None and module.architecture in ("", *policy.targets)


def _without_allocations(use: PluginUse) -> PluginUse:
    """The same with register allocation as LLVM does it, whatever the plugin has inside for that."""
    own = {name: HEURISTIC for name, problem in PROBLEMS.items() if problem.by_regalloc_cost}
    return dataclasses.replace(use, allocations=override_bytes(ALLOCATIONS, {}), policies={**use.policies, **own})


def _explained(
    found: Explanation, plain: Compilation, judged: Compilation, policy: Policy | None, names: Iterable[str]
) -> Explanation:
    known = {function_id(name): name for name in names}
    for done in (plain, judged):
        known |= {function_id(name): name for name in done.measured.function_names}
    sites = _sites(plain.decisions, judged.decisions, known)
    differ = np.array([one.differs for one in sites[: len(judged.decisions)]], np.bool_)
    builds = [
        scored_build(done, *function_scores(done.measured, {}, objective=Objective.OBJECT_TEXT)[:2], flipped=flipped)
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


def _sites(plain: InlineDecisions, judged: InlineDecisions, known: dict[int, str]) -> list[ExplainedSite]:
    before = plain.by_site
    heuristic = [None] * len(judged) if judged.heuristic is None else judged.heuristic.tolist()
    by_table = [False] * len(judged) if judged.by_table is None else judged.by_table.tolist()

    def named(number: int) -> str:
        return known.get(number, f"function {number & (2**64 - 1):#018x}")

    asked = zip(judged.sites.tolist(), judged.caller.tolist(), judged.callee.tolist(), strict=True)
    found = [
        ExplainedSite(
            site=f"{site:#018x}",
            caller=named(caller),
            callee=named(callee),
            plain=before.get(site),
            heuristic=default,
            decided=decided,
            by_table=table,
        )
        for (site, caller, callee), default, decided, table in zip(
            asked, heuristic, judged.inlined.tolist(), by_table, strict=True
        )
    ]
    there = set(judged.sites.tolist())
    asked = zip(plain.sites.tolist(), plain.caller.tolist(), plain.callee.tolist(), strict=True)
    return found + [
        ExplainedSite(
            site=f"{site:#018x}",
            caller=named(caller),
            callee=named(callee),
            plain=decided,
            heuristic=None,
            decided=None,
        )
        for (site, caller, callee), decided in zip(asked, plain.inlined.tolist(), strict=True)
        if site not in there
    ]


def _components(
    credit: Credit, rows: Iterable[FunctionComparison]
) -> tuple[tuple[ExplainedFunction, ...], tuple[ExplainedComponent, ...], dict[int, int]]:
    """Functions that changed, components by growth, and the numbers of the latter by those that ``credit`` has."""
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
    """What the policy and its members answer, everywhere; what its features do, where it makes a difference."""
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
    if not places:
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
