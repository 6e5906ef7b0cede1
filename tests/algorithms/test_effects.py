"""What flips of whole compilations teach."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from mlgokit.algorithms.credit import Credit, attribute
from mlgokit.algorithms.effects import join_effects, measured_effects, project_weights, score_functions
from mlgokit.compiler.compilation import Compilation, CompileStatus, Keep
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.request import CompileRequest
from mlgokit.errors import UsageError
from mlgokit.testing import FakeCompiler, ToyCall, toy_log, toy_sizes, toy_source
from mlgokit.traces.function_id import function_id

MODULE = toy_source("m")
CRASHED = Compilation(status=CompileStatus.CRASHED)


def explored(
    functions: dict[str, int], decisions: Sequence[tuple[str, str, bool, float]], *, keep: Keep = "flips"
) -> Compilation:
    """Each decision has caller, callee, whether it inlined, and its probability."""
    calls = [
        ToyCall(caller=caller, callee=callee, site=2 * place, features={"size": 100 + place, "depth": 200 + place})
        for place, (caller, callee, _, _) in enumerate(decisions)
    ]
    log = toy_log(calls, [one[2] for one in decisions], log_probability=np.log([one[3] for one in decisions]).tolist())
    done = Compilation(status=CompileStatus.OK, sizes=toy_sizes(functions), logs={"inline-size": log})
    return FakeCompiler(answer=lambda *_: done).compile(MODULE, CompileRequest(keep=keep))


def credited(base: Compilation, flipped: Compilation) -> Credit:
    return attribute(*(score_functions(done, {}, Objective.LINK_AWARE) for done in (base, flipped)))


def test_signatures_are_counted_project_by_project():
    other = toy_source("n", project="q")
    inline = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 10}, signatures={"f": "f"}))
    failed = dataclasses.replace(inline, status=CompileStatus.FAILED, sizes=None)

    weights = project_weights([MODULE, other, MODULE, MODULE], [inline, inline, inline, failed])

    assert weights == {"p": {"f": 2}, "q": {"f": 1}}


def test_scores_are_shared_among_the_modules():
    sizes = toy_sizes({"f": 10, "g": 30}, signatures={"f": "f", "g": "f"})
    ready = score_functions(Compilation(status=CompileStatus.OK, sizes=sizes), {"f": 2}, Objective.LINK_AWARE)

    assert ready.functions.tolist() == [function_id("f"), function_id("g")]
    assert ready.scores.tolist() == [5.0, 15.0]


def test_without_object_there_are_no_scores():
    with pytest.raises(
        UsageError, match=r"found one where the compiler was ended by a signal; leave this compilation out"
    ):
        score_functions(CRASHED, {}, Objective.LINK_AWARE)


@pytest.mark.parametrize("keep", ["flips", "all"])
def test_flips_and_changes_of_several_explorations_are_joined(keep: Keep):
    base = explored({"f": 50, "g": 60}, [("f", "a", False, 1.0), ("g", "b", True, 1.0)], keep=keep)
    both = explored({"f": 60, "g": 56}, [("f", "a", True, 0.1), ("g", "b", False, 0.1)], keep=keep)
    last = explored({"f": 50, "g": 53}, [("f", "a", False, 0.9), ("g", "b", False, 0.1)], keep=keep)

    credits_of = [credited(base, done) for done in (both, last)]
    measured = join_effects(
        [measured_effects(done, credit, project="p") for done, credit in zip((both, last), credits_of, strict=True)]
    )

    assert (measured.names, measured.projects) == (("size", "depth"), ("p",))
    assert measured.values[:, 0].tolist() == [100, 101, 101]
    assert measured.sign.tolist() == [1.0, -1.0, -1.0]
    assert measured.component.tolist() == [0, 1, 2]
    assert measured.change.tolist() == [10.0, -4.0, -7.0]
    assert measured.project.tolist() == [0, 0, 0]
    assert measured.departs is not None
    assert measured.departs.tolist() == [True, False, False]
    assert [credit.unattributed for credit in credits_of] == [0.0, 0.0]


def test_a_change_that_no_flip_explains_is_counted():
    base = explored({"f": 50, "x": 60}, [("f", "a", False, 1.0)])
    flipped = explored({"f": 58, "x": 57}, [("f", "a", True, 0.1)])

    credit = credited(base, flipped)

    assert (credit.change.tolist(), credit.unattributed) == ([8.0], 3.0)


def test_without_a_flip_there_is_nothing_to_join():
    base = explored({"f": 50, "g": 60}, [("f", "a", True, 0.9), ("g", "a", False, 0.1), ("g", "b", True, 0.5)])
    greedy = explored({"f": 51, "g": 60}, [("f", "a", True, 0.9)])
    nothing = measured_effects(greedy, credited(base, greedy), project="p")

    assert len(nothing.change) == 0
    with pytest.raises(
        UsageError, match="expected at least one flipped decision whose bytes were measured, found none"
    ):
        join_effects([nothing])
