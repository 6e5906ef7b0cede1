"""Sizes without the functions that a link discards."""

import dataclasses

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.live import LivenessCompiler, dead_functions, mark_live, without_liveness
from mlgokit.compiler.objects.measure import Objective, project_image_estimate
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source

SIZES = toy_sizes(
    {"main": 9, "used": 5, "once": 40, "unused": 3, "inline": 7},
    signatures={"inline": "inline"},
    references={"main": ["used", "elsewhere"], "used": ["inline"], "unused": ["once"]},
)


def test_functions_that_nothing_refers_to_have_no_bytes():
    narrowed = mark_live(SIZES, {"main"})

    assert dead_functions(narrowed) == ("once", "unused")
    assert project_image_estimate([narrowed]) == 9 + 5 + 7
    assert project_image_estimate([without_liveness(narrowed)]) == project_image_estimate([SIZES]) == 64
    assert narrowed.totals == SIZES.totals


def test_what_data_refer_to_stays():
    assert SIZES.references is not None
    held = dataclasses.replace(
        SIZES, references=dataclasses.replace(SIZES.references, always_live=frozenset({"unused"}))
    )

    assert dead_functions(mark_live(held, {"main"})) == ()


def test_functions_of_one_name_stay():
    twice = toy_sizes({"main": 9, "local": 5, "other": 3}, references={"local": ["other"]})
    twice = dataclasses.replace(twice, function_names=("main", "local", "local"))

    assert dead_functions(mark_live(twice, {"main"})) == ()


def test_sizes_without_references_stay_as_they_are():
    unknown = toy_sizes({"main": 9, "unused": 3})

    assert mark_live(unknown, {"main"}) is unknown
    assert unknown.scores_of_functions(Objective.LINK_AWARE).tolist() == [9, 3]


def test_references_are_asked_for_until_the_link_is_known_to_discard_nothing():
    module = toy_source("a")
    inner = FakeCompiler(answer=lambda _, __: Compilation(status=CompileStatus.OK, sizes=SIZES))
    compiler = LivenessCompiler(compiler=inner, find_roots=lambda _: {"a": frozenset({"main"})})

    assert dead_functions(compiler.compile(module).measured) == ()
    compiler.roots = compiler.find_roots({"a": SIZES})
    assert dead_functions(compiler.compile(module).measured) == ("once", "unused")
    compiler.roots = {}
    assert dead_functions(compiler.compile(module).measured) == ()
    assert [request.references for _, request in inner.asked] == [True, True, False]
