"""Finds the dense network in a TFLite model, and evaluates all operators before it symbolically.

Before the first dense layer the value of a tensor is an array of cells (``cells.py``), after it a :class:`Stack`.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlgokit.errors import InputError
from mlgokit.policy.tflite.cells import Cell, CellOperators, Raw, as_cells, input_cells, is_cells
from mlgokit.policy.tflite.evaluate import (
    BINARY,
    KERNELS,
    SHAPES,
    UNARY,
    has_relu,
    misfit_error,
    operand,
    read_dense_weights,
    report_shape_errors,
    unknown_operator_error,
)
from mlgokit.policy.tflite.graph import Array, Graph, Operator
from mlgokit.policy.tflite.steps import Steps

PREFIX = "action_"
"""Prefix of a feature's name in the name of its tensor."""
_STATE = "network_state"
"""Name of the input with the state of google/ml-compiler-opt's recurrent networks."""
DECISIONS = ("ARG_MAX", "MULTINOMIAL")
"""Operators that turn logits into a decision."""
_OF_CELLS = {*SHAPES, *BINARY, *UNARY, "CAST", "BUCKETIZE", "GATHER", "SELECT_V2", "FULLY_CONNECTED", "SOFTMAX"}
_LEAST_LOGIT = -1e30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dense:
    """One dense layer: weight [I, O], bias [O], and whether negative outputs become 0."""

    weight: Array
    bias: Array
    relu: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """Dense layers that are applied to each of R rows of cells.

    Attributes:
        cells: [R, I] inputs of the first layer, one row for each column that is decided about.
        layers: dense layers, the same for each row.
        shape: shape of the output tensor, with R * O elements.
        mask: name of the feature that says which columns may be chosen; empty if there is no mask.
        order_only: whether an operator kept the order of the outputs alone, so that nothing may compute with them.
    """

    cells: Array
    layers: tuple[Dense, ...]
    shape: tuple[int, ...]
    mask: str = ""
    order_only: bool = False


Value = Array | Stack


def find_network(graph: Graph, origin: str) -> tuple[Stack, Operator]:
    """Find the network whose largest output is the decision; also returns the operator that decides.

    Raises:
        InputError: the model has no such operator, or something else than a dense network before it.
    """
    deciding = [operator for operator in graph.operators if operator.kind in DECISIONS]
    if len(deciding) != 1:
        others = sorted({operator.kind for operator in graph.operators})[:20]
        listed = ", ".join([operator.kind for operator in deciding] or others or ["none"])
        raise InputError(
            f"model {origin}: expected exactly one operator {' or '.join(DECISIONS)}, whose result is the "
            f"decision, found {listed}; convert a policy with binary decisions or a choice among columns"
        )
    values: dict[int, Value] = {}
    for index in graph.inputs:
        tensor = graph.tensors[index]
        name = graph.input_name(index).removeprefix(PREFIX)
        if name.startswith(_STATE):
            raise InputError(
                f"model {origin}: input {name[:80]}: expected features only, found the state of a recurrent "
                "network, which no LLVM carries to the next decision; convert a model without recurrent layers, or "
                "train a recurrent policy with `mlgokit train`"
            )
        try:
            values[index] = input_cells(name, tensor.shape)
        except ValueError as error:
            raise InputError(
                f"model {origin}: expected inputs for a single decision (batch size 1), found {error}; convert a "
                "model with batch size 1"
            ) from error
    cell_operators = CellOperators()
    needed = _needed_operators(graph, deciding[0])
    for number in needed:
        operator = graph.operators[number]
        if operator.kind not in _OF_CELLS:
            raise unknown_operator_error(operator.kind, dict.fromkeys([*_OF_CELLS, *DECISIONS]), origin)
        if len(operator.outputs) != 1:
            raise misfit_error(operator, origin, f"{len(operator.outputs)} outputs")
        inputs = [_value(graph, index, values, origin) for index in operator.inputs if index >= 0]
        output = graph.tensors[operator.outputs[0]]
        try:
            values[operator.outputs[0]] = _apply(operator, inputs, output.dtype, cell_operators, origin)
        except (ValueError, IndexError, TypeError, OverflowError) as error:
            raise misfit_error(operator, origin, error) from error
    last = _value(graph, deciding[0].inputs[0], values, origin) if deciding[0].inputs else np.zeros(0)
    if not isinstance(last, Stack):
        raise misfit_error(deciding[0], origin, "no dense layer before it")
    return last, deciding[0]


def _needed_operators(graph: Graph, deciding: Operator) -> list[int]:
    """List the numbers of the operators that the decision depends on, in execution order."""
    maker = {output: number for number, operator in enumerate(graph.operators) for output in operator.outputs}
    wanted, seen = list(deciding.inputs[:1]), set[int]()
    while wanted:
        number = maker.get(wanted.pop())
        if number is not None and number not in seen:
            seen.add(number)
            wanted.extend(graph.operators[number].inputs)
    return sorted(seen)


def _value(graph: Graph, index: int, values: Mapping[int, Value], origin: str) -> Value:
    """Look up the value of a tensor: computed before, or a constant."""
    value = values.get(index)
    return operand(graph, index, {}, origin) if value is None else value


