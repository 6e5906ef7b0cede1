"""A policy as TOSA: MLIR 22 reads it, lowers it to C++ by EmitC, and what that decides is what numpy decides."""

import dataclasses
import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mlgokit.cli import main
from mlgokit.compiler import process
from mlgokit.errors import PolicyError, UsageError
from mlgokit.export.tosa import tosa_text
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_quantile, fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_PRIORITY

# LLVM 24's own build has passes that 22 has not; these do the same.
PIPELINE = (
    "builtin.module(func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-tensor,tosa-to-arith),"
    "linalg-fuse-elementwise-ops,one-shot-bufferize{bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map buffer-alignment=0},"
    "buffer-results-to-out-params{modify-public-functions=1 hoist-static-allocs=1},"
    "func.func(promote-buffers-to-stack{max-alloc-size-in-bytes=1000000},convert-linalg-to-loops),"
    "fold-memref-alias-ops,expand-strided-metadata,canonicalize,cse,convert-to-emitc)"
)
ROWS = 3000
CASES = {
    "effects": (OutputKind.EFFECT_BYTES, False, 3),
    "quantiles": (OutputKind.EFFECT_BYTES, True, 1),
    "logits": (OutputKind.LOGITS, False, 2),
}


def drawn(kind: str, rng: np.random.Generator) -> tuple[Policy, npt.NDArray[np.float64]]:
    """A policy over all of LLVM's features that says both yes and no to the values beside it."""
    output, quantile, members = CASES[kind]
    names = INLINE_SIZE.feature_names
    values = np.rint(np.exp(rng.normal(1, 2.5, size=(ROWS, len(names)))) * rng.choice([-1, 1], size=(ROWS, len(names))))
    normaliser = fit_quantile(values, count=40) if quantile else fit_signed_log(values)
    layers = [
        Layer(
            (rng.normal(size=(members, inputs, outputs)) / np.sqrt(inputs)).astype(np.float32),
            rng.normal(size=(members, outputs)).astype(np.float32),
        )
        for inputs, outputs in itertools.pairwise((normaliser.width, 17, 9, output.width))
    ]
    policy = Policy(
        problem=INLINE_SIZE.name, features=names, normaliser=normaliser, layers=tuple(layers), output=output
    )
    middle = np.median(policy.answers(values).mean(axis=0))
    shift = np.array([0, middle] if output is OutputKind.LOGITS else [middle], np.float32)
    last = Layer(layers[-1].weight, layers[-1].bias - shift)
    return dataclasses.replace(policy, layers=(*layers[:-1], last)), values


@pytest.mark.llvm
@pytest.mark.parametrize("kind", CASES)
def test_what_mlir_makes_of_it_decides_as_numpy(kind: str, tmp_path: Path):
    if shutil.which("mlir-opt-22") is None or shutil.which("clang++-22") is None:
        pytest.skip("expected mlir-opt-22 and clang++-22, found none; install mlir-22-tools and clang-22")
    policy, values = drawn(kind, np.random.default_rng(3))
    save_policy(policy, tmp_path / "policy")
    with pytest.raises(SystemExit) as ended:
        main(["export", "tosa", str(tmp_path / "policy"), "--output", str(tmp_path / "tosa")])
    assert ended.value.code == 0
    fields = ", ".join(f"One.v[{place}]" for place in range(len(policy.features)))
    (tmp_path / "main.cpp").write_text(
        "#include <cstddef>\n#include <cstdint>\n#include <cstdio>\n"
        '#include "model.cpp"\n'
        f"struct Row {{ int64_t v[{len(policy.features)}][1][1][1]; }};\n"
        "int main() {\n  Row One;\n  int64_t Answer[1][1][1];\n"
        "  while (fread(&One, sizeof(One), 1, stdin) == 1) {\n"
        f"    inliner({fields}, Answer);\n"
        '    printf("%d\\n", int(Answer[0][0][0]));\n  }\n}\n'
    )
    for words in (
        ["mlir-opt-22", "tosa/inliner.mlir", f"--pass-pipeline={PIPELINE}", "-o", "emitc.mlir"],
        ["mlir-translate-22", "--mlir-to-cpp", "emitc.mlir", "-o", "model.cpp"],
        ["clang++-22", "-O1", "-ffp-contract=off", "main.cpp", "-o", "main"],
    ):
        done = process.run(words, timeout_seconds=300, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    done = process.run([tmp_path / "main"], timeout_seconds=60, stdin=values.astype(np.int64).tobytes())

    found = np.array([int(line) for line in done.stdout.split()])
    expected = policy.preferences(values, np.zeros(ROWS, np.bool_)) > 0
    assert 0.2 < expected.mean() < 0.8
    np.testing.assert_array_equal(found != 0, expected)


def test_features_are_named_as_llvm_names_them():
    policy, _ = drawn("effects", np.random.default_rng(1))
    text = tosa_text(policy)
    for name in INLINE_SIZE.feature_names:
        assert f'%{name}: tensor<1x1x1xi64> {{tf_saved_model.index_path = ["{name}"]}}' in text
    assert '-> (tensor<1x1x1xi64> {tf_saved_model.index_path = ["inlining_decision"]}) {' in text


def test_what_llvm_cannot_have_is_refused():
    policy, _ = drawn("effects", np.random.default_rng(1))
    one: Any = {
        "normaliser": fit_signed_log(np.ones((3, 1))),
        "layers": (Layer(np.ones((1, 1, 1), np.float32), np.zeros((1, 1), np.float32)),),
    }
    other = Policy(problem=REGALLOC_PRIORITY.name, features=("weight",), output=OutputKind.PRIORITY, **one)
    with pytest.raises(
        UsageError, match="expected one of inline-size without a gate and doubt, found regalloc-priority"
    ):
        tosa_text(other)
    doubting = Policy(
        problem=policy.problem, features=("callee_users",), output=OutputKind.EFFECT_BYTES, doubt=0.5, **one
    )
    with pytest.raises(UsageError, match="found a gate or doubt; `mlgokit export llvm` takes it"):
        tosa_text(doubting)
    ours = Policy(problem=policy.problem, features=("callee_is_discardable",), output=OutputKind.EFFECT_BYTES, **one)
    with pytest.raises(PolicyError, match="expected LLVM's own features alone"):
        tosa_text(ours)
