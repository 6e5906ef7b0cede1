"""What stands before a model's first dense layer: numbers that each are a function of one feature.

A cell is such a number. Operators that move elements move cells; those of numbers make new functions, once for each
function and not for each cell.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlgokit.policy.tflite.evaluate import BINARY, UNARY, apply_activation, check_size, read_boundaries
from mlgokit.policy.tflite.graph import Array, Operator
from mlgokit.policy.tflite.steps import INFINITY, Floats, Steps, merge_knots, representatives

MOST_COLUMNS = 1024
"""Elements of a feature."""
MOST_CELLS = 1 << 16
"""What one operator may make; eviction of 33 columns has 1,386."""
MOST_CATEGORIES = 256
"""Rows of a table that is looked up by a raw value."""
_MIRRORED = {
    "EQUAL": "EQUAL",
    "NOT_EQUAL": "NOT_EQUAL",
    "LESS": "GREATER",
    "LESS_EQUAL": "GREATER_EQUAL",
    "GREATER": "LESS",
    "GREATER_EQUAL": "LESS_EQUAL",
}
"""Comparisons, and what they are with both sides exchanged."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Raw:
    """A feature's raw value.

    Attributes:
        absolute: whether it is taken without its sign.
        infinite: what stands in the place of infinity, if something does.
    """

    absolute: bool = False
    infinite: float | None = None


