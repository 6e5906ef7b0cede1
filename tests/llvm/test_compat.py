"""The walk from objects with bitcode to a trained policy by the calls of the reference's own tools."""

import csv
from pathlib import Path

import pytest

from mlgokit.commands.compat import Called, Compat, run
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, Toolchain
from mlgokit.policy.normaliser import Quantile
from mlgokit.policy.store import load_policy
from mlgokit.traces.training_set import iter_training_set

pytestmark = pytest.mark.llvm

SOURCE = """
extern int out(int);
static int once(int a) { return out(a) * 3 + a; }
static int often(int a, int b) { int s = 0; for (int i = 0; i < a; i++) s += out(i ^ b); return s; }
int NAME_f(int a) { return once(a) + often(a, 3); }
int NAME_g(int a) { return often(a, 4) - often(3, a); }
"""
GIN = """
config_registry.get_configuration.implementation=@configs.InliningConfig
problem_config.flags_to_delete.delete_flags=('-split-dwarf-file',)
"""
CLONING = """
include 'common.gin'
train_eval.agent_config_type=@agents.BCAgentConfig
train_eval.num_iterations=20
QNetwork.fc_layer_params=(6,)
tf.train.AdamOptimizer.learning_rate=0.001
"""
TRAINING = """
include 'common.gin'
train_eval.agent_config_type=@agents.PPOAgentConfig
train_eval.num_policy_iterations=1
train_eval.num_iterations=3
train_eval.num_modules=4
train_eval.batch_size=4
train_eval.train_sequence_length=1
"""


def call(*words: str | Path) -> Called:
    return run(Compat(call=tuple(map(str, words))))


def test_from_objects_to_a_policy(toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(LOCATION_VARIABLE, str(toolchain.clang.resolve().parent.parent))
    monkeypatch.chdir(tmp_path)
    for name, text in (("common", GIN), ("cloning", CLONING), ("training", TRAINING)):
        (tmp_path / f"{name}.gin").write_text(text)
    (tmp_path / "build").mkdir()
    for name in ("a", "b", "c", "d"):
        source = tmp_path / f"{name}.c"
        source.write_text(SOURCE.replace("NAME", name))
        words = [
            str(toolchain.clang),
            "-Oz",
            "-Xclang",
            "-fembed-bitcode=all",
            "-c",
            str(source),
            "-o",
            f"build/{name}.o",
        ]
        assert process.run(words, timeout_seconds=60).returncode == 0

    call("extract_ir", "--input=build", "--input_type=directory", "--output_dir=corpus", "--cmd_filter=^-Oz$")
    traced = call(
        "tools/generate_default_trace.py", "--data_path=corpus", "--output_path=trace", "--gin_files=common.gin",
        "--output_performance_path=scores.csv", "--num_workers", "2",
    )  # fmt: skip
    call("generate_vocab", "--input=trace", "--output_dir=vocab", "--num_buckets=8", "--gin_files=common.gin")
    vocab = "--gin_bindings=get_observation_processing_layer_creator.quantile_file_dir='vocab'"
    call("rl/train_bc.py", "--root_dir=warm", "--data_path=trace", "--gin_files=cloning.gin", vocab)
    start = "--gin_bindings=train_eval.warmstart_policy_dir='warm/saved_policy'"
    trained = call(
        "train_locally", "--root_dir=out", "--data_path=corpus", "--gin_files=training.gin", vocab, start,
        "--", "--validation-share=0",
    )  # fmt: skip

    with (tmp_path / "scores.csv").open(newline="") as file:
        assert [row[0] for row in csv.reader(file)] == [f"{name}.o" for name in "abcd"]
    (log,) = iter_training_set(tmp_path / "trace", observations_per_batch=10**6)
    assert log.observation_count == traced.result["decisions"]
    assert Path("trace.corpus").read_text() == f"{tmp_path / 'corpus'}\n"
    first, last = (load_policy(tmp_path / folder / "final.policy") for folder in ("warm", "out"))
    assert isinstance(first.normaliser, Quantile)
    assert first.normaliser.boundaries.shape[1] == 8
    assert [layer.weight.shape for layer in last.layers] == [layer.weight.shape for layer in first.layers]
    assert first.layers[0].weight.shape[-1] == 6
    assert "--start=warm/final.policy" in trained.commands[0]
