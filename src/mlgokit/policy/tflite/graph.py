"""TFLite models as values (tensors, operators in execution order, inputs, outputs), and a builder of such models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FLOAT = np.dtype("<f4")
INT32 = np.dtype("<i4")
INT64 = np.dtype("<i8")
BOOL = np.dtype("?")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensor:
    """One tensor of a model.

    Attributes:
        name: name of the tensor in the file.
        dtype: type of the elements.
        shape: dimensions; empty for a scalar.
        data: value of a constant, of this type and shape; ``None`` for other tensors.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a model.

    Attributes:
        kind: TFLite's name of the operator, such as ``FULLY_CONNECTED``; ``CUSTOM`` and its name if it is not built in.
        inputs: numbers of the tensors that the operator reads; -1 for an optional input that is left out.
        outputs: numbers of the tensors that the operator computes.
        options: options by the schema's names, such as ``Axis``; absent ones have the schema's default.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model with one subgraph.

    Attributes:
        tensors: all tensors; a tensor's number is its position.
        operators: operators in execution order.
        inputs: numbers of the model's input tensors.
        outputs: numbers of the model's output tensors.
    """

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def input_name(self, index: int) -> str:
        """Name a tensor without the port: ``action_node_count`` of ``action_node_count:0``."""
        return self.tensors[index].name.partition(":")[0]


class GraphBuilder:
    """Builds a graph, one operator after the other. Its methods add a tensor and return the tensor's number.

    Inputs must be added first: LLVM takes an input's position among the inputs for its number among the tensors.
    """

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._operators: list[Operator] = []
        self._inputs: list[int] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def input(self, name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> int:
        """Add an input of the model.

        Raises:
            ValueError: other tensors were added before.
        """
        if len(self._inputs) != len(self._tensors):
            raise ValueError(
                f"input {name}: expected all inputs to be added before other tensors, found others already; add "
                "the inputs first"
            )
        self._inputs.append(self._tensor(name, dtype, shape))
        return self._inputs[-1]

    def constant(self, values: Array) -> int:
        """Add a constant, or return the equal one that was added before."""
        key = (values.dtype.str, values.shape, values.tobytes())
        if key not in self._constants:
            self._constants[key] = self._tensor(f"constant{len(self._constants)}", values.dtype, values.shape, values)
        return self._constants[key]

    def floats(self, *values: float) -> int:
        """Add a constant vector of floats."""
        return self.constant(np.array(values, FLOAT))

    def integers(self, *values: int) -> int:
        """Add a constant vector of 32-bit integers."""
        return self.constant(np.array(values, INT32))

    def add(
        self,
        kind: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        dtype: np.dtype[Any] = FLOAT,
        *,
        name: str = "",
        **options: Any,
    ) -> int:
        """Add an operator of ``kind`` with one output, a tensor of this shape and type."""
        output = self._tensor(name or f"{kind.lower()}{len(self._operators)}", dtype, shape)
        self._operators.append(Operator(kind=kind, inputs=tuple(inputs), outputs=(output,), options=options))
        return output

    def cast(self, tensor: int, dtype: np.dtype[Any]) -> int:
        """Add a conversion of a tensor to another type."""
        return self.add("CAST", [tensor], self._tensors[tensor].shape, dtype)

    def reshape(self, tensor: int, shape: Sequence[int], *, name: str = "") -> int:
        """Add a reshape of a tensor."""
        wanted = self.integers(*shape)
        dtype = self._tensors[tensor].dtype
        return self.add("RESHAPE", [tensor, wanted], shape, dtype, name=name, NewShape=np.array(shape, INT32))

    def dense(self, tensor: int, weight: Array, bias: Array, *, relu: bool = False) -> int:
        """Add a dense layer on ``tensor`` [R, I] with ``weight`` [I, O] and ``bias`` [O]."""
        rows = self._tensors[tensor].shape[0]
        transposed = self.constant(np.ascontiguousarray(weight.T, FLOAT))
        inputs = [tensor, transposed, self.constant(bias.astype(FLOAT))]
        return self.add("FULLY_CONNECTED", inputs, (rows, weight.shape[1]), FusedActivationFunction=int(relu))

    def shape_of(self, tensor: int) -> tuple[int, ...]:
        """Return the dimensions of a tensor."""
        return self._tensors[tensor].shape

    def dtype_of(self, tensor: int) -> np.dtype[Any]:
        """Return the type of a tensor's elements."""
        return self._tensors[tensor].dtype

    def finish(self, outputs: Sequence[int]) -> Graph:
        """Make the graph whose outputs are these tensors."""
        return Graph(
            tensors=tuple(self._tensors),
            operators=tuple(self._operators),
            inputs=tuple(self._inputs),
            outputs=tuple(outputs),
        )

    def _tensor(self, name: str, dtype: np.dtype[Any], shape: Sequence[int], data: Array | None = None) -> int:
        self._tensors.append(Tensor(name=name, dtype=dtype, shape=tuple(shape), data=data))
        return len(self._tensors) - 1
