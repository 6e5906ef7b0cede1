"""Misuse of the export is said before any compiler starts."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from mlgokit.errors import UsageError
from mlgokit.export.plugin import export_plugin
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import save_policy

NO_TOOLCHAIN = cast("Any", None)


def test_two_policies_for_one_problem_are_refused(tmp_path: Path):
    policy = Policy(
        problem="regalloc-priority",
        features=("weight",),
        normaliser=SignedLog(mean=np.zeros(1, np.float32), scale=np.ones(1, np.float32), clip=4.0),
        layers=(Layer(np.ones((1, 1, 1), np.float32), np.zeros((1, 1), np.float32)),),
        output=OutputKind.PRIORITY,
    )
    for name in ("a", "b"):
        save_policy(policy, tmp_path / name)

    with pytest.raises(UsageError) as caught:
        export_plugin(NO_TOOLCHAIN, [tmp_path / "a", tmp_path / "b"], tmp_path / "policy.so")

    assert str(caught.value) == (
        f"policies: expected at most one for each problem, found {tmp_path / 'a'} and {tmp_path / 'b'} "
        "for regalloc-priority; leave one out"
    )
    assert not (tmp_path / "policy.so").exists()


def test_an_export_of_nothing_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="expected at least one policy file, found none"):
        export_plugin(NO_TOOLCHAIN, [], tmp_path / "policy.so")
