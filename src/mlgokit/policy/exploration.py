"""Exploration: how a policy's output becomes a decision, with the same random numbers as in the plugin.

docs/formats.md, "Exploration", has the arithmetic; the plugin computes the same, operation by operation.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlgokit.errors import UsageError

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
UNIT_BOUND = 16.0
"""Outputs of a priority policy ("unit numbers") beyond this bound have the same priority as the bound itself."""
PRIORITIES_PER_UNIT = 2.0**26
"""By how much a priority grows when the unit number grows by 1."""
LARGEST_PRIORITY = 2147483520.0
"""The largest 32-bit float below 2**31."""
FACTOR_BOUND = 8.0
"""Bound of the binary logarithm of the factor by which a live range's spill weight is multiplied."""
_SQRT_TWO_PI = 2.5066282746310002


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """How decisions depart from the policy's preference.

    Attributes:
        seed: seed of the random numbers; each module and repetition should have its own.
        temperature: spread of the distribution from which a decision is drawn, in the policy's units: logistic for yes
            or no, softmax over columns, Gaussian around a unit number; 0 follows the policy.
        flip_probability: probability that the drawn decision is then flipped: to the opposite, or to another column.
    """

    seed: int = 0
    temperature: float = 0.0
    flip_probability: float = 0.0


def mix_state(state: int) -> float:
    """Mix a state of SplitMix64 (Steele, Lea and Flood, 2014) to a number in [0, 1)."""
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return (z >> 11) * 2.0**-53


