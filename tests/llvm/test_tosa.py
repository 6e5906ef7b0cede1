"""A policy as TOSA: MLIR 22 reads it, lowers it to C++ by EmitC, and what that decides is what numpy decides."""

import dataclasses
import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.calls import ended

from mlgokit.compiler import process
from mlgokit.errors import PolicyError, UsageError
from mlgokit.export.tosa import COLUMNS, NAMES, tosa_text
from mlgokit.policy.exploration import Exploration, choose_column
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import fit_quantile, fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY

# LLVM 24's own build has passes that 22 has not; these do the same.
PIPELINE = (
    "builtin.module(func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-tensor,tosa-to-arith),"
    "linalg-fuse-elementwise-ops,one-shot-bufferize{bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map buffer-alignment=0},"
    "buffer-results-to-out-params{modify-public-functions=1 hoist-static-allocs=1},"
    "func.func(promote-buffers-to-stack{max-alloc-size-in-bytes=1000000},convert-linalg-to-loops),"
    "fold-memref-alias-ops,expand-strided-metadata,canonicalize,cse,convert-to-emitc)"
)
# Problem, output, whether with quantiles, members, and observations: C++ of logarithms of floats is slow.
CASES = {
    "effects": (INLINE_SIZE, OutputKind.EFFECT_BYTES, False, 3, 3000),
    "quantiles": (INLINE_SIZE, OutputKind.EFFECT_BYTES, True, 1, 3000),
    "logits": (INLINE_SIZE, OutputKind.LOGITS, False, 2, 3000),
    "columns": (REGALLOC_EVICTION, OutputKind.COLUMN_LOGIT, False, 2, 600),
    "columns, quantiles": (REGALLOC_EVICTION, OutputKind.COLUMN_LOGIT, True, 1, 3000),
}
C_TYPES = {"int64_t": np.int64, "float": np.float32}


def drawn(kind: str, rng: np.random.Generator) -> tuple[Policy, npt.NDArray[np.float64]]:
    """A policy over all of LLVM's features that decides both ways on the values [T, F] or [T, C, F] beside it."""
    problem, output, quantile, members, rows = CASES[kind]
    names = problem.feature_names
    shape = (rows, COLUMNS, len(names)) if problem is REGALLOC_EVICTION else (rows, len(names))
    values = np.exp(rng.normal(1, 2.5, size=shape)) * rng.choice([-1, 1], size=shape)
    for place, feature in enumerate(problem.features):
        if feature.type == "int64_t":
            values[..., place] = np.rint(values[..., place])
        elif not feature.per_column:
            values[..., place] = values[:, :1, place]
        values[..., place] = values[..., place].astype(C_TYPES[feature.type])
    if problem is REGALLOC_EVICTION:
        values[..., names.index("mask")] = rng.random((rows, COLUMNS)) < 0.4
        values[:3, :, names.index("mask")] = 0
        density = names.index("use_def_density")
        values[3:300, :, density] = rng.choice([np.nan, np.inf, -np.inf, 0.0, 3.4e38], size=(297, COLUMNS))
        values[300:400, 5] = values[300:400, 2]  # equal logits
    fitted = values.reshape(-1, len(names))
    normaliser = fit_quantile(fitted, count=40) if quantile else fit_signed_log(fitted)
    layers = [
        Layer(
            (rng.normal(size=(members, inputs, outputs)) / np.sqrt(inputs)).astype(np.float32),
            rng.normal(size=(members, outputs)).astype(np.float32),
        )
        for inputs, outputs in itertools.pairwise((normaliser.width, 17, 9, output.width))
    ]
    policy = Policy(
        problem=problem.name, features=names, normaliser=normaliser, layers=tuple(layers), output=output,
        mask=problem.mask or "",
    )  # fmt: skip
    if problem is REGALLOC_EVICTION:
        return policy, values
    middle = np.median(policy.answers(values).mean(axis=0))
    shift = np.array([0, middle] if output is OutputKind.LOGITS else [middle], np.float32)
    last = Layer(layers[-1].weight, layers[-1].bias - shift)
    return dataclasses.replace(policy, layers=(*layers[:-1], last)), values


