"""What policies about live ranges do to functions, measured: trials by whole policies.

Each trial allocates one function in a copy of the compiler (``compiler/reuse/trials.py``), all its priorities or spill
weights by one policy, so all policies of a generation share one compilation of a module up to the allocator. What the
first use of a callee-saved register costs is the compilation's, so policies that differ in it share none.
"""

import dataclasses
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
from mlgokit.policy.network import Policy
from mlgokit.policy.store import policy_bytes
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
    compiler: Compiler, module: Module, problem: Problem, keys: Sequence[int], policies: Sequence[Policy]
) -> RangeTrials:
    """Allocate functions by whole policies; those that fail as LLVM allocates them are left out.

    Args:
        compiler: compiles.
        module: whose functions they are.
        problem: that the policies are for.
        keys: of the functions.
        policies: what decides.
    """
    at_cost: dict[int, list[int]] = {0: []}
    for place, policy in enumerate(policies):
        at_cost.setdefault(policy.csr_first_time_cost, []).append(place)
    parts = [
        _try_at(compiler, _turned(module, cost), problem, keys, [policies[place] for place in places])
        for cost, places in at_cost.items()
    ]
    found: dict[int, Floats] = {}
    for key in parts[0].measured:
        rows = found[key] = np.full((1 + len(policies), len(MEASURES)), np.nan)
        for part, places in zip(parts, at_cost.values(), strict=True):
            mine = part.measured.get(key)
            if mine is not None:
                rows[[1 + place for place in places]] = mine[1:]
        rows[0] = parts[0].measured[key][0]
    return RangeTrials(measured=found, user_seconds=sum(part.user_seconds for part in parts))


def _turned(module: Module, cost: int) -> Module:
    """The module with LLVM's cost of the first use of a callee-saved register; as it is for 0."""
    option = ("-mllvm", f"-regalloc-csr-first-time-cost={cost}") if cost else ()
    return dataclasses.replace(module, command_line=(*module.command_line, *option))


def _try_at(
    compiler: Compiler, module: Module, problem: Problem, keys: Sequence[int], policies: Sequence[Policy]
) -> RangeTrials:
    """The same by policies to which that costs what it costs LLVM in this compilation."""
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
        policies=[policy_bytes(policy) for policy in policies],
    )
    nothing = np.full(len(MEASURES), np.nan)
    found: dict[int, Floats] = {}
    for one in done.tried if done.ok else ():
        if len(one.outcomes) == len(trials) and one.outcomes[0].measured is not None:
            found[one.key] = np.stack(
                [nothing if outcome.measured is None else outcome.measured for outcome in one.outcomes]
            )
    return RangeTrials(measured=found, user_seconds=done.user_seconds)
