"""What tuning made of real projects, as tables: means by arm, language and budget, and one row for each search."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from results import Cell, Result, Table, percent
from tuning_projects import TunedProject

from mlgokit.compiler.objects.link import LinkStatus
from mlgokit.statistics import bootstrap_interval, geometric_mean_change

LANGUAGES = ("c++", "c")
BARS = {
    "mlgokit tune": {"c++": -0.125, "c": -0.07},
    "lto": {"c++": -0.04, "c": -0.02},
    "thinlto": {"c++": -0.025, "c": -0.025},
}
"""By search and language, the change of images at :data:`BAR_MINUTES`; others have no bar."""
BAR_MINUTES = 15.0
Pair = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A search at a budget that it has reached.

    Attributes:
        project: what was tuned.
        arm: the search.
        minutes: the budget, in core-minutes.
        value: ``tuned``, what the proof says; ``all_seconds``, processor time of everything, if it is known;
            ``before`` and ``after``, the project's own builds, without and with the result; ``after`` has the key
            ``failure`` if that failed; ``folded``, if it is there, the images of both where functions that are alike
            are merged anyway.
    """

    project: TunedProject
    arm: str
    minutes: float
    value: Mapping[str, Any]

    @property
    def objects(self) -> Pair:
        """The account of all objects: each COMDAT signature once."""
        return self.value["tuned"]["plain_bytes"], self.value["tuned"]["tuned_bytes"]

    @property
    def judged(self) -> Pair | None:
        """What the bar is about: the linked objects, or with link-time optimization the program itself."""
        return self.image("image") if self.arm in {"lto", "thinlto"} else self.linked("image")

    def functions(self, searched: str) -> Pair | None:
        """The account before and after what was decided function by function."""
        found = self.value["tuned"].get(searched)
        return None if found is None else (found["before_bytes"], found["after_bytes"])

    def folded(self, part: str) -> Pair | None:
        """The project's own program or shared library, both built with merged functions and --icf=all."""
        found = self.value.get("folded")
        return None if found is None else (found["before"][part], found["after"][part])

    def linked(self, part: str) -> Pair | None:
        """All objects, linked with --gc-sections."""
        before, after = self.value["tuned"]["plain_link"], self.value["tuned"]["tuned_link"]
        if before and after and before["status"] == after["status"] == LinkStatus.LINKED.value:
            return before[part], after[part]
        return None

    def image(self, part: str) -> Pair | None:
        """The project's own program or shared library."""
        after = self.value["after"]
        if "failure" in after:
            return None
        return self.value["before"]["image"][part], after["image"][part]


def summarise(
    found: Sequence[Finished],
    *,
    wanted: Sequence[tuple[str, TunedProject, float]],
    failed: Mapping[str, str],
    enough: float,
    seed: int,
) -> Result:
    """The result."""
    have = {(one.arm, one.project.name, one.minutes): one for one in found}
    points = sorted({minutes for _, _, minutes in wanted})
    arms = list(dict.fromkeys(arm for arm, _, _ in wanted))
    languages = [name for name in LANGUAGES if any(project.language == name for _, project, _ in wanted)]
    means: list[tuple[Cell, ...]] = []
    for arm in arms:
        for language in languages:
            for minutes in points:
                row = [one for one in found if (one.arm, one.project.language, one.minutes) == (arm, language, minutes)]
                if row:
                    means.append((arm, language, f"{minutes:g}", len(row), *_mean_cells(row, seed)))
    missing = [(arm, project, minutes) for arm, project, minutes in wanted if (arm, project.name, minutes) not in have]
    listed: dict[tuple[str, str], list[str]] = {}
    for arm, project, minutes in missing:
        listed.setdefault((project.name, arm), []).append(f"{minutes:g}")
    answer, bar, passed = _verdict(found, wanted, seed)
    answer += _others(found, arms)
    worse = _worse(found)
    if worse:
        passed = False
        answer += f"; larger, or with failing tests: {', '.join(worse)}"
    elif found:
        answer += "; no module or program larger, and all tests pass"
    if grown := sum(len(_larger(one)) for one in found):
        answer += f"; {grown} objects are larger by themselves, in COMDATs that the linker takes from others"
    if missing:
        answer += f"; {len(missing)} of {len(wanted)} points are missing"
    return Result(
        benchmark="tuning",
        question="How much smaller does tuning make real projects in a given processor time?",
        answer=f"{answer}.",
        bar=bar if passed is not None else "",
        passed=passed,
        seed=seed,
        tables=(
            Table(
                title="Geometric means",
                columns=(
                    "search", "language", "core-minutes", "projects", "with registers", "objects", "objects linked",
                    "95 % interval",
                    "of that .text", "own program or library", "of that .text",
                    "own, merged and folded", "of that .text",
                ),
                rows=tuple(means),
                note=NOTE,
            ),
            Table(
                title="Projects",
                columns=(
                    "search", "project", "language", "build system", "modules", "left plain", "core-minutes spent",
                    "in all", "compilations", *(f"objects, {minutes:g} min" for minutes in points), "by registers",
                    "objects linked", "of that .text", "own image, plain", "own image", "of that .text",
                    "by passes of the optimizer", "by passes of the code generator", "own image, merged and folded",
                    "best module", "worst module",
                ),
                rows=tuple(
                    _project_row([have.get((arm, name, minutes)) for minutes in points], enough)
                    for arm in arms
                    for name in dict.fromkeys(project.name for _, project, _ in wanted)
                    if any((arm, name, minutes) in have for minutes in points)
                ),
                note="Core-minutes are those of the compilers in user mode; in all: with those of the system, which "
                "copies the compiler for each trial of registers, of Python, and of all proofs on the way, which is "
                "not known of a search that another call began. The columns after the budgets are at the largest one "
                "that the search has reached. Best and worst module: the change of what a module answers for in the "
                "account. By registers and by passes: what they save of the objects as the searches before them leave "
                "these, first inlining, then passes of the optimizer, of the code generator, and registers, where "
                "they were searched.",
            ),
            Table(
                title="Tests",
                columns=("project", "tests", "before", "after", "objects as proved", "larger objects"),
                rows=tuple(_tests_rows(found)),
                note="Numbers of tests where they say so. Before: the plain build. After: the builds with the results "
                "of all searches that were built.",
            ),
            *([_missing_table(listed, failed)] if listed else []),
        ),
    )  # fmt: skip


