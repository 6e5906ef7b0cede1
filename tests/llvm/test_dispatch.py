"""Functions with many targets of a jump: no policy of the package makes one larger, and all compute the same."""

import importlib
from pathlib import Path

import pytest

from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.policy.pretrained import policy_files
from mlgokit.policy.store import load_policy

pytestmark = pytest.mark.llvm


@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
def test_functions_with_many_targets_do_not_grow(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, cpp: bool
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent.parent.parent / "benchmarks")
    benchmark = importlib.import_module("dispatch")
    policies = {load_policy(path).problem: path for path in policy_files(["builtin:Oz"])}
    groups = [group for group in benchmark.draw_groups(2, 5) if group[0].targets == 20 and group[0].cpp == cpp]
    functions = [one for group in groups for one in group]
    plugin = link_policies(toolchain, policies, tmp_path / "policy.so")
    found = benchmark.compare(toolchain, functions, plugin, "Oz", tmp_path)
    assert len(functions) == (2 if cpp else 26)
    assert (found.grown, found.other) == ((), ())
    assert found.text[1] <= found.text[0]
    assert found.whole[1] <= found.whole[0]
