"""Policies that come with the package: their names, and that each is the one of its model card."""

from pathlib import Path

import pytest

from mlgokit.builds.variant import policies_by_problem
from mlgokit.commands.export import Export, run as export
from mlgokit.commands.export_llvm import ExportLlvm, run as export_llvm
from mlgokit.commands.export_tflite import ExportTflite, run as export_tflite
from mlgokit.errors import PolicyError, UsageError
from mlgokit.files import digest_file
from mlgokit.policy.pretrained import SETS, policy_file
from mlgokit.policy.store import load_policy


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("size", "inline-size"),
        ("passes", "pass-selection"),
        ("regalloc", "regalloc-priority"),
        ("weights-size", "regalloc-weight"),
        ("weights-speed", "regalloc-weight"),
    ],
)
def test_a_policy_is_the_one_of_its_card_and_leaves_what_it_does_not_know_to_llvm(name: str, problem: str):
    path = policy_file(f"builtin:{name}")
    policy = load_policy(path, problem=problem)
    assert policy.doubt > 0 or policy.gate is not None
    assert digest_file(path) in path.with_suffix(".md").read_text()
    assert path.stat().st_size < 300_000 * len(policy.parts)


def test_a_path_names_a_policy_file():
    assert policy_file("some/size.policy") == Path("some/size.policy")


def test_a_builtin_policy_may_be_named_in_place_of_a_file():
    assert policies_by_problem(["builtin:size"]) == {"inline-size": str(policy_file("builtin:size"))}


def test_one_name_stands_for_all_that_fit_together():
    named = {"inline-size": "size", "pass-selection": "passes", "regalloc-priority": "regalloc"}
    assert policies_by_problem(["builtin:Oz"]) == {
        problem: str(policy_file(f"builtin:{name}"))
        for problem, name in (named | {"regalloc-weight": "weights-size"}).items()
    }
    with pytest.raises(UsageError, match=r"expected at most one for each problem, found .*size.policy"):
        policies_by_problem(["builtin:size", "builtin:Oz"])


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_refused_where_one_policy_stands(name: str):
    with pytest.raises(UsageError, match=r"expected one policy here, found the name of several; name one of builtin:"):
        policy_file(f"builtin:{name}")


def refusal(name: str, output: Path, door: str) -> str:
    """The sentence of ``export llvm`` or ``export tflite`` about a policy that comes with the package."""
    policy = Path(f"builtin:{name}")
    with pytest.raises(PolicyError) as caught:
        _ = (
            export_llvm(ExportLlvm(policies=(policy,), output=output))
            if door == "llvm"
            else export_tflite(ExportTflite(policy=policy, output=output))
        )
    assert not list(output.glob("[!.]*"))
    return str(caught.value)


@pytest.mark.parametrize("door", ["llvm", "tflite"])
def test_one_that_llvm_cannot_have_is_refused_by_its_name_with_what_to_do(door: str, tmp_path: Path):
    for name, feature in (("size", "callee_instructions"), ("regalloc", "heuristic_priority")):
        text = refusal(name, tmp_path, door)
        assert text.startswith(f"policy builtin:{name}: expected LLVM's own features alone, found '{feature}' and ")
        assert text.endswith(
            "more, which only the plugin computes; train one with `mlgokit train --features llvm`, or use this one "
            "with `mlgokit export plugin`"
        )
    for name, problem in (("passes", "pass-selection"), ("weights-size", "regalloc-weight")):
        assert refusal(name, tmp_path, door).endswith(
            f"for which LLVM has models, found one for '{problem}'; use it with `mlgokit export plugin`"
        )


def test_an_unknown_builtin_policy_is_refused_with_the_known_names():
    with pytest.raises(
        UsageError,
        match=r"policy builtin:speed: expected builtin:Oz or builtin:passes or builtin:regalloc or .*, found 'speed'",
    ):
        export(Export(policies=(Path("builtin:speed"),)))