NOTE = (
    "With registers: of how many projects the last part of the budget went to register allocation, as `mlgokit tune` "
    "does it; of the others all of it went to inlining. Objects: code, read-only data and unwind tables, each COMDAT "
    "signature once. Objects linked: the same of all objects of the library together, linked with --gc-sections; every "
    "strong definition is a root. Own program or library: what the project's build makes, .text + .rodata + exception "
    "and unwind tables, without the dynamic linker's. All against -Oz with -ffunction-sections, -fdata-sections and "
    "--gc-sections; searches of links against the same with link-time optimization and --icf=all. Merged and folded: "
    "both builds with -Xclang -fmerge-functions and linked with --icf=all too, which merge functions that are alike "
    "anyway. Intervals from fewer than about eight projects are too narrow."
)


def _missing_table(listed: Mapping[tuple[str, str], Sequence[str]], failed: Mapping[str, str]) -> Table:
    return Table(
        title="Not there",
        columns=("project", "search", "core-minutes", "why"),
        rows=tuple(
            (name, arm, ", ".join(minutes), failed.get(name, "not made yet").splitlines()[0])
            for (name, arm), minutes in listed.items()
        ),
    )


def _changes(pairs: Sequence[Pair | None]) -> tuple[list[float], list[float]]:
    there = [pair for pair in pairs if pair is not None]
    return [before for before, _ in there], [after for _, after in there]


def _mean(pairs: Sequence[Pair | None]) -> str | None:
    before, after = _changes(pairs)
    return percent(geometric_mean_change(before, after)) if before else None


def _interval(pairs: Sequence[Pair | None], seed: int) -> str | None:
    before, after = _changes(pairs)
    if len(before) < 2:
        return None
    low, high = bootstrap_interval(before, after, rng=np.random.default_rng(seed))
    return f"{percent(low)} to {percent(high)}"


def _mean_cells(row: Sequence[Finished], seed: int) -> tuple[Cell, ...]:
    linked = [one.linked("image") for one in row]
    return (
        sum(one.functions("allocated") is not None for one in row),
        _mean([one.objects for one in row]),
        _mean(linked),
        _interval(linked, seed),
        _mean([one.linked("text") for one in row]),
        _mean([one.image("image") for one in row]),
        _mean([one.image("text") for one in row]),
        _mean([one.folded("image") for one in row]),
        _mean([one.folded("text") for one in row]),
    )


def _project_row(row: Sequence[Finished | None], enough: float) -> tuple[Cell, ...]:
    last = [one for one in row if one is not None][-1]
    tuned, project = last.value["tuned"], last.project
    modules = [module for module in tuned["modules"] if module["plain_bytes"] > 0]
    changes = [module["tuned_bytes"] / module["plain_bytes"] - 1 for module in modules]
    minutes = tuned["user_seconds"] / 60
    spent = f"{minutes:.1f}" if minutes >= enough * last.minutes else f"{minutes:.1f}, nothing left to try"
    own, everything = last.image("image"), last.value.get("all_seconds") or math.nan
    return (
        last.arm, project.name, project.language, project.system, len(tuned["modules"]),
        sum(module["plain"] for module in tuned["modules"]), spent,
        None if math.isnan(everything) else f"{everything / 60:.1f}", tuned["compilations"],
        *(None if one is None else _mean([one.objects]) for one in row), _mean([last.functions("allocated")]),
        _mean([last.linked("image")]), _mean([last.linked("text")]),
        None if own is None else f"{own[0]:,}", _mean([own]), _mean([last.image("text")]),
        *(_mean([last.functions(which)]) for which in ("optimizer_passes", "passes")), _mean([last.folded("image")]),
        percent(min(changes, default=0.0)), percent(max(changes, default=0.0)),
    )  # fmt: skip


