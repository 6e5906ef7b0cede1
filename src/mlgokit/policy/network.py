"""A policy: feature names, normaliser and an ensemble of small networks, evaluated in numpy.

The plugin evaluates the same files in C++. Both multiply and add in the same order and precision, so a preference is
the same number here and there; ``tests/llvm`` holds them to it.
"""

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlgokit.dataset.normaliser import Normaliser, Values


class OutputKind(enum.Enum):
    """What the last layer means."""

    EFFECT_BYTES = "effect-bytes"
    """One number: the change of the score in bytes when the call site is inlined rather than not."""
    LOGITS = "logits"
    """Two numbers: the unnormalised log-probabilities of not inlining and of inlining."""
    COLUMN_LOGIT = "column-logit"
    """One number for each column, of networks that see one column at a time: its unnormalised log-probability."""
    PRIORITY = "priority"
    """One number, which :func:`mlgokit.policy.exploration.priority_of` turns into a priority."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One dense layer of each of K networks.

    Attributes:
        weight: float32 [K, I, O].
        bias: float32 [K, O].
    """

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Decides call sites from their features.

    Attributes:
        problem: name of the problem it was trained for.
        features: names of its inputs, in the order of the normaliser's rows.
        normaliser: turns raw values into inputs.
        layers: dense layers with ReLU between them.
        output: meaning of the last layer.
        bytes_per_unit: bytes that make one unit of preference (effect-bytes only).
        caution: standard deviations of the members that are added to an effect before it is believed.
        mask: the feature that says which columns may be chosen (column-logit only).
    """

    problem: str
    features: tuple[str, ...]
    normaliser: Normaliser
    layers: tuple[Layer, ...]
    output: OutputKind
    bytes_per_unit: float = 1.0
    caution: float = 0.0
    mask: str = ""

    @property
    def members(self) -> int:
        """Number of networks in the ensemble."""
        return len(self.layers[0].weight)

    def answers(self, values: Values) -> npt.NDArray[np.float64]:
        """Each member's answer [K, T] for raw ``values`` [T, F]: effects in bytes, or differences of logits."""
        hidden = np.broadcast_to(self.normaliser.apply(values), (self.members, len(values), self.normaliser.width))
        for index, layer in enumerate(self.layers):
            total = np.broadcast_to(layer.bias[:, None, :], (*hidden.shape[:2], layer.bias.shape[1])).copy()
            # One input after the other: the plugin's order of additions, which a matrix product would not keep.
            for column in range(layer.weight.shape[1]):
                total += hidden[:, :, column, None] * layer.weight[:, None, column, :]
            hidden = np.maximum(total, 0) if index + 1 < len(self.layers) else total
        wide = hidden.astype(np.float64)
        return wide[:, :, 1] - wide[:, :, 0] if self.output is OutputKind.LOGITS else wide[:, :, 0]

    def preferences(self, values: Values) -> npt.NDArray[np.float64]:
        """Preference for inlining [T] for raw ``values`` [T, F]; positive means inline."""
        total = np.zeros(len(values))
        squares = np.zeros(len(values))
        for answer in self.answers(values):
            total += answer
            squares += answer * answer
        average = total / self.members
        if self.output is not OutputKind.EFFECT_BYTES:
            return average
        variance = np.maximum(0.0, squares / self.members - average * average)
        return -(average + self.caution * np.sqrt(variance)) / self.bytes_per_unit
