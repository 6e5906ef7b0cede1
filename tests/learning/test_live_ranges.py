"""The validation of a policy about live ranges, by a compiler that starts no process."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from mlgokit.algorithms.config import RangeTrialsConfig
from mlgokit.algorithms.live_range_search import AllocationScore
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.reuse.trials import MEASURES, Outcome, Overrides, TrialResults
from mlgokit.learning.live_range_trials import RangeFunctions
from mlgokit.learning.live_ranges import RangeLearning
from mlgokit.learning.settings import Learning
from mlgokit.learning.training import Training
from mlgokit.module import Module
from mlgokit.policy.normaliser import SignedLog
from mlgokit.problems import REGALLOC_PRIORITY
from mlgokit.progress import say_nothing
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source

ONE = np.ones(1, np.float32)


@pytest.mark.parametrize(("score", "twice"), [("executed", 2000.0), ("spill-cost", 200.0), ("bytes", 8.0)])
def test_a_failure_in_validation_counts_as_twice_the_function(tmp_path: Path, score: AllocationScore, twice: float):
    measures = np.zeros(len(MEASURES))
    measures[[MEASURES.index("executed"), MEASURES.index("code")]] = 9.0, 4.0
    works = Outcome(
        seconds=0.1, score=1.0, evictions=0, priorities=0, overrides=Overrides(), cost=1.0, measured=measures
    )
    failed = dataclasses.replace(works, measured=None)

    def answer(_module: Module, _request: CompileRequest) -> Compilation:
        tried = (TrialResults(key=7, name="f", outcomes=(works, failed)),)
        return Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 8}), tried=tried)

    learning = RangeLearning(
        training=Training(
            compiler=FakeCompiler(answer=answer),
            modules=(),
            problem=REGALLOC_PRIORITY,
            algorithm="es",
            config=Learning(),
            settings=RangeTrialsConfig(score=score),
            folder=tmp_path,
            report=say_nothing,
            deadline=math.inf,
        ),
        functions=RangeFunctions(
            problem=REGALLOC_PRIORITY,
            features=("weight",),
            normaliser=SignedLog(mean=0 * ONE, scale=ONE, clip=4.0),
            gate=None,
            training=(),
            dependent=frozenset(),
            validation=((toy_source("m"), (7,)),),
            modules=(),
            left_out=(),
            compilations=0,
            user_seconds=0.0,
        ),
    )

    found, _ = learning.judge({}, learning.functions.policy(np.ones(1)))

    assert [module.after for module in found.modules] == [twice]
    assert found.gain == -1.0
