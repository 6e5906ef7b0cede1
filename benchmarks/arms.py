"""Arms of a benchmark that take minutes each: what is finished is kept, and a call makes some of the missing ones."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import kept_row
from timing import spent

from mlgokit.progress import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One thing to measure, with a seed: ``run`` gives what it found, as plain JSON values."""

    name: str
    seed: int
    run: Callable[[], dict[str, Any]]


def finished_arms(
    folder: Path, arms: Sequence[Arm], *, of: Mapping[str, Any], most: int, report: Report
) -> list[dict[str, Any]]:
    """The rows of all arms that are finished, in their order, after ``most`` of the missing ones were made.

    Args:
        folder: where a finished arm is a file.
        arms: all of them.
        of: what their rows depend on.
        most: of the missing ones; 0 for all, below 0 for none.
        report: told before each.
    """
    made = 0
    found: list[dict[str, Any]] = []
    for arm in arms:
        path = folder / f"{file_name(arm.name)}-{arm.seed}.json"
        if not path.exists():
            if most and made >= most:
                continue
            report(made, len(arms), "arms")
            made += 1
        found.append(kept_row(path, functools.partial(_measured, arm), of=of))
    return found


def file_name(arm: str) -> str:
    """The name of an arm in paths.

    Example:
        >>> file_name("ppo:reference after cloning")
        'ppo-reference-after-cloning'
    """
    return re.sub(r"[^a-z0-9]+", "-", arm)


def mean_of(arms: Sequence[dict[str, Any]], name: str) -> float | None:
    """Mean of a fact that not all arms have."""
    values = [float(arm[name]) for arm in arms if name in arm]
    return sum(values) / len(values) if values else None


def _measured(arm: Arm) -> dict[str, Any]:
    before = sum(spent())
    facts = arm.run()
    return {"arm": arm.name, "seed": arm.seed, "core_minutes": (sum(spent()) - before) / 60, **facts}
