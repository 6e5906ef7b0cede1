"""The part of a TFLite model before its first dense layer, where each number is a function of one feature.

A cell is such a number, kept as its function. Operators that move elements move cells; operators of numbers make new
functions, once for each function and not for each cell.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mlgokit.policy.tflite.evaluate import BINARY, UNARY, apply_activation, check_size, read_boundaries
from mlgokit.policy.tflite.graph import Array, Operator
from mlgokit.policy.tflite.steps import INFINITY, Floats, Steps, merge_knots, representatives

MOST_COLUMNS = 1024
"""Maximum elements of a feature."""
MOST_CELLS = 1 << 16
"""Maximum cells that one operator may make; eviction of 33 columns has 1,386."""
MOST_CATEGORIES = 256
"""Maximum rows of an embedding table that is looked up by a raw feature value."""
_MIRRORED = {
    "EQUAL": "EQUAL",
    "NOT_EQUAL": "NOT_EQUAL",
    "LESS": "GREATER",
    "LESS_EQUAL": "GREATER_EQUAL",
    "GREATER": "LESS",
    "GREATER_EQUAL": "LESS_EQUAL",
}
"""For each comparison the one that is equal to it with both operands exchanged."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Raw:
    """The function that returns a feature's raw value.

    Attributes:
        absolute: whether the absolute value is returned.
        infinite: number that replaces infinity; ``None`` if infinity is not replaced.
    """

    absolute: bool = False
    infinite: float | None = None


