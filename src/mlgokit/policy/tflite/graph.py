"""TFLite models as values (tensors, operators in execution order, inputs, outputs), and how one is built."""

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
    """One tensor.

    Attributes:
        name: its name in the file.
        dtype: of its elements.
        shape: its dimensions; none for a scalar.
        data: its value, of this type and shape, if it is a constant.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operation.

    Attributes:
        kind: TFLite's name of it, such as ``FULLY_CONNECTED``; ``CUSTOM`` for what is not built in.
        inputs: numbers of tensors; -1 for one that is left out.
        outputs: numbers of tensors.
        options: by the schema's names, such as ``Axis``; those that are not there have the schema's default.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model with one subgraph.

    Attributes:
        tensors: all of them; operators name them by their numbers.
        operators: each after those whose outputs it reads.
        inputs: numbers of the tensors that are given.
        outputs: numbers of the tensors that are asked for.
    """

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def input_name(self, index: int) -> str:
        """The name of a tensor without the port."""
        return self.tensors[index].name.partition(":")[0]


class GraphBuilder:
    """Builds a graph, one operator after the other. Its methods return tensor numbers.

    Inputs come first: LLVM takes an input's place among the inputs for its number among the tensors.
    """

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._operators: list[Operator] = []
        self._inputs: list[int] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def input(self, name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> int:
        """A tensor that is given.

        Raises:
            ValueError: there are other tensors already.
        """
        if len(self._inputs) != len(self._tensors):
            raise ValueError(f"input {name}: expected inputs before all other tensors, found one of those")
        self._inputs.append(self._tensor(name, dtype, shape))
        return self._inputs[-1]

    def constant(self, values: Array) -> int:
        """A tensor with a value; equal ones are one."""
        key = (values.dtype.str, values.shape, values.tobytes())
        if key not in self._constants:
            self._constants[key] = self._tensor(f"constant{len(self._constants)}", values.dtype, values.shape, values)
        return self._constants[key]

    def floats(self, *values: float) -> int:
        """A constant vector of floats."""
        return self.constant(np.array(values, FLOAT))

    def integers(self, *values: int) -> int:
        """A constant vector of 32-bit integers."""
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
        """What an operator makes: a tensor of this shape and type."""
        output = self._tensor(name or f"{kind.lower()}{len(self._operators)}", dtype, shape)
        self._operators.append(Operator(kind=kind, inputs=tuple(inputs), outputs=(output,), options=options))
        return output

    def cast(self, tensor: int, dtype: np.dtype[Any]) -> int:
        """The same numbers as another type."""
        return self.add("CAST", [tensor], self._tensors[tensor].shape, dtype)

    def reshape(self, tensor: int, shape: Sequence[int], *, name: str = "") -> int:
        """The same numbers in another shape."""
        wanted = self.integers(*shape)
        dtype = self._tensors[tensor].dtype
        return self.add("RESHAPE", [tensor, wanted], shape, dtype, name=name, NewShape=np.array(shape, INT32))

    def dense(self, tensor: int, weight: Array, bias: Array, *, relu: bool = False) -> int:
        """``tensor`` [R, I] through a layer of ``weight`` [I, O] and ``bias`` [O]."""
        rows = self._tensors[tensor].shape[0]
        transposed = self.constant(np.ascontiguousarray(weight.T, FLOAT))
        inputs = [tensor, transposed, self.constant(bias.astype(FLOAT))]
        return self.add("FULLY_CONNECTED", inputs, (rows, weight.shape[1]), FusedActivationFunction=int(relu))

    def shape_of(self, tensor: int) -> tuple[int, ...]:
        """The dimensions of a tensor."""
        return self._tensors[tensor].shape

    def dtype_of(self, tensor: int) -> np.dtype[Any]:
        """The type of a tensor's elements."""
        return self._tensors[tensor].dtype

    def finish(self, outputs: Sequence[int]) -> Graph:
        """The graph that gives these tensors."""
        return Graph(
            tensors=tuple(self._tensors),
            operators=tuple(self._operators),
            inputs=tuple(self._inputs),
            outputs=tuple(outputs),
        )

    def _tensor(self, name: str, dtype: np.dtype[Any], shape: Sequence[int], data: Array | None = None) -> int:
        self._tensors.append(Tensor(name=name, dtype=dtype, shape=tuple(shape), data=data))
        return len(self._tensors) - 1
