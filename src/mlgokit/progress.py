"""How long work tells its caller how far it is."""

from collections.abc import Callable

Report = Callable[[int, int, str], None]
"""Told the number of finished items, the number of all, and what is being done."""


def say_nothing(_done: int, _total: int, _label: str) -> None:
    """The report of a caller that wants none."""
