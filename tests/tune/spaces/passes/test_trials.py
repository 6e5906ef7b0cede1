"""Trials of passes: which are toggled, and what a function may become slower by."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import mlgokit
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.reuse.trials import OVERRIDE, Outcome, Overrides, Stage, TrialResults
from mlgokit.problems import DECIDED_PASSES
from mlgokit.progress import say_nothing
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source
from mlgokit.tune.spaces.functions.opening import FunctionSearch, open_functions
from mlgokit.tune.spaces.functions.rounds import record_outcomes
from mlgokit.tune.spaces.functions.state import FunctionState, load_functions, save_functions
from mlgokit.tune.spaces.optimizer.step import OPTIONS as OPTIMIZER_OPTIONS
from mlgokit.tune.spaces.passes.candidates import (
    ATTRIBUTES,
    CANDIDATES,
    EXCLUDED,
    ONLY_ON,
    OPTIONS,
    REPEATED,
    candidates_of,
)
from mlgokit.tune.spaces.passes.trials import PassConfig, pass_number

PLUGIN = Path(mlgokit.__file__).parent / "plugin"
SINGLES = len(candidates_of(()))


def left_out(*names: str) -> Overrides:
    return Overrides(passes=np.array([(pass_number(name), 0, 0) for name in names], OVERRIDE))


def outcome(code: float, executed: float, *names: str) -> Outcome:
    return Outcome(
        seconds=0.01,
        score=code + 1e-9 * executed,
        cost=1e-9 * executed,
        evictions=0,
        priorities=0,
        passes=43,
        overrides=left_out(*names),
    )


def function() -> FunctionState:
    return FunctionState(key=7, name="f", plain=math.inf, score=math.inf)


def test_no_pass_that_stays_in_is_a_candidate_and_no_two_have_one_number():
    every = {name for name, _ in candidates_of(ONLY_ON)}
    assert not every & set(EXCLUDED)
    assert set(REPEATED) <= set(CANDIDATES)
    assert set(ATTRIBUTES) <= set(CANDIDATES)
    assert len({pass_number(name) for name in (*every, *EXCLUDED)}) == len(every) + len(EXCLUDED)


def test_the_plugin_has_the_same_attributes_and_options():
    written = (PLUGIN / "passes" / "FunctionOptions.cpp").read_text()
    of_optimizer = (PLUGIN / "passes" / "OptimizerGate.cpp").read_text().partition("ReadBy[] = ")[2].partition(";")[0]
    listed = written.partition("OfCodeGenerator[] = ")[2].partition(";")[0]
    assert set(re.findall(r'"(-[^"]+)"', listed)) == set(OPTIONS) >= {one for one in DECIDED_PASSES if one[0] == "-"}
    assert set(re.findall(r'"(-[^"]+)"', of_optimizer)) == set(OPTIMIZER_OPTIONS)
    assert set(re.findall(r'\{"([^"]+)", \w+, \w+\}', written)) == set(ATTRIBUTES)


def test_each_target_has_its_own_passes():
    found = dict(candidates_of(["arm"]))
    assert "arm-ldst-opt" in found
    assert not {"x86-cf-opt", "riscv-copyelim"} & found.keys()
    assert candidates_of(["sparc"]) == candidates_of(())
    assert len(candidates_of(["arm", "thumbv6m"])) == len(candidates_of(["arm"]))


def test_the_first_trials_are_all_passes_and_then_each_candidate_by_itself():
    rng, one = np.random.default_rng(1), function()
    (first,) = PassConfig().series(one, 8, rng)
    assert math.isnan(first.free)
    assert math.isinf(first.score)
    assert first.trials["toggles"].tolist() == [0] + 7 * [1]
    assert first.toggled is not None
    assert first.toggled["range"][1:, 0].tolist() == [pass_number(name) for name, _ in candidates_of(())[:7]]
    one.trials, one.cost, one.score = 8, 1e-8, 50.0
    (then,) = PassConfig(slowdown=0.5).series(one, SINGLES, rng)
    assert then.toggled is not None
    assert then.toggled["range"][0, 0] == pass_number(candidates_of(())[7][0])
    assert then.free == pytest.approx(1.5e-8)
    drawn = then.trials["toggles"][SINGLES - 7 :]
    assert set(drawn.tolist()) <= {1, 2, 3}
    for row, count in zip(then.toggled["range"], then.trials["toggles"], strict=True):
        assert np.count_nonzero(row) == count == len(set(row[:count].tolist()))


def test_what_an_earlier_plugin_leaves_out_is_tried_after_all_passes():
    one = function()
    one.start = left_out("machine-sink")
    first, earlier = PassConfig().series(one, 4, np.random.default_rng(1))
    assert first.trials["toggles"][0] == 0
    assert earlier.base is one.start
    assert earlier.trials["toggles"].tolist() == [0]
    one.trials = 4 + 1
    (then,) = PassConfig().series(one, 2, np.random.default_rng(1))
    assert then.toggled is not None
    assert then.toggled["range"][:, 0].tolist() == [pass_number(name) for name, _ in candidates_of(())[3:5]]


def test_a_function_may_not_become_slower_than_the_bound():
    plan, loose, one, other = PassConfig(), PassConfig(slowdown=0.1), function(), function()
    outcomes = [outcome(100, 50), outcome(90, 54, "machine-sink"), outcome(95, 50, "machine-cse")]
    assert record_outcomes(one, outcomes, plan) == pytest.approx(5.0, abs=1e-6)
    assert one.overrides.passes.tolist() == left_out("machine-cse").passes.tolist()
    assert record_outcomes(other, outcomes, loose) == pytest.approx(10.0, abs=1e-6)
    assert (one.passes, one.exhausted) == (43, False)
    assert PassConfig(slowdown=math.inf).penalty == 0


def test_what_was_found_survives_on_disk(tmp_path: Path):
    one = function()
    record_outcomes(one, [outcome(100, 50), outcome(95, 50, "machine-cse")], PassConfig())
    save_functions(tmp_path / "m", [one], measured_by="x")
    again = load_functions(tmp_path / "m", measured_by="x")[7]
    assert (again.passes, again.trials, again.score) == (43, 2, one.score)
    assert again.overrides.passes.tolist() == one.overrides.passes.tolist()


@pytest.mark.parametrize("slowdown", [0.0, 0.2, math.inf])
def test_under_another_bound_what_was_found_is_only_tried_first(slowdown: float, tmp_path: Path):
    """A session that goes on may bound what functions execute more closely."""
    tried = TrialResults(
        key=7, name="f", stage=Stage.PASSES, outcomes=(outcome(100, 50), outcome(90, 54, "machine-sink"))
    )
    done = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 100}), tried=(tried,))

    def open_again(slowdown: float) -> FunctionSearch:
        return open_functions(
            [toy_source("m")],
            compiler=FakeCompiler(answer=lambda *_: done),
            config=PassConfig(slowdown=slowdown),
            folder=tmp_path,
            start={},
            seed=1,
            report=say_nothing,
        )

    space = open_again(0.1).space
    (unit,) = space.units
    space.accept(unit, space.propose(unit, np.random.default_rng(1), lambda: False)())
    assert open_again(0.1).space.functions[0].score == pytest.approx(90)
    (again,) = open_again(slowdown).space.functions
    assert math.isinf(again.score)
    assert again.start is not None
    assert again.start.passes.tolist() == left_out("machine-sink").passes.tolist()
