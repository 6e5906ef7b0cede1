"""What policies of priorities, or of spill weights, do to functions of projects that did not teach them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from allocated import COLUMNS, NOTE, Floats, compared, fine
from changes import interval_of
from harness import Setup, name_of, run_benchmark
from results import Cell, Result, Table

from mlgokit.algorithms.live_range_search import linear_policy
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.reuse.trials import MEASURES
from mlgokit.errors import UsageError
from mlgokit.learning.live_range_trials import ask_ranges, try_ranges
from mlgokit.module import Module
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.pretrained import policy_file
from mlgokit.policy.store import load_policy
from mlgokit.problems import PROBLEMS, REGALLOC_PRIORITY, REGALLOC_WEIGHT

BARS = {"spill-cost": -0.05, "executed": -0.002, "bytes": -0.007}
"""What policies shall lower, in the mean of projects: functions with spills, instructions, code and tables."""
_JUDGED = {"spill-cost": 2, "executed": 3, "bytes": 6}
"""Where that is among what is compared."""
_WHAT = {name: COLUMNS[place] for name, place in _JUDGED.items()}
_SIMPLEST = {REGALLOC_PRIORITY.name: "the heaviest first", REGALLOC_WEIGHT.name: "the heavy made heavier"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRanges:
    """Let policies allocate all functions of the held-out projects, beside LLVM and a policy by one feature alone."""

    corpus: Path = Path("quickstart/corpus")
    """Corpus at the level that the policies are for."""
    more: tuple[Path, ...] = ()
    """Further corpora at that level, whose projects taught no policy; all of their modules are judged."""
    policies: tuple[str, ...] = ("builtin:regalloc",)
    """Policies of the problem, such as `mlgokit train --problem regalloc-priority` makes with several seeds."""
    problem: str = REGALLOC_PRIORITY.name
    """What they decide: regalloc-priority or regalloc-weight."""
    knobs: tuple[str, ...] = ()
    """Options of LLVM without their dash, each a side of its own, such as regalloc-csr-first-time-cost=50."""
    together: bool = False
    """Judge every policy with every knob turned as well."""
    training: bool = False
    """Judge on the training projects in place of the held-out ones, as a choice among knobs must be made."""
    score: str = "bytes"
    """What they were trained for: spill-cost, executed, or bytes."""
    seed: int = 1
    """Of the intervals."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    workers: int = 2
    """Compilers that run at once."""
    json: Path = Path("docs/results/priorities.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(LiveRanges, measure, arguments)


def measure(config: LiveRanges, setup: Setup) -> Result:
    """Allocate, and compare."""
    if config.score not in BARS:
        raise UsageError(f"--score: expected one of {', '.join(BARS)}, found {config.score!r}; name one of these")
    if config.problem not in _SIMPLEST:
        raise UsageError(
            f"--problem: expected one of {', '.join(_SIMPLEST)}, found {config.problem!r}; name one of these"
        )
    problem = PROBLEMS[config.problem]
    toolchain = setup.toolchain(config.llvm)
    modules = [module for module in setup.corpus(config.corpus).modules if module.held_out is not config.training]
    modules += [module for corpus in config.more for module in setup.corpus(corpus, corpus.name).modules]
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain), workers=config.workers)
    nothing = SignedLog(mean=np.zeros(1, np.float32), scale=np.ones(1, np.float32), clip=40.0)
    tried = [
        linear_policy(problem, ("fine_weight",), nothing, np.ones(1)),
        *(load_policy(policy_file(one), problem=problem.name) for one in config.policies),
    ]
    policies = tuple(map(name_of, config.policies))
    names = [_SIMPLEST[problem.name], *policies]
    for knob in config.knobs:
        names += [knob, *(f"{policy}, {knob}" for policy in policies if config.together)]
    turning = tried[1:] if config.together else []

    def work(module: Module) -> list[Floats]:
        _, questions = ask_ranges(compiler, module, problem, rows=1, seed=config.seed)
        keys = () if questions is None else questions.keys
        parts = [try_ranges(compiler, module, problem, keys, tried).measured]
        for knob in config.knobs:
            turned = dataclasses.replace(module, command_line=(*module.command_line, "-mllvm", f"-{knob}"))
            parts.append(try_ranges(compiler, turned, problem, keys, turning).measured)
        missing = [
            np.full((1 + sides, len(MEASURES)), np.nan) for sides in (len(tried), *[len(turning)] * (len(parts) - 1))
        ]
        return [
            np.concatenate([part.get(key, nothing) for part, nothing in zip(parts, missing, strict=True)])
            for key in parts[0]
        ]

    done = parallel(work, modules, workers=config.workers, report=setup.report, label="functions")
    projects = sorted({module.project for module in modules})
    rows: list[tuple[Cell, ...]] = []
    found: dict[tuple[str, str], Floats] = {}
    languages: dict[str, str] = {}
    failed = 0
    for project in projects:
        mine = [row for module, part in zip(modules, done, strict=True) if module.project == project for row in part]
        languages[project] = next(module.language for module in modules if module.project == project)
        if not mine:
            continue
        measured = np.stack(mine)
        for place, name in enumerate(names, start=1):
            works = np.isfinite(measured[:, place]).all(axis=1)
            failed += int(np.count_nonzero(~works))
            found[name, project] = compared(measured[works, 0], measured[works, place])
            rows.append((name, project, *_cells(found[name, project])))
    means, judged = _in_the_mean(config, names, found, languages)
    where = "on the projects that teach" if config.training else "where nothing taught them"
    learned = {name: value for name, value in judged.items() if not name.startswith(names[0])}
    return Result(
        benchmark="live_ranges",
        question=f"Do policies of {problem.name} pay {where}?",
        answer=f"{_WHAT[config.score]}, in the mean of projects: "
        + "; ".join(f"{name}: {fine(value)}" for name, value in learned.items())
        + f"; {failed} trials of functions failed",
        bar=f"{_WHAT[config.score]} {fine(BARS[config.score])} or less",
        passed=bool(learned) and not failed and all(value <= BARS[config.score] for value in learned.values()),
        seed=config.seed,
        tables=(
            Table(
                title="Training projects, in the mean" if config.training else "Held-out projects, in the mean",
                columns=("policy", "language", "projects", f"95 % interval over projects, {_WHAT[config.score]}",
                         *COLUMNS[2:], f"the worst project, {_WHAT[config.score]}"),
                rows=tuple(means),
                note=f"All functions that ask about live ranges, against LLVM's own allocation. {NOTE}",
            ),
            Table(title="By project", columns=("policy", "project", *COLUMNS), rows=tuple(rows)),
        ),
    )  # fmt: skip


