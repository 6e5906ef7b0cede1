"""Tables of the public benchmark, whether its bar is reached, and the log of looks at its test projects."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from public_projects import VERSION
from results import Cell, Result, Table, interval_of, mean_change, percent, today, write_result

from mlgokit.errors import InputError, UsageError

LANGUAGES = ("c++", "c")
LINKS = {"gc-sections": False, "icf=all": True}
"""Both have --gc-sections; whether identical code is folded."""
JUDGED = "gc-sections"
"""The image that decides, as in the verdict of `mlgokit evaluate`."""
HARM = 0.003
"""A project that grows by more counts as harmed."""
CPP_IMAGE, CPP_TEXT, CPP_FOLDED, C_IMAGE = -0.06, -0.025, -0.05, -0.015
"""The bar: changes of linked images, of .text in those of C++, and of these with identical code folded, in the
geometric mean; beside :data:`HARM`."""
KEPT = 0.8
"""And the share of modules that are not larger."""
LARGE = 50
"""Projects of as many modules and more, where the score has to foretell the link."""
SLOPES, SIGNS = (0.8, 1.2), 0.95
"""Least and most change of the image for one of the score there, and the share of all projects with its sign."""
LEAST_CHANGE = 5e-4
"""A smaller change of the image has no sign."""
MEASURES = (("gc-sections", "image"), ("gc-sections", "text"), ("icf=all", "image"), ("icf=all", "text"))
"""Link and part of the image."""
PART_TITLES = {"image": "image", "text": ".text"}


def summarise(
    rows: Mapping[str, Mapping[str, Any]],
    failed: Sequence[str],
    *,
    policies: Sequence[str],
    against: Sequence[str] = (),
    split: str = "validation",
    complete: bool,
    seed: int = 1,
) -> Result:
    """The tables, and whether the bar was reached, which only a ``complete`` split can say.

    Args:
        rows: by project, what linking says.
        failed: projects without a row, and why.
        policies: what is scored.
        against: policies of the other side; plain ``-Oz`` if there are none.
        split: which projects they are of.
        complete: whether these are all of the split, against plain ``-Oz``.
        seed: of the intervals.
    """
    rng = np.random.default_rng(seed)
    means: list[tuple[Cell, ...]] = []
    for language in LANGUAGES:
        for link, part in MEASURES:
            mine = {name: change(row, link, part) for name, row in rows.items() if row["language"] == language}
            if mine:
                low, high = interval_of(list(mine.values()), rng)
                mean, worst = mean_change(list(mine.values())), max(mine, key=lambda name: mine[name])
                means.append(
                    (language, link, PART_TITLES[part], len(mine), percent(mean), percent(low), percent(high),
                     f"{percent(mine[worst])}, {worst}")
                )  # fmt: skip
    found = figures(rows)
    slope, signs = foretold(rows)
    modules, broken = (sum(row[key] for row in rows.values()) for key in ("modules", "failures"))
    shown = "; ".join(f"{title} {percent(value)}" for title, value in found.items() if value is not None)
    if rows:
        worst = max(rows, key=lambda name: change(rows[name], JUDGED))
        shown += f", {worst}; {percent_of(kept_small(rows))} of {modules} modules not larger"
    return Result(
        benchmark="public",
        question=f"What do {' and '.join(policies)} do to the {split} projects of the public benchmark, "
        f"against {' and '.join(against) or 'plain -Oz'}?",
        answer=f"{shown or 'nothing could be linked'}; {_counted(len(failed), 'project')} and "
        f"{_counted(broken, 'module')} fail",
        bar=f"C++ images {percent(CPP_IMAGE)} or less, their .text {percent(CPP_TEXT)}, folded {percent(CPP_FOLDED)}; "
        f"C images {percent(C_IMAGE)}; no project above {percent(HARM)}, {percent_of(KEPT)} of modules not larger, "
        "nothing fails"
        if complete
        else "",
        passed=reached(found) and kept_small(rows) >= KEPT and not failed and not broken if complete else None,
        seed=seed,
        tables=(
            Table(
                title="Geometric means",
                columns=("language", "link", "part", "projects", "change", "from", "to", "worst project"),
                rows=tuple(means),
                note="Over projects, with 95 % bootstrap intervals over projects. gc-sections is a link of all objects "
                "of a project with --gc-sections, icf=all the same with identical code folded.",
            ),
            Table(
                title="Projects",
                columns=("project", "language", "modules", "image", "foretold by the score", ".text", "image, icf=all",
                         ".text, icf=all", "modules not larger", "fail under the policies",
                         "left out, as they make no bitcode"),
                rows=tuple(
                    (
                        name, row["language"], row["modules"],
                        percent(change(row, JUDGED)), percent(score_change(row)),
                        *(percent(change(row, link, part)) for link, part in MEASURES[1:]),
                        row["modules"] - row["larger_modules"], row["failures"], row["left_out"],
                    )
                    for name, row in rows.items()
                ),
                note=failures_said(failed),
            ),
            Table(
                title="The score against the link",
                columns=("what", "found", "wanted"),
                rows=(
                    (f"change of the image for one of the score, projects of {LARGE} modules and more",
                     None if slope is None else f"{slope:.2f}", f"{SLOPES[0]} to {SLOPES[1]}"),
                    ("projects whose image changes as the score says",
                     None if signs is None else percent_of(signs), f"{percent_of(SIGNS)} or more"),
                ),
                note="The score is the link-aware one, summed over the objects (docs/scores.md); gc-sections. The first"
                f" is a least-squares slope through zero. Changes below {100 * LEAST_CHANGE:g} % have no sign.",
            ),
        ),
    )  # fmt: skip


def score_change(row: Mapping[str, Any]) -> float:
    """A project's change of the link-aware score, summed over its objects."""
    before, after = row["link_aware"]
    return float(after / before - 1)


