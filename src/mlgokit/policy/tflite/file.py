"""The file of a TFLite model: a flatbuffer, read and written with the schema's package (extra ``tflite``).

Files may come from strangers: every length is checked against the size of the file and against what a policy can need.
"""

import importlib
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from mlgokit.errors import InputError, ToolError
from mlgokit.policy.tflite.graph import Array, Graph, Operator, Tensor

LARGEST_FILE = 1 << 28
MOST_TENSORS = 1 << 14
MOST_ELEMENTS = 1 << 20
"""Maximum elements of one tensor. The largest in google/ml-compiler-opt's policies has 9,999."""
DEEPEST_SHAPE = 8
_SCHEMA_VERSION = 3
_IDENTIFIER = b"TFL3"
_SIGNATURE = "action"
"""Signature of the subgraph that decides. Without signatures the first subgraph decides, which LLVM always takes."""

DTYPES = {
    "FLOAT32": np.dtype("<f4"),
    "FLOAT64": np.dtype("<f8"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "BOOL": np.dtype("?"),
}
"""Element types that a policy can have, by the schema's names."""

OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ADD": ("AddOptions", ("FusedActivationFunction",)),
    "ARG_MAX": ("ArgMaxOptions", ("OutputType",)),
    "BUCKETIZE": ("BucketizeOptions", ("Boundaries",)),
    "CAST": ("CastOptions", ("InDataType", "OutDataType")),
    "CONCATENATION": ("ConcatenationOptions", ("Axis", "FusedActivationFunction")),
    "DIV": ("DivOptions", ("FusedActivationFunction",)),
    "EQUAL": ("EqualOptions", ()),
    "EXPAND_DIMS": ("ExpandDimsOptions", ()),
    "FULLY_CONNECTED": ("FullyConnectedOptions", ("FusedActivationFunction", "KeepNumDims", "WeightsFormat")),
    "GATHER": ("GatherOptions", ("Axis", "BatchDims")),
    "MEAN": ("ReducerOptions", ("KeepDims",)),
    "MUL": ("MulOptions", ("FusedActivationFunction",)),
    "MULTINOMIAL": ("RandomOptions", ("Seed", "Seed2")),
    "PACK": ("PackOptions", ("ValuesCount", "Axis")),
    "RESHAPE": ("ReshapeOptions", ("NewShape",)),
    "SELECT_V2": ("SelectV2Options", ()),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "SQUEEZE": ("SqueezeOptions", ("SqueezeDims",)),
    "SUB": ("SubOptions", ("FusedActivationFunction",)),
}
"""The options of an operator: their table in the schema, and the fields that are read and written."""
_VECTORS = {"Boundaries": np.dtype("<f4"), "NewShape": np.dtype("<i4"), "SqueezeDims": np.dtype("<i4")}
_DECODING_ERRORS = (struct.error, ValueError, IndexError, TypeError, KeyError, OverflowError, AttributeError)


def read_graph(data: bytes, origin: str) -> Graph:
    """Parse the file of a TFLite model.

    Args:
        data: bytes of the file.
        origin: name of the model in error messages.

    Raises:
        InputError: the bytes are no TFLite model, are damaged, or exceed what a policy can need.
        ToolError: the extra ``tflite`` is not installed.
    """
    schema = _schema()
    if len(data) > LARGEST_FILE:
        raise InputError(
            f"model {origin}: expected at most {LARGEST_FILE} bytes, found {len(data)}; name the model of a policy"
        )
    if data[4:8] != _IDENTIFIER:
        raise InputError(
            f"model {origin}: expected a TFLite model, with {_IDENTIFIER.decode()} at byte 4, found "
            f"{data[4:8]!r}; name the file model.tflite of a policy"
        )
    try:
        return _read(schema, data)
    except _DECODING_ERRORS as error:
        raise InputError(
            f"model {origin}: expected a whole TFLite model, found a damaged or unusual one ({error}); "
            "fetch or convert it again"
        ) from error


