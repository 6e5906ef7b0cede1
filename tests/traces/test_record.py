import numpy as np
import pytest

from mlgokit.errors import TraceError
from mlgokit.spec import TensorSpec
from mlgokit.traces.record import (
    ContextItem,
    Cursor,
    Header,
    ObservationItem,
    context_line,
    feature_decoder,
    read_item,
)

HEADER = Header(
    features=(
        TensorSpec(name="a", type="int8_t", shape=(1,)),
        TensorSpec(name="b", type="int64_t", shape=(2, 1)),
    ),
    advice=TensorSpec(name="decision", type="float", shape=(1,)),
)
STREAM = (
    HEADER.to_line()
    + context_line("f")
    + b'{"observation":0}\n'
    + bytes(range(17))
    + b"\n"
    + b'{"observation": 1}\n'
    + b"\n" * 18
)


def test_a_stream_that_comes_byte_by_byte_gives_each_item_as_soon_as_it_is_complete():
    cursor = Cursor(name="x")
    data = bytearray()
    items: list[tuple[int, object]] = []
    for byte in STREAM:
        data.append(byte)
        while (item := read_item(data, cursor, ended=False)) is not None:
            items.append((len(data), item))
    first = STREAM.index(b'{"observation":0}\n') + 18
    second = STREAM.index(b'{"observation": 1}\n') + 19
    assert items == [
        (len(HEADER.to_line()), HEADER),
        (first - 18, ContextItem("f")),
        (first + 18, ObservationItem("f", 0, first, None)),
        (second + 18, ObservationItem("f", 1, second, None)),
    ]
    assert cursor.position == len(STREAM)


def test_a_stream_with_scores_waits_for_the_outcome():
    header = Header(features=HEADER.features[:1], score=TensorSpec(name="s", type="int8_t", shape=()))
    begin = header.to_line() + context_line("") + b'{"observation":0}\n\x01\n'
    cursor = Cursor(name="x")
    for _ in range(2):
        assert read_item(begin, cursor, ended=False) is not None
    assert read_item(begin, cursor, ended=False) is None
    assert read_item(begin + b'{"outcome":0}', cursor, ended=False) is None
    item = read_item(begin + b'{"outcome":0}\n\x05\n', cursor, ended=False)
    assert item == ObservationItem("", 0, len(begin) - 2, len(begin) + 14)


def test_the_cursor_stays_where_an_item_is_damaged():
    data = HEADER.to_line() + b"nonsense\n"
    cursor = Cursor(name="x")
    assert read_item(data, cursor, ended=False) == HEADER
    position = cursor.position
    with pytest.raises(TraceError, match=f"byte {position}: expected a context line, found 'nonsense'"):
        read_item(data, cursor, ended=False)
    assert cursor.position == position


def test_features_keep_their_type_and_shape():
    values = feature_decoder(HEADER)(np.arange(17, dtype=np.uint8).tobytes())
    assert list(values) == ["a", "b"]
    assert (values["a"].dtype, values["a"].shape) == (np.int8, (1,))
    assert (values["b"].dtype, values["b"].shape) == (np.int64, (2, 1))
    assert values["b"][0, 0] == 0x0807060504030201


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_features_of_one_kind_keep_their_shape(shape: tuple[int, ...]):
    header = Header(features=tuple(TensorSpec(name=name, type="int8_t", shape=shape) for name in "abc"))
    values = feature_decoder(header)(bytes(range(header.features_bytes)))
    assert list(values) == ["a", "b", "c"]
    expected = np.arange(header.features_bytes, dtype=np.int8).reshape(3, *shape)
    for value, row in zip(values.values(), expected, strict=True):
        assert isinstance(value, np.ndarray)
        assert value.shape == shape
        np.testing.assert_array_equal(value, row)
