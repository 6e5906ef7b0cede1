"""What is compared with what, as a user says it."""

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlgokit.builds.variant import (
    PLAIN_VARIANT,
    describe_inactive_policies,
    make_variant,
    modules_of_variant,
    policies_by_problem,
)
from mlgokit.errors import InputError, MlgokitError, PolicyError, UsageError
from mlgokit.policy.pretrained import policy_files
from mlgokit.testing import toy_source


def test_rules_of_several_problems_are_one_side():
    side = make_variant([":never", "regalloc-eviction=:first", "regalloc-priority=:random"])

    assert side.use is not None
    assert side.use.policies == {
        "inline-size": ":never",
        "regalloc-eviction": ":first",
        "regalloc-priority": ":random",
    }
    assert side.record.label == ":never, regalloc-eviction :first, regalloc-priority :random"
    assert side.compiles_with_plugin
    assert not side.links_with_plugin


def test_nothing_asked_for_is_the_plain_side():
    assert make_variant() == PLAIN_VARIANT
    assert PLAIN_VARIANT.record.label == "plain"
    assert not PLAIN_VARIANT.compiles_with_plugin


def test_a_plugin_is_noted_with_its_digest(tmp_path: Path):
    (tmp_path / "p.so").write_bytes(b"plugin")
    side = make_variant(plugin=tmp_path / "p.so", plugin_in="both")

    assert side.record.digests == {str(tmp_path / "p.so"): hashlib.sha256(b"plugin").hexdigest()}
    assert (side.compiles_with_plugin, side.links_with_plugin) == (True, True)


@pytest.mark.parametrize(
    ("policies", "given", "kind", "message"),
    [
        ([":sometimes"], {}, UsageError, "policy :sometimes: expected a file or :default, :never, :always; "),
        (["regalloc-eviction=:never"], {}, UsageError, "expected a file or :default, :random, :first; correct"),
        (["spelling=:never"], {}, UsageError, "policy spelling=:never: expected a problem among inline-size, "),
        ([":never", ":always"], {}, UsageError, "policies: expected at most one for each problem, found :never and "),
        (["nowhere"], {}, PolicyError, "policy nowhere: expected a readable file, found: No such file"),
        (
            [":never"],
            {"plugin": Path("p.so")},
            UsageError,
            "expected either policies or a plugin for the candidate, and likewise for the baseline, found :never ",
        ),
        ([], {"plugin": Path("p.so")}, InputError, "p.so: expected a plugin, found no such file; correct the path"),
    ],
)
def test_sides_that_make_no_sense(policies: list[str], given: Any, kind: type[MlgokitError], message: str):
    with pytest.raises(kind, match=re.escape(message)):
        make_variant(policies, **given)


def test_options_stand_at_the_end_of_the_command_line():
    module = toy_source("m")
    (changed,) = modules_of_variant([module], make_variant(options=["-mllvm", "-inline-threshold=5", "-O2"]))

    assert changed.command_line == ("-cc1", "-Oz", "-mllvm", "-inline-threshold=5", "-O2")
    assert modules_of_variant([module], PLAIN_VARIANT) == [module]


def test_register_allocation_alone_is_known():
    assert make_variant(["regalloc-eviction=:first"]).allocates_only
    assert not make_variant(["regalloc-eviction=:first", ":never"]).allocates_only
    assert not make_variant(["regalloc-eviction=:first"], options=["-O2"]).allocates_only
    assert not PLAIN_VARIANT.allocates_only
    assert policies_by_problem([]) == {}


def test_policies_in_files_of_one_name_are_each_said_to_be_for_another_processor(tmp_path: Path):
    copies = [tmp_path / name / "final.policy" for name in ("size", "passes")]
    for copy in copies:
        copy.parent.mkdir()
        (file,) = policy_files([f"builtin:{copy.parent.name}"])
        shutil.copyfile(file, copy)

    notes = describe_inactive_policies(make_variant(list(map(str, copies))), {"sparc": 2}, has_links=False)
    assert [note.partition(" is a policy for ")[0] for note in notes] == ["final.policy", str(copies[1])]