Function = Raw | Steps
BOOLEAN = Steps(knots=np.array([1], np.float32), values=np.array([0, 1], np.float32))
"""The function of a feature whose raw values are 0 and 1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell:
    """A number that is a function of one element of one feature, or a constant.

    Attributes:
        feature: name of the feature; empty for a constant.
        column: position of the element in the feature.
        function: function of the element's raw value.
    """

    feature: str
    column: int
    function: Function


def input_cells(feature: str, shape: Sequence[int]) -> Array:
    """Make a cell of each element of an input.

    Raises:
        ValueError: the input has more than :data:`MOST_COLUMNS` elements.
    """
    raw = Raw()
    count = math.prod(check_size(shape))
    if count > MOST_COLUMNS:
        raise ValueError(f"an input {feature[:80]!r} of {count} elements (at most {MOST_COLUMNS} can be read)")
    return _cell_array([Cell(feature=feature, column=column, function=raw) for column in range(count)], shape)


def constant_cells(values: Array) -> Array:
    """Make a cell of each number; equal numbers share one."""
    known: dict[float, Cell] = {}
    return _cell_array([known.setdefault(value, constant(value)) for value in values.ravel().tolist()], values.shape)


def constant(value: float) -> Cell:
    """Make a cell of one number."""
    steps = Steps(knots=np.empty(0, np.float32), values=np.array([value], np.float32))
    return Cell(feature="", column=0, function=steps)


def is_cells(value: Array) -> bool:
    """Whether an array has cells, and not numbers."""
    return value.dtype == object


def as_cells(value: Array) -> Array:
    """Return ``value`` itself if it has cells, else its numbers as cells."""
    return value if is_cells(value) else constant_cells(value)


class CellOperators:
    """Applies operators to cells. Functions are memoized by how they are computed, so that columns share them."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Any] = {}

    def apply(self, operator: Operator, inputs: Sequence[Array], dtype: np.dtype[Any]) -> Array:
        """Apply an operator of numbers to cells; ``dtype`` is the type of its output tensor.

        Raises:
            ValueError: the operator does not fit its inputs, or its output is no step function of one feature.
        """
        match operator.kind:
            case "CAST":
                cells = self._map(("CAST", dtype.kind), partial(_cast, dtype=dtype), inputs[0])
            case "BUCKETIZE":
                row = read_boundaries(operator)
                cells = self._map(("BUCKETIZE", row.tobytes()), partial(_bucketize, row=row), inputs[0])
            case "GATHER":
                cells = self._gather(operator, inputs)
            case "SELECT_V2":
                condition, yes, no = (as_cells(value) for value in inputs)
                cells = self._map(("SELECT_V2",), _choose, condition, yes, no)
            case kind if kind in UNARY:
                cells = self._map((kind,), partial(_unary, kind), inputs[0])
            case kind:
                left, right = (as_cells(value) for value in inputs)
                cells = self._map((kind,), partial(_binary, kind), left, right)
        if operator.options.get("FusedActivationFunction", 0):
            return self._map(("RELU",), partial(_apply_fused_activation, operator), cells)
        return cells

    def _map(self, name: tuple[Any, ...], make: Callable[..., Function], *parts: Array) -> Array:
        """Apply ``make`` to the functions of the cells at each place of ``parts``; ``name`` identifies it."""
        check_size(np.broadcast_shapes(*(part.shape for part in parts)))
        arrays = np.broadcast_arrays(*parts)
        cells: list[Cell] = []
        for together in zip(*(array.ravel().tolist() for array in arrays), strict=True):
            feature, column = _shared_input(together)
            functions = tuple(cell.function for cell in together)
            made = self._memoize(feature, (*name, *functions), lambda functions=functions: make(*functions))
            cells.append(Cell(feature=feature, column=column, function=made))
        return _cell_array(cells, arrays[0].shape)

    def _gather(self, operator: Operator, inputs: Sequence[Array]) -> Array:
        """Look up rows of a constant matrix by cells."""
        table, places = inputs
        if (
            is_cells(table)
            or table.ndim != 2
            or operator.options.get("Axis", 0)
            or operator.options.get("BatchDims", 0)
        ):
            raise ValueError("a GATHER that does not look up rows of a constant matrix (Axis 0, BatchDims 0)")
        check_size((*places.shape, table.shape[1]))
        rows: list[Cell] = []
        for cell in places.ravel().tolist():
            made = self._memoize(
                cell.feature,
                ("GATHER", table.tobytes(), cell.function),
                lambda cell=cell: _look_up(cell.function, table),
            )
            rows += [Cell(feature=cell.feature, column=cell.column, function=function) for function in made]
        return _cell_array(rows, (*places.shape, table.shape[1]))

    def _memoize(self, feature: str, name: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return what ``make`` made under this name before, or make it; errors name the feature."""
        if name not in self._made:
            try:
                with np.errstate(all="ignore"):
                    self._made[name] = make()
            except ValueError as error:
                raise ValueError(f"{feature[:80]}: {error}") from error
        return self._made[name]


def _cell_array(cells: Sequence[Cell], shape: Sequence[int]) -> Array:
    """Make an array of cells, of bounded size."""
    if len(cells) > MOST_CELLS:
        raise ValueError(f"{len(cells)} numbers before the first dense layer (at most {MOST_CELLS} can be read)")
    array = np.empty(len(cells), object)
    array[:] = cells
    return array.reshape(tuple(shape))


def _shared_input(cells: Sequence[Cell]) -> tuple[str, int]:
    """Find the feature and the column that all cells depend on; an empty name if all are constant."""
    inputs = {(cell.feature, cell.column) for cell in cells if cell.feature}
    if len(inputs) > 1:
        names = " and ".join(sorted({f"{feature}[{column}]" for feature, column in inputs}))
        raise ValueError(f"a number before the first dense layer that depends on {names}, not on one feature alone")
    return next(iter(inputs), ("", 0))


def _bucketize(function: Function, row: Floats) -> Steps:
    """Make the function that counts the boundaries ``row`` which are not above the value of ``function``."""
    if isinstance(function, Steps):
        values = np.searchsorted(row, function.values.astype(np.float32), side="right")
        return Steps(knots=function.knots, values=values.astype(np.float32))
    if function.absolute:
        raise ValueError("a BUCKETIZE of the absolute value of a feature")
    knots = merge_knots([row])
    if function.infinite is not None:
        knots = merge_knots([knots, INFINITY])
    raw = representatives(knots)
    if function.infinite is not None:
        raw = np.where(raw >= INFINITY, np.float32(function.infinite), raw)
    return Steps(knots=knots, values=np.searchsorted(row, raw, side="right").astype(np.float32), row=row)


def _cast(function: Function, dtype: np.dtype[Any]) -> Function:
    """Convert the values of a function to another type."""
    if isinstance(function, Raw):
        return BOOLEAN if dtype.kind == "b" else function
    return Steps(knots=function.knots, values=function.values.astype(dtype).astype(np.float32), row=function.row)


def _unary(kind: str, function: Function) -> Function:
    """Apply an operator of one number, such as SQRT or ABS, to the values of a function."""
    if isinstance(function, Steps):
        return Steps(knots=function.knots, values=UNARY[kind](function.values).astype(np.float32), row=function.row)
    if kind == "ABS" and function.infinite is None:
        return Raw(absolute=True)
    raise ValueError(
        f"{kind} of a raw feature value; a policy file can represent only ranks among boundaries and categories"
    )


def _apply_fused_activation(operator: Operator, function: Function) -> Function:
    """Apply the activation that is fused into an operator (RELU, say) to the values of the operator's step function."""
    if isinstance(function, Raw):
        raise ValueError("an activation of a raw feature value")  # noqa: TRY004  (of the model, not of the call)
    return Steps(knots=function.knots, values=apply_activation(operator, function.values), row=function.row)


def _binary(kind: str, left: Function, right: Function) -> Function:
    """Apply an operator of two numbers, such as ADD, to two functions of the same feature."""
    if isinstance(left, Steps) and isinstance(right, Steps):
        knots = merge_knots([left.knots, right.knots])
        raw = representatives(knots)
        row = left.row if len(left.row) >= len(right.row) else right.row
        return Steps(knots=knots, values=BINARY[kind](left.at(raw), right.at(raw)).astype(np.float32), row=row)
    if isinstance(left, Raw) and isinstance(right, Steps) and not len(right.knots):
        return _compare(kind, left, float(right.values[0]))
    if isinstance(right, Raw) and isinstance(left, Steps) and not len(left.knots) and kind in _MIRRORED:
        return _compare(_MIRRORED[kind], right, float(left.values[0]))
    raise ValueError(
        f"{kind} of a raw feature value; a policy file can represent only ranks among boundaries and categories"
    )


def _compare(kind: str, raw: Raw, number: float) -> Steps:
    """Make the step function that compares a raw value with a number."""
    if math.isinf(number) and number > 0 and kind in {"EQUAL", "NOT_EQUAL"}:
        # The plugin's least value is that of minus infinity as well, which no feature has.
        return Steps(knots=INFINITY, values=np.array([0, 1] if kind == "EQUAL" else [1, 0], np.float32))
    if (
        kind not in {"EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"}
        or raw.absolute
        or raw.infinite is not None
    ):
        raise ValueError(
            f"{kind} of a raw feature value; a policy file can represent only ranks among boundaries and categories"
        )
    at = np.array([number], np.float32)
    knots = np.concatenate([at, np.nextafter(at, np.float32(np.inf))])
    return Steps(knots=knots, values=BINARY[kind](representatives(knots), at).astype(np.float32))


def _choose(condition: Function, yes: Function, no: Function) -> Function:
    """Make the function of a SELECT_V2: a step function, or a raw value in which a number replaces infinity."""
    if isinstance(condition, Raw):
        condition = BOOLEAN
    about_infinity = np.array_equal(condition.knots, INFINITY) and condition.values.tolist() == [0, 1]
    if about_infinity and isinstance(no, Raw) and isinstance(yes, Steps) and not len(yes.knots) and not no.absolute:
        return Raw(infinite=float(yes.values[0]))
    if isinstance(yes, Raw) or isinstance(no, Raw):
        raise ValueError("a SELECT_V2 of a raw feature value that does more than replace infinity")  # noqa: TRY004  (as above)
    knots = merge_knots([condition.knots, yes.knots, no.knots])
    raw = representatives(knots)
    values = np.where(condition.at(raw) != 0, yes.at(raw), no.at(raw)).astype(np.float32)
    return Steps(knots=knots, values=values, row=max((yes.row, no.row), key=len))


def _look_up(function: Function, table: Array) -> list[Steps]:
    """Make a step function of each column of an embedding table, whose row ``function`` selects."""
    if isinstance(function, Raw):
        if len(table) > MOST_CATEGORIES or function.absolute or function.infinite is not None:
            raise ValueError(
                f"a table of {len(table)} rows that is looked up by a raw feature value (at most {MOST_CATEGORIES} can "
                "be read)"
            )
        knots, places = np.arange(1, len(table), dtype=np.float32), np.arange(len(table))
    else:
        knots, places = function.knots, function.values.astype(np.int64)
        if not (places.min() >= 0 and places.max() < len(table)):
            raise ValueError(f"index {places.max()} into a table of {len(table)} rows")
    return [Steps(knots=knots, values=table[places, column].astype(np.float32)) for column in range(table.shape[1])]
