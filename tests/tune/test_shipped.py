"""Who decides in which function of a tuned plugin: its tables, LLVM, or the policies that come with the package."""

from pathlib import Path

import numpy as np

from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides
from mlgokit.tables.overrides import PASSES
from mlgokit.tune.shipped import PolicyScope, TunedTables

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
