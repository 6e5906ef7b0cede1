"""A space: one kind of decisions that a project is tuned over, as the loop of every search sees it.

The loop (:mod:`mlgokit.tune.loop`) shares the budget out among units and keeps what it finds on disk. What a decision
is, how it is tried and what it is worth, only the space knows. What its table is and how that is verified is another
subject (:class:`mlgokit.tune.verify.Candidate`), and so is what a judge needs
(:class:`mlgokit.tune.judge.JudgedSpace`).
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


def recent_rate(rate: float, gained: float, seconds: float) -> float:
    """What a unit gained per second lately, after one more step; before the first one the rate is infinite.

    Example:
        >>> recent_rate(math.inf, 6.0, 2.0), recent_rate(1.0, 6.0, 2.0)
        (3.0, 2.0)
    """
    latest = gained / max(seconds, _LEAST_SECONDS)
    return latest if math.isinf(rate) else 0.5 * rate + 0.5 * latest


class Unit(Protocol):
    """What is compiled at once, with all that the search knows of it."""

    @property
    def module(self) -> Module:
        """What is compiled."""
        ...


class Step(Protocol):
    """What one step of the search did, as far as the loop counts it."""

    @property
    def compilations(self) -> int:
        """How many were made."""
        ...

    @property
    def trials(self) -> int:
        """How many variants were tried within them."""
        ...

    @property
    def user_seconds(self) -> float:
        """Processor time of both."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a search has reached.

    Attributes:
        value: bytes of the exact account, or costs; smaller is better.
        change: of that against the build before the search, such as -0.06.
    """

    value: float
    change: float


UnitT = TypeVar("UnitT", bound=Unit)
StepT = TypeVar("StepT", bound=Step)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingWork(Generic[UnitT, StepT]):
    """Work that must be done before a search pauses or ends, such as compiling a build that was only predicted.

    Attributes:
        unit: whose work it is.
        run: does it, in any thread.
        seconds: processor time that it is expected to take; the budget keeps so much back.
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
        """What is searched, in link order."""
        ...

    @property
    def score(self) -> Score:
        """What the search has reached."""
        ...

    @property
    def pending(self) -> Sequence[PendingWork[UnitT, StepT]]:
        """Work that must be done before the search pauses or ends."""
        ...

    def prepare(self, spent: float, seconds: float, rng: np.random.Generator, /) -> float:
        """Prepare for further steps after ``spent`` of the session's ``seconds``; gives the processor time it took."""
        ...

    def urgency(self, unit: UnitT, running: int, /) -> tuple[float, ...] | None:
        """The rank of a unit for its next step, the smallest first; ``None`` if it is to have none now.

        Its first number is minus what the unit gained lately, per second of processor time.

        Args:
            unit: one of :attr:`units`.
            running: how many steps of it are under way.
        """
        ...

    def propose(self, unit: UnitT, rng: np.random.Generator, is_over: IsOver, /) -> Callable[[], StepT]:
        """Propose the next step of a unit; all draws are from a child of ``rng``, or made before this returns."""
        ...

    def accept(self, unit: UnitT, step: StepT, /) -> None:
        """Take what a step found if the exact score is better, and keep it on disk."""
        ...

    def close(self) -> None:
        """End the compilers that stay between compilations."""
        ...


def pending_seconds(space: Space[UnitT, StepT]) -> float:
    """Processor time that the budget keeps back for pending work."""
    return sum(work.seconds for work in space.pending)
