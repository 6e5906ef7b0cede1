"""Where curves and their scales are drawn, in per cent of the plot."""

import math
from dataclasses import dataclass

from mlgokit.evaluation.page_parts import Curves

MOST_POINTS = 400
"""Points of a curve that are drawn; of more, every second, third and so on."""
MOST_MARKS = 40
"""Points up to which each gets a disc."""
_TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCurve:
    """One curve: its name, the path of its line, and that of its discs."""

    name: str
    line: str
    marks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A plot whose width and height are 100.

    Attributes:
        curves: what is drawn.
        across: place and label of each number at the bottom.
        up: place, from the top, and label of each number on the left.
    """

    curves: tuple[DrawnCurve, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]

    @property
    def widest(self) -> str:
        """The longest label on the left, which decides where the plot begins."""
        return max((text for _, text in self.up), key=len, default="")


def drawn(part: Curves) -> Drawn:
    """The plot of all points that are numbers."""
    kept = [(curve.name, [point for point in curve.points if all(map(math.isfinite, point))]) for curve in part.curves]
    points = [point for _, chosen in kept for point in chosen]
    left, right = _extent([x for x, _ in points])
    low, high = _extent([y for _, y in points])

    def place(point: tuple[float, float]) -> str:
        return f"{100 * (point[0] - left) / (right - left):.2f} {100 * (high - point[1]) / (high - low):.2f}"

    curves: list[DrawnCurve] = []
    for name, chosen in kept:
        step = max(1, -(-len(chosen) // MOST_POINTS))
        places = [place(point) for point in (*chosen[:-1:step], *chosen[-1:])]
        curves.append(
            DrawnCurve(
                name=name,
                line=f"M{'L'.join(places)}" if places else "",
                # A line of no length with round ends is a disc, whatever the plot's width and height are stretched to.
                marks="".join(f"M{one}h0" for one in places) if len(places) <= MOST_MARKS else "",
            )
        )
    return Drawn(
        curves=tuple(curves),
        across=tuple((100 * (tick - left) / (right - left), text) for tick, text in _ticks(left, right)),
        up=tuple((100 * (high - tick) / (high - low), text) for tick, text in _ticks(low, high)),
    )


def _extent(values: list[float]) -> tuple[float, float]:
    """From the least to the most; around a single value, a little of both sides."""
    least, most = min(values, default=0.0), max(values, default=1.0)
    if least == most:
        room = abs(least) / 10 or 1.0
        return least - room, most + room
    return least, most


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round numbers from ``low`` to ``high``, about five.

    Example:
        >>> _ticks(0, 1200)
        [(0, '0'), (250, '250'), (500, '500'), (750, '750'), (1000, '1,000')]
    """
    raw = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    digits = max(0, -math.floor(math.log10(step)) + (step / power == 2.5))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    found = [(number * step, f"{number * step:,.{digits}f}") for number in range(first, last + 1)]
    return [(round(tick) if tick == round(tick) else tick, text) for tick, text in found]