def decided_by_numpy(policy: Policy, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    if policy.problem == INLINE_SIZE.name:
        return (policy.preferences(values, np.zeros(len(values), np.bool_)) > 0).astype(np.int64)
    masks = values[..., policy.features.index(policy.mask)].tolist()
    chosen = [
        choose_column(logits, mask, Exploration(), 0.5, 0.5)[0]
        for logits, mask in zip(policy.column_logits(values).tolist(), masks, strict=True)
    ]
    return np.array(chosen, np.int64)


@pytest.mark.llvm
@pytest.mark.parametrize("kind", CASES)
def test_what_mlir_makes_of_it_decides_as_numpy(kind: str, tmp_path: Path):
    if shutil.which("mlir-opt-22") is None or shutil.which("clang++-22") is None:
        pytest.skip("expected mlir-opt-22 and clang++-22, found none; install mlir-22-tools and clang-22")
    policy, values = drawn(kind, np.random.default_rng(3))
    features, name = CASES[kind][0].features, NAMES[policy.problem]
    save_policy(policy, tmp_path / "policy")
    assert ended("export", "tosa", tmp_path / "policy", "--output", tmp_path / "tosa") == 0
    sizes = [COLUMNS if feature.per_column else 1 for feature in features]
    fields = "".join(
        f"  {feature.type} {feature.name}[1][{size}][1];\n" for feature, size in zip(features, sizes, strict=True)
    )
    (tmp_path / "main.cpp").write_text(
        "#include <cstddef>\n#include <cstdint>\n#include <cstdio>\n"
        '#include "model.cpp"\n'
        f"#pragma pack(1)\nstruct Row {{\n{fields}}};\n#pragma pack()\n"
        "int main() {\n  static Row One;\n  int64_t Answer[1][1][1];\n"
        "  while (fread(&One, sizeof(One), 1, stdin) == 1) {\n"
        f"    {name}({', '.join(f'One.{feature.name}' for feature in features)}, Answer);\n"
        '    printf("%d\\n", int(Answer[0][0][0]));\n  }\n}\n'
    )
    for words in (
        ["mlir-opt-22", f"tosa/{name}.mlir", f"--pass-pipeline={PIPELINE}", "-o", "emitc.mlir"],
        ["mlir-translate-22", "--mlir-to-cpp", "emitc.mlir", "-o", "model.cpp"],
        ["clang++-22", "-O1", "-ffp-contract=off", "main.cpp", "-o", "main"],
    ):
        done = process.run(words, timeout_seconds=300, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    asked = np.empty(
        len(values), [(one.name, C_TYPES[one.type], size) for one, size in zip(features, sizes, strict=True)]
    )
    for place, (feature, size) in enumerate(zip(features, sizes, strict=True)):
        asked[feature.name] = values.reshape(len(values), -1, len(features))[:, :size, place].reshape(
            asked[feature.name].shape
        )

    done = process.run([tmp_path / "main"], timeout_seconds=300, stdin=asked.tobytes())

    found = np.array([int(line) for line in done.stdout.split()])
    expected = decided_by_numpy(policy, values)
    assert np.bincount(expected).max() < 0.8 * len(values)
    np.testing.assert_array_equal(found, expected)


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
        UsageError,
        match="for inline-size or regalloc-eviction without gate, doubt and caution, found regalloc-priority",
    ):
        tosa_text(other)
    doubting = Policy(
        problem=policy.problem, features=("callee_users",), output=OutputKind.EFFECT_BYTES, doubt=0.5, **one
    )
    with pytest.raises(UsageError, match="found a gate or doubt; use `mlgokit export llvm`"):
        tosa_text(doubting)
    careful = Policy(
        problem=REGALLOC_EVICTION.name, features=("nr_urgent",), output=OutputKind.COLUMN_LOGIT, caution=0.5,
        mask="mask", **one,
    )  # fmt: skip
    with pytest.raises(UsageError, match="found caution; use `mlgokit export llvm`"):
        tosa_text(careful)
    ours = Policy(problem=policy.problem, features=("callee_is_discardable",), output=OutputKind.EFFECT_BYTES, **one)
    with pytest.raises(PolicyError, match="expected LLVM's own features alone"):
        tosa_text(ours)
