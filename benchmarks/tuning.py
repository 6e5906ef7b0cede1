"""How much smaller tuning makes whole projects, by budget, against greedy single flips at the same budget."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from results import Cell, Result, Table, corpus_inputs, run_benchmark, tool_versions

from mlgokit.collect import Report
from mlgokit.compiler.compile import NEVER
from mlgokit.compiler.link import LinkStatus
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.module import Corpus, Module, load_corpus
from mlgokit.errors import UsageError
from mlgokit.evaluation.statistics import geometric_mean_change
from mlgokit.manifest import atomic_write
from mlgokit.tune.loop import run_search
from mlgokit.tune.project import SearchConfig, open_search, try_policy
from mlgokit.tune.result import finish
from mlgokit.tune.search import Bench

ARMS = {"tune": SearchConfig(), "greedy single flips": SearchConfig(most=1, refits=())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Tune projects of a corpus, each arm with the same processor time, and link the results."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    projects: tuple[str, ...] = (
        "leveldb", "snappy", "double-conversion", "fmt", "hunspell", "box2d", "marisa", "kenlm",
        "zlib", "zstd", "brotli",
    )  # fmt: skip
    """Projects that the search was not developed on: it was on re2, yaml-cpp and lua."""
    arms: tuple[str, ...] = tuple(ARMS)
    """Which searches to run."""
    core_minutes: float = 60.0
    """Processor time of each search, compilations and fits together."""
    points: tuple[float, ...] = (5.0, 15.0, 30.0, 60.0)
    """Core-minutes at which the account is reported."""
    folder: Path = Path("tuning-benchmark")
    """Where searches and finished projects are kept; a run goes on where the last one stopped."""
    workers: int = 2
    """Compilers that run at once."""
    modules: int = 0
    """Modules of each project, the first ones; 0 for all."""
    seed: int = 1
    """Of the search."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/tuning.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Tuning, measure, arguments)


def measure(config: Tuning, report: Report) -> Result:
    """Run what is not finished yet.

    Raises:
        UsageError: an arm or a project is not known.
    """
    unknown = [arm for arm in config.arms if arm not in ARMS]
    if unknown:
        raise UsageError(f"arms: expected {' or '.join(ARMS)}, found {', '.join(unknown)}")
    corpus = load_corpus(config.corpus)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    known = {module.project for module in corpus.modules}
    missing = sorted(set(config.projects) - known)
    if missing:
        raise UsageError(f"projects: expected names from {config.corpus}, found {', '.join(missing)}")
    found: dict[str, dict[str, dict[str, Any]]] = {arm: {} for arm in config.arms}
    for project in config.projects:
        modules = [module for module in corpus.modules if module.project == project]
        for arm in config.arms:
            found[arm][project] = _tuned(config, toolchain, arm, modules[: config.modules or None], report)
    return summarise(found, config, versions=tool_versions(toolchain), corpus=corpus)


def _tuned(config: Tuning, toolchain: Toolchain, arm: str, modules: Sequence[Module], report: Report) -> dict[str, Any]:
    folder = config.folder / arm.replace(" ", "-") / modules[0].project
    path = folder / f"finished-{config.core_minutes:g}.json"
    if path.exists():
        return json.loads(path.read_bytes())
    search = open_search(
        modules,
        bench=Bench(toolchain=toolchain, plugin=build_plugin(toolchain), timeout_seconds=120),
        config=dataclasses.replace(ARMS[arm], seed=config.seed),
        folder=folder,
        workers=config.workers,
        report=report,
    )
    if arm == "tune":
        try_policy(search, NEVER, workers=config.workers, report=report)
    left = 60 * config.core_minutes - search.user_seconds
    run_search(search, seconds=left, workers=config.workers, report=report, clock=lambda: search.user_seconds)
    tuned = finish(search, folder / "tuned.so", policy=None, workers=config.workers, report=report)
    result = tuned.to_json() | {"languages": sorted({module.language for module in modules})}
    atomic_write(path, json.dumps(result))
    return result


def summarise(
    found: dict[str, dict[str, dict[str, Any]]], config: Tuning, *, versions: dict[str, str], corpus: Corpus
) -> Result:
    """The table of projects and arms, and the means."""
    rows: list[tuple[Cell, ...]] = []
    by_language: dict[tuple[str, str], list[tuple[float, float]]] = {}
    larger = 0
    for arm, projects in found.items():
        for project, one in projects.items():
            language = "c++" if "c++" in one["languages"] else "c"
            before, after = one["plain_link"], one["tuned_link"]
            linked = before and after and before["status"] == after["status"] == LinkStatus.LINKED.value
            if linked:
                by_language.setdefault((arm, language), []).append((before["image"], after["image"]))
                larger += after["image"] > before["image"]
            curve = [
                f"{_at(one, minutes):+.2%}" if minutes <= config.core_minutes else None for minutes in config.points
            ]
            rows.append(
                (
                    arm, project, language, len(one["modules"]), sum(module["plain"] for module in one["modules"]),
                    one["compilations"], round(one["user_seconds"] / 60, 1), *curve,
                    f"{after['image'] / before['image'] - 1:+.2%}" if linked else None,
                    f"{after['text'] / before['text'] - 1:+.2%}" if linked else None,
                )
            )  # fmt: skip
    means: list[tuple[Cell, ...]] = []
    for (arm, language), pairs in by_language.items():
        plain, tuned = np.array(pairs).T
        means.append((arm, language, len(pairs), f"{geometric_mean_change(plain, tuned):+.2%}"))
    tables = (
        Table(
            title="Geometric mean of the linked image",
            columns=("search", "language", "projects", "change"),
            rows=tuple(means),
        ),
        Table(
            title="Projects",
            columns=(
                "search", "project", "language", "modules", "left plain", "compilations", "core-minutes",
                *(f"objects, {minutes:g} min" for minutes in config.points), "linked image", "of that .text",
            ),
            rows=tuple(rows),
            note="Objects: text, read-only data and unwind tables, each COMDAT signature once. Linked: the same of all "
            "objects linked with --gc-sections. A search that ends before its budget has nothing left to try.",
        ),
    )  # fmt: skip
    best = "; ".join(f"{arm}, {language}: {change}" for arm, language, _, change in means)
    return Result(
        benchmark="tuning",
        question="How much smaller does tuning make a whole project in a given processor time?",
        answer=f"{config.core_minutes:g} core-minutes: {best}; {larger} linked images larger than plain.",
        seed=config.seed,
        versions=versions,
        inputs=corpus_inputs(corpus),
        tables=tables,
    )


def _at(one: dict[str, Any], minutes: float) -> float:
    """The change of the account after so many core-minutes."""
    reached = [point for point in one["curve"] if point["user_seconds"] <= 60 * minutes]
    last = reached[-1] if reached else one["curve"][0]
    return last["bytes"] / one["plain_bytes"] - 1


if __name__ == "__main__":
    raise SystemExit(main())
