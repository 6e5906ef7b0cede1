"""Tensor specifications, as LLVM's training log and interactive channel declare them.

Source: ``llvm/include/llvm/Analysis/TensorSpec.h``; the names of the element types are LLVM's.
"""

import enum
import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from mlgokit.errors import InputError

DTYPES: dict[str, np.dtype[Any]] = {
    "float": np.dtype("=f4"),
    "double": np.dtype("=f8"),
    "int8_t": np.dtype("=i1"),
    "uint8_t": np.dtype("=u1"),
    "int16_t": np.dtype("=i2"),
    "uint16_t": np.dtype("=u2"),
    "int32_t": np.dtype("=i4"),
    "uint32_t": np.dtype("=u4"),
    "int64_t": np.dtype("=i8"),
    "uint64_t": np.dtype("=u8"),
}
"""LLVM's element type names, and the numpy types that have their layout (native endianness)."""
_DEEPEST = 8
"""Maximum dimensions of a tensor; LLVM's have one."""


class AdviceKind(enum.Enum):
    """The kind of decision that a problem asks for: yes or no, one of the legal columns, or a real number."""

    BINARY = "binary"
    MASKED_CHOICE = "masked-choice"
    REAL = "real"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, element type and shape of one tensor, as LLVM declares it.

    Example:
        >>> TensorSpec(name="node_count", type="int64_t", shape=(1,)).size_bytes
        8
    """

    name: str
    type: str
    shape: tuple[int, ...]
    port: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy element type."""
        return DTYPES[self.type]

    @property
    def size_bytes(self) -> int:
        """Bytes that one value of this tensor takes in a log."""
        return math.prod(self.shape) * self.dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        """Convert the specification to LLVM's JSON object, in LLVM's key order."""
        return {"name": self.name, "type": self.type, "port": self.port, "shape": list(self.shape)}

    @staticmethod
    def from_json(value: object) -> "TensorSpec":
        """Decode LLVM's JSON object.

        Raises:
            InputError: the value is no object, or a key is missing or has an impossible value.
        """
        if not isinstance(value, dict):
            raise InputError(f"tensor specification: expected a JSON object, found {type(value).__name__}")
        fields = cast("dict[str, object]", value)
        name, type_, shape, port = (fields.get(key) for key in ("name", "type", "shape", "port"))
        if not isinstance(name, str):
            raise InputError(f"tensor specification: expected a string as name, found {name!r}")
        if not isinstance(type_, str) or type_ not in DTYPES:
            raise InputError(f"tensor {name!r}: expected one of {', '.join(DTYPES)} as type, found {type_!r}")
        sizes = cast("list[object]", shape) if isinstance(shape, list) else []
        is_list = isinstance(shape, list) and len(sizes) <= _DEEPEST
        if not is_list or not all(type(n) is int and 0 < n < 2**24 for n in sizes):
            raise InputError(
                f"tensor {name!r}: expected a list of at most {_DEEPEST} positive integers as shape, found "
                f"{shape!r:.80}"
            )
        if type(port) is not int:
            raise InputError(f"tensor {name!r}: expected an integer as port, found {port!r}")
        return TensorSpec(name=name, type=type_, shape=tuple(cast("list[int]", sizes)), port=port)
