"""What policies about live ranges do to functions, measured: trials by whole policies.

Each trial allocates one function in a copy of the compiler (``compiler/reuse/trials.py``), all its priorities or spill
weights by one policy, so all policies of a generation share one compilation of a module up to the allocator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.reuse.trials import (
    FIRST_POLICY,
    IMAGE_BYTES,
    MEASURES,
    TRIAL,
    Floats,
    Overrides,
    Series,
    Stage,
    executed_weights,
)
from mlgokit.learning.function_trials import ask_logged, compile_trials
from mlgokit.learning.trials import module_draws
from mlgokit.module import Module
from mlgokit.problems import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeQuestions:
    """What the allocator asks about live ranges in one compilation.

    Attributes:
        features: what the compiler tells of a live range.
        rows: [Q, F] that, of some of the questions.
        keys: of the functions that asked more than once, as trials name them.
    """

    features: tuple[str, ...]
    rows: Floats
    keys: tuple[int, ...]


def ask_ranges(
    compiler: Compiler, module: Module, problem: Problem, *, rows: int, seed: int
) -> tuple[Compilation, RangeQuestions | None]:
    """Compile a module as LLVM does; the compilation, and what was asked if anything was.

    Args:
        compiler: compiles.
        module: what is compiled.
        problem: whose questions are listed.
        rows: questions that are kept, at most.
        seed: of their draw.
    """
    done, log = ask_logged(compiler, module, problem, Stage.REGISTERS)
    if log is None:
        return done, None
    later = (problem.default_decision, problem.decision, "log_probability")
    features = tuple(name for name in log.columns if name not in later)
    drawn = np.sort(module_draws(module, seed, rows).permutation(log.observation_count)[:rows])
    asked = {span.name: span.stop - span.start for span in log.contexts}
    return done, RangeQuestions(
        features=features,
        rows=np.stack([log.columns[name].reshape(-1)[drawn].astype(np.float64) for name in features], axis=1),
        keys=tuple(one.key for one in done.tried if one.stage is Stage.REGISTERS and asked.get(one.name, 0) > 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeTrials:
    """What trials of one module found.

    Attributes:
        measured: by key of the function [1 + P, 9] what it measures as LLVM allocates it, then by each policy; NaN
            where that trial failed.
        user_seconds: processor time.
    """

    measured: Mapping[int, Floats]
    user_seconds: float


def try_ranges(
    compiler: Compiler, module: Module, problem: Problem, keys: Sequence[int], policies: Sequence[bytes]
) -> RangeTrials:
    """Allocate functions by whole policies; those that fail as LLVM allocates them are left out.

    Args:
        compiler: compiles.
        module: whose functions they are.
        problem: that the policies are for.
        keys: of the functions.
        policies: files of them.
    """
    trials = np.zeros(1 + len(policies), TRIAL)
    trials["by_rule"][1:] = FIRST_POLICY + np.arange(len(policies))
    series = tuple(Series(key=key, base=Overrides(), score=-np.inf, trials=trials) for key in keys)
    done = compile_trials(
        compiler,
        module,
        problem,
        series,
        stage=Stage.REGISTERS,
        weights=executed_weights(IMAGE_BYTES),
        policies=policies,
    )
    nothing = np.full(len(MEASURES), np.nan)
    found: dict[int, Floats] = {}
    for one in done.tried if done.ok else ():
        if len(one.outcomes) == len(trials) and one.outcomes[0].measured is not None:
            found[one.key] = np.stack(
                [nothing if outcome.measured is None else outcome.measured for outcome in one.outcomes]
            )
    return RangeTrials(measured=found, user_seconds=done.user_seconds)
