"""The trials of passes that a training keeps in its folder, by a compiler that starts no process."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.reuse.trials import Outcome, Overrides, Stage, TrialResults
from mlgokit.errors import CorpusError
from mlgokit.learning.passes import open_passes
from mlgokit.learning.settings import Learning, settings_of
from mlgokit.learning.training import Training
from mlgokit.module import Module
from mlgokit.problems import PASS_SELECTION
from mlgokit.progress import say_nothing
from mlgokit.spec import TensorSpec
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source
from mlgokit.traces import ContextSpan, Header, Log

KILLED = Compilation(status=CompileStatus.CRASHED, reason="killed by signal 9", killed=True)
LATE = Compilation(status=CompileStatus.TIMED_OUT, reason="after 60 s")


def asked_once() -> Log:
    """The log of one function that is asked about one pass of the code generator."""
    columns = {name: np.zeros((1, 1), np.int64) for name in PASS_SELECTION.feature_names}
    return Log(
        header=Header(features=tuple(TensorSpec(name=name, type="int64_t", shape=(1,)) for name in columns)),
        contexts=(ContextSpan(name="f", start=0, stop=1),),
        columns=columns,
    )


def outcome(score: float) -> Outcome:
    return Outcome(seconds=0.1, score=score, evictions=0, priorities=0, overrides=Overrides(), cost=1.0)


def training(compiler: FakeCompiler, folder: Path) -> Training:
    return Training(
        compiler=compiler,
        modules=(toy_source("m"),),
        problem=PASS_SELECTION,
        algorithm="effect-regression",
        config=Learning().resolve("effect-regression"),
        settings=settings_of("effect-regression", "default", [], problem=PASS_SELECTION.name),
        folder=folder,
        report=say_nothing,
        deadline=math.inf,
    )


@pytest.mark.parametrize("stage", ["codegen", "optimizer"])
@pytest.mark.parametrize("ended", [KILLED, LATE])
def test_trials_that_were_interrupted_are_made_again(tmp_path: Path, stage: str, ended: Compilation):
    works = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 8}))
    tried = TrialResults(key=7, name="f", outcomes=(), stage=Stage.PASSES)

    def answer(module: Module, request: CompileRequest) -> Compilation:
        trials = None if request.use is None else request.use.trials
        if trials is not None and not trials.series:
            return dataclasses.replace(works, logs={PASS_SELECTION.name: asked_once()}, tried=(tried,))
        if interrupted and stage == ("optimizer" if trials is None else "codegen"):
            return ended
        measured = dataclasses.replace(tried, outcomes=(outcome(8.0), outcome(6.0)))
        return dataclasses.replace(works, tried=() if trials is None else (measured,))

    compiler, interrupted = FakeCompiler(answer=answer), True
    if stage == "codegen":
        with pytest.raises(CorpusError):
            open_passes(training(compiler, tmp_path), None)
    else:
        assert open_passes(training(compiler, tmp_path), None).left_out == (ended.reason,)

    interrupted = False
    found = open_passes(training(compiler, tmp_path), None)

    assert found.left_out == ()
    assert found.trials[0].change.tolist() == [-2.0]
    known = len(compiler.asked)
    assert open_passes(training(compiler, tmp_path), None).trials[0].change.tolist() == [-2.0]
    assert len(compiler.asked) == known + 1
