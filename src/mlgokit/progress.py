"""The callback by which long-running work reports its progress."""

from collections.abc import Callable

Report = Callable[[int, int, str], None]
"""A function that is called with the number of finished items, their total number, and a label of the work."""


def say_nothing(_done: int, _total: int, _label: str) -> None:
    """Ignore progress."""
