"""Why a module is larger or smaller, from a compiler that starts no process."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds.images import FunctionBytes
from mlgokit.builds.variant import make_variant
from mlgokit.commands.explain import Explained, find_module, page
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.request import CompileRequest
from mlgokit.errors import UsageError
from mlgokit.evaluation.explain import (
    DifferingFunction,
    Explanation,
    explain_largest_changes,
    explain_module,
    largest_changes,
    list_call_tree,
)
from mlgokit.evaluation.records import ExplainedSite
from mlgokit.module import Module
from mlgokit.pages.terminal import print_page
from mlgokit.policy.importance import changes_from_typical
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import Quantile, SignedLog, typical_values
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.terminal import open_console
from mlgokit.testing import FakeCompiler, ToyCall, ToyModule, toy_compiler, toy_sizes, toy_source

EVIL = "evil\x1b]0;moon\x07\nname"
CALLS = (
    ToyCall(caller="top", callee="middle", site=2, features={"size": 1, "users": 9}, default=True),
    ToyCall(caller="middle", callee="leaf", site=4, features={"size": 90, "users": 9}, default=True),
    ToyCall(caller="middle", callee="twig", site=6, features={"size": 90, "users": 0}, default=True),
    ToyCall(caller="far", callee=EVIL, site=8, features={"size": 1, "users": 0}, default=False),
    ToyCall(caller="idle", callee="gone", site=10, features={"size": 80, "users": 0}, default=True),
)
BOTH = (make_variant([":never"]), make_variant([":always"]))


def weigh(inlined: tuple[bool, ...]) -> dict[str, int]:
    """``top`` holds ``middle``; without its two calls inlined there it is 30 and 5 larger."""
    top, leaf, twig, far, _ = inlined
    found = {"top": 100 + 30 * (not leaf) + 5 * (not twig), "far": 50 - 20 * far, "same": 7}
    return found | ({} if leaf else {"leaf": 40}) | ({} if far else {EVIL: 10}) | ({} if top else {"middle": 60})


TOY = ToyModule(calls=CALLS, weigh=weigh)


def small_ones_only(folder: Path) -> Path:
    """A policy of two members: both refuse what is large, and one of them what has users."""
    weight = np.zeros((2, 2, 2), np.float32)
    weight[:, 0, 1] = -1
    weight[1, 1, 1] = -0.7
    policy = Policy(
        problem="inline-size",
        features=("size", "users"),
        normaliser=SignedLog(mean=np.array([2, 0], np.float32), scale=np.ones(2, np.float32), clip=9.0),
        layers=(Layer(weight, np.array([[0, 0.1], [0, 0.1]], np.float32)),),
        output=OutputKind.LOGITS,
    )
    save_policy(policy, folder / "small.policy")
    return folder / "small.policy"


@pytest.fixture
def found(tmp_path: Path) -> Explanation:
    path = small_ones_only(tmp_path)
    return explain_module(
        toy_source("m"),
        compiler=toy_compiler({"m": TOY}),
        side=make_variant([str(path)]),
        policy=load_policy(path),
        names=("middle", "twig", "idle", "gone"),
    )


def site_of(found: Explanation, callee: str) -> ExplainedSite:
    (one,) = (one for one in found.sites if one.callee == callee)
    return one


def shown(found: Explanation, *, functions: int = 10) -> str:
    out = io.StringIO()
    print_page(page(Explained(explanation=found, functions=functions)), open_console(out))
    return out.getvalue()


def test_bytes_are_those_of_components_and_nothing_is_shared_out(found: Explanation):
    assert (found.before, found.after) == (167, 212)
    # top and leaf belong to the two refusals in middle, far and what it calls to the one call that is inlined.
    assert [(one.change, one.differences, one.functions) for one in found.components] == [
        (75, 2, 2),
        (0, 1, 0),
        (-30, 1, 2),
    ]
    assert sum(one.change for one in found.components) + found.unexplained + found.elsewhere == found.change
    assert {one.function: (one.before, one.after, one.component) for one in found.functions} == {
        "leaf": (None, 40, 0),
        "top": (100, 135, 0),
        EVIL: (10, None, 2),
        "far": (50, 30, 2),
    }


def test_a_site_has_both_decisions_and_what_the_policy_says(found: Explanation):
    kept, refused, taken = (site_of(found, name) for name in ("middle", "leaf", EVIL))

    assert (kept.plain, kept.heuristic, kept.decided, kept.differs, kept.component) == (True, True, True, False, None)
    assert (refused.plain, refused.decided, refused.component) == (True, False, 0)
    assert (taken.plain, taken.decided, taken.component) == (False, True, 2)
    assert (refused.members, refused.agree, taken.agree) == (2, 2, 2)
    # One member is for it, the other against it.
    assert (kept.members, kept.agree) == (2, 1)
    assert kept.preference is not None
    assert kept.preference > 0
    assert [(one.feature, one.value, round(one.typical, 2)) for one in refused.features] == [
        ("size", 90, 6.39),
        ("users", 9, 0.0),
    ]
    assert all(one.change < 0 for one in refused.features)
    assert [one.feature for one in taken.features] == ["size"]
    assert not kept.features


def test_the_tree_leads_from_a_function_that_changed_to_its_differences(found: Explanation):
    larger, smaller = largest_changes(found, 1)

    assert [one.function for one in larger] == ["leaf"]
    assert [one.function for one in smaller] == ["far"]
    top = next(one for one in found.functions if one.function == "top")
    assert [(line.depth, line.site.callee, line.site.differs) for line in list_call_tree(found, top)] == [
        (0, "middle", False),
        (1, "leaf", True),
        (1, "twig", True),
    ]
    assert [(line.where, line.site.caller) for line in list_call_tree(found, larger[0])] == [("above", "middle")]


def test_the_terminal_tells_a_components_sum_once_and_obeys_no_name(found: Explanation):
    text = shown(found)

    assert "m: 167 bytes with LLVM's decisions, 212 with " in text
    assert "+45 = +45 from changed decisions, +0 in functions out of their reach, +0 outside of functions" in text
    assert text.count("Component 0: +75 bytes in 2 functions by 2 differences together") == 1
    assert text.count("Component 0, as above") == 1
    assert "    calls leaf: LLVM: inlined, now: not inlined, call site 0x0000000000000004" in text
    assert "2 of 2 members agree; size here 90, typically 6.4, by -2.51; users here 9, typically 0.0, by -0.81" in text
    assert "calls evil\\x1b]0;moon\\nname: LLVM: not inlined, now: inlined" in text
    assert "\x1b" not in text
    assert "2 more functions changed; --functions shows more, --json has all" in shown(found, functions=1)


def row(name: str, before: int | None, after: int | None, *where: str) -> DifferingFunction:
    sides = [None if size is None else FunctionBytes(text=size) for size in (before, after)]
    return DifferingFunction(function=name, project="p", before=sides[0], after=sides[1], where=where)


def test_functions_that_changed_most_have_trees_of_one_module_each(tmp_path: Path):
    path = small_ones_only(tmp_path)
    compiler = toy_compiler({"m": TOY, "n": TOY})
    rows = (
        row("leaf", None, 40, "x", "m"),
        row("top", 100, 135, "n", "m"),
        row("odd", 5, 6, "x"),
        row("far", 50, 30, "m"),
    )
    trees = explain_largest_changes(
        rows,
        {name: toy_source(name) for name in ("m", "n")},
        compiler=compiler,
        side=make_variant([str(path)]),
        policy=load_policy(path),
        names=lambda _: ("middle", "twig"),
        seconds=600,
    )

    assert [(one.function, one.module, one.growth, one.failure) for one in trees] == [
        ("leaf", "m", 40, ""),
        ("top", "m", 35, ""),
        ("odd", "x", 1, "its module is bitcode of a link-time optimization"),
        ("far", "m", -20, ""),
    ]
    assert [(line.depth, line.site.callee) for line in trees[1].lines] == [(0, "middle"), (1, "leaf"), (1, "twig")]
    assert trees[1].component is not None
    assert (trees[1].component.change, trees[1].before, trees[1].after) == (75, 100, 135)
    assert [module.name for module, _ in compiler.asked] == ["m", "m"]


def test_trees_that_the_time_is_not_enough_for_say_so():
    compiler = toy_compiler({"m": TOY})
    trees = explain_largest_changes(
        (row("leaf", None, 40, "m"),), {"m": toy_source("m")}, compiler=compiler, side=BOTH[0], seconds=-1
    )

    assert [one.failure for one in trees] == ["the -1 seconds for call trees were over"]
    assert not compiler.asked


def test_json_has_the_whole_explanation(found: Explanation):
    value = json.loads(json.dumps(found.to_json()))

    assert (value["format"], value["format_version"]) == ("mlgokit explanation", 1)
    assert len(value["sites"]) == len(CALLS)
    assert value["side"]["label"].endswith("small.policy")


def test_a_compilation_that_fails_is_the_answer():
    toy = ToyModule(
        calls=CALLS,
        weigh=weigh,
        fails=lambda request: "error: no" if request.use and ":never" in request.use.policies.values() else "",
    )
    found = explain_module(toy_source("m"), compiler=toy_compiler({"m": toy}), side=BOTH[0])

    assert found.failure == ":never: the compiler reported an error: error: no"
    assert shown(found) == f"m: nothing to explain: {found.failure}\n"


def test_other_policies_decide_on_both_sides():
    compiler = toy_compiler({"m": TOY})
    explain_module(toy_source("m"), compiler=compiler, side=make_variant([":never", "regalloc-eviction=:first"]))

    asked = [
        request.use.policies for _, request in compiler.asked if isinstance(request, CompileRequest) and request.use
    ]
    assert sorted(one["inline-size"] for one in asked) == [":default", ":never"]
    assert {one["regalloc-eviction"] for one in asked} == {":first"}


def test_what_a_plugin_allocates_is_a_sum_of_its_own(tmp_path: Path):
    inlining = toy_compiler({"m": TOY})

    def answer(module: Module, request: CompileRequest) -> Compilation:
        done = inlining.answer(module, request)
        assert request.use is not None
        allocates = request.use.plugin is not None and not request.use.allocations
        return dataclasses.replace(done, sizes=toy_sizes({"same": 4})) if allocates else done

    plugin = tmp_path / "tuned.so"
    plugin.write_bytes(b"")
    compiler = FakeCompiler(answer=answer)
    found = explain_module(toy_source("m"), compiler=compiler, side=make_variant(plugin=plugin))

    assert [one.function for one in found.functions] == []
    assert (found.before, found.after, found.allocation) == (167, 4, -163)
    assert "-163 by register allocation" in shown(found)
    uses = [request.use for _, request in compiler.asked if request.use is not None and request.use.allocations]
    problems = ("regalloc-eviction", "regalloc-priority", "regalloc-weight")
    assert [dict(use.policies) for use in uses] == [dict.fromkeys(problems, ":default")]


def test_a_function_that_no_difference_reaches_is_counted_apart():
    toy = ToyModule(calls=CALLS[3:4], weigh=lambda inlined: {"far": 50 - 20 * inlined[0], "other": 9 + inlined[0]})
    found = explain_module(toy_source("m"), compiler=toy_compiler({"m": toy}), side=BOTH[1])

    assert (found.change, found.components[0].change, found.unexplained) == (-19, -20, 1)
    assert (
        "other: +1 bytes (9 -> 10)\n  No call that is decided differently can have changed this function.\n"
        in shown(found)
    )


def test_a_function_that_lives_on_with_its_callers_shows_their_differences():
    calls = (
        ToyCall(caller="top", callee="twig", site=2, default=True),
        ToyCall(caller="top", callee="leaf", site=4, default=False),
    )
    toy = ToyModule(
        calls=calls, weigh=lambda inlined: {"top": 50} if inlined[0] else {"top": 45, "twig": 20, "leaf": 9}
    )
    found = explain_module(toy_source("m"), compiler=toy_compiler({"m": toy}), side=BOTH[0])
    leaf = next(one for one in found.functions if one.function == "leaf")

    assert leaf.component == 0
    assert [(line.where, line.site.callee) for line in list_call_tree(found, leaf)] == [("elsewhere", "twig")]
    assert "leaf: +9 bytes (absent -> 9)\n  Component 0, as above.\n  top calls twig: LLVM: inl" in shown(found)


def test_a_module_without_decisions_has_nothing_to_tell():
    toy = ToyModule(calls=(), weigh=lambda _: {"f": 3})
    found = explain_module(toy_source("m"), compiler=toy_compiler({"m": toy}), side=BOTH[1])

    assert (found.change, found.sites, found.components) == (0, (), ())


def test_what_does_not_decide_inlining_is_refused():
    with pytest.raises(UsageError, match=r"^explain: expected a policy or a plugin that decides inlining, found "):
        explain_module(
            toy_source("m"), compiler=toy_compiler({"m": TOY}), side=make_variant(["regalloc-eviction=:first"])
        )


def test_a_module_is_named_by_an_end_that_no_other_has():
    modules = tuple(toy_source(name) for name in ("p/a/x.o", "p/b/x.o", "p/b/ax.o", "x.o"))

    assert find_module(modules, "b/x.o", corpus=Path("c")).name == "p/b/x.o"
    assert find_module(modules, "x.o", corpus=Path("c")).name == "x.o"
    with pytest.raises(
        UsageError,
        match=r"^module x.o: expected the name or an unambiguous suffix of a module in c, found 2 matches; "
        "the corpus has p/a",
    ):
        find_module(modules[:3], "x.o", corpus=Path("c"))
    with pytest.raises(UsageError, match=r"found no match; the corpus has p/a/x.o, p/b/x.o, p/b/ax.o and 1 more$"):
        find_module(modules, "y.o", corpus=Path("c"))


def test_typical_values_lie_in_the_middle_of_what_was_fitted():
    logs = SignedLog(mean=np.array([np.log(8), -np.log(4), 0], np.float32), scale=np.ones(3, np.float32), clip=4.0)
    rows = Quantile(boundaries=np.array([[1, 2, 9], [5, 6, 6]], np.float32), lengths=(3, 2))

    assert typical_values(logs).round(4).tolist() == [7, -3, 0]
    assert typical_values(rows).tolist() == [2, 6]


def test_a_feature_at_its_typical_value_changes_nothing(tmp_path: Path):
    policy = load_policy(small_ones_only(tmp_path))

    changes = changes_from_typical(policy, np.array([[90, 0], [0, 9]]))

    assert (changes[0, 0] < 0, changes[0, 1], changes[1, 0] > 0, changes[1, 1] < 0) == (True, 0.0, True, True)
