"""How long-running work reports its progress."""

from collections.abc import Callable

Report = Callable[[int, int, str], None]
"""Called with the number of finished items, their total, and what is being done."""


def say_nothing(_done: int, _total: int, _label: str) -> None:
    """The report of a caller that wants none."""
