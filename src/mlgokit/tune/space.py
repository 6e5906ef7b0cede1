"""A space: one kind of decisions that a project is tuned over, as the loop of every search sees it.

The loop (:mod:`mlgokit.tune.loop`) divides the budget among units and saves their outcomes. Only the space knows what a
decision is, how it is tried and what it is worth. Its table and the verification of that are the subject of
:class:`mlgokit.tune.verify.Candidate`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from mlgokit.module import Module

IsOver = Callable[[], bool]
"""Whether the budget is spent."""
_LEAST_SECONDS = 1e-3
_EXPECTED = 0.02
"""Share of its executed instructions that a first step is expected to save in a unit."""


def recent_rate(rate: float, gained: float, seconds: float) -> float:
    """Update the gain per second of a unit with one more step; before the first step the rate is infinite.

    Example:
        >>> recent_rate(math.inf, 6.0, 2.0), recent_rate(1.0, 6.0, 2.0)
        (3.0, 2.0)
    """
    latest = gained / max(seconds, _LEAST_SECONDS)
    return latest if math.isinf(rate) else 0.5 * rate + 0.5 * latest


def expected_rate(worth: float, seconds: float) -> float:
    """The gain per second to expect of a unit before its first step, if its instructions are worth so many bytes.

    Example:
        >>> expected_rate(1000.0, 2.0)
        10.0
    """
    return _EXPECTED * worth / max(seconds, _LEAST_SECONDS)


class Unit(Protocol):
    """A module in a search, with all that the search knows of it."""

    @property
    def module(self) -> Module:
        """The module that is compiled."""
        ...


class Step(Protocol):
    """The outcome of one step of the search, as far as the loop counts it."""

    @property
    def compilations(self) -> int:
        """Number of compilations."""
        ...

    @property
    def trials(self) -> int:
        """Number of variants that were tried within them."""
        ...

    @property
    def user_seconds(self) -> float:
        """Processor time of compilations and trials."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The value of the best builds that a search has found so far.

    Attributes:
        value: bytes of the exact account, or costs; smaller is better.
        change: relative change of the value against the build before the search, such as -0.06.
    """

    value: float
    change: float


UnitT = TypeVar("UnitT", bound=Unit)
StepT = TypeVar("StepT", bound=Step)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingWork(Generic[UnitT, StepT]):
    """Work that must be done before a search pauses or ends, such as compiling a build that was only predicted.

    Attributes:
        unit: the unit that the work is for.
        run: function that does the work, in any thread.
        seconds: processor time that it is expected to take, which is reserved in the budget.
    """

    unit: UnitT
    run: Callable[[], StepT]
    seconds: float


class Space(Protocol[UnitT, StepT]):
    """One kind of decisions of one project.

    The loop calls all methods from one thread, except that steps ask for :attr:`pending` to know whether the budget is
    spent. The work that :meth:`propose` and :attr:`pending` give runs in other threads; its outcomes are accepted in
    the order in which they end, whatever was accepted since they were proposed.
    """

    @property
    def units(self) -> Sequence[UnitT]:
        """The units of the search, in link order."""
        ...

    @property
    def score(self) -> Score:
        """The objective of the best builds so far, in bytes or cost, and its change since before the search."""
        ...

    @property
    def pending(self) -> Sequence[PendingWork[UnitT, StepT]]:
        """Work that must be done before the search pauses or ends."""
        ...

    def prepare(self, spent: float, seconds: float, rng: np.random.Generator, /) -> float:
        """Prepare for further steps, after ``spent`` of the session's ``seconds``; return its processor time."""
        ...

    def urgency(self, unit: UnitT, running: int, /) -> tuple[float, ...] | None:
        """The rank of a unit for its next step, the smallest first; ``None`` if it takes no step now.

        The first number is minus the unit's recent gain per second of processor time.

        Args:
            unit: one of :attr:`units`.
            running: number of the unit's steps that are under way.
        """
        ...

    def step_seconds(self, unit: UnitT, /) -> float:
        """Processor time that the next step of a unit takes at least."""
        ...

    def propose(self, unit: UnitT, rng: np.random.Generator, is_over: IsOver, /) -> Callable[[], StepT]:
        """Return the work of a unit's next step; all draws are from a child of ``rng``, or made before this returns."""
        ...

    def accept(self, unit: UnitT, step: StepT, /) -> None:
        """Adopt the build of a step if the exact score is better, and save the unit's progress."""
        ...

    def close(self) -> None:
        """End resident compilers."""
        ...


def pending_seconds(space: Space[UnitT, StepT]) -> float:
    """Processor time that is reserved in the budget for pending work."""
    return sum(work.seconds for work in space.pending)