def graph_bytes(graph: Graph) -> bytes:
    """Encode ``graph`` as a file; the same graph always gives the same bytes, and equal constants are stored once.

    Raises:
        ToolError: the extra ``tflite`` is not installed.
    """
    schema = _schema()
    builder: Any = importlib.import_module("flatbuffers").Builder(1 << 16)
    contents, buffer_of = _contents(graph)
    buffers = [_table(schema, builder, "Buffer", {"Data": _vector(builder, content)}) for content in contents]
    tensors = [
        _tensor(schema, builder, tensor, buffer) for tensor, buffer in zip(graph.tensors, buffer_of, strict=True)
    ]
    kinds = sorted({operator.kind for operator in graph.operators})
    codes = [_code(schema, builder, kind) for kind in kinds]
    operators = [_operator(schema, builder, operator, kinds.index(operator.kind)) for operator in graph.operators]
    subgraph = _table(
        schema,
        builder,
        "SubGraph",
        {
            "Tensors": _offsets(builder, tensors),
            "Inputs": _vector(builder, np.array(graph.inputs, "<i4")),
            "Outputs": _vector(builder, np.array(graph.outputs, "<i4")),
            "Operators": _offsets(builder, operators),
            "Name": builder.CreateString("main"),
        },
    )
    fields = {
        "OperatorCodes": _offsets(builder, codes),
        "Subgraphs": _offsets(builder, [subgraph]),
        "Description": builder.CreateString("mlgokit"),
        "Buffers": _offsets(builder, buffers),
    }
    model = _table(schema, builder, "Model", {"Version": _SCHEMA_VERSION, **fields})
    builder.Finish(model, file_identifier=_IDENTIFIER)
    return bytes(builder.Output())


def _schema() -> Any:
    """Import the package with TFLite's schema."""
    try:
        return importlib.import_module("tflite")
    except ImportError as error:
        raise ToolError(
            "TFLite: expected the Python packages tflite and flatbuffers, found none; install the extra "
            "mlgokit[tflite], or both with `pip install tflite flatbuffers`"
        ) from error


# --- Reading ----------------------------------------------------------------------------------------------------------


class _Budget:
    """Bounds the elements that are read from a file, since a malicious one may refer to the same bytes many times."""

    def __init__(self, elements: int) -> None:
        self.left = elements

    def spend(self, count: int) -> int:
        """Subtract ``count`` elements from the budget and return ``count``; raise a ValueError if there are fewer."""
        self.left -= count
        if count < 0 or self.left < 0:
            raise ValueError("a list longer than the file")
        return count


def _read(schema: Any, data: bytes) -> Graph:
    """Decode the subgraph that decides; errors are the caller's to report."""
    budget = _Budget(2 * len(data))
    model: Any = schema.Model.GetRootAs(data, 0)
    if model.Version() != _SCHEMA_VERSION:
        raise ValueError(f"expected version {_SCHEMA_VERSION} of the schema, found {model.Version()}")
    subgraph = model.Subgraphs(_find_deciding_subgraph(model, budget))
    count = budget.spend(subgraph.TensorsLength())
    if count > MOST_TENSORS:
        raise ValueError(f"expected at most {MOST_TENSORS} tensors, found {count}")
    buffers = budget.spend(model.BuffersLength())
    tensors = tuple(_read_tensor(schema, model, buffers, subgraph.Tensors(index), budget) for index in range(count))
    names: dict[int, str] = {
        number: name for name, number in cast("dict[str, Any]", vars(schema.BuiltinOperator)).items()
    }
    kinds: list[str] = []
    for index in range(budget.spend(model.OperatorCodesLength())):
        code = model.OperatorCodes(index)
        # Numbers from 127 on have a field of their own, which older converters leave at 0.
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        text = _text(code.CustomCode(), budget)
        kinds.append(
            f"CUSTOM {text[:40]!r}"
            if number == schema.BuiltinOperator.CUSTOM
            else names.get(number, f"number {number}")
        )
    operators: list[Operator] = []
    for index in range(budget.spend(subgraph.OperatorsLength())):
        read = subgraph.Operators(index)
        kind: str = kinds[int(read.OpcodeIndex())]
        operators.append(
            Operator(
                kind=kind,
                inputs=_tensor_numbers(read, "Inputs", budget, count, least=-1),
                outputs=_tensor_numbers(read, "Outputs", budget, count),
                options=_read_options(schema, kind, read, budget),
            )
        )
    return Graph(
        tensors=tensors,
        operators=tuple(operators),
        inputs=_tensor_numbers(subgraph, "Inputs", budget, count),
        outputs=_tensor_numbers(subgraph, "Outputs", budget, count),
    )


