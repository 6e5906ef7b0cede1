"""A policy with the reference's shipped vocabularies that knows few of the features that the compiler sends."""

import os
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveStatus, clang_words, drive
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.policy.advisor import PolicyAdvisor
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.policy.vocab import quantile_of, read_vocab
from mlgokit.problems import INLINE_SIZE
from mlgokit.traces.log import read_log

pytestmark = pytest.mark.llvm
SOURCE = """
extern "C" int get(int);
extern "C" void put(int);
static int add(int x) { return get(x) + get(x + 3); }
static int twice(int x) { put(x); return add(x) * add(x + 1); }
static void show(int x) { for (int i = 0; i < x; i++) put(twice(i) + get(i)); }
static int most(int a, int b) { return a > b ? twice(a) : get(b); }
extern "C" int hot(int n) { int v = get(n); for (int i = 0; i < n; i++) v += twice(v + i) - add(i); show(v); return v; }
extern "C" void once(int i) { put(twice(i) + add(i)); put(most(i, add(get(i)))); show(twice(i + 1)); }
extern "C" int small(int i) { return most(twice(i), add(i)) - most(i, 4) + add(add(i)); }
"""
# Of the 38 that LLVM sends; the shipped files have 999 lines, and 9999 for a few.
LINES = {"callee_users": 999, "cost_estimate": 9999, "nested_inlines": 9999, "caller_basic_block_count": 999}


def shipped(folder: Path) -> None:
    """Vocabularies with the structure of those that the reference ships: integers that ascend and repeat."""
    rng = np.random.default_rng(7)
    for name, count in LINES.items():
        spread = 300 if name == "cost_estimate" else 12
        values = np.sort(rng.integers(-spread if name == "cost_estimate" else 0, spread, count))
        (folder / f"{name}.buckets").write_text("".join(f"{value}\n" for value in values))


def test_plugin_and_pipes_decide_alike_by_what_the_policy_knows(toolchain: Toolchain, plugin: Path, tmp_path: Path):
    shipped(tmp_path)
    vocabulary = read_vocab(tmp_path)
    assert {name: len(boundaries) for name, boundaries in vocabulary.items()} == LINES
    features = tuple(LINES)
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(1, 2 * len(features), 2)).astype(np.float32)
    path = tmp_path / "few.policy"
    save_policy(
        Policy(
            problem=INLINE_SIZE.name,
            features=features,
            normaliser=quantile_of(vocabulary, features),
            layers=(Layer(weight - weight.mean(), np.zeros((1, 2), np.float32)),),
            output=OutputKind.LOGITS,
        ),
        path,
    )
    (tmp_path / "source.cpp").write_text(SOURCE)
    words = [toolchain.clangxx, "-Oz", "-c", "source.cpp"]

    done = process.run(
        [*words, f"-fpass-plugin={plugin}", "-o", "plugin.o"],
        timeout_seconds=60,
        cwd=tmp_path,
        env={**os.environ, "MLGOKIT_POLICY": str(path), "MLGOKIT_LOG": str(tmp_path / "plugin.log")},
    )
    assert done.returncode == 0, done.stderr
    channel = INLINE_SIZE.channel_for(toolchain.major, include_default=False)
    asked = drive(
        [*words, "-o", "pipes.o"],
        channel_options=clang_words(channel.options),
        overwritten=channel.overwritten,
        advisor=PolicyAdvisor(load_policy(path)),
        timeout_seconds=60,
        answer_timeout_seconds=20,
        cwd=tmp_path,
    )

    assert asked.status is InteractiveStatus.OK, asked
    assert asked.log is not None
    sent = [spec.name for spec in asked.log.header.features]
    assert set(features) < set(sent)
    log = read_log(tmp_path / "plugin.log")
    decisions = log.columns["inlining_decision"]
    assert 0 < decisions.mean() < 1
    np.testing.assert_array_equal(decisions, asked.log.columns["inlining_decision"])
    rows = np.stack([log.columns[name][:, 0] for name in features], axis=1)
    np.testing.assert_array_equal(decisions[:, 0] != 0, load_policy(path).preferences(rows) > 0)
    assert (tmp_path / "plugin.o").read_bytes() == (tmp_path / "pipes.o").read_bytes()
