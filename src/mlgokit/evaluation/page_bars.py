"""Bars of what each of many adds to a whole."""

from collections.abc import Sequence

from mlgokit.evaluation.page_parts import Bar, Bars
from mlgokit.evaluation.sentences import percent

MOST_BARS = 40
"""How many have a bar of their own."""


def waterfall(
    title: str, columns: tuple[str, str], steps: Sequence[tuple[str, float, float]], what: str
) -> Bars | None:
    """Bars that begin where the one above ends, and the sum; nothing without steps.

    Args:
        title: its heading.
        columns: of the names, and of the numbers.
        steps: name, difference, and relative change of each.
        what: what differs, in words.
    """
    if not steps:
        return None
    by_size = sorted(steps, key=lambda step: -abs(step[1]))
    shown, others = sorted(by_size[:MOST_BARS], key=lambda step: step[1]), by_size[MOST_BARS:]
    bars: list[Bar] = []
    place = 0.0
    for name, difference, change in shown:
        bars.append(
            Bar(name=name, start=place, end=place + difference, text=f"{_signed(difference)} ({percent(change)})")
        )
        place += difference
    if others:
        more = sum(step[1] for step in others)
        bars.append(Bar(name=f"{len(others):,} others", start=place, end=place + more, text=_signed(more)))
        place += more
    bars.append(Bar(name="all", start=0, end=place, text=_signed(place), is_sum=True))
    return Bars(
        title=title,
        columns=columns,
        bars=tuple(bars),
        note=f"{what}, after less before. Each bar begins where the one above it ends; to the left is smaller, and "
        "hatched is larger.",
    )


def _signed(difference: float) -> str:
    return f"{difference:+,.0f}" if round(difference) else "0"