def _text(encoded: bytes | None, budget: _Budget) -> str:
    """Decode a string of the file, which others may refer to, too."""
    budget.spend(len(encoded or b""))
    return (encoded or b"").decode("utf-8", "replace")


def _find_deciding_subgraph(model: Any, budget: _Budget) -> int:
    """Find the number of the subgraph that decides, by its signature.

    Policies that google/ml-compiler-opt saved have other subgraphs too, such as the training step.
    """
    subgraphs = budget.spend(model.SubgraphsLength())
    chosen = 0
    for index in range(budget.spend(model.SignatureDefsLength())):
        signature = model.SignatureDefs(index)
        if _text(signature.SignatureKey(), budget) == _SIGNATURE:
            chosen = signature.SubgraphIndex()
            break
    if chosen >= subgraphs:
        raise ValueError(f"expected the decision in subgraph {chosen}, found {subgraphs} subgraphs")
    return chosen


def _read_tensor(schema: Any, model: Any, buffers: int, tensor: Any, budget: _Budget) -> Tensor:
    """Read a tensor, and its value if it is a constant."""
    shape = tuple(int(size) for size in _list(tensor, "Shape", budget))
    name = _text(tensor.Name(), budget)
    known = [kind for kind in DTYPES if getattr(schema.TensorType, kind) == tensor.Type()]
    if not known:
        raise ValueError(f"tensor {name[:80]!r}: expected a type of {', '.join(DTYPES)}, found number {tensor.Type()}")
    dtype = DTYPES[known[0]]
    if len(shape) > DEEPEST_SHAPE or any(size < 0 for size in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise ValueError(
            f"tensor {name[:80]!r}: expected at most {DEEPEST_SHAPE} dimensions and {MOST_ELEMENTS} elements, found "
            f"the shape {shape[:DEEPEST_SHAPE]}"
        )
    if not tensor.Buffer() < buffers:
        raise ValueError(f"tensor {name[:80]!r}: expected one of {buffers} buffers, found number {tensor.Buffer()}")
    buffer = model.Buffers(tensor.Buffer())
    if not buffer.DataLength():
        return Tensor(name=name, dtype=dtype, shape=shape)
    content = np.asarray(buffer.DataAsNumpy(), np.uint8)
    if content.size != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"tensor {name[:80]!r}: {content.size} bytes for the shape {shape} of {dtype}")
    return Tensor(name=name, dtype=dtype, shape=shape, data=content.view(dtype).reshape(shape))


def _list(table: Any, name: str, budget: _Budget) -> Array:
    """Read the vector field ``name`` of a table as an array; empty if the field is absent."""
    if not budget.spend(getattr(table, f"{name}Length")()):
        return np.empty(0, np.int32)
    return np.asarray(getattr(table, f"{name}AsNumpy")())


def _tensor_numbers(table: Any, name: str, budget: _Budget, count: int, *, least: int = 0) -> tuple[int, ...]:
    """Read the vector field ``name`` as numbers of tensors, from ``least`` to below ``count``."""
    numbers = tuple(int(number) for number in _list(table, name, budget))
    if any(not least <= number < count for number in numbers):
        raise ValueError(f"{name}: expected tensor numbers below {count}, found {numbers[:8]}")
    return numbers


