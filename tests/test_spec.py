import re
from typing import Any

import numpy as np
import pytest

from mlgokit.errors import InputError
from mlgokit.spec import DTYPES, TensorSpec

WHOLE: dict[str, Any] = {"name": "node_count", "type": "int64_t", "port": 0, "shape": [1]}


@pytest.mark.parametrize("element", DTYPES)
def test_every_type_of_llvm_goes_to_json_and_back(element: str):
    spec = TensorSpec(name="a", type=element, shape=(2, 3), port=4)

    assert spec.to_json() == {"name": "a", "type": element, "port": 4, "shape": [2, 3]}
    assert list(spec.to_json()) == ["name", "type", "port", "shape"]
    assert TensorSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("element", "kind", "size"),
    [("float", "f", 4), ("double", "f", 8), ("int8_t", "i", 1), ("uint16_t", "u", 2), ("uint64_t", "u", 8)],
)
def test_types_have_the_layout_of_c(element: str, kind: str, size: int):
    spec = TensorSpec(name="a", type=element, shape=(2, 5))

    assert (spec.dtype.kind, spec.dtype.itemsize) == (kind, size)
    assert spec.dtype.isnative
    assert spec.size_bytes == 10 * size == np.zeros(spec.shape, spec.dtype).nbytes


def test_a_tensor_without_dimensions_is_one_number():
    assert TensorSpec.from_json({**WHOLE, "shape": []}).size_bytes == 8


def test_other_keys_do_not_matter():
    assert TensorSpec.from_json({**WHOLE, "comment": None}) == TensorSpec(name="node_count", type="int64_t", shape=(1,))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([WHOLE], "tensor specification: expected a JSON object, found list"),
        (None, "tensor specification: expected a JSON object, found NoneType"),
        ({}, "tensor specification: expected a string as name, found None"),
        ({**WHOLE, "name": 3}, "tensor specification: expected a string as name, found 3"),
        ({**WHOLE, "type": "long"}, "tensor 'node_count': expected one of float, double, int8_t, "),
        ({**WHOLE, "type": "long"}, "uint64_t as type, found 'long'"),
        ({**WHOLE, "type": ["int64_t"]}, "as type, found ['int64_t']"),
        ({**WHOLE, "type": {}}, "as type, found {}"),
        ({**WHOLE, "type": None}, "as type, found None"),
        (
            {**WHOLE, "shape": 1},
            "'node_count': expected a list of at most 8 positive integers as shape, found 1",
        ),
        ({**WHOLE, "shape": [0]}, "as shape, found [0]"),
        ({**WHOLE, "shape": [-1]}, "as shape, found [-1]"),
        ({**WHOLE, "shape": [1.0]}, "as shape, found [1.0]"),
        ({**WHOLE, "shape": [True]}, "as shape, found [True]"),
        ({**WHOLE, "shape": [[1]]}, "as shape, found [[1]]"),
        ({**WHOLE, "shape": [2**24]}, "as shape, found [16777216]"),
        ({**WHOLE, "shape": [1] * 9}, "as shape, found [1, 1, 1, 1, 1, 1, 1, 1, 1]"),
        ({**WHOLE, "shape": None}, "as shape, found None"),
        ({**WHOLE, "port": "0"}, "tensor 'node_count': expected an integer as port, found '0'"),
        ({**WHOLE, "port": False}, "expected an integer as port, found False"),
        ({**WHOLE, "port": None}, "expected an integer as port, found None"),
    ],
)
def test_an_impossible_value_is_named(value: object, message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        TensorSpec.from_json(value)


@pytest.mark.parametrize("key", WHOLE)
def test_a_missing_key_is_named(key: str):
    with pytest.raises(InputError, match=f"as {key}, found None"):
        TensorSpec.from_json({name: value for name, value in WHOLE.items() if name != key})
