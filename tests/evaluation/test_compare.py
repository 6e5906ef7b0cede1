"""Rows and sums of both sides, from a compiler that starts no process."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds.compiled import compile_projects
from mlgokit.builds.images import BuiltImage, LinkBuild, LinkTask, WeighedImage, no_image
from mlgokit.builds.pair import ProjectPair, VariantPair
from mlgokit.builds.variant import PLAIN_VARIANT, Variant, make_variant
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.regalloc_cost import RegallocCosts
from mlgokit.compiler.request import Lto
from mlgokit.corpus.corpus import ModuleFailure as NoModule
from mlgokit.errors import InputError, ToolError
from mlgokit.evaluation.compare import compare_builds, compare_project, make_evaluation
from mlgokit.evaluation.explain import explain_differences
from mlgokit.evaluation.page import evaluation_page
from mlgokit.evaluation.records import MEASURES, Evaluation, ProjectComparison, drop_rows, read_evaluation
from mlgokit.evaluation.rows import compare_costs
from mlgokit.evaluation.verdict import VerdictRules, judge
from mlgokit.pages.html import render_markdown
from mlgokit.testing import FakeCompiler, ToyCall, ToyModule, toy_compiler, toy_source

CALLS = (ToyCall(caller="main", callee="leaf", site=2),)


def toy(*, fails: str = "") -> ToyModule:
    """Inlining makes main smaller by 4 and lets leaf go; ``fails`` with the plugin."""
    return ToyModule(
        calls=CALLS,
        weigh=lambda inlined: {"main": 96, "same": 40} if inlined[0] else {"main": 100, "same": 40, "leaf": 10},
        signatures={"leaf": "leaf"},
        fails=lambda request: fails if request.use is not None else "",
    )


def linked(task: LinkTask) -> WeighedImage:
    """A hundred bytes for each object."""
    if task.build == "after" and any(name.startswith("unlinked") for name in task.objects):
        return no_image(status="failed", reason="undefined symbol: f")
    row = BuiltImage(status="linked", image=100 * len(task.objects), text=60 * len(task.objects))
    return WeighedImage(row=row)


def evaluated(
    compiler: FakeCompiler,
    names: list[str],
    after: Variant,
    *,
    before: Variant = PLAIN_VARIANT,
    links: dict[str, LinkBuild] | None = None,
    lto: dict[str, Lto] | None = None,
    left_out: Sequence[NoModule] = (),
) -> Evaluation:
    pair = compile_projects(
        [toy_source(name, project=name.split("/", maxsplit=1)[0]) for name in names],
        VariantPair(before=before, after=after),
        compiler=compiler,
        links=links or {"": linked},
        lto=lto,
        left_out=left_out,
    )
    return compare_builds(pair)


def test_functions_that_differ_are_rows_of_both_sides():
    found = evaluated(toy_compiler({"a/1": toy()}), ["a/1"], make_variant([":always"]))
    (module,) = found.projects[0].module_rows

    assert (module.before.objects, module.after.objects, module.functions) == (150, 136, 3)
    assert (module.before.plugin, module.after.plugin) == (False, True)
    main, leaf = module.differing
    assert (main.function, main.before and main.before.text, main.after and main.after.text) == ("main", 100, 96)
    assert (leaf.function, leaf.after, leaf.comdat) == ("leaf", None, True)
    assert (found.before.label, found.after.label, found.policy) == ("plain", ":always", ":always")


def test_what_fails_is_a_row_and_not_in_the_sums():
    compiler = toy_compiler({"a/1": toy(), "a/2": toy(fails="error: no")})
    found = evaluated(compiler, ["a/1", "a/2"], make_variant([":always"]))
    (project,) = found.projects

    assert (project.modules, project.before.objects, project.after.objects) == (1, 150, 136)
    assert [(row.before.status, row.after.status, row.after.reason) for row in project.module_rows] == [
        ("ok", "ok", ""),
        ("ok", "failed", "error: no"),
    ]
    assert project.module_rows[1].differing == ()
    assert project.failures[0].reason == "the compiler reported an error: error: no"


def test_a_link_that_fails_is_a_row_and_its_project_is_in_no_summary():
    compiler = toy_compiler({"a/1": toy(), "unlinked/1": toy()})
    found = evaluated(compiler, ["a/1", "unlinked/1"], make_variant([":always"]))

    assert found.projects[1].link_failure == "after: failed: undefined symbol: f"
    assert found.projects[1].images[0].after.status == "failed"
    assert found.overall["image"].projects == 1
    assert found.summary["c++"]["objects"].mean == pytest.approx(136 / 150 - 1)


def test_two_plain_sides_do_not_differ():
    found = evaluated(toy_compiler({"a/1": toy(), "b/1": toy()}), ["a/1", "b/1"], PLAIN_VARIANT)

    assert all(not row.differing for one in found.projects for row in one.module_rows)
    assert {(change.low, change.high) for change in found.overall.values()} == {(0.0, 0.0)}


@pytest.mark.parametrize("after", [PLAIN_VARIANT, make_variant([":always"])], ids=["plain", "policy"])
def test_no_seed_finds_a_difference_between_equal_sides(after: Variant):
    compiler = toy_compiler({f"{name}/1": toy() for name in "abcd"})
    found = evaluated(compiler, [f"{name}/1" for name in "abcd"], after, before=after)

    for seed in range(100):
        again = make_evaluation(found.projects, before=after, after=after, seed=seed, level=0.99, compilations=8)
        assert all(change.low <= 0 <= change.high for change in again.overall.values())
        assert not any(judge(again, VerdictRules(), measure).ship for measure in MEASURES)


def test_a_source_that_is_no_module_is_a_row():
    left_out = [
        NoModule(name="a/2", project="a", reason="no such header"),
        NoModule(name="b/1", project="b", reason="of another project"),
    ]
    found = evaluated(toy_compiler({"a/1": toy()}), ["a/1"], PLAIN_VARIANT, left_out=left_out)

    (project,) = found.projects
    assert (project.modules, [row.module for row in project.module_rows]) == (1, ["a/1", "a/2"])
    assert (project.module_rows[1].after.status, project.module_rows[1].after.reason) == ("left_out", "no such header")


def test_objects_for_link_time_optimization_are_bitcode():
    compiler = toy_compiler({"a/1": toy()})
    evaluated(compiler, ["a/1"], PLAIN_VARIANT, lto={"a/1": "thin"})

    assert [request.lto for _, request in compiler.asked] == ["thin", "thin"]


@pytest.mark.parametrize("bitcode", [0, 1])
def test_an_object_that_is_bitcode_on_one_side_is_in_no_sum_of_objects(bitcode: int):
    compiler = toy_compiler({"a/1": toy(), "a/2": toy()})
    names = ["a/1", "a/2"]
    sources = [toy_source(name, project="a") for name in names]
    variants = VariantPair(after=make_variant([":always"]))
    pair = compile_projects(sources, variants, compiler=compiler, links={"": linked})
    (project,) = pair.projects
    without = {
        name: tuple(
            done if done is None or side != bitcode else dataclasses.replace(done, sizes=None)
            for side, done in enumerate(both)
        )
        for name, both in project.modules.items()
    }
    for changed, objects in (({"a/1"}, (150, 136)), (set(names), (0, 0))):
        modules = {name: (without if name in changed else project.modules)[name] for name in names}
        found = compare_builds(dataclasses.replace(pair, projects=[dataclasses.replace(project, modules=modules)]))
        (compared,) = found.projects
        assert (compared.modules, compared.before.objects, compared.after.objects) == (2, *objects)
        assert compared.larger_modules == 0
        assert ("objects" in found.overall) is bool(objects[0])
        assert found.overall["image"].mean == 0


def test_each_of_several_programs_is_an_image():
    compiler = toy_compiler({"a/1": toy(), "a/2": toy()})
    links: dict[str, LinkBuild] = {
        "tool": linked,
        "server": lambda task: linked(dataclasses.replace(task, objects={"unlinked": Path()})),
    }
    found = evaluated(compiler, ["a/1", "a/2"], make_variant([":always"]), links=links)

    (project,) = found.projects
    assert [(one.image, one.before.image, one.after.status) for one in project.images] == [
        ("tool", 200, "linked"),
        ("server", 100, "failed"),
    ]
    assert project.link_failure == "after: failed: undefined symbol: f"


def spilling(copies: float) -> RegallocCosts:
    return RegallocCosts(
        functions=("f",), counts=np.ones((1, 6), np.int64), costs=np.array([[0.0, 0.0, 0.0, 0.0, copies]])
    )


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"": spilling(10)}, {"": spilling(5)}, -0.5),
        ({".thin.1.yaml": spilling(10), ".thin.2.yaml": spilling(10)}, {".thin.1.yaml": spilling(10)}, None),
        ({}, {}, None),
    ],
)
def test_costs_under_link_time_optimization_are_those_of_the_link_or_said_not_to_be_read(
    before: dict[str, RegallocCosts], after: dict[str, RegallocCosts], change: float | None
):
    done = Compilation(status=CompileStatus.OK)
    sides = [
        WeighedImage(row=BuiltImage(status="linked", lto="full", image=size), costs=found)
        for size, found in ((100, before), (90, after))
    ]

    def project(*, asked: bool) -> ProjectComparison:
        pair = ProjectPair(project="a", language="c", modules={"a.o": (done, done)}, images=[("a", sides[0], sides[1])])
        return compare_project(pair, plugins=(False, False), costs=asked)

    found = project(asked=True)
    assert found.costs is not None
    if change is None:
        assert (found.costs.functions, found.costs.unread) == (0, "not read: LTO")
    else:
        assert (found.costs.change, found.costs.unread) == (pytest.approx(change, abs=0.01), "")
    assert project(asked=False).costs is None or change is not None
    evaluation = make_evaluation([found], before=PLAIN_VARIANT, after=PLAIN_VARIANT, compilations=1)
    sentence = judge(evaluation, VerdictRules(), "cost").sentence
    assert ("(not read: LTO)." in sentence) is (change is None)
    assert ("| a | not read: LTO |" in render_markdown(evaluation_page(evaluation))) is (change is None)


def test_options_are_compiled_with():
    compiler = toy_compiler({"a/1": toy()})
    evaluated(compiler, ["a/1"], make_variant(options=["-mllvm", "-x=1"]))

    assert sorted(module.command_line for module, _ in compiler.asked) == [
        ("-cc1", "-Oz"),
        ("-cc1", "-Oz", "-mllvm", "-x=1"),
    ]


@pytest.mark.parametrize(
    ("variants", "seconds", "reason"),
    [
        (VariantPair(after=make_variant([":always"])), 1.0, "its bitcode was not kept"),
        (VariantPair(after=make_variant([":always"])), 0.0, "--explain-seconds 0 was given"),
        (VariantPair(after=PLAIN_VARIANT), 1.0, "the candidate has no policy or plugin for inlining"),
        (
            VariantPair(before=make_variant([":never"]), after=make_variant([":always"])),
            1.0,
            "call trees compare inlining with LLVM's own, and the baseline is not LLVM's own",
        ),
        (
            VariantPair(after=make_variant([":always"], options=["-mllvm", "-x=1"])),
            1.0,
            "the compiler options differ, not only the inlining decisions",
        ),
    ],
)
def test_an_evaluation_without_call_trees_says_why(variants: VariantPair, seconds: float, reason: str):
    pair = compile_projects([toy_source("a/1")], variants, compiler=toy_compiler({"a/1": toy()}), links={"": linked})

    assert explain_differences(compare_builds(pair), pair, seconds=seconds).no_trees == reason


def test_an_evaluation_is_read_as_it_was_written(tmp_path: Path):
    found = evaluated(toy_compiler({"a/1": toy()}), ["a/1"], make_variant([":always"]))
    (tmp_path / "e.json").write_text(json.dumps(found.to_json()))

    assert read_evaluation(tmp_path / "e.json") == found
    assert drop_rows(found).projects[0].module_rows == ()
    assert drop_rows(found).overall == found.overall


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected an evaluation, found: Expecting"),
        ("[]", "expected a JSON object with format 'mlgokit evaluation' and format_version 1, found None and None"),
        ('{"format": "mlgokit evaluation", "format_version": 9}', "found 'mlgokit evaluation' and 9; evaluate again"),
        ('{"format": "mlgokit evaluation", "format_version": 1}', "evaluation: expected the key 'compilations'"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, message: str):
    (tmp_path / "e.json").write_text(text)

    with pytest.raises(InputError, match=message):
        read_evaluation(tmp_path / "e.json")


def test_without_a_linker_nothing_is_compiled():
    compiler = toy_compiler({"a/1": toy()})

    with pytest.raises(ToolError, match=r"^evaluation: expected ld.lld of LLVM 22 to link the projects, found none"):
        compile_projects([toy_source("a/1")], VariantPair(after=PLAIN_VARIANT), compiler=compiler)
    assert compiler.asked == []


def test_intervals_follow_seed_and_level():
    compiler = toy_compiler({f"{name}/1": toy() for name in "abc"})
    projects = evaluated(compiler, ["a/1", "b/1", "c/1"], make_variant([":always"])).projects
    narrow, wide = (
        make_evaluation(
            projects,
            before=PLAIN_VARIANT,
            after=PLAIN_VARIANT,
            seed=2,
            level=level,
            compilations=6,
        )
        for level in (0.5, 0.99)
    )

    assert (narrow.seed, narrow.level, wide.level) == (2, 0.5, 0.99)
    assert narrow.overall["objects"].mean == wide.overall["objects"].mean


def costs(**scores: float) -> RegallocCosts:
    """One reload costs four."""
    rows = np.zeros((len(scores), 5))
    rows[:, 1] = [score / 4 for score in scores.values()]
    return RegallocCosts(functions=tuple(scores), counts=np.ones((len(scores), 6), np.int64), costs=rows)


def test_each_function_counts_against_itself():
    found = compare_costs([(costs(hot=9999.99, cold=0.99), costs(hot=9999.99, cold=0.49))])

    assert found is not None
    assert (found.functions, found.cheaper, found.dearer) == (2, 1, 0)
    # Half the cost in one of two functions, however much the other one costs.
    assert found.change == pytest.approx(0.5**0.5 - 1)
    assert found.counts_before["reloads"] == 2


def test_costs_are_compared_only_where_they_were_measured():
    assert compare_costs([(None, None)]) is None
    nothing = compare_costs([(costs(), costs())])
    assert nothing is not None
    assert (nothing.functions, nothing.change) == (0, 0.0)
    assert nothing.counts_before["spills"] == 0
