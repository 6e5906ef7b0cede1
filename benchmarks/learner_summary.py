"""The table and the picture of the benchmark ``learners``, from the arms that are there."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from arms import mean_of
from learner_arms import Learners, is_timed
from results import Cell, Result, Table, percent

from mlgokit.evaluation.statistics import bootstrap_interval, geometric_mean_change
from mlgokit.files import atomic_write

_SEARCHES = (
    "Random search and greedy flips search on the held-out modules themselves and are not linked; theirs are sums of "
    "link-aware scores."
)
_TIMED = (
    "What the heuristic does with the training modules is compiled within the budget. A turn that was begun is "
    "finished, and the last column has the judging, too."
)


def summed_up(config: Learners, found: Sequence[dict[str, Any]], *, missing: int) -> Result:
    """The table, and the picture beside it."""
    rows: list[tuple[Cell, ...]] = []
    changes: dict[str, tuple[float, float, float]] = {}
    for name in dict.fromkeys(one["arm"] for one in found):
        arms = [one for one in found if one["arm"] == name]
        size = "image" if any(sum(p["image"]) for one in arms for p in one["projects"].values()) else "link_aware"
        ours = [change_of(arms, kind, size) for kind in ("c++", "c")]
        aware = change_of(arms, "c++", "link_aware")
        if ours[0] is not None:
            changes[name] = ours[0]
        cells: list[Cell] = [name, len(arms)]
        for one in (ours[0] if size == "image" else None, aware, ours[1]):
            cells += [None, None] if one is None else [percent(one[0]), f"{percent(one[1])} to {percent(one[2])}"]
        cells += [seed_spread(arms, size), worst(arms, size)]
        cells += [mean_of(arms, "compilations"), mean_of(arms, "core_minutes")]
        rows.append(tuple(cells))
    atomic_write(config.json.with_suffix(".svg"), picture(changes))
    best = min(changes, key=lambda name: changes[name][0], default="")
    budget = f"{config.minutes:g} core-minutes" if is_timed(config) else f"{config.compilations} compilations"
    return Result(
        benchmark="learners",
        question=f"Which learner makes held-out C++ projects smallest at a budget of {budget}?",
        answer=f"{best}: {percent(changes[best][0])} on C++ ({missing} arms missing)" if best else "nothing was built",
        seed=config.seeds[0],
        tables=(
            Table(
                title="Arms",
                columns=(
                    "arm", "seeds", "linked C++ image", "95 % interval", "link-aware C++ objects", "95 % interval",
                    "C", "95 % interval", "spread over seeds", "largest growth of a project", "compilations",
                    "core-minutes",
                ),
                rows=tuple(rows),
                note="Change against plain -Oz in the geometric mean over held-out projects, mean over seeds; the "
                "intervals are for other projects. " + (_TIMED if is_timed(config) else _SEARCHES),
            ),
        ),
    )  # fmt: skip


def pairs_of(arm: dict[str, Any], language: str, size: str) -> dict[str, tuple[float, float]]:
    """By project, the sizes before and after; those that were not linked are left out."""
    return {
        project: (float(sizes[size][0]), float(sizes[size][1]))
        for project, sizes in arm["projects"].items()
        if sizes["language"] == language and min(sizes[size]) > 0
    }


def change_of(arms: Sequence[dict[str, Any]], language: str, size: str) -> tuple[float, float, float] | None:
    """Change of the geometric mean over projects and seeds, and its interval over projects."""
    found = [pairs_of(arm, language, size) for arm in arms]
    shared = sorted(set.intersection(*map(set, found))) if found else []
    if not shared:
        return None
    before = [found[0][name][0] for name in shared]
    ratios = [float(np.exp(np.mean([np.log(one[name][1] / one[name][0]) for one in found]))) for name in shared]
    after = [size * ratio for size, ratio in zip(before, ratios, strict=True)]
    change = geometric_mean_change(before, after)
    if len(shared) < 2 or max(ratios) - min(ratios) < 1e-12:
        return change, change, change
    low, high = bootstrap_interval(before, after, rng=np.random.default_rng(1))
    return change, low, high


def seed_spread(arms: Sequence[dict[str, Any]], size: str) -> str | None:
    """Least and largest change among the seeds."""
    found = [change_of([arm], "c++", size) for arm in arms]
    values = [one[0] for one in found if one is not None]
    return f"{percent(min(values))} to {percent(max(values))}" if len(values) > 1 else None


def worst(arms: Sequence[dict[str, Any]], size: str) -> str | None:
    """Largest growth of any project under any seed."""
    pairs = [pair for arm in arms for kind in ("c++", "c") for pair in pairs_of(arm, kind, size).values()]
    return percent(max(after / before - 1 for before, after in pairs)) if pairs else None


def picture(changes: dict[str, tuple[float, float, float]]) -> str:
    """Changes with their intervals as an SVG, the best on top."""
    names = sorted(changes, key=lambda name: changes[name][0])
    ends = [value for change in changes.values() for value in change] or [0.0]
    low, high = max(-0.3, min(0.0, *ends)), min(0.3, max(0.0, *ends))
    span = max(high - low, 1e-6)

    def place(value: float) -> float:
        return 190 + 420 * (min(max(value, low), high) - low) / span

    rows = [
        f'<text x="180" y="{34 + 22 * row}" text-anchor="end">{name}</text>'
        f'<line x1="{place(changes[name][1]):.1f}" x2="{place(changes[name][2]):.1f}" y1="{30 + 22 * row}" '
        f'y2="{30 + 22 * row}" stroke="#888"/>'
        f'<circle cx="{place(changes[name][0]):.1f}" cy="{30 + 22 * row}" r="4" fill="#2b6cb0"/>'
        f'<text x="620" y="{34 + 22 * row}">{percent(changes[name][0])}</text>'
        for row, name in enumerate(names)
    ]
    height = 40 + 22 * len(names)
    zero = f'<line x1="{place(0):.1f}" x2="{place(0):.1f}" y1="16" y2="{height - 10}" stroke="#c53030"/>'
    shape = f'width="700" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {shape} font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect {shape} fill="white"/>', zero, *rows, "</svg>"]) + "\n"