def foretold(rows: Mapping[str, Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """How the score of the objects foretells the image: the slope over large projects, the share of right signs.

    Example:
        >>> image = {"gc-sections": [{"image": 100}, {"image": 97}]}
        >>> foretold({"a": {"modules": 60, "link_aware": [200.0, 190.0], "images": image}})
        (0.6, 1.0)
    """
    pairs = np.array([(score_change(row), change(row, JUDGED)) for row in rows.values()]).reshape(-1, 2)
    of_large = pairs[np.array([row["modules"] >= LARGE for row in rows.values()], bool)]
    squares = float(np.square(of_large[:, 0]).sum())
    slope = round(float(of_large[:, 0] @ of_large[:, 1]) / squares, 4) if squares else None
    signed = pairs[np.abs(pairs[:, 1]) >= LEAST_CHANGE]
    return slope, float(np.mean(signed[:, 0] * signed[:, 1] > 0)) if len(signed) else None


def figures(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """What the bar and a look are about, by title; ``None`` where no project says it."""

    def mean(language: str, link: str, part: str) -> float | None:
        changes = [change(row, link, part) for row in rows.values() if row["language"] == language]
        return mean_change(changes) if changes else None

    return {
        "C++ image": mean("c++", JUDGED, "image"),
        "C++ .text": mean("c++", JUDGED, "text"),
        "C++ image, icf=all": mean("c++", "icf=all", "image"),
        "C image": mean("c", JUDGED, "image"),
        "worst image": max((change(row, JUDGED) for row in rows.values()), default=None),
    }


def reached(found: Mapping[str, float | None]) -> bool:
    """Whether figures reach the bar.

    Example:
        >>> found = {"C++ image": -0.07, "C++ .text": -0.03, "C++ image, icf=all": -0.05, "C image": -0.02}
        >>> found["worst image"] = 0.001
        >>> reached(found), reached(found | {"C++ image, icf=all": -0.04}), reached(found | {"C image": None})
        (True, False, False)
    """
    bars = {
        "C++ image": CPP_IMAGE,
        "C++ .text": CPP_TEXT,
        "C++ image, icf=all": CPP_FOLDED,
        "C image": C_IMAGE,
        "worst image": HARM,
    }
    return all((value := found[title]) is not None and value <= bar for title, bar in bars.items())


def kept_small(rows: Mapping[str, Mapping[str, Any]]) -> float:
    """The share of modules whose objects are not larger."""
    modules = sum(row["modules"] for row in rows.values())
    return 1 - sum(row["larger_modules"] for row in rows.values()) / modules if modules else 0.0


def percent_of(share: float) -> str:
    """A share for people.

    Example:
        >>> percent_of(0.9274)
        '92.7 %'
    """
    return f"{100 * share:.1f} %"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def failures_said(failed: Sequence[str]) -> str:
    """A note on the projects that failed."""
    return f"Failed: {'; '.join(failed)}." if failed else "No project failed."


def change(row: Mapping[str, Any], link: str, what: str = "image") -> float:
    """A project's change of a measure of one image."""
    before, after = row["images"][link]
    return float(after[what] / before[what] - 1)


LOOK_COLUMNS = (
    "date", "list", "policies", "SHA-256", "LLVM", "projects", "failed", "C++ image", "C++ .text", "C++ image, icf=all",
    "C image", "worst image", "modules not larger", "asked again",
)  # fmt: skip


def read_looks(path: Path) -> list[tuple[Cell, ...]]:
    """The looks at the test so far.

    Raises:
        InputError: the file is no such log.
    """
    if not path.exists():
        return []
    try:
        table = json.loads(path.read_bytes())["tables"][0]
        columns, rows = tuple(table["columns"]), [tuple(row) for row in table["rows"]]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path}: expected a log of looks, found: {error}; restore it from the history") from error
    if columns != LOOK_COLUMNS:
        raise InputError(
            f"{path}: expected the columns {', '.join(LOOK_COLUMNS)}, found {', '.join(columns)}; add them"
        )
    return rows


def check_look(looks: Sequence[tuple[Cell, ...]], digests: Mapping[str, str], *, again: bool) -> None:
    """Refuse a second look by the same policies.

    Raises:
        UsageError: they had one, and ``again`` does not ask for another.
    """
    dates = [str(row[0]) for row in looks if row[LOOK_COLUMNS.index("SHA-256")] == _digests(digests)]
    if dates and not again:
        raise UsageError(
            f"--split test: expected policies that have not looked at it, found a look of {', '.join(dates)} by "
            f"{', '.join(digests)}; choose on the validation split, or say --again, which is written down"
        )


def look(numbers: Sequence[Cell], digests: Mapping[str, str], *, llvm: int, again: bool) -> tuple[Cell, ...]:
    """A look as a row of the log, with ``numbers`` for its columns from ``projects`` on."""
    return (today(), VERSION, ", ".join(digests), _digests(digests), llvm, *numbers, "yes" if again else "no")


def write_look(
    looks: Sequence[tuple[Cell, ...]],
    rows: Mapping[str, Mapping[str, Any]],
    failed: Sequence[str],
    digests: Mapping[str, str],
    path: Path,
    *,
    llvm: int,
    again: bool,
    command: str,
) -> list[tuple[Cell, ...]]:
    """Add a look with these rows to the log in the file ``path``; the looks with it."""
    numbers = [None if value is None else percent(value) for value in figures(rows).values()]
    cells = [len(rows), len(failed), *numbers, percent_of(kept_small(rows))]
    longer = [*looks, look(cells, digests, llvm=llvm, again=again)]
    write_result(log_of(longer), path, command=command)
    return longer


def log_of(looks: Sequence[tuple[Cell, ...]]) -> Result:
    """The log of looks as a result."""
    return Result(
        benchmark="public_looks",
        question="Which policies were scored on the test projects of the public benchmark, and when?",
        answer=f"{len(looks)} {'look' if len(looks) == 1 else 'looks'} at the test",
        seed=0,
        tables=(
            Table(
                title="Looks",
                columns=LOOK_COLUMNS,
                rows=tuple(looks),
                note="Against plain -Oz, in the geometric mean over projects. Policies that had a look may not have "
                "another, unless one asks for it.",
            ),
        ),
    )


def _digests(digests: Mapping[str, str]) -> str:
    return ", ".join(sorted(digests.values()))
