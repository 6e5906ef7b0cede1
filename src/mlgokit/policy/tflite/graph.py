"""A TFLite model as a value: tensors, operators in the order in which they are carried out, inputs and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


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

    def named(self, index: int) -> str:
        """The name of a tensor without the port."""
        return self.tensors[index].name.partition(":")[0]
