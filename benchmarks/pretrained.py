"""What policies, such as those that come with the package, do to projects that they were not trained on."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, name_of, run_benchmark, run_mlgokit
from results import Cell, Result, Table, interval_of, mean_change, percent
from tuning_projects import PROJECTS

from mlgokit.evaluation.records import Evaluation, ProjectComparison
from mlgokit.policy.pretrained import policy_files

WORST = 0.003
"""By which no project may be larger."""
LANGUAGES = ("c++", "c")
MOST_SECONDS = 4 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """Evaluate policies on the held-out projects of the corpus that they were trained on, and on other projects."""

    policies: tuple[str, ...] = ("builtin:size",)
    """The policies, one for each problem."""
    against: tuple[str, ...] = ()
    """Policies of the other side, which is plain without any."""
    corpus: Path = Path("quickstart/corpus")
    """The corpus that it was trained on, whose held-out projects are evaluated."""
    others: Path = Path("build/tuning/projects")
    """Folder of the projects of tuning.py, as its --prepare leaves them; those that are there are evaluated."""
    seed: int = 1
    """Of the intervals."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Pretrained, measure, arguments)


def measure(config: Pretrained, setup: Setup) -> Result:
    """Evaluate all of them."""
    toolchain = setup.toolchain(config.llvm)
    setup.policies(policy_files(config.policies))
    setup.corpus(config.corpus)
    words = ["evaluate", "--llvm", str(toolchain.major), "--seed", str(config.seed), "--explain-seconds", "0"]
    words += [word for policy in config.policies for word in ("--policy", policy)]
    words += [word for policy in config.against for word in ("--against-policy", policy)]
    rows: list[tuple[Cell, ...]] = []
    means: list[tuple[Cell, ...]] = []
    worst = 0.0
    held_out = evaluated([*words, "--corpus", str(config.corpus)])
    groups: dict[str, list[ProjectComparison]] = {"held out of the corpus": list(held_out)}
    for name in PROJECTS:
        corpus = config.others / name / "corpus"
        is_new = all(one.project != name for one in held_out)
        if is_new and (corpus / "corpus_description.json").is_file():
            setup.corpus(corpus, name)
            setup.report(0, 1, name)
            found = evaluated([*words, "--corpus", str(corpus), "--projects", name])
            language = PROJECTS[name].language
            known = [dataclasses.replace(one, language=language) for one in found]
            groups.setdefault("others", []).extend(known)
    for group, projects in groups.items():
        for language in LANGUAGES:
            mine = [one for one in projects if one.language == language]
            if not mine:
                continue
            images, texts = ([change_of(one, part) for one in mine] for part in ("image", "text"))
            interval = interval_of(images, np.random.default_rng(config.seed))
            changes = mean_change(images), *interval, mean_change(texts), max(images)
            means.append((group, language, len(mine), *map(percent, changes)))
            worst = max(worst, *images)
        rows += [
            (
                one.project, one.language, group, one.modules,
                percent(change_of(one, "image")), percent(change_of(one, "text")),
                one.larger_modules, len(one.failures), f"{one.user_seconds_after / one.user_seconds_before:.3f}",
            )
            for one in projects
        ]  # fmt: skip
    failed = sum(len(one.failures) for projects in groups.values() for one in projects)
    other_side = " and ".join(config.against) or "plain -Oz"
    shown = "; ".join(f"{row[2]} {str(row[1]).upper()} projects {row[0]}: {row[3]}" for row in means)
    return Result(
        benchmark="pretrained",
        question=f"What do {' and '.join(name_of(one) for one in config.policies)} do to projects that they were not "
        f"trained on, against {other_side}?",
        answer=f"linked images, {shown}; the worst {percent(worst)}; {failed} modules fail on one side",
        bar=f"no project more than {percent(WORST)} larger, no module fails",
        passed=worst <= WORST and not failed,
        seed=config.seed,
        tables=(
            Table(
                title="Geometric means",
                columns=("projects", "language", "count", "linked image", "from", "to", "of that .text", "worst image"),
                rows=tuple(means),
                note="Over projects, with 95 % intervals of the image for other projects of the kind (bootstrap).",
            ),
            Table(
                title="Projects",
                columns=("project", "language", "group", "modules", "linked image", "of that .text", "larger modules",
                         "left out, as they fail", "processor time of compilations"),
                rows=tuple(rows),
                note=f"Against {other_side}, all objects of a project compiled with -Oz and linked with --gc-sections.",
            ),
        ),
    )  # fmt: skip


def evaluated(words: Sequence[str]) -> tuple[ProjectComparison, ...]:
    """The projects of one call of `mlgokit evaluate`."""
    return Evaluation.from_json(run_mlgokit(words, timeout_seconds=MOST_SECONDS)).projects


def change_of(one: ProjectComparison, part: str) -> float:
    """Relative change of a part of the linked image."""
    return getattr(one.after, part) / getattr(one.before, part) - 1


if __name__ == "__main__":
    raise SystemExit(main())
