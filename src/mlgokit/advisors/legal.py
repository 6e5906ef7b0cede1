"""Legal advice: checks, repairs, and advisors that choose among the legal decisions.

Advice that LLVM does not expect is undefined behaviour in a release build: a masked-out column becomes a register
that is not free (``llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp`` only asserts), and any priority is converted to an
unsigned integer (``llvm/lib/CodeGen/MLRegAllocPriorityAdvisor.cpp``).
"""

import contextlib
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from mlgokit.advisors.advisor import Advice, Advisor, Observation
from mlgokit.errors import UsageError
from mlgokit.problems import Problem
from mlgokit.spec import AdviceKind

LARGEST_LEGAL_PRIORITY = 4294967040.0
"""The largest 32-bit float below 2**32."""


def legal_columns(problem: Problem, observation: Observation) -> list[int]:
    """List the columns that may be chosen, ascending; there is always at least one.

    If the compiler masks every column out, the last one is legal: it stands for the live range that asks for a
    register, so that nothing is evicted.

    Raises:
        UsageError: the observation has no mask.
    """
    mask = observation.values.get(problem.mask or "")
    if mask is None:
        raise UsageError(
            f"{problem.name}: expected a feature {problem.mask!r} that says which candidates (columns) may be chosen, "
            f"found {', '.join(observation.values)}; give the observation to an advisor for its own problem"
        )
    columns: list[int] = np.flatnonzero(mask.ravel()).tolist()
    return columns or [mask.size - 1]


def advice_defect(problem: Problem, observation: Observation, advice: Advice) -> str | None:
    """Describe why ``advice`` is not legal, as "expected …, found …"; ``None`` if it is legal."""
    match problem.advice_kind:
        case AdviceKind.BINARY:
            return None if advice in (0, 1) else f"expected 0 or 1, found {advice!r}"
        case AdviceKind.MASKED_CHOICE:
            columns = legal_columns(problem, observation)
            return None if advice in columns else f"expected one of the columns {columns}, found {advice!r}"
        case AdviceKind.REAL:
            sent = math.nan
            with contextlib.suppress(OverflowError, TypeError, ValueError), np.errstate(over="ignore"):
                sent = float(np.float32(advice))
            if 0 <= sent <= LARGEST_LEGAL_PRIORITY:
                return None
            return f"expected a number from 0 to {LARGEST_LEGAL_PRIORITY:.0f}, found {advice!r}"


def check_advice(problem: Problem, observation: Observation, advice: Advice) -> None:
    """Check advice before it is sent over the interactive channel.

    Raises:
        UsageError: the advice is not legal.
    """
    defect = advice_defect(problem, observation, advice)
    if defect is not None:
        raise UsageError(
            f"advice {problem.decision!r}: observation {observation.index} of context {observation.context!r}: "
            f"{defect}; use an advisor that is made for this problem, or wrap it in Legal"
        )


@final
@dataclass(slots=True)
class Legal:
    """Asks another advisor, and replaces advice that is not legal.

    A column that may not be chosen becomes the first that may. A priority that is NaN or negative becomes 0, one that
    is too large the largest. Yes or no: NaN becomes 0, any other number than 0 becomes 1.

    Attributes:
        advisor: advisor that is asked.
        problem: problem that says what is legal.
        repairs: number of decisions so far that were not legal.
    """

    advisor: Advisor
    problem: Problem
    repairs: int = 0

    def advise(self, observation: Observation) -> Advice:
        """Return the wrapped advisor's decision, or a legal one in place of one that is not."""
        advice = self.advisor.advise(observation)
        if advice_defect(self.problem, observation, advice) is None:
            return advice
        self.repairs += 1
        match self.problem.advice_kind:
            case AdviceKind.BINARY:
                return int(not math.isnan(advice) and advice != 0)
            case AdviceKind.MASKED_CHOICE:
                return legal_columns(self.problem, observation)[0]
            case AdviceKind.REAL:
                return LARGEST_LEGAL_PRIORITY if advice > 0 else 0.0


@final
@dataclass(frozen=True, slots=True)
class RandomLegal:
    """Draws a legal decision uniformly; one draw from ``rng`` per decision.

    Attributes:
        problem: problem that says what is legal.
        rng: generator of the draws.
        largest_priority: bound of the drawn priorities, which are whole numbers from 0 to this, exclusive.
    """

    problem: Problem
    rng: np.random.Generator
    largest_priority: int = 2**24

    def advise(self, observation: Observation) -> Advice:
        """Draw a legal decision, each with the same probability."""
        match self.problem.advice_kind:
            case AdviceKind.BINARY:
                return int(self.rng.integers(2))
            case AdviceKind.MASKED_CHOICE:
                columns = legal_columns(self.problem, observation)
                return columns[int(self.rng.integers(len(columns)))]
            case AdviceKind.REAL:
                return float(self.rng.integers(self.largest_priority))
