"""What functions execute in a counted run of a program, and which functions are why another build executes more."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_ROUNDS = 1000
"""Calls of functions by each other that are followed; recursions need many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCosts:
    """What the functions of a run execute, by their symbols without the suffixes that compilers add.

    Attributes:
        own: instructions of each function, without its callees.
        calls: numbers of calls, by caller and callee.
    """

    own: Mapping[str, int]
    calls: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    @property
    def instructions(self) -> int:
        """Instructions of all functions."""
        return sum(self.own.values())


def symbol_of(name: str) -> str:
    """The symbol of a function without the depth of a recursion, and without what compilers add to a part of it.

    Example:
        >>> symbol_of("parse.cold'2"), symbol_of("(below main)")
        ('parse', '(below main)')
    """
    symbol = name.partition("'")[0]
    return symbol.partition(".")[0] or symbol


def changes_of_functions(plain: FunctionCosts, tuned: FunctionCosts, changed: Collection[str]) -> dict[str, float]:
    """The instructions that a run executes more in a tuned build, by the function whose code is why.

    A call costs its caller what the called function executes in the plain build, with all that it calls; a function
    then costs what its calls execute beyond that. So a function that has another one inlined is compared with its own
    code and the calls that it made. What remains of the calls of a function may be those that execute more than others;
    if its code did not change, that is due to the functions that call it less. The sum over all functions is the change
    of the run.

    Args:
        plain: the run of the plain build.
        tuned: the same run of the tuned build.
        changed: functions with other code in the tuned build.

    Example:
        >>> plain = FunctionCosts(own={"main": 10, "f": 40}, calls={("main", "f"): 4})
        >>> tuned = FunctionCosts(own={"main": 35, "f": 11}, calls={("main", "f"): 1})
        >>> changes_of_functions(plain, tuned, {"main", "f"})
        {'f': 1.0, 'main': -5.0}
        >>> changes_of_functions(plain, tuned, {"main"})
        {'f': 0.0, 'main': -4.0}
    """
    names = sorted({*plain.own, *tuned.own, *(name for run in (plain, tuned) for pair in run.calls for name in pair)})
    index_of = {name: index for index, name in enumerate(names)}
    before, after = (_Flow.of(run, index_of) for run in (plain, tuned))
    cost = before.costs_of_calls(after)
    change = dict(zip(names, (after.beyond(cost) - before.beyond(cost)).tolist(), strict=True))
    fewer: dict[str, dict[str, int]] = {}
    for (caller, callee), count in plain.calls.items():
        lost = count - tuned.calls.get((caller, callee), 0)
        if lost > 0 and caller in changed and callee not in changed:
            fewer.setdefault(callee, {})[caller] = lost
    for callee, lost_by in fewer.items():
        moved, change[callee] = change[callee], 0.0
        for caller, lost in lost_by.items():
            change[caller] += moved * lost / sum(lost_by.values())
    return change


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Flow:
    """A run as arrays; F functions, E pairs of callers and callees.

    Attributes:
        own: [F] instructions of each function.
        entered: [F] numbers of calls of each.
        caller: [E] callers.
        callee: [E] callees.
        count: [E] numbers of calls.
    """

    own: Floats
    entered: Floats
    caller: npt.NDArray[np.int64]
    callee: npt.NDArray[np.int64]
    count: Floats

    @classmethod
    def of(cls, run: FunctionCosts, index_of: Mapping[str, int]) -> "_Flow":
        pairs = [(index_of[caller], index_of[callee]) for caller, callee in run.calls]
        caller, callee = np.array(pairs, np.int64).reshape(-1, 2).T
        count = np.array(list(run.calls.values()), np.float64)
        return cls(
            own=np.array([run.own.get(name, 0) for name in index_of], np.float64),
            entered=np.bincount(callee, count, len(index_of)).astype(np.float64),
            caller=caller,
            callee=callee,
            count=count,
        )

    def costs_of_calls(self, other: "_Flow") -> Floats:
        """What one call of each function [F] executes with all that it calls; as in ``other`` if none is made here."""
        known = self.entered > 0
        cost = np.zeros(len(self.own))
        for _ in range(_ROUNDS):
            each = [one.within(cost) / np.maximum(one.entered, 1.0) for one in (self, other)]
            before, cost = cost, np.where(known, *each)
            if np.allclose(before, cost, rtol=1e-9, atol=1e-6):
                break
        return cost

    def beyond(self, cost: Floats) -> Floats:
        """What each function [F] executes beyond the ``cost`` [F] of a call of it, with its calls at their cost."""
        return self.within(cost) - self.entered * cost

    def within(self, cost: Floats) -> Floats:
        """What each function [F] executes in all its calls, with what it calls at the ``cost`` [F] of a call."""
        return self.own + np.bincount(self.caller, self.count * cost[self.callee], len(self.own))
