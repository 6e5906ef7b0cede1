from pathlib import Path

import numpy as np
import pytest

from mlgokit.errors import TraceError, UsageError
from mlgokit.problems import INLINE_SIZE
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header, Log
from mlgokit.traces.sequence_example import decode_sequence, encode_sequence
from mlgokit.traces.tfrecord import open_record_writer
from mlgokit.traces.training_set import iter_training_set, to_sequences

MASK = TensorSpec(name="mask", type="int64_t", shape=(1, 3))
WEIGHT = TensorSpec(name="weight", type="float", shape=(1, 3))
DECISION = TensorSpec(name="index_to_evict", type="int64_t", shape=(1,))
REWARD = TensorSpec(name="reward", type="float", shape=(1,))
HEADER = Header(features=(MASK, WEIGHT, DECISION), score=REWARD)


def small_log() -> Log:
    return Log(
        header=HEADER,
        contexts=(
            ContextSpan(name="f", start=0, stop=2),
            ContextSpan(name="empty", start=2, stop=2),
            ContextSpan(name="g", start=2, stop=3),
            ContextSpan(name="f", start=3, stop=4),
        ),
        columns={
            "mask": np.arange(12).reshape(4, 1, 3),
            "weight": np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 1, 3),
            "index_to_evict": np.array([[0], [1], [2], [1]]),
        },
        scores=np.array([[1], [2], [3], [4]], np.float32),
    )


def write(path: Path, records: list[bytes]) -> Path:
    with open_record_writer(path) as append:
        for record in records:
            append(record)
    return path


def test_a_record_is_a_context_with_the_references_names():
    records = list(to_sequences(small_log(), ["mask", "index_to_evict"], module="m", rewards={"f": 0.5, "g": -1.0}))
    first, second = (decode_sequence(record, path="x") for record in records)
    assert first.labels == {"module": "m", "key": "f"}
    assert {name: column.tolist() for name, column in first.columns.items()} == {
        "index_to_evict": [[0], [1], [1]],
        "mask": [[0, 1, 2], [3, 4, 5], [9, 10, 11]],
        "reward": [[0.5], [0.5], [0.5]],
    }
    assert second.labels["key"] == "g"
    assert second.columns["reward"].tolist() == [[-1.0]]


def test_a_training_set_comes_back_as_a_log(tmp_path: Path):
    names = [spec.name for spec in HEADER.features]
    path = write(tmp_path / "x", list(to_sequences(small_log(), names, module="m", rewards={"f": 0.5, "g": 1.0})))
    (found,) = iter_training_set(path)
    flat = [TensorSpec(name=spec.name, type=spec.type, shape=(3,)) for spec in (MASK, WEIGHT)]
    assert found.header == Header(features=(DECISION, *flat), score=REWARD)
    assert found.contexts == (ContextSpan(name="m:f", start=0, stop=3), ContextSpan(name="m:g", start=3, stop=4))
    order = [0, 1, 3, 2]
    for name, column in small_log().columns.items():
        np.testing.assert_array_equal(found.columns[name], column[order].reshape(4, -1))
        assert found.columns[name].dtype == column.dtype
    assert found.scores is not None
    assert found.scores.tolist() == [[0.5], [0.5], [0.5], [1.0]]


def test_a_training_set_of_the_reference_is_read(tmp_path: Path):
    rng = np.random.default_rng(1)
    names = [*INLINE_SIZE.feature_names[:35], "inlining_decision", "inlining_default"]
    records, total = [], 0
    for count in (3, 1, 40):
        columns = {name: rng.integers(0, 10_000, (count, 1)) for name in names}
        records.append(encode_sequence(columns | {"reward": np.zeros((count, 1), np.float32)}))
        total += count
    (found,) = iter_training_set(write(tmp_path / "x", records))
    assert sorted(found.columns) == sorted(names)
    assert {spec.type for spec in found.header.features} == {"int64_t"}
    assert found.header.score == REWARD
    assert found.observation_count == total
    assert [span.name for span in found.contexts] == ["0", "1", "2"]


def test_batches_hold_whole_records(tmp_path: Path):
    path = write(tmp_path / "x", [encode_sequence({"a": np.full((5, 1), number)}) for number in range(7)])
    batches = list(iter_training_set(path, observations_per_batch=8))
    assert [batch.observation_count for batch in batches] == [10, 10, 10, 5]
    assert (
        np.concatenate([batch.columns["a"] for batch in batches])[:, 0].tolist() == np.repeat(np.arange(7), 5).tolist()
    )


def test_an_empty_training_set_has_no_batches(tmp_path: Path):
    assert list(iter_training_set(write(tmp_path / "x", []))) == []
    assert list(iter_training_set(write(tmp_path / "x", [b""]))) == []


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"a": np.array([[1]])}, "expected a feature 'mask', found a"),
        ({"mask": np.zeros((1, 3))}, "expected int64_t of 3 values a step as 'mask', found float of 3"),
        ({"mask": np.zeros((1, 4), int)}, "expected int64_t of 3 values a step as 'mask', found int64_t of 4"),
    ],
)
def test_a_record_that_does_not_fit_is_named(tmp_path: Path, columns: dict[str, np.ndarray], sentence: str):
    path = write(tmp_path / "x", [encode_sequence({"mask": np.ones((1, 3), int)}), encode_sequence(columns)])
    with pytest.raises(TraceError, match=r"record at byte \d+: ") as caught:
        list(iter_training_set(path))
    assert sentence in str(caught.value)


def test_features_with_different_numbers_of_steps_are_refused(tmp_path: Path):
    record = encode_sequence({"a": np.ones((2, 1), int)}) + encode_sequence({"b": np.ones((3, 1), int)})
    with pytest.raises(TraceError, match="expected as many steps of every feature, found a: 2, b: 3"):
        list(iter_training_set(write(tmp_path / "x", [record])))


@pytest.mark.parametrize(
    ("scored", "sentence"),
    [([True, False], "expected a feature 'reward', found a"), ([False, True], "expected no 'reward', as in the first")],
)
def test_rewards_of_some_records_are_damage(tmp_path: Path, scored: list[bool], sentence: str):
    reward = {"reward": np.zeros((2, 1), np.float32)}
    records = [encode_sequence({"a": np.ones((2, 1), int)} | (reward if one else {})) for one in scored]
    with pytest.raises(TraceError, match=sentence):
        list(iter_training_set(write(tmp_path / "x", records)))


def test_contexts_without_a_reward_are_left_out():
    (record,) = to_sequences(small_log(), ["mask"], rewards={"g": 1.0, "h": 2.0})
    assert decode_sequence(record, path="x").columns["reward"].tolist() == [[1.0]]


def test_a_missing_feature_is_named():
    with pytest.raises(UsageError, match="log of m: expected features moon, sun, found mask, weight, index_to_evict"):
        list(to_sequences(small_log(), ["mask", "moon", "sun"], module="m", rewards={}))