def context_seed(seed: int, problem: str, context: str) -> int:
    """Derive the seed of one function's stream, so that functions and problems of a compilation explore independently.

    It is ``seed`` XOR the low 64 bits of the MD5 of ``<problem>/<context>``; for the empty context, ``seed`` itself.

    Example:
        >>> hex(context_seed(1, "regalloc-eviction", "main"))
        '0xdd390a6dfed78555'
    """
    if not context:
        return seed & _MASK
    digest = hashlib.md5(f"{problem}/{context}".encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()
    return (seed & _MASK) ^ int.from_bytes(digest[:8], "little")


def exploration_draws(seed: int, index: int) -> tuple[float, float]:
    """Draw the two numbers in [0, 1) of observation ``index`` from the stream with this seed, without those before it.

    The stream is that of SplitMix64, as in the plugin's ``shared/Exploration.cpp``.

    The first chooses the decision, the second whether the decision is flipped; for a real number both make one draw.

    Example:
        >>> exploration_draws(0, 0)[0]
        0.8833108082136426
    """
    return mix_state((seed + (2 * index + 1) * _STEP) & _MASK), mix_state((seed + (2 * index + 2) * _STEP) & _MASK)


def decide_binary(preference: float, exploration: Exploration, choice: float, flip: float) -> tuple[bool, float]:
    """Decide yes or no by a preference; also returns the natural logarithm of the decision's probability.

    Example:
        >>> decide_binary(2.0, Exploration(), 0.5, 0.5)
        (True, 0.0)

    Args:
        preference: positive for yes, in the policy's units.
        exploration: how the decision may depart from the preference.
        choice: uniform random number in [0, 1) for the temperature.
        flip: uniform random number in [0, 1) for the flip.
    """
    if exploration.temperature > 0:
        scaled = preference / exploration.temperature
        chance = 1 / (1 + math.exp(-scaled)) if scaled > -700 else 0.0
        drawn = choice < chance
    else:
        chance = float(preference > 0)
        drawn = preference > 0
    decision = drawn != (flip < exploration.flip_probability)
    both = chance * (1 - exploration.flip_probability) + (1 - chance) * exploration.flip_probability
    return decision, _logarithm(both if decision else 1 - both)


def choose_column(
    logits: Sequence[float], mask: Sequence[float], exploration: Exploration, choice: float, flip: float
) -> tuple[int, float]:
    """Choose a column whose mask is not 0; also returns the natural logarithm of its probability.

    If every column is masked out, the last one is chosen: in LLVM the live range itself, so that nothing is evicted.

    Example:
        >>> choose_column([5.0, 1.0, 9.0, 9.0], [1, 1, 0, 1], Exploration(), 0.5, 0.5)
        (3, 0.0)
    """
    legal = [column for column, allowed in enumerate(mask) if allowed != 0]
    if not legal:
        return len(mask) - 1, 0.0
    largest = max(logits[column] for column in legal)
    if exploration.temperature > 0:
        shares = [math.exp((logits[column] - largest) / exploration.temperature) for column in legal]
    else:
        first = next(rank for rank, column in enumerate(legal) if logits[column] == largest)
        shares = [float(rank == first) for rank in range(len(legal))]
    total = 0.0
    for share in shares:
        total += share
    rank, reached = len(legal) - 1, 0.0
    for number, share in enumerate(shares):
        reached += share
        if choice * total < reached:
            rank = number
            break
    others, probability = len(legal) - 1, exploration.flip_probability
    if others and flip < probability:
        other = min(int(flip / probability * others), others - 1)
        rank = other + (other >= rank)
    chance = shares[rank] / total
    if others:
        chance = chance * (1 - probability) + (1 - chance) * probability / others
    return legal[rank], _logarithm(chance)


def priority_of(unit: float) -> float:
    """Turn a unit number (a policy's output) into a priority for LLVM, monotonically.

    A priority is a whole number from 0 to below 2**31 that a 32-bit float holds.

    Example:
        >>> [priority_of(unit) for unit in (-99.0, -15.5, 0.0, 99.0, float("nan"))]
        [0.0, 33554432.0, 1073741824.0, 2147483520.0, 1073741824.0]
    """
    bounded = 0.0 if math.isnan(unit) else min(max(unit, -UNIT_BOUND), UNIT_BOUND)
    return float(np.float32(min(float(math.floor((bounded + UNIT_BOUND) * PRIORITIES_PER_UNIT)), LARGEST_PRIORITY)))


def draw_priority(unit: float, exploration: Exploration, choice: float, flip: float) -> tuple[float, float]:
    """Draw a priority around a unit number; also returns the natural logarithm of the drawn unit number's density.

    The logarithm is 0 if the temperature is 0, as nothing is drawn then.

    Raises:
        UsageError: the exploration flips decisions, and a number has no opposite.

    Example:
        >>> draw_priority(0.25, Exploration(), 0.5, 0.5)
        (1090519040.0, 0.0)
    """
    drawn, density = _draw_unit(unit, exploration, choice, flip)
    return priority_of(drawn), density


def factor_of(unit: float) -> float:
    """Turn a unit number into the binary logarithm of a spill weight's factor: clipped, as a 32-bit float.

    Example:
        >>> [factor_of(unit) for unit in (-99.0, 0.5, 99.0, float("nan"))]
        [-8.0, 0.5, 8.0, 0.0]
    """
    return 0.0 if math.isnan(unit) else float(np.float32(min(max(unit, -FACTOR_BOUND), FACTOR_BOUND)))


def draw_factor(unit: float, exploration: Exploration, choice: float, flip: float) -> tuple[float, float]:
    """Draw the binary logarithm of a spill weight's factor around a unit number; also returns its log-density.

    Raises:
        UsageError: the exploration flips decisions, and a number has no opposite.

    Example:
        >>> draw_factor(-0.25, Exploration(), 0.5, 0.5)
        (-0.25, 0.0)
    """
    drawn, density = _draw_unit(unit, exploration, choice, flip)
    return factor_of(drawn), density


def _draw_unit(unit: float, exploration: Exploration, choice: float, flip: float) -> tuple[float, float]:
    """Draw from a Gaussian around a unit number; also returns the log-density, 0 if the temperature is 0."""
    if exploration.flip_probability > 0:
        raise UsageError(
            f"exploration of numbers: expected a flip probability of 0, found {exploration.flip_probability}; "
            "a number has no opposite, give a temperature"
        )
    if exploration.temperature <= 0:
        return unit, 0.0
    normal = math.sqrt(-2.0 * math.log(1.0 - choice)) * math.cos(2 * math.pi * flip)
    density = -0.5 * normal * normal - math.log(exploration.temperature * _SQRT_TWO_PI)
    return unit + exploration.temperature * normal, density


def _logarithm(probability: float) -> float:
    """Compute the natural logarithm, minus infinity for 0."""
    return math.log(probability) if probability > 0 else -math.inf