def _tests_rows(found: Sequence[Finished]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(one.project.name for one in found):
        mine = [one for one in found if one.project.name == name]
        good = [one.value["after"] for one in mine if not _failed(one)]
        tests = {after["tests"] for after in good}
        before = mine[0].value["before"]["tests"]
        rows.append(
            (
                name,
                mine[0].project.shown,
                f"{before} pass" if before else "pass",
                f"{len(good)} of {len(mine)} builds pass"
                + "".join(f", {count} tests" for count in sorted(tests - {0}))
                + "".join(f"; {one.value['after']['failure'].splitlines()[0]}" for one in mine if _failed(one)),
                f"{sum(not _failed(one) and _as_proved(one) for one in mine)} of {len(mine)}",
                sum(len(_larger(one)) for one in mine),
            )
        )
    return rows


def _as_proved(one: Finished) -> bool:
    """Whether the project's own build has the very bytes that the proof of the tuning found."""
    objects = one.value["after"].get("objects")
    return objects is None or (objects["plain_bytes"], objects["tuned_bytes"]) == one.objects


def _failed(one: Finished) -> bool:
    return "failure" in one.value["after"]


def _larger(one: Finished) -> list[str]:
    """Objects of the project's own build that are larger than in the plain one."""
    return one.value["after"].get("objects", {}).get("larger", [])


def _worse(found: Sequence[Finished]) -> list[str]:
    """Searches whose result is larger somewhere, or fails the project's tests."""
    names: list[str] = []
    for one in found:
        pairs = [one.objects, one.linked("image"), one.image("image")]
        pairs += [(module["plain_bytes"], module["tuned_bytes"]) for module in one.value["tuned"]["modules"]]
        larger = any(pair is not None and pair[1] > pair[0] + 1e-6 for pair in pairs)
        if larger or _failed(one):
            names.append(f"{one.project.name} ({one.arm}, {one.minutes:g})")
    return names


def _others(found: Sequence[Finished], arms: Sequence[str]) -> str:
    """What the arms beside the first one save where it was measured too, with the same budget; empty without any."""
    leading = next((arm for arm in arms if any(one.arm == arm for one in found)), None)
    if leading is None:
        return ""
    minutes = max(one.minutes for one in found if one.arm == leading)
    mine = {one.project.name for one in found if (one.arm, one.minutes) == (leading, minutes)}
    parts: list[str] = []
    for arm in arms:
        row = [one for one in found if (one.arm, one.minutes) == (arm, minutes)]
        if arm == leading or {one.project.name for one in row} != mine:
            continue
        changes = [
            f"{_mean([one.judged for one in row if one.project.language == language])} {language.upper()}"
            for language in LANGUAGES
            if any(one.project.language == language for one in row)
        ]
        parts.append(f"{arm} {' and '.join(changes)}")
    return f"; beside it {', '.join(parts)}" if parts else ""


def _verdict(
    found: Sequence[Finished], wanted: Sequence[tuple[str, TunedProject, float]], seed: int
) -> tuple[str, str, bool | None]:
    """The sentence about the first arm, its bar, and whether that was reached.

    Of each project the smallest build counts. Only all projects at :data:`BAR_MINUTES` can reach the bar.
    """
    arm = next((arm for arm, _, _ in wanted if any(one.arm == arm for one in found)), None)
    if arm is None:
        return "nothing of a tuning is there yet", "", None
    mine = [one for one in found if one.arm == arm]
    minutes = max(one.minutes for one in mine)
    best = {one.project.name: one for one in sorted(mine, key=lambda one: (-one.objects[1], -one.minutes))}
    earlier = Counter(one.minutes for one in best.values() if one.minutes < minutes)
    bars = BARS.get(arm, {})
    parts: list[str] = []
    reached: list[bool] = []
    for language in LANGUAGES:
        row = [one for one in best.values() if one.project.language == language]
        pairs = [one.judged for one in row]
        if not row or None in pairs:
            continue
        change = geometric_mean_change(*_changes(pairs))
        interval = _interval(pairs, seed)
        said = f"{percent(change)} on {len(row)} {language.upper()} projects{f' ({interval})' if interval else ''}"
        if language in bars:
            reached.append(change <= bars[language])
            said += f", bar {percent(bars[language])}"
        parts.append(said)
    complete = all(any(one.arm == arm and one.project.name == project.name and one.minutes == BAR_MINUTES
                       for one in found) for name, project, _ in wanted if name == arm)  # fmt: skip
    passed = all(reached) if complete and minutes == BAR_MINUTES and len(reached) == len(LANGUAGES) else None
    less = "".join(f", {count} of them at {point:g}" for point, count in sorted(earlier.items()))
    shown = ", ".join(f"{percent(bar)} on {language.upper()}" for language, bar in bars.items())
    bar = f"images {shown} or less at {BAR_MINUTES:g} core-minutes, nothing larger, all tests passing"
    return f"{arm}, within {minutes:g} core-minutes{less}: {'; '.join(parts)}", bar, passed