def _apply(
    operator: Operator, inputs: Sequence[Value], dtype: np.dtype[Any], cell_operators: CellOperators, origin: str
) -> Value:
    """Apply an operator to cells, to constants, or to a network."""
    if any(isinstance(value, Stack) for value in inputs):
        return _on_stack(operator, inputs)
    arrays = [value for value in inputs if not isinstance(value, Stack)]
    if not any(is_cells(value) for value in arrays):
        return report_shape_errors(KERNELS[operator.kind], origin)(operator, arrays).astype(dtype, copy=False)
    if operator.kind in SHAPES:
        if operator.kind in {"CONCATENATION", "PACK"}:
            arrays = [as_cells(value) for value in arrays]
        return SHAPES[operator.kind](operator, arrays)
    if operator.kind == "FULLY_CONNECTED":
        layer = _layer(operator, arrays)
        rows = arrays[0].reshape(-1, len(layer.weight))
        return Stack(cells=rows, layers=(layer,), shape=(len(rows), len(layer.bias)))
    return cell_operators.apply(operator, arrays, dtype)


def _layer(operator: Operator, inputs: Sequence[Array]) -> Dense:
    """Read the dense layer of a FULLY_CONNECTED, whose weights must be finite constants."""
    if any(is_cells(value) for value in inputs[1:]):
        raise ValueError("a dense layer whose weights depend on features")
    weight, bias = read_dense_weights(operator, inputs)
    relu = has_relu(operator)
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise ValueError("a dense layer whose weights are not finite")
    return Dense(weight=weight, bias=bias, relu=relu)


def _on_stack(operator: Operator, inputs: Sequence[Value]) -> Stack:
    """Append an operator to a network of dense layers."""
    if operator.kind == "SELECT_V2":
        return _mask(inputs)
    stack = inputs[0]
    others = [value for value in inputs[1:] if not isinstance(value, Stack)]
    if not isinstance(stack, Stack) or len(others) != len(inputs) - 1 or any(is_cells(value) for value in others):
        raise ValueError("an operator that combines the dense network with another network or with features")
    width, ended = len(stack.layers[-1].bias), stack.order_only or bool(stack.mask)
    match operator.kind:
        case "RESHAPE" | "SQUEEZE" | "EXPAND_DIMS":
            moved = SHAPES[operator.kind](operator, [np.empty(stack.shape, np.bool_), *others])
            return replace(stack, shape=moved.shape)
        case "SOFTMAX" | "CAST":
            return replace(stack, order_only=True)
        case "RELU" if not ended:
            return replace(stack, layers=(*stack.layers[:-1], replace(stack.layers[-1], relu=True)))
        case "ADD" | "MUL" | "SUB" if not ended and not stack.layers[-1].relu:
            last = stack.layers[-1]
            number = np.broadcast_to(others[0].ravel(), (width,)) if others[0].size == 1 else others[0].reshape(width)
            bias = BINARY[operator.kind](last.bias, number)
            weight = last.weight * number if operator.kind == "MUL" else last.weight
            layer = Dense(weight=weight, bias=bias, relu=has_relu(operator))
            return replace(stack, layers=(*stack.layers[:-1], layer))
        case "FULLY_CONNECTED" if not ended:
            layer = _layer(operator, [np.empty((0, width)), *others])
            if len(layer.weight) != width:
                raise ValueError(f"a dense layer with {len(layer.weight)} inputs after one with {width} outputs")
            return replace(stack, layers=(*stack.layers, layer), shape=(len(stack.cells), len(layer.bias)))
        case _:
            raise ValueError("an operator after a dense layer that cannot be merged into a network of dense layers")


def _mask(inputs: Sequence[Value]) -> Stack:
    """Apply a SELECT_V2 that gives columns which may not be chosen a number below all logits: note its mask feature."""
    condition, yes, no = inputs
    flipped = isinstance(no, Stack)
    stack, other = (no, yes) if isinstance(no, Stack) else (yes, no)
    if not isinstance(stack, Stack) or isinstance(other, Stack) or isinstance(condition, Stack) or stack.mask:
        raise ValueError("a SELECT_V2 that does not choose between logits and a number")
    if is_cells(other) or not is_cells(condition) or not (other <= _LEAST_LOGIT).all():
        raise ValueError(
            f"a SELECT_V2 whose condition is not a feature, or whose value for masked columns is above {_LEAST_LOGIT:g}"
        )
    cells: list[Cell] = condition.ravel().tolist()
    if [cell.column for cell in cells] != list(range(len(stack.cells))) or len({cell.feature for cell in cells}) != 1:
        raise ValueError("a mask that is not one feature with an element for each column")
    for cell in cells:
        if isinstance(cell.function, Raw):
            allowed = [False, True]
        else:
            allowed = [bool(value) for value in cell.function.at(np.array([0.0, 1.0])).tolist()]
        if allowed != ([True, False] if flipped else [False, True]):
            raise ValueError("a mask that is not 0 where a column may not be chosen")
    return replace(stack, mask=cells[0].feature)


def rows_agree(cells: Array, per_column: Container[str]) -> tuple[Cell, ...]:
    """Check that all rows of ``cells`` [R, I] have the same functions, each of its own column; returns the first row.

    Args:
        cells: inputs of the first layer.
        per_column: names of features that have an element for each row; all rows share the element of other features.

    Raises:
        ValueError: a row has another function than the first row, or another row's element.
    """
    rows: list[list[Cell]] = cells.tolist()
    for number, row in enumerate(rows):
        for own, cell in zip(rows[0], row, strict=True):
            column = number if cell.feature in per_column else 0
            if own.feature != cell.feature or not _same(own, cell) or cell.column != column:
                raise ValueError(
                    f"{cell.feature}[{cell.column}] among the inputs of row {number}, where row 0 has another input"
                )
    return tuple(rows[0])


def _same(left: Cell, right: Cell) -> bool:
    """Whether two cells have the same function, or are equal constants."""
    if left.function is right.function:
        return True
    functions = (left.function, right.function)
    values = [function.values.tolist() for function in functions if isinstance(function, Steps)]
    return not left.feature and len(values) == 2 and values[0] == values[1]
