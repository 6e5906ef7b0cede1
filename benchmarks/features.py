"""What a policy of LLVM's own features gives, which alone goes into a model for a build of LLVM, beside a full one."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from changes import mean_change
from harness import Setup, run_benchmark
from pretrained import LANGUAGES, WORST, change_of
from results import Cell, Result, Table, percent

from mlgokit.commands import train
from mlgokit.commands.evaluate import Evaluate, run as evaluate
from mlgokit.commands.options import CompilerOptions
from mlgokit.evaluation.records import ProjectComparison

_SETS: tuple[Literal["all", "llvm"], ...] = ("all", "llvm")
_NAMES = {"all": "all of the plugin", "llvm": "LLVM's own"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Train policies of both sets of features with the same settings, and evaluate them on held-out projects."""

    corpus: Path = Path("quickstart/corpus")
    """Corpus with held-out projects."""
    folder: Path = Path("build/features")
    """Where trainings are kept; a run goes on where the last one stopped."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Of the trainings."""
    workers: int = 2
    """Compilers that run at once."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/features.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What one training gave."""

    features: str
    seed: int
    compilations: int
    projects: tuple[ProjectComparison, ...]

    def change(self, language: str, part: str) -> float:
        """Geometric mean of the projects in a language."""
        return mean_change([change_of(one, part) for one in self.projects if one.language == language])

    @property
    def worst(self) -> float:
        """Change of the linked image of the project that gains least."""
        return max(change_of(one, "image") for one in self.projects)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Features, measure, arguments)


def measure(config: Features, setup: Setup) -> Result:
    """Train what is missing, and evaluate all."""
    toolchain = setup.toolchain(config.llvm)
    setup.corpus(config.corpus)
    compiler = CompilerOptions(llvm=toolchain.major, workers=config.workers)
    arms: list[Arm] = []
    for seed in config.seeds:
        for features in _SETS:
            how = train.Train(corpus=config.corpus, output=config.folder / f"{features}-{seed}", compiler=compiler)
            learning = dataclasses.replace(how.learning, features=features, seed=seed)
            trained = train.run(dataclasses.replace(how, learning=learning), report=setup.report)
            asked = Evaluate(
                policies=(str(trained.policy),), corpus=config.corpus, explain_seconds=0.0, compiler=compiler
            )
            found = evaluate(asked, report=setup.report)
            arms.append(
                Arm(
                    features=features,
                    seed=seed,
                    compilations=trained.learned.counters.compilations,
                    projects=tuple(found.projects),
                )
            )
    return summarise(arms)


def summarise(arms: Sequence[Arm]) -> Result:
    """The table of all arms, and their mean."""
    rows: list[tuple[Cell, ...]] = [
        (
            _NAMES[arm.features],
            arm.seed,
            arm.compilations,
            *(percent(arm.change(language, part)) for language in LANGUAGES for part in ("image", "text")),
            percent(arm.worst),
        )
        for arm in arms
    ]
    means = {
        (features, language): fmean([arm.change(language, "image") for arm in arms if arm.features == features])
        for features in _SETS
        for language in LANGUAGES
    }
    worst = {features: max(arm.worst for arm in arms if arm.features == features) for features in _SETS}
    said = "; ".join(
        f"{_NAMES[features]}: {percent(means[features, 'c++'])} in C++, {percent(means[features, 'c'])} in C, worst "
        f"project {percent(worst[features])}"
        for features in _SETS
    )
    return Result(
        benchmark="features",
        question="What does a policy of LLVM's own features give, beside one of all features of the plugin?",
        answer=f"held-out projects, {said}",
        bar=f"with LLVM's features alone C++ is smaller, and no project is more than {percent(WORST)} larger",
        passed=means["llvm", "c++"] < 0 and worst["llvm"] <= WORST,
        seed=min(arm.seed for arm in arms),
        tables=(
            Table(
                title="Policies",
                columns=("features", "seed", "compilations", "C++ image", "of that .text", "C image",
                         "of that C .text", "worst image"),
                rows=tuple(rows),
                note="Geometric means over the held-out projects of the corpus, compiled with -Oz and linked with "
                "--gc-sections, against plain -Oz. Trained with the default settings, by the plugin.",
            ),
            Table(
                title="Means over seeds",
                columns=("features", "C++ image", "C image", "worst image"),
                rows=tuple(
                    (
                        _NAMES[features],
                        *(percent(means[features, language]) for language in LANGUAGES),
                        percent(worst[features]),
                    )
                    for features in _SETS
                ),
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
