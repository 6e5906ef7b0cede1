"""Misuse of the export is said before any compiler starts."""

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from mlgokit.errors import ToolError, UsageError
from mlgokit.export import plugin
from mlgokit.export.plugin import export_plugin
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.testing import FAKE_TOOLCHAIN

NO_TOOLCHAIN = cast("Any", None)
PRIORITY = Policy(
    problem="regalloc-priority",
    features=("weight",),
    normaliser=SignedLog(mean=np.zeros(1, np.float32), scale=np.ones(1, np.float32), clip=4.0),
    layers=(Layer(np.ones((1, 1, 1), np.float32), np.zeros((1, 1), np.float32)),),
    output=OutputKind.PRIORITY,
)


def test_two_policies_for_one_problem_are_refused(tmp_path: Path):
    for name in ("a", "b"):
        save_policy(PRIORITY, tmp_path / name)

    with pytest.raises(UsageError) as caught:
        export_plugin(NO_TOOLCHAIN, [tmp_path / "a", tmp_path / "b"], tmp_path / "policy.so")

    assert str(caught.value) == (
        f"policies: expected at most one for each problem and architecture, found {tmp_path / 'a'} and "
        f"{tmp_path / 'b'} for regalloc-priority (targets: expected each architecture in one part, found x86_64 in "
        "several); leave one out"
    )
    assert not (tmp_path / "policy.so").exists()


def test_a_plugin_that_does_not_compile_replaces_none_that_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save_policy(PRIORITY, tmp_path / "policy")
    monkeypatch.setattr(plugin, "link_policies", lambda _, __, output: output.write_text("newer"))
    output = tmp_path / "policy.so"
    output.write_text("older")
    broken = dataclasses.replace(FAKE_TOOLCHAIN, clang=Path("/bin/false"))

    with pytest.raises(ToolError, match=r"policy\.so: expected /bin/false to compile with the plugin"):
        export_plugin(broken, [tmp_path / "policy"], output)
    assert output.read_text() == "older"

    export_plugin(dataclasses.replace(FAKE_TOOLCHAIN, clang=Path("/bin/true")), [tmp_path / "policy"], output)
    assert output.read_text() == "newer"


def test_an_export_with_doubt_changes_the_plugin_and_not_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    policy = dataclasses.replace(
        PRIORITY, problem="inline-size", features=("callee_users",), output=OutputKind.EFFECT_BYTES
    )
    save_policy(policy, tmp_path / "policy")
    before = (tmp_path / "policy").read_bytes()
    linked: list[float] = []

    def link(_: object, policies: dict[str, Path], output: Path) -> None:
        linked.extend(load_policy(path).doubt for path in policies.values())
        output.write_text("plugin")

    monkeypatch.setattr(plugin, "link_policies", link)
    compiler = dataclasses.replace(FAKE_TOOLCHAIN, clang=Path("/bin/true"))
    export_plugin(compiler, [tmp_path / "policy"], tmp_path / "policy.so")
    export_plugin(compiler, [tmp_path / "policy"], tmp_path / "policy.so", doubt=1.5)

    assert linked == [0.0, 1.5]
    assert (tmp_path / "policy").read_bytes() == before
    with pytest.raises(UsageError, match="doubt: expected a number of standard deviations, at least 0, found -1"):
        export_plugin(compiler, [tmp_path / "policy"], tmp_path / "policy.so", doubt=-1)
    save_policy(PRIORITY, tmp_path / "p")
    with pytest.raises(
        UsageError,
        match=r"doubt: expected an inlining policy that predicts effects in bytes .*, found none; leave --doubt out",
    ):
        export_plugin(compiler, [tmp_path / "p"], tmp_path / "policy.so", doubt=1)


def test_an_export_of_nothing_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="expected at least one policy file, found none"):
        export_plugin(NO_TOOLCHAIN, [], tmp_path / "policy.so")
