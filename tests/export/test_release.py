"""Policies that LLVM's release mode cannot have are refused before any compiler starts; what is written beside them."""

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from mlgokit.errors import PolicyError, ToolError, UsageError
from mlgokit.export.model_source import selector_words
from mlgokit.export.release import export_release
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import save_policy
from mlgokit.testing import FAKE_TOOLCHAIN

NO_TOOLCHAIN = cast("Any", None)
ONE = np.ones(1, np.float32)
INLINING = Policy(
    problem="inline-size",
    features=("callee_users",),
    normaliser=SignedLog(mean=0 * ONE, scale=ONE, clip=4.0),
    layers=(Layer(np.ones((1, 1, 1), np.float32), np.zeros((1, 1), np.float32)),),
    output=OutputKind.EFFECT_BYTES,
)
PRIORITY = dataclasses.replace(INLINING, problem="regalloc-priority", features=("weight",), output=OutputKind.PRIORITY)


def saved(folder: Path, **policies: Policy) -> list[Path]:
    for name, policy in policies.items():
        save_policy(policy, folder / name)
    return [folder / name for name in policies]


def test_a_policy_that_needs_what_llvm_does_not_have_is_refused(tmp_path: Path):
    files = saved(tmp_path, p=dataclasses.replace(INLINING, features=("callee_is_discardable",)))

    with pytest.raises(PolicyError) as caught:
        export_release(NO_TOOLCHAIN, files, tmp_path / "out")

    assert str(caught.value) == (
        f"policy {tmp_path / 'p'}: expected LLVM's own features alone, found 'callee_is_discardable', which only "
        "the plugin computes; train one with `mlgokit train --features llvm`, or use this one with "
        "`mlgokit export plugin`"
    )
    assert not (tmp_path / "out").exists()


def test_policies_and_names_that_do_not_fit_each_other_are_refused(tmp_path: Path):
    first, second, other = saved(tmp_path, a=INLINING, b=INLINING, c=PRIORITY)

    def refused(files: list[Path], **words: Any) -> str:
        with pytest.raises(UsageError) as caught:
            export_release(NO_TOOLCHAIN, files, tmp_path / "out", **words)
        return str(caught.value)

    assert refused([]).startswith("policies: expected policies for the same problem, found none;")
    assert "found inline-size and regalloc-priority; export one model for each" in refused([first, other])
    assert refused([first, first], names=("x", "y")).startswith("policies: expected each file once, found ")
    assert refused([first, second]) == (
        "names: expected a model selector for each of 2 policies, found none; give --names A B"
    )
    for names in (("x",), ("x", "x"), ("x", 'y"'), ("x", "")):
        assert refused([first, second], names=names).startswith("names: expected 2 different words of letters")
    assert "since LLVM selects models of the inliner only, found x" in refused([other], names=("x",))
    assert refused([first], name="a b").startswith(
        "name: expected a C++ class name of letters and digits, found 'a b';"
    )
    assert "doubt: expected an inlining policy that predicts effects in bytes" in refused([other], doubt=0.0)


def test_a_compiler_that_fails_leaves_nothing(tmp_path: Path):
    files = saved(tmp_path, p=INLINING)
    broken = dataclasses.replace(FAKE_TOOLCHAIN, clangxx=Path("/bin/false"))

    with pytest.raises(
        ToolError, match=r"InlinerSizeModel\.cpp: expected /bin/false to compile the model, .* of /bin/false"
    ):
        export_release(broken, files, tmp_path / "out")
    with pytest.raises(ToolError, match=r"install the C[+][+] library for riscv64-linux-gnu"):
        export_release(broken, files, tmp_path / "out", target="riscv64-linux-gnu")

    assert not (tmp_path / "out").exists()


def test_a_selector_is_the_md5_of_its_name_high_half_first():
    # The digest's bytes 8 to 15, then 0 to 7, each little-endian: llvm/include/llvm/Support/MD5.h.
    high, low = selector_words("abc")

    digest = bytes.fromhex("900150983cd24fb0d6963f7d28e17f72")
    assert low.to_bytes(8, "little") + high.to_bytes(8, "little") == digest
