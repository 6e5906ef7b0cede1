"""A space: one kind of decisions that a project is tuned over, as the engine sees it.

The engine (:mod:`mlgokit.tune.search`, :mod:`mlgokit.tune.verify`) shares time out among units, keeps what is found on
disk and verifies it. What a decision is, how it is tried and what its score is, a space alone knows.
"""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.request import Compiler
from mlgokit.module import Module

if TYPE_CHECKING:
    from mlgokit.tune.verify import VerifiedBuild

IsOver = Callable[[], bool]
"""Whether the budget is spent."""
_WORTH_A_PASS = 5e-4
"""A pass over all moves that saves less than this share of a unit is the last one, unless a restart saves more."""
_LEAST_SECONDS = 1e-3


def recent_rate(rate: float, gained: float, seconds: float) -> float:
    """What a unit gained per second lately, after one more step; before the first one the rate is infinite.

    Example:
        >>> recent_rate(math.inf, 6.0, 2.0), recent_rate(1.0, 6.0, 2.0)
        (3.0, 2.0)
    """
    found = gained / max(seconds, _LEAST_SECONDS)
    return found if math.isinf(rate) else 0.5 * rate + 0.5 * found


def was_last_pass(before: float, now: float) -> bool:
    """Whether a pass over all moves of a unit, from ``before`` to ``now`` bytes, saved too little for another one.

    Example:
        >>> was_last_pass(10_000.0, 9_999.0), was_last_pass(10_000.0, 9_990.0)
        (True, False)
    """
    return now >= before - _WORTH_A_PASS * abs(before)


class Unit(Protocol):
    """What is compiled at once, with all that the search knows of it."""

    @property
    def module(self) -> Module:
        """What is compiled."""
        ...


class Step(Protocol):
    """What one step of the search did, as far as the engine counts it."""

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


UnitT = TypeVar("UnitT", bound=Unit)
StepT = TypeVar("StepT", bound=Step)


class Space(Protocol[UnitT, StepT]):
    """One kind of decisions of one project.

    All methods but the work that :meth:`propose` and :meth:`unsettled` return are called by one thread at a time, the
    engine's. That work runs in other threads, one at a time for each unit, or as many as :meth:`admits` says: what it
    finds is entered in the order in which it ends, whatever was entered since it was proposed.
    """

    @property
    def units(self) -> Sequence[UnitT]:
        """What is searched, in link order."""
        ...

    @property
    def failures(self) -> Mapping[str, str]:
        """Modules that the compiler does not compile, with the reason."""
        ...

    @property
    def label(self) -> str:
        """What progress is called."""
        ...

    @property
    def standing(self) -> tuple[float, float]:
        """The score so far, smaller being better; and its change against the plain build, such as -0.06."""
        ...

    @property
    def owed(self) -> float:
        """Processor seconds of the work that :meth:`unsettled` has; the budget keeps them back."""
        ...

    def begin(self, seconds: float, /) -> None:
        """A session of so many seconds begins."""
        ...

    def learn(self, spent: float, rng: np.random.Generator, /) -> float:
        """Learn from what was measured, if that is due after so many seconds; gives the processor time it took."""
        ...

    def urgency(self, unit: UnitT) -> tuple[float, ...] | None:
        """The place of a unit among the idle ones, the smallest first; ``None`` if nothing is left to try in it.

        Its first number is minus what the unit gained lately, per second of processor time.
        """
        ...

    def admits(self, unit: UnitT, running: int) -> bool:
        """Whether a step of a unit may begin beside so many others of it that are under way, for an idle worker."""
        ...

    def propose(self, unit: UnitT, rng: np.random.Generator, is_over: IsOver, /) -> Callable[[], StepT]:
        """The next step of a unit: moves, compiled or tried; what is drawn before it runs, is drawn here."""
        ...

    def unsettled(self) -> Sequence[tuple[UnitT, Callable[[], StepT]]]:
        """Work that must be done before the search may rest, such as compiling what was only predicted."""
        ...

    def accept(self, unit: UnitT, step: StepT) -> None:
        """Enter what a step found if the exact account says that it is better, and keep it on disk."""
        ...

    def rest(self) -> None:
        """End what runs on between compilations."""
        ...

    @property
    def table(self) -> str:
        """The name of the table in the plugin, one of :data:`mlgokit.tables.file.TABLES`."""
        ...

    def entries(self) -> Collection[Hashable]:
        """What the search would have in the table; each entry can be put back by itself."""
        ...

    def write_table(self, path: Path, kept: Collection[Hashable]) -> None:
        """Write the table with these entries.

        Raises:
            StorageError: the disk is full or not writable.
        """
        ...

    def refused(
        self, before: "VerifiedBuild", after: "VerifiedBuild", kept: Collection[Hashable]
    ) -> dict[str, tuple[Collection[Hashable], str]]:
        """By module, entries that are to be put back by what was compiled before and after, and why."""
        ...

    def objection(self, before: "VerifiedBuild", after: "VerifiedBuild") -> str:
        """Why the whole is not better with the table than before; empty if it is."""
        ...


class JudgedSpace(Protocol):
    """What a judge asks of a space whose units have builds that can be judged one by one."""

    @property
    def units(self) -> Sequence[Any]:
        """What is searched, in link order."""
        ...

    @property
    def compiler(self) -> Compiler:
        """Compiles."""
        ...

    def best(self, unit: Any) -> Compilation | None:
        """The best build of a unit; ``None`` if that is the plain one."""
        ...

    def saved(self, unit: Any, build: Compilation | None) -> float:
        """Bytes that a build saves against the plain one, which ``None`` is, by the account."""
        ...

    def is_same(self, first: Compilation, second: Compilation) -> bool:
        """Whether two builds of a unit have the same decisions."""
        ...

    def compile_again(self, unit: Any, build: Compilation, path: Path) -> Compilation:
        """Compile a unit by the decisions of a build, and keep the object."""
        ...

    def save_build(self, build: Compilation, path: Path) -> None:
        """Keep the decisions of a build."""
        ...

    def load_build(self, unit: Any, path: Path, keep_object: Path) -> Compilation | None:
        """Compile a unit by decisions that were kept; ``None`` if there are none."""
        ...

    def take_back(self, unit: Any, accepted: Compilation | None, refused: Compilation) -> float:
        """Go on from what was accepted, and not make the same moves again at once; gives processor seconds."""
        ...

    def conclude(self, accepted: Mapping[str, Compilation]) -> None:
        """Take what was accepted for the result, and all other units as plain."""
        ...
