"""Joins results that one benchmark wrote in several calls, each on other projects, and takes the means over all rows.

A search of many projects takes longer than a machine is there for. Each call's result stays as it was written; the
joined one has their rows, and says which command made which.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, run_benchmark
from results import Cell, Result, Table, Written, interval_of, mean_change, percent, read_result

from mlgokit.errors import InputError, UsageError
from mlgokit.files import digest_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Join results of one benchmark, and take geometric means of changes over all their rows."""

    results: tuple[Path, ...]
    """The results, as JSON; no project may be in two, unless the last one counts."""
    last_counts: bool = False
    """Of rows with the same name, as of a search that went on, take that of the last result that has one."""
    table: str
    """Title of the table whose changes are averaged."""
    columns: tuple[str, ...]
    """Its columns of changes, such as "-4.14 %"; rows without the first one are left out. The first one is judged."""
    name: str = "project"
    """The column that says what a row is of."""
    group: str = ""
    """The column by whose words means are taken, such as language; one mean over all if empty."""
    bars: tuple[float, ...] = ()
    """What each group has to reach in the first column, in percent, in the order of the groups' names."""
    also: tuple[str, ...] = ()
    """Titles of tables that are joined beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Joined, measure, arguments)


def measure(config: Joined, setup: Setup) -> Result:
    """Read and join.

    Raises:
        InputError: a file is no result.
        UsageError: they are of several benchmarks, have other columns, or have a row twice.
    """
    return joined(config, read_parts(config.results, setup))


def read_parts(paths: Sequence[Path], setup: Setup) -> list[tuple[Path, Written]]:
    """Results of one benchmark, each a path and what is there; they are noted as inputs.

    Raises:
        InputError: a file is no result.
        UsageError: there are none, or they are of several benchmarks.
    """
    parts = [(path, read_result(path)) for path in paths]
    benchmarks = sorted({part.result.benchmark for _, part in parts})
    if len(benchmarks) != 1:
        raise UsageError(
            f"results: expected those of one benchmark, found {', '.join(benchmarks) or 'none'}; join them"
        )
    setup.inputs.update({path.name: digest_file(path) for path in paths})
    return parts


def check_seeds(parts: Sequence[tuple[Path, Written]], benchmark: str) -> None:
    """Make sure that results are of one benchmark, and of policies that another seed trained each.

    Raises:
        UsageError: there are fewer than two, or one is of another benchmark or of policies that another one is of, too.
    """
    if len(parts) < 2:
        raise UsageError(f"results: expected two or more, found {len(parts)}; name one for each seed")
    known: dict[str, Path] = {}
    for path, part in parts:
        if part.result.benchmark != benchmark:
            raise UsageError(
                f"{path}: expected a result of {benchmark}, found one of {part.result.benchmark}; leave it out"
            )
        policies = policies_of(part.result)
        if policies in known:
            raise UsageError(
                f"{path}: expected policies of another seed, found those of {known[policies]}; leave one out"
            )
        known[policies] = path


def policies_of(result: Result) -> str:
    """The policies that a result is of, each with the beginning of its digest."""
    of: Mapping[str, str] = {name: digest for name, digest in result.inputs.items() if name.startswith("policy ")}
    return ", ".join(f"{name.removeprefix('policy ')} {digest[:12]}" for name, digest in of.items())


def joined(config: Joined, parts: Sequence[tuple[Path, Written]]) -> Result:
    """The joined result of ``parts``, each a path and the result there."""
    name = config.name if config.last_counts else ""
    whole = join_tables(config.table, parts, name)
    if missing := {config.name, *config.columns, *([config.group] if config.group else [])} - set(whole.columns):
        raise UsageError(f"{config.table}: expected columns {', '.join(sorted(missing))}, found none; see the result")
    place = {column: whole.columns.index(column) for column in whole.columns}
    rows = tuple(row for row in whole.rows if row[place[config.columns[0]]] is not None)
    names = [str(row[place[config.name]]) for row in rows]
    groups = sorted({str(row[place[config.group]]) for row in rows}) if config.group else ["all"]
    _check(config, names, groups)
    means: list[tuple[Cell, ...]] = []
    says: list[str] = []
    reached: list[bool] = []
    for number, group in enumerate(groups):
        own = [row for row in rows if not config.group or row[place[config.group]] == group]
        changes = {name: [change_of(row[place[name]]) for row in own] for name in config.columns}
        judged = changes[config.columns[0]]
        mean, interval = mean_change(judged), _interval(judged)
        others = [percent(mean_change(changes[name])) for name in config.columns[1:]]
        larger = sum(change > 0 for change in judged)
        means.append((group, len(own), percent(mean), interval, *others, percent(min(judged)), percent(max(judged))))
        of = "" if group == "all" else f"{group} "
        says.append(f"{percent(mean)} on {len(own)} {of}rows ({interval}), {larger} larger")
        reached.append(not larger and (not config.bars or mean <= config.bars[number] / 100))
    first = config.columns[0]
    table = Table(
        title="Geometric means",
        columns=(config.group or "of", "rows", first, "95 % interval", *config.columns[1:], "best", "worst"),
        rows=tuple(means),
        note="Intervals from fewer than about eight rows are too narrow. Best and worst are of the first change.",
    )
    made = Table(
        title="Parts",
        columns=("result", "written", "processor", "command"),
        rows=tuple(
            (path.name, part.written, part.result.versions.get("processor"), part.command) for path, part in parts
        ),
    )
    bars = ", ".join(f"{bar:g} % for {group}" for bar, group in zip(config.bars, groups, strict=bool(config.bars)))
    return Result(
        benchmark="joined",
        question=parts[0][1].result.question,
        answer=f"{first}: {'; '.join(says)}.",
        bar=f"{bars}, none larger" if config.bars else "",
        passed=all(reached) if config.bars else None,
        seed=parts[0][1].result.seed,
        tables=(
            table,
            dataclasses.replace(whole, rows=rows),
            *(join_tables(title, parts, name) for title in config.also),
            made,
        ),
    )


def _check(config: Joined, names: Sequence[str], groups: Sequence[str]) -> None:
    """Refuse what cannot be averaged or judged.

    Args:
        config: the call.
        names: what the rows are of.
        groups: of which means are taken.
    """
    if not names:
        raise UsageError(f"{config.table}: expected rows with {config.columns[0]!r}, found none; name another column")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{config.table}: expected each row once, found {', '.join(twice)} twice; leave a result out")
    if config.bars and len(config.bars) != len(groups):
        raise UsageError(f"bars: expected one for each of {', '.join(groups)}, found {len(config.bars)}; correct them")


def join_tables(title: str, parts: Sequence[tuple[Path, Written]], name: str = "") -> Table:
    """The tables of that title as one, in the order of the parts.

    Args:
        title: of the tables.
        parts: paths and results.
        name: the column of which each cell is to be there once, in the row of the last part that has it; all rows stay
            if it is empty.

    Raises:
        UsageError: a part has none, or other columns than the first one's.
    """
    tables: list[Table] = []
    for path, part in parts:
        found = [table for table in part.result.tables if table.title == title]
        if len(found) != 1:
            titles = ", ".join(table.title for table in part.result.tables)
            raise UsageError(f"{path}: expected a table {title!r}, found {titles}; correct its title")
        if tables and found[0].columns != tables[0].columns:
            raise UsageError(f"{path}: expected the columns of {parts[0][0]} in {title!r}, found others; leave it out")
        tables += found
    rows = tuple(row for table in tables for row in table.rows)
    if name:
        place = tables[0].columns.index(name)
        rows = tuple({row[place]: row for row in rows}.values())
    return dataclasses.replace(tables[0], rows=rows)


def change_of(cell: Cell) -> float:
    """A shown change as a number.

    Raises:
        InputError: it is none.

    Example:
        >>> change_of("-4.14 %")
        -0.0414
    """
    number, _, unit = str(cell).partition(" ")
    try:
        value = float(number) / 100
    except ValueError:
        value = math.nan
    if unit != "%" or not math.isfinite(value):
        raise InputError(f"{cell!r}: expected a change such as -4.14 %, found no such; choose another column")
    return round(value, 12)


def _interval(changes: Sequence[float]) -> str:
    if len(changes) < 3:
        return "too few for an interval"
    low, high = interval_of(changes, np.random.default_rng(1))
    return f"{percent(low)} to {percent(high)}"


if __name__ == "__main__":
    raise SystemExit(main())
