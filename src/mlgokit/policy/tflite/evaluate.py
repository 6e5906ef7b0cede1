"""Evaluates TFLite models in numpy, without TFLite, for the operators that policies have.

Dense layers are summed in another order than TFLite's, so their last bits may differ.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlgokit.errors import InputError
from mlgokit.policy.tflite.file import MOST_ELEMENTS
from mlgokit.policy.tflite.graph import Array, Graph, Operator

Kernel = Callable[[Operator, Sequence[Array]], Array]
MOST_WORK = 1 << 22
"""Maximum elements of the outputs of all operators together."""
UNIFORM_DRAWS = frozenset(("RANDOM_UNIFORM", "CUSTOM 'RandomUniformInt'"))
"""Operators by which a policy draws whether to explore, and a random decision. TFLite itself has only the first."""
CHOICES = ("SELECT", "SELECT_V2")


def evaluate(graph: Graph, values: Mapping[str, Array], *, origin: str = "model") -> dict[str, Array]:
    """Compute the outputs of ``graph``, by name, without exploration.

    ``MULTINOMIAL``, which draws a decision by logits, takes the largest logit. Where a random number selects between a
    random and a computed decision, as in an epsilon-greedy policy, the computed one is taken, which is the likeliest.
    Outputs that depend on random numbers in other ways are left out.

    Args:
        graph: the model.
        values: inputs by name, such as ``action_node_count:0``; missing inputs are 0.
        origin: name of the model in error messages.

    Raises:
        InputError: an operator is not supported, or does not fit its inputs.
    """
    known_values: dict[int, Array] = {}
    for index in graph.inputs:
        tensor = graph.tensors[index]
        given = values.get(tensor.name)
        known_values[index] = (
            np.zeros(tensor.shape, tensor.dtype)
            if given is None
            else np.asarray(given, tensor.dtype).reshape(tensor.shape)
        )
    left, drawn = MOST_WORK, set[int]()
    with np.errstate(all="ignore"):
        for operator in graph.operators:
            if operator.kind in UNIFORM_DRAWS or not drawn.isdisjoint(operator.inputs):
                certain = [index for index in operator.inputs[1:] if index >= 0 and index not in drawn]
                if operator.kind in CHOICES and len(certain) == len(operator.outputs) == 1:
                    known_values[operator.outputs[0]] = operand(graph, certain[0], known_values, origin)
                else:
                    drawn.update(operator.outputs)
                continue
            if operator.kind not in KERNELS:
                raise unknown_operator_error(operator.kind, KERNELS, origin)
            read = operands(graph, operator, known_values, origin)
            value = report_shape_errors(KERNELS[operator.kind], origin)(operator, read)
            left -= value.size
            if left < 0:
                raise misfit_error(operator, origin, f"more than {MOST_WORK} computed elements in the model")
            (output,) = operator.outputs
            known_values[output] = value.astype(graph.tensors[output].dtype, copy=False)
    known = (index for index in graph.outputs if index not in drawn)
    return {graph.tensors[index].name: operand(graph, index, known_values, origin) for index in known}


def operands(graph: Graph, operator: Operator, values: Mapping[int, Array], origin: str) -> list[Array]:
    """Look up the values of an operator's inputs.

    Raises:
        InputError: an input has no value yet, or the operator does not have exactly one output.
    """
    if len(operator.outputs) != 1:
        raise misfit_error(operator, origin, f"{len(operator.outputs)} outputs")
    return [operand(graph, index, values, origin) for index in operator.inputs if index >= 0]


def operand(graph: Graph, index: int, values: Mapping[int, Array], origin: str) -> Array:
    """Look up the value of a tensor: a constant, or one that was computed before.

    Raises:
        InputError: the tensor has no value yet.
    """
    tensor = graph.tensors[index]
    value = values.get(index, tensor.data)
    if value is None:
        raise InputError(
            f"model {origin}: tensor {tensor.name[:80]!r}: expected a value before an operator reads it, found none; "
            "fetch or convert it again"
        )
    return value


def unknown_operator_error(kind: str, known: Mapping[str, Any], origin: str) -> InputError:
    """Make the error for an operator that is not among ``known``."""
    return InputError(
        f"model {origin}: operator {kind}: expected one of {', '.join(sorted(known))}, found another; "
        "convert a policy that is made of those"
    )


def misfit_error(operator: Operator, origin: str, what: object) -> InputError:
    """Make the error for an operator whose inputs or options do not fit it; ``what`` says what was found."""
    return InputError(
        f"model {origin}: operator {operator.kind} with output {operator.outputs[:1]}: expected inputs and options "
        f"that fit it, found {what}; see docs/how-to/tflite.md for what can be read"
    )


def report_shape_errors(kernel: Kernel, origin: str) -> Kernel:
    """Wrap ``kernel`` so that its exceptions about shapes and types become errors that name the model."""

    def call(operator: Operator, inputs: Sequence[Array]) -> Array:
        try:
            return kernel(operator, inputs)
        except (ValueError, IndexError, TypeError, OverflowError, MemoryError, KeyError) as error:
            raise misfit_error(operator, origin, error) from error

    return call


# --- Shapes: these move elements of any kind --------------------------------------------------------------------------


def check_size(shape: Sequence[int]) -> tuple[int, ...]:
    """Return ``shape`` if it has at most :data:`MOST_ELEMENTS` elements.

    Raises:
        ValueError: it has more, or a negative dimension.
    """
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes) or math.prod(sizes) > MOST_ELEMENTS:
        raise ValueError(f"shape {sizes[:8]}, which is negative or has more than {MOST_ELEMENTS} elements")
    return sizes


def _reshape(operator: Operator, inputs: Sequence[Array]) -> Array:
    wanted: Any = inputs[1].ravel() if len(inputs) > 1 else operator.options.get("NewShape", ())
    return inputs[0].reshape(tuple(int(size) for size in wanted))


def _concatenate(operator: Operator, inputs: Sequence[Array]) -> Array:
    check_size((sum(part.size for part in inputs),))
    return np.concatenate(inputs, axis=int(operator.options.get("Axis", 0)))


def _expand(_: Operator, inputs: Sequence[Array]) -> Array:
    return np.expand_dims(inputs[0], int(inputs[1].ravel()[0]))


def _squeeze(operator: Operator, inputs: Sequence[Array]) -> Array:
    places = tuple(int(axis) for axis in operator.options.get("SqueezeDims", ()))
    return np.squeeze(inputs[0], axis=places or None)


def _tile(_: Operator, inputs: Sequence[Array]) -> Array:
    times = tuple(int(count) for count in inputs[1].ravel())
    if len(times) != inputs[0].ndim:
        raise ValueError(f"a TILE with {len(times)} multiples for {inputs[0].ndim} dimensions")
    check_size([size * count for size, count in zip(inputs[0].shape, times, strict=True)])
    return np.tile(inputs[0], times)


def _pack(operator: Operator, inputs: Sequence[Array]) -> Array:
    check_size((sum(part.size for part in inputs),))
    return np.stack(inputs, axis=int(operator.options.get("Axis", 0)))


def _broadcast(_: Operator, inputs: Sequence[Array]) -> Array:
    return np.broadcast_to(inputs[0], check_size(inputs[1].ravel().tolist()))


SHAPES: dict[str, Kernel] = {
    "BROADCAST_TO": _broadcast,
    "CONCATENATION": _concatenate,
    "EXPAND_DIMS": _expand,
    "PACK": _pack,
    "RESHAPE": _reshape,
    "SQUEEZE": _squeeze,
    "TILE": _tile,
}
"""Operators that only move elements, of any type."""


# --- Numbers ----------------------------------------------------------------------------------------------------------

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "ADD": np.add,
    "DIV": np.divide,
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "MUL": np.multiply,
    "NOT_EQUAL": np.not_equal,
    "POW": np.power,
    "SQUARED_DIFFERENCE": lambda left, right: np.square(left - right),
    "SUB": np.subtract,
}
"""Operators of two numbers."""

UNARY: dict[str, Callable[[Array], Array]] = {
    "ABS": np.abs,
    "EXP": np.exp,
    "LOG": np.log,
    "LOGICAL_NOT": np.logical_not,
    "NEG": np.negative,
    "RELU": lambda values: np.maximum(values, 0),
    "RSQRT": lambda values: (1 / np.sqrt(values)).astype(values.dtype),
    "SQRT": np.sqrt,
    "SQUARE": np.square,
}
"""Operators of one number."""


def has_relu(operator: Operator) -> bool:
    """Whether RELU is fused into the operator, and no activation if not.

    Raises:
        ValueError: the activation is another one.
    """
    activation = operator.options.get("FusedActivationFunction", 0)
    if activation not in {0, 1}:
        raise ValueError(f"fused activation {activation}, which is neither none (0) nor RELU (1)")
    return activation == 1


def apply_activation(operator: Operator, value: Array) -> Array:
    """Apply the activation that is fused into the operator, by :func:`has_relu`."""
    return np.maximum(value, 0) if has_relu(operator) else value


def read_dense_weights(operator: Operator, inputs: Sequence[Array]) -> tuple[Array, Array]:
    """Read weights [I, O] and bias [O] of a ``FULLY_CONNECTED``.

    Raises:
        ValueError: the weights are no float matrix, or the bias does not fit them.
    """
    weight = inputs[1]
    if weight.ndim != 2 or weight.dtype.kind != "f" or operator.options.get("WeightsFormat", 0):
        raise ValueError(
            f"a dense layer with weights of type {weight.dtype} and shape {weight.shape}, not a plain matrix of floats"
        )
    bias = inputs[2].ravel() if len(inputs) > 2 else np.zeros(len(weight), np.float32)
    if bias.shape != (len(weight),) or bias.dtype.kind != "f":
        raise ValueError(
            f"a dense layer with a bias of type {bias.dtype} and shape {bias.shape} for weights of shape {weight.shape}"
        )
    return weight.T, bias


def _dense(operator: Operator, inputs: Sequence[Array]) -> Array:
    weight, bias = read_dense_weights(operator, inputs)
    rows = inputs[0].reshape(-1, len(weight))
    check_size((len(rows), len(bias)))
    outputs = apply_activation(operator, rows @ weight + bias)
    return outputs.reshape(*inputs[0].shape[:-1], -1) if operator.options.get("KeepNumDims") else outputs


def _gather(operator: Operator, inputs: Sequence[Array]) -> Array:
    table, places = inputs[0], inputs[1].astype(np.int64)
    if operator.options.get("Axis", 0) or operator.options.get("BatchDims", 0) or table.ndim == 0:
        raise ValueError("a GATHER along another axis than the first")
    check_size((*places.shape, *table.shape[1:]))
    if places.size and not (places.min() >= 0 and places.max() < len(table)):
        raise ValueError(f"a GATHER of rows {places.min()} to {places.max()} of {len(table)}")
    return table[places]


def _bucketize(operator: Operator, inputs: Sequence[Array]) -> Array:
    values = inputs[0].astype(np.float32)
    return np.searchsorted(read_boundaries(operator), values, side="right").astype(np.int32)


def read_boundaries(operator: Operator) -> Array:
    """Read the ascending boundaries of a ``BUCKETIZE``.

    Raises:
        ValueError: the boundaries descend or contain NaN, or there are none.
    """
    boundaries = np.asarray(operator.options.get("Boundaries", ()), np.float32)
    if not boundaries.size or np.isnan(boundaries).any() or (np.diff(boundaries) < 0).any():
        raise ValueError("a BUCKETIZE without boundaries, or with boundaries that do not ascend")
    return boundaries


def _arg_max(_: Operator, inputs: Sequence[Array]) -> Array:
    return np.argmax(inputs[0], axis=int(inputs[1].ravel()[0])).astype(np.int64)


def _multinomial(_: Operator, inputs: Sequence[Array]) -> Array:
    """Take the largest logit of each row, where TFLite draws one."""
    return np.argmax(inputs[0], axis=-1).astype(np.int64)[:, None]


def _softmax(operator: Operator, inputs: Sequence[Array]) -> Array:
    # 0 is what the file format has for a Beta that was not written.
    scaled = inputs[0] * float(operator.options.get("Beta", 1.0) or 1.0)
    powers = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)


def _mean(operator: Operator, inputs: Sequence[Array]) -> Array:
    axes = tuple(int(axis) for axis in inputs[1].ravel())
    return inputs[0].mean(axis=axes, keepdims=bool(operator.options.get("KeepDims", False))).astype(np.float32)


def _binary(kind: str) -> Kernel:
    def call(operator: Operator, inputs: Sequence[Array]) -> Array:
        left, right = inputs
        check_size(np.broadcast_shapes(left.shape, right.shape))
        return apply_activation(operator, BINARY[kind](left, right))

    return call


def _unary(kind: str) -> Kernel:
    return lambda _, inputs: UNARY[kind](inputs[0])


def _select(operator: Operator, inputs: Sequence[Array]) -> Array:
    condition, yes, no = inputs
    if operator.kind == "SELECT" and not condition.shape == yes.shape == no.shape:
        raise ValueError(f"a SELECT with a condition of shape {condition.shape} for shapes {yes.shape} and {no.shape}")
    check_size(np.broadcast_shapes(condition.shape, yes.shape, no.shape))
    return np.where(condition, yes, no)


KERNELS: dict[str, Kernel] = {
    **SHAPES,
    **{kind: _binary(kind) for kind in BINARY},
    **{kind: _unary(kind) for kind in UNARY},
    "ARG_MAX": _arg_max,
    "BUCKETIZE": _bucketize,
    "CAST": lambda _, inputs: inputs[0],
    "FLOOR": lambda _, inputs: np.floor(inputs[0]),
    "FULLY_CONNECTED": _dense,
    "GATHER": _gather,
    "MEAN": _mean,
    "MULTINOMIAL": _multinomial,
    **dict.fromkeys(CHOICES, _select),
    "SOFTMAX": _softmax,
}
"""The implementation of each operator. The type of the output tensor is set by the caller."""
