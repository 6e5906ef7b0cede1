"""`mlgokit vocab` and `mlgokit importance` on logs that were not made by a compiler."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgokit.commands import importance, vocab
from mlgokit.errors import InputError, UsageError
from mlgokit.policy.network import Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import join_parts, save_policy
from mlgokit.policy.vocab import quantile_of, read_vocab
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header, Log, render_log
from mlgokit.traces.tfrecord import open_record_writer
from mlgokit.traces.training_set import to_sequences

NAMES = ("callee_users", "caller_users", "inlining_default", "inlining_decision", "log_probability")


def log_of(values: np.ndarray) -> Log:
    """A log of the inliner with these values [T, 2] of two features."""
    types = ("int64_t", "int64_t", "int64_t", "int64_t", "float")
    header = Header(features=tuple(TensorSpec(name=n, type=t, shape=(1,)) for n, t in zip(NAMES, types, strict=True)))
    zeros = np.zeros((len(values), 1), np.int64)
    columns = [values[:, :1], values[:, 1:], zeros, zeros, zeros.astype(np.float32)]
    return Log(
        header=header,
        contexts=(ContextSpan(name="", start=0, stop=len(values)),),
        columns=dict(zip(NAMES, columns, strict=True)),
    )


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 1000, (500, 2))


@pytest.fixture
def traces(values: np.ndarray, tmp_path: Path) -> Path:
    folder = tmp_path / "trace"
    (folder / "logs" / "project").mkdir(parents=True)
    (folder / "logs" / "a.log").write_bytes(render_log(log_of(values[:200])))
    (folder / "logs" / "project" / "b.log").write_bytes(render_log(log_of(values[200:])))
    return folder


def test_the_files_have_the_quantiles_of_all_logs(values: np.ndarray, traces: Path, tmp_path: Path):
    done = vocab.run(vocab.Vocab(traces=traces, output=tmp_path / "vocab", num_buckets=99))

    assert done["features"] == ["callee_users", "caller_users"]
    found = read_vocab(tmp_path / "vocab")
    expected = np.quantile(values, np.linspace(0, 1, 99), axis=0).T
    np.testing.assert_array_equal([found["callee_users"], found["caller_users"]], expected)
    normaliser = quantile_of(found, ("caller_users", "callee_users"))
    assert normaliser.apply(values[:, ::-1]).shape == (500, 4)


def test_a_training_set_gives_the_same_files(values: np.ndarray, traces: Path, tmp_path: Path):
    with open_record_writer(tmp_path / "x.tfrecord") as append:
        log = log_of(values)
        for record in to_sequences(log, NAMES, rewards={"default": 0.0}):
            append(record)

    vocab.run(vocab.Vocab(traces=traces, output=tmp_path / "one"))
    vocab.run(vocab.Vocab(tfrecord=tmp_path / "x.tfrecord", output=tmp_path / "two"))

    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["callee_users.buckets", "caller_users.buckets"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_fraction_is_drawn_by_the_seed(traces: Path, tmp_path: Path):
    texts = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        config = vocab.Vocab(traces=traces, output=tmp_path / folder, sampling_fraction=0.2, num_buckets=9, seed=seed)
        vocab.run(config)
        texts.append((tmp_path / folder / "callee_users.buckets").read_text())

    assert texts[0] == texts[1] != texts[2]


def test_sources_and_shares_are_checked(traces: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="vocab: expected either --traces or --tfrecord, found both or neither"):
        vocab.run(vocab.Vocab())
    with pytest.raises(UsageError, match="--sampling-fraction: expected a share above 0 and at most 1, found 0"):
        vocab.run(vocab.Vocab(traces=traces, sampling_fraction=0.0))
    with pytest.raises(InputError, match=r"expected training logs .* found none; run `mlgokit trace` first"):
        vocab.run(vocab.Vocab(traces=tmp_path / "none"))


def policy_for(features: tuple[str, ...]) -> Policy:
    weight = np.zeros((1, len(features), 2), np.float32)
    weight[0, -1, 1] = 1
    zeros = np.zeros(len(features), np.float32)
    return Policy(
        problem="inline-size",
        features=features,
        normaliser=SignedLog(mean=zeros + 6, scale=zeros + 1, clip=4.0),
        layers=(Layer(weight, np.zeros((1, 2), np.float32)),),
        output=OutputKind.LOGITS,
    )


def test_importance_is_written_with_a_picture(traces: Path, tmp_path: Path):
    save_policy(policy_for(("caller_users", "callee_users")), tmp_path / "x.policy")
    config = importance.Importance(
        policy=tmp_path / "x.policy", traces=traces, output=tmp_path / "out.json", observations=100, explained=20
    )

    done = importance.run(config)

    assert done["most important"] == ["callee_users", "caller_users"]
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["observations"] == 100
    assert found["features"]["caller_users"] == {"shapley": 0.0, "changed": 0.0, "direction": 0.0}
    assert found["features"]["callee_users"]["direction"] > 0.5
    assert "callee_users" in (tmp_path / "out.html").read_text()


def test_what_the_gate_leaves_to_llvm_is_not_explained(values: np.ndarray, tmp_path: Path):
    (tmp_path / "a.log").write_bytes(render_log(log_of((values + 1) * (np.arange(len(values))[:, None] % 2))))
    gate = Gate(feature="callee_users", margins=(np.inf, 0))
    layer = Layer(np.ones((1, 2, 1), np.float32), np.zeros((1, 1), np.float32))
    usual = policy_for(("caller_users", "callee_users"))
    save_policy(replace(usual, gate=gate, layers=(layer,), output=OutputKind.EFFECT_BYTES), tmp_path / "x.policy")
    config = importance.Importance(
        policy=tmp_path / "x.policy", traces=tmp_path, output=tmp_path / "out.json", observations=10**6, explained=2
    )
    importance.run(config)
    assert json.loads((tmp_path / "out.json").read_text())["observations"] == len(values) // 2


def test_of_a_policy_with_parts_the_one_that_is_named_is_explained(traces: Path, tmp_path: Path):
    first = replace(policy_for(("caller_users", "callee_users")), targets=("x86_64",))
    save_policy(join_parts([first, replace(policy_for(("caller_users",)), targets=("arm",))]), tmp_path / "x.policy")
    config = importance.Importance(
        policy=tmp_path / "x.policy", traces=traces, output=tmp_path / "out.json", observations=100, explained=20
    )
    for target in (None, "mips"):
        with pytest.raises(UsageError, match="--target: expected one of arm, x86_64"):
            importance.run(replace(config, target=target))
    assert importance.run(replace(config, target="arm"))["most important"] == ["caller_users"]


def test_observations_are_drawn_from_all_logs_alike(tmp_path: Path):
    """With more logs than are kept in memory; all that decides is in the first half of them."""
    traces = tmp_path / "logs"
    traces.mkdir()
    rng = np.random.default_rng(3)
    for number in range(30):
        (traces / f"{number:02}.log").write_bytes(render_log(log_of(rng.integers(0, 1000, (200, 2)) * (number < 15))))
    save_policy(policy_for(("caller_users", "callee_users")), tmp_path / "x.policy")
    importance.run(
        importance.Importance(
            policy=tmp_path / "x.policy", traces=traces, output=tmp_path / "out.json", observations=20, orders=2
        )
    )
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["features"]["callee_users"]["changed"] > 0.1


def test_a_policy_for_other_features_and_bad_numbers_are_said(traces: Path, tmp_path: Path):
    save_policy(policy_for(("nobody",)), tmp_path / "x.policy")
    with pytest.raises(UsageError, match="inline-size: expected a feature 'nobody' from the compiler, found none"):
        importance.run(importance.Importance(policy=tmp_path / "x.policy", traces=traces))
    with pytest.raises(UsageError, match="--orders: expected at least 1, found 0"):
        importance.run(importance.Importance(policy=tmp_path / "x.policy", traces=traces, orders=0))
