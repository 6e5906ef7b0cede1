"""Who decides in which function of a tuned plugin: its tables, LLVM, or the policies that come with the package."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlgokit.builds.link import LinkPlan
from mlgokit.builds.measurement import Comparison, Measure
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.measure import Objective
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides
from mlgokit.tables.overrides import PASSES
from mlgokit.testing import toy_sizes
from mlgokit.tune import shipped
from mlgokit.tune.shipped import PolicyScope, TunedTables
from mlgokit.tune.verify import VerifiedBuild

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
        objective=Objective.LINK_AWARE,
        bytes_of=lambda _, sizes: sizes.totals.text,
        inside={},
        before=before,
    )
    scope = PolicyScope()
    assert mix._correct(scope, grown, before, {})
    assert scope.excluded == {"a": {"f"}}
