import itertools
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mlgokit.errors import TraceError, UsageError
from mlgokit.spec import TensorSpec
from mlgokit.traces import ContextSpan, Header, Log, iter_log, read_log, read_log_bytes, render_log, scan

REWARD = TensorSpec(name="reward", type="float", shape=(1,))


def log_of(lengths: list[int], names: list[str] | None = None, *, scored: bool = True, width: int = 3) -> Log:
    """Contexts of these lengths; values count up over the whole log."""
    stops = [0, *itertools.accumulate(lengths)]
    names = names or [f"f{number}" for number in range(len(lengths))]
    total = stops[-1]
    return Log(
        header=Header(
            features=(TensorSpec(name="a", type="int32_t", shape=(width,)),), score=REWARD if scored else None
        ),
        contexts=tuple(
            ContextSpan(name=name, start=start, stop=stop)
            for name, (start, stop) in zip(names, itertools.pairwise(stops), strict=True)
        ),
        columns={"a": np.arange(total * width, dtype=np.int32).reshape(total, width)},
        scores=np.arange(total, dtype=np.float32).reshape(total, 1) if scored else None,
    )


def assert_same(found: Log, expected: Log) -> None:
    assert found.header == expected.header
    assert found.contexts == expected.contexts
    np.testing.assert_array_equal(found.columns["a"], expected.columns["a"])
    assert (found.scores is None) == (expected.scores is None)
    if found.scores is not None and expected.scores is not None:
        np.testing.assert_array_equal(found.scores, expected.scores)


MANY = [0, 1, 9, 10, 11, 63, 64, 65, 99, 100, 101, 0, 500, 3, 1200, 2]


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("window", [1, 7, 50, 333, 4096, 2**21])
def test_windows_of_every_size_find_the_same(window: int, scored: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scan, "WINDOW_BYTES", window)
    log = log_of(MANY if window > 7 else MANY[:6], scored=scored)
    assert_same(read_log_bytes(render_log(log), name="x"), log)


@pytest.mark.parametrize("window", [100, 2**21])
def test_contexts_that_are_entered_again_and_again_go_on_counting(window: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scan, "WINDOW_BYTES", window)
    lengths = [3, 9, 4, 0, 70, 8, 300, 2, 1]
    log = log_of(lengths, ["f", "g", "f", "f", "g", "f", "g", "g", "f"])
    assert_same(read_log_bytes(render_log(log), name="x"), log)


@pytest.mark.parametrize("window", [64, 2**21])
@pytest.mark.parametrize("number", [0, 5, 12, 70, 500])
def test_a_wrong_number_is_found_at_its_byte(number: int, window: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scan, "WINDOW_BYTES", window)
    log = log_of([20, 30, 600, 10])
    data = render_log(log)
    line = b'{"observation":%d}\n' % number
    at = data.rindex(line)
    broken = data[:at] + b'{"observation":%d}\n' % (number + 1) + data[at + len(line) :]
    found = read_log_bytes(broken, name="x", partial=True)
    assert found.damage is not None
    assert f'byte {at}: expected {{"observation":{number}}} or a context line' in found.damage
    start = next(span.start for span in reversed(log.contexts) if span.stop - span.start > number)
    assert found.observation_count == start + number
    np.testing.assert_array_equal(found.columns["a"], log.columns["a"][: start + number])


def test_a_wrong_outcome_number_is_found_at_its_byte():
    data = render_log(log_of([5] * 40))
    at = data.rindex(b'{"outcome":3}')
    with pytest.raises(TraceError, match=rf"byte {at}: expected \{{\"outcome\":3\}}, found '\{{\"outcome\":7\}}'"):
        read_log_bytes(data[:at] + b'{"outcome":7}' + data[at + 13 :], name="x")


@pytest.mark.parametrize("lengths", [[5] * 40, [300]], ids=["many contexts", "one long context"])
def test_a_missing_outcome_is_found_at_its_byte(lengths: list[int]):
    data = render_log(log_of(lengths))
    at = data.index(b'{"outcome":4}')
    with pytest.raises(TraceError, match=rf"byte {at}: expected \{{\"outcome\":4\}}, found"):
        read_log_bytes(data[:at] + data[at + 13 + 1 + 4 + 1 :], name="x")


@pytest.mark.parametrize("name", ['a"b', "tab\t", "naïve", "back\\slash", "x" * 70_000])
def test_names_of_any_spelling(name: str):
    log = log_of([3, 4, 5], ["f", name, "g"])
    assert_same(read_log_bytes(render_log(log), name="x"), log)


def test_bytes_that_are_no_text_in_a_name_are_damage():
    data = render_log(log_of([3, 4], ["f", "other"])).replace(b"other", b"oth\xffr")
    with pytest.raises(TraceError, match=r"expected .* or a context line"):
        read_log_bytes(data, name="x")


