"""The ``Advisor`` protocol, and the advisors that serve every problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

from numpy.typing import NDArray

from mlgokit.errors import UsageError
from mlgokit.traces import Header

Advice = int | float
"""An answer of an advisor: the number of a decision, or a real number where a problem asks for one."""


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
    """Does what the compiler's heuristic would do, which is the feature named ``feature``.

    Of a problem, that is its ``default_decision``. Over the interactive channel only inlining has it; what the
    heuristic did in register allocation is in the plugin's log, and :class:`ReplayContexts` repeats it.
    """

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
                "make the compiler send its default decision, or replay a log that has it"
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
class ReplayContexts:
    """Gives the decisions recorded for each context, by the observation's number there.

    Nothing depends on the order of the contexts, nor on one being entered twice or without an observation. A static
    function's name may occur in several modules: a recording is of one.

    Attributes:
        decisions: by context, such as :func:`mlgokit.advisors.recorded_decisions` gives them.
        afterwards: asked where there is no recorded decision.
    """

    decisions: Mapping[str, Sequence[Advice]]
    afterwards: Advisor | None = None

    def advise(self, observation: Observation) -> Advice:
        """The decision that was recorded for this observation.

        Raises:
            UsageError: there is none, and nobody is there to ask.
        """
        decisions = self.decisions.get(observation.context, ())
        if observation.index < len(decisions):
            return decisions[observation.index]
        if self.afterwards is None:
            raise UsageError(
                f"advisor ReplayContexts: observation {observation.index} of context {observation.context!r}: expected "
                f"at most {len(decisions)} decisions, found one more; "
                "replay with the compiler, module and options of the recording"
            )
        return self.afterwards.advise(observation)


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
