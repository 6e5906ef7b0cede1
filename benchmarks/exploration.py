"""How effect regression should explore: its presets at equal compilations on a small part of a corpus."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from results import Cell, Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions

from mlgokit.algorithms.learner import state_from_bytes
from mlgokit.collect import Workshop, open_workshop
from mlgokit.commands import training_modules
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.evaluation.statistics import geometric_mean_change
from mlgokit.learning.baselines import Baselines, compile_defaults, evaluate_policy
from mlgokit.learning.loop import CHECKPOINT_NAME, learn
from mlgokit.learning.settings import Learning
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report, say_nothing

ALGORITHM = "effect-regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """Train with each preset and seed, and compile held-out projects with what came of it."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus."""
    folder: Path = Path("build/exploration")
    """Where runs and finished compilations are; a later call with the same settings repeats none."""
    presets: tuple[str, ...] = ("random", "default")
    """Presets of effect regression, with changed settings after colons, as in default:explorations=4."""
    seeds: tuple[int, ...] = (1,)
    """Runs of each."""
    modules: int = 80
    """Training modules drawn from all."""
    largest_bytes: int = 120_000
    """Modules with larger bitcode are not drawn, for the sake of time."""
    compilations: int = 700
    """Budget of each run; the turn in which it is reached is finished."""
    projects: tuple[str, ...] = ("leveldb", "double-conversion", "snappy", "yaml-cpp", "re2", "lua")
    """Held-out projects that judge."""
    seed: int = 7
    """Of the draw."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    timeout_seconds: float = 60.0
    """Deadline of one compilation."""
    json: Path = Path("docs/results/exploration.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run cost and gave.

    Attributes:
        preset: with changed settings.
        seed: of the run.
        compilations: that it asked for.
        user_seconds: of these compilations.
        flips: decisions turned round.
        labels: components.
        changes: by project, change of the sum of link-aware scores.
    """

    preset: str
    seed: int
    compilations: int
    user_seconds: float
    flips: int
    labels: int
    changes: dict[str, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_benchmark(Exploration, measure, arguments)


def measure(config: Exploration, report: Report) -> Result:
    """Train, judge, and put the runs side by side."""
    corpus = load_corpus(config.corpus)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    versions = tool_versions(toolchain)
    workshop = open_workshop(
        toolchain,
        build_plugin(toolchain),
        config.folder / "store",
        workers=1,
        timeout_seconds=config.timeout_seconds,
    )
    small = [one for one in training_modules(corpus.modules) if one.bitcode.stat().st_size < config.largest_bytes]
    training = draw_modules(small, config.modules, np.random.default_rng(config.seed))
    judges = {
        project: compile_defaults(workshop, [one for one in corpus.modules if one.project == project], INLINE_SIZE)
        for project in config.projects
    }
    runs = [
        trained(config, workshop, training, judges, preset=preset, seed=seed, report=report)
        for seed in config.seeds
        for preset in config.presets
    ]
    languages = {project: judges[project].modules[0].language for project in config.projects}
    mean = {preset: mean_change([run for run in runs if run.preset == preset], languages) for preset in config.presets}
    return Result(
        benchmark="exploration",
        question=f"Which way of exploring teaches effect regression most in {config.compilations} compilations?",
        answer="held-out C++ projects, link-aware: "
        + ", ".join(f"{preset} {100 * change:+.2f} %" for preset, change in mean.items()),
        seed=config.seed,
        versions=versions,
        inputs=corpus_inputs(corpus),
        tables=(run_table(runs, languages),),
    )


def trained(
    config: Exploration,
    workshop: Workshop,
    training: Sequence[Module],
    judges: dict[str, Baselines],
    *,
    preset: str,
    seed: int,
    report: Report,
) -> Run:
    """One run, judged."""
    name, *setting = preset.split(":")
    folder = config.folder / f"{preset.replace(':', '-')}-{seed}"
    learning = Learning(
        preset=name,
        compilations=config.compilations,
        seed=seed,
        evaluate_every=0,
        validation_share=0.0,
        setting=tuple(setting),
    )
    done = learn(workshop, training, INLINE_SIZE, ALGORITHM, learning, folder=folder, report=report)
    state = state_from_bytes((folder / CHECKPOINT_NAME).read_bytes(), learner=ALGORITHM)
    changes: dict[str, float] = {}
    for project, material in judges.items():
        report(len(changes), len(judges), f"judge {preset}, seed {seed}")
        gain, _ = evaluate_policy(material, range(len(material.modules)), done.policy, report=say_nothing)
        changes[project] = -gain
    return Run(
        preset=preset,
        seed=seed,
        compilations=done.counters.compilations,
        user_seconds=done.counters.user_seconds,
        flips=len(state["effects/sign"]),
        labels=len(state["effects/change"]),
        changes=changes,
    )


def mean_change(runs: Sequence[Run], languages: dict[str, str]) -> float:
    """Of C++ projects and seeds, in the geometric mean."""
    after = [1 + change for run in runs for project, change in run.changes.items() if languages[project] == "c++"]
    return geometric_mean_change([1.0] * len(after), after)


def run_table(runs: Sequence[Run], languages: dict[str, str]) -> Table:
    """A row for each run."""
    rows: list[tuple[Cell, ...]] = [
        (
            run.preset,
            run.seed,
            run.compilations,
            run.user_seconds,
            run.flips,
            run.labels,
            f"{100 * mean_change([run], languages):+.2f} %",
            *(f"{100 * run.changes[project]:+.2f} %" for project in languages),
        )
        for run in runs
    ]
    return Table(
        title="Runs",
        columns=(
            "preset", "seed", "compilations", "their user seconds", "flips", "labels", "C++ projects",
            *(f"{project} ({language})" for project, language in languages.items()),
        ),
        rows=tuple(rows),
        note="Change of the sum of the link-aware scores of a project's modules against the heuristic; the geometric "
        "mean over C++ projects.",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
