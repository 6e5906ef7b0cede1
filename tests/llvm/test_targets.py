"""Policies leave code for processors that they are not for to LLVM, and decide where they are for it."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds.compiled import compile_projects
from mlgokit.builds.pair import VariantPair
from mlgokit.builds.variant import make_variant
from mlgokit.commands.export import Export, run as export
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.evaluation.compare import compare_builds
from mlgokit.evaluation.explain import explain_module
from mlgokit.files import digest_file
from mlgokit.learning.baselines import policy_file
from mlgokit.module import Module, architecture_of
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import join_parts, load_policy, save_policy
from mlgokit.policy.targets import restrict_to_targets

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

NAMES = [f"v{number}" for number in range(60)]
SOURCE = (
    "static unsigned twice(unsigned x) { return x * 2 + 1; }\n"
    "unsigned mix(const unsigned *p, int n, unsigned *out) {\n"
    + "".join(f"  unsigned {name} = {number};\n" for number, name in enumerate(NAMES))
    + "  for (int t = 0; t < n; t++) {\n    unsigned v = p[t] + twice(t);\n"
    + "".join(
        f"    {name} = {name} * 31 + ({other} ^ v); v += {name} / 7;\n"
        for name, other in zip(NAMES, [*NAMES[7:], *NAMES[:7]], strict=True)
    )
    + "    for (unsigned k = 0; k < v % 7; k++) {\n"
    + "".join(f"      {name} ^= out[k] + {other};\n" for name, other in zip(NAMES[:20], NAMES[40:], strict=True))
    + "    }\n"
    + "    out[t] = v ^ twice(v0);\n  }\n"
    + f"  return {' ^ '.join(NAMES)};\n}}\n"
)
TARGETS = (
    "aarch64-linux-gnu",
    pytest.param("thumbv7em-none-eabi", marks=pytest.mark.first_major),
    pytest.param("riscv64-linux-gnu", marks=pytest.mark.first_major),
    pytest.param("i386-linux-gnu", marks=pytest.mark.first_major),
)
"""The fast half compiles for all of them with one LLVM major, and with each major for the first."""
DECIDED_BY = {
    "inline-size": ("MLGOKIT_POLICY", "callee_users", OutputKind.LOGITS, (0.0, 0.0), (1.0, 0.0)),
    "pass-selection": ("MLGOKIT_PASS_POLICY", "occurrence", OutputKind.LOGITS, (0.0, 0.0), (0.0, 1.0)),
    "regalloc-priority": ("MLGOKIT_PRIORITY_POLICY", "li_size", OutputKind.PRIORITY, (-3.0,), (0.0,)),
    "regalloc-weight": ("MLGOKIT_WEIGHT_POLICY", "li_size", OutputKind.LOG2_FACTOR, (4.0,), (0.0,)),
    "regalloc-eviction": ("MLGOKIT_EVICTION_POLICY", "nr_urgent", OutputKind.COLUMN_LOGIT, (9.0,), (0.0,)),
}
"""By problem: the variable, a feature, the output, and the only layer of a policy that decides otherwise than LLVM."""


def contrary_policy(problem: str) -> Policy:
    _, feature, output, weight, bias = DECIDED_BY[problem]
    ones = np.ones(1, np.float32)
    return Policy(
        problem=problem,
        features=(feature,),
        normaliser=SignedLog(mean=0 * ones, scale=ones * np.float32(0.3), clip=4.0),
        layers=(Layer(np.array(weight, np.float32).reshape(1, 1, -1), np.array([bias], np.float32)),),
        output=output,
        mask="mask" if output is OutputKind.COLUMN_LOGIT else "",
    )


def object_of(
    toolchain: Toolchain, folder: Path, target: str, *, plugin: Path | None = None, **settings: str | Path
) -> bytes:
    (folder / "work.c").write_text(SOURCE)
    words = [toolchain.clang, f"--target={target}", "-Oz", "-ffreestanding", "-c", "work.c", "-o", "work.o"]
    words += [] if plugin is None else [f"-fpass-plugin={plugin}"]
    env = dict(os.environ) | {name: str(value) for name, value in settings.items()}
    done = process.run(words, timeout_seconds=120, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return (folder / "work.o").read_bytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("problem", DECIDED_BY)
@pytest.mark.usefixtures("other_targets")
def test_a_policy_for_another_processor_changes_no_byte(
    toolchain: Toolchain, plugin: Path, tmp_path: Path, target: str, problem: str
):
    policy, variable = contrary_policy(problem), DECIDED_BY[problem][0]
    listed = dataclasses.replace(policy, targets=("x86_64", architecture_of(target)))
    joined = join_parts([policy, dataclasses.replace(policy, targets=(architecture_of(target),))])
    elsewhere = join_parts([policy, dataclasses.replace(policy, targets=("sparc",))])
    given = {"usual": policy, "elsewhere": elsewhere, "listed": listed, "joined": joined}
    for name, one in given.items():
        save_policy(one, tmp_path / f"{name}.policy")
    plain = object_of(toolchain, tmp_path, target)
    left, also_left, decided, by_part = (
        object_of(toolchain, tmp_path, target, plugin=plugin, **{variable: tmp_path / f"{name}.policy"})
        for name in given
    )
    assert left == plain == also_left
    assert decided != plain
    assert by_part == decided


def cross_module(toolchain: Toolchain, folder: Path, target: str) -> Module:
    """The source as bitcode for a target, with the command line that makes an object of it."""
    (folder / "work.c").write_text(SOURCE)
    bitcode = folder / "work.bc"
    front = ["-triple", target, "-Oz", "-ffreestanding", "-emit-llvm-bc", "-disable-llvm-passes"]
    words = Cc1Line(toolchain.clang, own=[*front, "-o", str(bitcode), "work.c"])
    done = process.run(words, timeout_seconds=120, cwd=folder)
    assert done.returncode == 0, done.stderr
    return Module(
        name="work.o",
        project="work",
        language="c",
        bitcode=bitcode,
        command_line=("-cc1", "-triple", target, "-Oz"),
        bitcode_bytes=bitcode.stat().st_size,
        bitcode_sha256=digest_file(bitcode),
    )


@pytest.mark.usefixtures("other_targets")
def test_it_is_said_where_a_policy_leaves_code_alone(toolchain: Toolchain, plugin: Path, tmp_path: Path):
    module = cross_module(toolchain, tmp_path, "aarch64-linux-gnu")
    compiler = ClangCompiler(toolchain=toolchain, plugin=plugin)
    policy = contrary_policy("inline-size")
    save_policy(policy, tmp_path / "usual.policy")
    save_policy(dataclasses.replace(policy, targets=("aarch64",)), tmp_path / "listed.policy")
    exported = export(Export(policies=(tmp_path / "usual.policy",), output=tmp_path / "usual.so", llvm=toolchain.major))
    assert exported.targets == {"inline-size": ("x86_64",)}
    sentences: dict[str, tuple[str, ...]] = {}
    for name, side in (
        ("usual", make_variant([str(tmp_path / "usual.policy")])),
        ("plugin", make_variant(plugin=tmp_path / "usual.so")),
        ("listed", make_variant([str(tmp_path / "listed.policy")])),
    ):
        found = compare_builds(compile_projects([module], VariantPair(after=side), compiler=compiler))
        (project,) = found.projects
        sentences[name] = found.left_alone
        assert (project.before.objects == project.after.objects) == (name != "listed")
        explained = explain_module(module, compiler=compiler, side=side, policy=policy)
        assert explained.left_alone == found.left_alone
    says = "is a policy for x86_64, and leaves 1 of 1 module, for aarch64, to LLVM."
    assert sentences == {
        "usual": (f"usual.policy {says}",),
        "plugin": (f"usual.so, inline-size {says}",),
        "listed": (),
    }


@pytest.mark.usefixtures("other_targets")
def test_an_exported_plugin_decides_for_the_targets_that_are_named(toolchain: Toolchain, tmp_path: Path):
    save_policy(contrary_policy("inline-size"), tmp_path / "usual.policy")
    plain = object_of(toolchain, tmp_path, "aarch64-linux-gnu")
    save_policy(dataclasses.replace(contrary_policy("inline-size"), targets=("aarch64",)), tmp_path / "other.policy")
    joined = export(
        Export(
            policies=(tmp_path / "usual.policy", tmp_path / "other.policy"),
            output=tmp_path / "joined.so",
            llvm=toolchain.major,
        )
    )
    assert joined.targets == {"inline-size": ("x86_64", "aarch64")}
    assert object_of(toolchain, tmp_path, "aarch64-linux-gnu", plugin=tmp_path / "joined.so") != plain
    for targets, same in (((), True), (("aarch64", "arm"), False)):
        output = tmp_path / f"{len(targets)}.so"
        done = export(
            Export(policies=(tmp_path / "usual.policy",), output=output, llvm=toolchain.major, targets=targets)
        )
        assert done.targets == {"inline-size": targets or ("x86_64",)}
        assert (object_of(toolchain, tmp_path, "aarch64-linux-gnu", plugin=output) == plain) == same


def test_what_is_learned_of_a_cross_corpus_is_for_its_processor(toolchain: Toolchain, tmp_path: Path):
    module = cross_module(toolchain, tmp_path, "thumbv7em-none-eabi")
    policy = contrary_policy("inline-size")
    assert restrict_to_targets(policy, [module]).targets == ("arm",)
    assert load_policy(Path(policy_file(policy, tmp_path, 1, [module]))).targets == ("arm",)