Function = Raw | Steps
BOOLEAN = Steps(knots=np.array([1], np.float32), values=np.array([0, 1], np.float32))
"""A raw value that is 0 or 1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell:
    """A number that depends on one feature, or on none.

    Attributes:
        feature: its name; empty for a constant.
        column: which element of the feature.
        function: of the raw value.
    """

    feature: str
    column: int
    function: Function


def input_cells(feature: str, shape: Sequence[int]) -> Array:
    """The elements of an input, as cells.

    Raises:
        ValueError: there are more than a compiler's decision has columns.
    """
    raw = Raw()
    count = math.prod(check_size(shape))
    if count > MOST_COLUMNS:
        raise ValueError(f"{feature[:80]!r} of {count} elements, expected at most {MOST_COLUMNS}")
    return _objects([Cell(feature=feature, column=column, function=raw) for column in range(count)], shape)


def constant_cells(values: Array) -> Array:
    """Numbers as cells."""
    known: dict[float, Cell] = {}
    return _objects([known.setdefault(value, constant(value)) for value in values.ravel().tolist()], values.shape)


def constant(value: float) -> Cell:
    """A number as a cell."""
    steps = Steps(knots=np.empty(0, np.float32), values=np.array([value], np.float32))
    return Cell(feature="", column=0, function=steps)


def is_cells(value: Array) -> bool:
    """Whether an array has cells, and not numbers."""
    return value.dtype == object


def as_cells(value: Array) -> Array:
    """An array of either kind as cells."""
    return value if is_cells(value) else constant_cells(value)


class Workshop:
    """Memoized functions by how they are computed: columns share them."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Any] = {}

    def apply(self, operator: Operator, inputs: Sequence[Array], dtype: np.dtype[Any]) -> Array:
        """An operator of numbers on cells; ``dtype`` is of what it makes.

        Raises:
            ValueError: it does not fit, or what it makes is no function of one feature by steps.
        """
        match operator.kind:
            case "CAST":
                cells = self._each(inputs[0], ("CAST", dtype.kind), lambda function: _cast(function, dtype))
            case "BUCKETIZE":
                row = read_boundaries(operator)
                cells = self._each(inputs[0], ("BUCKETIZE", row.tobytes()), lambda function: _ranks(function, row))
            case "GATHER":
                cells = self._gather(operator, inputs)
            case "SELECT_V2":
                cells = self._select(*(as_cells(value) for value in inputs))
            case kind if kind in UNARY:
                cells = self._each(inputs[0], (kind,), lambda function: _unary(kind, function))
            case kind:
                left, right = (as_cells(value) for value in inputs)
                cells = self._pairs(kind, left, right)
        if operator.options.get("FusedActivationFunction", 0):
            return self._each(cells, ("RELU",), lambda steps: _activate(operator, steps))
        return cells

    def _each(self, cells: Array, name: tuple[Any, ...], make: Callable[[Function], Function]) -> Array:
        return _objects(
            [
                Cell(
                    feature=cell.feature,
                    column=cell.column,
                    function=self._memoize(cell.feature, (*name, cell.function), lambda cell=cell: make(cell.function)),
                )
                for cell in cells.ravel().tolist()
            ],
            cells.shape,
        )

    def _pairs(self, kind: str, left: Array, right: Array) -> Array:
        check_size(np.broadcast_shapes(left.shape, right.shape))
        lefts, rights = np.broadcast_arrays(left, right)
        cells: list[Cell] = []
        for first, second in zip(lefts.ravel().tolist(), rights.ravel().tolist(), strict=True):
            feature, column = _shared_input([first, second])
            function = self._memoize(
                feature,
                (kind, first.function, second.function),
                lambda first=first, second=second: _binary(kind, first.function, second.function),
            )
            cells.append(Cell(feature=feature, column=column, function=function))
        return _objects(cells, lefts.shape)

    def _select(self, condition: Array, yes: Array, no: Array) -> Array:
        check_size(np.broadcast_shapes(condition.shape, yes.shape, no.shape))
        parts = np.broadcast_arrays(condition, yes, no)
        cells: list[Cell] = []
        for three in zip(*(part.ravel().tolist() for part in parts), strict=True):
            feature, column = _shared_input(three)
            functions = tuple(cell.function for cell in three)
            function = self._memoize(
                feature, ("SELECT_V2", *functions), lambda functions=functions: _choose(*functions)
            )
            cells.append(Cell(feature=feature, column=column, function=function))
        return _objects(cells, parts[0].shape)

    def _gather(self, operator: Operator, inputs: Sequence[Array]) -> Array:
        table, places = inputs
        if (
            is_cells(table)
            or table.ndim != 2
            or operator.options.get("Axis", 0)
            or operator.options.get("BatchDims", 0)
        ):
            raise ValueError("expected rows of a constant table")
        check_size((*places.shape, table.shape[1]))
        rows: list[Cell] = []
        for cell in places.ravel().tolist():
            made = self._memoize(
                cell.feature,
                ("GATHER", table.tobytes(), cell.function),
                lambda cell=cell: _rows(cell.function, table),
            )
            rows += [Cell(feature=cell.feature, column=cell.column, function=function) for function in made]
        return _objects(rows, (*places.shape, table.shape[1]))

    def _memoize(self, feature: str, name: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if name not in self._made:
            try:
                with np.errstate(all="ignore"):
                    self._made[name] = make()
            except ValueError as error:
                raise ValueError(f"{feature[:80]}: {error}") from error
        return self._made[name]


def _objects(cells: Sequence[Cell], shape: Sequence[int]) -> Array:
    if len(cells) > MOST_CELLS:
        raise ValueError(f"{len(cells)} numbers before the first dense layer, expected at most {MOST_CELLS}")
    array = np.empty(len(cells), object)
    array[:] = cells
    return array.reshape(tuple(shape))


def _shared_input(cells: Sequence[Cell]) -> tuple[str, int]:
    """The one feature and column that cells depend on."""
    inputs = {(cell.feature, cell.column) for cell in cells if cell.feature}
    if len(inputs) > 1:
        names = " and ".join(sorted({f"{feature}[{column}]" for feature, column in inputs}))
        raise ValueError(f"{names} in one number before the first dense layer, expected one feature")
    return next(iter(inputs), ("", 0))


def _ranks(function: Function, row: Floats) -> Steps:
    if isinstance(function, Steps):
        values = np.searchsorted(row, function.values.astype(np.float32), side="right")
        return Steps(knots=function.knots, values=values.astype(np.float32))
    if function.absolute:
        raise ValueError("the boundaries of a value without its sign")
    knots = merge_knots([row])
    if function.infinite is not None:
        knots = merge_knots([knots, INFINITY])
    raw = representatives(knots)
    if function.infinite is not None:
        raw = np.where(raw >= INFINITY, np.float32(function.infinite), raw)
    return Steps(knots=knots, values=np.searchsorted(row, raw, side="right").astype(np.float32), row=row)


def _cast(function: Function, dtype: np.dtype[Any]) -> Function:
    if isinstance(function, Raw):
        return BOOLEAN if dtype.kind == "b" else function
    return Steps(knots=function.knots, values=function.values.astype(dtype).astype(np.float32), row=function.row)


def _unary(kind: str, function: Function) -> Function:
    if isinstance(function, Steps):
        return Steps(knots=function.knots, values=UNARY[kind](function.values).astype(np.float32), row=function.row)
    if kind == "ABS" and function.infinite is None:
        return Raw(absolute=True)
    raise ValueError(
        f"{kind} of a raw feature value; a policy file can represent only ranks among boundaries and categories"
    )


def _activate(operator: Operator, function: Function) -> Function:
    if isinstance(function, Raw):
        raise ValueError("an activation of a raw value")  # noqa: TRY004  (of the model, not of the call)
    return Steps(knots=function.knots, values=apply_activation(operator, function.values), row=function.row)


def _binary(kind: str, left: Function, right: Function) -> Function:
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
    """Compare a raw value with a number."""
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
    if isinstance(condition, Raw):
        condition = BOOLEAN
    about_infinity = np.array_equal(condition.knots, INFINITY) and condition.values.tolist() == [0, 1]
    if about_infinity and isinstance(no, Raw) and isinstance(yes, Steps) and not len(yes.knots) and not no.absolute:
        return Raw(infinite=float(yes.values[0]))
    if isinstance(yes, Raw) or isinstance(no, Raw):
        raise ValueError("a choice between raw values that is not about infinity")  # noqa: TRY004  (as above)
    knots = merge_knots([condition.knots, yes.knots, no.knots])
    raw = representatives(knots)
    values = np.where(condition.at(raw) != 0, yes.at(raw), no.at(raw)).astype(np.float32)
    return Steps(knots=knots, values=values, row=max((yes.row, no.row), key=len))


def _rows(function: Function, table: Array) -> list[Steps]:
    """Each column of a table that is looked up by a feature, as a function of the feature."""
    if isinstance(function, Raw):
        if len(table) > MOST_CATEGORIES or function.absolute or function.infinite is not None:
            raise ValueError(f"a table of {len(table)} rows by a raw value, expected at most {MOST_CATEGORIES}")
        knots, places = np.arange(1, len(table), dtype=np.float32), np.arange(len(table))
    else:
        knots, places = function.knots, function.values.astype(np.int64)
        if not (places.min() >= 0 and places.max() < len(table)):
            raise ValueError(f"row {places.max()} of a table of {len(table)}")
    return [Steps(knots=knots, values=table[places, column].astype(np.float32)) for column in range(table.shape[1])]
