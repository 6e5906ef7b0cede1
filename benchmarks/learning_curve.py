"""What more training gives: the policy after each number of turns, judged on linked validation projects."""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from changes import interval_of, mean_change
from doubt import JUDGED, change
from harness import Setup, check_names, kept_row, linker_of, run_benchmark
from public import Public, project_rows, side_of
from public_projects import VERSION, public_projects, split_of
from public_tables import MEASURES, failures_said
from results import Cell, Result, Table, percent

from mlgokit.commands.options import COMPILER
from mlgokit.commands.train import Train, run
from mlgokit.errors import UsageError
from mlgokit.learning.settings import Learning
from mlgokit.manifest import digest_value, plain_json

PAPER = (("policy gradient", "1,200", "-4.95 %"), ("evolution strategies", "73,000", "-5.94 %"))
"""Learner, core-hours and change of size in table 2 of arXiv:2101.04808."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurve:
    """Train inlining for more and more turns of one run, and link validation projects with each policy."""

    corpus: Path = Path("quickstart/corpus")
    """The corpus; its projects that are not held out teach."""
    turns: tuple[int, ...] = (1, 2, 4, 8)
    """Turns after which a policy is judged, in rising order; the run goes on from one to the next."""
    seed: int = 1
    """Of the training, and of the intervals."""
    projects: tuple[str, ...] = ()
    """Validation projects of the public benchmark; its projects in C++ if none is given."""
    folder: Path = Path("build/learning-curve")
    """Where the run and its policies are; a later call goes on."""
    public: Path = Path("build/public")
    """Where sources, bitcode, plain objects and rows of the projects are kept, as for `public.py`."""
    workers: int = 2
    """Compilations that run at once."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/learning_curve.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A policy of the run.

    Attributes:
        turns: after how many.
        compilations: that the learner had.
        core_minutes: that the compilers took, those that judge in training as well.
        minutes: that training took, by the clock.
        policy: the file.
        rows: by project, what linking says.
    """

    turns: int
    compilations: int
    core_minutes: float
    minutes: float
    policy: Path
    rows: Mapping[str, Mapping[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(LearningCurve, measure, arguments)


def measure(config: LearningCurve, setup: Setup) -> Result:
    """Train on, and link.

    Raises:
        UsageError: turns are not in rising order, or a project is no validation project.
    """
    if not config.turns or list(config.turns) != sorted(set(config.turns)) or config.turns[0] < 1:
        raise UsageError(f"--turns: expected numbers from 1 in rising order, found {list(config.turns)}; change them")
    known = {name: one for name, one in public_projects().items() if split_of(name) == "validation"}
    check_names("projects", config.projects, known)
    chosen = [
        one for name, one in known.items() if (name in config.projects if config.projects else one.language == "c++")
    ]
    toolchain = setup.toolchain(config.llvm)
    linker_of(toolchain, "learning_curve")
    setup.corpus(config.corpus)
    setup.inputs[f"list of projects, version {VERSION}"] = digest_value([plain_json(one) for one in chosen])
    points: list[Point] = []
    failed: list[str] = []
    for turns in config.turns:
        trained = trained_for(turns, config, setup)
        setup.policies([trained.policy])
        of = Public(policies=(str(trained.policy),), folder=config.public, workers=config.workers)
        rows, missing = project_rows(chosen, side_of(of), of, setup, toolchain)
        points.append(dataclasses.replace(trained, rows=rows))
        failed += missing
    return summed_up(points, failed, config)


def trained_for(turns: int, config: LearningCurve, setup: Setup) -> Point:
    """The run's policy after so many turns, which is trained unless it is there; without rows.

    Raises:
        UsageError: the run has gone further, and nobody kept this policy.
    """
    policy = config.folder / f"turns-{turns}.policy"
    of = {"corpus": setup.inputs["corpus"], "seed": config.seed, "turns": turns}

    def make() -> dict[str, Any]:
        training = Train(
            corpus=config.corpus,
            output=config.folder / "train",
            compiler=dataclasses.replace(COMPILER, llvm=config.llvm, workers=config.workers),
            learning=Learning(seed=config.seed, iterations=turns),
        )
        trained = run(training, report=setup.report)
        if (done := trained.learned.counters.turn) != turns:
            raise UsageError(
                f"--turns: expected more than the {done} of the run in {config.folder}, found {turns}; "
                "name another folder"
            )
        shutil.copyfile(trained.policy, policy)
        last = trained.learned.rows[-1]
        return {name: last[name] for name in ("compilations", "user_seconds", "seconds")}

    row = kept_row(policy.with_suffix(".json"), make, of=of)
    return Point(
        turns=turns,
        compilations=int(row["compilations"]),
        core_minutes=row["user_seconds"] / 60,
        minutes=row["seconds"] / 60,
        policy=policy,
        rows={},
    )


def summed_up(points: Sequence[Point], failed: Sequence[str], config: LearningCurve) -> Result:
    """A line for each policy, and one for each project with all policies."""
    rng = np.random.default_rng(config.seed)
    curve: list[tuple[Cell, ...]] = []
    for point in points:
        changes = [change(row, JUDGED) for row in point.rows.values()]
        spread = [percent(value) for value in interval_of(changes, rng)] if changes else [None, None]
        means = [percent(mean_change([change(row, *one) for row in point.rows.values()])) for one in MEASURES[:3]] if (
            changes
        ) else [None] * 3  # fmt: skip
        curve.append(
            (point.turns, point.compilations, round(point.core_minutes, 1), round(point.minutes, 1), len(changes),
             means[0], *spread, *means[1:], percent(max(changes)) if changes else None)
        )  # fmt: skip
    names = list(dict.fromkeys(name for point in points for name in point.rows))
    shown = "; ".join(f"{row[0]} turns, {row[2]:g} core-minutes: {row[5]}" for row in curve)
    return Result(
        benchmark="learning_curve",
        question="What does more training of inlining give on projects that it has not seen, linked?",
        answer=shown,
        seed=config.seed,
        tables=(
            Table(
                title="Curve",
                columns=("turns", "compilations", "core-minutes of compilers", f"minutes, {config.workers} workers",
                         "projects", "image", "from", "to", ".text", "image, icf=all", "worst image"),
                rows=tuple(curve),
                note="One run that goes on. Geometric means over validation projects, against plain -Oz, with 95 % "
                "bootstrap intervals over projects. Minutes are those of the training, on a machine that may have done "
                "other work; compilers judge in training as well.",
            ),
            Table(
                title="Beside it",
                columns=("learner", "core-hours", "size"),
                rows=PAPER,
                note="What the paper of MLGO says (arXiv:2101.04808, table 2), of C++ at Google: other programs.",
            ),
            Table(
                title="Projects",
                columns=("project", *(f"image after {point.turns}" for point in points)),
                rows=tuple(
                    (name, *(percent(change(point.rows[name], JUDGED)) if name in point.rows else None
                             for point in points))
                    for name in names
                ),
                note=failures_said(list(dict.fromkeys(failed))),
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
