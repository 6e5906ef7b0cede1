"""Advisors, which make the compiler's decisions in Python: the protocol, and the advisors that need no policy.

An advisor that does more than another wraps it: ``Recording(Legal(Constant(0), problem))``.
"""

from mlgokit.advisors.advisor import Advice, Advisor, Constant, Echo, Observation, Recording, ReplayContexts
from mlgokit.advisors.legal import (
    Legal,
    RandomLegal,
    advice_defect,
    check_advice,
    legal_columns,
)
from mlgokit.advisors.recorded import default_decisions, dense_ranks, recorded_decisions

__all__ = [
    "Advice",
    "Advisor",
    "Constant",
    "Echo",
    "Legal",
    "Observation",
    "RandomLegal",
    "Recording",
    "ReplayContexts",
    "advice_defect",
    "check_advice",
    "default_decisions",
    "dense_ranks",
    "legal_columns",
    "recorded_decisions",
]