def _read_options(schema: Any, kind: str, operator: Any, budget: _Budget) -> dict[str, Any]:
    """Read the options of an operator, as far as :data:`OPTIONS` lists them."""
    if kind not in OPTIONS:
        return {}
    name, fields = OPTIONS[kind]
    table = operator.BuiltinOptions()
    if table is None:
        return {}
    if operator.BuiltinOptionsType() != getattr(schema.BuiltinOptions, name):
        raise ValueError(f"{kind}: expected options of the type {name}, found another type")
    options = getattr(schema, name)()
    options.Init(table.Bytes, table.Pos)
    return {
        field: _list(options, field, budget) if field in _VECTORS else getattr(options, field)() for field in fields
    }


# --- Writing ----------------------------------------------------------------------------------------------------------


def _contents(graph: Graph) -> tuple[list[Array], list[int]]:
    """Collect the different buffers of a graph, the first empty by TFLite's rule, and each tensor's buffer number."""
    known: dict[bytes, int] = {b"": 0}
    numbers: list[int] = []
    for tensor in graph.tensors:
        content = b"" if tensor.data is None else np.ascontiguousarray(tensor.data, tensor.dtype).tobytes()
        numbers.append(known.setdefault(content, len(known)))
    return [np.frombuffer(content, np.uint8) for content in known], numbers


def _tensor(schema: Any, builder: Any, tensor: Tensor, buffer: int) -> int:
    """Write a tensor; returns its offset."""
    kind = next(name for name, dtype in DTYPES.items() if dtype == tensor.dtype)
    fields: dict[str, Any] = {
        "Shape": _vector(builder, np.array(tensor.shape, "<i4")),
        "Type": getattr(schema.TensorType, kind),
        "Buffer": buffer,
        "Name": builder.CreateString(tensor.name),
    }
    return _table(schema, builder, "Tensor", fields)


def _code(schema: Any, builder: Any, kind: str) -> int:
    """Write an operator code; returns its offset."""
    number = getattr(schema.BuiltinOperator, kind)
    fields = {"DeprecatedBuiltinCode": min(number, 127), "Version": 1, "BuiltinCode": number}
    return _table(schema, builder, "OperatorCode", fields)


def _operator(schema: Any, builder: Any, operator: Operator, code: int) -> int:
    """Write an operator; returns its offset."""
    fields: dict[str, Any] = {
        "OpcodeIndex": code,
        "Inputs": _vector(builder, np.array(operator.inputs, "<i4")),
        "Outputs": _vector(builder, np.array(operator.outputs, "<i4")),
    }
    if operator.kind in OPTIONS:
        name, known = OPTIONS[operator.kind]
        given: Mapping[str, Any] = {
            field: _vector(builder, np.asarray(value, _VECTORS[field])) if field in _VECTORS else value
            for field, value in operator.options.items()
            if field in known
        }
        fields |= {
            "BuiltinOptionsType": getattr(schema.BuiltinOptions, name),
            "BuiltinOptions": _table(schema, builder, name, given),
        }
    return _table(schema, builder, "Operator", fields)


def _table(schema: Any, builder: Any, name: str, fields: Mapping[str, Any]) -> int:
    """Write a flatbuffer table with these fields; returns its offset."""
    start: Callable[[Any], None] = getattr(schema, f"{name}Start")
    start(builder)
    for field, value in fields.items():
        getattr(schema, f"{name}Add{field}")(builder, value)
    return getattr(schema, f"{name}End")(builder)


def _vector(builder: Any, values: Array) -> int:
    """Write a vector of numbers; returns its offset."""
    if not values.size:
        builder.StartVector(max(1, values.itemsize), 0, values.itemsize)
        return builder.EndVector()
    # TFLite reads tensors in place, so that their bytes must be aligned as it wants.
    if values.dtype == np.uint8:
        builder.Prep(16, values.size)
    return builder.CreateNumpyVector(values)


def _offsets(builder: Any, offsets: Sequence[int]) -> int:
    """Write a vector of references to tables; returns its offset."""
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()
