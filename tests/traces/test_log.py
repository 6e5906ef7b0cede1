import dataclasses
import itertools
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import mlgokit.traces.log
from mlgokit.errors import TraceError, UsageError
from mlgokit.spec import DTYPES, TensorSpec
from mlgokit.traces import ContextSpan, Header, Log, iter_log, read_log, read_log_bytes, render_log
from mlgokit.traces.record import context_line

FLOATS = TensorSpec(name="weights", type="float", shape=(2, 3))
INTEGERS = TensorSpec(name="counts", type="int64_t", shape=(3, 1))
REWARD = TensorSpec(name="reward", type="float", shape=(1,))


def small_log(*, scored: bool = True) -> Log:
    """Two contexts of two observations, the first one entered again for a third."""
    count = 5
    return Log(
        header=Header(features=(FLOATS, INTEGERS), score=REWARD if scored else None),
        contexts=(
            ContextSpan(name="first", start=0, stop=2),
            ContextSpan(name="second", start=2, stop=4),
            ContextSpan(name="first", start=4, stop=5),
        ),
        columns={
            "weights": np.arange(6 * count, dtype=np.float32).reshape(count, 2, 3),
            "counts": np.arange(3 * count, dtype=np.int64).reshape(count, 3, 1) + 10,
        },
        scores=np.linspace(0, 1, count, dtype=np.float32).reshape(count, 1) if scored else None,
    )


def one_byte_log(count: int, *, contexts: int = 1, score: TensorSpec | None = None) -> Log:
    bounds = np.linspace(0, count, contexts + 1).astype(int).tolist()
    return Log(
        header=Header(features=(TensorSpec(name="a", type="uint8_t", shape=()),), score=score),
        contexts=tuple(
            ContextSpan(name=f"f{number}", start=bounds[number], stop=bounds[number + 1]) for number in range(contexts)
        ),
        columns={"a": np.arange(count).astype(np.uint8)},
        scores=None if score is None else np.arange(count).astype(score.dtype).reshape(count, 1),
    )


def assert_equal(found: Log, expected: Log) -> None:
    assert found.header == expected.header
    assert found.contexts == expected.contexts
    assert list(found.columns) == [spec.name for spec in expected.header.features]
    for name, column in found.columns.items():
        assert column.dtype == expected.columns[name].dtype
        np.testing.assert_array_equal(column, expected.columns[name])
    assert (found.scores is None) == (expected.scores is None)
    if found.scores is not None and expected.scores is not None:
        np.testing.assert_array_equal(found.scores, expected.scores)


def test_the_bytes_are_llvms():
    log = Log(
        header=Header(
            features=(
                TensorSpec(name="a", type="int64_t", shape=(1,)),
                TensorSpec(name="b", type="uint8_t", shape=(2,), port=1),
            ),
            score=TensorSpec(name="delta", type="int16_t", shape=(1,)),
            advice=TensorSpec(name="decision", type="int64_t", shape=(1,)),
        ),
        contexts=(ContextSpan(name="", start=0, stop=0), ContextSpan(name='a"b', start=0, stop=1)),
        columns={"a": np.array([[2]]), "b": np.array([[10, 123]], np.uint8)},
        scores=np.array([[-1]], np.int16),
    )
    assert render_log(log) == (
        b'{"features":[{"name":"a","type":"int64_t","port":0,"shape":[1]},'
        b'{"name":"b","type":"uint8_t","port":1,"shape":[2]}],'
        b'"score":{"name":"delta","type":"int16_t","port":0,"shape":[1]},'
        b'"advice":{"name":"decision","type":"int64_t","port":0,"shape":[1]}}\n'
        b'{"context":""}\n{"context":"a\\"b"}\n{"observation":0}\n\x02\0\0\0\0\0\0\0\n{\n{"outcome":0}\n\xff\xff\n'
    )


@pytest.mark.parametrize("scored", [True, False])
def test_a_log_is_read_as_it_was_written(tmp_path: Path, scored: bool):
    log = small_log(scored=scored)
    (tmp_path / "x.log").write_bytes(render_log(log))
    found = read_log(tmp_path / "x.log")
    assert_equal(found, log)
    assert found.damage is None
    assert found.observation_count == 5
    assert render_log(found) == render_log(log)


def test_numbers_continue_when_a_context_is_entered_again():
    data = render_log(small_log())
    assert data.index(b'{"context":"second"}') < data.index(b'{"observation":2}')


