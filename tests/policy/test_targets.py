"""For which architectures a policy is: names, and the sentence about what it leaves alone."""

import dataclasses

import pytest

from mlgokit.errors import UsageError
from mlgokit.module import architecture_of
from mlgokit.policy.pretrained import policy_file
from mlgokit.policy.store import load_policy
from mlgokit.policy.targets import check_targets, describe_missing_policies, describe_other_targets


@pytest.mark.parametrize(
    ("triple", "name"),
    [
        ("amd64-unknown-freebsd", "x86_64"),
        ("i686-linux-gnu", "i386"),
        ("arm64-linux-gnu", "aarch64"),
        ("thumbv7em-none-eabi", "arm"),
        ("thumbv8m.main-none-eabi", "arm"),
        ("thumbv6m-none-unknown-eabi", "thumbv6m"),
        ("thumbv8m.base-none-eabi", "thumbv6m"),
        ("armv7-linux-gnueabihf", "arm"),
        ("armeb-linux-gnueabi", "armeb"),
        ("riscv32-unknown-elf", "riscv32"),
        ("powerpc64le-linux-gnu", "powerpc64le"),
    ],
)
def test_a_triple_names_one_architecture(triple: str, name: str):
    assert architecture_of(triple) == name


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        ((), "found none; correct it"),
        (("aarch64", "arm64"), "found arm64; LLVM calls it aarch64"),
        (("riscv",), "found riscv; correct it"),
        (("aarch64-linux-gnu",), "found aarch64-linux-gnu; LLVM calls it aarch64"),
    ],
)
def test_an_unknown_architecture_is_refused(targets: tuple[str, ...], sentence: str):
    with pytest.raises(UsageError, match=f"^--targets: expected names of architectures, .*{sentence}$"):
        check_targets(targets)
    with pytest.raises(
        UsageError, match=r"^--targets: expected each architecture once, found arm twice; leave one out$"
    ):
        check_targets(("arm", "x86_64", "arm"))


def test_a_policy_says_which_modules_it_leaves_alone():
    policies = {name: load_policy(policy_file(f"builtin:{name}")) for name in ("size", "passes", "regalloc")}
    targets = "aarch64, arm, riscv32, thumbv6m and x86_64"
    assert describe_other_targets({"passes": policies["passes"]}, {"mips": 1, "x86_64": 3}) == (
        f"passes is a policy for {targets}, and leaves 1 of 4 modules, for mips, to LLVM.",
    )
    assert describe_other_targets(policies, {"riscv32": 2, "x86_64": 3}) == (
        "regalloc is a policy for x86_64, and leaves 2 of 5 modules, for riscv32, to LLVM.",
    )
    assert describe_other_targets(policies, {"x86_64": 3}) == ()
    links = {"lto": dataclasses.replace(policies["size"], stage="link", others=())}
    assert describe_other_targets(links, {"x86_64": 3}) == ()
    assert describe_other_targets({**policies, **links}, {"x86_64": 3}, has_links=False) == (
        "lto is a policy for links with -flto, and leaves all modules to LLVM.",
    )


def test_a_set_of_policies_says_what_it_leaves_to_llvm():
    policies = {name: load_policy(policy_file(f"builtin:{name}")) for name in ("size", "passes", "regalloc")}
    assert describe_missing_policies("all", policies, {"riscv32": 2, "aarch64": 1, "x86_64": 3}) == (
        "all has no policy of regalloc for aarch64: LLVM decides there, in 1 of 6 modules",
        "all has no policy of regalloc for riscv32: LLVM decides there, in 2 of 6 modules",
    )
    assert describe_missing_policies("all", policies, {"x86_64": 3}) == ()
