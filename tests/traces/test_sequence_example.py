from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlgokit.errors import TraceError, UsageError
from mlgokit.traces.sequence_example import decode_sequence, encode_sequence

# Made by protobuf's own package 7.36 from example.proto, with deterministic serialization.
GOLDEN = bytes.fromhex(
    "0a0e0a0c0a036b657912050a030a016612440a270a016112220a0f1a0d0a0b01ffffffffffffffffff010a0f1a0d0a0bac02ffffffffffffffff7f"
    "0a190a016212140a0812060a040000003f0a0812060a04000000c0"
)
COLUMNS = {"a": np.array([[1, -1], [300, 2**63 - 1]]), "b": np.array([[0.5], [-2]])}


def field(number: int, payload: bytes) -> bytes:
    assert len(payload) < 128
    return bytes([number << 3 | 2, len(payload)]) + payload


def message(name: bytes, *features: bytes) -> bytes:
    """A sequence with one feature list."""
    return field(2, field(1, field(1, name) + field(2, b"".join(field(1, feature) for feature in features))))


def columns_of(data: bytes) -> dict[str, Any]:
    return {name: column.tolist() for name, column in decode_sequence(data, path="x").columns.items()}


def test_the_bytes_are_protobufs():
    assert encode_sequence(COLUMNS, labels={"key": "f"}) == GOLDEN
    found = decode_sequence(GOLDEN, path="x")
    assert found.labels == {"key": "f"}
    assert {name: column.tolist() for name, column in found.columns.items()} == {
        "a": [[1, -1], [300, 2**63 - 1]],
        "b": [[0.5], [-2.0]],
    }
    assert [column.dtype for column in found.columns.values()] == [np.int64, np.float32]


@settings(database=None, derandomize=True, deadline=None, max_examples=80)
@given(st.integers(0, 12), st.sampled_from([1, 2, 33, 150]), st.integers(0, 63), st.integers(0, 2**32))
def test_any_columns_round_trip(count: int, width: int, shift: int, seed: int):
    rng = np.random.default_rng(seed)
    columns = {
        "integers": rng.integers(-(2**63), 2**63 - 1, (count, width)) >> shift,
        "mixed": rng.integers(0, 2**62, (count, width)) >> rng.integers(0, 62, (count, width)),
        "bits": rng.integers(0, 2, (count, 1)),
        "floats": rng.standard_normal((count, width)).astype(np.float32),
    }
    found = decode_sequence(encode_sequence(columns), path="x").columns
    if count == 0:
        assert found == {}
        return
    assert list(found) == sorted(columns)
    for name, column in columns.items():
        np.testing.assert_array_equal(found[name], column)


def test_unpacked_lists_are_read_too():
    integers = message(b"a", field(3, b"\x08\x01\x08\xac\x02"), field(3, b"\x08\x03\x08\x04"))
    floats = message(b"b", field(2, b"\x0d\0\0\x80\x3f"), field(2, field(1, b"\0\0\0\x40")))
    assert columns_of(integers + floats) == {"a": [[1, 300], [3, 4]], "b": [[1.0], [2.0]]}


def test_values_in_several_chunks_belong_to_one_step():
    assert columns_of(message(b"a", field(3, field(1, b"\x01\x02") + b"\x08\x03"))) == {"a": [[1, 2, 3]]}


def test_unknown_fields_are_passed_over():
    unknown = b"\x48\x05" + b"\x51" + b"\0" * 8 + b"\x55" + b"\0" * 4 + field(12, b"x")
    inner = message(b"a", field(3, field(1, b"\x01")) + unknown)
    assert columns_of(unknown + inner + unknown) == {"a": [[1]]}


def test_the_order_in_a_map_entry_does_not_matter():
    entry = field(2, field(1, field(3, field(1, b"\x07")))) + field(1, b"a")
    assert columns_of(field(2, field(1, entry))) == {"a": [[7]]}


