"""Compilations that ask what a function's trials may change, and that make these trials: one way for all problems."""

from collections.abc import Sequence

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.request import HEURISTIC, Compiler, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import Floats, Series, Stage, TrialRequest
from mlgokit.module import Module
from mlgokit.problems import Problem
from mlgokit.traces import Log

TRIAL_SECONDS = 10.0
"""Processor time of one trial, at most."""


def ask_logged(compiler: Compiler, module: Module, problem: Problem, stage: Stage) -> tuple[Compilation, Log | None]:
    """Compile a module as LLVM does, with its functions listed; the log of what was asked, if anything was.

    Args:
        compiler: compiles.
        module: what is compiled.
        problem: whose questions are logged.
        stage: where functions are listed.
    """
    use = PluginUse(policies={problem.name: HEURISTIC}, logs=(problem.name,), trials=TrialRequest(stages=stage))
    done = compiler.compile(module, CompileRequest(use=use, keep="log"))
    log = done.logs.get(problem.name) if done.ok else None
    return done, None if log is None or not log.observation_count else log


def compile_trials(
    compiler: Compiler,
    module: Module,
    problem: Problem,
    series: Sequence[Series],
    *,
    stage: Stage,
    weights: Floats,
    policy: str = HEURISTIC,
    policies: Sequence[bytes] = (),
) -> Compilation:
    """Compile a module once, and make all trials of its functions in copies of the compiler.

    Args:
        compiler: compiles.
        module: whose functions they are.
        problem: that is decided.
        series: the trials.
        stage: where they are made.
        weights: [9] of what a trial measures.
        policy: decides what a trial does not.
        policies: files of policies that trials name.
    """
    trials = TrialRequest(
        series=tuple(series), stages=stage, seconds=TRIAL_SECONDS, weights=weights, policies=tuple(policies)
    )
    use = PluginUse(policies={problem.name: policy}, trials=trials)
    extra_seconds = 60 + 0.2 * sum(len(one.trials) for one in series)
    return compiler.compile(module, CompileRequest(use=use, extra_seconds=extra_seconds))
