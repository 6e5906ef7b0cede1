"""Policies for different processors in one file."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from mlgokit import cli
from mlgokit.commands import export
from mlgokit.commands.export_policy import ExportPolicy, render, run
from mlgokit.errors import UsageError
from mlgokit.export.plugin import ExportedPlugin
from mlgokit.policy.pretrained import policy_file
from mlgokit.policy.store import load_policy, policy_bytes, save_policy


def test_the_parts_decide_as_the_files_that_they_were_made_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    own = load_policy(policy_file("builtin:weights-size"))
    other = dataclasses.replace(own, targets=("riscv32", "riscv64"))
    save_policy(other, tmp_path / "riscv.policy")
    config = ExportPolicy(
        policies=(Path("builtin:weights-size"), tmp_path / "riscv.policy"), output=tmp_path / "joined.policy"
    )
    joined = run(config)
    parts = load_policy(tmp_path / "joined.policy").parts
    assert [policy_bytes(part) for part in parts] == [policy_bytes(own), policy_bytes(other)]
    assert joined.targets == (own.targets, other.targets)
    out = io.StringIO()
    render(joined, Console(file=out, width=200))
    assert out.getvalue().splitlines()[1] == "part 2: regalloc-weight for riscv32, riscv64"
    assert cli.run(config, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["targets"] == [list(own.targets), list(other.targets)]


def test_a_policy_may_decide_in_links(tmp_path: Path):
    output = tmp_path / "joined.policy"
    joined = run(ExportPolicy(policies=(Path("builtin:size"),), link=(Path("builtin:size"),), output=output))
    size = load_policy(policy_file("builtin:size"))
    parts = load_policy(output).parts
    assert [policy_bytes(part) for part in parts] == [
        policy_bytes(part) for part in (*size.parts, *(dataclasses.replace(part, stage="link") for part in size.parts))
    ]
    out = io.StringIO()
    render(joined, Console(file=out, width=200))
    assert out.getvalue().splitlines()[len(size.parts)].endswith(", in links")
    with pytest.raises(UsageError, match=r"--link: expected policies for inline-size, found .*/passes\.policy"):
        run(ExportPolicy(link=(Path("builtin:passes"),), output=output))


def test_policies_for_several_problems_are_not_joined(tmp_path: Path):
    policies = (Path("builtin:size"), Path("builtin:passes"))
    with pytest.raises(UsageError, match="expected policies for one problem, found inline-size and pass-selection"):
        run(ExportPolicy(policies=policies, output=tmp_path / "joined.policy"))
    assert not (tmp_path / "joined.policy").exists()


def test_the_option_of_an_exported_plugin_is_quoted_for_a_shell():
    exported = ExportedPlugin(
        plugin="my policy.so",
        versioned="/my work/policy-1.plugin",
        size_bytes=7,
        flag="-fpass-plugin=/my work/policy-1.plugin",
        targets={"inline-size": ("x86_64",)},
    )
    out = io.StringIO()
    export.render(exported, Console(file=out, width=200))
    assert out.getvalue().splitlines()[-1] == "add to the build: '-fpass-plugin=/my work/policy-1.plugin'"
