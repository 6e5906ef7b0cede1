"""Models for builds of LLVM that run on other processors: cross-compiled, run under QEMU, they decide as numpy does."""

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.export.model_source import COLUMNS
from mlgokit.export.release import CLASSES, export_release
from mlgokit.policy.exploration import priority_of
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.normaliser import fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem
from mlgokit.problems.problem import Feature
from mlgokit.testing import toy_layers

pytestmark = pytest.mark.llvm

TARGETS = {"aarch64-linux-gnu": "qemu-aarch64", "arm-linux-gnueabihf": "qemu-arm", "riscv64-linux-gnu": "qemu-riscv64"}
OUTPUTS = {
    INLINE_SIZE.name: OutputKind.EFFECT_BYTES,
    REGALLOC_EVICTION.name: OutputKind.COLUMN_LOGIT,
    REGALLOC_PRIORITY.name: OutputKind.PRIORITY,
}
ROWS = 500
# Observations come on standard input, as tensors in the order of the features.
MAIN = """
#include "{name}.h"
#include <cstdint>
#include <cstdio>
int main() {{
  llvm::{name} Model;
  const struct {{ const char *Name; size_t Bytes; }} Inputs[] = {{ {inputs} }};
  const auto *Answer = static_cast<const {decision} *>(Model.result_data(0));
  for (;;) {{
    for (const auto &Input : Inputs) {{
      const int Index = Model.LookupArgIndex(Input.Name);
      if (Index < 0)
        return 2;
      if (fread(Model.arg_data(Index), 1, Input.Bytes, stdin) != Input.Bytes)
        return feof(stdin) ? 0 : 3;
    }}
    Model.Run();
    printf("%.17g\\n", double(*Answer));
  }}
}}
"""


def drawn_values(problem: Problem, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """[N, C, F] observations, a feature of one element the same in all columns."""
    columns = COLUMNS if problem.mask else 1
    drawn = np.exp(rng.normal(1, 2, size=(ROWS, columns, len(problem.features)))).astype(np.float32)
    for index, feature in enumerate(problem.features):
        if feature.name == problem.mask:
            drawn[..., index] = rng.random((ROWS, columns)) < 0.4
            drawn[:, -1, index] = 1
        elif feature.type != "float":
            drawn[..., index] = np.rint(drawn[..., index]) - 2
        if not feature.per_column:
            drawn[..., index] = drawn[:, :1, index]
    return drawn.astype(np.float64)


def drawn_policy(problem: Problem, values: npt.NDArray[np.float64], rng: np.random.Generator) -> Policy:
    """Two members over all features, whose decisions about ``values`` differ."""
    normaliser = fit_signed_log(values.reshape(-1, values.shape[-1]))
    layers = toy_layers(rng, (normaliser.width, 17, 9, 1))
    return Policy(
        problem=problem.name, features=problem.feature_names, normaliser=normaliser, layers=layers,
        output=OUTPUTS[problem.name], mask=problem.mask or "",
    )  # fmt: skip


def decided(policy: Policy, values: npt.NDArray[np.float64]) -> list[float]:
    """What numpy decides."""
    if policy.output is OutputKind.COLUMN_LOGIT:
        legal = values[..., policy.features.index(policy.mask)] != 0
        return np.where(legal, policy.column_logits(values), -np.inf).argmax(axis=1).tolist()
    if policy.output is OutputKind.PRIORITY:
        return [float(np.float32(priority_of(unit))) for unit in policy.units(values[:, 0]).tolist()]
    return (policy.preferences(values[:, 0], np.zeros(len(values), np.bool_)) > 0).tolist()


def tensor_of(values: npt.NDArray[np.float64], feature: Feature) -> npt.NDArray[np.uint8]:
    """[N, bytes] of one feature, [N, C]."""
    kind = np.float32 if feature.type == "float" else np.int64
    chosen = values if feature.per_column else values[:, :1]
    return np.ascontiguousarray(chosen.astype(kind)).view(np.uint8).reshape(len(values), -1)


@pytest.mark.every_major
@pytest.mark.parametrize("problem", OUTPUTS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_model_for_another_processor_decides_as_numpy_does(
    toolchain: Toolchain, tmp_path: Path, target: str, problem: str
):
    emulator = shutil.which(TARGETS[target])
    if emulator is None or not Path("/usr", target, "include", "c++").is_dir():
        pytest.skip(f"expected {TARGETS[target]} and its C++ library, found none; install qemu-user and g++-{target}")
    rng = np.random.default_rng(5)
    about = PROBLEMS[problem]
    values = drawn_values(about, rng)
    policy = drawn_policy(about, values, rng)
    save_policy(policy, tmp_path / "policy")
    made = export_release(toolchain, [tmp_path / "policy"], tmp_path, target=target)
    tensors = [tensor_of(values[..., index], feature) for index, feature in enumerate(about.features)]
    named = zip(about.feature_names, tensors, strict=True)
    text = MAIN.format(
        name=CLASSES[problem],
        decision="float" if policy.output is OutputKind.PRIORITY else "int64_t",
        inputs=", ".join(f'{{"feed_{name}", {tensor.shape[1]}}}' for name, tensor in named),
    )
    (tmp_path / "main.cpp").write_text(text)
    words = [f"--target={target}", "-fuse-ld=lld", "-static", "-std=c++17", "main.cpp", made.object, "-o", "main"]
    done = process.run([toolchain.clangxx, *words], timeout_seconds=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    done = process.run([emulator, tmp_path / "main"], timeout_seconds=120, stdin=np.hstack(tensors).tobytes())

    assert done.returncode == 0, done.stderr
    found = [float(line) for line in done.stdout.split()]
    assert len(set(found)) > 1
    assert found == decided(policy, values)
