"""Searches in short sessions: how far one comes in a second depends on the machine."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from mlgokit.commands import tune
from mlgokit.tune.result import Tuned

MOST_SESSIONS = 30
INLINING_ALONE: dict[str, Any] = {"allocation_share": 0.0, "pass_share": 0.0, "shipped_policies": "off"}
"""For tests of what is around a search: how a build is recorded, linked, tested and published, and how a session ends.
Each of the other kinds takes as long as inlining; whole searches are in the tests of what is found."""
INLINING_ALONE_WORDS = ("--allocation-share", "0", "--pass-share", "0", "--shipped-policies", "off")
Result = TypeVar("Result")


def search_until(is_enough: Callable[[Result], bool], session: Callable[[bool], Result]) -> Result:
    """Run sessions, ``session(go_on)``, until a result is enough; the caller asserts what it needs of the last one."""
    result = session(False)
    for _ in range(MOST_SESSIONS - 1):
        if is_enough(result):
            break
        result = session(True)
    return result


def tune_until(is_enough: Callable[[Tuned], bool], config: tune.Tune) -> Tuned:
    """Tune, and go on with the same budget until the result is enough."""
    return search_until(is_enough, lambda go_on: tune.run(dataclasses.replace(config, go_on=go_on)))


def is_smaller(tuned: Tuned) -> bool:
    """Whether the build is smaller than without the plugin."""
    return tuned.tuned_bytes < tuned.plain_bytes
