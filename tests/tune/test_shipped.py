"""Who decides in which function of a tuned plugin: its tables, LLVM, or the policies that come with the package."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlgokit.builds.link import LinkPlan
from mlgokit.builds.measurement import Comparison, Measure
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides
from mlgokit.progress import say_nothing
from mlgokit.tables.decisions import TuningSummary, make_entry, write_table
from mlgokit.tables.overrides import PASSES
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source
from mlgokit.tune import shipped, verify as verification
from mlgokit.tune.result import Tuned
from mlgokit.tune.shipped import PolicyScope, TunedTables, add_shipped
from mlgokit.tune.verify import VerifiedBuild, Verifier

NOTHING_TUNED = Tuned(
    plugin="tuned.so",
    table="",
    plain_bytes=8,
    tuned_bytes=8,
    plain_link=None,
    tuned_link=None,
    judged=None,
    taken_back=0,
    ended="",
    modules=(),
    failures={},
    curve=(),
    user_seconds=0,
    compilations=0,
)
FOUND = Overrides(passes=np.array([(1, 0, 0)], OVERRIDE))


def tables() -> TunedTables:
    return TunedTables(
        decisions={},
        summary=None,
        functions={PASSES: {"a": {"f": 1, "g": 2, "shared": 9}, "b": {"h": 3, "shared": 9}}},
        entries={PASSES: {1: FOUND, 3: FOUND, 9: FOUND}},
        summaries={PASSES: None},
        folders={PASSES: Path()},
    )


def test_a_function_keeps_its_entry_loses_it_or_gets_one_without_overrides():
    scope = PolicyScope()
    assert scope.entries(tables(), PASSES).keys() == {1, 3, 9}
    scope.functions = {"a": {"f"}}
    assert scope.exclude("a", {"g"})
    assert not scope.exclude("a", {"g"})
    entries = scope.entries(tables(), PASSES)
    assert entries.keys() == {2, 3, 9}
    assert (len(entries[2]), len(entries[3])) == (0, 1)
    # What was larger in the mix comes back.
    assert scope.exclude("a", {"f", "unknown"})
    assert len(scope.entries(tables(), PASSES)[1]) == 1


def test_a_module_that_is_left_to_the_policies_has_no_entries():
    scope = PolicyScope(modules={"a"}, excluded={"a": {"f"}, "b": {"h", "shared"}})
    assert scope.entries(tables(), PASSES).keys() == {3}


def test_a_program_that_grew_may_have_a_module_that_does_not_compile():
    plan = LinkPlan(words=(), folder=Path(), modules=("a", "broken"), objects={}, libraries={}, ar=None)
    measure = Measure(plans={"app": plan}, command=(), modules=("a", "broken"), timeout_seconds=1)
    verifier: Any = SimpleNamespace(judge=SimpleNamespace(measure=measure))
    done = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 8}))
    before = VerifiedBuild(compilations={"a": done}, objects={})
    grown = VerifiedBuild(compilations={"a": done}, objects={}, judged=Comparison(larger=("app",)))
    mix = shipped._Mix(
        verifier=verifier,
        tables=tables(),
        account=account_of(["a"], {}, objective=Objective.LINK_AWARE),
        inside={},
        before=before,
    )
    scope = PolicyScope()
    assert mix._correct(scope, grown, before, {})
    assert scope.excluded == {"a": {"f"}}


def test_it_is_said_why_the_shipped_policies_are_not_in_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verification, "link_policies", lambda *_: None)
    done = Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": 8}))
    late = Compilation(status=CompileStatus.TIMED_OUT, reason="after 60 s")
    decisions = tmp_path / "decisions"
    summary = TuningSummary(llvm=22, objective="link-aware", plain_bytes=8, tuned_bytes=8, modules=("a",))
    write_table(decisions, [make_entry([], np.zeros(0, np.uint64), np.zeros(0, bool))], summary)
    verifier = Verifier(
        compiler=FakeCompiler(answer=lambda *_: late),
        modules=[toy_source("a")],
        output=tmp_path / "out.so",
        search_folder=tmp_path,
        inside={"decisions": decisions},
        builds={"decisions": VerifiedBuild(compilations={"a": done}, objects={})},
        report=say_nothing,
    )
    tuned = dataclasses.replace(NOTHING_TUNED, notes=("before",))
    found = add_shipped(verifier, tuned, {}, account_of(["a"], {}, objective=Objective.LINK_AWARE))
    assert found.notes == ("before", "builtin:Oz is not in the plugin: a does not compile with it: after 60 s")
    assert verifier.inside == {"decisions": decisions}
