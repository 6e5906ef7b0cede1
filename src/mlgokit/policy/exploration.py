"""Exploration: the decision that a preference leads to, with the plugin's own random numbers."""

import math
from dataclasses import dataclass

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """How decisions depart from the policy's preference.

    Attributes:
        seed: of the random numbers; each module and repetition should have its own.
        temperature: of the logistic from which a decision is drawn; 0 follows the preference.
        flip_probability: probability that a decision is turned round after that.
    """

    seed: int = 0
    temperature: float = 0.0
    flip_probability: float = 0.0


class UniformStream:
    """SplitMix64 (Steele, Lea and Flood, 2014), as in the plugin's ``Advisor.cpp``: numbers in [0, 1).

    Example:
        >>> UniformStream(0).next()
        0.8833108082136426
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        """Start the stream at ``seed``."""
        self._state = seed & _MASK

    def next(self) -> float:
        """The next number."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
        return (mixed >> 11) * 2.0**-53


def decide(preference: float, exploration: Exploration, stream: UniformStream) -> tuple[bool, float]:
    """The decision and the natural logarithm of its probability.

    Example:
        >>> decide(2.0, Exploration(), UniformStream(0))
        (True, 0.0)
    """
    choice, flip = stream.next(), stream.next()
    if exploration.temperature > 0:
        scaled = preference / exploration.temperature
        chance = 1 / (1 + math.exp(-scaled)) if scaled > -700 else 0.0
        drawn = choice < chance
    else:
        chance = float(preference > 0)
        drawn = preference > 0
    decision = drawn != (flip < exploration.flip_probability)
    both = chance * (1 - exploration.flip_probability) + (1 - chance) * exploration.flip_probability
    probability = both if decision else 1 - both
    return decision, math.log(probability) if probability > 0 else -math.inf