def test_a_name_longer_than_any_line_is_damage():
    data = render_log(log_of([3, 4], ["f", "x" * 2**20]))
    with pytest.raises(TraceError, match="found no newline in 1048576 bytes"):
        read_log_bytes(data, name="x")


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100, 1990, 5000])
def test_batches_are_the_log_in_pieces(tmp_path: Path, size: int):
    log = log_of(MANY)
    (tmp_path / "x.log").write_bytes(render_log(log))
    batches = list(iter_log(tmp_path / "x.log", observations_per_batch=size))
    counts = [batch.observation_count for batch in batches]
    assert counts[:-1] == [size] * (len(counts) - 1)
    assert sum(counts) == log.observation_count
    np.testing.assert_array_equal(np.concatenate([batch.columns["a"] for batch in batches]), log.columns["a"])
    scores = [batch.scores for batch in batches if batch.scores is not None]
    assert log.scores is not None
    np.testing.assert_array_equal(np.concatenate(scores), log.scores)
    owner: list[str] = []
    for batch in batches:
        position = 0
        for span in batch.contexts:
            assert span.start == position
            owner += [span.name] * (span.stop - span.start)
            position = span.stop
        assert position == batch.observation_count
    assert owner == [span.name for span in log.contexts for _ in range(span.stop - span.start)]


@pytest.mark.parametrize("window", [50, 2**21])
@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([10, 10], [["f0"], ["f1"]]),
        ([4, 6, 0, 0, 5], [["f0", "f1"], ["f2", "f3", "f4"]]),
        ([10, 0], [["f0", "f1"]]),
        ([15, 5, 1], [["f0"], ["f0", "f1"], ["f2"]]),
    ],
)
def test_a_context_that_begins_with_a_batch_is_in_no_earlier_one(
    tmp_path: Path, lengths: list[int], expected: list[list[str]], window: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scan, "WINDOW_BYTES", window)
    (tmp_path / "x.log").write_bytes(render_log(log_of(lengths)))
    batches = list(iter_log(tmp_path / "x.log", observations_per_batch=10))
    assert [[span.name for span in batch.contexts] for batch in batches] == expected


def test_a_log_without_observations_is_one_batch(tmp_path: Path):
    (tmp_path / "x.log").write_bytes(render_log(log_of([0, 0])))
    (batch,) = iter_log(tmp_path / "x.log", observations_per_batch=10)
    assert [span.name for span in batch.contexts] == ["f0", "f1"]
    assert batch.columns["a"].shape == (0, 3)


def test_batches_come_before_the_damage(tmp_path: Path):
    data = render_log(log_of([25]))
    (tmp_path / "x.log").write_bytes(data[:-1])
    batches = iter_log(tmp_path / "x.log", observations_per_batch=10)
    assert [next(batches).observation_count for _ in range(2)] == [10, 10]
    with pytest.raises(TraceError, match=r"expected a newline after the score for observation 24, found the end"):
        next(batches)


def test_a_batch_of_nothing_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="observations_per_batch: expected at least one, found 0"):
        next(iter_log(tmp_path / "x.log", observations_per_batch=0))


def test_a_batch_holds_no_more_memory_than_its_own(tmp_path: Path):
    log = log_of([200] * 60, width=250)
    (tmp_path / "x.log").write_bytes(render_log(log))
    size_bytes = (tmp_path / "x.log").stat().st_size
    tracemalloc.start()
    try:
        for _ in iter_log(tmp_path / "x.log", observations_per_batch=100):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size_bytes > 11_000_000
    assert peak < 3 * scan.WINDOW_BYTES + 2**20


def test_a_log_that_vanishes_while_it_is_read_is_read_to_its_end(tmp_path: Path):
    log = log_of([40] * 10)
    (tmp_path / "x.log").write_bytes(render_log(log))
    batches = iter_log(tmp_path / "x.log", observations_per_batch=100)
    next(batches)
    (tmp_path / "x.log").unlink()
    assert sum(batch.observation_count for batch in batches) == 300
    with pytest.raises(TraceError, match=r"x\.log: byte 0: expected a readable file, found No such file"):
        next(iter_log(tmp_path / "x.log", observations_per_batch=100))


def test_a_log_that_shrinks_while_it_is_read_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scan, "WINDOW_BYTES", 1000)
    (tmp_path / "x.log").write_bytes(render_log(log_of([400])))
    batches = iter_log(tmp_path / "x.log", observations_per_batch=10)
    next(batches)
    os.truncate(tmp_path / "x.log", 2000)
    with pytest.raises(TraceError, match="the compiler was probably killed"):
        list(batches)


def test_a_log_that_grows_while_it_is_read_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # As a stream of unknown size, the room for its observations must grow too.
    log = log_of([400])
    data = render_log(log)
    monkeypatch.setattr(scan, "WINDOW_BYTES", 1000)
    monkeypatch.setattr(os, "fstat", lambda _descriptor: os.stat_result((0,) * 10))
    (tmp_path / "x.log").write_bytes(data)
    assert_same(read_log(tmp_path / "x.log"), log)


def test_a_pipe_is_read_too(tmp_path: Path):
    log = log_of([30] * 10)
    data = render_log(log)
    reading, writing = os.pipe()
    assert len(data) < 60_000
    os.write(writing, data)
    os.close(writing)
    try:
        assert_same(read_log(Path(f"/dev/fd/{reading}")), log)
    finally:
        os.close(reading)


def test_a_folder_is_no_log(tmp_path: Path):
    with pytest.raises(TraceError, match="expected a readable file, found Is a directory"):
        read_log(tmp_path)
