"""Two builds measured in turn, in pairs, until an interval decides or enough pairs were made.

The order within a pair alternates, so that a slow drift of the machine hits both alike. The interval is looked at after
a few numbers of pairs only, each time at its part of the allowed error (Bonferroni), so that looking often does not
make chance look like an effect.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from mlgokit.evaluation.statistics import mean_interval

LOOKS = (4, 6, 8, 12, 20)
"""Pairs after which the interval is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """What was measured.

    Attributes:
        before: numbers of the first build, one for each pair.
        after: numbers of the second.
        low: lower end of the interval of the mean difference, after less before; minus infinity before the first look.
        high: its upper end.
        reason: why a measurement gave no number, or empty.
    """

    before: tuple[float, ...] = ()
    after: tuple[float, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    reason: str = ""


def measure_in_pairs(
    once: Callable[[int], float | str],
    *,
    is_over: Callable[[], bool],
    error: float,
    looks: tuple[int, ...] = LOOKS,
    near: float = 0.0,
    ratios: bool = False,
    last_look: bool = False,
) -> Pairs:
    """Measure two builds in pairs.

    Args:
        once: measures build 0 or 1, and gives its number, or why there is none.
        is_over: asked between pairs whether there is no time for another.
        error: share of comparisons that may by chance call two builds different that are not.
        looks: numbers of pairs after which the interval is looked at; the last one is the most that are measured.
        near: an interval within this reach of zero decides as well: the two are as good as equal.
        last_look: look at the interval also when the time is over, from two pairs on; for numbers that are not rounded,
            as a few that are may agree by chance.
        ratios: compare logarithms, so that the interval is of the relative change; all numbers must be positive.

    Example:
        >>> found = measure_in_pairs(lambda build: (10.0, 8.0)[build], is_over=lambda: False, error=0.05, ratios=True)
        >>> len(found.before), round(found.low, 6), round(found.high, 6)
        (4, -0.2, -0.2)
    """
    values: tuple[list[float], list[float]] = ([], [])
    low, high = -math.inf, math.inf
    while True:
        pair = len(values[0])
        for build in (0, 1) if pair % 2 == 0 else (1, 0):
            found = once(build)
            if isinstance(found, str):
                return Pairs(before=tuple(values[0][:pair]), after=tuple(values[1][:pair]), reason=found)
            values[build].append(found)
        over = is_over()
        # The last look takes the place of one that is not reached, so that the error is the same.
        if (pairs := pair + 1) in looks or (over and last_look and pairs > 1):
            differences = [
                math.log(second) - math.log(first) if ratios else second - first
                for first, second in zip(*values, strict=True)
            ]
            low, high = mean_interval(differences, level=1 - error / len(looks))
            if ratios:
                low, high = math.expm1(low), math.expm1(high)
            if high < 0 or low > 0 or low == high or (-near <= low and high <= near) or pairs == looks[-1]:
                break
        if over:
            break
    return Pairs(before=tuple(values[0]), after=tuple(values[1]), low=low, high=high)
