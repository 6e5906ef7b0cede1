"""The functions of an evaluation that differ, and those that changed most, with their call trees."""

import dataclasses
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlgokit.builds.images import FunctionBytes
from mlgokit.builds.variant import Variant
from mlgokit.compiler.request import Compiler
from mlgokit.evaluation.explain import Explanation, explain_module
from mlgokit.evaluation.explained import FunctionTree
from mlgokit.evaluation.explained_tree import call_tree
from mlgokit.evaluation.records import ProjectComparison
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.progress import Report, say_nothing

MOST_TREES = 10
"""Functions that grew most which get a call tree, and as many that shrank most."""
MOST_LINES = 16
"""Calls of one tree."""
MOST_FEATURES = 4
"""Features of one decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingFunction:
    """A function that is not the same on both sides; its copies in several objects are one if they are alike.

    Attributes:
        function: its name.
        project: whose it is.
        before: bytes on the side that is compared with, or ``None`` where it is absent.
        after: likewise on the side that is judged.
        where: modules, or images where an optimizing link leaves functions in these alone.
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
    def dearer(self) -> float:
        """Executed cost gained."""
        before, after = (one.cost if one is not None and one.cost is not None else 0.0 for one in self._sides)
        return after - before

    @property
    def has_costs(self) -> bool:
        """Whether costs are known."""
        return any(one is not None and one.cost is not None for one in self._sides)

    @property
    def _sides(self) -> tuple[FunctionBytes | None, FunctionBytes | None]:
        return self.before, self.after


def differing_functions(
    projects: Iterable[ProjectComparison], *, by_cost: bool = False
) -> tuple[DifferingFunction, ...]:
    """All that differ, the worst first: by bytes, or by cost; equal ones by their names."""
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
    found.sort(key=lambda one: (-one.dearer if by_cost else -one.growth, one.function, one.project, one.where))
    return tuple(found)


def function_trees(
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
    """Why those functions are larger or smaller that changed most: those that grew first, and of each the most first.

    The modules that hold them are compiled again. What the time is not enough for is there with the reason.

    Args:
        functions: all that differ, the worst first.
        modules: by name.
        compiler: with a plugin.
        side: what is judged, against LLVM's own inlining.
        policy: see :func:`~mlgokit.evaluation.explain.explain_module`.
        names: functions of a module, also those that no object has.
        seconds: after which no module is begun.
        report: progress.
    """
    grown = [one for one in functions[:MOST_TREES] if one.growth > 0]
    shrunk = [one for one in reversed(functions[-MOST_TREES:]) if one.growth < 0]
    deadline = time.monotonic() + seconds
    explained: dict[str, Explanation] = {}
    found: dict[int, FunctionTree] = {}
    # Both ends alike, should the time not be enough.
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
        found[id(one)] = _tree(blank, explained[name])
    return tuple(found[id(one)] for one in (*grown, *shrunk))


def _tree(blank: FunctionTree, explanation: Explanation) -> FunctionTree:
    if explanation.failure:
        return dataclasses.replace(blank, failure=explanation.failure)
    row = next((one for one in explanation.functions if one.function == blank.function), None)
    if row is None:
        # Allocations of a plugin, or a module that LLVM's own advisor stops in because it has doubled.
        return dataclasses.replace(blank, failure="its inlining is the same, so what differs is something else")
    lines = call_tree(explanation, row)
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