@pytest.mark.parametrize("kind", [2, 3])
def test_steps_that_hide_their_number_of_values_are_counted(kind: int):
    values = {2: [b"\0\0\0\x41", b"\0\0\0\x42"], 3: [b"\x07", b"\x08"]}[kind]
    empty, both = field(kind, field(1, b"")), field(kind, field(1, values[0]) + field(1, values[1]))
    for steps in ((empty, both), (both, empty), (b"", both), (both, b"")):
        with pytest.raises(TraceError, match="expected as many values in each step of feature 'a', found 0 and 2"):
            decode_sequence(message(b"a", *steps), path="x")
    assert columns_of(message(b"a", both, field(kind, field(1, b"".join(values))))) == columns_of(
        message(b"a", both, both)
    )


def test_lists_of_texts_and_of_nothing_are_left_out():
    texts = message(b"a", field(1, field(1, b"text")))
    assert columns_of(texts + message(b"b", b"") + message(b"c")) == {}


DAMAGED = "; the record is damaged or no SequenceExample: write it again"
MESSAGE = "expected a SequenceExample in protobuf's encoding, found other bytes" + DAMAGED
FEATURE = "expected the feature list 'a' in protobuf's encoding, found other bytes" + DAMAGED
BROKEN = {
    "the end in a length": (b"\x12", MESSAGE),
    "a length past the end": (b"\x12\x05\0", MESSAGE),
    "a number of eleven bytes": (b"\x12" + b"\xff" * 11, MESSAGE),
    "a group without end": (b"\x13", MESSAGE),
    "field zero": (b"\x00\x01", MESSAGE),
    "half a fixed field": (b"\x55\x01", MESSAGE),
    "a name that is no text": (
        message(b"\xff", field(3, field(1, b"\x01"))),
        "expected the name of a feature list in UTF-8, found b'\\xff'; the record",
    ),
    "two kinds": (
        message(b"a", field(3, field(1, b"\x01")), field(2, field(1, b"\0\0\0\0"))),
        "expected one kind of values in feature 'a', found float and int64",
    ),
    "steps of different length": (
        message(b"a", field(3, field(1, b"\x01")), field(3, field(1, b"\x01\x02"))),
        "expected as many values in each step of feature 'a', found 1 and 2",
    ),
    "a step without values": (
        message(b"a", field(3, field(1, b"\x01")), b""),
        "expected as many values in each step of feature 'a', found 0 and 1",
    ),
    "a number cut by its step": (
        message(b"a", field(3, field(1, b"\x81")), field(3, field(1, b"\x01"))),
        FEATURE,
    ),
    "a number without end": (message(b"a", field(3, field(1, b"\x81\x82"))), FEATURE),
    "a long number": (message(b"a", field(3, field(1, b"\x81" * 11 + b"\x01"))), FEATURE),
    "half a float": (message(b"a", field(2, field(1, b"\0\0\0"))), FEATURE),
    "a float among integers": (
        message(b"a", field(3, b"\x0d\0\0\0\0")),
        "expected as many values in each step of feature 'a', found 0",
    ),
    "an unpacked float past the end": (message(b"a", field(2, b"\x0d\0\0")), FEATURE),
}


@pytest.mark.parametrize(("data", "sentence"), BROKEN.values(), ids=BROKEN.keys())
def test_each_defect_has_its_sentence(data: bytes, sentence: str):
    with pytest.raises(TraceError) as caught:
        decode_sequence(data, path="x")
    assert str(caught.value).startswith("training set x: byte ")
    assert sentence in str(caught.value)


def test_the_offset_is_that_of_the_file():
    with pytest.raises(TraceError, match="byte 1000: expected") as caught:
        decode_sequence(b"\x12", path="x", offset=1000)
    assert caught.value.offset == 1000


def test_random_damage_is_an_error_or_another_message_never_a_crash():
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(4000):
        data = bytearray(GOLDEN)
        for _ in range(int(rng.integers(1, 3))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
        try:
            decode_sequence(bytes(data[: int(rng.integers(len(data) // 2, len(data) + 1))]), path="x")
        except TraceError:
            refused += 1
    assert refused > 2000


@pytest.mark.parametrize("column", [np.array([[1]]), np.array([["a"], ["b"]]), np.array([[True], [False]])])
def test_columns_that_do_not_fit_are_refused(column: np.ndarray):
    with pytest.raises(UsageError, match="feature 'b': expected 2 steps of integers or floats, found"):
        encode_sequence({"a": np.array([[1], [2]]), "b": column})
