"""What the measurements of searches of one big module come to: speed by workers, levels of clang, and the curve."""

from collections.abc import Mapping, Sequence
from typing import Any

from results import Cell, Result, Table, percent

SPEEDUP, GAIN = 1.7, -0.05
BAR = f"two workers make {SPEEDUP} times the effective compilations of one, and the linked image is 5 % smaller at last"
WORKERS = (1, 2)


def summarise(
    projects: Sequence[str],
    minutes: Sequence[float],
    *,
    windows: Mapping[tuple[str, int, int], Mapping[str, Any]],
    points: Mapping[tuple[str, float], Mapping[str, Any]],
    levels: Mapping[str, Mapping[str, Any]],
    at_os: Mapping[str, Mapping[str, Any]],
    seed: int,
) -> Result:
    """The tables of all windows and points that there are.

    Args:
        projects: which were asked for.
        minutes: at which core-minutes of the curve.
        windows: the measurements of speed, by project, workers and number.
        points: the curve, by project and core-minutes.
        levels: of each project, by level, the bytes of the module as clang makes it.
        at_os: of each project, the search of inlining alone at -Os.
        seed: of all searches.
    """
    speed: list[tuple[Cell, ...]] = []
    ratios: dict[str, float] = {}
    for name in projects:
        rates: dict[int, tuple[float, ...]] = {}
        for workers in WORKERS:
            rows = [row for (project, count, _), row in windows.items() if (project, count) == (name, workers)]
            if not rows:
                continue
            sums = {key: sum(float(row[key]) for row in rows) for key in rows[0]}
            rates[workers] = tuple(
                sums[key] / sums["elapsed"]
                for key in ("effective", "compilations", "moves", "saved", "processor_seconds")
            )
            rates[workers] = (*rates[workers], sums["effective"] / sums["processor_seconds"])
            speed.append(
                (name, workers, len(rows), *rates[workers], sums["python_seconds"] / sums["processor_seconds"])
            )
        if len(rates) == len(WORKERS):
            one, two = (rates[workers] for workers in WORKERS)
            ratios[name] = two[0] / one[0]
            speed.append((name, "2 against 1", None, *(b / a for a, b in zip(one, two, strict=True)), None))
    last = {name: max((m for project, m in points if project == name), default=0.0) for name in projects}
    reached = {name: points[name, minutes]["linked"] for name, minutes in last.items() if minutes}
    says = [
        f"{name}: 2 workers make {ratio:.2f} times the effective compilations of 1" for name, ratio in ratios.items()
    ]
    says += [
        f"{name}: {percent(change)} linked after {points[name, last[name]]['core_seconds'] / 60:.0f} core-minutes"
        for name, change in reached.items()
    ]
    says += [
        f"{name}: inlining alone at -Os {percent(row['after']['text'] / row['before']['text'] - 1)} of .text"
        for name, row in at_os.items()
    ]
    missing = [f"{name} at {m:g}" for name in projects for m in minutes if (name, m) not in points]
    is_whole = not missing and len(ratios) == len(projects)
    passed = min(ratios.values()) >= SPEEDUP and max(reached.values()) <= GAIN if is_whole else None
    return Result(
        benchmark="tuning_one_module",
        question=(
            "How many more builds of one big module does a search know with a second worker, "
            "and how much smaller does it make the module?"
        ),
        answer="; ".join([*says, *([f"not measured yet: {', '.join(missing)}"] if missing else [])]),
        bar=BAR if is_whole else "",
        passed=passed,
        seed=seed,
        tables=(
            Table(
                title="Inlining with one worker and with two, each second of elapsed time",
                columns=(
                    "project", "workers", "windows", "effective compilations", "compilations", "moves tried",
                    "bytes saved", "processor seconds", "effective compilations in a processor second",
                    "Python's share",
                ),
                rows=tuple(speed),
                note=(
                    "A window is a new search with an empty memory, from the first step on; windows take turns. "
                    "Effective are builds that the search wanted and knows: explorations, and what it composed of them "
                    "and goes on from; what only confirms counts nothing. On a busy machine two workers get less than "
                    "two processors: processor seconds say how much they got."
                ),
            ),
            Table(
                title="What the levels of clang make of the same module",
                columns=("project", "level", "object, bytes", "against -Oz", ".text, bytes", ".text against -Oz"),
                rows=tuple(
                    (
                        name, level, row["image"], percent(row["image"] / rows["-Oz"]["image"] - 1),
                        row["text"],
                        percent(row["text"] / rows["-Oz"]["text"] - 1),
                    )
                    for name, rows in levels.items()
                    for level, row in rows.items()
                ),
                note=(
                    "Theodoridis, Grosser and Su (ASPLOS 2022) report 10 % on the source code of SQLite over LLVM's "
                    "heuristic when it optimizes for size. Their abstract does not say at which level, nor of which "
                    "bytes, and we have not read more of it. What tuning saves here is counted against -Oz, and from "
                    "the linked library."
                ),
            ),
            Table(
                title="Inlining alone at -Os, against LLVM's own at -Os",
                columns=("project", "core-minutes", "compilations", "linked", "of that .text"),
                rows=tuple(
                    (
                        name, f"{row['core_seconds'] / 60:.1f}", row["compilations"],
                        *(percent(row["after"][part] / row["before"][part] - 1) for part in ("image", "text")),
                    )
                    for name, row in at_os.items()
                ),
                note=(
                    "As the published figure is of inlining alone, at a level for size. The module, linked with "
                    "--gc-sections."
                ),
            ),
            Table(
                title="The curve",
                columns=(
                    "project", "core-minutes", "compilations", "linked", "of that .text", "account of the objects",
                    "of that passes", "of that registers", "tests",
                ),
                rows=tuple(
                    (
                        name, f"{row['core_seconds'] / 60:.1f}", row["compilations"], percent(row["linked"]),
                        percent(row["text"]), percent(row["objects"]),
                        *(_part(row, part) for part in ("passes", "registers")), row["tests"],
                    )
                    for (name, _), row in points.items()
                ),
                note=(
                    "Against -Oz -ffunction-sections -fdata-sections, linked with --gc-sections: .text, .rodata, "
                    "exception and unwind tables of the project's own library, built by its own build system with the "
                    "plugin, whose tests pass. Core-minutes are processor time of the searches' compilations."
                ),
            ),
        ),
    )  # fmt: skip


def _part(row: Mapping[str, Any], part: str) -> Cell:
    found = row["parts"][part]
    return None if found is None else percent(found["after_bytes"] / found["before_bytes"] - 1)
