"""A TFLite model that became a policy decides in the compiler as the model does, question by question."""

import importlib
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.policy.store import save_policy
from mlgokit.policy.tflite.evaluate import evaluate
from mlgokit.policy.tflite.graph import Graph
from mlgokit.policy.tflite.read_policy import read_policy
from mlgokit.traces import Log, read_log

pytestmark = pytest.mark.llvm

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
SOURCE = r"""
extern long sink(long, double);
#define S4(X) X(0) X(1) X(2) X(3)
#define DEFINE(N) \
  static long leaf##N(long x, long y) { return sink(x + N, y * 0.5) ^ (x << N); } \
  static long middle##N(long x, long y) { return leaf##N(x, y) + (y > N ? leaf##N(y, x) : leaf##N(x, 3)); }
S4(DEFINE)
long calls(long a, long b) {
  long r = 0;
#define CALL(N) for (long i = 0; i < a; ++i) r += middle##N(i, b) - leaf##N(b, 7);
  S4(CALL)
  return r;
}
long hash(const unsigned char *p, int n) {
  long a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9, j = 10, k = 11, l = 12, m = 13, o = 14, q = 15;
  for (int r = 0; r < n; ++r) {
    a += p[r] * b; b ^= c + q; c -= d * a; d += e ^ m; e ^= f - o; f += g * 3; g ^= h + a; h += i - b; i ^= j + c;
    j += k ^ d; k -= l + e; l += m ^ f; m ^= o - g; o += q * h; q ^= a + i;
    if (r % 7 == 3) a += sink(q, a * 0.5);
  }
  return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l ^ m ^ o ^ q;
}
"""


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("made_models")


def logged(toolchain: Toolchain, plugin: Path, folder: Path, *, level: str, variable: str, policy: Path) -> Log:
    """What the plugin logs of SOURCE, when the policy decides."""
    source, log = folder / "source.c", folder / "decisions.log"
    source.write_text(SOURCE)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLGOKIT_")}
    environment |= {f"MLGOKIT_{variable}POLICY": str(policy), f"MLGOKIT_{variable}LOG": str(log)}
    words = [toolchain.clang, level, f"-fpass-plugin={plugin}", "-c", source, "-o", folder / "source.o"]
    done = process.run(words, timeout_seconds=60, env=environment)
    assert done.returncode == 0, done.stderr
    return read_log(log)


def decisions_of(model: Graph, log: Log) -> list[int]:
    """What the model decides about the questions in a log."""
    found: list[int] = []
    for row in range(log.observation_count):
        names = {model.tensors[index].name: model.input_name(index).removeprefix("action_") for index in model.inputs}
        values = {full: log.columns[name][row] for full, name in names.items() if name in log.columns}
        found.append(int(evaluate(model, values)["StatefulPartitionedCall:0"].item()))
    return found


@pytest.mark.every_major
def test_an_imported_inliner_decides_in_the_compiler(
    toolchain: Toolchain, plugin: Path, models: ModuleType, tmp_path: Path
):
    rng = np.random.default_rng(7)
    vocab = {name: np.sort(np.rint(np.exp(rng.normal(2, 2, 999)) - 3)) for name in models.INLINE_FEATURES}
    model = models.inline_model(vocab, models.drawn_weights(rng, 70, 40, 40, 20, 2))
    save_policy(read_policy(model, "model").policy, tmp_path / "policy")

    log = logged(toolchain, plugin, tmp_path, level="-Oz", variable="", policy=tmp_path / "policy")

    taken = [int(decision) for decision in log.columns["inlining_decision"].ravel()]
    assert len(taken) > 10
    assert taken == decisions_of(model, log)


@pytest.mark.every_major
def test_an_imported_evictor_decides_in_the_compiler(
    toolchain: Toolchain, plugin: Path, models: ModuleType, tmp_path: Path
):
    rng = np.random.default_rng(7)
    vocab = {name: np.sort(rng.random(1000) * 2) for name in (*models.RANKED, "use_def_density", "progress")}
    embeddings = {name: rng.normal(size=(7, 4)) for name in models.STAGES}
    weights = models.drawn_weights(rng, models.COLUMN_WIDTH, 80, 40, 1)
    policy = read_policy(models.eviction_model(vocab, embeddings, weights), "model").policy
    save_policy(policy, tmp_path / "policy")

    log = logged(toolchain, plugin, tmp_path, level="-O2", variable="EVICTION_", policy=tmp_path / "policy")

    taken = log.columns["index_to_evict"].ravel()
    columns = int(log.columns["mask"][0].size)
    found = np.array(decisions_of(models.eviction_model(vocab, embeddings, weights, columns=columns), log))
    # What is infinite in all columns LLVM divides by itself.
    assert len(taken) > 3
    np.testing.assert_array_equal(taken, found)
