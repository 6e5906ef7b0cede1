"""What can be learned of single evictions: what they do, what a network foretells of it, and what its policies do."""

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from allocated import Floats, compared, fine
from changes import interval_of, mean_change
from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.algorithms.allocation_score import AllocationScore, changes
from mlgokit.algorithms.config import EvictionTrialsConfig
from mlgokit.algorithms.eviction_fit import EvictionLabels, fit_evictions
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.corpus.identity import known_contents, training_modules
from mlgokit.learning.eviction_rounds import EvictionRounds
from mlgokit.learning.eviction_trials import try_policy
from mlgokit.learning.settings import settings_of
from mlgokit.module import Module
from mlgokit.policy.store import save_policy
from mlgokit.problems import REGALLOC_EVICTION

BAR = -0.05
"""What functions with spills shall cost less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictions:
    """Fit policies to trials of all training projects but a few, and let them allocate the functions of those."""

    corpus: Path = Path("corpus-O2")
    """Corpus at the level in question; its held-out projects are not looked at."""
    trials: Path = Path("evictions")
    """Folder of `mlgokit train --problem regalloc-eviction`, whose trials are not made again."""
    scores: tuple[AllocationScore, ...] = ("spill-cost", "executed")
    """Scores that policies are fitted to."""
    doubt: float = 0.0
    """Doubt of the policies."""
    groups: int = 6
    """Groups of projects that are left out in turn."""
    setting: tuple[str, ...] = ()
    """Settings of training to change, as in --setting fit.members=8."""
    seed: int = 1
    """Of draws, fits and intervals."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = 2
    """Compilers that run at once."""
    json: Path = Path("docs/results/evictions.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Evictions, measure, arguments)


def measure(config: Evictions, setup: Setup) -> Result:
    """Make trials that are not there, fit, and judge."""
    toolchain = setup.toolchain(config.llvm)
    corpus = setup.corpus(config.corpus)
    modules = training_modules(corpus.modules, known_contents(config.corpus, corpus.modules))
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), workers=config.workers)
    settings: EvictionTrialsConfig = settings_of(
        "effect-regression", "default", config.setting, problem=REGALLOC_EVICTION.name
    )
    rows: list[tuple[Cell, ...]] = []
    means: list[tuple[Cell, ...]] = []
    spilling: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rounds = EvictionRounds(compiler, tuple(modules), settings, config.seed, config.trials, folder, setup.report)
        first = rounds.round(0, None)
        projects = first.labels.projects
        order = np.random.default_rng(config.seed).permutation(len(projects)).tolist()
        for score in config.scores:
            wanted = dataclasses.replace(settings, score=score)
            found: dict[str, Floats] = {}
            for group in range(config.groups):
                left_out = [projects[place] for place in order[group :: config.groups]]
                fit = fit_evictions(_others(first.labels, left_out), wanted, seed=config.seed)
                path = folder / f"{score}-{group}.policy"
                save_policy(dataclasses.replace(fit.policy, doubt=config.doubt), path)
                for name in left_out:
                    mine = [part for part in first.taught if part[0].project == name]
                    found[name] = _judged(compiler, mine, path, setup, f"{score}: {name}")
            rows += [(score, name, *found[name][:2], *map(fine, found[name][2:])) for name in sorted(found)]
            every = np.stack(list(found.values()))
            low, high = interval_of(every[:, 2], np.random.default_rng(config.seed))
            spilling[score] = mean_change(every[:, 2])
            means.append(
                (
                    score, len(found), int(every[:, 0].sum()), fine(spilling[score]), f"{fine(low)} to {fine(high)}",
                    *(fine(float(part)) for part in every[:, 3:].mean(axis=0)),
                )
            )  # fmt: skip
    change = {
        score: changes(first.labels.before, first.labels.after, score) for score in ("spill-cost", "executed", "bytes")
    }
    usual = config.scores[0]
    return Result(
        benchmark="evictions",
        question="Do policies of evictions, fitted to trials of single answers, pay where nothing taught them?",
        answer=f"{len(first.labels.before):,} trials; functions with spills cost {fine(spilling[usual])} by policies "
        f"for {usual} ({means[0][4]} over {means[0][1]} projects), and a call executes {means[0][5]} instructions",
        bar=f"functions with spills cost {fine(BAR)} or less",
        passed=spilling[usual] <= BAR,
        seed=config.seed,
        tables=(
            Table(
                title="Projects that were left out, in the mean",
                columns=("score", "projects", "functions", "functions with spills", "95 % interval over projects",
                         "instructions, estimated", "spills and reloads, estimated", "code"),
                rows=tuple(means),
                note=f"The training projects in {config.groups} groups; an ensemble is fitted to the trials of all but "
                "one, and allocates the functions of that one in which anything is evicted. Costs of functions with "
                "spills are LLVM's, with 0.01 added, in the geometric mean over functions and then over projects; what "
                "is estimated is the mean over functions, by LLVM's block frequencies, as a part of the instructions "
                "that a call executes.",
            ),
            Table(
                title="Single answers",
                columns=("measure", "trials", "better", "the same", "worse", "mean change",
                         "mean change of the better ones"),
                rows=tuple(
                    (
                        f"{score} ({unit})", len(one), f"{(one < 0).mean():.3f}", f"{(one == 0).mean():.3f}",
                        f"{(one > 0).mean():.3f}", f"{one.mean():+.3f}", f"{one[one < 0].mean():+.3f}",
                    )
                    for (score, one), unit in zip(
                        change.items(), ("% of the function's", "thousandths, at most 10", "bytes"), strict=True
                    )
                ),
                note="One question of the allocator in one function is answered by another legal column than the "
                "heuristic's.",
            ),
            Table(
                title="By project",
                columns=("score", "project", "functions", "of these with spills", "functions with spills",
                         "instructions, estimated", "spills and reloads, estimated", "code"),
                rows=tuple(rows),
            ),
        ),
    )  # fmt: skip


def _others(labels: EvictionLabels, left_out: Sequence[str]) -> EvictionLabels:
    """The labels of all projects but these."""
    places = [place for place, name in enumerate(labels.projects) if name in left_out]
    kept = ~np.isin(labels.project, places)
    number = np.cumsum(kept) - 1
    rows = kept[labels.component]
    return EvictionLabels(
        values=labels.values[rows],
        sign=labels.sign[rows],
        component=number[labels.component[rows]],
        before=labels.before[kept],
        after=labels.after[kept],
        project=labels.project[kept],
        projects=labels.projects,
    )


def _judged(
    compiler: ClangCompiler, parts: Sequence[tuple[Module, tuple[int, ...]]], policy: Path, setup: Setup, label: str
) -> Floats:
    """[6] functions, of these with spills, and changes: their costs, instructions, spills and reloads, code."""
    done = parallel(
        lambda part: try_policy(compiler, part[0], part[1], str(policy)),
        parts,
        workers=compiler.workers,
        report=setup.report,
        label=label,
    )
    return compared(*(np.concatenate([one[place] for one in done]) for place in (0, 1)))[:6]


if __name__ == "__main__":
    raise SystemExit(main())