def test_columns_are_views_of_one_block_and_cannot_be_written():
    found = read_log_bytes(render_log(one_byte_log(1000)), name="x")
    assert found.columns["a"].base is not None
    with pytest.raises(ValueError, match="read-only"):
        found.columns["a"][0] = 1


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 15, 16, 17, 99, 100, 101, 999, 1000, 1001, 30_000])
@pytest.mark.parametrize("contexts", [1, 3])
@pytest.mark.parametrize("score", [None, REWARD], ids=["unscored", "scored"])
def test_every_length_round_trips(count: int, contexts: int, score: TensorSpec | None):
    log = one_byte_log(count, contexts=contexts, score=score)
    assert_equal(read_log_bytes(render_log(log), name="x"), log)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    names = draw(st.lists(st.text(max_size=8), min_size=1, max_size=5, unique=True))
    shape = st.lists(st.integers(1, 3), max_size=3).map(tuple)
    kinds = st.sampled_from(sorted(DTYPES))
    features = tuple(TensorSpec(name=name, type=draw(kinds), shape=draw(shape)) for name in names)
    score = draw(st.none() | st.builds(TensorSpec, name=st.just("score"), type=kinds, shape=shape))
    lengths = draw(st.lists(st.integers(0, 130), max_size=4))
    stops = np.cumsum([0, *lengths]).tolist()
    contexts = tuple(
        ContextSpan(name=draw(st.text(max_size=2)), start=start, stop=stop) for start, stop in itertools.pairwise(stops)
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def tensor(spec: TensorSpec) -> np.ndarray:
        # Bytes of the protocol's own text, to be taken for it by a reader that looks for line ends.
        data = rng.choice(np.frombuffer(b'{"observation":0}\n\n{}', np.uint8), stops[-1] * spec.size_bytes)
        return data.view(spec.dtype).reshape(stops[-1], *spec.shape)

    return Log(
        header=Header(features=features, score=score),
        contexts=contexts,
        columns={spec.name: tensor(spec) for spec in features},
        scores=tensor(score) if score is not None else None,
    )


@settings(database=None, derandomize=True, deadline=None, max_examples=60)
@given(logs())
def test_any_log_round_trips(log: Log):
    data = render_log(log)
    assert_equal(read_log_bytes(data, name="x"), log)
    assert render_log(read_log_bytes(data, name="x")) == data


@pytest.mark.parametrize("scored", [True, False])
def test_a_log_cut_anywhere_is_refused_or_whole_up_to_there(scored: bool):
    log = small_log(scored=scored)
    data = render_log(log)
    whole: set[int] = set()
    for cut in range(len(data)):
        found = read_log_bytes(data[:cut], name="x", partial=True)
        count = found.observation_count
        for name, column in found.columns.items():
            np.testing.assert_array_equal(column, log.columns[name][:count])
        if found.damage is None:
            whole.add(cut)
            assert_equal(read_log_bytes(data[:cut], name="x"), found)
            continue
        with pytest.raises(TraceError) as caught:
            read_log_bytes(data[:cut], name="x")
        assert str(caught.value) == found.damage
        assert caught.value.path == "x"
        assert 0 <= caught.value.offset <= cut
        assert "the compiler was probably killed" in found.damage
    header, contexts, observations = 1, 3, 5
    assert len(whole) == header + contexts + observations - 1


def test_the_sentence_for_missing_features_names_file_byte_and_observation(tmp_path: Path):
    data = render_log(small_log(scored=False))
    begin = data.rindex(b'{"observation":2}\n') + 18
    (tmp_path / "foo.log").write_bytes(data[: begin + 11])
    with pytest.raises(TraceError) as caught:
        read_log(tmp_path / "foo.log")
    assert str(caught.value) == (
        f"trace {tmp_path / 'foo.log'}: byte {begin}: expected 48 bytes of features for observation 2, found 11; "
        "the compiler was probably killed"
    )
    assert caught.value.path == tmp_path / "foo.log"
    assert caught.value.offset == begin


HEADER = b'{"features":[{"name":"a","type":"int8_t","port":0,"shape":[1]}]}\n'
SCORED = HEADER[:-2] + b',"score":{"name":"s","type":"int8_t","port":0,"shape":[1]}}\n'
DEFECTS = {
    "no header": (b"", "byte 0: expected a header line of JSON, found the end"),
    "not JSON": (b"hello\n", "byte 0: expected a header line of JSON, found 'hello'"),
    "not an object": (b"[1]\n", "byte 0: expected a header line of JSON, found '[1]'"),
    "deep JSON": (b"[" * 100_000 + b"\n", "expected a header line of JSON"),
    "a long number": (b'{"features":' + b"1" * 5000 + b"}\n", "expected a header line of JSON"),
    "binary": (b"\xff\xfe\n", "expected a header line of JSON"),
    "an endless header": (b" " * (2**20 + 1), "found no newline in 1048576 bytes"),
    "no features": (b"{}\n", 'expected a list "features" in the header'),
    "empty features": (b'{"features":[]}\n', 'expected a list "features" in the header'),
    "an unknown type": (HEADER.replace(b"int8_t", b"int7_t"), "'int7_t'"),
    "a type that is no text": (HEADER.replace(b'"int8_t"', b"[]"), "expected tensor specifications"),
    "a negative shape": (HEADER.replace(b"[1]", b"[-1]"), "[-1]"),
    "a huge shape": (HEADER.replace(b"[1]", b"[16000000,16000000]"), "at most 1073741824 bytes per observation"),
    "a missing key": (HEADER.replace(b'"port":0,', b""), "expected an integer as port"),
    "a name twice": (HEADER.replace(b"[{", b'[{"name":"a","type":"float","port":0,"shape":[1]},{'), "'a' twice"),
    "no context": (HEADER + b'{"observation":0}\n\x01\n', "byte 65: expected a context line"),
    "a context that is no text": (HEADER + b'{"context":1}\n', "expected a context line"),
    "another first number": (
        HEADER + b'{"context":""}\n{"observation":1}\n\x01\n',
        'byte 80: expected {"observation":0} or a context line, found \'{"observation":1}\'',
    ),
    "a number twice": (
        HEADER + b'{"context":""}\n{"observation":0}\n\x01\n{"observation":0}\n\x01\n',
        'byte 100: expected {"observation":1} or a context line',
    ),
    "a number that is true": (
        HEADER + b'{"context":""}\n{"observation":0}\n\x01\n{"observation":true}\n\x01\n',
        'byte 100: expected {"observation":1}',
    ),
    "too many bytes": (
        HEADER + b'{"context":""}\n{"observation":0}\n\x01\x02\n',
        "byte 99: expected a newline after the features for observation 0, found '\\x02'",
    ),
    "no last newline": (
        HEADER + b'{"context":""}\n{"observation":0}\n\x01',
        "byte 99: expected a newline after the features for observation 0, found the end",
    ),
    "an unknown line": (HEADER + b'{"context":""}\n{"reward":0}\n', "byte 80: expected"),
    "an outcome without score": (
        HEADER + b'{"context":""}\n{"observation":0}\n\x01\n{"outcome":0}\n\x01\n',
        'byte 100: expected {"observation":1} or a context line, found \'{"outcome":0}\'',
    ),
    "the outcome of another": (
        SCORED + b'{"context":""}\n{"observation":0}\n\x01\n{"outcome":1}\n\x01\n',
        'expected {"outcome":0}, found \'{"outcome":1}\'',
    ),
    "a second outcome": (
        SCORED + b'{"context":"f"}\n{"observation":0}\n\x01\n' + 2 * b'{"outcome":0}\n\x07\n',
        'expected {"observation":1} or a context line, found \'{"outcome":0',
    ),
    "a short score": (
        SCORED + b'{"context":""}\n{"observation":0}\n\x01\n{"outcome":0}\n',
        "expected 1 bytes of score for observation 0, found 0",
    ),
    "half an outcome line": (
        SCORED + b'{"context":""}\n{"observation":0}\n\x01\n{"outc',
        'expected {"outcome":0}, found \'{"outc\' without a newline; the compiler was probably killed',
    ),
}


@pytest.mark.parametrize(("data", "sentence"), DEFECTS.values(), ids=DEFECTS.keys())
def test_each_defect_has_its_sentence(data: bytes, sentence: str):
    with pytest.raises(TraceError) as caught:
        read_log_bytes(data, name="x")
    assert str(caught.value).startswith("trace x: byte ")
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 400
    assert read_log_bytes(data, name="x", partial=True).damage == str(caught.value)


@pytest.mark.parametrize("byte", [b"", b"\n", b"{", b"\0"])
def test_damage_in_the_middle_of_a_run_is_found_at_its_byte(byte: bytes):
    log = one_byte_log(5000, score=REWARD)
    data = render_log(log)
    for line in (b'{"observation":4321}\n', b'{"outcome":4321}\n', b'"context"'):
        at = data.index(line) + len(line) // 2
        with pytest.raises(TraceError):
            read_log_bytes(data[:at] + byte + data[at + 1 :], name="x")
    at = data.index(b'{"observation":4321}\n') + 4
    found = read_log_bytes(data[:at] + b"?" + data[at + 1 :], name="x", partial=True)
    assert found.observation_count == 4321
    assert found.damage is not None
    assert 'expected {"observation":4321} or a context line' in found.damage
    np.testing.assert_array_equal(found.columns["a"], log.columns["a"][:4321])


@pytest.mark.parametrize("count", [1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_random_damage_is_an_error_or_another_log_never_a_crash(count: int):
    rng = np.random.default_rng(1)
    originals = [render_log(log) for log in (small_log(), small_log(scored=False), one_byte_log(120, contexts=2))]
    refused = 0
    for number in range(count):
        data = bytearray(originals[number % len(originals)])
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            match rng.integers(4):
                case 0:
                    data[at] = rng.integers(256)
                case 1:
                    data[at] ^= 1 << int(rng.integers(8))
                case 2:
                    del data[at : at + int(rng.integers(1, 20))]
                case _:
                    data[at:at] = data[: int(rng.integers(1, 20))]
        found = read_log_bytes(bytes(data), name="x", partial=True)
        if found.damage is None:
            assert_equal(read_log_bytes(bytes(data), name="x"), found)
            continue
        refused += 1
        with pytest.raises(TraceError) as caught:
            read_log_bytes(bytes(data), name="x")
        assert str(caught.value) == found.damage
    assert refused > count / 2


OUTCOME = b'{"outcome":%d}\n\x07\n'
WITHOUT_OUTCOMES = {
    "any": range(6),
    "the first": [0],
    "one in the middle": [1],
    "the last of a context": [2],
    "a context's": range(3, 6),
    "the last": [5],
}


@pytest.mark.parametrize("missing", WITHOUT_OUTCOMES.values(), ids=WITHOUT_OUTCOMES.keys())
def test_missing_outcomes_are_damage(missing: list[int], tmp_path: Path):
    parts = [SCORED]
    starts: list[int] = []
    for number in range(6):
        if number % 3 == 0:
            parts.append(context_line("fg"[number // 3]))
        parts.append(b'{"observation":%d}\n%c\n' % (number % 3, number))
        starts.append(sum(map(len, parts)))
        parts.append(b"" if number in missing else OUTCOME % (number % 3))
    (tmp_path / "x.log").write_bytes(b"".join(parts))
    sentence = f'byte {starts[missing[0]]}: expected {{"outcome":{missing[0] % 3}}}, found '
    with pytest.raises(TraceError, match=re.escape(sentence)):
        read_log(tmp_path / "x.log")
    with pytest.raises(TraceError, match=re.escape(sentence)):
        list(iter_log(tmp_path / "x.log", observations_per_batch=1))
    found = read_log(tmp_path / "x.log", partial=True)
    assert found.observation_count == missing[0]
    assert found.scores is not None
    assert found.scores.tolist() == [[7]] * missing[0]


@pytest.mark.parametrize("count", [3, 3000])
def test_other_json_spacing_and_more_keys_are_read_too(count: int):
    header = {"version": 3, "features": [{"shape": [], "extra": None, "port": 0, "type": "uint8_t", "name": "a"}]}
    lines = [json.dumps(header).encode(), b'{ "context" : "f", "id": 7 }']
    for number in range(count):
        lines += [json.dumps({"observation": number}).encode(), bytes([number % 256])]
    found = read_log_bytes(b"\n".join(lines) + b"\n", name="x")
    assert found.columns["a"].tolist() == [number % 256 for number in range(count)]
    assert found.contexts == (ContextSpan(name="f", start=0, stop=count),)


def test_contexts_without_observations_are_kept():
    found = read_log_bytes(HEADER + b'{"context":""}\n{"context":"f"}\n{"context":""}\n', name="x")
    assert [(span.name, span.start, span.stop) for span in found.contexts] == [("", 0, 0), ("f", 0, 0), ("", 0, 0)]
    assert found.columns["a"].shape == (0, 1)


def test_a_header_alone_is_a_log():
    found = read_log_bytes(HEADER, name="x")
    assert found.observation_count == 0
    assert found.contexts == ()
    assert found.damage is None


def test_an_empty_file_is_a_partial_log_without_features(tmp_path: Path):
    (tmp_path / "x.log").touch()
    found = read_log(tmp_path / "x.log", partial=True)
    assert found.header.features == ()
    assert found.columns == {}
    assert found.observation_count == 0
    assert found.damage is not None
    assert "expected a header line of JSON, found the end" in found.damage


@pytest.mark.parametrize("partial", [True, False])
def test_a_missing_file_is_an_error(tmp_path: Path, partial: bool):
    with pytest.raises(TraceError, match=r"x\.log: byte 0: expected a readable file, found No such file"):
        read_log(tmp_path / "x.log", partial=partial)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"columns": {}}, r"tensor 'weights': expected float32 of shape \[5, 2, 3\], found none"),
        (
            {"columns": {"weights": np.zeros((5, 2, 3))}},
            r"tensor 'weights': expected float32 .*, found float64 of shape \[5, 2, 3\]",
        ),
        ({"scores": None}, r"tensor 'reward': expected float32 of shape \[5, 1\], found none"),
        (
            {"contexts": (ContextSpan(name="f", start=1, stop=5),)},
            "context 'f': expected a span that starts at 0, found 1 to 5",
        ),
        (
            {"columns": {**small_log().columns, "more": np.zeros(5)}},
            "expected columns and scores that the header declares, found a column 'more' that it does not; declare or",
        ),
        (
            {"header": Header(features=(FLOATS, INTEGERS))},
            "expected columns and scores that the header declares, found scores that it does not; declare or",
        ),
    ],
)
def test_a_log_that_does_not_fit_its_header_is_not_written(change: dict[str, Any], sentence: str):
    log = dataclasses.replace(small_log(), **change)
    with pytest.raises(UsageError, match=sentence):
        render_log(log)


def test_the_documented_example_is_a_log():
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    dump = text.split("<!-- training-log-example -->")[1].split("```")[1].splitlines()[1:]
    data = b"".join(bytes.fromhex(line[6:53]) for line in dump)
    found = read_log_bytes(data, name="x")
    assert found.columns["a"].tolist() == [[1, 2, 3], [10, -1, 123]]
    assert found.scores is not None
    assert found.scores.tolist() == [[5], [7]]
    assert render_log(found) == data


def header_line(*, score: int = 1) -> bytes:
    return Header(
        features=(TensorSpec(name="a", type="int8_t", shape=(1,)),),
        score=TensorSpec(name="s", type="double", shape=(score,)),
    ).to_line()


UNSCORED = (
    header_line(score=1_000_000) + b'{"context":""}\n' + b"".join(b'{"observation":%d}\n1\n' % n for n in range(99))
)


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    ("data", "found"),
    [
        (UNSCORED, r'expected \{"outcome":0\}, found .*; the log is damaged'),
        (header_line() + b'{"context":"a"}\n' * 1001, "expected at most 1000 contexts, found more; the log is damaged"),
    ],
    ids=["scores", "contexts"],
)
def test_what_is_small_in_a_file_and_large_in_memory_is_refused(
    tmp_path: Path, data: bytes, found: str, batches: bool, monkeypatch: pytest.MonkeyPatch
):
    # Reading a million takes half a minute.
    monkeypatch.setattr(mlgokit.traces.log, "MOST_CONTEXTS", 1000)
    (tmp_path / "a.log").write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=found):
            list(iter_log(tmp_path / "a.log", observations_per_batch=2000)) if batches else read_log(tmp_path / "a.log")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_partial_log_ends_before_the_context_that_is_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mlgokit.traces.log, "MOST_CONTEXTS", 3)
    log = one_byte_log(50, contexts=5)
    (tmp_path / "x.log").write_bytes(render_log(log))
    found = read_log(tmp_path / "x.log", partial=True)
    assert found.damage is not None
    assert "expected at most 3 contexts, found more" in found.damage
    assert found.contexts == log.contexts[:3]
    assert found.columns["a"].tolist() == list(range(30))


def test_a_large_score_after_each_observation_is_read():
    log = one_byte_log(3, score=TensorSpec(name="s", type="double", shape=(1,)))
    wide = TensorSpec(name="s", type="double", shape=(1000,))
    scores = np.arange(3000.0).reshape(3, 1000)
    log = dataclasses.replace(log, header=dataclasses.replace(log.header, score=wide), scores=scores)
    assert_equal(read_log_bytes(render_log(log), name="wide"), log)
