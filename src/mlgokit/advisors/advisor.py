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
    """The features that the compiler sends for one decision.

    Attributes:
        header: header of the log or channel that the observation belongs to.
        values: features by name, each of its declared shape.
        context: name of the function; empty for a problem whose context is the module.
        index: number of the observation in its context.
    """

    header: Header
    values: Mapping[str, NDArray[Any]]
    context: str
    index: int


class Advisor(Protocol):
    """Makes decisions for the compiler."""

    def advise(self, observation: Observation) -> Advice:
        """Decide: 0 or 1, a column with mask 1, or a real number, according to the problem's kind of advice."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Echo:
    """Decides as the compiler's heuristic, whose decision is the feature named ``feature``.

    That feature is the problem's ``default_decision``. Over the interactive channel only inlining has it. In register
    allocation the heuristic's decisions are in the plugin's log, and :class:`ReplayContexts` repeats them.
    """

    feature: str = "inlining_default"

    def advise(self, observation: Observation) -> Advice:
        """Return the feature's value.

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
    """Gives the same advice at every decision."""

    advice: Advice

    def advise(self, observation: Observation) -> Advice:  # noqa: ARG002
        """Return the constant."""
        return self.advice


@final
@dataclass(frozen=True, slots=True)
class ReplayContexts:
    """Repeats the decisions recorded for each context, by the observation's number in the context.

    The order of the contexts does not matter, nor whether one is entered twice or without an observation. A recording
    is of one module, as a static function's name may occur in several.

    Attributes:
        decisions: decisions by context, as from :func:`mlgokit.advisors.recorded_decisions`.
        afterwards: advisor that is asked where there is no recorded decision.
    """

    decisions: Mapping[str, Sequence[Advice]]
    afterwards: Advisor | None = None

    def advise(self, observation: Observation) -> Advice:
        """Return the decision that was recorded for this observation.

        Raises:
            UsageError: no decision was recorded, and there is no advisor ``afterwards``.
        """
        decisions = self.decisions.get(observation.context, ())
        if observation.index < len(decisions):
            return decisions[observation.index]
        if self.afterwards is None:
            raise UsageError(
                f"advisor ReplayContexts: observation {observation.index} of context {observation.context!r}: "
                f"expected at most {len(decisions)} questions, one for each recorded decision, found one more; "
                "replay with the compiler, module and options of the recording"
            )
        return self.afterwards.advise(observation)


@final
@dataclass(slots=True)
class Recording:
    """Asks another advisor, and keeps its observations and its decisions."""

    advisor: Advisor
    observations: list[Observation] = field(default_factory=list[Observation])
    decisions: list[Advice] = field(default_factory=list[Advice])

    def advise(self, observation: Observation) -> Advice:
        """Return the wrapped advisor's decision, and keep it with its observation."""
        advice = self.advisor.advise(observation)
        self.observations.append(observation)
        self.decisions.append(advice)
        return advice
