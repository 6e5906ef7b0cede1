"""What other seeds of a training give: results of the public benchmark of one split, a policy of another seed each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, run_benchmark
from joined import change_of, check_seeds, join_tables, policies_of, read_parts
from results import Cell, Result, Table, Written, percent

from mlgokit.errors import UsageError

MEANS, PROJECTS = "Geometric means", "Projects"
"""Titles of the tables of `public.py` that are read."""
IMAGE = "image"
"""The column of a project's change, in the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSeeds:
    """Put results of the public benchmark beside each other, each of policies that another seed trained."""

    results: tuple[Path, ...]
    """What `public.py` wrote, as JSON, one for each seed in their order; all of one split, with the same projects."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(PublicSeeds, measure, arguments)


def measure(config: PublicSeeds, setup: Setup) -> Result:
    """Read and compare.

    Raises:
        InputError: a file is no result.
        UsageError: one is of another benchmark, of other projects, or of policies that another one is of, too.
    """
    return compared(read_parts(config.results, setup))


def compared(parts: Sequence[tuple[Path, Written]]) -> Result:
    """The results beside each other, each a path and what is there."""
    check_seeds(parts, "public")
    images = [images_of(part) for part in parts]
    for (path, _), changes in zip(parts, images, strict=True):
        if changes.keys() != images[0].keys():
            raise UsageError(f"{path}: expected the projects of {parts[0][0]}, found others; measure the same split")
    figures = [figures_of(part) for part in parts]
    seeds = range(1, len(parts) + 1)
    rows: list[tuple[Cell, ...]] = []
    for name in figures[0]:
        changes = [one[name] for one in figures]
        rows.append((*name, *map(percent, changes), percent(float(np.mean(changes))), percent(max(changes))))
    projects: list[tuple[Cell, ...]] = []
    for project in images[0]:
        changes = [one[project] for one in images]
        projects.append((project, *map(percent, changes), f"{100 * (max(changes) - min(changes)):.2f} %"))
    passed = [part.result.passed for _, part in parts]
    said = "; ".join(
        f"{language} {link} {part} {' and '.join(percent(one[language, link, part]) for one in figures)}"
        for language, link, part in figures[0]
        if part == IMAGE
    )
    return Result(
        benchmark="public_seeds",
        question="Do policies of other seeds do the same to the projects of the public benchmark?",
        answer=f"{said}; the worst of a project {percent(max(max(one.values()) for one in images))}",
        bar=f"each reaches: {parts[0][1].result.bar}",
        passed=all(passed) if None not in passed else None,
        seed=parts[0][1].result.seed,
        tables=(
            Table(
                title=MEANS,
                columns=("language", "link", "part", *(f"result {one}" for one in seeds), "mean", "worst"),
                rows=tuple(rows),
                note="Over projects. The mean is that of the results' changes.",
            ),
            Table(
                title=PROJECTS,
                columns=("project", *(f"image, result {one}" for one in seeds), "apart by"),
                rows=tuple(projects),
            ),
            Table(
                title="Results",
                columns=("number", "result", "written", "policies", "what it says"),
                rows=tuple(
                    (number, path.name, part.written, policies_of(part.result), part.result.answer)
                    for number, (path, part) in zip(seeds, parts, strict=True)
                ),
            ),
        ),
    )


def figures_of(part: tuple[Path, Written]) -> dict[tuple[str, str, str], float]:
    """Changes in the geometric mean by language, link and part of the image."""
    table = join_tables(MEANS, [part])
    place = [table.columns.index(name) for name in ("language", "link", "part", "change")]
    return {
        (str(language), str(link), str(part)): change_of(value)
        for language, link, part, value in ([row[one] for one in place] for row in table.rows)
    }


def images_of(part: tuple[Path, Written]) -> dict[str, float]:
    """Changes of the linked images by project."""
    table = join_tables(PROJECTS, [part])
    name, image = (table.columns.index(one) for one in ("project", IMAGE))
    return {str(row[name]): change_of(row[image]) for row in table.rows}


if __name__ == "__main__":
    raise SystemExit(main())