def _in_the_mean(
    config: LiveRanges,
    names: Sequence[str],
    found: Mapping[tuple[str, str], Floats],
    languages: Mapping[str, str],
) -> tuple[list[tuple[Cell, ...]], dict[str, float]]:
    """Rows of policies and languages, and what the score became by name of both."""
    means: list[tuple[Cell, ...]] = []
    judged: dict[str, float] = {}
    for name in names:
        for language in ("c++", "c"):
            every = [
                found[name, project]
                for project in languages
                if languages[project] == language and (name, project) in found
            ]
            if not every:
                continue
            changes = np.stack(every)[:, _JUDGED[config.score]]
            low, high = interval_of(changes, np.random.default_rng(config.seed))
            mean = np.stack(every)
            means.append(
                (
                    name, language, len(every), f"{fine(low)} to {fine(high)}",
                    *(fine(float(part)) for part in mean[:, 2:].mean(axis=0)), fine(float(changes.max())),
                )
            )  # fmt: skip
            judged[f"{name}, {language.upper()}"] = float(changes.mean())
    return means, judged


def _cells(numbers: Floats) -> tuple[Cell, ...]:
    return (int(numbers[0]), int(numbers[1]), *(fine(float(part)) for part in numbers[2:]))


if __name__ == "__main__":
    raise SystemExit(main())
