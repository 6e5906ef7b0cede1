"""Who decides: the ``Advisor`` protocol, and the advisors that need no policy.

An advisor that does more than another wraps it: ``Recording(Exploring(Echo(), rng, probability=0.1))``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from mlgokit.errors import UsageError
from mlgokit.traces import Header

Advice = int | float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """What the compiler tells before one decision.

    Attributes:
        header: of the log or channel that the observation belongs to.
        values: the features by name, each of its declared shape.
        context: the function, or empty for a problem that decides per module.
        index: number of the observation in its context.
    """

    header: Header
    values: Mapping[str, NDArray[Any]]
    context: str
    index: int


class Advisor(Protocol):
    """Anything that decides."""

    def advise(self, observation: Observation) -> Advice:
        """The decision: 0 or 1, a column with mask 1, or a real number, as the problem's kind of advice says."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Echo:
    """Does what the compiler's heuristic would do, which is the feature named ``feature``."""

    feature: str = "inlining_default"

    def advise(self, observation: Observation) -> Advice:
        """The feature's value.

        Raises:
            UsageError: the compiler does not send the feature.
        """
        value = observation.values.get(self.feature)
        if value is None:
            raise UsageError(
                f"advisor Echo: expected a feature {self.feature!r}, found {', '.join(observation.values)}; "
                "make the compiler send its default decision"
            )
        return value.item()


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """Always decides the same."""

    advice: Advice

    def advise(self, observation: Observation) -> Advice:  # noqa: ARG002
        """The constant."""
        return self.advice


@final
@dataclass(slots=True)
class Replay:
    """Gives recorded decisions in their order, then asks the advisor ``afterwards`` if there is one."""

    decisions: Sequence[Advice]
    afterwards: Advisor | None = None
    position: int = 0

    def advise(self, observation: Observation) -> Advice:
        """The next recorded decision.

        Raises:
            UsageError: the recording is over and nobody is there to ask.
        """
        if self.position < len(self.decisions):
            self.position += 1
            return self.decisions[self.position - 1]
        if self.afterwards is None:
            raise UsageError(
                f"advisor Replay: observation {observation.index} of context {observation.context!r}: expected at most "
                f"{len(self.decisions)} decisions, found one more; "
                "replay with the compiler, module and options of the recording"
            )
        return self.afterwards.advise(observation)


@final
@dataclass(frozen=True, slots=True)
class RandomChoice:
    """Decides 1 with a probability, else 0; one draw from ``rng`` per decision."""

    rng: np.random.Generator
    probability: float = 0.5

    def advise(self, observation: Observation) -> Advice:  # noqa: ARG002
        """The drawn decision."""
        return int(self.rng.random() < self.probability)


@final
@dataclass(frozen=True, slots=True)
class Exploring:
    """Does the opposite of another advisor's 0 or 1 with a probability; one draw from ``rng`` per decision."""

    advisor: Advisor
    rng: np.random.Generator
    probability: float

    def advise(self, observation: Observation) -> Advice:
        """The decision, possibly flipped.

        Raises:
            UsageError: the advisor's decision is not 0 or 1.
        """
        advice = self.advisor.advise(observation)
        if advice not in (0, 1):
            raise UsageError(
                f"advisor Exploring: expected 0 or 1 from {type(self.advisor).__name__}, found {advice!r}; "
                "wrap an advisor of a binary problem"
            )
        return 1 - advice if self.rng.random() < self.probability else advice


@final
@dataclass(slots=True)
class Recording:
    """Keeps what another advisor was asked and what it decided."""

    advisor: Advisor
    observations: list[Observation] = field(default_factory=list[Observation])
    decisions: list[Advice] = field(default_factory=list[Advice])

    def advise(self, observation: Observation) -> Advice:
        """The other advisor's decision."""
        advice = self.advisor.advise(observation)
        self.observations.append(observation)
        self.decisions.append(advice)
        return advice
