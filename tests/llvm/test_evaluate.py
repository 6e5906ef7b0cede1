"""Two ways of building a corpus, with real compilers."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands.evaluate import Evaluate, exit_code, run
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError
from mlgokit.evaluation.records import BuiltModule, Evaluation
from mlgokit.problems import INLINE_SIZE

pytestmark = pytest.mark.llvm
Evaluated = Callable[..., tuple[Evaluation, int]]


@pytest.fixture
def evaluated(small_corpus: Path, toolchain: Toolchain, plugin: Path) -> Evaluated:
    """``evaluated(...)``: the four good modules of the small corpus, each of which is a project of its own."""

    def evaluate(**given: Any) -> tuple[Evaluation, int]:
        facts: dict[str, Any] = {"projects": tuple(f"m{number}" for number in range(4))}
        config = Evaluate(
            corpus=small_corpus, compiler=CompilerOptions(llvm=toolchain.major, workers=2), **(facts | given)
        )
        found = run(config)
        return found, exit_code(config, found)

    return evaluate


def sizes(module: BuiltModule) -> BuiltModule:
    return dataclasses.replace(module, user_seconds=0.0, plugin=False)


def outcome(found: Evaluation) -> list[tuple[BuiltModule, str]]:
    """What the judged side made: modules and images."""
    return [(sizes(row.after), one.images[0].after.sha256) for one in found.projects for row in one.module_rows]


@pytest.mark.parametrize("policies", [(), (":never", "regalloc-eviction=:first")], ids=["plain", "policies"])
def test_a_side_against_itself_has_no_difference(evaluated: Evaluated, policies: tuple[str, ...]):
    sides = {"policy": policies, "against_policy": policies} if policies else {"plain": True}
    found, code = evaluated(costs="yes", **sides)

    rows = [row for one in found.projects for row in one.module_rows]
    assert len(rows) == 4
    assert all(row.functions > 3 and not row.differing for row in rows)
    assert all(sizes(row.before) == sizes(row.after) for row in rows)
    assert all(image.before.sha256 == image.after.sha256 != "" for one in found.projects for image in one.images)
    assert {(change.mean, change.low, change.high) for change in found.overall.values()} == {(0.0, 0.0, 0.0)}
    assert set(found.overall) == {"objects", "link_aware", "text", "image", "cost"}
    assert code == 1


def test_a_plugin_for_another_clang_is_refused_before_anything_is_compiled(
    evaluated: Evaluated, toolchain: Toolchain, tmp_path: Path
):
    plugin = tmp_path / "other.so"
    plugin.write_bytes(b"mlgokit plugin for LLVM 18.1.0 with libstdc++\0")

    with pytest.raises(InputError, match=f"expected a plugin for LLVM {toolchain.major} with .* found one for LLVM 18"):
        evaluated(plugin=plugin, costs="no")


def test_register_allocation_is_judged_by_the_cost_of_functions(evaluated: Evaluated):
    found, code = evaluated(policy=("regalloc-eviction=:first",))

    assert found.verdict is not None
    assert found.verdict.measure == "cost"
    cost = found.overall["cost"]
    assert cost.projects == 4
    assert cost.low <= cost.mean <= cost.high
    for one in found.projects:
        assert one.costs is not None
        assert one.costs.functions > 0
        assert one.costs.counts_before["spills"] > 0
        (row,) = one.module_rows
        dearer = [
            function
            for function in row.differing
            if function.before and function.after and (function.after.cost or 0) > (function.before.cost or 0)
        ]
        assert len(dearer) == one.costs.dearer
    assert code == (0 if cost.high < 0 else 1)


def test_policies_of_all_problems_are_one_side(evaluated: Evaluated):
    alone, _ = evaluated(policy=(":never",))
    together, _ = evaluated(policies=(":never",), policy=("regalloc-eviction=:first", "regalloc-priority=:random"))

    assert together.after.label == ":never, regalloc-eviction :first, regalloc-priority :random"
    assert outcome(alone) != outcome(together)
    assert all(row.after.plugin and not row.before.plugin for one in together.projects for row in one.module_rows)


def test_a_policy_in_a_plugin_is_that_policy(
    evaluated: Evaluated, toolchain: Toolchain, tmp_path: Path, never_policy: Path
):
    link_policies(toolchain, {INLINE_SIZE.name: never_policy}, tmp_path / "p.so")
    found, _ = evaluated(plugin=tmp_path / "p.so", against_policy=(str(never_policy),))
    rule, _ = evaluated(policy=(":never",))

    assert all(sizes(row.before) == sizes(row.after) for one in found.projects for row in one.module_rows)
    assert outcome(found) == outcome(rule)


def test_options_are_a_side(evaluated: Evaluated):
    options = "-mllvm -inline-threshold=1000"
    found, _ = evaluated(options=options, against_policy=(":never",))

    assert found.after.options == ("-mllvm", "-inline-threshold=1000")
    assert any(row.differing for one in found.projects for row in one.module_rows)
    same, _ = evaluated(options=options, against_options=options)
    assert outcome(same) == outcome(found)


def test_a_module_that_does_not_compile_is_a_row(evaluated: Evaluated):
    found, code = evaluated(projects=("m0", "bad"), policy=(":never",))

    bad = next(one for one in found.projects if one.project == "bad")
    (row,) = bad.module_rows
    assert (row.before.status, row.after.status) == ("failed", "failed")
    assert "error" in row.after.reason
    assert bad.link_failure == "no module compiled in both builds"
    # It fails on both sides, which says nothing against the judged one.
    assert found.verdict is not None
    assert not any("fail" in reason for reason in found.verdict.reasons)
    assert code == (0 if found.overall["image"].high < 0 else 1)
