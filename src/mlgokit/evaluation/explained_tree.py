"""The call tree of an explanation: from a function that changed down to the decisions that can explain it."""

from collections import defaultdict
from collections.abc import Sequence

from mlgokit.evaluation.explain import Explanation
from mlgokit.evaluation.explained import ExplainedFunction, ExplainedSite, TreeLine

MOST_DEPTH = 12
"""Calls below one another that are shown."""


def largest(found: Explanation, count: int) -> tuple[list[ExplainedFunction], list[ExplainedFunction]]:
    """At most ``count`` functions that grew, the worst first, and as many that shrank, the best first."""
    grown = sorted((one for one in found.functions if one.change > 0), key=lambda one: (-one.change, one.function))
    shrunk = sorted((one for one in found.functions if one.change < 0), key=lambda one: (one.change, one.function))
    return grown[:count], shrunk[:count]


def call_tree(found: Explanation, function: ExplainedFunction) -> list[TreeLine]:
    """The differences of the function's component that are in it, in what it has inlined, or in calls of it.

    Where there are none, all of the component, those of the function's callers first. A call that is no difference is
    there if it is inlined on either side and has a difference below. A function is opened once.
    """
    if function.component is None:
        return []
    differ = [one for one in found.sites if one.component == function.component]
    below = _below(function.function, _opened(found, differ))
    inside = {one.site.site for one in below}
    calls = [one for one in differ if one.callee == function.function and one.site not in inside]
    if below or calls:
        return below + [TreeLine(depth=0, site=one, where="above") for one in calls]
    callers = {one.caller for one in found.sites if one.callee == function.function}
    differ.sort(key=lambda one: one.caller not in callers)
    return [TreeLine(depth=0, site=one, where="elsewhere") for one in differ]


def _opened(found: Explanation, differ: Sequence[ExplainedSite]) -> dict[str, list[ExplainedSite]]:
    """By caller, its differences, and one call of each function that it inlines and that leads to a difference."""
    inlined = [one for one in found.sites if one.plain or one.decided]
    above: dict[str, set[str]] = defaultdict(set)
    for one in inlined:
        above[one.callee].add(one.caller)
    leads = _closure({one.caller for one in differ}, above)
    of_caller: dict[str, list[ExplainedSite]] = defaultdict(list)
    for one in differ:
        of_caller[one.caller].append(one)
    seen = {(one.caller, one.callee) for one in differ}
    for one in inlined:
        if one.callee in leads and (one.caller, one.callee) not in seen:
            seen.add((one.caller, one.callee))
            of_caller[one.caller].append(one)
    return of_caller


def _below(root: str, of_caller: dict[str, list[ExplainedSite]]) -> list[TreeLine]:
    lines: list[TreeLine] = []
    opened = {root}
    todo = [(0, one) for one in reversed(of_caller.get(root, ()))]
    while todo:
        depth, site = todo.pop()
        lines.append(TreeLine(depth=depth, site=site))
        if site.callee not in opened and depth + 1 < MOST_DEPTH and (site.plain or site.decided):
            opened.add(site.callee)
            todo += [(depth + 1, one) for one in reversed(of_caller.get(site.callee, ()))]
    return _with_differences(lines)


def _closure(start: set[str], above: dict[str, set[str]]) -> set[str]:
    seen, todo = set(start), list(start)
    while todo:
        for caller in above.get(todo.pop(), ()):
            if caller not in seen:
                seen.add(caller)
                todo.append(caller)
    return seen


def _with_differences(lines: Sequence[TreeLine]) -> list[TreeLine]:
    """The lines that are differences or have one below: what was opened elsewhere already leads nowhere."""
    kept: list[TreeLine] = []
    wanted = -1
    for one in reversed(lines):
        if one.site.differs or one.depth == wanted - 1:
            kept.append(one)
            wanted = one.depth
        elif one.depth < wanted:
            wanted = one.depth
    return kept[::-1]
